// SPDX-License-Identifier: Apache-2.0
// Exchange between the lanes of a warp, and barriers between warps.
#include <array>
#include <string>

#include "sim/decode/builder.h"
#include "sim/machine/exec.h"

namespace attnloom::sim {
namespace {

Ins exec_ins(ExecFn exec) {
  Ins ins;
  ins.kind = InsKind::kExec;
  ins.exec = exec;
  return ins;
}

bool decode_shuffle(Opcode& op, Builder& b) {
  if (!op.take("sync")) return false;
  Ins ins = exec_ins(&exec_shuffle);
  ins.detail = op.take("up")     ? 0
               : op.take("down") ? 1
               : op.take("bfly") ? 2
               : op.take("idx")  ? 3
                                 : 9;
  if (!op.take("b32") || ins.detail == 9) return false;
  std::array<std::uint32_t, 4> in;
  for (std::size_t k = 0; k < 4; ++k) in[k] = b.input(b.operand(k + 1), Type::kB32);
  std::uint32_t d = b.output(b.operand(0), Type::kB32), p = b.predicate_output(b.operand(0).second);
  if (b.ok()) b.emit(ins, {d, p}, {in[0], in[1], in[2], in[3]});
  return true;
}

bool decode_vote(Opcode& op, Builder& b) {
  if (!op.take("sync")) return false;
  Ins ins = exec_ins(&exec_vote);
  ins.detail = op.take("all")      ? 0
               : op.take("any")    ? 1
               : op.take("uni")    ? 2
               : op.take("ballot") ? 3
                                   : 9;
  if (ins.detail == 9 || !op.take(ins.detail == 3 ? "b32" : "pred")) return false;
  std::uint32_t p = b.input(b.operand(1), Type::kPred), members = b.input(b.operand(2), Type::kB32);
  std::uint32_t d = b.output(b.operand(0), ins.detail == 3 ? Type::kB32 : Type::kPred);
  if (b.ok()) b.emit(ins, {d}, {p, members});
  return true;
}

bool decode_match(Opcode& op, Builder& b) {
  Ins ins = exec_ins(&exec_match);
  ins.detail = op.take("any") ? 0 : op.take("all") ? 1 : 9;
  std::optional<Type> type = op.take_type();
  if (!op.take("sync") || ins.detail == 9 || !type) return false;
  ins.register_bytes = static_cast<std::uint8_t>(type_bytes(*type));
  std::uint32_t a = b.input(b.operand(1), *type), members = b.input(b.operand(2), Type::kB32);
  std::uint32_t d = b.output(b.operand(0), Type::kB32), p = b.predicate_output(b.operand(0).second);
  if (b.ok()) b.emit(ins, {d, p}, {a, members});
  return true;
}

bool decode_reduce(Opcode& op, Builder& b) {
  constexpr std::array<std::pair<std::string_view, AtomicOp>, 6> kNames = {{
      {"add", AtomicOp::kAdd},
      {"min", AtomicOp::kMin},
      {"max", AtomicOp::kMax},
      {"and", AtomicOp::kAnd},
      {"or", AtomicOp::kOr},
      {"xor", AtomicOp::kXor},
  }};
  Ins ins = exec_ins(&exec_reduce);
  bool found = false;
  for (const auto& [name, atomic] : kNames) {
    if (!op.take(name)) continue;
    ins.flags = static_cast<std::uint16_t>(atomic);
    found = true;
  }
  std::optional<Type> type = op.take_type();
  if (!op.take("sync") || !found || !type || type_bytes(*type) != 4 || is_float(*type))
    return false;
  ins.type = *type;
  std::uint32_t a = b.input(b.operand(1), *type), members = b.input(b.operand(2), Type::kB32);
  std::uint32_t d = b.output(b.operand(0), *type);
  if (b.ok()) b.emit(ins, {d}, {a, members});
  return true;
}

bool decode_active_mask(Opcode& op, Builder& b) {
  op.take("b32");
  std::uint32_t d = b.output(b.operand(0), Type::kB32);
  if (b.ok()) b.emit(exec_ins(&exec_active_mask), {d}, {});
  return true;
}

bool decode_elect(Opcode& op, Builder& b) {
  if (!op.take("sync")) return false;
  std::uint32_t members = b.input(b.operand(1), Type::kB32);
  std::uint32_t d = b.output(b.operand(0), Type::kB32), p = b.predicate_output(b.operand(0).second);
  if (b.ok()) b.emit(exec_ins(&exec_elect), {d, p}, {members});
  return true;
}

bool decode_reducing_barrier(Opcode& op, Builder& b, Ins ins) {
  BarrierOp kind = op.take("popc")  ? BarrierOp::kRedPopc
                   : op.take("and") ? BarrierOp::kRedAnd
                                    : BarrierOp::kRedOr;
  if (kind == BarrierOp::kRedOr && !op.take("or")) return false;
  Type type = kind == BarrierOp::kRedPopc ? Type::kU32 : Type::kPred;
  if (!op.take(type == Type::kU32 ? "u32" : "pred")) return false;
  ins.detail = static_cast<std::uint8_t>(kind);
  std::size_t last = b.operand_count() - 1;
  std::uint32_t d = b.output(b.operand(0), type), id = b.input(b.operand(1), Type::kU32);
  std::uint32_t threads = last == 3 ? b.input(b.operand(2), Type::kU32) : kNone;
  std::uint32_t p = b.input(b.operand(last), Type::kPred);
  if (b.ok()) b.emit(ins, {d}, {id, threads, p});
  return true;
}

bool decode_barrier(Opcode& op, Builder& b) {
  if (op.take("warp")) {
    if (!op.take("sync")) return false;
    std::uint32_t members = b.input(b.operand(0), Type::kB32);
    if (b.ok()) b.emit(exec_ins(&exec_warp_barrier), {}, {members});
    return true;
  }
  op.take("cta");
  op.take("aligned");
  Ins ins;
  ins.kind = InsKind::kBarrier;
  if (op.take("red")) return decode_reducing_barrier(op, b, ins);
  bool arrive = op.take("arrive");
  if (!arrive && !op.take("sync")) return false;
  ins.detail = static_cast<std::uint8_t>(arrive ? BarrierOp::kArrive : BarrierOp::kSync);
  std::uint32_t id = b.input(b.operand(0), Type::kU32);
  std::uint32_t threads = b.operand_count() > 1 ? b.input(b.operand(1), Type::kU32) : kNone;
  if (arrive && threads == kNone) b.fail("bar.arrive without a thread count");
  if (b.ok()) b.emit(ins, {kNone}, {id, threads, kNone});
  return true;
}

}  // namespace

DecodeFn find_warp_decoder(std::string_view base) {
  if (base == "shfl") return &decode_shuffle;
  if (base == "vote") return &decode_vote;
  if (base == "match") return &decode_match;
  if (base == "redux") return &decode_reduce;
  if (base == "activemask") return &decode_active_mask;
  if (base == "elect") return &decode_elect;
  return base == "bar" || base == "barrier" ? &decode_barrier : nullptr;
}

}  // namespace attnloom::sim
