// SPDX-License-Identifier: Apache-2.0
#include "tools/case/case_file.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "spec/parse.h"
#include "tools/case/json_node.h"
#include "tools/case/pages.h"
#include "tools/case/params_section.h"
#include "tools/case/tensor_source.h"
#include "tools/case/workload_section.h"

namespace attnloom {
namespace {

constexpr std::string_view kCaseKeys[] = {"case", "spec", "workload", "inputs", "expect"};
constexpr std::string_view kInputKeys[] = {"q", "k", "v", "params"};
constexpr std::string_view kExpectKeys[] = {"o", "lse", "atol", "rtol"};

Status unsupported(std::string path, std::string cause, std::string remedy) {
  return make_error(Code::kSpecUnsupported, std::move(path), std::move(cause), std::move(remedy));
}

// What the inputs of a case can feed.
Status check_spec_of_case(const Spec& spec) {
  if (spec.kernel != KernelKind::kAttention) {
    return unsupported(
        "$.spec.kernel",
        "a case runs \"attention\", given \"" + std::string(json_name(spec.kernel)) + "\"", "");
  }
  return ok_status();
}

Status read_tensor(const JsonNode& inputs, std::string_view name, const std::int64_t (&shape)[3],
                   DType dtype, const std::string& directory, CaseTensor& tensor) {
  ATTNLOOM_TRY(const JsonNode node, inputs.member(name));
  ATTNLOOM_TRY(const std::vector<double> values, expand_tensor(node, shape, directory));
  ATTNLOOM_TRY(tensor, round_tensor(node, values, shape, dtype));
  return ok_status();
}

Status read_inputs(const JsonNode& node, const std::string& directory, CaseFile& file) {
  ATTNLOOM_CHECK(node.check_keys(kInputKeys));
  std::int64_t keys = 0;
  for (const std::int32_t tokens : file.kv_len) keys += tokens;
  const HeadDim& dim = file.spec.head_dim;
  const DTypes& dtype = file.spec.dtype;
  ATTNLOOM_CHECK(
      read_tensor(node, "q", {file.qo_tokens(), file.q_heads, dim.qk}, dtype.q, directory, file.q));
  ATTNLOOM_CHECK(
      read_tensor(node, "k", {keys, file.kv_heads, dim.qk}, dtype.kv, directory, file.k));
  ATTNLOOM_CHECK(
      read_tensor(node, "v", {keys, file.kv_heads, dim.vo}, dtype.kv, directory, file.v));
  return read_params(node, {}, file);
}

// All that a plan knows of the inputs: its scalars.
Status read_scalar_inputs(const JsonNode& root, const CaseOptions& options, CaseFile& file) {
  const std::vector<Param>& params = file.spec.variant.params;
  const bool wanted = std::any_of(params.begin(), params.end(),
                                  [](const Param& param) { return !is_pointer(param.type); });
  if (!wanted && !root.has("inputs")) return ok_status();
  ATTNLOOM_TRY(const JsonNode member, root.member("inputs"));
  const JsonNode inputs = member.with_code(Code::kTensorInvalid);
  ATTNLOOM_CHECK(inputs.check_keys(kInputKeys));
  return wanted || inputs.has("params") ? read_params(inputs, options, file) : ok_status();
}

Status read_bound(const JsonNode& expect, std::string_view name, double& bound) {
  if (!expect.has(name)) return ok_status();
  ATTNLOOM_TRY(const JsonNode node, expect.member(name));
  ATTNLOOM_TRY(bound, node.number(/*special=*/false));
  return bound >= 0 ? ok_status() : node.wanted("a number of at least 0");
}

Status read_expect(const JsonNode& node, const std::string& directory, CaseFile& file) {
  ATTNLOOM_CHECK(node.check_keys(kExpectKeys));
  CaseExpect expect;
  const std::int64_t o_shape[] = {file.qo_tokens(), file.q_heads, file.spec.head_dim.vo};
  if (node.has("o")) {
    ATTNLOOM_TRY(const JsonNode o, node.member("o"));
    ATTNLOOM_TRY(expect.o, expand_tensor(o, o_shape, directory));
  }
  if (node.has("lse")) {
    ATTNLOOM_TRY(const JsonNode lse, node.member("lse"));
    if (!file.spec.variant.softmax)
      return lse.refuse("a variant without softmax has no lse", "remove it");
    ATTNLOOM_TRY(expect.lse, expand_tensor(lse, std::span(o_shape).first(2), directory));
  }
  if (!node.has("o") && !node.has("lse"))
    return node.refuse("neither o nor lse", "give one, or leave expect out");
  ATTNLOOM_CHECK(read_bound(node, "atol", expect.atol));
  ATTNLOOM_CHECK(read_bound(node, "rtol", expect.rtol));
  file.expect = std::move(expect);
  return ok_status();
}

Status read_version(const JsonNode& root) {
  ATTNLOOM_TRY(const JsonNode version, root.member("case"));
  return version.integer(kCaseVersion, kCaseVersion).status();
}

}  // namespace

Workload CaseFile::workload() const {
  Workload view;
  view.q_heads = q_heads;
  view.kv_heads = kv_heads;
  view.qo_indptr = qo_indptr;
  view.kv_indptr = kv_indptr;
  view.last_page_len = last_page_len;
  view.page_indices = page_indices;
  view.pool_pages = pool_pages;
  for (const CaseLevel& level : levels) view.levels.push_back({level.qo_indptr, level.page_indptr});
  view.kv_start = kv_start;
  view.kv_capacity = kv_capacity;
  view.block_indptr = block_indptr;
  view.block_indices = block_indices;
  view.scale = scale;
  view.window_left = window_left;
  view.scalars = scalars;
  return view;
}

std::vector<std::byte> CaseFile::packed_masks() const {
  std::vector<std::byte> packed;
  for (const std::vector<std::uint8_t>& mask : custom_masks) {
    const std::size_t begin = packed.size();
    packed.resize(begin + (mask.size() + 7) / 8);
    for (std::size_t i = 0; i < mask.size(); ++i)
      packed[begin + i / 8] |= std::byte{mask[i]} << (i % 8);
  }
  return packed;
}

Result<CaseFile> parse_case(std::string_view json, const std::string& directory,
                            const CaseOptions& options) {
  ATTNLOOM_TRY(const JsonDocument document, parse_json(json, Code::kWorkloadInvalid));
  const JsonNode root(document, document.value, "$", Code::kWorkloadInvalid);
  ATTNLOOM_CHECK(root.check_keys(kCaseKeys));
  ATTNLOOM_CHECK(read_version(root));
  ATTNLOOM_CHECK(root.member("spec").status());
  ATTNLOOM_TRY(ParsedSpec parsed, parse_spec(document, "$.spec"));
  CaseFile file;
  file.spec = std::move(parsed.spec);
  file.field_lines = std::move(parsed.field_lines);
  file.composed = std::move(parsed.composed);
  file.own_functors = parsed.own_functors;
  ATTNLOOM_CHECK(check_spec_of_case(file.spec));
  ATTNLOOM_TRY(const JsonNode workload, root.member("workload"));
  ATTNLOOM_CHECK(read_workload(workload, options, file));
  if (!options.tensors) {
    ATTNLOOM_CHECK(read_scalar_inputs(root, options, file));
    return file;
  }
  ATTNLOOM_TRY(const JsonNode inputs, root.member("inputs"));
  ATTNLOOM_CHECK(read_inputs(inputs.with_code(Code::kTensorInvalid), directory, file));
  ATTNLOOM_CHECK(fill_cache(file));
  if (root.has("expect")) {
    ATTNLOOM_TRY(const JsonNode expect, root.member("expect"));
    ATTNLOOM_CHECK(read_expect(expect.with_code(Code::kTensorInvalid), directory, file));
  }
  return file;
}

}  // namespace attnloom
