// SPDX-License-Identifier: Apache-2.0
#include "python/core/block_sparse.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <attnloom/block_sparse.hpp>
#include <deque>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "python/core/dlpack.h"
#include "python/core/refusal.h"

namespace attnloom::python {
namespace {

using Block = std::pair<std::int32_t, std::int32_t>;

// The arrays of one pattern, kept for the call. Missing ones are None.
class Given {
 public:
  explicit Given(const nb::dict& fields) : fields_(fields) {}

  alm_index_array array(const char* name) {
    arrays_.push_back(borrow_indices(nb::object(fields_[name]), name));
    return arrays_.back().view();
  }
  template <class Number>
  Number number(const char* name) const {
    return nb::cast<Number>(fields_[name]);
  }
  // A byte of 0 or 1 for each; any dense shape.
  std::pair<const std::uint8_t*, std::int64_t> bytes(const char* name) {
    held_ = borrow(nb::object(fields_[name]), name);
    const alm_tensor& tensor = held_.tensor;
    const auto refuse = [&](const std::string& cause) {
      throw Refusal{ALM_WORKLOAD_INVALID, name, cause, ""};
    };
    if (!held_.given()) refuse("must be an array of bytes, given None");
    if (!held_.on_host()) refuse("must lie on the host");
    if (tensor.dtype != ALM_U8)
      refuse(std::string("dtype must be u8, given ") + dtype_name(tensor.dtype));
    std::int64_t count = 1;
    for (int i = tensor.rank - 1; i >= 0; --i) {
      if (tensor.shape[i] > 1 && tensor.strides[i] != count) refuse("must be contiguous");
      count *= tensor.shape[i];
    }
    return {static_cast<const std::uint8_t*>(tensor.data), count};
  }

 private:
  const nb::dict& fields_;
  std::deque<Indices> arrays_;
  Borrowed held_;
};

alm_dense_mask dense_mask(Given& given) {
  alm_dense_mask mask = zeroed<alm_dense_mask>();
  mask.qo_indptr = given.array("qo_indptr");
  mask.kv_indptr = given.array("kv_indptr");
  std::tie(mask.mask, mask.mask_bytes) = given.bytes("mask");
  return mask;
}

alm_page_table page_table(Given& given) {
  alm_page_table table = zeroed<alm_page_table>();
  table.qo_indptr = given.array("qo_indptr");
  table.kv_indptr = given.array("kv_indptr");
  table.page_indices = given.array("page_indices");
  table.last_page_len = given.array("last_page_len");
  table.pool_pages = given.number<std::int64_t>("pool_pages");
  table.page_size = given.number<std::int32_t>("page_size");
  table.causal = given.number<std::int32_t>("causal");
  return table;
}

template <class Struct>
BlockSparse make(const Struct& filled, const Block& block) {
  const nb::gil_scoped_release released;
  return BlockSparse(filled, block.first, block.second);
}

BlockSparse from_ragged(Given& given, const Block& block) {
  alm_ragged_keys ragged = zeroed<alm_ragged_keys>();
  ragged.qo_indptr = given.array("qo_indptr");
  ragged.kv_indptr = given.array("kv_indptr");
  return make(ragged, block);
}

BlockSparse from_lists(Given& given, const Block& block) {
  alm_block_lists lists = zeroed<alm_block_lists>();
  lists.qo_indptr = given.array("qo_indptr");
  lists.kv_indptr = given.array("kv_indptr");
  lists.block_indptr = given.array("block_indptr");
  lists.block_indices = given.array("block_indices");
  return make(lists, block);
}

BlockSparse from_pages(Given& given, const Block& block) {
  return make(page_table(given), block);
}

BlockSparse from_prefix_tree(Given& given, const Block& block) {
  alm_prefix_tree tree = zeroed<alm_prefix_tree>();
  tree.qo_indptr = given.array("qo_indptr");
  tree.node = given.array("node");
  tree.parent = given.array("parent");
  tree.key_begin = given.array("key_begin");
  tree.key_count = given.array("key_count");
  tree.keys = given.number<std::int64_t>("keys");
  tree.causal = given.number<std::int32_t>("causal");
  return make(tree, block);
}

BlockSparse from_draft_trees(Given& given, const Block& block) {
  alm_draft_trees drafts = zeroed<alm_draft_trees>();
  drafts.draft_indptr = given.array("draft_indptr");
  drafts.parent = given.array("parent");
  drafts.context_len = given.array("context_len");
  return make(drafts, block);
}

BlockSparse from_mask(Given& given, const Block& block) {
  return make(dense_mask(given), block);
}

BlockSparse from_head_pages(Given& given, const Block& block) {
  const alm_page_table pages = page_table(given);
  alm_head_pages picks = zeroed<alm_head_pages>();
  picks.pages = &pages;
  picks.pick_indptr = given.array("pick_indptr");
  picks.picks = given.array("picks");
  picks.kv_heads = given.number<std::int32_t>("kv_heads");
  picks.hnd = given.number<std::int32_t>("hnd");
  return make(picks, block);
}

BlockSparse from_head_blocks(Given& given, const Block& block) {
  alm_head_blocks heads = zeroed<alm_head_blocks>();
  heads.row_indptr = given.array("row_indptr");
  heads.row_sizes = given.array("row_sizes");
  heads.column_indptr = given.array("column_indptr");
  heads.column_sizes = given.array("column_sizes");
  std::tie(heads.map, heads.map_bytes) = given.bytes("map");
  return make(heads, block);
}

struct Format {
  const char* name;
  BlockSparse (*make)(Given&, const Block&);
};
constexpr Format kFormats[] = {
    {"ragged", from_ragged},
    {"lists", from_lists},
    {"pages", from_pages},
    {"prefix_tree", from_prefix_tree},
    {"draft_trees", from_draft_trees},
    {"mask", from_mask},
    {"head_pages", from_head_pages},
    {"head_blocks", from_head_blocks},
};

// Arrays that are their own memory: numpy, torch and the package itself take them by DLPack.
template <class Value>
nb::object exported(std::vector<Value> values) {
  auto* const kept = new std::vector<Value>(std::move(values));
  const nb::capsule owner(
      kept, [](void* held) noexcept { delete static_cast<std::vector<Value>*>(held); });
  using Array = nb::ndarray<nb::array_api, Value, nb::ndim<1>, nb::device::cpu>;
  return nb::cast(Array(kept->data(), {kept->size()}, owner));
}

nb::object exported_indices(const alm_index_array& array) {
  const auto* const data = static_cast<const std::int32_t*>(array.data);
  return exported(std::vector<std::int32_t>(data, data + array.length));
}

BlockSparse make_sparse(const std::string& format, const nb::dict& fields, std::int32_t rows,
                        std::int32_t columns) {
  Given given(fields);
  for (const Format& known : kFormats)
    if (format == known.name) return known.make(given, {rows, columns});
  refuse_argument("format", "is none of a block-sparse pattern, given " + format);
}

nb::dict read(const BlockSparse& sparse) {
  const alm_block_sparse_view view = sparse.read();
  nb::dict made;
  made["block"] = nb::make_tuple(view.block_rows, view.block_columns);
  made["partial_blocks"] = view.partial_blocks;
  made["qo_indptr"] = exported_indices(view.qo_indptr);
  made["kv_indptr"] = exported_indices(view.kv_indptr);
  made["block_indptr"] = exported_indices(view.block_indptr);
  made["block_indices"] = exported_indices(view.block_indices);
  return made;
}

}  // namespace

void bind_block_sparse(nb::module_& module) {
  nb::class_<BlockSparse>(module, "BlockSparse")
      .def_static("make", &make_sparse, nb::arg("format"), nb::arg("fields"), nb::arg("rows"),
                  nb::arg("columns"))
      .def("reblock", &BlockSparse::reblock, nb::arg("rows"), nb::arg("columns"),
           nb::call_guard<nb::gil_scoped_release>())
      .def("read", &read)
      .def("custom_mask", [](const BlockSparse& self) { return exported(self.custom_mask()); })
      .def(
          "check",
          [](const BlockSparse& self, const nb::dict& fields) {
            Given given(fields);
            self.check(dense_mask(given));
          },
          nb::arg("fields"));
}

}  // namespace attnloom::python
