// SPDX-License-Identifier: Apache-2.0
#include "engine/row_launch.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "engine/stubs.h"

namespace attnloom {
namespace {

constexpr DeviceAddress kInputs = 0x200000;

TensorView tensor(std::initializer_list<std::int64_t> shape, TensorType type = TensorType::kBf16,
                  DeviceAddress data = kInputs) {
  return dense_tensor(type, std::span(shape.begin(), shape.size()), data);
}

const std::string kAttention =
    R"({"attnloom": 1, "kernel": "attention", "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"},
"head_dim": {"qk": 64, "vo": 64}, "group_size": 2, "layout": {"kv": "ragged"}, "tile": {"q": 16, "kv": 64}})";

std::string cache_spec(const std::string& kernel, const std::string& dtype,
                       const std::string& variant) {
  return R"({"attnloom": 1, "kernel": ")" + kernel + R"(", "dtype": )" + dtype +
         R"(, "head_dim": {"qk": 64, "vo": 64}, "layout": {"kv": "paged", "page_size": 16})" +
         variant + "}";
}
const std::string kAppend = cache_spec("append", R"({"q": "bf16", "kv": "bf16"})", "");
const std::string kAppendRope = cache_spec("append_rope", R"({"q": "bf16", "kv": "bf16"})",
                                           R"(, "variant": {"rope": {"style": "neox"}})");
const std::string kPageCopy = cache_spec("page_copy", R"({"kv": "bf16"})", "");

AppendTensors append_tensors(std::int64_t tokens) {
  const auto apart = [](int i) { return kInputs + (static_cast<DeviceAddress>(i) << 36); };
  AppendTensors tensors;
  tensors.key = tensor({tokens, 2, 64});
  tensors.value = tensor({tokens, 2, 64});
  tensors.batch_indices = tensor({tokens}, TensorType::kI32);
  tensors.positions = tensor({tokens}, TensorType::kI32);
  tensors.page_indptr = tensor({5}, TensorType::kI32);
  tensors.page_indices = tensor({20}, TensorType::kI32);
  tensors.k_cache = tensor({30, 16, 2, 64}, TensorType::kBf16, apart(1));
  tensors.v_cache = tensor({30, 16, 2, 64}, TensorType::kBf16, apart(2));
  return tensors;
}

TEST_CASE("merge launches one CTA for each threads / 8 rows, on grid x") {
  StubEngine one({.root = ""});
  const auto kernels = one.open(
      R"({"attnloom": 1, "kernel": "merge", "dtype": {"o": "bf16"}, "head_dim": {"vo": 64}})");
  MergeTensors tensors;
  tensors.o_in = tensor({2, 70'000, 4, 64});
  tensors.lse_in = tensor({2, 70'000, 4}, TensorType::kF32);
  tensors.lse_in.data += DeviceAddress{1} << 32;
  tensors.o = tensor({70'000, 4, 64});
  REQUIRE(run_merge(*kernels, tensors, nullptr).ok());
  REQUIRE(one.device->launches.size() == 1);
  // B57: more than a grid's y or z may be.
  CHECK(one.device->launches[0].grid == 280'000u * 8 / one.device->launches[0].block);
  CHECK(run_merge(*one.open(kAttention), tensors, nullptr).path == "kernel");
}

TEST_CASE("append launches the rows of KV heads, and of query heads where it rotates them") {
  StubEngine one({.root = ""});
  AppendTensors tensors = append_tensors(100'000);
  REQUIRE(run_append(*one.open(kAppend), tensors, nullptr).ok());
  tensors.q = tensors.q_out = tensor({100'000, 6, 64}, TensorType::kBf16, DeviceAddress{5} << 36);
  REQUIRE(run_append(*one.open(kAppendRope), tensors, nullptr).ok());
  REQUIRE(one.device->launches.size() == 2);
  CHECK(one.device->launches[0].grid == 200'000u * 8 / 128);
  CHECK(one.device->launch_arguments[0].size() == sizeof(loom::AppendArgs));
  CHECK(one.device->launches[1].grid == 800'000u * 8 / 128);
  loom::AppendRopeArgs args = {};
  REQUIRE(one.device->launch_arguments[1].size() == sizeof(args));
  std::memcpy(&args, one.device->launch_arguments[1].data(), sizeof(args));
  CHECK(args.append.batch == 4);
  CHECK(args.append.page_index_count == 20);
  CHECK(args.append.pool_pages == 30);
  CHECK(args.q_heads == 6);
  // A turn has 2 pi; pair 16 of 32 turns a hundredth as far.
  CHECK(static_cast<double>(args.turns[0]) * 0x1p-64 == Approx(0.15915494309189535).epsilon(1e-14));
  CHECK(static_cast<double>(args.turns[16]) * 0x1p-64 ==
        Approx(0.0015915494309189535).epsilon(1e-13));
}

TEST_CASE("page_copy launches the rows of its pages") {
  StubEngine one({.root = ""});
  PageCopyTensors tensors;
  tensors.pairs = tensor({1000, 2}, TensorType::kI32);
  tensors.k_cache = append_tensors(1).k_cache;
  tensors.v_cache = append_tensors(1).v_cache;
  REQUIRE(run_page_copy(*one.open(kPageCopy), tensors, nullptr).ok());
  REQUIRE(one.device->launches.size() == 1);
  CHECK(one.device->launches[0].grid == 1000u * 16 * 2 * 8 / 128);
  tensors.pairs.shape[0] = 2147483647;
  tensors.k_cache.shape[2] = tensors.v_cache.shape[2] = 2147483647;
  for (TensorView* cache : {&tensors.k_cache, &tensors.v_cache}) {
    cache->strides[2] = 64;
    cache->strides[1] = std::int64_t{1} << 38;
    cache->strides[0] = std::int64_t{1} << 43;
  }
  tensors.v_cache.data = DeviceAddress{1} << 50;
  const Status status = run_page_copy(*one.open(kPageCopy), tensors, nullptr);
  CHECK(status.path == "pairs");
  CHECK_THAT(status.cause, Catch::Contains("more than one launch can have"));
}

TEST_CASE("a kernel of another kind is refused by name, and nothing is no launch") {
  StubEngine one({.root = ""});
  CHECK(run_append(*one.open(kPageCopy), append_tensors(1), nullptr).path == "kernel");
  CHECK(run_append(*one.open(kAttention), append_tensors(1), nullptr).path == "kernel");
  CHECK(run_page_copy(*one.open(kAppend), {}, nullptr).path == "kernel");
  REQUIRE(run_append(*one.open(kAppend), append_tensors(0), nullptr).ok());
  CHECK(one.device->launches.empty());
}

}  // namespace
}  // namespace attnloom
