// SPDX-License-Identifier: Apache-2.0
// Which keys of a spec each kernel uses; every other key is refused. Pure; thread-safe.
#pragma once

#include <string_view>

#include "spec/types.h"

namespace attnloom {

// `key` is the path of a key below the spec without "$.": "group_size", "dtype.q",
// "variant.kv_scale".
bool kernel_uses(KernelKind kernel, std::string_view key);

}  // namespace attnloom
