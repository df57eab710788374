// SPDX-License-Identifier: Apache-2.0
#include "runtime/driver_policy.h"

#include <algorithm>
#include <string>

namespace attnloom {
namespace {

struct ChipRow {
  int number;
  int driver;
};

// The CUDA release that first knew the chip, from the release notes.
constexpr ChipRow kChips[] = {{80, 11000},  {86, 11010},  {87, 11040},  {89, 11080},  {90, 11080},
                              {100, 12080}, {103, 12090}, {110, 13000}, {120, 12080}, {121, 12090}};

}  // namespace

int least_driver(const Fingerprint& made_by, const Target& target) {
  int least = std::max(kLeastDriver, made_by.least_driver);
  for (const ChipRow& row : kChips)
    if (row.number == target.number) least = std::max(least, row.driver);
  return least;
}

std::string driver_version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Status check_driver(int driver_version, const Fingerprint& made_by, const Target& target) {
  const int least = least_driver(made_by, target);
  if (driver_version >= least) return ok_status();
  std::string maker;
  if (made_by.cuda_major > 0)
    maker = " made by NVRTC " + std::to_string(made_by.cuda_major) + "." +
            std::to_string(made_by.cuda_minor);
  return make_error(
      Code::kDriverTooOld, "",
      "a kernel for " + target.name() + maker + " needs a driver for CUDA " +
          driver_version_text(least) + " or newer; this one is for CUDA " +
          driver_version_text(driver_version),
      "update the driver, or fill the cache (`attnloom compile`) with an NVRTC of CUDA " +
          std::to_string(driver_version / 1000));
}

bool cubin_fits(const Target& target, const Target& device) {
  if (target.suffix == 'a') return target.number == device.number;
  return target.major() == device.major() && target.number <= device.number;
}

}  // namespace attnloom
