// SPDX-License-Identifier: Apache-2.0
// Shared tiles -> operands of mma_16x8x16, by what the cache holds. 16-bit elements are operands as
// ldmatrix delivers them. 8-bit ones travel and lie as bytes and are unpacked to f16 in registers,
// exactly, so both products run in f16 whatever the queries were:
//
//   keys    ldmatrix hands a lane dims 4c..4c+3 of a 16-dim step (c = lane % 4). They are used in
//           that order: k 2c, 2c+1 of the mma are dims 4c, 4c+1, and k 2c+8, 2c+9 are 4c+2, 4c+3.
//           arrange_queries() puts queries into the same order, once an item.
//   values  ldmatrix transposes pairs of bytes: a lane gets dims 2r, 2r+1 of two tokens, so one
//           8-column block takes the even dims of a 16-dim chunk and the next one the odd.
#pragma once

#include "loom/ops_fp8.cuh"
#include "loom/tile.cuh"

namespace loom {

// `one_step`: keys of 32 tokens and one step rather than of 16 tokens and two, where they are that
// many: queries that are reloaded then take half the registers.
template <class Element, class KvElement, bool one_step>
struct Operands {
  using Type = Element;
  static constexpr bool kUnpacks = false;
  static constexpr int kKeySteps = 1;     // 16-dim steps and
  static constexpr int kKeyBlocks = 2;    // 8-key blocks that one ldmatrix gives
  static constexpr int kValueBlocks = 2;  // 8-dim blocks of 16 tokens, likewise

  template <class Tile>
  LOOM_DEVICE static typename Tile::Place key_place(const Tile& tile, int row, int lane) {
    return lane_place_of_rows(tile, row, lane);
  }
  LOOM_DEVICE static void load_keys(u32 (&b)[kKeySteps][kKeyBlocks][2], u32 address) {
    u32 r[4];
    load_matrix_x4(r, address);
    b[0][0][0] = r[0], b[0][0][1] = r[1], b[0][1][0] = r[2], b[0][1][1] = r[3];
  }
  LOOM_DEVICE static void load_values(u32 (&b)[kValueBlocks][2], u32 address) {
    u32 r[4];
    load_matrix_x4_trans(r, address);
    b[0][0] = r[0], b[0][1] = r[1], b[1][0] = r[2], b[1][1] = r[3];
  }
};

template <class KvElement, bool one_step>
struct UnpackedOperands {
  using Type = F16;
  static constexpr bool kUnpacks = true;
  static constexpr int kKeySteps = one_step ? 1 : 2;
  static constexpr int kKeyBlocks = 4 / kKeySteps;
  static constexpr int kValueBlocks = 4;

  template <class Tile>
  LOOM_DEVICE static typename Tile::Place key_place(const Tile& tile, int row, int lane) {
    return one_step ? tile.place(row + lane, 0) : lane_place_of_rows(tile, row, lane);
  }
  LOOM_DEVICE static void load_keys(u32 (&b)[kKeySteps][kKeyBlocks][2], u32 address) {
    u32 r[4];
    load_matrix_x4(r, address);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      u32(&block)[2] = b[i % kKeySteps][i / kKeySteps];
      block[0] = unpack2_f16<0, 1>(r[i], KvElement{});
      block[1] = unpack2_f16<2, 3>(r[i], KvElement{});
    }
  }
  LOOM_DEVICE static void load_values(u32 (&b)[kValueBlocks][2], u32 address) {
    u32 r[4];
    load_matrix_x4_trans(r, address);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      b[i & 2][i & 1] = unpack2_f16<0, 2>(r[i], KvElement{});
      b[(i & 2) + 1][i & 1] = unpack2_f16<1, 3>(r[i], KvElement{});
    }
  }
};

template <class Element, bool one_step>
struct Operands<Element, E4m3, one_step> : UnpackedOperands<E4m3, one_step> {};
template <class Element, bool one_step>
struct Operands<Element, E5m2, one_step> : UnpackedOperands<E5m2, one_step> {};

// f16 holds every bf16 between 2^-14 and 65504; larger finite ones become that.
LOOM_DEVICE u32 as_f16(u32 pair, F16) {
  return pair;
}
LOOM_DEVICE u32 as_f16(u32 pair, Bf16) {
  float x[2] = {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
  constexpr float kLargest = 65504.0f;
#pragma unroll
  for (float& value : x) {
    const bool infinite = fabsf(value) == -negative_infinity();
    if (fabsf(value) > kLargest && !infinite) value = copysignf(kLargest, value);
  }
  return pack2(x[0], x[1], F16{});
}

// Makes queries that have landed in `tile`, which lies at `shared`, the other operand of unpacked
// keys: as f16, dims of each step in the order in which a lane gets those of a key. REQUIRES:
// called by all threads behind the barrier that landed them.
template <class Config, class Tile>
LOOM_DEVICE void arrange_queries(const Tile& tile, unsigned char* shared) {
  constexpr int kSteps = Tile::kChunks / 2;
  const typename Config::Element tag{};
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kRows * kSteps; i += Config::kThreads) {
    const u32 first = Tile::advance(tile.place(i / kSteps, 0), 0, i % kSteps * 2) - tile.base;
    uint4& low = *reinterpret_cast<uint4*>(shared + first);
    uint4& high = *reinterpret_cast<uint4*>(shared + (first ^ 16u));
    const uint4 x = low;
    const uint4 y = high;
    low = make_uint4(as_f16(x.x, tag), as_f16(x.z, tag), as_f16(y.x, tag), as_f16(y.z, tag));
    high = make_uint4(as_f16(x.y, tag), as_f16(x.w, tag), as_f16(y.y, tag), as_f16(y.w, tag));
  }
  __syncthreads();
}

}  // namespace loom
