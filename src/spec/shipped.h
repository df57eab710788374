// SPDX-License-Identifier: Apache-2.0
// examples/specs as bytes inside the library, so that variant.compose finds its members without
// files; sorted by file name, which is the variant's name and ".json". Immutable; thread-safe.
#pragma once

#include <span>

#include "base/embedded_file.h"

namespace attnloom {

std::span<const EmbeddedFile> shipped_specs();

}  // namespace attnloom
