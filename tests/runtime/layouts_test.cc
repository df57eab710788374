// SPDX-License-Identifier: Apache-2.0
// Tensors of padded caches, block-sparse rows and custom masks.
#include <catch2/catch.hpp>

#include "launch_case.h"

namespace attnloom {
namespace {

using namespace testing;

// The same batch in other layouts.
Case padded_case() {
  Case given(KvLayout::kPadded);
  given.plan.kv_slots = 2;
  given.tensors.k = tensor(TensorType::kBf16, {2, 7, kKvHeads, kDim}, 0x100000);
  given.tensors.v = tensor(TensorType::kBf16, {2, 7, kKvHeads, kDim}, 0x200000);
  given.tensors.page_indices = {};
  return given;
}

Case bsr_case() {
  Case given(KvLayout::kBsr);
  given.plan.block_entries = 3;
  given.tensors.k = tensor(TensorType::kBf16, {5, kKvHeads, kDim}, 0x100000);
  given.tensors.v = tensor(TensorType::kBf16, {5, kKvHeads, kDim}, 0x200000);
  given.tensors.block_indices = tensor(TensorType::kI32, {3}, 0x5000);
  given.tensors.page_indices = {};
  return given;
}

TEST_CASE("slots of a padded cache become pages; a slot too short is refused by its dimension") {
  Case given = padded_case();
  given.tensors.v.strides[0] *= 3;  // slots need not touch
  const auto args = given.args();
  REQUIRE(args.ok());
  CHECK(args->k_page_stride == 7 * kKvHeads * kDim);
  CHECK(args->v_page_stride == 21 * kKvHeads * kDim);
  CHECK(args->k_token_stride == kKvHeads * kDim);
  CHECK(args->page_indices == nullptr);
  given.tensors.k.shape[1] = 4;
  given.refused("k.shape[1]", "at least 5, given 4");
  given = padded_case();
  given.tensors.k.shape[0] = 1;
  given.refused("k.shape[0]", "at least 2, given 1");
  given = padded_case();
  given.tensors.v.shape[1] = 6;
  given.refused("v.shape[1]", "must be 7, given 6");
  given = padded_case();
  given.tensors.page_indices = tensor(TensorType::kI32, {5}, 0x5000);
  given.refused("page_indices", "padded layout");
}

TEST_CASE("block indices of a bsr layout, and of no other") {
  Case given = bsr_case();
  const auto args = given.args();
  REQUIRE(args.ok());
  CHECK(reinterpret_cast<DeviceAddress>(args->page_indices) == 0x5000);
  CHECK(args->k_token_stride == kKvHeads * kDim);
  given.tensors.block_indices.shape[0] = 2;
  given.refused("block_indices.shape[0]", "at least 3, given 2");
  given.tensors.block_indices = {};
  given.refused("block_indices", "none was given");
  given = bsr_case();
  given.tensors.k.shape[0] = 4;
  given.refused("k.shape[0]", "at least 5, given 4");
  Case paged;
  paged.tensors.block_indices = tensor(TensorType::kI32, {3}, 0x5000);
  paged.refused("block_indices", "paged layout");
}

TEST_CASE("a custom mask is as long as the plan says, and given exactly when the spec has one") {
  Case given;
  given.tensors.custom_mask = tensor(TensorType::kU8, {25}, 0x9000);
  given.refused("custom_mask", "mask.custom is false");
  given.spec.variant.mask.custom = true;
  given.plan.mask_bytes = 25;  // B113: a request of 10 queries and 20 keys
  const auto args = given.args();
  REQUIRE(args.ok());
  CHECK(reinterpret_cast<DeviceAddress>(args->custom_mask) == 0x9000);
  given.tensors.custom_mask.shape[0] = 19;  // of 10 x 15
  given.refused("custom_mask", "at least 25 elements, given shape [19]");
  given.tensors.custom_mask = tensor(TensorType::kU8, {25}, 0x9002);
  given.refused("custom_mask", "multiple of 4 bytes, given remainder 2");
  given.tensors.custom_mask = tensor(TensorType::kI32, {25}, 0x9000);
  given.refused("custom_mask", "u8");
  given.tensors.custom_mask = {};
  given.refused("custom_mask", "none was given");
}

}  // namespace
}  // namespace attnloom
