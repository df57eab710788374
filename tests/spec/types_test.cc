// SPDX-License-Identifier: Apache-2.0
#include "spec/types.h"

#include <catch2/catch.hpp>
#include <set>
#include <string_view>

namespace attnloom {
namespace {

// Every value of the enum once, in the enum's order, each with a name of its own.
template <class Value>
void check_table(std::span<const TypeRow<Value>> table, std::size_t values) {
  REQUIRE(table.size() == values);
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < table.size(); ++i) {
    CHECK(static_cast<std::size_t>(table[i].value) == i);
    CHECK(json_name(table[i].value) == table[i].json);
    CHECK(names.insert(table[i].json).second);
  }
}

TEST_CASE("each table has one row for each value of its enum") {
  check_table(kernel_kinds(), static_cast<std::size_t>(KernelKind::kPageCopy) + 1);
  check_table(tasks(), static_cast<std::size_t>(Task::kPrefill) + 1);
  check_table(dtypes(), static_cast<std::size_t>(DType::kE5m2) + 1);
  check_table(kv_layouts(), static_cast<std::size_t>(KvLayout::kBsr) + 1);
  check_table(kv_scales(), static_cast<std::size_t>(KvScale::kHead) + 1);
  check_table(param_types(), static_cast<std::size_t>(ParamType::kPtrU8) + 1);
}

TEST_CASE("names and sizes of types") {
  CHECK(bytes_of(DType::kF16) == 2);
  CHECK(bytes_of(DType::kBf16) == 2);
  CHECK(bytes_of(DType::kE4m3) == 1);
  CHECK(device_name(DType::kBf16) == "loom::Bf16");
  CHECK(device_name(ParamType::kU32) == "unsigned");
  CHECK(device_name(ParamType::kPtrF16) == "const loom::F16*");
  CHECK_FALSE(is_pointer(ParamType::kF32));
  CHECK_FALSE(is_pointer(ParamType::kU32));
  CHECK(is_pointer(ParamType::kPtrF32));
  CHECK(is_pointer(ParamType::kPtrU8));
}

TEST_CASE("targets have one spelling") {
  CHECK(parse_target("sm_90a") == Target{90, 'a'});
  CHECK(parse_target("sm_90") == Target{90, '\0'});
  CHECK(parse_target("sm_103f") == Target{103, 'f'});
  CHECK(parse_target("sm_75") == Target{75, '\0'});
  CHECK(Target{120, 'a'}.major() == 12);
  for (const char* name : {"sm_80", "sm_90a", "sm_100f"}) CHECK(parse_target(name)->name() == name);
  for (const char* name :
       {"", "sm_", "sm_9", "sm_090", "sm_1000", "sm_90b", "sm_90aa", "sm_90A", "SM_90", "sm90",
        "compute_90", "sm_9 ", "sm_-9", "sm_+90", "sm_90 ", " sm_90", "sm_a"}) {
    INFO(name);
    CHECK_FALSE(parse_target(name).has_value());
  }
}

TEST_CASE("limits of a target are its own, or those of the nearest older one") {
  CHECK(target_limits({80}).shared_bytes_per_cta == 166912);
  CHECK(target_limits({86}).shared_bytes_per_cta == 101376);
  CHECK(target_limits({87}).shared_bytes_per_sm == 167936);
  CHECK(target_limits({90, 'a'}).shared_bytes_per_cta == 232448);
  CHECK(target_limits({90}).shared_bytes_per_sm == 233472);
  CHECK(target_limits({103, 'f'}).shared_bytes_per_cta == 232448);
  CHECK(target_limits({121}).shared_bytes_per_cta == 101376);
  CHECK(target_limits({90}).registers_per_thread == 255);
  CHECK(target_limits({90}).registers_per_sm == 65536);
}

}  // namespace
}  // namespace attnloom
