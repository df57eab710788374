// SPDX-License-Identifier: Apache-2.0
#include "tools/case/judge.h"

#include <cmath>
#include <utility>

#include "reference/twins.h"

namespace attnloom {
namespace {

reference::Shape output_shape(const CaseFile& file) {
  return {file.qo_tokens(), file.q_heads, file.spec.head_dim.vo};
}

// The params as the kernel gets them: an f32 scalar is rounded on its way.
reference::ParamValues param_values(const CaseFile& file) {
  reference::ParamValues params;
  for (const ScalarParam& scalar : file.scalars) {
    params.scalars[scalar.name] = scalar.value;
    for (const Param& param : file.spec.variant.params) {
      if (param.name == scalar.name && param.type == ParamType::kF32) {
        params.scalars[scalar.name] = static_cast<double>(static_cast<float>(scalar.value));
      }
    }
  }
  for (const CasePointerParam& pointer : file.pointers)
    params.arrays[pointer.name] = pointer.values;
  return params;
}

bool has_functor(const Variant& variant) {
  return !variant.logits_transform.empty() || !variant.logits_mask.empty() ||
         !variant.output_transform.empty() || !variant.query_transform.empty() ||
         !variant.key_transform.empty() || !variant.value_transform.empty();
}

// Whether the twin stands for just the functors that the variant has.
bool has_the_same_functors(const reference::Twin& twin, const Variant& variant) {
  const auto same = [](const auto& hook, const std::string& text) {
    return static_cast<bool>(hook) != text.empty();
  };
  const reference::Hooks& hooks = twin.hooks;
  return same(hooks.logits_transform, variant.logits_transform) &&
         same(hooks.logits_mask, variant.logits_mask) &&
         same(hooks.output_transform, variant.output_transform) &&
         same(hooks.query_transform, variant.query_transform) &&
         same(hooks.key_transform, variant.key_transform) &&
         same(hooks.value_transform, variant.value_transform);
}

Result<reference::Twin> twin_of(const CaseFile& file) {
  const Variant& variant = file.spec.variant;
  if (!has_functor(variant)) return reference::Twin{.softmax = variant.softmax};
  const reference::TwinShape shape{.q_heads = file.q_heads, .dim_qk = file.spec.head_dim.qk};
  const bool composed = !file.composed.empty() && !file.own_functors;
  ATTNLOOM_TRY(reference::Twin twin,
               composed ? reference::compose_twins(file.composed, param_values(file), shape)
                        : reference::make_twin(variant.name, param_values(file), shape));
  if (twin.softmax != variant.softmax || !has_the_same_functors(twin, variant)) {
    return make_error(Code::kSpecUnsupported, "$.spec.variant.name",
                      "the variant is not the shipped \"" + variant.name + "\"",
                      "give it a name of its own");
  }
  return twin;
}

// The cache as the reference takes it: what is stored times its scale.
std::vector<double> dequantised(const CaseTensor& tensor, const std::vector<float>& scales) {
  std::vector<double> values = tensor.values;
  if (scales.empty()) return values;
  const auto heads = static_cast<std::size_t>(tensor.shape[1]);
  const auto dim = static_cast<std::size_t>(tensor.shape[2]);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] *= double{scales[i / dim % heads % scales.size()]};
  return values;
}

}  // namespace

namespace {

// The part of the case's lists that belongs to the request whose first row of blocks is `row`.
reference::Blocks blocks_of(const CaseFile& file, std::size_t request, std::size_t row) {
  reference::Blocks blocks{file.spec.layout.block_rows, file.spec.layout.block_columns, {}, {}};
  const std::size_t rows =
      static_cast<std::size_t>((file.qo_len[request] + blocks.rows - 1) / blocks.rows);
  const std::int32_t begin = file.block_indptr[row];
  for (std::size_t i = 0; i <= rows; ++i)
    blocks.indptr.push_back(file.block_indptr[row + i] - begin);
  blocks.indices.assign(file.block_indices.begin() + begin,
                        file.block_indices.begin() + file.block_indptr[row + rows]);
  return blocks;
}

}  // namespace

reference::Problem case_problem(const CaseFile& file) {
  reference::Problem problem{.q_heads = file.q_heads,
                             .kv_heads = file.kv_heads,
                             .dim_qk = file.spec.head_dim.qk,
                             .dim_vo = file.spec.head_dim.vo};
  std::size_t block_row = 0;
  for (std::size_t r = 0; r < file.qo_len.size(); ++r) {
    problem.requests.push_back({file.qo_len[r], file.kv_len[r], {}});
    if (!file.custom_masks.empty()) problem.requests.back().custom_mask = file.custom_masks[r];
    if (file.spec.layout.kv != KvLayout::kBsr) continue;
    problem.requests.back().blocks = blocks_of(file, r, block_row);
    block_row += problem.requests.back().blocks->indptr.size() - 1;
  }
  problem.q = file.q.values;
  problem.k = dequantised(file.k, file.k_scale);
  problem.v = dequantised(file.v, file.v_scale);
  // Rounded as the kernel gets it.
  problem.scale = file.scale ? double{*file.scale}
                             : double{static_cast<float>(1.0 / std::sqrt(double(problem.dim_qk)))};
  const Mask& mask = file.spec.variant.mask;
  problem.causal = mask.causal;
  problem.window_left = mask.window_left ? *mask.window_left : file.window_left.value_or(-1);
  problem.softmax = file.spec.variant.softmax;
  problem.dtype = file.spec.dtype.q;
  for (const CasePointerParam& pointer : file.pointers) {
    if (pointer.name == file.spec.variant.sink) problem.sink = pointer.values;
  }
  return problem;
}

Result<CaseReference> solve_case(const CaseFile& file) {
  ATTNLOOM_TRY(reference::Twin twin, twin_of(file));
  reference::Problem problem = case_problem(file);
  problem.hooks = std::move(twin.hooks);
  CaseReference wanted;
  ATTNLOOM_TRY(wanted.output, reference::attention(problem));
  wanted.tolerance = reference::tolerance_of(file.spec.dtype.o);
  // A row functor's last bit (rsqrtf, sines) decides now and then which of two 16-bit neighbours a
  // query or key is rounded to: seen on a GPU, LSE off by 1.2e-3 with qk_norm in bf16.
  const Variant& variant = file.spec.variant;
  const bool rewrites_rows = !variant.query_transform.empty() || !variant.key_transform.empty() ||
                             !variant.value_transform.empty();
  if (twin.approximate || rewrites_rows) {
    reference::allow_approximate_functor(wanted.tolerance, wanted.output.largest_logit);
  }
  return wanted;
}

reference::Comparison compare_with_reference(const CaseFile& file, const CaseReference& wanted,
                                             const reference::Output& got) {
  return reference::compare(got, wanted.output, output_shape(file), wanted.tolerance);
}

std::optional<reference::Comparison> compare_with_expect(const CaseFile& file,
                                                         const reference::Output& got) {
  if (!file.expect) return std::nullopt;
  const CaseExpect& expect = *file.expect;
  return reference::compare_expect(got, {expect.o, expect.lse}, output_shape(file), expect.atol,
                                   expect.rtol);
}

}  // namespace attnloom
