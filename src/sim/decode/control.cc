// SPDX-License-Identifier: Apache-2.0
// Jumps, calls and ends. A call is expanded in place: recursion and indirect calls are refused.
#include <string>

#include "sim/decode/builder.h"
#include "sim/machine/exec.h"

namespace attnloom::sim {
namespace {

using Kind = PtxOperand::Kind;

Ins of_kind(InsKind kind) {
  Ins ins;
  ins.kind = kind;
  return ins;
}

bool decode_branch(Opcode& op, Builder& b) {
  op.take("uni");
  if (b.operand(0).kind != Kind::kName) return false;
  b.jump(b.operand(0).text);
  return true;
}

bool decode_branch_table(Opcode& op, Builder& b) {
  op.take("uni");
  if (!op.take("idx") || b.operand(1).kind != Kind::kName) return false;
  std::uint32_t index = b.input(b.operand(0), Type::kU32);
  if (b.ok()) b.jump_table(index, b.operand(1).text);
  return true;
}

bool decode_return(Opcode& op, Builder& b) {
  op.take("uni");
  b.leave();
  return true;
}

bool decode_exit(Opcode&, Builder& b) {
  b.emit(of_kind(InsKind::kExit), {}, {});
  return true;
}

bool decode_call(Opcode& op, Builder& b) {
  op.take("uni");
  std::size_t at = 0;
  std::span<const PtxOperand> results, arguments;
  if (b.operand(at).kind == Kind::kVector) results = b.operand(at++).items;
  const PtxOperand& target = b.operand(at++);
  if (at < b.operand_count() && b.operand(at).kind == Kind::kVector)
    arguments = b.operand(at++).items;
  if (target.kind != Kind::kName) {
    b.fail("indirect call");
    return true;
  }
  const PtxFunction* callee = b.module().find_function(target.text);
  if (callee == nullptr) {
    b.fail("call of '" + std::string(target.text) + "', which has no body in this module");
    return true;
  }
  b.call(*callee, results, arguments);
  return true;
}

bool decode_trap(Opcode&, Builder& b) {
  Ins ins = of_kind(InsKind::kExec);
  ins.exec = &exec_trap;
  b.emit(ins, {}, {});
  b.emit(of_kind(InsKind::kExit), {}, {});
  return true;
}

// nanosleep only passes time; griddepcontrol orders launches, which are complete here before the
// next one begins.
bool decode_nothing(Opcode& op, Builder& b) {
  while (!op.empty()) op.take(op.front());
  b.emit(of_kind(InsKind::kNothing), {}, {});
  return true;
}

}  // namespace

DecodeFn find_control_decoder(std::string_view base) {
  if (base == "bra") return &decode_branch;
  if (base == "brx") return &decode_branch_table;
  if (base == "ret") return &decode_return;
  if (base == "exit") return &decode_exit;
  if (base == "call") return &decode_call;
  if (base == "trap") return &decode_trap;
  return base == "nanosleep" || base == "griddepcontrol" ? &decode_nothing : nullptr;
}

}  // namespace attnloom::sim
