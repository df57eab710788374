// SPDX-License-Identifier: Apache-2.0
#include "plan/calibration.h"

#include <catch2/catch.hpp>

namespace attnloom {
namespace {

using Times = std::array<CalibrationTime, kCalibration.size()>;

// Of a device of 2048 bytes and 1048576 flops a nanosecond, worked by hand. A head's KV tile of 64
// keys is 32768 bytes; 64 x 4096 keys on 8 heads are 2^30. A causal prefill of 8192 tokens in tiles
// of 32 query tokens walks 32 + 64 + ... keys: on 8 heads 132096 tiles of 64 keys, 263168 of 32.
Times worked() {
  Times times;
  times[kEmpty] = {3000, 256, 0};
  times[kLong] = {524288 + 2 * 100 + 3000, 256, 512};
  times[kMany] = {524288 + 8 * 100 + 3000, 256, 2048};
  // 4194304 flops a tile on 128 CTAs: 512 ns and 256 ns, and 50 ns a step.
  times[kWide] = {3000 + 16 * 7000 + 132096 / 128.0 * (512 + 50), 128, 2048};
  times[kNarrow] = {3000 + 16 * 7000 + 263168 / 128.0 * (256 + 50), 128, 2048};
  times[kFew] = {3000 + 7000 + 2 * 1024, 8, 8};
  times[kAlone] = {3000 + 7000 + 64 * 1024, 8, 8};
  times[kSplit] = {3000 + 7000 + 32 * 1024 + 900, 16, 16};
  return times;
}

TEST_CASE("a profile from times worked by hand") {
  const Result<DeviceProfile> profile = fit_profile(worked());
  INFO(profile.status().to_string());
  REQUIRE(profile.ok());
  CHECK(profile->bytes_per_ns == Approx(2048));
  CHECK(profile->item_ns == Approx(100));
  CHECK(profile->launch_ns == Approx(3000));
  CHECK(profile->cta_bytes_per_ns == Approx(32));
  CHECK(profile->latency_ns == Approx(7000));
  CHECK(profile->state_ns == Approx(900));
  CHECK(profile->step_ns == Approx(50));
  CHECK(profile->flops_per_ns == Approx(1048576));
}

TEST_CASE("times that fit no device are refused, and noise below zero is none") {
  Times times = worked();
  times[kAlone].ns = times[kFew].ns - 1;
  const Status refused = fit_profile(times).status();
  CHECK(refused.code == Code::kArgumentInvalid);
  CHECK(refused.cause.find("decode, a CTA a head 12047.000000 ns") != std::string::npos);
  times = worked();
  times[kMany].ns = times[kLong].ns - 50;
  times[kSplit].ns = 3000;
  REQUIRE(fit_profile(times).ok());
  CHECK(fit_profile(times)->item_ns == 0);
  CHECK(fit_profile(times)->state_ns == 0);
}

}  // namespace
}  // namespace attnloom
