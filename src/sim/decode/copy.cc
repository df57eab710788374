// SPDX-License-Identifier: Apache-2.0
// cp.async, ldmatrix, stmatrix, movmatrix and mma.
#include <array>
#include <charconv>
#include <string>

#include "sim/decode/builder.h"
#include "sim/machine/exec.h"

namespace attnloom::sim {
namespace {

using Kind = PtxOperand::Kind;

bool decode_copy_group(Opcode& op, Builder& b) {
  Ins ins;
  ins.kind = InsKind::kExec;
  if (op.take("commit_group")) {
    ins.exec = &exec_copy_commit;
  } else if (op.take("wait_all")) {
    ins.exec = &exec_copy_wait;
    ins.imm = -1;
  } else if (op.take("wait_group")) {
    ins.exec = &exec_copy_wait;
    std::optional<std::int64_t> groups = b.immediate(b.operand(0));
    if (!groups) return false;
    ins.imm = *groups;
  } else {
    return false;
  }
  b.emit(ins, {}, {});
  return true;
}

// cp.async.{ca,cg}.shared.global [dst], [src], 4 | 8 | 16 {, source bytes} {, policy}.
bool decode_copy(Opcode& op, Builder& b) {
  if (!op.take("async")) return false;
  if (op.take("bulk")) return decode_bulk_copy(op, b);
  if (op.take("mbarrier")) return decode_copy_arrival(op, b);
  if (!op.take("shared::cta") && !op.take("shared")) return decode_copy_group(op, b);
  bool known = op.take("global"), past_l1 = op.take("cg");
  known = known && (past_l1 || op.take("ca"));
  bool has_policy = op.take("L2::cache_hint");
  while (op.take_prefix("L2::")) {
  }
  std::optional<std::int64_t> bytes = b.immediate(b.operand(2));
  if (!known || !bytes || (*bytes != 16 && (past_l1 || (*bytes != 4 && *bytes != 8)))) return false;
  Ins to, from;
  std::uint32_t destination = b.address(b.operand(0), Space::kShared, to);
  std::uint32_t source = b.address(b.operand(1), Space::kGlobal, from);
  if (b.ok() && !from.address_is_64) return false;
  std::size_t optional = b.operand_count() - 3 - (has_policy ? 1 : 0);
  if (optional > 1 || (optional == 1 && b.operand(3).kind == Kind::kRegister &&
                       b.slot_bytes(b.raw(b.operand(3))) == 1)) {
    return false;  // the form with an ignore-src predicate
  }
  std::uint32_t size = optional == 1 ? b.input(b.operand(3), Type::kU32) : kNone;
  Ins ins;
  ins.kind = InsKind::kExec;
  ins.exec = &exec_copy;
  ins.count = static_cast<std::uint8_t>(*bytes);
  ins.imm = from.imm;
  ins.target = static_cast<std::uint32_t>(to.imm);
  ins.address_is_64 = to.address_is_64;
  if (b.ok()) b.emit(ins, {}, {destination, source, size});
  return true;
}

bool decode_matrix(Opcode& op, Builder& b) {
  bool is_load = op.base() == "ldmatrix";
  bool known = op.take("sync") && op.take("aligned") && op.take("m8n8");
  Ins ins;
  ins.kind = InsKind::kExec;
  ins.exec = is_load ? &exec_load_matrix : &exec_store_matrix;
  ins.count = op.take("x4") ? 4 : op.take("x2") ? 2 : op.take("x1") ? 1 : 0;
  std::uint16_t transposed = op.take("trans") ? 1 : 0;
  known = known && (op.take("shared::cta") || op.take("shared")) && op.take("b16");
  if (!known || ins.count == 0) return false;
  std::uint32_t address = b.address(b.operand(is_load ? 1 : 0), Space::kShared, ins);
  ins.flags = transposed;
  const PtxOperand& list = b.operand(is_load ? 0 : 1);
  if (list.kind != Kind::kVector || list.items.size() != ins.count) return false;
  std::vector<std::uint32_t> data;
  for (const PtxOperand& item : list.items)
    data.push_back(is_load ? b.output(item, Type::kB32) : b.input(item, Type::kB32));
  if (!b.ok()) return true;
  if (is_load) {
    b.emit(ins, data, std::array{address});
  } else {
    data.insert(data.begin(), address);
    b.emit(ins, {}, data);
  }
  return true;
}

bool decode_move_matrix(Opcode& op, Builder& b) {
  for (std::string_view modifier : {"sync", "aligned", "m8n8", "trans", "b16"}) {
    if (!op.take(modifier)) return false;
  }
  Ins ins;
  ins.kind = InsKind::kExec;
  ins.exec = &exec_move_matrix;
  std::uint32_t a = b.input(b.operand(1), Type::kB32), d = b.output(b.operand(0), Type::kB32);
  if (b.ok()) b.emit(ins, {d}, {a});
  return true;
}

bool collect(Builder& b, const PtxOperand& list, std::size_t count, Type type, bool is_output,
             std::vector<std::uint32_t>& slots) {
  if (list.kind != Kind::kVector || list.items.size() != count) return false;
  for (const PtxOperand& item : list.items)
    slots.push_back(is_output ? b.output(item, type) : b.input(item, type));
  return true;
}

bool decode_mma(Opcode& op, Builder& b) {
  bool known = op.take("sync") && op.take("aligned");
  std::int64_t steps = op.take("m16n8k16") ? 2 : op.take("m16n8k8") ? 1 : 0;
  known = known && op.take("row") && op.take("col");
  std::optional<Type> d = op.take_type(), a = op.take_type(), bt = op.take_type(),
                      c = op.take_type();
  if (!known || steps == 0 || d != Type::kF32 || c != Type::kF32 || !a || a != bt) return false;
  std::vector<std::uint32_t> outputs, inputs;
  auto count = static_cast<std::size_t>(steps);
  if (!collect(b, b.operand(0), 4, Type::kF32, true, outputs) ||
      !collect(b, b.operand(1), 2 * count, Type::kB32, false, inputs) ||
      !collect(b, b.operand(2), count, Type::kB32, false, inputs) ||
      !collect(b, b.operand(3), 4, Type::kF32, false, inputs)) {
    return false;
  }
  if (!b.ok()) return true;
  Ins ins;
  ins.kind = InsKind::kExec;
  ins.exec = &exec_before_mma;
  ins.weight = 0;
  b.emit(ins, {}, {});
  Draft* draft =
      b.emit_lane({LaneOp::kMma, Type::kF32, *a}, std::span<const std::uint32_t>(outputs), inputs);
  if (draft != nullptr) draft->ins.imm = steps;
  return true;
}

}  // namespace

DecodeFn find_copy_decoder(std::string_view base) {
  if (base == "cp") return &decode_copy;
  if (base == "ldmatrix" || base == "stmatrix") return &decode_matrix;
  if (base == "movmatrix") return &decode_move_matrix;
  return base == "mma" ? &decode_mma : nullptr;
}

}  // namespace attnloom::sim
