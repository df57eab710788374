// SPDX-License-Identifier: Apache-2.0
#include "engine/targets.h"

#include <catch2/catch.hpp>

namespace attnloom {
namespace {

std::string names(const std::vector<Target>& targets) {
  std::string text;
  for (const Target& target : targets) text += target.name() + " ";
  return text;
}

TEST_CASE("a look-up goes from the family's targets to base targets of the same major, downwards") {
  CHECK(names(fallback_targets({86, '\0'})) == "sm_80 ");
  CHECK(names(fallback_targets({90, 'a'})) == "sm_90 ");
  CHECK(names(fallback_targets({80, '\0'})) == "");
  CHECK(names(fallback_targets({103, '\0'})) == "sm_103f sm_100f sm_100 ");
  CHECK(names(fallback_targets({121, '\0'})) == "sm_121f sm_120f sm_120 ");
}

TEST_CASE("the simulator takes older PTX, and chip-bound PTX of its own only") {
  DeviceInfo h200;
  h200.simulated = true;
  h200.target = {90, 'a'};
  CHECK(device_accepts(h200, {90, 'a'}));
  CHECK(device_accepts(h200, {80, '\0'}));
  CHECK_FALSE(device_accepts(h200, {100, 'a'}));
  DeviceInfo a100 = h200;
  a100.target = {80, '\0'};
  CHECK_FALSE(device_accepts(a100, {90, 'a'}));
}

}  // namespace
}  // namespace attnloom
