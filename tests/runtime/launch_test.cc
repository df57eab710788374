// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch.h"

#include <catch2/catch.hpp>

#include "launch_case.h"

namespace attnloom {
namespace {

using namespace testing;

TEST_CASE("paged tensors become pointers and strides") {
  Case given;
  given.tensors.lse = tensor(TensorType::kF32, {3, kQueryHeads}, 0x7000);
  const auto args = given.args();
  REQUIRE(args.ok());
  CHECK(reinterpret_cast<DeviceAddress>(args->workspace) == 0x6000);
  CHECK(reinterpret_cast<DeviceAddress>(args->q) == 0x1000);
  CHECK(reinterpret_cast<DeviceAddress>(args->lse) == 0x7000);
  CHECK(reinterpret_cast<DeviceAddress>(args->page_indices) == 0x5000);
  CHECK(args->q_token_stride == kQueryHeads * kDim);
  CHECK(args->q_head_stride == kDim);
  CHECK(args->k_page_stride == kPageSize * kKvHeads * kDim);
  CHECK(args->k_token_stride == kKvHeads * kDim);
  CHECK(args->v_page_stride == kPageSize * kKvHeads * kDim);
  CHECK(args->v_token_stride == kKvHeads * kDim);
  CHECK(args->v_head_stride == kDim);
  CHECK(args->o_token_stride == kQueryHeads * kDim);
  CHECK(args->o_head_stride == kDim);
  CHECK(args->lse_token_stride == kQueryHeads);
  CHECK(args->lse_head_stride == 1);
}

TEST_CASE("a cache with heads before tokens is the same shape with its own strides") {
  Case given;
  given.tensors.k.strides[1] = kDim;
  given.tensors.k.strides[2] = kPageSize * kDim;
  const auto args = given.args();
  REQUIRE(args.ok());
  CHECK(args->k_token_stride == kDim);
  CHECK(args->k_head_stride == kPageSize * kDim);
}

TEST_CASE("ragged tensors have no page stride and no page indices") {
  Case given(KvLayout::kRagged);
  given.tensors.k = tensor(TensorType::kBf16, {5, kKvHeads, kDim}, 0x2000);
  given.tensors.v = given.tensors.k;
  given.refused("page_indices", "not used");
  given.tensors.page_indices = {};
  const auto args = given.args();
  REQUIRE(args.ok());
  CHECK(args->page_indices == nullptr);
  CHECK(args->k_page_stride == 0);
  CHECK(args->k_token_stride == kKvHeads * kDim);
  given.plan.kv_rows = 6;
  given.refused("k.shape[0]", "at least 6, given 5");
}

TEST_CASE("strides past 32 bits stay whole") {
  Case given;
  given.tensors.v.data = std::uint64_t{1} << 40;
  given.tensors.k.strides[0] = std::int64_t{1} << 33;
  CHECK(given.args()->k_page_stride == std::int64_t{1} << 33);
}

TEST_CASE("a tensor that is missing, of another dtype or of another shape is refused by name") {
  SECTION("missing") {
    Case given;
    given.tensors.v = {};
    given.refused("v", "none was given");
  }
  SECTION("dtype") {
    Case given;
    given.tensors.q.type = TensorType::kF16;
    given.refused("q", "must be bf16, given f16");
  }
  SECTION("a number that is no dtype") {
    Case given;
    given.tensors.q.type = static_cast<TensorType>(77);
    given.refused("q", "must be bf16, given unknown dtype 77");
  }
  SECTION("64-bit page indices") {
    Case given;
    given.tensors.page_indices.type = TensorType::kI64;
    given.refused("page_indices", "must be i32, given i64");
  }
  SECTION("strided page indices") {
    Case given;
    given.tensors.page_indices.strides[0] = 2;
    given.refused("page_indices.strides[0]", "must be 1");
  }
  SECTION("short page indices") {
    Case given;
    given.tensors.page_indices.shape[0] = 4;
    given.refused("page_indices.shape[0]", "at least 5, given 4");
  }
  SECTION("rank") {
    Case given;
    given.tensors.q = tensor(TensorType::kBf16, {3, kQueryHeads * kDim}, 0x1000);
    given.refused("q", "rank must be 3, given 2");
  }
  SECTION("too few query rows") {
    Case given;
    given.plan.qo_tokens = 4;
    given.refused("q.shape[0]", "at least 4, given 3");
  }
  SECTION("heads") {
    Case given;
    given.tensors.o = tensor(TensorType::kBf16, {3, kQueryHeads + 1, kDim}, 0x4000);
    given.refused("o.shape[1]", "must be 4, given 5");
  }
  SECTION("fewer pages than the plan was checked against") {
    Case given;
    given.tensors.k.shape[0] = kPages - 1;
    given.refused("k.shape[0]", "at least 8, given 7");
  }
  SECTION("k and v of different pools") {
    Case given;
    given.tensors.v.shape[0] = kPages + 1;
    given.refused("v.shape[0]", "must be 8, given 9");
  }
  SECTION("page size") {
    Case given;
    given.tensors.k.shape[1] = 32;
    given.refused("k.shape[1]", "must be 16, given 32");
  }
  SECTION("null") {
    Case given;
    given.tensors.k.data = 0;
    given.refused("k", "null");
  }
}

TEST_CASE("rows are read 16 bytes at a time: base and strides must allow it") {
  SECTION("base") {
    Case given;
    given.tensors.q.data += 8;
    given.refused("q", "multiple of 16 bytes");
  }
  SECTION("stride of 4 elements of 2 bytes") {
    Case given;
    given.tensors.k.strides[2] = kDim + 4;
    given.refused("k.strides[2]", "multiple of 16 bytes");
  }
  SECTION("last stride") {
    Case given;
    given.tensors.v.strides[3] = 2;
    given.refused("v.strides[3]", "must be 1, given 2");
  }
  SECTION("a single element's stride is never used") {
    Case given;
    given.plan.qo_tokens = 1;
    given.tensors.q.shape[0] = given.tensors.o.shape[0] = 1;
    given.tensors.q.strides[0] = 1;
    CHECK(given.args().ok());
  }
  SECTION("workspace") {
    Case given;
    given.tensors.workspace += 16;
    given.refused("workspace", "256");
  }
}

TEST_CASE("an output that overlaps itself is refused, an input may") {
  Case given;
  given.tensors.q.strides[0] = 0;
  CHECK(given.args().ok());
  given.tensors.o.strides[0] = 0;
  given.refused("o.strides[0]", "is 0");
}

TEST_CASE("output rows that reach into each other are refused, in any order of dimensions") {
  Case given;
  SECTION("tokens inside a head's row") {
    given.tensors.o.strides[0] = 8;
    given.refused("o.strides[0]", "must be at least 64, given 8");
  }
  SECTION("tokens inside the heads") {
    given.tensors.o.strides[0] = (kQueryHeads - 1) * kDim;
    given.refused("o.strides[0]", "must be at least 256, given 192");
  }
  SECTION("lse") {
    given.tensors.lse = tensor(TensorType::kF32, {3, kQueryHeads}, 0x7000);
    given.tensors.lse.strides[0] = 1;
    given.refused("lse.strides[0]", "must be at least 4, given 1");
  }
  SECTION("heads before tokens, and padding between rows") {
    given.tensors.o.strides[0] = kDim + 8;
    given.tensors.o.strides[1] = 3 * (kDim + 8);
    given.tensors.lse = tensor(TensorType::kF32, {3, kQueryHeads}, 0x7000);
    given.tensors.lse.strides[0] = 1;
    given.tensors.lse.strides[1] = 3;
    const auto args = given.args();
    INFO(args.status().to_string());
    CHECK(args.ok());
  }
}

TEST_CASE("an output in the address range of an input is refused, with both names") {
  Case given;
  const TensorView q = given.tensors.q;
  constexpr int kBytes = 3 * kQueryHeads * kDim * 2;
  SECTION("in place") {
    given.tensors.o.data = q.data;
    given.refused("o", "must not overlap q");
  }
  SECTION("the last 16 bytes of o") {
    given.tensors.o.data = given.tensors.k.data - kBytes + 16;
    given.refused("o", "must not overlap k; given 1536 bytes whose first lies at k - 1520");
  }
  SECTION("the first 16 bytes of o") {
    given.tensors.o.data = given.tensors.v.data + kPages * kPageSize * kKvHeads * kDim * 2 - 16;
    given.refused("o", "must not overlap v");
  }
  SECTION("lse") {
    given.tensors.lse = tensor(TensorType::kF32, {3, kQueryHeads}, given.tensors.o.data);
    given.refused("lse", "must not overlap o");
  }
  SECTION("right before and right behind") {
    given.tensors.o.data = q.data + kBytes;
    CHECK(given.args().ok());
    given.tensors.q.data = given.tensors.o.data + kBytes;
    CHECK(given.args().ok());
  }
}

TEST_CASE("extents that leave 64 bits or int32 are refused at the tensor that has them") {
  Case given;
  SECTION("stride") {
    given.tensors.q.strides[0] = std::int64_t{1} << 62;
    given.refused("q", "must end within 64-bit addresses");
  }
  SECTION("a sum that only bytes overflow") {
    given.tensors.k.strides[0] = (std::int64_t{1} << 60) - 8;
    given.refused("k", "must end within 64-bit addresses");
  }
  SECTION("an address near the end") {
    given.tensors.q.data = ~DeviceAddress{0} - 15;
    given.refused("q", "must end within 64-bit addresses");
  }
  SECTION("pages") {
    given.tensors.k.shape[0] = std::int64_t{1} << 40;
    given.refused("k.shape[0]", "must be at most 2147483647, given 1099511627776");
  }
  SECTION("a param") {
    given.spec.variant.params = {{"slopes", ParamType::kPtrF32}};
    given.tensors.params = {{"slopes", tensor(TensorType::kF32, {2, 2}, 0x8000)}};
    TensorView& slopes = given.tensors.params[0].tensor;
    slopes.shape[0] = slopes.shape[1] = slopes.strides[0] = std::int64_t{1} << 40;
    given.refused("params.slopes", "more elements than 64 bits");
  }
}

TEST_CASE("lse is refused where there is no softmax") {
  Case given;
  given.spec.variant.softmax = false;
  CHECK(given.args().ok());
  given.tensors.lse = tensor(TensorType::kF32, {3, kQueryHeads}, 0x7000);
  given.refused("lse", "softmax false");
}

TEST_CASE("pointer params take their slots in the order of the spec") {
  Case given;
  given.spec.variant.params = {
      {"slopes", ParamType::kPtrF32}, {"cap", ParamType::kF32}, {"mask", ParamType::kPtrU8}};
  given.tensors.params = {{"mask", tensor(TensorType::kU8, {9}, 0x9000)},
                          {"slopes", tensor(TensorType::kF32, {kQueryHeads}, 0x8000)}};
  const auto args = given.args();
  REQUIRE(args.ok());
  CHECK(reinterpret_cast<DeviceAddress>(args->pointers[0]) == 0x8000);
  CHECK(reinterpret_cast<DeviceAddress>(args->pointers[1]) == 0x9000);
  CHECK(args->pointers[2] == nullptr);
  SECTION("one missing") {
    given.tensors.params.pop_back();
    given.refused("params.slopes", "none was given");
  }
  SECTION("unknown") {
    given.tensors.params[0].name = "masks";
    given.refused("params.masks", "no param of this name");
  }
  SECTION("twice") {
    given.tensors.params.push_back(given.tensors.params[0]);
    given.refused("params.mask", "twice");
  }
  SECTION("a scalar") {
    given.tensors.params.push_back({"cap", tensor(TensorType::kF32, {1}, 0x8000)});
    given.refused("params.cap", "scalar");
  }
  SECTION("dtype") {
    given.tensors.params[1].tensor.type = TensorType::kBf16;
    given.refused("params.slopes", "must be f32, given bf16");
  }
  SECTION("not dense") {
    given.tensors.params[1].tensor.strides[0] = 2;
    given.refused("params.slopes.strides[0]", "dense");
  }
  SECTION("a sink has an entry for each query head") {
    given.spec.variant.sink = "slopes";
    CHECK(given.args().ok());
    given.tensors.params[1].tensor.shape[0] = kQueryHeads - 1;
    given.refused("params.slopes", "at least 4 elements");
  }
}

TEST_CASE("a batch without queries needs no addresses for them") {
  Case given;
  given.plan.qo_tokens = 0;
  given.tensors.q = tensor(TensorType::kBf16, {0, kQueryHeads, kDim}, 0);
  given.tensors.o = given.tensors.q;
  CHECK(given.args().ok());
}

TEST_CASE("merge tensors agree in states, tokens and heads") {
  Spec spec = spec_of(KvLayout::kRagged);
  spec.kernel = KernelKind::kMerge;
  MergeTensors tensors;
  tensors.o_in = tensor(TensorType::kBf16, {2, 3, kQueryHeads, kDim}, 0x1000);
  tensors.lse_in = tensor(TensorType::kF32, {2, 3, kQueryHeads}, 0x2000);
  tensors.o = tensor(TensorType::kBf16, {3, kQueryHeads, kDim}, 0x3000);
  SECTION("accepted") {
    // B29: a padded LSE scratch keeps its own strides.
    tensors.lse_in.strides[0] = 32;
    const auto args = merge_args(spec, tensors);
    REQUIRE(args.ok());
    CHECK(args->states == 2);
    CHECK(args->tokens == 3);
    CHECK(args->heads == kQueryHeads);
    CHECK(args->lse_in_state_stride == 32);
    CHECK(args->o_in_state_stride == 3 * kQueryHeads * kDim);
    CHECK(args->lse == nullptr);
  }
  SECTION("another number of states") {
    tensors.lse_in.shape[0] = 3;
    CHECK(merge_args(spec, tensors).status().path == "lse_in.shape[0]");
  }
  SECTION("lse of another shape") {
    tensors.lse = tensor(TensorType::kF32, {3, kQueryHeads + 1}, 0x4000);
    CHECK(merge_args(spec, tensors).status().path == "lse.shape[1]");
  }
}

}  // namespace
}  // namespace attnloom
