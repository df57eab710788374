// SPDX-License-Identifier: Apache-2.0
// alm_block_sparse without a device: sizes, structs of another age, refusals by name.
#include <attnloom/block_sparse.hpp>
#include <vector>

#include "abi_fixture.h"

namespace {

using attnloom::cxx::BlockSparse;
using attnloom::cxx::Error;
using attnloom::cxx::index_array;
using attnloom::cxx::zeroed;
using Ints = std::vector<std::int32_t>;

struct Mask {
  Ints qo{0, 2}, kv{0, 5};
  std::vector<std::uint8_t> bytes{1, 1, 0, 0, 0, 1, 1, 1, 0, 0};
  alm_dense_mask given = zeroed<alm_dense_mask>();
  Mask() {
    given.qo_indptr = index_array(qo);
    given.kv_indptr = index_array(kv);
    given.mask = bytes.data();
    given.mask_bytes = 10;
  }
};

TEST_CASE("a pattern is read, and its mask written into a buffer of its size") {
  const Mask mask;
  const BlockSparse sparse(mask.given, 2, 2);
  const alm_block_sparse_view view = sparse.read();
  CHECK(view.block_rows == 2);
  CHECK(view.block_columns == 2);
  CHECK(view.block_indices.length == 2);
  CHECK(static_cast<const std::int32_t*>(view.block_indices.data)[1] == 1);
  CHECK(view.block_indptr.length == 2);
  CHECK(view.partial_blocks == 1);
  CHECK(view.custom_mask_bytes == 2);
  CHECK(sparse.custom_mask() == std::vector<std::uint8_t>{0b11100011, 0b00});
  std::uint8_t one = 0x55;
  const Told told =
      tell([&](alm_error** e) { return alm_block_sparse_custom_mask(sparse.get(), &one, 1, e); });
  CHECK(told.code == ALM_ARGUMENT_INVALID);
  CHECK(told.path == "mask_bytes");
  CHECK(told.cause == "wanted at least 2, given 1");
  CHECK(one == 0x55);
}

TEST_CASE("a view of another age is filled as far as it goes") {
  const Mask mask;
  const BlockSparse sparse(mask.given, 2, 2);
  alm_block_sparse_view view = zeroed<alm_block_sparse_view>();
  view.struct_bytes = offsetof(alm_block_sparse_view, partial_blocks);
  view.custom_mask_bytes = 77;
  REQUIRE(alm_block_sparse_read(sparse.get(), &view, nullptr) == ALM_OK);
  CHECK(view.kv_indptr.length == 2);
  CHECK(view.struct_bytes == offsetof(alm_block_sparse_view, partial_blocks));
  CHECK(view.custom_mask_bytes == 77);
  view.struct_bytes = 0;
  CHECK(tell([&](alm_error** e) { return alm_block_sparse_read(sparse.get(), &view, e); }).path ==
        "view.struct_bytes");
}

TEST_CASE("nothing given is an error with its name, and destroying it does nothing") {
  alm_block_sparse_destroy(nullptr);
  alm_block_sparse* made = reinterpret_cast<alm_block_sparse*>(1);
  CHECK(tell([&](alm_error** e) {
          return alm_block_sparse_from_ragged(nullptr, 1, 1, &made, e);
        }).path == "ragged");
  CHECK(made == nullptr);
  CHECK(tell([](alm_error** e) {
          return alm_block_sparse_from_pages(nullptr, 1, 1, nullptr, e);
        }).path == "sparse");
  CHECK(tell([&](alm_error** e) {
          return alm_block_sparse_reblock(nullptr, 1, 1, &made, e);
        }).path == "sparse");
  alm_head_pages picks = zeroed<alm_head_pages>();
  const auto from_picks = [&] {
    return tell(
        [&](alm_error** e) { return alm_block_sparse_from_head_pages(&picks, 1, 1, &made, e); });
  };
  CHECK(from_picks().path == "picks.pages");
  const alm_page_table without_size = {};
  picks.pages = &without_size;
  CHECK(from_picks().path == "picks.pages.struct_bytes");
}

TEST_CASE("arrays of another width, missing bytes and patterns that disagree") {
  Mask mask;
  alm_block_sparse* made = nullptr;
  const auto from_mask = [&] {
    return tell(
        [&](alm_error** e) { return alm_block_sparse_from_mask(&mask.given, 2, 2, &made, e); });
  };
  mask.given.mask = nullptr;
  CHECK(from_mask().path == "mask.mask");
  mask.given.mask = mask.bytes.data();
  mask.given.mask_bytes = -1;
  CHECK(from_mask().path == "mask.mask");
  mask.given.mask_bytes = 9;
  CHECK(from_mask().cause.find("wanted 10 bytes") == 0);
  mask.given.mask_bytes = 10;
  mask.given.kv_indptr.dtype = ALM_I64;
  CHECK(from_mask().path == "mask.kv_indptr");
  CHECK(from_mask().cause == "dtype must be i32, given i64");
  mask.given.kv_indptr.dtype = ALM_I32;
  const BlockSparse sparse(mask.given, 2, 2);
  sparse.check(mask.given);
  mask.bytes[7] = 0;
  try {
    sparse.check(mask.given);
    FAIL("agreed");
  } catch (const Error& error) {
    CHECK(error.code() == ALM_WORKLOAD_INVALID);
    CHECK(error.path() == "mask.mask[7]");
    CHECK(error.cause() == "request 0, query token 1, key 2: the lists say 1, the mask says 0");
  }
}

}  // namespace
