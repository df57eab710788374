// SPDX-License-Identifier: Apache-2.0
#include "plan/workload.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "base/json.h"
#include "plan/levels.h"
#include "plan/workload_layout.h"

namespace attnloom {
namespace {

// std::to_string would show 1e-9 as 0.
std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

Status check_heads(const Spec& spec, const Workload& workload) {
  const std::int64_t wanted = std::int64_t{workload.kv_heads} * spec.group_size;
  if (workload.kv_heads > 0 && workload.q_heads == wanted) return ok_status();
  return invalid(
      "workload.heads",
      "wanted kv_heads of 1 or more and q_heads = kv_heads * group_size with group_size " +
          text(spec.group_size) + ", given q_heads " + text(workload.q_heads) + " and kv_heads " +
          text(workload.kv_heads),
      "give the heads of this device's share of the model");
}

Status check_totals(const Spec& spec, const Workload& workload) {
  for (int r = 0; r < workload.batch(); ++r) {
    const std::int64_t qo_len = std::int64_t{workload.qo_indptr[r + 1]} - workload.qo_indptr[r];
    const std::int64_t packed_rows = qo_len * spec.group_size;
    if (packed_rows > kMaxLength) {
      return invalid(element("qo_indptr", r + 1),
                     "request " + text(r) + ": wanted at most " + text(kMaxLength) +
                         " rows of qo_len * group_size, given " + text(packed_rows),
                     "split the request");
    }
    const std::int64_t tokens = kv_len(workload, spec.layout, r);
    if (tokens > kMaxLength) {
      return invalid(element("kv_indptr", r + 1),
                     "request " + text(r) + ": wanted at most " + text(kMaxLength) +
                         " KV tokens, given " + text(tokens),
                     "lengths are int32");
    }
  }
  return ok_status();
}

Status check_scalar(const Param& param, double value) {
  if (param.type == ParamType::kF32) {
    if (!std::isfinite(value) || std::abs(value) <= std::numeric_limits<float>::max())
      return ok_status();
    return invalid("workload.params." + param.name,
                   "wanted a value that f32 can hold, given " + std::to_string(value),
                   "scale it down");
  }
  const bool is_signed = param.type == ParamType::kI32;
  const double low = is_signed ? std::numeric_limits<std::int32_t>::min() : 0.0;
  const double high = is_signed ? std::numeric_limits<std::int32_t>::max()
                                : std::numeric_limits<std::uint32_t>::max();
  if (value >= low && value <= high && value == std::trunc(value)) return ok_status();
  return invalid("workload.params." + param.name,
                 "wanted a whole number in the range of " + std::string(json_name(param.type)) +
                     ", given " + std::to_string(value),
                 "declare the param as f32 for other values");
}

Status unknown_scalar(const Spec& spec, const std::string& name) {
  std::vector<std::string> known;
  for (const Param& param : spec.variant.params)
    if (!is_pointer(param.type)) known.push_back(param.name);
  const std::string near = nearest_name(name, known);
  return invalid("workload.params." + name, "the spec has no scalar param of this name",
                 near.empty() ? "leave it out" : "did you mean \"" + near + "\"?");
}

Status check_scalars(const Spec& spec, const Workload& workload) {
  const auto same_name = [](const std::string& name) {
    return [&name](const auto& other) { return other.name == name; };
  };
  for (const Param& param : spec.variant.params) {
    if (is_pointer(param.type)) continue;
    const auto given =
        std::find_if(workload.scalars.begin(), workload.scalars.end(), same_name(param.name));
    if (given == workload.scalars.end()) {
      return invalid("workload.params." + param.name,
                     "wanted a value for this param of the spec, given none",
                     "plan() takes every scalar param");
    }
    ATTNLOOM_CHECK(check_scalar(param, given->value));
  }
  for (const ScalarParam& scalar : workload.scalars) {
    const auto is_it = [&](const Param& param) {
      return !is_pointer(param.type) && param.name == scalar.name;
    };
    if (std::none_of(spec.variant.params.begin(), spec.variant.params.end(), is_it))
      return unknown_scalar(spec, scalar.name);
    if (std::count_if(workload.scalars.begin(), workload.scalars.end(), same_name(scalar.name)) >
        1) {
      return invalid("workload.params." + scalar.name, "wanted one value, given several",
                     "give it once");
    }
  }
  return ok_status();
}

Status check_settings(const Spec& spec, const Workload& workload) {
  // The kernels take a row's maximum before they scale: a negative factor would pick the wrong end,
  // and 0 times a masked -inf is NaN.
  if (workload.scale && !(std::isfinite(*workload.scale) && *workload.scale > 0)) {
    return invalid("workload.scale",
                   "wanted a finite number above 0 in f32, given " + number(*workload.scale),
                   "leave it out for 1/sqrt(head_dim.qk); negate in logits_transform");
  }
  const bool runtime = !spec.variant.mask.window_left.has_value();
  if (workload.window_left.has_value() != runtime) {
    return invalid(
        "workload.window_left",
        runtime ? "wanted a value, as the spec says \"runtime\"; given none"
                : "wanted none, as the spec fixes it; given " + text(*workload.window_left),
        runtime ? "give -1 for no window" : "write \"window_left\": \"runtime\" in variant.mask");
  }
  if (runtime && *workload.window_left < -1) {
    return invalid("workload.window_left",
                   "wanted -1 (off) or more, given " + text(*workload.window_left),
                   "it counts the tokens before the query's own");
  }
  return check_scalars(spec, workload);
}

}  // namespace

std::int64_t kv_len(const Workload& workload, const Layout& layout, int request) {
  const std::int64_t entries =
      std::int64_t{workload.kv_indptr[request + 1]} - workload.kv_indptr[request];
  if (layout.kv != KvLayout::kPaged) return entries;
  return entries == 0 ? 0 : (entries - 1) * layout.page_size + workload.last_page_len[request];
}

Status check_workload(const Spec& spec, const Workload& workload, Memory* memory) {
  if (workload.qo_indptr.empty()) {
    return invalid("workload.qo_indptr", "wanted batch + 1 entries, given 0",
                   "an empty batch is [0]");
  }
  ATTNLOOM_CHECK(check_heads(spec, workload));
  ATTNLOOM_CHECK(check_length("kv_indptr", workload.kv_indptr.size(),
                              std::int64_t{workload.batch()} + 1,
                              "the batch size is that of qo_indptr, less one"));
  ATTNLOOM_CHECK(check_indptr("qo_indptr", workload.qo_indptr));
  ATTNLOOM_CHECK(check_indptr("kv_indptr", workload.kv_indptr));
  ATTNLOOM_CHECK(check_kv_arrays(spec, workload, memory));
  ATTNLOOM_CHECK(check_totals(spec, workload));
  ATTNLOOM_CHECK(check_levels(spec, workload, memory));
  return check_settings(spec, workload);
}

}  // namespace attnloom
