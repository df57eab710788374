// SPDX-License-Identifier: Apache-2.0
#include "reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "reference/number_format.h"

namespace attnloom::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Totals {
  std::int64_t query_tokens = 0;
  std::int64_t keys = 0;
};

Status wrong(std::string field, std::int64_t wanted, std::size_t given) {
  return make_error(
      Code::kArgumentInvalid, std::move(field),
      "wanted " + std::to_string(wanted) + " elements, given " + std::to_string(given));
}

Status check_blocks(const Request& request, const std::string& field) {
  const Blocks& blocks = *request.blocks;
  if (blocks.rows < 1 || blocks.columns < 1) {
    return make_error(Code::kArgumentInvalid, field + ".blocks", "wanted blocks of at least 1 x 1");
  }
  const std::int64_t rows = (request.qo_len + blocks.rows - 1) / blocks.rows;
  if (std::ssize(blocks.indptr) != rows + 1) {
    return wrong(field + ".blocks.indptr", rows + 1, blocks.indptr.size());
  }
  if (blocks.indptr[0] != 0 || !std::is_sorted(blocks.indptr.begin(), blocks.indptr.end())) {
    return make_error(Code::kArgumentInvalid, field + ".blocks.indptr",
                      "wanted 0 first and entries that never decrease");
  }
  if (std::ssize(blocks.indices) != blocks.indptr.back()) {
    return wrong(field + ".blocks.indices", blocks.indptr.back(), blocks.indices.size());
  }
  return ok_status();
}

Result<Totals> check(const Problem& p) {
  if (p.q_heads < 1 || p.kv_heads < 1 || p.q_heads % p.kv_heads != 0) {
    return make_error(Code::kArgumentInvalid, "q_heads",
                      "wanted a multiple of " + std::to_string(p.kv_heads) + " KV heads, given " +
                          std::to_string(p.q_heads));
  }
  if (p.dim_qk < 1 || p.dim_vo < 1) {
    return make_error(Code::kArgumentInvalid, "dim_qk", "wanted head dimensions of at least 1");
  }
  Totals totals;
  for (std::size_t i = 0; i < p.requests.size(); ++i) {
    const Request& request = p.requests[i];
    const std::string field = "requests[" + std::to_string(i) + "]";
    if (request.qo_len < 0 || request.kv_len < 0) {
      return make_error(Code::kArgumentInvalid, field, "wanted lengths of at least 0");
    }
    const std::int64_t pairs = request.qo_len * request.kv_len;
    if (!request.custom_mask.empty() && std::ssize(request.custom_mask) != pairs) {
      return wrong(field + ".custom_mask", pairs, request.custom_mask.size());
    }
    if (request.blocks) ATTNLOOM_CHECK(check_blocks(request, field));
    totals.query_tokens += request.qo_len;
    totals.keys += request.kv_len;
  }
  const std::int64_t q = totals.query_tokens * p.q_heads * p.dim_qk;
  const std::int64_t k = totals.keys * p.kv_heads * p.dim_qk;
  const std::int64_t v = totals.keys * p.kv_heads * p.dim_vo;
  if (std::ssize(p.q) != q) return wrong("q", q, p.q.size());
  if (std::ssize(p.k) != k) return wrong("k", k, p.k.size());
  if (std::ssize(p.v) != v) return wrong("v", v, p.v.size());
  if (!p.sink.empty() && std::ssize(p.sink) != p.q_heads) {
    return wrong("sink", p.q_heads, p.sink.size());
  }
  if (!p.sink.empty() && !p.softmax) {
    return make_error(Code::kArgumentInvalid, "sink", "a sink needs softmax");
  }
  return totals;
}

bool lists(const Blocks& blocks, std::int64_t token, std::int64_t key) {
  const auto row = static_cast<std::size_t>(token / blocks.rows);
  for (std::int32_t i = blocks.indptr[row]; i < blocks.indptr[row + 1]; ++i) {
    if (blocks.indices[static_cast<std::size_t>(i)] == key / blocks.columns) return true;
  }
  return false;
}

bool keeps(const Problem& p, const Request& request, std::int64_t token, const LogitPlace& at) {
  if (request.blocks && !lists(*request.blocks, token, at.kv_pos)) return false;
  if (p.causal && at.kv_pos > at.q_pos) return false;
  if (p.window_left >= 0 && at.kv_pos < at.q_pos - p.window_left) return false;
  if (!request.custom_mask.empty() &&
      request.custom_mask[static_cast<std::size_t>(token * request.kv_len + at.kv_pos)] == 0) {
    return false;
  }
  return !p.hooks.logits_mask || p.hooks.logits_mask(at);
}

// One kept key of a row: its logit and where its value starts in v.
struct Kept {
  double logit;
  const double* value;
};

// Writes the row o = sum of weight * value.
void weigh(const std::vector<Kept>& kept, const std::vector<double>& weights, int dim_vo,
           double* o) {
  for (int d = 0; d < dim_vo; ++d) {
    double sum = 0;
    for (std::size_t j = 0; j < kept.size(); ++j) sum += weights[j] * kept[j].value[d];
    o[d] = sum;
  }
}

// o = softmax(logits) * values; returns the LSE.
double softmax_row(const std::vector<Kept>& kept, double sink, int dim_vo, double* o) {
  double largest = sink;
  for (const Kept& key : kept) {
    // std::max would drop a NaN, and a NaN must show.
    if (std::isnan(key.logit) || key.logit > largest) largest = key.logit;
  }
  if (largest == -kInfinity) {
    std::fill(o, o + dim_vo, 0.0);
    return -kInfinity;
  }
  double sum = std::exp(sink - largest);
  std::vector<double> weights;
  for (const Kept& key : kept) {
    weights.push_back(std::exp(key.logit - largest));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  weigh(kept, weights, dim_vo, o);
  return largest + std::log(sum);
}

void plain_row(const std::vector<Kept>& kept, int dim_vo, double* o) {
  std::vector<double> weights;
  for (const Kept& key : kept) weights.push_back(key.logit);
  weigh(kept, weights, dim_vo, o);
}

// Where a request starts in the concatenated tensors.
struct Start {
  std::int64_t query_token = 0;
  std::int64_t key = 0;
};

std::vector<Kept> kept_keys(const Problem& p, const Request& request, const Start& start,
                            std::int64_t token, LogitPlace at) {
  const double* q = p.q.data() + ((start.query_token + token) * p.q_heads + at.q_head) * p.dim_qk;
  std::vector<Kept> kept;
  for (at.kv_pos = 0; at.kv_pos < request.kv_len; ++at.kv_pos) {
    if (!keeps(p, request, token, at)) continue;
    const std::int64_t row = (start.key + at.kv_pos) * p.kv_heads + at.kv_head;
    const double* k = p.k.data() + row * p.dim_qk;
    double dot = 0;
    for (int d = 0; d < p.dim_qk; ++d) dot += q[d] * k[d];
    const double scaled = p.scale * dot;
    kept.push_back({p.hooks.logits_transform ? p.hooks.logits_transform(scaled, at) : scaled,
                    p.v.data() + row * p.dim_vo});
  }
  return kept;
}

void run_row(const Problem& p, int batch, const Start& start, std::int64_t token, int q_head,
             Output& output) {
  const Request& request = p.requests[static_cast<std::size_t>(batch)];
  const LogitPlace at{.batch = batch,
                      .q_pos = token + request.kv_len - request.qo_len,
                      .kv_pos = 0,
                      .q_head = q_head,
                      .kv_head = q_head / (p.q_heads / p.kv_heads),
                      .q_len = request.qo_len,
                      .kv_len = request.kv_len};
  const std::vector<Kept> kept = kept_keys(p, request, start, token, at);
  for (const Kept& key : kept) {
    output.largest_logit = std::max(output.largest_logit, std::abs(key.logit));
  }
  const std::int64_t row = (start.query_token + token) * p.q_heads + q_head;
  double* o = output.o.data() + row * p.dim_vo;
  double lse = 0;
  if (p.softmax) {
    const double sink = p.sink.empty() ? -kInfinity : p.sink[static_cast<std::size_t>(q_head)];
    lse = softmax_row(kept, sink, p.dim_vo, o);
    output.lse[static_cast<std::size_t>(row)] = lse;
  } else {
    plain_row(kept, p.dim_vo, o);
  }
  if (!p.hooks.output_transform) return;
  const OutputPlace place{at.batch, at.q_pos, at.q_head, at.kv_head, at.q_len, at.kv_len};
  for (int d = 0; d < p.dim_vo; ++d) o[d] = p.hooks.output_transform(o[d], lse, d, place);
}

// Rows of `dim`, the requests one behind the other: request r has tokens[r] of them a head, and its
// first stands at position first[r].
struct Rows {
  std::vector<double>& values;
  int heads;
  int dim;
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> first;
};

void transform_rows(const Problem& p, const RowTransform& transform, const Rows& rows) {
  if (!transform) return;
  auto row = rows.values.begin();
  for (std::size_t r = 0; r < p.requests.size(); ++r) {
    RowPlace at{.batch = static_cast<int>(r),
                .q_len = p.requests[r].qo_len,
                .kv_len = p.requests[r].kv_len};
    for (std::int64_t token = 0; token < rows.tokens[r]; ++token) {
      at.pos = rows.first[r] + token;
      for (at.head = 0; at.head < rows.heads; ++at.head, row += rows.dim) {
        const std::span<double> values(row, row + rows.dim);
        transform(values, at);
        for (double& x : values) x = round_to(x, p.dtype);
      }
    }
  }
}

bool has_row_functors(const Hooks& hooks) {
  return hooks.query_transform || hooks.key_transform || hooks.value_transform;
}

// The problem with q, k and v as the products see them.
Problem with_rows_transformed(Problem p) {
  std::vector<std::int64_t> queries, keys, first_query;
  for (const Request& request : p.requests) {
    queries.push_back(request.qo_len);
    keys.push_back(request.kv_len);
    first_query.push_back(request.kv_len - request.qo_len);
  }
  const std::vector<std::int64_t> first_key(keys.size(), 0);
  transform_rows(p, p.hooks.query_transform, {p.q, p.q_heads, p.dim_qk, queries, first_query});
  transform_rows(p, p.hooks.key_transform, {p.k, p.kv_heads, p.dim_qk, keys, first_key});
  transform_rows(p, p.hooks.value_transform, {p.v, p.kv_heads, p.dim_vo, keys, first_key});
  p.hooks.query_transform = p.hooks.key_transform = p.hooks.value_transform = nullptr;
  return p;
}

}  // namespace

Result<Output> attention(const Problem& problem) {
  ATTNLOOM_TRY(const Totals totals, check(problem));
  if (has_row_functors(problem.hooks)) return attention(with_rows_transformed(problem));
  Output output;
  const std::int64_t rows = totals.query_tokens * problem.q_heads;
  output.o.resize(static_cast<std::size_t>(rows * problem.dim_vo));
  if (problem.softmax) output.lse.resize(static_cast<std::size_t>(rows));
  Start start;
  for (int batch = 0; batch < std::ssize(problem.requests); ++batch) {
    const Request& request = problem.requests[static_cast<std::size_t>(batch)];
    for (std::int64_t token = 0; token < request.qo_len; ++token) {
      for (int head = 0; head < problem.q_heads; ++head) {
        run_row(problem, batch, start, token, head, output);
      }
    }
    start.query_token += request.qo_len;
    start.key += request.kv_len;
  }
  return output;
}

}  // namespace attnloom::reference
