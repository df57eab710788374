// SPDX-License-Identifier: Apache-2.0
#include "spec/kernel_keys.h"

#include <algorithm>
#include <span>

namespace attnloom {
namespace {

constexpr std::string_view kMergeKeys[] = {"dtype", "dtype.o", "head_dim", "head_dim.vo"};
constexpr std::string_view kPageCopyKeys[] = {"dtype",       "dtype.kv",        "head_dim",
                                              "head_dim.qk", "head_dim.vo",     "layout",
                                              "layout.kv",   "layout.page_size"};
constexpr std::string_view kAppendKeys[] = {
    "dtype",  "dtype.q",   "dtype.kv",         "head_dim", "head_dim.qk",  "head_dim.vo",
    "layout", "layout.kv", "layout.page_size", "variant",  "variant.name", "variant.kv_scale"};
constexpr std::string_view kRopeKey = "variant.rope";

bool holds(std::span<const std::string_view> keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

bool kernel_uses(KernelKind kernel, std::string_view key) {
  if (key == "attnloom" || key == "kernel" || key == "target") return true;
  switch (kernel) {
    case KernelKind::kAttention:
      return key != kRopeKey;
    case KernelKind::kMerge:
      return holds(kMergeKeys, key);
    case KernelKind::kAppend:
      return holds(kAppendKeys, key);
    case KernelKind::kAppendRope:
      return key == kRopeKey || holds(kAppendKeys, key);
    case KernelKind::kPageCopy:
      return holds(kPageCopyKeys, key);
  }
  return false;
}

}  // namespace attnloom
