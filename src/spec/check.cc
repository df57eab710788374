// SPDX-License-Identifier: Apache-2.0
#include "spec/check.h"

#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "spec/tiles.h"
#include "spec/variant_rules.h"

namespace attnloom {
namespace {

// What the kernels of this version are written for. A row more here is a row more in the tests'
// sweeps.
// Of mma.sync, as k of the first product and n of the second; 16 bytes of an 8-bit cache.
constexpr int kHeadDimStep = 16;
constexpr int kQuantisedHeadDimStep = 32;  // bytes: two 16-byte chunks of one ldmatrix.x4
constexpr int kMaxHeadDim = 256;           // of caches and merge
constexpr int kMaxAttentionHeadDim = 512;  // over 256 with query tile 1 only (spec/tiles.cc)
constexpr int kMaxGroupSize = 128;         // a token's query heads fit one tile of 128 rows
constexpr int kMaxPageSize = 65536;        // tokens; of a block too

// Real targets that NVRTC 13 knows. `suffixes` beside the plain name: a = this chip's own features,
// f = its family's.
struct TargetRow {
  int number;
  std::string_view suffixes;
};
constexpr TargetRow kTargets[] = {
    {80, ""},    {86, ""},    {87, ""},    {88, ""},    {89, ""},    {90, "a"},
    {100, "af"}, {103, "af"}, {110, "af"}, {120, "af"}, {121, "af"},
};

Status unsupported(std::string path, std::string cause, std::string remedy) {
  return make_error(Code::kSpecUnsupported, std::move(path), std::move(cause), std::move(remedy));
}

std::string all_targets() {
  std::string text;
  for (const TargetRow& row : kTargets) {
    text += (text.empty() ? "" : ", ") + Target{row.number}.name();
    for (const char suffix : row.suffixes) text += ", " + Target{row.number, suffix}.name();
  }
  return text;
}

Status check_target(const std::optional<Target>& target) {
  if (!target) {
    return make_error(Code::kSpecInvalid, "$.target", "no target is set",
                      "name one, or a device to take it from");
  }
  if (target->number < kTargets[0].number) {
    return unsupported("$.target",
                       "\"" + target->name() +
                           "\" is older than sm_80: it has no cp.async and no bf16 mma, which "
                           "every kernel here is built from",
                       "allowed: " + all_targets());
  }
  for (const TargetRow& row : kTargets) {
    if (row.number != target->number) continue;
    if (target->suffix == '\0' || row.suffixes.find(target->suffix) != std::string_view::npos)
      return ok_status();
    return unsupported("$.target",
                       "sm_" + std::to_string(row.number) + " has no '" + target->suffix + "' form",
                       "allowed: " + all_targets());
  }
  return unsupported("$.target", "\"" + target->name() + "\" is no target of this version",
                     "allowed: " + all_targets());
}

template <class Value>
Status check_one_of(const std::string& path, Value given, std::initializer_list<Value> allowed) {
  std::string names;
  for (const Value value : allowed) {
    if (value == given) return ok_status();
    names += (names.empty() ? "\"" : ", \"") + std::string(json_name(value)) + "\"";
  }
  return unsupported(path,
                     "\"" + std::string(json_name(given)) + "\" is not supported by this version",
                     "allowed: " + names);
}

Status check_head_dim(const std::string& path, int given, int most = kMaxHeadDim) {
  if (given >= kHeadDimStep && given <= most && given % kHeadDimStep == 0) return ok_status();
  return unsupported(
      path, std::to_string(given) + " is not supported by this version",
      "allowed: multiples of " + std::to_string(kHeadDimStep) + " up to " + std::to_string(most));
}

Status check_quantised_head_dim(const std::string& path, int given, DType kv) {
  if (given % kQuantisedHeadDimStep == 0) return ok_status();
  return unsupported(path,
                     std::to_string(given) + " is not supported with dtype.kv " +
                         std::string(json_name(kv)) + ": one ldmatrix reads 32 bytes of a row",
                     "allowed: multiples of " + std::to_string(kQuantisedHeadDimStep) + " up to " +
                         std::to_string(kMaxAttentionHeadDim));
}

Status check_dtypes(const DTypes& dtype) {
  ATTNLOOM_CHECK(check_one_of("$.dtype.q", dtype.q, {DType::kF16, DType::kBf16}));
  ATTNLOOM_CHECK(check_one_of("$.dtype.o", dtype.o, {DType::kF16, DType::kBf16}));
  ATTNLOOM_CHECK(check_one_of("$.dtype.kv", dtype.kv, {dtype.q, DType::kE4m3, DType::kE5m2}));
  return check_one_of("$.dtype.o", dtype.o, {dtype.q});
}

// What an 8-bit cache adds: rows of whole pairs of 16-byte chunks, and scales.
Status check_quantised_kv(const Spec& spec) {
  if (bytes_of(spec.dtype.kv) == 1) {
    ATTNLOOM_CHECK(check_quantised_head_dim("$.head_dim.qk", spec.head_dim.qk, spec.dtype.kv));
    ATTNLOOM_CHECK(check_quantised_head_dim("$.head_dim.vo", spec.head_dim.vo, spec.dtype.kv));
    for (const FunctorField& field : functor_fields()) {
      const bool rewrites = field.json == "key_transform" || field.json == "value_transform";
      if (!rewrites || (spec.variant.*field.text).empty()) continue;
      return unsupported("$.variant." + std::string(field.json),
                         "rows of an 8-bit cache have no room for what it returns",
                         "remove it, or use a 16-bit dtype.kv");
    }
    return ok_status();
  }
  if (spec.variant.kv_scale == KvScale::kNone) return ok_status();
  return unsupported("$.variant.kv_scale",
                     "\"" + std::string(json_name(spec.variant.kv_scale)) +
                         "\" needs an 8-bit cache, and dtype.kv is " +
                         std::string(json_name(spec.dtype.kv)),
                     "remove it, or multiply workload.scale by the key's scale");
}

Status check_range(const std::string& path, int given, int least, int most) {
  if (given >= least && given <= most) return ok_status();
  return unsupported(path, std::to_string(given) + " is out of range",
                     "allowed: " + std::to_string(least) + " to " + std::to_string(most));
}

Status check_layout(const Layout& layout) {
  if (layout.kv == KvLayout::kBsr) {
    ATTNLOOM_CHECK(check_range("$.layout.block[0]", layout.block_rows, 1, kMaxPageSize));
    ATTNLOOM_CHECK(check_range("$.layout.block[1]", layout.block_columns, 1, kMaxPageSize));
  } else if (layout.block_rows != 0 || layout.block_columns != 0) {
    return unsupported("$.layout.block", "only layout \"bsr\" uses this key", "remove it");
  }
  if (layout.kv == KvLayout::kPaged)
    return check_range("$.layout.page_size", layout.page_size, 1, kMaxPageSize);
  if (layout.page_size == 0) return ok_status();
  return unsupported("$.layout.page_size", "only layout \"paged\" uses this key", "remove it");
}

Status check_unused_fields(const Variant& variant) {
  const auto refuse = [](std::string_view key) {
    return unsupported("$.variant." + std::string(key), "no kernel of this version uses this key",
                       "remove it");
  };
  if (variant.rope) return refuse("rope");
  // Of a spec that was built as a value; parse_spec puts the members in and empties the list.
  if (!variant.compose.empty())
    return unsupported("$.variant.compose", "its members were not put in",
                       "call compose_variant before");
  return ok_status();
}

Status check_attention(const Spec& spec) {
  ATTNLOOM_CHECK(check_dtypes(spec.dtype));
  ATTNLOOM_CHECK(check_head_dim("$.head_dim.qk", spec.head_dim.qk, kMaxAttentionHeadDim));
  ATTNLOOM_CHECK(check_head_dim("$.head_dim.vo", spec.head_dim.vo, kMaxAttentionHeadDim));
  ATTNLOOM_CHECK(check_quantised_kv(spec));
  ATTNLOOM_CHECK(check_range("$.group_size", spec.group_size, 1, kMaxGroupSize));
  ATTNLOOM_CHECK(check_layout(spec.layout));
  if (spec.variant.mask.window_left.value_or(-1) < -1) {
    return make_error(Code::kSpecInvalid, "$.variant.mask.window_left",
                      std::to_string(*spec.variant.mask.window_left) + " is negative",
                      "-1 is no window");
  }
  if (!spec.variant.sink.empty() && !spec.variant.softmax) {
    return make_error(Code::kSpecInvalid, "$.variant.sink",
                      "stands beside \"softmax\": false, and a sink is a term of the softmax's sum",
                      "remove one of the two");
  }
  ATTNLOOM_CHECK(check_variant(spec.variant, "$.variant"));
  return check_unused_fields(spec.variant);
}

// parse_spec refuses by key what a kernel does not use; this is for specs that were built as
// values. `used` holds the fields that the kernel does use and is otherwise default.
Status check_nothing_else(const Spec& spec, Spec used) {
  used.kernel = spec.kernel;
  used.target = spec.target;
  if (spec == used) return ok_status();
  return unsupported(
      "$",
      "a field is set that kernel \"" + std::string(json_name(spec.kernel)) + "\" does not use",
      "leave the others at their defaults");
}

Status check_merge(const Spec& spec) {
  ATTNLOOM_CHECK(check_one_of("$.dtype.o", spec.dtype.o, {DType::kF16, DType::kBf16}));
  ATTNLOOM_CHECK(check_head_dim("$.head_dim.vo", spec.head_dim.vo));
  Spec used;
  used.dtype.o = spec.dtype.o;
  used.head_dim.vo = spec.head_dim.vo;
  return check_nothing_else(spec, used);
}

Status check_page_copy(const Spec& spec) {
  ATTNLOOM_CHECK(check_head_dim("$.head_dim.qk", spec.head_dim.qk));
  ATTNLOOM_CHECK(check_head_dim("$.head_dim.vo", spec.head_dim.vo));
  ATTNLOOM_CHECK(check_one_of("$.layout.kv", spec.layout.kv, {KvLayout::kPaged}));
  ATTNLOOM_CHECK(check_layout(spec.layout));
  Spec used;
  used.dtype.kv = spec.dtype.kv;
  used.head_dim = spec.head_dim;
  used.layout = spec.layout;
  return check_nothing_else(spec, used);
}

// append and append_rope.
Status check_append(const Spec& spec) {
  Spec cache;
  cache.kernel = KernelKind::kPageCopy;
  cache.dtype.kv = spec.dtype.kv;
  cache.head_dim = spec.head_dim;
  cache.layout = spec.layout;
  ATTNLOOM_CHECK(check_page_copy(cache));
  ATTNLOOM_CHECK(check_one_of("$.dtype.q", spec.dtype.q, {DType::kF16, DType::kBf16}));
  const bool quantises = bytes_of(spec.dtype.kv) == 1;
  if (!quantises) {
    ATTNLOOM_CHECK(
        check_one_of("$.dtype.kv", spec.dtype.kv, {spec.dtype.q, DType::kE4m3, DType::kE5m2}));
    ATTNLOOM_CHECK(check_one_of("$.variant.kv_scale", spec.variant.kv_scale, {KvScale::kNone}));
  }
  ATTNLOOM_CHECK(check_variant(spec.variant, "$.variant"));
  const bool rotates = spec.kernel == KernelKind::kAppendRope;
  if (rotates && !spec.variant.rope)
    return make_error(Code::kSpecInvalid, "$.variant.rope", "the key is missing");
  if (rotates) {
    ATTNLOOM_CHECK(check_head_dim("$.variant.rope.rotary_dim", spec.variant.rope->rotary_dim,
                                  spec.head_dim.qk));
  }
  cache.kernel = spec.kernel;
  cache.dtype.q = spec.dtype.q;
  cache.variant.name = spec.variant.name;
  cache.variant.kv_scale = spec.variant.kv_scale;
  if (rotates) cache.variant.rope = spec.variant.rope;
  return check_nothing_else(spec, cache);
}

}  // namespace

Status check_spec(const Spec& spec) {
  ATTNLOOM_CHECK(check_target(spec.target));
  switch (spec.kernel) {
    case KernelKind::kMerge:
      return check_merge(spec);
    case KernelKind::kAppend:
    case KernelKind::kAppendRope:
      return check_append(spec);
    case KernelKind::kPageCopy:
      return check_page_copy(spec);
    case KernelKind::kAttention:
      ATTNLOOM_CHECK(check_attention(spec));
  }
  // A tile that fits no kernel is known here, before anything is rendered.
  return kernel_set(spec).status();
}

}  // namespace attnloom
