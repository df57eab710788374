// SPDX-License-Identifier: Apache-2.0
// A paged cache in one stretch of memory, keys and values in any order of their dimensions, with
// known bytes everywhere: a test compares all of them afterwards, the gaps too. Value.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/tensor.h"

namespace attnloom::testing {

enum class PoolOrder {
  kNhd,          // [pages][page_size][heads][dim], keys then values
  kHnd,          // [pages][heads][page_size][dim], keys then values
  kInterleaved,  // [pages][2][page_size][heads][dim]
  kPadded,       // as kNhd with 16 elements behind each row and 32 behind each page
};
inline constexpr PoolOrder kPoolOrders[] = {PoolOrder::kNhd, PoolOrder::kHnd,
                                            PoolOrder::kInterleaved, PoolOrder::kPadded};

struct PoolShape {
  std::int64_t pages = 0;
  std::int64_t page_size = 0;
  std::int64_t heads = 0;
  std::int64_t qk = 0;
  std::int64_t vo = 0;
};

struct CachePool {
  PoolShape shape;
  int element_bytes = 0;
  std::int64_t k_strides[3] = {};  // page, token, head: elements
  std::int64_t v_strides[3] = {};
  std::int64_t v_begin = 0;  // elements
  std::vector<unsigned char> bytes;

  unsigned char* at(bool value, std::int64_t page, std::int64_t token, std::int64_t head) {
    const std::int64_t* strides = value ? v_strides : k_strides;
    const std::int64_t element =
        (value ? v_begin : 0) + page * strides[0] + token * strides[1] + head * strides[2];
    return bytes.data() + element * element_bytes;
  }
  TensorView view(bool value, TensorType type, DeviceAddress base) const {
    const std::int64_t* strides = value ? v_strides : k_strides;
    TensorView view{
        .data = base + static_cast<DeviceAddress>((value ? v_begin : 0) * element_bytes),
        .type = type,
        .rank = 4,
        .shape = {shape.pages, shape.page_size, shape.heads, value ? shape.vo : shape.qk},
        .strides = {strides[0], strides[1], strides[2], 1}};
    return view;
  }
};

inline CachePool make_pool(const PoolShape& shape, PoolOrder order, int element_bytes) {
  CachePool pool{.shape = shape, .element_bytes = element_bytes};
  const std::int64_t row_pad = order == PoolOrder::kPadded ? 16 : 0;
  std::int64_t end = 0;
  for (const bool value : {false, true}) {
    std::int64_t* strides = value ? pool.v_strides : pool.k_strides;
    const std::int64_t row = (value ? shape.vo : shape.qk) + row_pad;
    const bool hnd = order == PoolOrder::kHnd;
    strides[1] = hnd ? row : row * shape.heads;
    strides[2] = hnd ? row * shape.page_size : row;
    strides[0] = row * shape.heads * shape.page_size + 2 * row_pad;
    if (value) pool.v_begin = end;
    end += order == PoolOrder::kInterleaved ? strides[0] : strides[0] * shape.pages;
  }
  if (order == PoolOrder::kInterleaved) {
    pool.k_strides[0] = pool.v_strides[0] = end;
    end *= shape.pages;
  }
  for (std::int64_t i = 0; i < end * element_bytes; ++i)
    pool.bytes.push_back(static_cast<unsigned char>(i * 37 + (i >> 8) * 11));
  return pool;
}

}  // namespace attnloom::testing
