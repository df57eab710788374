// SPDX-License-Identifier: Apache-2.0
#include "reference/twins.h"

#include <cmath>
#include <utility>

namespace attnloom::reference {
namespace {

Status missing(const std::string& name, const std::string& wanted) {
  return make_error(Code::kWorkloadInvalid, "params." + name,
                    "wanted " + wanted + ", given nothing", "give the param");
}

Result<double> scalar(const ParamValues& params, const std::string& name) {
  const auto found = params.scalars.find(name);
  if (found == params.scalars.end()) return missing(name, "a number");
  return found->second;
}

Result<Twin> plain(const ParamValues&, int) {
  return Twin{};
}

// cap * tanh(s / cap)
Result<Twin> soft_cap(const ParamValues& params, int) {
  ATTNLOOM_TRY(const double cap, scalar(params, "cap"));
  Twin twin;
  twin.approximate = true;
  twin.hooks.logits_transform = [cap](double logit, const LogitPlace&) {
    return cap * std::tanh(logit / cap);
  };
  return twin;
}

// s - slope * (q_pos - kv_pos): a key further back weighs less
Result<Twin> alibi(const ParamValues& params, int q_heads) {
  const auto found = params.arrays.find("slopes");
  if (found == params.arrays.end()) return missing("slopes", "one number a query head");
  if (std::ssize(found->second) != q_heads) {
    return make_error(Code::kWorkloadInvalid, "params.slopes",
                      "wanted " + std::to_string(q_heads) + " numbers, one a query head, given " +
                          std::to_string(found->second.size()));
  }
  Twin twin;
  twin.hooks.logits_transform = [slopes = found->second](double logit, const LogitPlace& at) {
    const auto distance = static_cast<double>(at.q_pos - at.kv_pos);
    return logit - slopes[static_cast<std::size_t>(at.q_head)] * distance;
  };
  return twin;
}

// 1 / (1 + exp(-(s + bias))), summed as it is
Result<Twin> sigmoid(const ParamValues& params, int) {
  ATTNLOOM_TRY(const double bias, scalar(params, "bias"));
  Twin twin;
  twin.softmax = false;
  twin.hooks.logits_transform = [bias](double logit, const LogitPlace&) {
    return 1.0 / (1.0 + std::exp(-(logit + bias)));
  };
  return twin;
}

struct Row {
  std::string_view name;
  Result<Twin> (*make)(const ParamValues&, int q_heads);
};
constexpr Row kTwins[] = {
    {"plain", plain},
    {"soft_cap", soft_cap},
    {"alibi", alibi},
    {"sigmoid", sigmoid},
};

}  // namespace

std::vector<std::string_view> twin_names() {
  std::vector<std::string_view> names;
  for (const Row& row : kTwins) names.push_back(row.name);
  return names;
}

bool has_twin(std::string_view variant) {
  for (const Row& row : kTwins) {
    if (row.name == variant) return true;
  }
  return false;
}

Result<Twin> make_twin(std::string_view variant, const ParamValues& params, int q_heads) {
  std::string names;
  for (const Row& row : kTwins) {
    if (row.name == variant) return row.make(params, q_heads);
    names += names.empty() ? "" : ", ";
    names += row.name;
  }
  return make_error(Code::kSpecUnsupported, "$.variant.name",
                    "no float64 twin of \"" + std::string(variant) + "\"; there are " + names);
}

}  // namespace attnloom::reference
