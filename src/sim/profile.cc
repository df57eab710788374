// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "sim/device.h"

namespace attnloom::sim {

std::span<const Profile> profiles() {
  static const std::array<Profile, 2> kProfiles = {{
      {"h200", "sm_90a", 132, 227 * 1024, 228 * 1024, 65536},
      {"a100", "sm_80", 108, 163 * 1024, 164 * 1024, 65536},
  }};
  return kProfiles;
}

const Profile* find_profile(std::string_view name) {
  for (const Profile& p : profiles()) {
    if (p.name == name) return &p;
  }
  return nullptr;
}

}  // namespace attnloom::sim
