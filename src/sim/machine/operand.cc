// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/operand.h"

#include <algorithm>
#include <string>

#include "sim/machine/async.h"
#include "sim/machine/exec.h"
#include "sim/machine/state.h"
#include "sim/tensor_map.h"

namespace attnloom::sim {
namespace {

constexpr std::uint32_t kM = 64, kStepBytes = 32, kPieceBytes = 16;

MatrixOperand parse(std::uint64_t descriptor, std::uint32_t rows, bool is_transposed) {
  static constexpr std::uint32_t kSwizzleBytes[4] = {0, 128, 64, 32};
  MatrixOperand m;
  m.start = static_cast<std::uint32_t>(descriptor & 0x3fff) << 4;
  m.leading = static_cast<std::uint32_t>(descriptor >> 16 & 0x3fff) << 4;
  m.stride = static_cast<std::uint32_t>(descriptor >> 32 & 0x3fff) << 4;
  m.swizzle_bytes = kSwizzleBytes[descriptor >> 62];
  m.rows = rows;
  m.is_transposed = is_transposed;
  return m;
}

std::uint32_t steps(Type type) {
  return kStepBytes / static_cast<std::uint32_t>(type_bytes(type));
}

// Copies the pieces to lines of pieces_across() * 16 bytes. What lies outside is NaN.
void gather(Cta& cta, const MatrixOperand& m, std::vector<std::byte>& to) {
  std::uint32_t across = m.pieces_across();
  to.resize(std::size_t{m.pieces_along()} * across * kPieceBytes);
  std::byte* at = to.data();
  for (std::uint32_t line = 0; line < m.pieces_along(); ++line) {
    for (std::uint32_t p = 0; p < across; ++p, at += kPieceBytes) {
      std::uint32_t from = m.address(line, p);
      if (from + kPieceBytes <= cta.shared_bytes) {
        std::memcpy(at, cta.shared.data() + from, kPieceBytes);
      } else {
        std::memset(at, 0xff, kPieceBytes);
      }
    }
  }
}

void turn(const std::vector<float>& from, std::uint32_t lines, std::uint32_t columns,
          std::vector<float>& to) {
  to.resize(from.size());
  for (std::uint32_t c = 0; c < columns; ++c) {
    for (std::uint32_t l = 0; l < lines; ++l) to[c * lines + l] = from[l * columns + c];
  }
}

// As floats: [rows][k], or [k][rows] for B.
void load(Cta& cta, const MatrixOperand& m, Type type, bool k_first, std::vector<float>& to) {
  std::vector<std::byte>& raw = cta.scratch.raw;
  gather(cta, m, raw);
  std::uint32_t count =
      static_cast<std::uint32_t>(raw.size()) / static_cast<std::uint32_t>(type_bytes(type));
  std::uint32_t lines = m.pieces_along();
  bool turns = m.is_transposed != k_first;
  std::vector<float>& wide = turns ? cta.scratch.turned : to;
  wide.resize(count);
  cta.kernel.products->widen(type, raw.data(), wide.data(), static_cast<int>(count));
  if (turns) turn(wide, lines, count / lines, to);
}

// Register r of lane l holds rows l / 4 + 8 * (r % 2), bytes 4 * (l % 4) + 16 * (r / 2) of K.
void load_registers(Cta& cta, const Product& p, Type type, std::vector<float>& to) {
  std::vector<std::byte>& raw = cta.scratch.raw;
  raw.resize(std::size_t{kM} * kStepBytes);
  for (std::uint32_t w = 0; w < 4; ++w) {
    for (std::uint32_t r = 0; r < 4; ++r) {
      for (std::uint32_t l = 0; l < kLanes; ++l) {
        std::uint32_t line = w * 16 + l / 4 + 8 * (r % 2), byte = 4 * (l % 4) + 16 * (r / 2);
        std::memcpy(&raw[line * kStepBytes + byte], &p.registers_a[(w * 4 + r) * kLanes + l], 4);
      }
    }
  }
  to.resize(std::size_t{kM} * steps(type));
  cta.kernel.products->widen(type, raw.data(), to.data(), static_cast<int>(to.size()));
}

void negate(std::vector<float>& x) {
  for (float& v : x) v = -v;
}

}  // namespace

std::uint32_t MatrixOperand::address(std::uint32_t along, std::uint32_t across) const {
  std::uint32_t in = along % 8, group = along / 8;
  std::uint32_t offset = 0;
  if (swizzle_bytes == 0) {
    // Blocks of 8 lines of 16 bytes. MN-major counts the blocks of rows by the stride.
    offset = in * kPieceBytes + (is_transposed ? group * leading + across * stride
                                               : group * stride + across * leading);
  } else if (is_transposed) {
    std::uint32_t pieces = swizzle_bytes / kPieceBytes;
    offset = in * swizzle_bytes + group * stride + across % pieces * kPieceBytes +
             across / pieces * leading;
  } else {
    offset = in * swizzle_bytes + group * stride + across * kPieceBytes;
  }
  return swizzled(start + offset, swizzle_bytes);
}

MatrixOperand operand_a(const Ins& ins, std::uint64_t descriptor) {
  return parse(descriptor, kM, (ins.flags & kWgmmaTransposeA) != 0);
}

MatrixOperand operand_b(const Ins& ins, std::uint64_t descriptor) {
  return parse(descriptor, static_cast<std::uint32_t>(ins.imm),
               (ins.flags & kWgmmaTransposeB) != 0);
}

void check_operand(const SharedAccess& a, const MatrixOperand& m, std::uint32_t begin,
                   std::uint32_t count, const SharedShadow::AsyncAgent& by,
                   const std::uint32_t* proxied) {
  std::uint32_t first_line = m.is_transposed ? 0 : begin, last_line = first_line + count;
  std::uint32_t first = m.is_transposed ? begin / 8 : 0, last = first + count / 8;
  if (m.is_transposed) {
    last_line = m.pieces_along();
  } else {
    last = m.pieces_across();
  }
  for (std::uint32_t line = first_line; line < last_line; ++line) {
    for (std::uint32_t p = first; p < last; ++p) {
      std::uint32_t address = m.address(line, p);
      if (address + kPieceBytes > a.cta.shared_bytes) {
        shared_outside(a.cta, a, -1, address, kPieceBytes);
        continue;
      }
      a.cta.shadow.async_read(a, -1, by, proxied, address, kPieceBytes);
    }
  }
}

void multiply_product(Cta& cta, Product& p) {
  const Ins& ins = *p.ins;
  std::vector<float>&a = cta.scratch.a, &b = cta.scratch.b;
  if ((ins.flags & kWgmmaRegisterA) != 0) {
    load_registers(cta, p, ins.type, a);
  } else {
    load(cta, operand_a(ins, p.a), ins.type, false, a);
  }
  load(cta, operand_b(ins, p.b), ins.source, true, b);
  if ((ins.flags & kWgmmaNegateA) != 0) negate(a);
  if ((ins.flags & kWgmmaNegateB) != 0) negate(b);
  if (!p.adds) std::fill(p.sum->value.begin(), p.sum->value.end(), 0.0f);
  cta.kernel.products->multiply(a.data(), b.data(), p.sum->value.data(), static_cast<int>(kM),
                                static_cast<int>(ins.imm), static_cast<int>(steps(ins.type)));
}

}  // namespace attnloom::sim
