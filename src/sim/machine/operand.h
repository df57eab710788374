// SPDX-License-Identifier: Apache-2.0
// The matrices that a wgmma reads: where a descriptor says that their pieces of 16 bytes lie.
#pragma once

#include <cstdint>

#include "sim/check/shared_shadow.h"
#include "sim/machine/wgmma.h"

namespace attnloom::sim {

// Rows are M or N. K-major: a row has two pieces along K. MN-major ("transposed", elements of 16
// bits only): each of 16 values of K has a piece for 8 rows.
struct MatrixOperand {
  std::uint32_t start = 0;
  std::uint32_t leading = 0, stride = 0;  // the descriptor's byte offsets
  std::uint32_t swizzle_bytes = 0;        // of the pattern's row: 0, 32, 64 or 128
  std::uint32_t rows = 0;
  bool is_transposed = false;

  std::uint32_t pieces_across() const { return is_transposed ? rows / 8 : 2; }
  std::uint32_t pieces_along() const { return is_transposed ? 16 : rows; }
  // Piece `across` (of K, or of 8 rows) of line `along` (a row, or a value of K).
  std::uint32_t address(std::uint32_t along, std::uint32_t across) const;
};

MatrixOperand operand_a(const Ins& ins, std::uint64_t descriptor);
MatrixOperand operand_b(const Ins& ins, std::uint64_t descriptor);
// Reads rows begin .. begin + count by the async proxy.
void check_operand(const SharedAccess& access, const MatrixOperand& m, std::uint32_t begin,
                   std::uint32_t count, const SharedShadow::AsyncAgent& by,
                   const std::uint32_t* proxied);
// Adds the product of the four warps to their accumulator.
void multiply_product(Cta& cta, Product& product);

}  // namespace attnloom::sim
