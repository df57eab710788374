// SPDX-License-Identifier: Apache-2.0
#include "engine/targets.h"

#include "runtime/driver_policy.h"

namespace attnloom {
namespace {

// Every base target from 8.0 on that NVRTC knows, descending.
constexpr int kBaseTargets[] = {121, 120, 110, 103, 100, 90, 89, 88, 87, 86, 80};
constexpr int kFirstFamilyTarget = 100;  // 'f' came with Blackwell

}  // namespace

bool device_accepts(const DeviceInfo& device, const Target& target) {
  if (!device.simulated) return cubin_fits(target, device.target);
  // The simulator takes PTX, which runs on every newer chip unless it is bound to one.
  if (target.suffix == 'a') return target == device.target;
  return target.number <= device.target.number;
}

std::vector<Target> fallback_targets(const Target& own) {
  std::vector<Target> targets;
  if (own.number >= kFirstFamilyTarget) {
    for (const int number : kBaseTargets)
      if (number / 10 == own.major() && number <= own.number) targets.push_back({number, 'f'});
  }
  for (const int number : kBaseTargets) {
    const Target target{number, '\0'};
    if (number / 10 == own.major() && number <= own.number && !(target == own))
      targets.push_back(target);
  }
  return targets;
}

}  // namespace attnloom
