// SPDX-License-Identifier: Apache-2.0
// A file of the repository as bytes inside the library (tools/embed.cmake). Immutable.
#pragma once

#include <string_view>

namespace attnloom {

struct EmbeddedFile {
  std::string_view name;
  std::string_view text;
};

}  // namespace attnloom
