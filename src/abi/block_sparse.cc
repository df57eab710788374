// SPDX-License-Identifier: Apache-2.0
#include "abi/boundary.h"
#include "abi/convert.h"
#include "abi/handles.h"
#include "plan/block_sparse/converters.h"

using namespace attnloom;

namespace {

// The arrays of one struct, by its name; the first error stays.
class ArrayReader {
 public:
  explicit ArrayReader(std::string group) : group_(std::move(group) + ".") {}

  ArrayReader& read(const alm_index_array& given, const char* name, IndexArray* out) {
    if (status_.ok()) status_ = convert_array(given, group_.c_str(), name, out);
    return *this;
  }
  ArrayReader& bytes(const uint8_t* given, int64_t count, const char* name,
                     std::span<const std::uint8_t>* out) {
    if (!status_.ok()) return *this;
    if (count < 0 || (!given && count > 0))
      status_ = make_error(Code::kWorkloadInvalid, group_ + name,
                           "wanted bytes and their number, given " +
                               std::string(given ? "an array" : "NULL") + " and " +
                               std::to_string(count));
    else
      *out = {given, static_cast<std::size_t>(count)};
    return *this;
  }
  Status status() const { return status_; }

 private:
  std::string group_;
  Status status_;
};

Status convert(const alm_ragged_keys* given, RaggedKeys* out) {
  alm_ragged_keys read;
  ATTNLOOM_CHECK(read_struct(given, "ragged", &read));
  return ArrayReader("ragged")
      .read(read.qo_indptr, "qo_indptr", &out->qo_indptr)
      .read(read.kv_indptr, "kv_indptr", &out->kv_indptr)
      .status();
}

Status convert(const alm_block_lists* given, BlockLists* out) {
  alm_block_lists read;
  ATTNLOOM_CHECK(read_struct(given, "lists", &read));
  return ArrayReader("lists")
      .read(read.qo_indptr, "qo_indptr", &out->qo_indptr)
      .read(read.kv_indptr, "kv_indptr", &out->kv_indptr)
      .read(read.block_indptr, "block_indptr", &out->block_indptr)
      .read(read.block_indices, "block_indices", &out->block_indices)
      .status();
}

Status convert_pages(const alm_page_table* given, const char* group, PageTable* out) {
  alm_page_table read;
  ATTNLOOM_CHECK(read_struct(given, group, &read));
  out->page_size = read.page_size;
  out->pool_pages = read.pool_pages;
  out->causal = read.causal != 0;
  return ArrayReader(group)
      .read(read.qo_indptr, "qo_indptr", &out->qo_indptr)
      .read(read.kv_indptr, "kv_indptr", &out->kv_indptr)
      .read(read.page_indices, "page_indices", &out->indices)
      .read(read.last_page_len, "last_page_len", &out->last_page_len)
      .status();
}

Status convert(const alm_page_table* given, PageTable* out) {
  return convert_pages(given, "pages", out);
}

Status convert(const alm_prefix_tree* given, PrefixTree* out) {
  alm_prefix_tree read;
  ATTNLOOM_CHECK(read_struct(given, "tree", &read));
  out->keys = read.keys;
  out->causal = read.causal != 0;
  return ArrayReader("tree")
      .read(read.qo_indptr, "qo_indptr", &out->qo_indptr)
      .read(read.node, "node", &out->node)
      .read(read.parent, "parent", &out->parent)
      .read(read.key_begin, "key_begin", &out->key_begin)
      .read(read.key_count, "key_count", &out->key_count)
      .status();
}

Status convert(const alm_draft_trees* given, DraftTrees* out) {
  alm_draft_trees read;
  ATTNLOOM_CHECK(read_struct(given, "drafts", &read));
  return ArrayReader("drafts")
      .read(read.draft_indptr, "draft_indptr", &out->draft_indptr)
      .read(read.parent, "parent", &out->parent)
      .read(read.context_len, "context_len", &out->context_len)
      .status();
}

Status convert(const alm_dense_mask* given, DenseMask* out) {
  alm_dense_mask read;
  ATTNLOOM_CHECK(read_struct(given, "mask", &read));
  return ArrayReader("mask")
      .read(read.qo_indptr, "qo_indptr", &out->qo_indptr)
      .read(read.kv_indptr, "kv_indptr", &out->kv_indptr)
      .bytes(read.mask, read.mask_bytes, "mask", &out->bytes)
      .status();
}

Status convert(const alm_head_pages* given, HeadPages* out) {
  alm_head_pages read;
  ATTNLOOM_CHECK(read_struct(given, "picks", &read));
  ATTNLOOM_CHECK(convert_pages(read.pages, "picks.pages", &out->pages));
  out->kv_heads = read.kv_heads;
  out->order = read.hnd != 0 ? HeadOrder::kHnd : HeadOrder::kNhd;
  return ArrayReader("picks")
      .read(read.pick_indptr, "pick_indptr", &out->indptr)
      .read(read.picks, "picks", &out->picks)
      .status();
}

Status convert(const alm_head_blocks* given, HeadBlocks* out) {
  alm_head_blocks read;
  ATTNLOOM_CHECK(read_struct(given, "heads", &read));
  return ArrayReader("heads")
      .read(read.row_indptr, "row_indptr", &out->row_indptr)
      .read(read.row_sizes, "row_sizes", &out->row_sizes)
      .read(read.column_indptr, "column_indptr", &out->column_indptr)
      .read(read.column_sizes, "column_sizes", &out->column_sizes)
      .bytes(read.map, read.map_bytes, "map", &out->map)
      .status();
}

// One way from a struct of attnloom.h to a handle.
template <class Format, class Given>
alm_code make(const Given* given, Result<BlockSparse> (*converter)(const Format&, BlockSize),
              int32_t block_rows, int32_t block_columns, alm_block_sparse** sparse,
              alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(sparse, "sparse"));
    *sparse = nullptr;
    Format format;
    ATTNLOOM_CHECK(convert(given, &format));
    ATTNLOOM_TRY(BlockSparse made, converter(format, {block_rows, block_columns}));
    *sparse = new alm_block_sparse{std::move(made)};
    return ok_status();
  });
}

alm_index_array array_of(const std::vector<std::int32_t>& values) {
  return {values.data(), static_cast<int64_t>(values.size()), 1, ALM_I32};
}

}  // namespace

alm_code alm_block_sparse_from_ragged(const alm_ragged_keys* ragged, int32_t block_rows,
                                      int32_t block_columns, alm_block_sparse** sparse,
                                      alm_error** error) {
  return make(ragged, from_ragged, block_rows, block_columns, sparse, error);
}

alm_code alm_block_sparse_from_lists(const alm_block_lists* lists, int32_t block_rows,
                                     int32_t block_columns, alm_block_sparse** sparse,
                                     alm_error** error) {
  return make(lists, from_lists, block_rows, block_columns, sparse, error);
}

alm_code alm_block_sparse_from_pages(const alm_page_table* pages, int32_t block_rows,
                                     int32_t block_columns, alm_block_sparse** sparse,
                                     alm_error** error) {
  return make(pages, from_pages, block_rows, block_columns, sparse, error);
}

alm_code alm_block_sparse_from_prefix_tree(const alm_prefix_tree* tree, int32_t block_rows,
                                           int32_t block_columns, alm_block_sparse** sparse,
                                           alm_error** error) {
  return make(tree, from_prefix_tree, block_rows, block_columns, sparse, error);
}

alm_code alm_block_sparse_from_draft_trees(const alm_draft_trees* drafts, int32_t block_rows,
                                           int32_t block_columns, alm_block_sparse** sparse,
                                           alm_error** error) {
  return make(drafts, from_draft_trees, block_rows, block_columns, sparse, error);
}

alm_code alm_block_sparse_from_mask(const alm_dense_mask* mask, int32_t block_rows,
                                    int32_t block_columns, alm_block_sparse** sparse,
                                    alm_error** error) {
  return make(mask, from_mask, block_rows, block_columns, sparse, error);
}

alm_code alm_block_sparse_from_head_pages(const alm_head_pages* picks, int32_t block_rows,
                                          int32_t block_columns, alm_block_sparse** sparse,
                                          alm_error** error) {
  return make(picks, from_head_pages, block_rows, block_columns, sparse, error);
}

alm_code alm_block_sparse_from_head_blocks(const alm_head_blocks* heads, int32_t block_rows,
                                           int32_t block_columns, alm_block_sparse** sparse,
                                           alm_error** error) {
  return make(heads, from_head_blocks, block_rows, block_columns, sparse, error);
}

alm_code alm_block_sparse_reblock(const alm_block_sparse* sparse, int32_t block_rows,
                                  int32_t block_columns, alm_block_sparse** reblocked,
                                  alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(reblocked, "reblocked"));
    *reblocked = nullptr;
    ATTNLOOM_CHECK(check_given(sparse, "sparse"));
    ATTNLOOM_TRY(BlockSparse made, reblock(sparse->sparse, {block_rows, block_columns}));
    *reblocked = new alm_block_sparse{std::move(made)};
    return ok_status();
  });
}

void alm_block_sparse_destroy(alm_block_sparse* sparse) {
  delete sparse;
}

alm_code alm_block_sparse_read(const alm_block_sparse* sparse, alm_block_sparse_view* view,
                               alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(sparse, "sparse"));
    alm_block_sparse_view filled;
    ATTNLOOM_CHECK(read_struct(view, "view", &filled));
    const BlockSparse& made = sparse->sparse;
    filled.block_rows = made.block.rows;
    filled.block_columns = made.block.columns;
    filled.qo_indptr = array_of(made.qo_indptr);
    filled.kv_indptr = array_of(made.kv_indptr);
    filled.block_indptr = array_of(made.indptr);
    filled.block_indices = array_of(made.indices);
    filled.partial_blocks = static_cast<int64_t>(made.bits.size()) / made.bytes_of_block();
    filled.custom_mask_bytes = custom_mask_bytes(made);
    std::memcpy(view, &filled, std::min(view->struct_bytes, sizeof(filled)));
    return ok_status();
  });
}

alm_code alm_block_sparse_custom_mask(const alm_block_sparse* sparse, void* mask, size_t mask_bytes,
                                      alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(sparse, "sparse"));
    const auto wanted = static_cast<std::size_t>(custom_mask_bytes(sparse->sparse));
    if (mask_bytes < wanted)
      return argument_error("mask_bytes", "wanted at least " + std::to_string(wanted) + ", given " +
                                              std::to_string(mask_bytes));
    if (wanted == 0) return ok_status();
    ATTNLOOM_CHECK(check_given(mask, "mask"));
    write_custom_mask(sparse->sparse, {static_cast<std::uint8_t*>(mask), wanted});
    return ok_status();
  });
}

alm_code alm_block_sparse_check_mask(const alm_block_sparse* sparse, const alm_dense_mask* mask,
                                     alm_error** error) {
  return guarded(error, [&]() -> Status {
    ATTNLOOM_CHECK(check_given(sparse, "sparse"));
    DenseMask converted;
    ATTNLOOM_CHECK(convert(mask, &converted));
    return check_agrees(sparse->sparse, converted);
  });
}
