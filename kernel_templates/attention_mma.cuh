// SPDX-License-Identifier: Apache-2.0
// attention_mma: attention on mma.sync for every device since sm_80. A CTA of four or eight warps
// walks its queue of work items; an item is a tile of packed query rows of one KV head against a
// range of keys. FlashAttention-2's loop (Dao 2023, algorithm 1) over KV tiles gathered by
// loom/copy.cuh.
#pragma once

#include "loom/epilogue.cuh"
#include "loom/operands.cuh"
#include "loom/pipeline.cuh"
#include "loom/queue.cuh"
#include "loom/row_pass.cuh"
#include "loom/tile_mask.cuh"

namespace loom {

template <class Config, class Class, class Variant>
struct AttentionTile {
  using Element = typename Config::Element;
  static constexpr int kWarps = Config::kThreads / 32;
  using Layout = WarpLayout<kWarps, Class>;
  using Ring = KvRing<Config, Class>;
  using QTile = SharedTile<Class::kQ, Config::kHeadDimQk>;
  using Output = OutputRows<Config, Variant>;
  static constexpr int kLogits = Layout::kKvPerWarp / 8;
  static constexpr int kValues = Config::kHeadDimVo / 8;
  static constexpr int kSteps = Config::kHeadDimQk / 16;
  static constexpr int kKeyChunks = sizeof(typename Config::KvElement);  // 16-byte, of one step
  // Held queries cost 4 registers a step and save their reload for every tile; two row blocks have
  // none to spare.
  static constexpr bool kHoldQueries = Layout::kBlocks == 1 && kSteps <= 8;
  // Prefill has arithmetic to hide the copies' addresses behind; decode lives on bytes in flight.
  // In the longest tile a thread has half as many copies, and late ones spilled 8 to 12 bytes.
  static constexpr bool kCopyLate =
      Layout::kKvWarps == 1 && Class::kQ < 256 && !Config::kPaged && !kHasFunctors<Config>;
  using Operand = Operands<Element, typename Config::KvElement, !kHoldQueries && kLogits % 4 == 0>;
  using OperandType = typename Operand::Type;
  // The epilogue's scratch: 16 fp32 rows a warp, padded so that neighbouring rows lie eight banks
  // apart. The first word of the padding is the row's LSE where the finish needs it.
  static constexpr int kScratchStride = Config::kHeadDimVo + 8;  // words
  static constexpr int kScratchBytes =
      kWarps * 16 * (kScratchStride + (Layout::kKvWarps == 1 ? 0 : 2)) * 4;
  static constexpr int kTileBytes = QTile::kBytes + Ring::kBytes;
  static constexpr int kSharedBytes = kTileBytes > kScratchBytes ? kTileBytes : kScratchBytes;
  static_assert(kSharedBytes + int{sizeof(Kept)} <= Config::kSharedBytes,
                "spec/tiles.h counts the same bytes");

  const AttentionArgs& args;
  const PlanHeader& plan;
  const Variant& variant;
  const Work& work;
  const RequestRow& request;
  Kept& kept;
  unsigned char* shared;

  KvBounds bounds;
  SoftmaxState<Layout::kBlocks> state;
  float values[Layout::kBlocks][kValues][4];
  u32 held[kHoldQueries ? kSteps : 1][4];

  // Of places in shared tiles: held through the KV loop where its registers allow, else read again
  // for every tile (with functors, 4 to 20 bytes spilled and the KV tile stepped down).
  LOOM_DEVICE static int lane() { return kCopyLate ? lane_index() : thread_index_now() & 31; }
  LOOM_DEVICE QTile queries() const { return {shared_address(shared)}; }
  LOOM_DEVICE typename QTile::Place query_place() const {
    return lane_place(queries(), Layout::row_begin(), lane());
  }
  LOOM_DEVICE Ring ring() const { return {shared_address(shared) + QTile::kBytes}; }
  LOOM_DEVICE int* beside(int stage) const { return Ring::beside(shared + QTile::kBytes, stage); }
  LOOM_DEVICE KvColumns<Config> columns_of(int position, int stage) const {
    return {args, request, beside(stage), position};
  }

  LOOM_DEVICE void begin() {
    bounds = kv_bounds<Config, Class>(plan, request, work);
    if (threadIdx.x == 0) {  // the walk's first barrier shows them to the others
      kept.full_begin = bounds.full_begin;
      kept.full_end = bounds.full_end;
    }
    copy_queries<Config>(queries(), args, request, work);
    clear(values);
  }

  LOOM_DEVICE TileMask tile_mask(int position, int stage) const {
    return tile_mask_of<Config, Class>(variant, request, work, columns_of(position, stage),
                                       bounds.end);
  }
  LOOM_DEVICE bool is_skipped(int position) const {
    return tile_mask(position, 0) == TileMask::kSkip;
  }

  LOOM_DEVICE void prepare_queries() {
    if constexpr (Operand::kUnpacks) arrange_queries<Config>(queries(), shared);
    if constexpr (kHoldQueries) {
#pragma unroll
      for (int k = 0; k < kSteps; ++k)
        load_matrix_x4(held[k], QTile::advance(query_place(), 0, 2 * k));
    }
  }

  // One tile of keys and values; the pipeline hands the stage back to the copies when we return.
  template <class CopyNext>
  LOOM_DEVICE void step(int position, int stage, const typename Ring::KTile& keys,
                        const typename Ring::VTile& tokens, const CopyNext& copy_next) {
    if constexpr (!kCopyLate) copy_next();
    if constexpr (kSkipsBlocks<Config>) {
      if (is_dead<Config, Class>(plan, variant, request, work, columns_of(position, stage),
                                 bounds.end)) {
        if (position == bounds.begin) bounds.begin += Class::kKv;  // where queries are prepared
        return kCopyLate ? copy_next() : void();
      }
    }
    if constexpr (kHasRowFunctors<Config>) {
      transform_tiles<Config>(shared, queries(), keys, tokens, variant, request, work, bounds,
                              columns_of(position, stage), position);
    }
    if ((Operand::kUnpacks || kHoldQueries) && position == bounds.begin) prepare_queries();
    float logits[Layout::kBlocks][kLogits][4];
    multiply_queries(logits, keys);
    if constexpr (kCopyLate) copy_next();
    float left = 1.0f;
    if ((Config::kWindow && position < kept.full_begin) || position + Class::kKv > kept.full_end) {
      apply_variant<true>(logits, position, stage);
    } else if constexpr (kHasFunctors<Config> || MaskTile<Config, Class>::kUsed) {
      left = apply_variant<false>(logits, position, stage);
    }
    if constexpr (Config::kSoftmax)
      state.fold(logits, values, softmax_factor<Config>(plan, args, work) * left);
    multiply_values(logits, tokens);
  }

  // Gives the factor that is left to the softmax.
  template <bool partial>
  LOOM_DEVICE float apply_variant(float (&logits)[Layout::kBlocks][kLogits][4], int position,
                                  int stage) {
    if (Config::kHasTileMask && tile_mask(position, stage) == TileMask::kFull)
      return apply_to_blocks<partial, false>(logits, position, stage);
    return apply_to_blocks<partial, true>(logits, position, stage);
  }

  template <bool partial, bool ask>
  LOOM_DEVICE float apply_to_blocks(float (&logits)[Layout::kBlocks][kLogits][4], int position,
                                    int stage) {
    constexpr bool kMasks =
        partial || Config::kCustomMask || (Config::kHasLogitsMask && ask) || !Config::kSoftmax;
    float left = 1.0f;
    const KvColumns<Config> columns = columns_of(position, stage);
    const MaskTile<Config, Class> mask(beside(stage), columns, work);
#pragma unroll
    for (int b = 0; b < Layout::kBlocks; ++b) {
      apply_variant_to<Config, Variant, partial, ask>(
          logits[b], variant, plan, request, work, bounds.end, columns, Layout::kv_begin(),
          Layout::row_begin() + 16 * b, mask, kMasks ? nullptr : &left);
    }
    // The maximum is taken before the factor.
    if (left > 0.0f) return left;
#pragma unroll
    for (int b = 0; b < Layout::kBlocks; ++b) {
#pragma unroll
      for (int j = 0; j < kLogits; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) logits[b][j][e] *= left;
      }
    }
    return 1.0f;
  }

  LOOM_DEVICE void multiply_queries(float (&logits)[Layout::kBlocks][kLogits][4],
                                    const typename Ring::KTile& keys) {
    clear(logits);
    const typename QTile::Place query_place = this->query_place();
    const typename Ring::KTile::Place key_place =
        Operand::key_place(keys, Layout::kv_begin(), lane());
#pragma unroll
    for (int k = 0; k < kSteps; k += Operand::kKeySteps) {
      u32 a[Operand::kKeySteps][Layout::kBlocks][4];
      if constexpr (!kHoldQueries) {
#pragma unroll
        for (int s = 0; s < Operand::kKeySteps; ++s) {
#pragma unroll
          for (int b = 0; b < Layout::kBlocks; ++b)
            load_matrix_x4(a[s][b], QTile::advance(query_place, 16 * b, 2 * (k + s)));
        }
      }
#pragma unroll
      for (int j = 0; j < kLogits; j += Operand::kKeyBlocks) {
        u32 key[Operand::kKeySteps][Operand::kKeyBlocks][2];
        Operand::load_keys(key, Ring::KTile::advance(key_place, 8 * j, k * kKeyChunks));
#pragma unroll
        for (int s = 0; s < Operand::kKeySteps; ++s) {
#pragma unroll
          for (int b = 0; b < Layout::kBlocks; ++b) {
            const u32(&query)[4] = kHoldQueries ? held[kHoldQueries ? k + s : 0] : a[s][b];
#pragma unroll
            for (int n = 0; n < Operand::kKeyBlocks; ++n)
              mma_16x8x16(logits[b][j + n], query, key[s][n][0], key[s][n][1], OperandType{});
          }
        }
      }
    }
  }

  // The accumulators of the weights are, packed in pairs, the A operand of the next product: no
  // shuffle.
  LOOM_DEVICE void multiply_values(const float (&weights)[Layout::kBlocks][kLogits][4],
                                   const typename Ring::VTile& tokens) {
    const typename Ring::VTile::Place token_place = lane_place(tokens, Layout::kv_begin(), lane());
#pragma unroll
    for (int k = 0; k < kLogits / 2; ++k) {
      u32 a[Layout::kBlocks][4];
#pragma unroll
      for (int b = 0; b < Layout::kBlocks; ++b) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&pair)[4] = weights[b][2 * k + i / 2];
          a[b][i] = pack2(pair[2 * (i & 1)], pair[2 * (i & 1) + 1], OperandType{});
        }
      }
#pragma unroll
      for (int j = 0; j < kValues; j += Operand::kValueBlocks) {
        u32 value[Operand::kValueBlocks][2];
        Operand::load_values(
            value, Ring::VTile::advance(token_place, 16 * k, 2 * j / Operand::kValueBlocks));
#pragma unroll
        for (int b = 0; b < Layout::kBlocks; ++b) {
#pragma unroll
          for (int n = 0; n < Operand::kValueBlocks; ++n)
            mma_16x8x16(values[b][j + n], a[b], value[n][0], value[n][1], OperandType{});
        }
      }
    }
  }

  LOOM_DEVICE void finish() {
    state.finish();
    const Output output{args, variant, request, work};
    const ItemRows<Config, Variant> sink(output, plan, Class::kQ);
    if constexpr (Layout::kKvWarps == 1) {
      write_own_rows(output, sink);
    } else {
      write_shared_rows(output, sink);
    }
  }

  // Each warp owns whole rows. They pass through shared memory, as fp32 and one 16-row block at a
  // time, so that eight lanes store one row 16 bytes (or 32) each.
  LOOM_DEVICE void write_own_rows(const Output& output, const ItemRows<Config, Variant>& sink) {
    float* block = reinterpret_cast<float*>(shared) + warp_index() * 16 * kScratchStride;
    const float value_scale = kv_scale<Config>(args.v_scale, work);
#pragma unroll
    for (int b = 0; b < Layout::kBlocks; ++b) {
      store_block(block, b, [&](int r) {
        return value_scale * (Config::kSoftmax ? inverse_sum(state.l[b][r]) : 1.0f);
      });
      if ((lane_index() & 3) == 0) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int row = Layout::row_begin() + 16 * b + fragment_row(2 * r);
          const float lse = state_lse(state.m[b][r], state.l[b][r]);
          if (output.exists(row)) sink.store_lse(row, lse);
          if constexpr (kFinishes<Config>)
            block[fragment_row(2 * r) * kScratchStride + Config::kHeadDimVo] = lse;
        }
      }
      __syncwarp();
      for (int i = lane_index(); i < 16 * kValues; i += 32) {
        const int row = Layout::row_begin() + 16 * b + i / kValues;
        const int dim = i % kValues * 8;
        float x[8];
        load_eight(x, block + i / kValues * kScratchStride + dim);
        const float* lse = block + i / kValues * kScratchStride + Config::kHeadDimVo;
        if (output.exists(row)) sink.store(row, dim, x, kFinishes<Config> ? *lse : 0.0f);
      }
      __syncwarp();
    }
  }

  // Warps that split the keys hold states of the same rows: merged in warp order through shared
  // memory.
  LOOM_DEVICE void write_shared_rows(const Output& output, const ItemRows<Config, Variant>& sink) {
    constexpr int kStride = Layout::kRowWarps * 16;  // rows between the states of one row
    float* blocks = reinterpret_cast<float*>(shared);
    float* m = blocks + kWarps * 16 * kScratchStride;
    float* l = m + kWarps * 16;
    store_block(blocks + warp_index() * 16 * kScratchStride, 0, [](int) { return 1.0f; });
    if ((lane_index() & 3) == 0) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        m[warp_index() * 16 + fragment_row(2 * r)] = state.m[0][r];
        l[warp_index() * 16 + fragment_row(2 * r)] = state.l[0][r];
      }
    }
    __syncthreads();
    store_shared_states<Config, Class::kQ, Layout::kKvWarps>(output, sink, blocks, m, l, kStride,
                                                             kScratchStride);
  }

  template <class Factor>
  LOOM_DEVICE void store_block(float* block, int b, const Factor& factor) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float scale = factor(r);
      float* row = block + fragment_row(2 * r) * kScratchStride;
      if constexpr (Operand::kUnpacks) {
#pragma unroll
        for (int j = 0; j < kValues; j += 2) {
          const float* even = values[b][j] + 2 * r;  // dims 0 and 2 of this lane's four
          const float* odd = values[b][j + 1] + 2 * r;
          *reinterpret_cast<float4*>(row + 8 * j + 4 * (lane_index() & 3)) =
              make_float4(even[0] * scale, odd[0] * scale, even[1] * scale, odd[1] * scale);
        }
      } else {
#pragma unroll
        for (int j = 0; j < kValues; ++j) {
          *reinterpret_cast<float2*>(row + fragment_column(j, 0)) =
              make_float2(values[b][j][2 * r] * scale, values[b][j][2 * r + 1] * scale);
        }
      }
    }
  }
};

// Picks the class of an item and returns its rows; in a kernel of one class nothing is left of the
// choice.
template <class Config, template <int> class TileClass, class Variant, int index = 0>
LOOM_DEVICE int run_item(const AttentionArgs& args, const PlanHeader& plan, const Variant& variant,
                         const Work& work, const RequestRow& request, Kept& kept,
                         unsigned char* shared) {
  if constexpr (index + 1 < Config::kClassCount) {
    if (work.item.tile_class != index) {
      return run_item<Config, TileClass, Variant, index + 1>(args, plan, variant, work, request,
                                                             kept, shared);
    }
  }
  AttentionTile<Config, TileClass<index>, Variant> tile{args,    plan, variant, work,
                                                        request, kept, shared};
  run_tile<Config, TileClass<index>>(tile);
  return TileClass<index>::kQ;
}

template <class Config, template <int> class TileClass, class Variant>
LOOM_DEVICE void attention_mma(const AttentionArgs& args) {
  walk_queue<Config, Variant>(
      args, [&](const PlanHeader& plan, const Variant& variant, const Work& work,
                const RequestRow& request, Kept& kept, unsigned char* shared) {
        return run_item<Config, TileClass>(args, plan, variant, work, request, kept, shared);
      });
}

}  // namespace loom
