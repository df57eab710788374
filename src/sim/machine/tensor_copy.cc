// SPDX-License-Identifier: Apache-2.0
// cp.async.bulk.tensor: tiles of one to five dimensions.
#include <algorithm>
#include <bit>
#include <optional>
#include <string>

#include "sim/machine/bulk.h"
#include "sim/machine/exec.h"
#include "sim/machine/state.h"

namespace attnloom::sim {
namespace {

constexpr std::uint32_t kTileAlign = 128;

// The map that a lane names, which may lie in the parameters or in global memory.
std::optional<TensorMapShape> find_map(Cta& cta, Warp& warp, const Ins& ins, int lane,
                                       std::uint64_t address) {
  const std::byte* at = nullptr;
  if (address >= kParamWindow && address < kSharedWindow) {
    std::span<const std::byte> params = cta.launch.config.params;
    std::uint64_t offset = address - kParamWindow;
    if (offset < params.size() && params.size() - offset >= kTensorMapBytes)
      at = params.data() + offset;
  } else if (Allocation* a = cta.launch.allocation(address, kTensorMapBytes)) {
    at = a->data.get() + (address - a->base);
  }
  std::optional<TensorMapShape> shape;
  if (at != nullptr)
    shape = decode_tensor_map(std::span<const std::byte, kTensorMapBytes>(at, kTensorMapBytes));
  bool is_aligned = address % 64 == 0;
  if (shape && is_aligned && shape->rank == ins.count) return shape;
  cta.launch.findings.add(is_aligned ? kind::kTensorMap : kind::kMisaligned, ins, [&] {
    std::string what = !is_aligned ? "a tensor map at an address that is no multiple of 64"
                       : !shape
                           ? "no tensor map of this device at its address"
                           : "a tensor map of " + std::to_string(shape->rank) +
                                 " dimensions, with " + std::to_string(ins.count) + " coordinates";
    return what + ", " + cta.describe(warp, lane);
  });
  return std::nullopt;
}

// What one row of the tile has in the tensor.
struct TileRow {
  std::uint32_t offset = 0;  // of the row in the tile, before the swizzle
  std::uint32_t first = 0;   // bytes of the row that lie before the tensor
  std::uint32_t bytes = 0;   // that lie in it; 0: none
  std::uint64_t address = 0;
};

struct Tile {
  const TensorMapShape& shape;
  std::int64_t at[5] = {};

  std::uint32_t rows() const {
    std::uint32_t n = 1;
    for (std::size_t k = 1; k < static_cast<std::size_t>(shape.rank); ++k) n *= shape.box[k];
    return n;
  }
  std::uint32_t row_bytes() const {
    return shape.box[0] * static_cast<std::uint32_t>(shape.element_bytes);
  }
  TileRow row(std::uint32_t index) const {
    TileRow r;
    r.offset = index * row_bytes();
    r.address = shape.address;
    for (std::size_t k = 1; k < static_cast<std::size_t>(shape.rank); ++k) {
      std::int64_t c = at[k] + index % shape.box[k];
      index /= shape.box[k];
      if (c < 0 || c >= static_cast<std::int64_t>(shape.dims[k])) return r;
      r.address += static_cast<std::uint64_t>(c) * shape.stride_bytes[k - 1];
    }
    auto size = static_cast<std::int64_t>(shape.dims[0]);
    std::int64_t begin = std::clamp<std::int64_t>(at[0], 0, size);
    std::int64_t end = std::clamp<std::int64_t>(at[0] + shape.box[0], 0, size);
    auto element = static_cast<std::uint64_t>(shape.element_bytes);
    r.address += static_cast<std::uint64_t>(begin) * element;
    r.first = static_cast<std::uint32_t>(static_cast<std::uint64_t>(begin - at[0]) * element);
    r.bytes = static_cast<std::uint32_t>(static_cast<std::uint64_t>(end - begin) * element);
    return r;
  }
};

Tile tile_of(const TensorMapShape& shape, const Warp& w, const Ins& ins, std::size_t first,
             int lane) {
  Tile tile{shape};
  for (std::size_t k = 0; k < ins.count; ++k)
    tile.at[k] = static_cast<std::int32_t>(operand32(w, ins, first + k, lane));
  return tile;
}

// Calls f(place in the tile as it lies in shared memory, place in the row, bytes) for the pieces of
// a row. The tile begins at `base`, a multiple of 128.
template <class F>
void each_piece(const Tile& tile, const TileRow& row, std::uint32_t base, F f) {
  std::uint32_t pattern = swizzle_bytes(tile.shape.swizzle);
  for (std::uint32_t k = row.first, end = row.first + row.bytes; k < end;) {
    std::uint32_t bytes = std::min(16 - k % 16, end - k);
    f(swizzled(base + row.offset + k, pattern) - base, k - row.first, bytes);
    k += bytes;
  }
}

}  // namespace

void exec_tensor_load(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  GlobalAccess access = cta.global_access(warp, ins);
  for (; mask != 0; mask &= mask - 1) {
    int l = std::countr_zero(mask);
    std::uint64_t to = shared_operand(warp, ins, 0, l);
    std::optional<TensorMapShape> shape =
        find_map(cta, warp, ins, l, shared_operand(warp, ins, 1, l));
    if (!shape || !shared_range(cta, warp, ins, l, to, tile_bytes(*shape), kTileAlign)) continue;
    Tile tile = tile_of(*shape, warp, ins, 3, l);
    std::vector<std::byte> data(tile_bytes(*shape)), line(tile.row_bytes());
    for (std::uint32_t k = 0; k < tile.rows(); ++k) {
      TileRow row = tile.row(k);
      read_global(cta, access, l, row.address, row.bytes, line.data());
      count_bulk(cta, row.address, row.bytes, false);
      each_piece(tile, row, static_cast<std::uint32_t>(to),
                 [&](std::uint32_t place, std::uint32_t from, std::uint32_t bytes) {
                   std::memcpy(&data[place], &line[from], bytes);
                 });
    }
    issue_load(cta, warp, ins, l, shared_operand(warp, ins, 2, l), static_cast<std::uint32_t>(to),
               std::move(data));
  }
}

void exec_tensor_store(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  for (; mask != 0; mask &= mask - 1) {
    int l = std::countr_zero(mask);
    std::uint64_t from = shared_operand(warp, ins, 1, l);
    std::optional<TensorMapShape> shape =
        find_map(cta, warp, ins, l, shared_operand(warp, ins, 0, l));
    if (!shape || !shared_range(cta, warp, ins, l, from, tile_bytes(*shape), kTileAlign)) continue;
    Tile tile = tile_of(*shape, warp, ins, 2, l);
    std::vector<BulkStore::Piece> pieces;
    for (std::uint32_t k = 0; k < tile.rows(); ++k) {
      TileRow row = tile.row(k);
      each_piece(tile, row, static_cast<std::uint32_t>(from),
                 [&](std::uint32_t place, std::uint32_t in_row, std::uint32_t bytes) {
                   pieces.push_back({row.address + in_row, place, bytes});
                 });
    }
    issue_store(cta, warp, ins, l, static_cast<std::uint32_t>(from),
                static_cast<std::uint32_t>(tile_bytes(*shape)), std::move(pieces));
  }
}

}  // namespace attnloom::sim
