// SPDX-License-Identifier: Apache-2.0
// Layers: where an entry may be found, in the order of searching. Value.
#pragma once

namespace attnloom {

enum class Layer {
  kDisk,      // the own, writable directory
  kReadOnly,  // another directory of the same layout
  kBundle,    // an .alb file, read in place
  kRemote,    // an HTTP cache
};
inline constexpr int kLayers = 4;

}  // namespace attnloom
