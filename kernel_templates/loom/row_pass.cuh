// SPDX-License-Identifier: Apache-2.0
// Runs a variant's row functors over landed tiles in shared memory, before any product reads them.
//
// A warp takes several rows at once: they are independent, and two warps a scheduler could not hide
// the latency of one row after the other.
#pragma once

#include "loom/columns.cuh"
#include "loom/row.cuh"
#include "loom/variant.cuh"

namespace loom {

template <class Tile>
using RowOf = Row<Tile::kChunks * 8>;

// The rows of a tile that one warp of the crew takes, every kWarps-th, in batches. Word w of a row
// is the pair of elements that lane w % 32 holds in its slot w / 32.
template <class Config, class Crew, class Tile>
struct WarpRows {
  using Element = typename Config::Element;
  using TileRow = RowOf<Tile>;
  static constexpr int kWarps = Crew::kThreads / 32;
  static constexpr int kSlots = TileRow::kSlots;
  static constexpr int kRows = (Tile::kRows + kWarps - 1) / kWarps;
  // 32 floats a lane, or half of it where three CTAs share the registers.
  static constexpr int kMost = kSlots > 4
                                   ? 2
                                   : (kSlots <= 2 ? 8 : 4) / (Config::kMinCtasPerSm > 2 ? 2 : 1);
  static constexpr int kBatch = kRows < kMost ? kRows : kMost;
  static constexpr int kSwizzles = 8 / kWarps;  // rows from one to the next with the same swizzle
  static constexpr int kTailSlot = Tile::kTail == 0 ? kSlots : kSlots - 1;
  static_assert((kBatch % kSwizzles == 0 || kRows == 1) && kSwizzles <= 2,
                "a batch starts where the swizzle does");

  u32* slab[kSwizzles];
  u32* tail[kSwizzles];

  LOOM_DEVICE WarpRows(unsigned char* shared, const Tile& tile) {
    const Tile offsets{tile.base - shared_address(shared)};
    const int thread =
        Crew::thread_now();  // the epilogue's lane would be kept for it: 4 bytes spilled
    const int chunk = (thread & 31) >> 2;
    const int within = 4 * (thread & 3);
#pragma unroll
    for (int p = 0; p < kSwizzles; ++p) {
      const int row = thread / 32 + kWarps * p;
      slab[p] = reinterpret_cast<u32*>(shared + offsets.slab_address(row, chunk) + within);
      tail[p] = reinterpret_cast<u32*>(shared + offsets.tail_address(row, chunk) + within);
    }
  }

  // Of the warp's row number k.
  LOOM_DEVICE u32& word(int k, int slot) const {
    const int down = k / kSwizzles * 8;     // rows
    const bool other = k % kSwizzles != 0;  // an array indexed by it would lie in local memory
    return slot == kTailSlot
               ? (other ? tail[kSwizzles - 1] : tail[0])[down * (Tile::kTailRowBytes / 4)]
               : (other ? slab[kSwizzles - 1] : slab[0])[down * 32 + slot * (Tile::kSlabBytes / 4)];
  }
  LOOM_DEVICE void load(TileRow& row, int k) const {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      const u32 pair = TileRow::holds(s) ? word(k, s) : 0u;
      row.value[s][0] = to_float(Element{static_cast<u16>(pair)});
      row.value[s][1] = to_float(Element{static_cast<u16>(pair >> 16)});
    }
  }
  LOOM_DEVICE void store(const TileRow& row, int k) const {
#pragma unroll
    for (int s = 0; s < kSlots; ++s) {
      if (TileRow::holds(s)) word(k, s) = pack2(row.value[s][0], row.value[s][1], Element{});
    }
  }
};

// Calls apply(row, number) for rows [0, count) of `tile`, which lies in `shared`. `chained`: the
// functor's pos grows with the number. `squares`: it asks for sums of squares. REQUIRES: barriers
// before and after.
template <class Config, class Crew, bool chained, bool squares, class Tile, class Apply>
LOOM_DEVICE void transform_rows(unsigned char* shared, const Tile& tile, int count, Apply&& apply) {
  using Rows = WarpRows<Config, Crew, Tile>;
  const Rows rows(shared, tile);
#pragma unroll 1
  for (int k = 0; k < Rows::kRows; k += Rows::kBatch) {
    const int first = Crew::warp() + Rows::kWarps * k;
    if (first + Rows::kWarps * (Rows::kBatch - 1) < count) {
      RowOf<Tile> batch[Rows::kBatch];
      AngleChain<2 * Rows::kSlots> chain;
      // Longer rows have no registers for the angles of the row before.
      chain.step = chained && Rows::kSlots <= 4 ? Rows::kWarps : 0;
#pragma unroll
      for (int i = 0; i < Rows::kBatch; ++i) {
        batch[i].chain = &chain;
        rows.load(batch[i], k + i);
      }
      if constexpr (squares) sum_squares(batch);
#pragma unroll
      for (int i = 0; i < Rows::kBatch; ++i) apply(batch[i], first + Rows::kWarps * i);
#pragma unroll
      for (int i = 0; i < Rows::kBatch; ++i) rows.store(batch[i], k + i);
    } else {
#pragma unroll 1
      for (int i = 0; first + Rows::kWarps * i < count; ++i) {
        RowOf<Tile> row;
        rows.load(row, k + i);
        apply(row, first + Rows::kWarps * i);
        rows.store(row, k + i);
      }
    }
  }
}

// The query rows of an item that exist.
template <class Config, class Crew, class Tile, class Variant>
LOOM_DEVICE void transform_queries(unsigned char* shared, const Tile& queries,
                                   const Variant& variant, const AttentionArgs& args,
                                   const RequestRow& request, const Work& work) {
  const int count = min(Tile::kRows, request.q_end * Config::kGroupSize - work.item.q_row);
  transform_rows<Config, Crew, false, Config::kQuerySquares>(
      shared, queries, count, [&](RowOf<Tile>& row, int number) {
        const int packed = work.item.q_row + number;
        const int token = packed / Config::kGroupSize;
        const int position = is_shared<Config>(request)
                                 ? shared_token(args, request, token).position
                                 : token + request.kv_len - request.qo_len;
        variant.query_transform(
            row, RowArgs{request.batch, position,
                         work.kv_head() * Config::kGroupSize + packed % Config::kGroupSize,
                         request.qo_len, request.kv_len});
      });
}

// Whose the rows of a tile of keys or values are.
template <class Config>
struct KeyRows {
  const KvColumns<Config>& columns;
  const Work& work;

  LOOM_DEVICE RowArgs args(int number) const {
    const RequestRow& request = columns.request;
    return {request.batch, columns.position(number), work.kv_head(), request.qo_len,
            request.kv_len};
  }
  // A list's last block may end behind the keys, wherever in the list it stands.
  LOOM_DEVICE bool exists(int number) const {
    return !Config::kBsr || columns.position(number) < columns.request.kv_len;
  }
};

// The first `count` rows of a tile.
template <class Config, class Crew, class Tile, class Variant>
LOOM_DEVICE void transform_keys(unsigned char* shared, const Tile& keys, const Variant& variant,
                                const KeyRows<Config>& rows, int count) {
  transform_rows<Config, Crew, true, Config::kKeySquares>(
      shared, keys, count, [&](RowOf<Tile>& row, int number) {
        if (rows.exists(number)) variant.key_transform(row, rows.args(number));
      });
}
template <class Config, class Crew, class Tile, class Variant>
LOOM_DEVICE void transform_values(unsigned char* shared, const Tile& values, const Variant& variant,
                                  const KeyRows<Config>& rows, int count) {
  transform_rows<Config, Crew, true, Config::kValueSquares>(
      shared, values, count, [&](RowOf<Tile>& row, int number) {
        if (rows.exists(number)) variant.value_transform(row, rows.args(number));
      });
}

// All row functors at one KV tile from `position`; queries with the first. Ends in a barrier.
template <class Config, class QTile, class KTile, class VTile, class Variant>
LOOM_DEVICE void transform_tiles(unsigned char* shared, const QTile& queries, const KTile& keys,
                                 const VTile& values, const Variant& variant,
                                 const RequestRow& request, const Work& work,
                                 const KvBounds& bounds, const KvColumns<Config>& columns,
                                 int position) {
  using Crew = WholeCta<Config>;
  if constexpr (Config::kHasQueryTransform) {
    // From memory where it can be: a register for it through the KV loop made 128 x 64 spill.
    constexpr bool kMoves = Config::kWindow || Config::kHasTileMask || kSkipsBlocks<Config>;
    if (position == (kMoves ? bounds.begin : work.item.kv_begin))
      transform_queries<Config, Crew>(shared, queries, variant, columns.args, request, work);
  }
  const KeyRows<Config> rows{columns, work};
  const int count = min(KTile::kRows, bounds.end - position);
  if constexpr (Config::kHasKeyTransform)
    transform_keys<Config, Crew>(shared, keys, variant, rows, count);
  if constexpr (Config::kHasValueTransform)
    transform_values<Config, Crew>(shared, values, variant, rows, count);
  __syncthreads();
}

}  // namespace loom
