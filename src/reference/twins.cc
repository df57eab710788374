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

using Values = std::vector<double>;

Result<Values> array(const ParamValues& params, const std::string& name) {
  const auto found = params.arrays.find(name);
  if (found == params.arrays.end()) return missing(name, "an array");
  return found->second;
}

// `each` says what there is one of: "query head".
Result<Values> array_of(const ParamValues& params, const std::string& name, int count,
                        const std::string& each) {
  const auto found = params.arrays.find(name);
  if (found == params.arrays.end()) return missing(name, "one number a " + each);
  if (std::ssize(found->second) != count) {
    return make_error(Code::kWorkloadInvalid, "params." + name,
                      "wanted " + std::to_string(count) + " numbers, one a " + each + ", given " +
                          std::to_string(found->second.size()));
  }
  return found->second;
}

// 0 past the end: the functor that reads there is the simulator's finding, not the judge's.
double element(const Values& values, std::int64_t i) {
  return i >= 0 && i < std::ssize(values) ? values[static_cast<std::size_t>(i)] : 0.0;
}

// Token i of the request, from its position.
std::int64_t query_token(const LogitPlace& at) {
  return at.q_pos - (at.kv_len - at.q_len);
}

Result<Twin> plain(const ParamValues&, const TwinShape&) {
  return Twin{};
}

// cap * tanh(s / cap)
Result<Twin> soft_cap(const ParamValues& params, const TwinShape&) {
  ATTNLOOM_TRY(const double cap, scalar(params, "cap"));
  Twin twin;
  twin.approximate = true;
  twin.hooks.logits_transform = [cap](double logit, const LogitPlace&) {
    return cap * std::tanh(logit / cap);
  };
  return twin;
}

// s - slope * (q_pos - kv_pos): a key further back weighs less
Result<Twin> alibi(const ParamValues& params, const TwinShape& shape) {
  ATTNLOOM_TRY(const Values slopes, array_of(params, "slopes", shape.q_heads, "query head"));
  Twin twin;
  twin.hooks.logits_transform = [slopes](double logit, const LogitPlace& at) {
    return logit - element(slopes, at.q_head) * static_cast<double>(at.q_pos - at.kv_pos);
  };
  return twin;
}

// 1 / (1 + exp(-(s + bias))), summed as it is
Result<Twin> sigmoid(const ParamValues& params, const TwinShape&) {
  ATTNLOOM_TRY(const double bias, scalar(params, "bias"));
  Twin twin;
  twin.softmax = false;
  twin.hooks.logits_transform = [bias](double logit, const LogitPlace&) {
    return 1.0 / (1.0 + std::exp(-(logit + bias)));
  };
  return twin;
}

// A request's mask is [qo_len][kv_len] bits from byte mask_begin[request], the lowest bit first.
Result<Twin> bit_mask(const ParamValues& params, const TwinShape&) {
  ATTNLOOM_TRY(const Values bits, array(params, "mask_bits"));
  ATTNLOOM_TRY(const Values begin, array(params, "mask_begin"));
  Twin twin;
  twin.hooks.logits_mask = [bits, begin](const LogitPlace& at) {
    const std::int64_t bit = query_token(at) * at.kv_len + at.kv_pos;
    const auto first = static_cast<std::int64_t>(element(begin, at.batch));
    const auto byte = static_cast<int>(element(bits, first + bit / 8));
    return (byte / (1 << bit % 8)) % 2 == 1;
  };
  return twin;
}

// The request's last q_len tokens are nodes of a tree: each sees what came before the tree and the
// nodes in its set of ancestors (itself among them), a bit a node.
Result<Twin> tree_mask(const ParamValues& params, const TwinShape&) {
  ATTNLOOM_TRY(const Values ancestors, array(params, "ancestors"));
  ATTNLOOM_TRY(const Values begin, array(params, "tree_begin"));
  Twin twin;
  twin.hooks.logits_mask = [ancestors, begin](const LogitPlace& at) {
    const std::int64_t root = at.kv_len - at.q_len;
    if (at.kv_pos < root) return true;
    const auto first = static_cast<std::int64_t>(element(begin, at.batch));
    const double set = element(ancestors, first + query_token(at));
    return (static_cast<std::int64_t>(set) & (std::int64_t{1} << (at.kv_pos - root))) != 0;
  };
  return twin;
}

void turn(double& x, double& y, double angle) {
  const double c = std::cos(angle), s = std::sin(angle);
  const double before = x;
  x = x * c - y * s;
  y = before * s + y * c;
}

// RoPE: pair i of the first 2 * size(inv_freq) elements turns by pos * inv_freq[i].
RowTransform rope(Values inv_freq, bool interleaved) {
  return [inv_freq = std::move(inv_freq), interleaved](std::span<double> row, const RowPlace& at) {
    for (std::size_t i = 0; i < inv_freq.size(); ++i) {
      const std::size_t first = interleaved ? 2 * i : i;
      const std::size_t second = interleaved ? 2 * i + 1 : i + inv_freq.size();
      turn(row[first], row[second], static_cast<double>(at.pos) * inv_freq[i]);
    }
  };
}

Result<Twin> rope_twin(const ParamValues& params, const TwinShape& shape, bool interleaved) {
  ATTNLOOM_TRY(const Values inv_freq, array_of(params, "inv_freq", shape.dim_qk / 2, "pair"));
  Twin twin;
  twin.hooks.query_transform = rope(inv_freq, interleaved);
  twin.hooks.key_transform = rope(inv_freq, interleaved);
  return twin;
}

Result<Twin> rope_neox(const ParamValues& params, const TwinShape& shape) {
  return rope_twin(params, shape, false);
}
Result<Twin> rope_interleaved(const ParamValues& params, const TwinShape& shape) {
  return rope_twin(params, shape, true);
}

// The first `sinks` keys and the last `window`, positions counted in the cache.
Result<Twin> streaming_llm_rope(const ParamValues& params, const TwinShape& shape) {
  ATTNLOOM_TRY(Twin twin, rope_twin(params, shape, false));
  ATTNLOOM_TRY(const double sinks, scalar(params, "sinks"));
  ATTNLOOM_TRY(const double window, scalar(params, "window"));
  twin.hooks.logits_mask = [sinks, window](const LogitPlace& at) {
    return static_cast<double>(at.kv_pos) < sinks ||
           static_cast<double>(at.q_pos - at.kv_pos) < window;
  };
  return twin;
}

// x / sqrt(mean(x^2) + eps) * weight
RowTransform rms_norm(Values weight, double eps) {
  return [weight = std::move(weight), eps](std::span<double> row, const RowPlace&) {
    double squares = 0;
    for (const double x : row) squares += x * x;
    const double norm = std::sqrt(squares / static_cast<double>(row.size()) + eps);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = row[i] / norm * weight[i];
  };
}

Result<Twin> qk_norm(const ParamValues& params, const TwinShape& shape) {
  ATTNLOOM_TRY(const double eps, scalar(params, "eps"));
  ATTNLOOM_TRY(const Values q, array_of(params, "q_weight", shape.dim_qk, "element"));
  ATTNLOOM_TRY(const Values k, array_of(params, "k_weight", shape.dim_qk, "element"));
  Twin twin;
  twin.hooks.query_transform = rms_norm(q, eps);
  twin.hooks.key_transform = rms_norm(k, eps);
  return twin;
}

// o * sigmoid(gate of the head)
Result<Twin> output_gate(const ParamValues& params, const TwinShape& shape) {
  ATTNLOOM_TRY(const Values gate, array_of(params, "gate", shape.q_heads, "query head"));
  Twin twin;
  twin.hooks.output_transform = [gate](double o, double, int, const OutputPlace& at) {
    return o / (1.0 + std::exp(-element(gate, at.q_head)));
  };
  return twin;
}

struct Row {
  std::string_view name;
  Result<Twin> (*make)(const ParamValues&, const TwinShape&);
};
constexpr Row kTwins[] = {
    {"plain", plain},
    {"soft_cap", soft_cap},
    {"alibi", alibi},
    {"sigmoid", sigmoid},
    {"bit_mask", bit_mask},
    {"tree_mask", tree_mask},
    {"rope_neox", rope_neox},
    {"rope_interleaved", rope_interleaved},
    {"streaming_llm_rope", streaming_llm_rope},
    {"qk_norm", qk_norm},
    {"output_gate", output_gate},
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

Result<Twin> make_twin(std::string_view variant, const ParamValues& params,
                       const TwinShape& shape) {
  std::string names;
  for (const Row& row : kTwins) {
    if (row.name == variant) return row.make(params, shape);
    names += names.empty() ? "" : ", ";
    names += row.name;
  }
  return make_error(Code::kSpecUnsupported, "$.variant.name",
                    "no float64 twin of \"" + std::string(variant) + "\"; there are " + names);
}

namespace {

// What both say where there are both, else the one that there is.
template <class Hook, class Both>
Hook joined(const Hook& first, const Hook& second, Both both) {
  if (!first) return second;
  if (!second) return first;
  return both(first, second);
}

RowTransform in_turn(const RowTransform& first, const RowTransform& second) {
  return joined(first, second, [](const RowTransform& before, const RowTransform& after) {
    return [before, after](std::span<double> row, const RowPlace& at) {
      before(row, at);
      after(row, at);
    };
  });
}

void add_hooks(Hooks& hooks, const Hooks& next) {
  hooks.logits_transform =
      joined(hooks.logits_transform, next.logits_transform, [](auto before, auto after) {
        return [before, after](double x, const LogitPlace& at) { return after(before(x, at), at); };
      });
  hooks.logits_mask = joined(hooks.logits_mask, next.logits_mask, [](auto before, auto after) {
    return [before, after](const LogitPlace& at) { return before(at) && after(at); };
  });
  hooks.output_transform =
      joined(hooks.output_transform, next.output_transform, [](auto before, auto after) {
        return [before, after](double o, double lse, int dim, const OutputPlace& at) {
          return after(before(o, lse, dim, at), lse, dim, at);
        };
      });
  hooks.query_transform = in_turn(hooks.query_transform, next.query_transform);
  hooks.key_transform = in_turn(hooks.key_transform, next.key_transform);
  hooks.value_transform = in_turn(hooks.value_transform, next.value_transform);
}

}  // namespace

Result<Twin> compose_twins(const std::vector<std::string>& variants, const ParamValues& params,
                           const TwinShape& shape) {
  Twin all;
  for (const std::string& name : variants) {
    if (!has_twin(name)) continue;
    ATTNLOOM_TRY(const Twin twin, make_twin(name, params, shape));
    all.softmax = all.softmax && twin.softmax;
    all.approximate = all.approximate || twin.approximate;
    add_hooks(all.hooks, twin.hooks);
  }
  return all;
}

}  // namespace attnloom::reference
