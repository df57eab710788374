// SPDX-License-Identifier: Apache-2.0
#include "spec/types.h"

#include <charconv>

namespace attnloom {
namespace {

constexpr TypeRow<KernelKind> kKernelKinds[] = {
    {KernelKind::kAttention, "attention", "attention", 0},
    {KernelKind::kMerge, "merge", "merge", 0},
    {KernelKind::kAppend, "append", "append", 0},
    {KernelKind::kAppendRope, "append_rope", "append_rope", 0},
    {KernelKind::kPageCopy, "page_copy", "page_copy", 0},
};

constexpr TypeRow<Task> kTasks[] = {
    {Task::kMixed, "mixed", "", 0},
    {Task::kDecode, "decode", "", 0},
    {Task::kPrefill, "prefill", "", 0},
};

constexpr TypeRow<DType> kDTypes[] = {
    {DType::kF16, "f16", "loom::F16", 2},
    {DType::kBf16, "bf16", "loom::Bf16", 2},
    {DType::kE4m3, "e4m3", "loom::E4m3", 1},
    {DType::kE5m2, "e5m2", "loom::E5m2", 1},
};

constexpr TypeRow<KvLayout> kKvLayouts[] = {
    {KvLayout::kRagged, "ragged", "", 0},
    {KvLayout::kPadded, "padded", "", 0},
    {KvLayout::kPaged, "paged", "", 0},
    {KvLayout::kBsr, "bsr", "", 0},
};

constexpr TypeRow<KvScale> kKvScales[] = {
    {KvScale::kNone, "none", "kNone", 0},
    {KvScale::kTensor, "tensor", "kTensor", 0},
    {KvScale::kHead, "head", "kHead", 0},
};

constexpr TypeRow<TileFamily> kTileFamilies[] = {
    {TileFamily::kMma, "attention_mma", "", 0},
    {TileFamily::kWgmma, "attention_wgmma", "", 0},
};
constexpr TypeRow<RopeStyle> kRopeStyles[] = {
    {RopeStyle::kNeox, "neox", "", 0},
    {RopeStyle::kInterleaved, "interleaved", "", 0},
};

constexpr TypeRow<ParamType> kParamTypes[] = {
    {ParamType::kF32, "f32", "float", 4},
    {ParamType::kI32, "i32", "int", 4},
    {ParamType::kU32, "u32", "unsigned", 4},
    {ParamType::kPtrF32, "ptr<f32>", "const float*", 4},
    {ParamType::kPtrF16, "ptr<f16>", "const loom::F16*", 2},
    {ParamType::kPtrBf16, "ptr<bf16>", "const loom::Bf16*", 2},
    {ParamType::kPtrI32, "ptr<i32>", "const int*", 4},
    {ParamType::kPtrU8, "ptr<u8>", "const unsigned char*", 1},
};

// REQUIRES: the table has a row for every value; enums only come from the tables or from literals
// in this code.
template <class Value>
const TypeRow<Value>& row_of(std::span<const TypeRow<Value>> table, Value value) {
  for (const TypeRow<Value>& row : table) {
    if (row.value == value) return row;
  }
  return table.front();
}

struct LimitsRow {
  int number;
  TargetLimits limits;
};

// Ascending. 8.8 is not in the programming guide's table: it gets the smallest shared memory of its
// family, so that a tile chosen for it fits whatever the chip has.
constexpr int kRegisters = 65536;
constexpr int kRegistersPerThread = 255;
constexpr LimitsRow kLimits[] = {
    {80, {163 * 1024, 164 * 1024, kRegisters, kRegistersPerThread}},
    {86, {99 * 1024, 100 * 1024, kRegisters, kRegistersPerThread}},
    {87, {163 * 1024, 164 * 1024, kRegisters, kRegistersPerThread}},
    {88, {99 * 1024, 100 * 1024, kRegisters, kRegistersPerThread}},
    {89, {99 * 1024, 100 * 1024, kRegisters, kRegistersPerThread}},
    {90, {227 * 1024, 228 * 1024, kRegisters, kRegistersPerThread}},
    {120, {99 * 1024, 100 * 1024, kRegisters, kRegistersPerThread}},
};

}  // namespace

std::span<const TypeRow<KernelKind>> kernel_kinds() {
  return kKernelKinds;
}
std::span<const TypeRow<Task>> tasks() {
  return kTasks;
}
std::span<const TypeRow<DType>> dtypes() {
  return kDTypes;
}
std::span<const TypeRow<KvLayout>> kv_layouts() {
  return kKvLayouts;
}
std::span<const TypeRow<KvScale>> kv_scales() {
  return kKvScales;
}
std::span<const TypeRow<RopeStyle>> rope_styles() {
  return kRopeStyles;
}
std::span<const TypeRow<TileFamily>> tile_families() {
  return kTileFamilies;
}
std::span<const TypeRow<ParamType>> param_types() {
  return kParamTypes;
}

std::string_view json_name(KernelKind value) {
  return row_of(kernel_kinds(), value).json;
}
std::string_view json_name(Task value) {
  return row_of(tasks(), value).json;
}
std::string_view json_name(DType value) {
  return row_of(dtypes(), value).json;
}
std::string_view json_name(KvLayout value) {
  return row_of(kv_layouts(), value).json;
}
std::string_view json_name(KvScale value) {
  return row_of(kv_scales(), value).json;
}
std::string_view json_name(RopeStyle value) {
  return row_of(rope_styles(), value).json;
}
std::string_view json_name(TileFamily value) {
  return row_of(tile_families(), value).json;
}
std::string_view json_name(ParamType value) {
  return row_of(param_types(), value).json;
}

int bytes_of(DType value) {
  return row_of(dtypes(), value).bytes;
}
std::string_view device_name(DType value) {
  return row_of(dtypes(), value).device;
}
std::string_view device_name(KvScale value) {
  return row_of(kv_scales(), value).device;
}
std::string_view device_name(ParamType value) {
  return row_of(param_types(), value).device;
}

bool is_pointer(ParamType value) {
  return json_name(value).substr(0, 4) == "ptr<";
}

std::string Target::name() const {
  std::string text = "sm_" + std::to_string(number);
  if (suffix != '\0') text += suffix;
  return text;
}

std::optional<Target> parse_target(std::string_view name) {
  constexpr std::string_view kPrefix = "sm_";
  if (name.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  std::string_view digits = name.substr(kPrefix.size());
  Target target;
  if (!digits.empty() && (digits.back() == 'a' || digits.back() == 'f')) {
    target.suffix = digits.back();
    digits.remove_suffix(1);
  }
  // Two or three digits and no leading zero, so that every target has exactly one spelling.
  if (digits.size() < 2 || digits.size() > 3 || digits.front() == '0') return std::nullopt;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, target.number);
  if (error != std::errc() || stop != end || target.number < 0) return std::nullopt;
  return target;
}

TargetLimits target_limits(const Target& target) {
  TargetLimits limits = kLimits[0].limits;
  for (const LimitsRow& row : kLimits) {
    if (row.number <= target.number) limits = row.limits;
  }
  return limits;
}

}  // namespace attnloom
