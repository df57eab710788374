// SPDX-License-Identifier: Apache-2.0
// Attention from its definition, in float64: the only judge of every kernel (DESIGN §4, §10).
//
// Naive on purpose: one loop a symbol of the formula, no tiles, no running maximum, and no code
// shared with the kernels or the planner. Inputs are logical tensors (what the cache means, never
// how it lies in memory), so there are no unused slots whose content could matter. Pure functions;
// thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "spec/types.h"

namespace attnloom::reference {

// Where a logit stands. q_pos = i + kv_len - qo_len for token i of the request; negative when there
// are more queries than keys.
struct LogitPlace {
  int batch = 0;
  std::int64_t q_pos = 0;
  std::int64_t kv_pos = 0;
  int q_head = 0;
  int kv_head = 0;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
};

struct OutputPlace {
  int batch = 0;
  std::int64_t q_pos = 0;
  int q_head = 0;
  int kv_head = 0;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
};

// Whose row a row functor gets: a query's (pos as q_pos above, head of q_heads), or that of a key
// or value (pos counts the request's keys, head of kv_heads).
struct RowPlace {
  int batch = 0;
  std::int64_t pos = 0;
  int head = 0;
  std::int64_t q_len = 0;
  std::int64_t kv_len = 0;
};
using RowTransform = std::function<void(std::span<double> row, const RowPlace&)>;

// The functors of a variant; an empty function is absent.
struct Hooks {
  RowTransform query_transform;
  RowTransform key_transform;
  RowTransform value_transform;
  std::function<double(double logit, const LogitPlace&)> logits_transform;
  std::function<bool(const LogitPlace&)> logits_mask;  // true keeps
  std::function<double(double o, double lse, int dim, const OutputPlace&)> output_transform;
};

// Block-sparse rows: query token i sees key j only where row i / rows lists column j / columns.
struct Blocks {
  std::int64_t rows = 0;  // query tokens of a block
  std::int64_t columns = 0;
  std::vector<std::int32_t> indptr;   // of the request's own rows: [ceil(qo_len / rows) + 1]
  std::vector<std::int32_t> indices;  // from indptr[0] = 0 on
};

struct Request {
  std::int64_t qo_len = 0;                // query tokens
  std::int64_t kv_len = 0;                // keys
  std::vector<std::uint8_t> custom_mask;  // [qo_len][kv_len], 0 hides; empty: no custom mask
  std::optional<Blocks> blocks;           // nullopt: every key may be seen
};

struct Problem {
  int q_heads = 0;
  int kv_heads = 0;
  int dim_qk = 0;
  int dim_vo = 0;
  std::vector<Request> requests;
  // Concatenated over the requests: [tokens][heads][dim], without padding.
  std::vector<double> q;
  std::vector<double> k;
  std::vector<double> v;
  double scale = 1.0;
  bool causal = false;            // bottom-right: keeps kv_pos <= q_pos
  std::int64_t window_left = -1;  // keeps kv_pos >= q_pos - window_left; -1 is off
  bool softmax = true;            // false: the transformed logit itself is the weight
  std::vector<double> sink;       // [q_heads] a logit without a value, or empty
  DType dtype = DType::kBf16;     // of q, k and v; what a row functor leaves is rounded to it
  Hooks hooks;
};

struct Output {
  std::vector<double> o;     // [query tokens][q_heads][dim_vo]
  std::vector<double> lse;   // [query tokens][q_heads], natural logarithm; empty without softmax
  double largest_logit = 0;  // magnitude over all kept keys, after the transform
};

// Order: row functors, scale, transform, mask, softmax, then once a row sink and output_transform.
// A row without a key (or with logits of -inf only) has o = 0 and lse = -inf; a sink alone gives o
// = 0 and lse = sink. output_transform sees every row, also those; without softmax it gets lse = 0.
// Errors: ARGUMENT_INVALID naming the field.
Result<Output> attention(const Problem& problem);

}  // namespace attnloom::reference
