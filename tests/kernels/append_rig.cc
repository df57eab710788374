// SPDX-License-Identifier: Apache-2.0
#include "kernels/append_rig.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "engine/row_launch.h"
#include "kernels/device_tensors.h"
#include "kernels/fp8_format.h"
#include "reference/generators.h"
#include "reference/number_format.h"
#include "spec/parse.h"

namespace attnloom::testing {
namespace {

std::string spec_of(const AppendCase& given) {
  Spec spec;
  spec.kernel = given.rope ? KernelKind::kAppendRope : KernelKind::kAppend;
  spec.dtype.q = given.q;
  spec.dtype.kv = given.kv;
  spec.head_dim = {static_cast<int>(given.pool.qk), static_cast<int>(given.pool.vo)};
  spec.layout = {KvLayout::kPaged, static_cast<int>(given.pool.page_size)};
  spec.variant.kv_scale = given.kv_scale;
  spec.variant.rope = given.rope;
  return spec_to_json(spec).dump();
}

TensorType type_of(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return TensorType::kF16;
    case DType::kBf16:
      return TensorType::kBf16;
    case DType::kE4m3:
      return TensorType::kE4m3;
    case DType::kE5m2:
      return TensorType::kE5m2;
  }
  return TensorType::kNone;
}

TensorView indices(DeviceTensors& device, const std::vector<std::int32_t>& values,
                   const char* label) {
  return view_of(device.put(values, label), TensorType::kI32,
                 {static_cast<std::int64_t>(values.size())}, {1});
}

TensorView rows_view(DeviceAddress base, TensorType type, std::int64_t begin, std::int64_t tokens,
                     std::int64_t token_stride, std::int64_t heads, std::int64_t dim) {
  return view_of(base + static_cast<DeviceAddress>(2 * begin), type, {tokens, heads, dim},
                 {token_stride, dim, 1});
}

}  // namespace

NewRows new_rows(const AppendCase& given) {
  const auto tokens = static_cast<std::int64_t>(given.positions.size());
  const PoolShape& pool = given.pool;
  const std::int64_t q = given.q_heads * pool.qk, k = pool.heads * pool.qk,
                     v = pool.heads * pool.vo;
  NewRows rows;
  if (given.packed) {
    rows.k_begin = q;
    rows.v_begin = q + k;
    rows.q_token = rows.k_token = rows.v_token = q + k + v;
  } else {
    rows.k_begin = tokens * q;
    rows.v_begin = rows.k_begin + tokens * k;
    rows.q_token = q;
    rows.k_token = k;
    rows.v_token = v;
  }
  for (std::int64_t i = 0; i < tokens * (q + k + v); ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    const double value = given.values.empty()
                             ? reference::random_value(reference::Generator::kNormal, 5, at)
                             : given.values[at % given.values.size()];
    rows.bits.push_back(reference::to_bits(value, given.q));
  }
  return rows;
}

std::vector<float> scales_of(const AppendCase& given, bool value) {
  std::vector<float> scales;
  const std::int64_t count = given.kv_scale == KvScale::kHead ? given.pool.heads : 1;
  for (std::int64_t i = 0; i < count; ++i)
    scales.push_back((value ? 0.3f : 0.7f) + 0.1f * static_cast<float>(i));
  return scales;
}

AppendOutcome run(Engine& engine, const AppendCase& given) {
  const auto kernels = engine.open(spec_of(given));
  INFO(kernels.status().to_string());
  REQUIRE(kernels.ok());
  DeviceTensors device(**engine.backend());
  CachePool pool = make_pool(given.pool, given.order, bytes_of(given.kv));
  const NewRows rows = new_rows(given);
  const auto tokens = static_cast<std::int64_t>(given.positions.size());
  const DeviceAddress pool_at = device.put(pool.bytes, "pool");
  const DeviceAddress rows_at = device.put(rows.bits, "rows");
  AppendTensors tensors;
  const TensorType type = type_of(given.q);
  tensors.key =
      rows_view(rows_at, type, rows.k_begin, tokens, rows.k_token, given.pool.heads, given.pool.qk);
  tensors.value =
      rows_view(rows_at, type, rows.v_begin, tokens, rows.v_token, given.pool.heads, given.pool.vo);
  if (given.q_heads > 0)
    tensors.q = tensors.q_out =
        rows_view(rows_at, type, rows.q_begin, tokens, rows.q_token, given.q_heads, given.pool.qk);
  tensors.batch_indices = indices(device, given.batch_indices, "batch_indices");
  tensors.positions = indices(device, given.positions, "positions");
  tensors.page_indptr = indices(device, given.page_indptr, "page_indptr");
  tensors.page_indices = indices(device, given.page_indices, "page_indices");
  tensors.k_cache = pool.view(false, type_of(given.kv), pool_at);
  tensors.v_cache = pool.view(true, type_of(given.kv), pool_at);
  if (given.kv_scale != KvScale::kNone) {
    for (const bool value : {false, true}) {
      const std::vector<float> scales = scales_of(given, value);
      (value ? tensors.v_scale : tensors.k_scale) =
          view_of(device.put(scales, "scale"), TensorType::kF32,
                  {static_cast<std::int64_t>(scales.size())}, {1});
    }
  }
  tensors.rope_scale = given.rope_scale;
  tensors.rope_theta = given.rope_theta;
  if (given.mirrors)
    tensors.host = {given.batch_indices, given.positions, given.page_indptr, given.page_indices};
  AppendOutcome outcome;
  outcome.status = run_append(**kernels, tensors, nullptr);
  REQUIRE((*engine.backend())->synchronize(nullptr).ok());
  outcome.finding = device.finding();
  outcome.pool = device.get<unsigned char>(pool_at, pool.bytes.size());
  outcome.rows = device.get<std::uint16_t>(rows_at, rows.bits.size());
  return outcome;
}

TokenPlace place_of(const AppendCase& given, std::size_t token) {
  const std::int64_t request = given.batch_indices[token], position = given.positions[token];
  const auto batch = static_cast<std::int64_t>(given.page_indptr.size()) - 1;
  if (request < 0 || request >= batch || position < 0) return {};
  const auto row = static_cast<std::size_t>(request);
  const std::int64_t entry = given.page_indptr[row] + position / given.pool.page_size;
  if (entry >= given.page_indptr[row + 1] ||
      entry >= static_cast<std::int64_t>(given.page_indices.size()))
    return {};
  const std::int64_t page = given.page_indices[static_cast<std::size_t>(entry)];
  if (page < 0 || page >= given.pool.pages) return {};
  return {page, position % given.pool.page_size};
}

std::vector<unsigned char> wanted_pool(const AppendCase& given) {
  CachePool pool = make_pool(given.pool, given.order, bytes_of(given.kv));
  const NewRows rows = new_rows(given);
  for (std::size_t token = 0; token < given.positions.size(); ++token) {
    const TokenPlace place = place_of(given, token);
    if (place.page < 0) continue;
    for (const bool value : {false, true}) {
      const std::vector<float> scales = scales_of(given, value);
      for (std::int64_t head = 0; head < given.pool.heads; ++head) {
        unsigned char* to = pool.at(value, place.page, place.slot, head);
        const float scale = given.kv_scale == KvScale::kNone ? 1.0f
                            : given.kv_scale == KvScale::kHead
                                ? scales[static_cast<std::size_t>(head)]
                                : scales[0];
        for (std::int64_t i = 0; i < (value ? given.pool.vo : given.pool.qk); ++i) {
          const auto t = static_cast<std::int64_t>(token);
          const std::uint16_t bits =
              value ? rows.value(given, t, head, i) : rows.key(given, t, head, i);
          if (bytes_of(given.kv) == 2) {
            std::memcpy(to + 2 * i, &bits, 2);
          } else {
            const float quotient = static_cast<float>(reference::from_bits(bits, given.q)) / scale;
            to[i] = static_cast<unsigned char>(fp8_nearest(quotient, fp8_format(given.kv)));
          }
        }
      }
    }
  }
  return pool.bytes;
}

}  // namespace attnloom::testing
