// SPDX-License-Identifier: Apache-2.0
// The closed sets of the spec: one table each of value, JSON name, device name and size. Adding a
// value is adding a row. Immutable; thread-safe.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attnloom {

enum class KernelKind { kAttention, kMerge, kAppend, kAppendRope, kPageCopy };
enum class Task { kMixed, kDecode, kPrefill };
enum class DType { kF16, kBf16, kE4m3, kE5m2 };
enum class KvLayout { kRagged, kPadded, kPaged, kBsr };
enum class KvScale { kNone, kTensor, kHead };
enum class RopeStyle { kNeox, kInterleaved };
// Of a literal tile: mma.sync and, for query tile 1, CUDA cores; or Hopper's warpgroup products.
enum class TileFamily { kMma, kWgmma };
enum class ParamType { kF32, kI32, kU32, kPtrF32, kPtrF16, kPtrBf16, kPtrI32, kPtrU8 };

// One row of a table. `device` is the name in kernel_templates (empty where the device never sees
// the value).
template <class Value>
struct TypeRow {
  Value value;
  std::string_view json;
  std::string_view device;
  int bytes;  // of one element; 0 where it has no meaning
};

std::span<const TypeRow<KernelKind>> kernel_kinds();
std::span<const TypeRow<Task>> tasks();
std::span<const TypeRow<DType>> dtypes();
std::span<const TypeRow<KvLayout>> kv_layouts();
std::span<const TypeRow<KvScale>> kv_scales();
std::span<const TypeRow<RopeStyle>> rope_styles();
std::span<const TypeRow<TileFamily>> tile_families();
std::span<const TypeRow<ParamType>> param_types();

std::string_view json_name(KernelKind value);
std::string_view json_name(Task value);
std::string_view json_name(DType value);
std::string_view json_name(KvLayout value);
std::string_view json_name(KvScale value);
std::string_view json_name(RopeStyle value);
std::string_view json_name(TileFamily value);
std::string_view json_name(ParamType value);

int bytes_of(DType value);
std::string_view device_name(DType value);
std::string_view device_name(KvScale value);
std::string_view device_name(ParamType value);
bool is_pointer(ParamType value);

// A compile target: sm_90a is {90, 'a'}; the suffix is '\0', 'a' (this chip only) or 'f' (its
// family).
struct Target {
  int number = 0;  // major * 10 + minor
  char suffix = '\0';

  int major() const { return number / 10; }
  std::string name() const;  // "sm_90a"
  bool operator==(const Target&) const = default;
};
std::optional<Target> parse_target(std::string_view name);

// What one CTA may use on a target, for tile selection. From the CUDA programming guide's table of
// compute capabilities; unknown newer targets take the row of the nearest older one.
struct TargetLimits {
  int shared_bytes_per_cta;
  int shared_bytes_per_sm;
  int registers_per_sm;
  int registers_per_thread;
};
TargetLimits target_limits(const Target& target);

}  // namespace attnloom
