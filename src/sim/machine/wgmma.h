// SPDX-License-Identifier: Apache-2.0
// What wgmma has under way in a warpgroup. A product is one operation of four warps: it can be done
// when all four have issued it, and is done when the first of them waits for it, from what shared
// memory holds then. Its accumulators leave the register file when it is issued and come back when
// their warp waits; until then the registers hold NaN.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "sim/ins.h"

namespace attnloom::sim {

// What is known of a row of the register file, in kernels with wgmma.
inline constexpr std::uint32_t kRowMarkBytes = 64;
enum RowMark : std::uint8_t {
  kRowTouched = 1,      // written since the last wgmma.fence
  kRowAccumulates = 2,  // of a product that is under way
  kRowMultiplies = 4,   // its A
};

// The sums of a chain of products into the same registers.
struct Accumulator {
  const std::uint32_t* rows = nullptr;  // offsets in the register file
  std::uint32_t n = 0;
  std::vector<float> value;  // [64][n]
};

struct Product {
  const Ins* ins = nullptr;
  std::uint64_t a = 0, b = 0;  // descriptors
  bool adds = false;           // to what the accumulator holds
  bool is_done = false;
  std::uint8_t issued = 0, retired = 0;  // bits: warps of the group
  std::uint32_t clock = 0;
  std::shared_ptr<Accumulator> sum;
  std::vector<std::uint32_t> registers_a;  // [warp][register][lane]
};

struct Warpgroup {
  struct Member {
    std::uint64_t issued = 0, retired = 0;  // products, counted from the beginning
    std::vector<std::uint64_t> groups;      // products issued when each group was committed
  };
  std::deque<Product> products;
  std::uint64_t first = 0;  // the number of products[0]
  Member member[4];

  Product& product(std::uint64_t k) { return products[static_cast<std::size_t>(k - first)]; }
};

}  // namespace attnloom::sim
