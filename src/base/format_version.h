// SPDX-License-Identifier: Apache-2.0
// Which versions of a format are read: the newest and the one before, so that entries, bundles and
// specs of the last release still serve while a fleet is upgraded. Versions count from 1. Pure.
#pragma once

#include <cstdint>
#include <string>

namespace attnloom {

constexpr bool reads_version(std::uint64_t given, std::uint64_t newest) {
  return given >= 1 && given <= newest && newest - given <= 1;
}

// REQUIRES: !reads_version(given, newest). "version 3 is newer than what this library reads (1)"
inline std::string refused_version(std::uint64_t given, std::uint64_t newest) {
  const std::string reads =
      newest == 1 ? "1" : std::to_string(newest - 1) + " and " + std::to_string(newest);
  return "version " + std::to_string(given) + " is " + (given > newest ? "newer" : "older") +
         " than what this library reads (" + reads + ")";
}

}  // namespace attnloom
