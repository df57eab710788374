// SPDX-License-Identifier: Apache-2.0
// page_copy through the engine: whole pages of caches of any layout, bit for bit, and nothing else.
#include <catch2/catch.hpp>

#include "engine/row_launch.h"
#include "kernels/cache_pool.h"
#include "kernels/device_tensors.h"
#include "kernels/kernel_rig.h"

namespace attnloom::testing {
namespace {

using Pairs = std::vector<std::int32_t>;

Engine& engine() {
  static const std::unique_ptr<Engine> shared = make_test_engine();
  return *shared;
}

struct Copied {
  Status status;
  std::string finding;
  std::vector<unsigned char> bytes;
};

Copied copy(const CachePool& pool, DType dtype, const Pairs& pairs, bool mirror = false) {
  const PoolShape& shape = pool.shape;
  const auto kernels = engine().open(
      R"({"attnloom": 1, "kernel": "page_copy", "dtype": {"kv": ")" +
      std::string(json_name(dtype)) + R"("}, "head_dim": {"qk": )" + std::to_string(shape.qk) +
      R"(, "vo": )" + std::to_string(shape.vo) + R"(}, "layout": {"kv": "paged", "page_size": )" +
      std::to_string(shape.page_size) + "}}");
  INFO(kernels.status().to_string());
  REQUIRE(kernels.ok());
  DeviceTensors device(**engine().backend());
  const DeviceAddress at = device.put(pool.bytes, "pool");
  const TensorType type = dtype == DType::kF16 ? TensorType::kF16 : TensorType::kE5m2;
  PageCopyTensors tensors;
  tensors.pairs = view_of(device.put(pairs, "pairs"), TensorType::kI32,
                          {static_cast<std::int64_t>(pairs.size() / 2), 2}, {2, 1});
  tensors.k_cache = pool.view(false, type, at);
  tensors.v_cache = pool.view(true, type, at);
  if (mirror) tensors.host_pairs = pairs;
  Copied copied;
  copied.status = run_page_copy(**kernels, tensors, nullptr);
  REQUIRE((*engine().backend())->synchronize(nullptr).ok());
  copied.finding = device.finding();
  copied.bytes = device.get<unsigned char>(at, pool.bytes.size());
  return copied;
}

std::vector<unsigned char> wanted(const CachePool& before, const Pairs& pairs) {
  CachePool from = before;
  CachePool to = before;
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    const auto inside = [&](std::int32_t page) { return page >= 0 && page < from.shape.pages; };
    if (!inside(pairs[i]) || !inside(pairs[i + 1])) continue;
    for (const bool value : {false, true}) {
      const std::int64_t elements = value ? from.shape.vo : from.shape.qk;
      for (std::int64_t token = 0; token < from.shape.page_size; ++token) {
        for (std::int64_t head = 0; head < from.shape.heads; ++head) {
          std::memcpy(to.at(value, pairs[i + 1], token, head),
                      from.at(value, pairs[i], token, head),
                      static_cast<std::size_t>(elements * from.element_bytes));
        }
      }
    }
  }
  return to.bytes;
}

}  // namespace

TEST_CASE("pages are copied whole and nothing else is touched", "[page_copy]") {
  const Pairs pairs = {0, 5, 3, 1, 0, 2, 6, 6};
  int turn = 0;
  for (const PoolOrder order : kPoolOrders) {
    for (const std::int64_t page_size : {1, 3, 16}) {
      const bool narrow = turn % 2 == 1;
      const std::int64_t dims[] = {64, 96, 128, 256};
      const PoolShape shape = {.pages = 7,
                               .page_size = page_size,
                               .heads = 1 + turn % 3,
                               .qk = dims[turn % 4],
                               .vo = dims[(turn + turn / 4) % 4]};
      const CachePool pool = make_pool(shape, order, narrow ? 1 : 2);
      const Copied got = copy(pool, narrow ? DType::kE5m2 : DType::kF16, pairs, turn % 2 == 0);
      INFO(static_cast<int>(order) << " page " << page_size << " turn " << turn);
      INFO(got.status.to_string());
      CHECK(got.status.ok());
      CHECK(got.finding == "");
      CHECK(got.bytes == wanted(pool, pairs));
      CHECK(got.bytes != pool.bytes);
      ++turn;
    }
  }
}

TEST_CASE("no pairs, and pairs with a page that is not there, copy nothing", "[page_copy]") {
  const CachePool pool =
      make_pool({.pages = 4, .page_size = 2, .heads = 2, .qk = 64, .vo = 64}, PoolOrder::kHnd, 2);
  CHECK(copy(pool, DType::kF16, {}).bytes == pool.bytes);
  const Copied got = copy(pool, DType::kF16, {0, 4, 4, 0, -1, 1, 1, -1, 2, 3});
  CHECK(got.finding == "");
  CHECK(got.bytes == wanted(pool, {2, 3}));
}

TEST_CASE("a mirror shows pairs that would race or leave the cache", "[page_copy]") {
  const CachePool pool =
      make_pool({.pages = 4, .page_size = 2, .heads = 1, .qk = 64, .vo = 64}, PoolOrder::kNhd, 2);
  const auto refused = [&](const Pairs& pairs, const char* path, const char* cause) {
    const Copied got = copy(pool, DType::kF16, pairs, true);
    CHECK(got.status.code == Code::kWorkloadInvalid);
    CHECK(got.status.path == path);
    CHECK_THAT(got.status.cause, Catch::Contains(cause));
    CHECK(got.bytes == pool.bytes);
  };
  refused({0, 1, 1, 2}, "host_pairs[1]", "page 1 is read by pair 1");
  refused({1, 2, 0, 1}, "host_pairs[3]", "page 1 is read by pair 0");
  refused({0, 1, 2, 1}, "host_pairs[3]", "page 1 is written twice");
  refused({0, 4}, "host_pairs[1]", "below the 4 pages of the cache, given 4");
  refused({-1, 0}, "host_pairs[0]", "given -1");
  CHECK(copy(pool, DType::kF16, {0, 1, 2, 2, 0, 3}, true).status.ok());
}

}  // namespace attnloom::testing
