// SPDX-License-Identifier: Apache-2.0
// Lists as sentences have them. Pure; thread-safe.
#pragma once

#include <string>
#include <vector>

namespace attnloom {

// "a, b, c"; "" for none.
inline std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) {
    if (&text != texts.data()) all += ", ";
    all += text;
  }
  return all;
}

}  // namespace attnloom
