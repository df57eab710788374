// SPDX-License-Identifier: Apache-2.0
// Layers: where an entry may be found, in the order of searching. Value.
#pragma once

#include <array>
#include <string_view>

namespace attnloom {

enum class Layer {
  kDisk,      // the own, writable directory
  kReadOnly,  // another directory of the same layout
  kBundle,    // an .alb file, read in place
  kRemote,    // an HTTP cache
};
inline constexpr int kLayers = 4;

constexpr std::string_view layer_name(Layer layer) {
  constexpr std::array<std::string_view, kLayers> kNames = {"disk", "readonly", "bundle", "remote"};
  return kNames[static_cast<std::size_t>(layer)];
}

}  // namespace attnloom
