// SPDX-License-Identifier: Apache-2.0
// One call of append or append_rope on a device, and what the host says its result must be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "kernels/cache_pool.h"
#include "runtime/cache_launch.h"
#include "spec/spec.h"

namespace attnloom::testing {

struct AppendCase {
  DType q = DType::kBf16;
  DType kv = DType::kBf16;
  PoolShape pool = {.pages = 7, .page_size = 3, .heads = 2, .qk = 64, .vo = 64};
  PoolOrder order = PoolOrder::kNhd;
  KvScale kv_scale = KvScale::kNone;
  std::optional<Rope> rope;
  float rope_scale = 0;
  float rope_theta = 0;
  int q_heads = 0;  // > 0: queries are rotated in place
  // New rows are slices of one packed [tokens][q_heads + 2 heads][dim]; needs qk == vo.
  bool packed = false;
  std::vector<std::int32_t> page_indptr, page_indices;
  std::vector<std::int32_t> batch_indices, positions;
  bool mirrors = false;
  std::vector<float> values;  // cycled through; empty: random ones
};

struct AppendOutcome {
  Status status;
  std::string finding;
  std::vector<unsigned char> pool;  // after the call
  std::vector<std::uint16_t> rows;  // queries, keys and values of the tokens after the call
};

// The new rows of a case: 16-bit patterns of queries, keys and values, token by token.
struct NewRows {
  std::vector<std::uint16_t> bits;
  std::int64_t q_begin = 0, k_begin = 0, v_begin = 0;  // elements
  std::int64_t q_token = 0, k_token = 0, v_token = 0;  // token strides; heads are dense

  std::uint16_t key(const AppendCase& given, std::int64_t token, std::int64_t head,
                    std::int64_t i) const {
    return bits[static_cast<std::size_t>(k_begin + token * k_token + head * given.pool.qk + i)];
  }
  std::uint16_t value(const AppendCase& given, std::int64_t token, std::int64_t head,
                      std::int64_t i) const {
    return bits[static_cast<std::size_t>(v_begin + token * v_token + head * given.pool.vo + i)];
  }
  std::uint16_t query(const AppendCase& given, std::int64_t token, std::int64_t head,
                      std::int64_t i) const {
    return bits[static_cast<std::size_t>(q_begin + token * q_token + head * given.pool.qk + i)];
  }
};
NewRows new_rows(const AppendCase& given);

std::vector<float> scales_of(const AppendCase& given, bool value);

AppendOutcome run(Engine& engine, const AppendCase& given);

// Where a token goes, or page -1 where it goes nowhere.
struct TokenPlace {
  std::int64_t page = -1;
  std::int64_t slot = 0;
};
TokenPlace place_of(const AppendCase& given, std::size_t token);

// The pool after the call, without rotation, bit for bit.
std::vector<unsigned char> wanted_pool(const AppendCase& given);

}  // namespace attnloom::testing
