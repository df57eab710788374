// SPDX-License-Identifier: Apache-2.0
//
// block_sparse.hpp - alm_block_sparse as a C++17 value, header-only; conventions, threads and
// ownership as in attnloom.hpp.
#ifndef ATTNLOOM_BLOCK_SPARSE_HPP_
#define ATTNLOOM_BLOCK_SPARSE_HPP_

#include <attnloom/attnloom.hpp>

namespace attnloom {
inline namespace cxx {

// A sparse pattern. Made of the format's struct; a block size of 0 is the format's own.
class BlockSparse {
 public:
  BlockSparse(const alm_ragged_keys& given, std::int32_t rows, std::int32_t columns)
      : BlockSparse(alm_block_sparse_from_ragged, &given, rows, columns) {}
  BlockSparse(const alm_block_lists& given, std::int32_t rows, std::int32_t columns)
      : BlockSparse(alm_block_sparse_from_lists, &given, rows, columns) {}
  explicit BlockSparse(const alm_page_table& given, std::int32_t rows = 0, std::int32_t columns = 0)
      : BlockSparse(alm_block_sparse_from_pages, &given, rows, columns) {}
  BlockSparse(const alm_prefix_tree& given, std::int32_t rows, std::int32_t columns)
      : BlockSparse(alm_block_sparse_from_prefix_tree, &given, rows, columns) {}
  BlockSparse(const alm_draft_trees& given, std::int32_t rows, std::int32_t columns)
      : BlockSparse(alm_block_sparse_from_draft_trees, &given, rows, columns) {}
  BlockSparse(const alm_dense_mask& given, std::int32_t rows, std::int32_t columns)
      : BlockSparse(alm_block_sparse_from_mask, &given, rows, columns) {}
  explicit BlockSparse(const alm_head_pages& given, std::int32_t rows = 0, std::int32_t columns = 0)
      : BlockSparse(alm_block_sparse_from_head_pages, &given, rows, columns) {}
  explicit BlockSparse(const alm_head_blocks& given, std::int32_t rows = 0,
                       std::int32_t columns = 0)
      : BlockSparse(alm_block_sparse_from_head_blocks, &given, rows, columns) {}
  alm_block_sparse* get() const { return handle_.get(); }

  BlockSparse reblock(std::int32_t rows, std::int32_t columns) const {
    return BlockSparse(alm_block_sparse_reblock, get(), rows, columns);
  }
  alm_block_sparse_view read() const {
    alm_block_sparse_view view = zeroed<alm_block_sparse_view>();
    detail::check([&](alm_error** error) { return alm_block_sparse_read(get(), &view, error); });
    return view;
  }
  // Its arrays live as long as this.
  alm_workload workload() const {
    const alm_block_sparse_view view = read();
    alm_workload made = zeroed<alm_workload>();
    made.qo_indptr = view.qo_indptr;
    made.kv_indptr = view.kv_indptr;
    made.block_indptr = view.block_indptr;
    made.block_indices = view.block_indices;
    return made;
  }
  std::vector<std::uint8_t> custom_mask() const {
    std::vector<std::uint8_t> mask(static_cast<std::size_t>(read().custom_mask_bytes));
    detail::check([&](alm_error** error) {
      return alm_block_sparse_custom_mask(get(), mask.data(), mask.size(), error);
    });
    return mask;
  }
  // Throws where `mask` says something else.
  void check(const alm_dense_mask& mask) const {
    detail::check(
        [&](alm_error** error) { return alm_block_sparse_check_mask(get(), &mask, error); });
  }

 private:
  template <class Make, class Given>
  BlockSparse(Make* make, const Given* given, std::int32_t rows, std::int32_t columns) {
    alm_block_sparse* made = nullptr;
    detail::check([&](alm_error** error) { return make(given, rows, columns, &made, error); });
    handle_.reset(made);
  }

  detail::Owner<alm_block_sparse, alm_block_sparse_destroy> handle_;
};

}  // namespace cxx
}  // namespace attnloom

#endif  // ATTNLOOM_BLOCK_SPARSE_HPP_
