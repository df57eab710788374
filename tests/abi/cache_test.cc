// SPDX-License-Identifier: Apache-2.0
// append, append_rope and page_copy through the C and C++ interface: refusals by name, and one
// whole way from a new token to a copied page.
#include <attnloom/attnloom.hpp>
#include <cstdint>
#include <cstring>
#include <vector>

#include "abi_fixture.h"

namespace {

using attnloom::cxx::Context;
using attnloom::cxx::dense_tensor;
using attnloom::cxx::index_array;
using attnloom::cxx::Kernel;
using attnloom::cxx::Memory;
using attnloom::cxx::zeroed;

std::string spec(const std::string& kernel, const std::string& dtype, const std::string& variant) {
  return R"({"attnloom": 1, "kernel": ")" + kernel + R"(", "dtype": )" + dtype +
         R"(, "head_dim": {"qk": 64, "vo": 64}, "layout": {"kv": "paged", "page_size": 2})" +
         variant + "}";
}
const std::string kAppend = spec("append", R"({"q": "f16", "kv": "f16"})", "");
const std::string kAppendRope = spec("append_rope", R"({"q": "f16", "kv": "f16"})",
                                     R"(, "variant": {"rope": {"style": "interleaved"}})");
const std::string kPageCopy = spec("page_copy", R"({"kv": "f16"})", "");

// One request of one page, page 1 of two; one KV head.
struct Cache {
  attnloom::TempDirectory directory;
  std::string folder = directory / "cache";
  Context context;
  std::vector<std::uint16_t> row = std::vector<std::uint16_t>(64);
  Memory pool, rows, batch, positions, indptr, indices;

  Cache()
      : context(options()),
        pool(context.upload(std::vector<std::uint16_t>(2 * 2 * 2 * 64, 0x1111), "pool")),
        rows(context.upload(numbered(), "rows")),
        batch(context.upload(std::vector<std::int32_t>{0}, "batch")),
        positions(context.upload(std::vector<std::int32_t>{1}, "positions")),
        indptr(context.upload(std::vector<std::int32_t>{0, 1}, "indptr")),
        indices(context.upload(std::vector<std::int32_t>{1}, "indices")) {}
  alm_context_options options() {
    alm_context_options made = zeroed<alm_context_options>();
    made.device = ALM_DEVICE_SIMULATOR;
    made.cache_dir = folder.c_str();
    return made;
  }
  static std::vector<std::uint16_t> numbered() {
    std::vector<std::uint16_t> values;
    for (int i = 0; i < 64; ++i) values.push_back(static_cast<std::uint16_t>(0x3c00 + i));
    return values;
  }
  alm_tensor k_cache() { return dense_tensor(pool.address(), ALM_F16, {2, 2, 1, 64}); }
  alm_tensor v_cache() {
    return dense_tensor(static_cast<std::uint16_t*>(pool.address()) + 256, ALM_F16, {2, 2, 1, 64});
  }
  alm_append tensors() {
    alm_append made = zeroed<alm_append>();
    made.key = made.value = dense_tensor(rows.address(), ALM_F16, {1, 1, 64});
    made.batch_indices = dense_tensor(batch.address(), ALM_I32, {1});
    made.positions = dense_tensor(positions.address(), ALM_I32, {1});
    made.page_indptr = dense_tensor(indptr.address(), ALM_I32, {2});
    made.page_indices = dense_tensor(indices.address(), ALM_I32, {1});
    made.k_cache = k_cache();
    made.v_cache = v_cache();
    return made;
  }
  std::vector<std::uint16_t> read(std::size_t page, std::size_t slot, bool value) {
    std::vector<std::uint16_t> all(512);
    pool.copy_out(all.data(), 1024);
    const auto begin =
        all.begin() + static_cast<std::ptrdiff_t>(((value ? 4 : 0) + 2 * page + slot) * 64);
    return {begin, begin + 64};
  }
};

TEST_CASE("a token is appended, and its page copied to another") {
  Cache cache;
  Kernel append(cache.context, kAppend);
  alm_append tensors = cache.tensors();
  const std::int32_t zero[] = {0}, one[] = {1}, indptr[] = {0, 1};
  tensors.host_batch_indices = index_array(zero, 1);
  tensors.host_positions = index_array(one, 1);
  tensors.host_page_indptr = index_array(indptr, 2);
  tensors.host_page_indices = index_array(one, 1);
  append.append(tensors);
  cache.context.synchronize();
  const std::vector<std::uint16_t> old(64, 0x1111);
  CHECK(cache.read(1, 1, false) == Cache::numbered());
  CHECK(cache.read(1, 1, true) == Cache::numbered());
  CHECK(cache.read(1, 0, false) == old);
  CHECK(cache.read(0, 1, true) == old);

  Kernel copy(cache.context, kPageCopy);
  const Memory pairs = cache.context.upload(std::vector<std::int32_t>{1, 0}, "pairs");
  alm_page_copy copied = zeroed<alm_page_copy>();
  copied.pairs = dense_tensor(pairs.address(), ALM_I32, {1, 2});
  copied.k_cache = cache.k_cache();
  copied.v_cache = cache.v_cache();
  copy.page_copy(copied);
  cache.context.synchronize();
  CHECK(cache.read(0, 1, false) == Cache::numbered());
  CHECK(cache.read(0, 1, true) == Cache::numbered());
}

TEST_CASE("a run of the cache is refused with the name of its field") {
  Cache cache;
  Kernel append(cache.context, kAppend), rope(cache.context, kAppendRope);
  Kernel copy(cache.context, kPageCopy);
  alm_append tensors = cache.tensors();
  const auto refusal = [&](Kernel& kernel) {
    return tell([&](alm_error** e) { return alm_append_run(kernel.get(), &tensors, nullptr, e); });
  };
  CHECK(refusal(append).code == ALM_OK);
  CHECK(refusal(copy).path == "kernel");
  tensors.q = tensors.key;
  CHECK(refusal(append).path == "q");
  CHECK(refusal(rope).path == "q_out");
  tensors = cache.tensors();
  tensors.rope_scale = 2;
  CHECK(refusal(append).code == ALM_ARGUMENT_INVALID);
  CHECK(refusal(append).path == "rope_scale");
  CHECK(refusal(rope).code == ALM_OK);
  tensors = cache.tensors();
  tensors.k_scale = dense_tensor(cache.rows.address(), ALM_F32, {1});
  CHECK(refusal(append).path == "k_scale");
  tensors = cache.tensors();
  const std::int64_t wide[] = {0};
  tensors.host_positions = {wide, 1, 1, ALM_I64};
  const Told told = refusal(append);
  CHECK(told.code == ALM_WORKLOAD_INVALID);
  CHECK(told.path == "host_positions");
  CHECK(told.cause == "dtype must be i32, given i64");
  tensors = cache.tensors();
  tensors.struct_bytes = 0;
  CHECK(refusal(append).path == "tensors.struct_bytes");
  CHECK(tell([](alm_error** e) { return alm_append_run(nullptr, nullptr, nullptr, e); }).path ==
        "kernel");
  CHECK(tell([](alm_error** e) { return alm_page_copy_run(nullptr, nullptr, nullptr, e); }).path ==
        "kernel");
  alm_page_copy pages = zeroed<alm_page_copy>();
  pages.k_cache = cache.k_cache();
  pages.v_cache = cache.v_cache();
  CHECK(tell([&](alm_error** e) {
          return alm_page_copy_run(copy.get(), &pages, nullptr, e);
        }).path == "pairs");
}

}  // namespace
