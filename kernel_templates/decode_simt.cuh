// SPDX-License-Identifier: Apache-2.0
// decode_simt: attention of one packed query row, a token of one query head, without an mma: a
// tensor core multiplies sixteen rows, of which decode with one query head a KV head has one. A
// CTA of four warps walks its queue of work items as attention_mma does, with the same copies, ring
// and epilogue.
//
// A group of eight (or sixteen) lanes takes every kCount-th key of a KV tile. Each of its lanes
// holds the query's elements and the sums of the values' for its own chunks of a row, so a key
// costs one reduction over the group, its weight is then where its value is needed, and no group
// knows of another until the item ends.
#pragma once

#include "loom/lane_groups.cuh"
#include "loom/operands.cuh"
#include "loom/pipeline.cuh"
#include "loom/queue.cuh"
#include "loom/row_pass.cuh"
#include "loom/tile_mask.cuh"

namespace loom {

template <class Config, class Class, class Variant>
struct DecodeTile {
  using Element = typename Config::Element;
  using KvElement = typename Config::KvElement;
  using Groups = LaneGroups<Config>;
  using Ring = KvRing<Config, Class>;
  using QRow = SharedRow<Config::kHeadDimQk>;
  using KeyChunks = LaneChunks<Groups, typename Ring::KTile>;
  using ValueChunks = LaneChunks<Groups, typename Ring::VTile>;
  static constexpr int kElements = kChunkElements<KvElement>;
  static constexpr int kKeys = Class::kKv / Groups::kCount;  // of a tile, a group
  // The epilogue's scratch: a row of fp32 values, m and l for each group.
  static constexpr int kScratchStride = Config::kHeadDimVo + 8;  // words
  static constexpr int kScratchBytes = Groups::kCount * (kScratchStride + 2) * 4;
  static constexpr int kTileBytes = QRow::kBytes + Ring::kBytes;
  static constexpr int kSharedBytes = kTileBytes > kScratchBytes ? kTileBytes : kScratchBytes;
  static_assert(Class::kQ == 1 && Config::kClassCount == 1, "one row, one class");
  static_assert(Class::kKv % Groups::kCount == 0, "every group has the same number of keys");
  static_assert(kSharedBytes + int{sizeof(Kept)} <= Config::kSharedBytes,
                "spec/decode_tiles.h counts the same bytes");

  const AttentionArgs& args;
  const PlanHeader& plan;
  const Variant& variant;
  const Work& work;
  const RequestRow& request;
  unsigned char* shared;

  KvBounds bounds;
  GroupSoftmax state;
  float query[KeyChunks::kCount][kElements];
  float values[ValueChunks::kCount][kElements];

  LOOM_DEVICE QRow query_row() const { return {shared_address(shared)}; }
  LOOM_DEVICE Ring ring() const { return {shared_address(shared) + QRow::kBytes}; }
  LOOM_DEVICE int* beside(int stage) const { return Ring::beside(shared + QRow::kBytes, stage); }
  LOOM_DEVICE KvColumns<Config> columns_of(int position, int stage) const {
    return {args, request, beside(stage), position};
  }

  LOOM_DEVICE bool is_skipped(int position) const {
    return tile_mask_of<Config, Class>(variant, request, work, columns_of(position, 0),
                                       bounds.end) == TileMask::kSkip;
  }

  LOOM_DEVICE void begin() {
    bounds = kv_bounds<Config, Class>(plan, request, work);
    copy_queries<Config>(query_row(), args, request, work);
#pragma unroll
    for (int n = 0; n < ValueChunks::kCount; ++n) {
#pragma unroll
      for (int e = 0; e < kElements; ++e) values[n][e] = 0.0f;
    }
  }

  // Eight elements of the query, rounded as attention_mma rounds them: the kernels of a set agree.
  LOOM_DEVICE static void unpack_query(float (&x)[8], const uint4& bits) {
    const Element tag{};
    if constexpr (sizeof(KvElement) == 1) {
      const uint4 narrow = make_uint4(as_f16(bits.x, tag), as_f16(bits.y, tag), as_f16(bits.z, tag),
                                      as_f16(bits.w, tag));
      unpack_chunk(x, narrow, F16{});
    } else {
      unpack_chunk(x, bits, tag);
    }
  }

  // An 8-bit chunk of a key has the dims of two chunks of the query.
  LOOM_DEVICE void load_query() {
    constexpr int kOfChunk = kElements / 8;
    const uint4* row = reinterpret_cast<const uint4*>(shared);
#pragma unroll
    for (int n = 0; n < KeyChunks::kCount; ++n) {
      const int chunk = (n * Groups::kLanes + Groups::lane()) * kOfChunk;
#pragma unroll
      for (int h = 0; h < kOfChunk; ++h) {
        float x[8] = {};
        if (KeyChunks::exists(n)) unpack_query(x, row[chunk + h]);
#pragma unroll
        for (int e = 0; e < 8; ++e) query[n][8 * h + e] = x[e];
      }
    }
  }

  // One tile of keys and values; the pipeline hands the stage back to the copies when we return.
  template <class CopyNext>
  LOOM_DEVICE void step(int position, int stage, const typename Ring::KTile& keys,
                        const typename Ring::VTile& tokens, const CopyNext& copy_next) {
    copy_next();  // decode lives on bytes in flight
    if constexpr (kHasRowFunctors<Config>) {
      transform_tiles<Config>(shared, query_row(), keys, tokens, variant, request, work, bounds,
                              columns_of(position, stage), position);
    }
    if (position == bounds.begin) load_query();
    float logits[kKeys];
    multiply_query(logits, keys);
    if ((Config::kWindow && position < bounds.full_begin) ||
        position + Class::kKv > bounds.full_end) {
      apply_variant<true>(logits, position, stage);
    } else if constexpr (kHasFunctors<Config> || MaskTile<Config, Class>::kUsed) {
      apply_variant<false>(logits, position, stage);
    }
    if constexpr (Config::kSoftmax)
      state.fold(logits, values, softmax_factor<Config>(plan, args, work));
    multiply_values(logits, tokens);
  }

  LOOM_DEVICE void multiply_query(float (&logits)[kKeys], const typename Ring::KTile& keys) const {
    const KeyChunks chunks(shared, keys);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < KeyChunks::kCount; ++n) {
        if (!KeyChunks::exists(n)) continue;
        float key[kElements];
        unpack_chunk(key, chunks.load(i, n), KvElement{});
#pragma unroll
        for (int e = 0; e < kElements; ++e) sum = fmaf(query[n][e], key[e], sum);
      }
      logits[i] = sum;
    }
#pragma unroll
    for (int i = 0; i < kKeys; ++i) logits[i] = Groups::sum(logits[i]);
  }

  template <bool partial>
  LOOM_DEVICE void apply_variant(float (&logits)[kKeys], int position, int stage) const {
    const KvColumns<Config> columns = columns_of(position, stage);
    const MaskTile<Config, Class> mask(beside(stage), columns, work);
    const LogitRow row = logit_row<Config>(plan, request, work, bounds.end, work.item.q_row);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      const int column = i * Groups::kCount + Groups::group();
      const KvPosition kv_pos = columns.position(Groups::group(), i * Groups::kCount);
      logits[i] = apply_variant_to_logit<Config, Variant, partial, true>(
          logits[i], kv_pos, row, variant, plan, args, request, work, [&] {
            return Config::kBsr ? columns.mask_keeps(row.token, kv_pos)
                                : mask.keeps(row.token, column);
          });
    }
  }

  LOOM_DEVICE void multiply_values(const float (&weights)[kKeys],
                                   const typename Ring::VTile& tokens) {
    const ValueChunks chunks(shared, tokens);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
#pragma unroll
      for (int n = 0; n < ValueChunks::kCount; ++n) {
        if (!ValueChunks::exists(n)) continue;
        float value[kElements];
        unpack_chunk(value, chunks.load(i, n), KvElement{});
#pragma unroll
        for (int e = 0; e < kElements; ++e) values[n][e] = fmaf(weights[i], value[e], values[n][e]);
      }
    }
  }

  LOOM_DEVICE void finish() {
    float* blocks = reinterpret_cast<float*>(shared);
    float* m = blocks + Groups::kCount * kScratchStride;
    float* l = m + Groups::kCount;
    float* block = blocks + Groups::group() * kScratchStride;
#pragma unroll
    for (int n = 0; n < ValueChunks::kCount; ++n) {
      if (!ValueChunks::exists(n)) continue;
#pragma unroll
      for (int e = 0; e < kElements; e += 4) {
        *reinterpret_cast<float4*>(block + (n * Groups::kLanes + Groups::lane()) * kElements + e) =
            make_float4(values[n][e], values[n][e + 1], values[n][e + 2], values[n][e + 3]);
      }
    }
    if (Groups::lane() == 0) {
      m[Groups::group()] = state.m;
      l[Groups::group()] = state.l;
    }
    __syncthreads();
    const OutputRows<Config, Variant> output{args, variant, request, work};
    const ItemRows<Config, Variant> sink(output, plan, 1);
    store_shared_states<Config, 1, Groups::kCount>(output, sink, blocks, m, l, 1, kScratchStride);
  }
};

template <class Config, template <int> class TileClass, class Variant>
LOOM_DEVICE void decode_simt(const AttentionArgs& args) {
  walk_queue<Config, Variant>(
      args, [&](const PlanHeader& plan, const Variant& variant, const Work& work,
                const RequestRow& request, Kept&, unsigned char* shared) {
        DecodeTile<Config, TileClass<0>, Variant> tile{args, plan, variant, work, request, shared};
        run_tile<Config, TileClass<0>>(tile);
        return 1;
      });
}

}  // namespace loom
