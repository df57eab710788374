// SPDX-License-Identifier: Apache-2.0
#include "runtime/driver_policy.h"

#include <catch2/catch.hpp>

namespace attnloom {
namespace {

const Fingerprint kNvrtc130 = {"0123456789abcdef", 13, 0, 13000};
const Fingerprint kNvrtc129 = {"0123456789abcdef", 12, 9, 12000};

// B95: driver 12.4, NVRTC 13.0, device 9.0.
TEST_CASE("a cubin of a newer CUDA major is refused and the error gives the least driver") {
  const Status status = check_driver(12040, kNvrtc130, {90, 'a'});
  CHECK(status.code == Code::kDriverTooOld);
  CHECK(status.cause ==
        "a kernel for sm_90a made by NVRTC 13.0 needs a driver for CUDA 13.0 or newer; this one is "
        "for CUDA 12.4");
  CHECK(status.remedy.find("CUDA 12") != std::string::npos);
}

TEST_CASE("a driver loads any cubin of its own major, and of older ones") {
  CHECK(check_driver(13000, kNvrtc130, {90, 'a'}).ok());
  CHECK(check_driver(12040, kNvrtc129, {90, 'a'}).ok());
  CHECK(check_driver(13000, kNvrtc129, {80, '\0'}).ok());
}

TEST_CASE("a chip needs the driver that introduced it") {
  CHECK(least_driver(kNvrtc129, {100, 'a'}) == 12080);
  CHECK(check_driver(12040, kNvrtc129, {100, 'a'}).code == Code::kDriverTooOld);
  CHECK(check_driver(12080, kNvrtc129, {100, 'a'}).ok());
}

TEST_CASE("drivers before 12.0 have no library calls") {
  CHECK(check_driver(11080, Fingerprint{}, {80, '\0'}).code == Code::kDriverTooOld);
}

TEST_CASE("which cubins fit which chip") {
  struct Row {
    Target target, device;
    bool fits;
  };
  const Row rows[] = {
      {{90, 'a'}, {90, 'a'}, true},     {{90, 'a'}, {100, '\0'}, false},
      {{90, '\0'}, {90, 'a'}, true},    {{80, '\0'}, {86, '\0'}, true},
      {{86, '\0'}, {80, '\0'}, false},  {{80, '\0'}, {90, 'a'}, false},
      {{100, 'f'}, {103, '\0'}, true},  {{100, 'f'}, {120, '\0'}, false},
      {{103, 'a'}, {100, '\0'}, false},
  };
  for (const Row& row : rows) {
    INFO(row.target.name() << " on " << row.device.name());
    CHECK(cubin_fits(row.target, row.device) == row.fits);
  }
}

}  // namespace
}  // namespace attnloom
