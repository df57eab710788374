// SPDX-License-Identifier: Apache-2.0
#include "tools/case/workload_section.h"

#include <cmath>
#include <limits>
#include <utility>

#include "tools/case/pages.h"
#include "tools/case/tensor_source.h"

namespace attnloom {
namespace {

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

constexpr std::string_view kKeys[] = {"heads",    "qo_len",  "kv_len", "scale",  "window_left",
                                      "kv_order", "pages",   "mask",   "padded", "bsr",
                                      "levels",   "k_scale", "v_scale"};
constexpr std::string_view kHeadKeys[] = {"q", "kv"};
constexpr std::string_view kMaskKeys[] = {"custom"};

Status read_heads(const JsonNode& workload, CaseFile& file) {
  ATTNLOOM_TRY(const JsonNode heads, workload.member("heads"));
  ATTNLOOM_CHECK(heads.check_keys(kHeadKeys));
  ATTNLOOM_TRY(const JsonNode q, heads.member("q"));
  ATTNLOOM_TRY(const JsonNode kv, heads.member("kv"));
  ATTNLOOM_TRY(const std::int64_t q_heads, q.integer(1, kMaxInt32));
  ATTNLOOM_TRY(const std::int64_t kv_heads, kv.integer(1, kMaxInt32));
  if (q_heads != kv_heads * file.spec.group_size) {
    return heads.refuse("wanted q = kv * group_size with group_size " +
                        std::to_string(file.spec.group_size) + ", given q " +
                        std::to_string(q_heads) + " and kv " + std::to_string(kv_heads));
  }
  file.q_heads = static_cast<int>(q_heads);
  file.kv_heads = static_cast<int>(kv_heads);
  return ok_status();
}

Result<std::vector<std::int32_t>> running_sum(const JsonNode& node,
                                              const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> sums = {0};
  std::int64_t sum = 0;
  for (const std::int32_t length : lengths) {
    sum += length;
    if (sum > kMaxInt32) return node.refuse("the lengths add up to more than an int32 holds");
    sums.push_back(static_cast<std::int32_t>(sum));
  }
  return sums;
}

Status read_lengths(const JsonNode& workload, CaseFile& file) {
  ATTNLOOM_TRY(const JsonNode qo_len, workload.member("qo_len"));
  ATTNLOOM_TRY(const JsonNode kv_len, workload.member("kv_len"));
  ATTNLOOM_TRY(file.qo_len, qo_len.int32s());
  ATTNLOOM_TRY(file.kv_len, kv_len.int32s());
  if (file.qo_len.size() != file.kv_len.size()) {
    return kv_len.refuse("wanted " + std::to_string(file.qo_len.size()) +
                         " lengths, as many as qo_len has, given " +
                         std::to_string(file.kv_len.size()));
  }
  ATTNLOOM_TRY(file.qo_indptr, running_sum(qo_len, file.qo_len));
  ATTNLOOM_TRY(file.kv_indptr, running_sum(kv_len, file.kv_len));
  return ok_status();
}

Status read_scalars(const JsonNode& workload, CaseFile& file) {
  if (workload.has("scale")) {
    ATTNLOOM_TRY(const JsonNode scale, workload.member("scale"));
    ATTNLOOM_TRY(const double value, scale.number(/*special=*/false));
    const bool fits = std::abs(value) <= std::numeric_limits<float>::max();
    // Also what rounds to 0: the softmax takes its maximum before it scales.
    if (!fits || !(static_cast<float>(value) > 0)) return scale.wanted("an f32 > 0");
    file.scale = static_cast<float>(value);
  }
  const bool wants_window = !file.spec.variant.mask.window_left.has_value();
  if (!wants_window && workload.has("window_left")) {
    ATTNLOOM_TRY(const JsonNode window, workload.member("window_left"));
    return window.refuse("the spec's mask.window_left is not \"runtime\"", "remove it");
  }
  if (wants_window) {
    ATTNLOOM_TRY(const JsonNode window, workload.member("window_left"));
    ATTNLOOM_TRY(const std::int64_t value, window.integer(-1, kMaxInt32));
    file.window_left = static_cast<int>(value);
  }
  if (workload.has("kv_order")) {
    ATTNLOOM_TRY(const JsonNode order, workload.member("kv_order"));
    if (order.value() != "NHD" && order.value() != "HND") return order.wanted("\"NHD\" or \"HND\"");
    file.heads_first = order.value() == "HND";
  }
  return ok_status();
}

Status read_scale(const JsonNode& workload, const CaseOptions& options, const CaseFile& file,
                  std::string_view key, std::vector<float>& scales) {
  const KvScale kind = file.spec.variant.kv_scale;
  if (kind == KvScale::kNone) {
    if (!workload.has(key)) return ok_status();
    ATTNLOOM_TRY(const JsonNode unused, workload.member(key));
    return unused.refuse("the spec's variant.kv_scale is \"none\"", "remove it");
  }
  if (!options.tensors) return ok_status();
  ATTNLOOM_TRY(const JsonNode node, workload.member(key));
  const std::int64_t extents[] = {kind == KvScale::kHead ? file.kv_heads : 1};
  if (kind == KvScale::kTensor && !node.value().is_number())
    return node.wanted("a number, as kv_scale is \"tensor\"");
  if (node.value().is_object()) return node.wanted("a number or a list of them");
  ATTNLOOM_TRY(const std::vector<double> values, expand_tensor(node, extents, ""));
  for (const double value : values) {
    scales.push_back(static_cast<float>(value));
    if (!std::isfinite(scales.back()) || !(scales.back() > 0)) return node.wanted("f32 > 0");
  }
  return ok_status();
}

Status read_mask_row(const JsonNode& row, std::int64_t kv_len, std::vector<std::uint8_t>& mask) {
  ATTNLOOM_TRY(const std::vector<JsonNode> cells, row.elements());
  if (std::ssize(cells) != kv_len) {
    return row.refuse("wanted kv_len " + std::to_string(kv_len) + " entries, given " +
                      std::to_string(cells.size()));
  }
  for (const JsonNode& cell : cells) {
    ATTNLOOM_TRY(const std::int64_t keep, cell.integer(0, 1));
    mask.push_back(static_cast<std::uint8_t>(keep));
  }
  return ok_status();
}

Status read_mask(const JsonNode& workload, CaseFile& file) {
  if (!file.spec.variant.mask.custom) {
    if (!workload.has("mask")) return ok_status();
    ATTNLOOM_TRY(const JsonNode mask, workload.member("mask"));
    return mask.refuse("the spec's mask.custom is not true", "remove it");
  }
  ATTNLOOM_TRY(const JsonNode mask, workload.member("mask"));
  ATTNLOOM_CHECK(mask.check_keys(kMaskKeys));
  ATTNLOOM_TRY(const JsonNode custom, mask.member("custom"));
  ATTNLOOM_TRY(const std::vector<JsonNode> requests, custom.elements());
  if (requests.size() != file.qo_len.size()) {
    return custom.refuse("wanted " + std::to_string(file.qo_len.size()) +
                         " masks, one a request, given " + std::to_string(requests.size()));
  }
  file.custom_masks.resize(requests.size());
  for (std::size_t r = 0; r < requests.size(); ++r) {
    ATTNLOOM_TRY(const std::vector<JsonNode> rows, requests[r].elements());
    if (std::ssize(rows) != file.qo_len[r]) {
      return requests[r].refuse("wanted qo_len " + std::to_string(file.qo_len[r]) +
                                " rows, given " + std::to_string(rows.size()));
    }
    for (const JsonNode& row : rows) {
      ATTNLOOM_CHECK(read_mask_row(row, file.kv_len[r], file.custom_masks[r]));
    }
  }
  return ok_status();
}

}  // namespace

Status read_workload(const JsonNode& node, const CaseOptions& options, CaseFile& file) {
  ATTNLOOM_CHECK(node.check_keys(kKeys));
  ATTNLOOM_CHECK(read_heads(node, file));
  ATTNLOOM_CHECK(read_lengths(node, file));
  ATTNLOOM_CHECK(read_scalars(node, file));
  ATTNLOOM_CHECK(read_scale(node, options, file, "k_scale", file.k_scale));
  ATTNLOOM_CHECK(read_scale(node, options, file, "v_scale", file.v_scale));
  ATTNLOOM_CHECK(read_mask(node, file));
  return read_layout(node, options, file);
}

}  // namespace attnloom
