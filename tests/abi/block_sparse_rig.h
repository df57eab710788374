// SPDX-License-Identifier: Apache-2.0
// A BlockSparse run through the C++ interface on the simulated device, beside the float64
// reference. The test says what the pattern means in its own words: of each request the keys.
#pragma once

#include <attnloom/block_sparse.hpp>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/temp_directory.h"
#include "reference/attention.h"
#include "reference/number_format.h"

namespace sparse_rig {

using attnloom::cxx::BlockSparse;
using attnloom::cxx::Context;
using attnloom::cxx::dense_tensor;
using attnloom::cxx::Kernel;
using attnloom::cxx::Memory;
using attnloom::cxx::Plan;
using attnloom::cxx::zeroed;
using Ints = std::vector<std::int32_t>;

constexpr int kDim = 64;

// f16 as the device has it, and its values.
struct Numbers {
  std::vector<std::uint16_t> bits;
  std::vector<double> values;

  Numbers(std::int64_t rows, std::uint32_t seed) {
    std::mt19937 random(seed);
    fill(rows, [&](std::int64_t) { return static_cast<double>(random() % 2001) / 500.0 - 2.0; });
  }
  // Each row `of(row)` in all dimensions.
  template <class Of>
  static Numbers rows(std::int64_t count, Of&& of) {
    Numbers made(0, 0);
    made.fill(count, of);
    return made;
  }
  template <class Of>
  void fill(std::int64_t rows, Of&& of) {
    for (std::int64_t i = 0; i < rows * kDim; ++i) {
      const double value = of(i / kDim);
      bits.push_back(
          static_cast<std::uint16_t>(attnloom::reference::to_bits(value, attnloom::DType::kF16)));
      values.push_back(attnloom::reference::from_bits(bits.back(), attnloom::DType::kF16));
    }
  }
  std::vector<double> row(std::int64_t at) const {
    return {values.begin() + at * kDim, values.begin() + (at + 1) * kDim};
  }
};

// What a pattern means: requests whose queries follow each other, and of each the rows of K and V
// that are its keys. A row is kDim numbers, whatever view it is read through.
struct Meaning {
  struct Request {
    int qo_len = 0;
    std::vector<std::int64_t> keys;  // [kv_len][kv_heads]
    std::vector<std::uint8_t> mask;  // [qo_len][kv_len], or empty
  };
  int group = 1;
  int kv_heads = 1;
  bool causal = false;
  std::vector<Request> requests;
};

inline attnloom::reference::Output judge(const Meaning& meaning, const Numbers& q, const Numbers& k,
                                         const Numbers& v) {
  attnloom::reference::Problem problem;
  problem.q_heads = meaning.kv_heads * meaning.group;
  problem.kv_heads = meaning.kv_heads;
  problem.dim_qk = problem.dim_vo = kDim;
  problem.scale = 0.125;
  problem.causal = meaning.causal;
  problem.dtype = attnloom::DType::kF16;
  problem.q = q.values;
  for (const Meaning::Request& request : meaning.requests) {
    problem.requests.push_back(
        {request.qo_len, std::ssize(request.keys) / meaning.kv_heads, request.mask, std::nullopt});
    for (const std::int64_t key : request.keys) {
      const auto add = [&](const Numbers& from, std::vector<double>& to) {
        const std::vector<double> row = from.row(key);
        to.insert(to.end(), row.begin(), row.end());
      };
      add(k, problem.k);
      add(v, problem.v);
    }
  }
  const auto output = attnloom::reference::attention(problem);
  INFO(output.status().to_string());
  REQUIRE(output.ok());
  return output.value();
}

inline void compare(const std::vector<std::uint16_t>& o, const std::vector<float>& lse,
                    const attnloom::reference::Output& wanted) {
  REQUIRE(o.size() == wanted.o.size());
  REQUIRE(lse.size() == wanted.lse.size());
  for (std::size_t row = 0; row < lse.size(); ++row) {
    double difference = 0;
    double size = 0;
    for (std::size_t i = row * kDim; i < (row + 1) * kDim; ++i) {
      const double got = attnloom::reference::from_bits(o[i], attnloom::DType::kF16);
      difference += (got - wanted.o[i]) * (got - wanted.o[i]);
      size += wanted.o[i] * wanted.o[i];
    }
    CAPTURE(row, difference, size, lse[row], wanted.lse[row]);
    REQUIRE(std::sqrt(difference) <= 2e-3 * std::sqrt(size));
    if (std::isinf(wanted.lse[row]))
      REQUIRE(lse[row] == wanted.lse[row]);
    else
      REQUIRE(std::abs(lse[row] - wanted.lse[row]) <= 1e-3);
  }
}

// Tensors as the pattern reads them: query rows x group, key rows x heads.
struct Shapes {
  int group = 1;
  int kv_heads = 1;
};

class Rig {
 public:
  Rig() : context_(options()) {}

  // Runs and compares; the pattern gives lengths, lists and, where blocks are partial, the mask.
  void check(const BlockSparse& sparse, const Shapes& shapes, const Numbers& q, const Numbers& k,
             const Numbers& v, const attnloom::reference::Output& wanted) {
    const alm_block_sparse_view view = sparse.read();
    const bool custom = view.partial_blocks > 0;
    Kernel kernel(context_, spec(view, shapes, custom));
    const std::int64_t rows = last(view.qo_indptr);
    const std::int64_t keys = last(view.kv_indptr);
    const int q_heads = shapes.kv_heads * shapes.group;
    alm_plan_limits limits = zeroed<alm_plan_limits>();
    limits.max_batch = static_cast<std::int32_t>(view.qo_indptr.length - 1);
    limits.max_qo_tokens = rows;
    limits.q_heads = q_heads;
    limits.kv_heads = shapes.kv_heads;
    Plan plan(kernel, limits);
    Memory workspace = context_.allocate(plan.sizes().workspace_bytes, "workspace");
    std::vector<char> staging(plan.sizes().staging_bytes + 16);
    char* aligned = staging.data() + (16 - reinterpret_cast<std::uintptr_t>(staging.data()) % 16);
    plan.bind(workspace.address(), workspace.bytes(), aligned, plan.sizes().staging_bytes);
    alm_workload workload = sparse.workload();
    plan.update(workload);
    Memory q_memory = context_.upload(q.bits, "q");
    Memory k_memory = context_.upload(k.bits, "k");
    Memory v_memory = context_.upload(v.bits, "v");
    Memory o_memory = context_.allocate(q.bits.size() * 2, "o");
    Memory lse_memory = context_.allocate(static_cast<std::size_t>(rows * q_heads * 4), "lse");
    const Ints indices = ints(view.block_indices);
    Memory list_memory = context_.upload(indices, "block indices");
    const std::vector<std::uint8_t> mask = sparse.custom_mask();
    Memory mask_memory = context_.upload(mask, "custom mask");
    alm_attention tensors = zeroed<alm_attention>();
    tensors.q = dense_tensor(q_memory.address(), ALM_F16, {rows, q_heads, kDim});
    tensors.k = dense_tensor(k_memory.address(), ALM_F16, {keys, shapes.kv_heads, kDim});
    tensors.v = dense_tensor(v_memory.address(), ALM_F16, {keys, shapes.kv_heads, kDim});
    tensors.o = dense_tensor(o_memory.address(), ALM_F16, {rows, q_heads, kDim});
    tensors.lse = dense_tensor(lse_memory.address(), ALM_F32, {rows, q_heads});
    tensors.block_indices =
        dense_tensor(list_memory.address(), ALM_I32, {static_cast<std::int64_t>(indices.size())});
    if (custom)
      tensors.custom_mask =
          dense_tensor(mask_memory.address(), ALM_U8, {static_cast<std::int64_t>(mask.size())});
    plan.run(tensors);
    context_.synchronize();
    std::vector<std::uint16_t> o(q.bits.size());
    o_memory.copy_out(o.data(), o.size() * 2);
    std::vector<float> lse(static_cast<std::size_t>(rows * q_heads));
    lse_memory.copy_out(lse.data(), lse.size() * 4);
    compare(o, lse, wanted);
  }

 private:
  alm_context_options options() {
    alm_context_options made = zeroed<alm_context_options>();
    made.device = ALM_DEVICE_SIMULATOR;
    made.cache_dir = folder_.c_str();
    return made;
  }
  static std::string spec(const alm_block_sparse_view& view, const Shapes& shapes, bool custom) {
    return R"({"attnloom": 1, "kernel": "attention", "dtype": {"q": "f16", "kv": "f16", "o": "f16"},
      "head_dim": {"qk": 64, "vo": 64}, "tile": {"q": 16, "kv": 64}, "group_size": )" +
           std::to_string(shapes.group) + R"(, "layout": {"kv": "bsr", "block": [)" +
           std::to_string(view.block_rows) + ", " + std::to_string(view.block_columns) +
           R"(]}, "variant": {"name": "plain", "mask": {"custom": )" + (custom ? "true" : "false") +
           "}}}";
  }
  static Ints ints(const alm_index_array& array) {
    const auto* data = static_cast<const std::int32_t*>(array.data);
    return {data, data + array.length};
  }
  static std::int64_t last(const alm_index_array& array) { return ints(array).back(); }

  attnloom::TempDirectory directory_;
  std::string folder_ = directory_ / "cache";
  Context context_;
};

}  // namespace sparse_rig
