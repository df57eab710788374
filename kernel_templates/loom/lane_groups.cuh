// SPDX-License-Identifier: Apache-2.0
// How lanes without an mma share the rows of shared tiles: a group of lanes reads one row at a
// time, each lane every so many 16-byte chunks of it, and keeps what belongs to those dims.
#pragma once

#include "loom/ops_fp8.cuh"
#include "loom/softmax.cuh"

namespace loom {

// Eight lanes read 128 bytes of a row at once: a whole row of banks, whatever the swizzle. Beyond
// 256 dims sixteen share a row, so that a lane never holds more than 32 dims of it.
template <class Config>
struct LaneGroups {
  static constexpr int kLanes = Config::kHeadDimQk > 256 || Config::kHeadDimVo > 256 ? 16 : 8;
  static constexpr int kCount = Config::kThreads / kLanes;

  LOOM_DEVICE static int lane() { return static_cast<int>(threadIdx.x) % kLanes; }
  LOOM_DEVICE static int group() { return static_cast<int>(threadIdx.x) / kLanes; }

  // Over the lanes of a group, on every one of them.
  LOOM_DEVICE static float sum(float x) {
#pragma unroll
    for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0u, x, lanes);
    return x;
  }
};

// One row of 16-bit elements with the members of a SharedTile: copies and row functors see no
// difference.
template <int columns>
struct SharedRow {
  static constexpr int kRows = 1;
  static constexpr int kChunks = columns / 8;
  static constexpr int kSlabChunks = kChunks / 8 * 8;
  static constexpr int kTail = columns % 64;
  static constexpr int kTailRowBytes = kTail * 2;
  static constexpr int kSlabBytes = 128;
  static constexpr int kBytes = (columns * 2 + 127) / 128 * 128;  // tiles behind it are aligned

  u32 base;

  LOOM_DEVICE u32 slab_address(int, int chunk) const { return base + static_cast<u32>(chunk * 16); }
  LOOM_DEVICE u32 tail_address(int, int chunk) const {
    return base + static_cast<u32>((kSlabChunks + chunk) * 16);
  }
};

// The chunks that a lane reads of rows of a SharedTile: number n is chunk n * kLanes + lane.
template <class Groups, class Tile>
struct LaneChunks {
  static constexpr int kLanes = Groups::kLanes;
  static constexpr int kCount = (Tile::kChunks + kLanes - 1) / kLanes;
  static_assert(Groups::kCount % 8 == 0, "rows a whole number of groups apart share a swizzle");

  // Of the group's first row.
  const unsigned char* slab;
  const unsigned char* tail;

  // `tile` lies in `shared`.
  LOOM_DEVICE LaneChunks(const unsigned char* shared, const Tile& tile) {
    const Tile offsets{tile.base - shared_address(shared)};
    const int chunk = Groups::lane() & 7;
    const int first_slab = Groups::lane() >> 3;
    slab = shared + offsets.slab_address(Groups::group(), chunk) + first_slab * Tile::kSlabBytes;
    tail = shared + offsets.tail_address(Groups::group(), chunk);
  }

  LOOM_DEVICE static bool exists(int n) {
    return (n + 1) * kLanes <= Tile::kChunks || n * kLanes + Groups::lane() < Tile::kChunks;
  }

  // REQUIRES: exists(n); row_number counts the rows of the group.
  LOOM_DEVICE uint4 load(int row_number, int n) const {
    const int rows = row_number * Groups::kCount;
    const bool in_slab =
        (n + 1) * kLanes <= Tile::kSlabChunks || n * kLanes + Groups::lane() < Tile::kSlabChunks;
    const unsigned char* from = in_slab ? slab + rows * 128 + n * (kLanes / 8) * Tile::kSlabBytes
                                        : tail + rows * Tile::kTailRowBytes;
    return *reinterpret_cast<const uint4*>(from);
  }
};

// The elements of one chunk, exactly.
template <class Element>
constexpr int kChunkElements = 16 / static_cast<int>(sizeof(Element));

template <class Element>
LOOM_DEVICE void unpack_word(float* x, u32 word, Element) {
  if constexpr (sizeof(Element) == 2) {
    x[0] = to_float(Element{static_cast<u16>(word)});
    x[1] = to_float(Element{static_cast<u16>(word >> 16)});
  } else {
    unpack_word(x, unpack2_f16<0, 1>(word, Element{}), F16{});
    unpack_word(x + 2, unpack2_f16<2, 3>(word, Element{}), F16{});
  }
}

template <class Element>
LOOM_DEVICE void unpack_chunk(float (&x)[kChunkElements<Element>], const uint4& bits, Element tag) {
  constexpr int kOfWord = kChunkElements<Element> / 4;
  unpack_word(x, bits.x, tag);
  unpack_word(x + kOfWord, bits.y, tag);
  unpack_word(x + 2 * kOfWord, bits.z, tag);
  unpack_word(x + 3 * kOfWord, bits.w, tag);
}

// The softmax of one row over the keys of a group, as SoftmaxState's. Every lane of the group holds
// the same m and l.
struct GroupSoftmax {
  float m = negative_infinity();
  float l = 0.0f;

  template <int keys, int chunks, int elements>
  LOOM_DEVICE void fold(float (&logits)[keys], float (&values)[chunks][elements], float factor) {
    float top = logits[0];
#pragma unroll
    for (int i = 1; i < keys; ++i) top = fmaxf(top, logits[i]);
    const float highest = fmaxf(m, top * factor);
    if (__any_sync(~0u, highest > m + kSlack)) {
      const float shrink = exp2(m - softmax_reference(highest));
      m = highest;
      l *= shrink;
#pragma unroll
      for (int n = 0; n < chunks; ++n) {
#pragma unroll
        for (int e = 0; e < elements; ++e) values[n][e] *= shrink;
      }
    }
    const float shift = softmax_reference(m);
#pragma unroll
    for (int i = 0; i < keys; ++i) {
      logits[i] = exp2(fmaf(logits[i], factor, -shift));
      l += logits[i];
    }
  }
};

}  // namespace loom
