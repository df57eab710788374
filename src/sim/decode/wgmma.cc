// SPDX-License-Identifier: Apache-2.0
// wgmma.
#include <charconv>
#include <string>

#include "sim/decode/builder.h"
#include "sim/machine/exec.h"

namespace attnloom::sim {
namespace {

using Kind = PtxOperand::Kind;

// "m64n128k16" with the k that the type wants: the n, or 0.
std::int64_t take_shape(Opcode& op, std::string_view k) {
  std::optional<std::string_view> rest = op.take_prefix("m64n");
  if (!rest || !rest->ends_with(k)) return 0;
  std::string_view digits = rest->substr(0, rest->size() - k.size());
  std::int64_t n = 0;
  auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  bool whole = parsed.ptr == digits.data() + digits.size();
  return whole && n >= 8 && n <= 256 && n % 8 == 0 ? n : 0;
}

bool collect(Builder& b, const PtxOperand& list, std::size_t count, Type type,
             std::vector<std::uint32_t>& slots) {
  if (list.kind != Kind::kVector || list.items.size() != count) return false;
  for (const PtxOperand& item : list.items) slots.push_back(b.input(item, type));
  return true;
}

// The immediates behind scale-d: signs of A and B, then which of them are transposed.
bool take_immediates(Builder& b, bool is_half, Ins& ins) {
  bool from_registers = (ins.flags & kWgmmaRegisterA) != 0;
  std::size_t transposes = !is_half ? 0 : from_registers ? 1 : 2;
  if (b.operand_count() != 6 + transposes) return false;
  std::int64_t value[4] = {};
  for (std::size_t k = 0; k < 2 + transposes; ++k) {
    std::optional<std::int64_t> v = b.immediate(b.operand(4 + k));
    if (!v) return false;
    value[k] = *v;
  }
  for (std::size_t k = 0; k < 2; ++k) {
    if (value[k] != 1 && value[k] != -1) return false;
    if (value[2 + k] != 0 && value[2 + k] != 1) return false;
  }
  if (value[0] < 0) ins.flags |= kWgmmaNegateA;
  if (value[1] < 0) ins.flags |= kWgmmaNegateB;
  bool transposes_b = value[from_registers ? 2 : 3] == 1;
  if (!from_registers && value[2] == 1) ins.flags |= kWgmmaTransposeA;
  if (is_half && transposes_b) ins.flags |= kWgmmaTransposeB;
  return true;
}

bool decode_mma_async(Opcode& op, Builder& b) {
  bool known = op.take("sync") && op.take("aligned");
  std::optional<Type> d = op.take_type(), a = op.take_type(), bt = op.take_type();
  if (!known || d != Type::kF32 || !a || !bt) return false;
  bool is_half = (*a == Type::kF16 || *a == Type::kBf16) && a == bt;
  auto is_byte = [](Type t) { return t == Type::kE4m3 || t == Type::kE5m2; };
  if (!is_half && (!is_byte(*a) || !is_byte(*bt))) return false;
  Ins ins;
  ins.kind = InsKind::kWait;
  ins.wait = &wait_mma_async;
  ins.imm = take_shape(op, is_half ? "k16" : "k32");
  ins.type = *a;
  ins.source = *bt;
  if (b.operand(1).kind == Kind::kVector) ins.flags |= kWgmmaRegisterA;
  if (ins.imm == 0 || !take_immediates(b, is_half, ins)) return false;
  std::vector<std::uint32_t> sums, inputs;
  if (!collect(b, b.operand(0), static_cast<std::size_t>(ins.imm) / 2, Type::kF32, sums))
    return false;
  inputs = sums;
  if ((ins.flags & kWgmmaRegisterA) == 0) {
    inputs.push_back(b.input(b.operand(1), Type::kB64));
  } else if (!collect(b, b.operand(1), 4, Type::kB32, inputs)) {
    return false;
  }
  for (std::uint32_t slot : inputs) b.keep_until_wgmma_wait(slot);
  inputs.push_back(b.input(b.operand(2), Type::kB64));
  inputs.push_back(b.input(b.operand(3), Type::kPred));
  if (b.ok())
    b.emit(ins, std::span<const std::uint32_t>(sums), std::span<const std::uint32_t>(inputs));
  return true;
}

}  // namespace

bool decode_wgmma(Opcode& op, Builder& b) {
  b.note_async();
  b.note_wgmma();
  if (op.take("mma_async")) return decode_mma_async(op, b);
  Ins ins;
  ins.kind = InsKind::kExec;
  if (op.take("fence")) {
    ins.exec = &exec_wgmma_fence;
  } else if (op.take("commit_group")) {
    ins.exec = &exec_wgmma_commit;
  } else if (op.take("wait_group")) {
    std::optional<std::int64_t> groups = b.immediate(b.operand(0));
    if (!groups) return false;
    ins.kind = InsKind::kWait;
    ins.wait = &wait_wgmma;
    ins.imm = *groups;
    b.wait_for_wgmma();
  } else {
    return false;
  }
  if (!op.take("sync") || !op.take("aligned")) return false;
  b.emit(ins, {}, {});
  return true;
}

}  // namespace attnloom::sim
