// SPDX-License-Identifier: Apache-2.0
// LaneRow: what one of eight lanes moves of a row in global memory, 16 bytes at a time. All of it
// is loaded before anything is stored, so that the loads of a row are in flight together.
#pragma once

#include "loom/types.cuh"

namespace loom {

constexpr int kRowLanes = 8;
constexpr int kVectorBytes = 16;

template <int row_bytes>
struct LaneRow {
  static_assert(row_bytes % kVectorBytes == 0, "a row is a whole number of vectors");
  static constexpr int kVectors = row_bytes / kVectorBytes;
  static constexpr int kCount = (kVectors + kRowLanes - 1) / kRowLanes;
  uint4 bits[kCount];

  LOOM_DEVICE void load(const void* row, int lane) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int vector = i * kRowLanes + lane;
      if (kVectors % kRowLanes == 0 || vector < kVectors)
        bits[i] = static_cast<const uint4*>(row)[vector];
    }
  }

  // Calls store(vector, bits) for each.
  template <class Store>
  LOOM_DEVICE void for_each(int lane, Store store) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int vector = i * kRowLanes + lane;
      if (kVectors % kRowLanes == 0 || vector < kVectors) store(vector, bits[i]);
    }
  }
};

}  // namespace loom
