// SPDX-License-Identifier: Apache-2.0
// append, append_rope: new keys and values go to their places in a paged cache; keys and queries
// may be rotated and the cache may be of 8 bits. Eight lanes share a row, one (token, head), and
// move it in vectors of eight 16-bit elements. Whoever owns a vector reads it before writing it, so
// queries may be rotated in place.
#pragma once

#include "loom/lane_row.cuh"
#include "loom/ops.cuh"
#include "loom/ops_fp8.cuh"

namespace loom {

constexpr int kVectorElements = 8;

struct CachePlace {
  i64 page;
  int slot;
};

// False for a row that is not used and for one that names no place of the cache.
template <class Config>
LOOM_DEVICE bool find_place(const AppendArgs& args, int token, int position, CachePlace& place) {
  const int request = args.batch_indices[token];
  if (request < 0 || request >= args.batch || position < 0) return false;
  const int first = args.page_indptr[request];
  const i64 entry = static_cast<i64>(first) + position / Config::kPageSize;
  if (first < 0 || entry >= args.page_indptr[request + 1] || entry >= args.page_index_count)
    return false;
  place.page = args.page_indices[entry];
  place.slot = position % Config::kPageSize;
  return place.page >= 0 && place.page < args.pool_pages;
}

template <class From>
LOOM_DEVICE void to_floats(uint4 bits, float (&x)[kVectorElements], From) {
  const u32 words[] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = to_float(From{static_cast<u16>(words[i] & 0xffffu)});
    x[2 * i + 1] = to_float(From{static_cast<u16>(words[i] >> 16)});
  }
}

template <class To>
LOOM_DEVICE void store_floats(To* to, const float (&x)[kVectorElements]) {
  if constexpr (sizeof(To) == 2) {
    *reinterpret_cast<uint4*>(to) = pack8(x, To{});
  } else {
    *reinterpret_cast<uint2*>(to) =
        make_uint2(pack2(x[0], x[1], To{}) | pack2(x[2], x[3], To{}) << 16,
                   pack2(x[4], x[5], To{}) | pack2(x[6], x[7], To{}) << 16);
  }
}

template <bool scaled, class To>
LOOM_DEVICE void store_quotient(To* to, float (&x)[kVectorElements], float scale) {
  if constexpr (scaled) {
#pragma unroll
    for (float& element : x) element = __fdiv_rn(element, scale);  // `/` is off by 2 ulp here
  }
  store_floats(to, x);
}

// A 16-bit cache gets the very bits, those of a NaN included.
template <bool scaled, class From, class To>
LOOM_DEVICE void store_vector(To* to, uint4 bits, float scale, From from) {
  if constexpr (sizeof(To) == sizeof(From)) {
    *reinterpret_cast<uint4*>(to) = bits;
  } else {
    float x[kVectorElements];
    to_floats(bits, x, from);
    store_quotient<scaled>(to, x, scale);
  }
}

template <bool scaled, class To, class Row, class From>
LOOM_DEVICE void store_row(To* to, const Row& row, int lane, float scale, From from) {
  row.for_each(lane, [=](int vector, uint4 bits) {
    store_vector<scaled>(to + vector * kVectorElements, bits, scale, from);
  });
}

LOOM_DEVICE void rotate(float& x, float& y, int position, u64 turns) {
  const u64 phase = turns * static_cast<u32>(position);
  float c;
  float s;
  cosine_sine(static_cast<u32>(phase >> 32), c, s);
  const float turned = x * c - y * s;
  y = y * c + x * s;
  x = turned;
}

// Rotates the first elements of a row on its way: (i, i + half) in neox style, (2i, 2i + 1)
// interleaved. The result is rounded once, to the destination's type.
template <class Config, bool scaled, class To>
LOOM_DEVICE void store_rotated(const typename Config::Element* from, To* to, float scale,
                               int position, const u64* turns, int lane) {
  using Element = typename Config::Element;
  constexpr int kHalf = Config::kRotaryDim / 2;
  if constexpr (Config::kNeox) {
    for (int i = lane * kVectorElements; i < kHalf; i += kRowLanes * kVectorElements) {
      float x[kVectorElements];
      float y[kVectorElements];
      to_floats(*reinterpret_cast<const uint4*>(from + i), x, Element{});
      to_floats(*reinterpret_cast<const uint4*>(from + i + kHalf), y, Element{});
#pragma unroll
      for (int j = 0; j < kVectorElements; ++j) rotate(x[j], y[j], position, turns[i + j]);
      store_quotient<scaled>(to + i, x, scale);
      store_quotient<scaled>(to + i + kHalf, y, scale);
    }
  } else {
    for (int i = lane * kVectorElements; i < 2 * kHalf; i += kRowLanes * kVectorElements) {
      float x[kVectorElements];
      to_floats(*reinterpret_cast<const uint4*>(from + i), x, Element{});
#pragma unroll
      for (int j = 0; j < kVectorElements; j += 2)
        rotate(x[j], x[j + 1], position, turns[(i + j) / 2]);
      store_quotient<scaled>(to + i, x, scale);
    }
  }
  for (int i = 2 * kHalf + lane * kVectorElements; i < Config::kHeadDimQk;
       i += kRowLanes * kVectorElements)
    store_vector<scaled>(to + i, *reinterpret_cast<const uint4*>(from + i), scale, Element{});
}

// One row of keys and values; `turns` is null where keys are not rotated.
template <class Config>
LOOM_DEVICE void append_row(const AppendArgs& args, int token, int head, int position,
                            const CachePlace& place, const u64* turns) {
  using Element = typename Config::Element;
  using CacheElement = typename Config::CacheElement;
  const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
  const Element* key = static_cast<const Element*>(args.key) + token * args.key_token_stride +
                       head * args.key_head_stride;
  const Element* value = static_cast<const Element*>(args.value) + token * args.value_token_stride +
                         head * args.value_head_stride;
  CacheElement* k = static_cast<CacheElement*>(args.k_cache) + place.page * args.k_page_stride +
                    place.slot * args.k_token_stride + head * args.k_head_stride;
  CacheElement* v = static_cast<CacheElement*>(args.v_cache) + place.page * args.v_page_stride +
                    place.slot * args.v_token_stride + head * args.v_head_stride;
  float k_scale = 1.0f;
  float v_scale = 1.0f;
  if constexpr (Config::kScaled) {
    k_scale = args.k_scale[Config::kScalePerHead ? head : 0];
    v_scale = args.v_scale[Config::kScalePerHead ? head : 0];
  }
  LaneRow<Config::kHeadDimVo * 2> values;
  values.load(value, lane);
  if constexpr (Config::kRotaryDim != 0) {
    store_rotated<Config, Config::kScaled>(key, k, k_scale, position, turns, lane);
  } else {
    LaneRow<Config::kHeadDimQk * 2> keys;
    keys.load(key, lane);
    store_row<Config::kScaled>(k, keys, lane, k_scale, Element{});
  }
  store_row<Config::kScaled>(v, values, lane, v_scale, Element{});
}

template <class Config>
LOOM_DEVICE void append(const AppendArgs& args) {
  const i64 row = (static_cast<i64>(blockIdx.x) * Config::kThreads + threadIdx.x) / kRowLanes;
  if (row >= static_cast<i64>(args.tokens) * args.kv_heads) return;
  const int token = static_cast<int>(row / args.kv_heads);
  const int position = args.positions[token];
  CachePlace place;
  if (!find_place<Config>(args, token, position, place)) return;
  append_row<Config>(args, token, static_cast<int>(row % args.kv_heads), position, place, nullptr);
}

// Rows of a token: its KV heads, then its query heads.
template <class Config>
LOOM_DEVICE void append_rope(const AppendRopeArgs& args) {
  using Element = typename Config::Element;
  // In shared memory because lanes read different pairs, which the constant bank would serve one by
  // one.
  __shared__ u64 turns[Config::kRotaryDim / 2];
  for (int i = static_cast<int>(threadIdx.x); i < Config::kRotaryDim / 2; i += Config::kThreads)
    turns[i] = args.turns[i];
  __syncthreads();
  const i64 heads = static_cast<i64>(args.append.kv_heads) + args.q_heads;
  const i64 row = (static_cast<i64>(blockIdx.x) * Config::kThreads + threadIdx.x) / kRowLanes;
  if (row >= args.append.tokens * heads) return;
  const int token = static_cast<int>(row / heads);
  const int head = static_cast<int>(row % heads);
  const int position = args.append.positions[token];
  CachePlace place;
  if (!find_place<Config>(args.append, token, position, place)) return;
  if (head < args.append.kv_heads) {
    append_row<Config>(args.append, token, head, position, place, turns);
    return;
  }
  const int q_head = head - args.append.kv_heads;
  const Element* q = static_cast<const Element*>(args.q) + token * args.q_token_stride +
                     q_head * args.q_head_stride;
  Element* out = static_cast<Element*>(args.q_out) + token * args.q_out_token_stride +
                 q_head * args.q_out_head_stride;
  store_rotated<Config, false>(q, out, 1.0f, position, turns,
                               static_cast<int>(threadIdx.x) % kRowLanes);
}

}  // namespace loom
