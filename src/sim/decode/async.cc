// SPDX-License-Identifier: Apache-2.0
// mbarrier, its fences, setmaxnreg and bulk copies.
#include <string>

#include "sim/decode/builder.h"
#include "sim/machine/exec.h"

namespace attnloom::sim {
namespace {

using Kind = PtxOperand::Kind;

Ins of_exec(ExecFn exec) {
  Ins ins;
  ins.kind = InsKind::kExec;
  ins.exec = exec;
  return ins;
}

// A CTA is a cluster of its own here, so its shared memory is the cluster's.
Space take_shared(Opcode& op) {
  bool shared = op.take("shared::cta") || op.take("shared::cluster") || op.take("shared");
  return shared ? Space::kShared : Space::kGeneric;
}

void take_order_and_scope(Opcode& op) {
  for (std::string_view word : {"release", "acquire", "cta", "cluster"}) op.take(word);
}

bool decode_mbarrier_wait(Opcode& op, Builder& b) {
  Ins ins;
  ins.kind = InsKind::kWait;
  ins.wait = &wait_mbarrier;
  ins.detail = op.take("parity") ? 0 : 1;
  take_order_and_scope(op);
  Space space = take_shared(op);
  std::size_t most = op.base() == "mbarrier" && op.text().find("try_wait") != std::string_view::npos
                         ? 4  // with a time limit, which may pass at once
                         : 3;
  if (!op.take("b64") || b.operand_count() < 3 || b.operand_count() > most) return false;
  std::uint32_t address = b.wide_address(b.operand(1), space);
  std::uint32_t phase = b.input(b.operand(2), ins.detail == 0 ? Type::kU32 : Type::kU64);
  std::uint32_t p = b.output(b.operand(0), Type::kPred);
  if (b.ok()) b.emit(ins, {p}, {address, phase});
  return true;
}

// mbarrier.arrive{.expect_tx} state | _, [address]{, bytes | count}; mbarrier.expect_tx [address],
// bytes.
bool decode_mbarrier_arrive(Opcode& op, Builder& b, bool arrives, bool expects) {
  Ins ins = of_exec(&exec_mbarrier_arrive);
  ins.detail = arrives ? 1 : 0;
  take_order_and_scope(op);
  op.take("relaxed");
  Space space = take_shared(op);
  if (!op.take("b64")) return false;
  // Without a result, as a remote arrival is written, the address comes first.
  std::size_t at = b.operand(0).kind == Kind::kAddress ? 0 : 1;
  std::uint32_t address = b.wide_address(b.operand(at), space);
  bool has_number = b.operand_count() > at + 1;
  if (expects && !has_number) return false;
  std::uint32_t number = has_number ? b.input(b.operand(at + 1), Type::kU32) : kNone;
  bool has_state = at == 1 && b.operand(0).kind != Kind::kSink;
  std::uint32_t state = has_state ? b.output(b.operand(0), Type::kB64) : kNone;
  if (b.ok()) b.emit(ins, {state}, {address, expects ? kNone : number, expects ? number : kNone});
  return true;
}

bool decode_mbarrier(Opcode& op, Builder& b) {
  b.note_async();
  if (op.take("try_wait") || op.take("test_wait")) return decode_mbarrier_wait(op, b);
  bool arrives = op.take("arrive"), expects = op.take("expect_tx");
  if (arrives || expects) return decode_mbarrier_arrive(op, b, arrives, expects);
  bool is_init = op.take("init");
  if (!is_init && !op.take("inval")) return false;
  Space space = take_shared(op);
  if (!op.take("b64")) return false;
  std::uint32_t address = b.wide_address(b.operand(0), space);
  if (is_init) {
    std::uint32_t count = b.input(b.operand(1), Type::kU32);
    if (b.ok()) b.emit(of_exec(&exec_mbarrier_init), {}, {address, count});
  } else if (b.ok()) {
    b.emit(of_exec(&exec_mbarrier_inval), {}, {address});
  }
  return true;
}

bool decode_setmaxnreg(Opcode& op, Builder& b) {
  b.note_async();
  Ins ins;
  ins.kind = InsKind::kWait;
  ins.wait = &wait_registers;
  ins.detail = op.take("inc") ? 1 : 0;
  bool known = ins.detail == 1 || op.take("dec");
  known = known && op.take("sync") && op.take("aligned") && op.take("u32");
  std::optional<std::int64_t> count = b.immediate(b.operand(0));
  if (!known || !count || *count < 24 || *count > 256 || *count % 8 != 0) return false;
  ins.imm = *count;
  b.emit(ins, {}, {});
  return true;
}

bool decode_bulk_group(Opcode& op, Builder& b) {
  if (op.take("commit_group")) {
    b.emit(of_exec(&exec_bulk_commit), {}, {});
    return true;
  }
  Ins ins = of_exec(&exec_bulk_wait);
  ins.detail = op.take("read") ? 1 : 0;
  std::optional<std::int64_t> groups = b.immediate(b.operand(0));
  if (!op.take("wait_group") || !groups) return false;
  ins.imm = *groups;
  b.emit(ins, {}, {});
  return true;
}

// The address and the coordinates of "[map, {%r1, %r2}]".
bool tensor_operand(Builder& b, const PtxOperand& operand, std::size_t rank, Ins& ins,
                    std::uint32_t& map, std::vector<std::uint32_t>& coordinates) {
  if (operand.kind != Kind::kAddress || operand.items.size() != 2) return false;
  if (operand.items[1].items.size() != rank) return false;
  map = b.wide_address(operand, Space::kGeneric);
  for (const PtxOperand& c : operand.items[1].items) coordinates.push_back(b.input(c, Type::kS32));
  ins.count = static_cast<std::uint8_t>(rank);
  return true;
}

bool decode_tensor_copy(Opcode& op, Builder& b, bool is_load) {
  std::size_t rank = 0;
  for (std::size_t r = 1; r <= 5; ++r) {
    if (op.take(std::to_string(r) + "d")) rank = r;
  }
  op.take("tile");
  Ins ins = of_exec(is_load ? &exec_tensor_load : &exec_tensor_store);
  std::vector<std::uint32_t> inputs, coordinates;
  std::uint32_t map = kNone;
  if (rank == 0 || !tensor_operand(b, b.operand(is_load ? 1 : 0), rank, ins, map, coordinates))
    return false;
  if (is_load) {
    inputs = {b.wide_address(b.operand(0), Space::kShared), map,
              b.wide_address(b.operand(2), Space::kShared)};
  } else {
    inputs = {map, b.wide_address(b.operand(1), Space::kShared)};
  }
  inputs.insert(inputs.end(), coordinates.begin(), coordinates.end());
  if (b.ok()) b.emit(ins, {}, std::span<const std::uint32_t>(inputs));
  return true;
}

}  // namespace

bool decode_bulk_copy(Opcode& op, Builder& b) {
  b.note_async();
  if (op.text().ends_with("_group") || op.text().ends_with("_group.read"))
    if (!op.text().ends_with(".bulk_group")) return decode_bulk_group(op, b);
  if (op.take("prefetch")) {
    while (!op.empty()) op.take(op.front());
    Ins ins;
    ins.kind = InsKind::kNothing;
    b.emit(ins, {}, {});
    return true;
  }
  op.take("L2::cache_hint");
  bool is_load = op.take("mbarrier::complete_tx::bytes");
  if (!is_load && !op.take("bulk_group")) return false;
  bool known = op.take("global") && take_shared(op) == Space::kShared;
  if (!known) return false;
  if (op.take("tensor")) return decode_tensor_copy(op, b, is_load);
  Ins ins = of_exec(is_load ? &exec_bulk_load : &exec_bulk_store);
  std::uint32_t to = b.wide_address(b.operand(0), is_load ? Space::kShared : Space::kGlobal);
  std::uint32_t from = b.wide_address(b.operand(1), is_load ? Space::kGlobal : Space::kShared);
  std::uint32_t bytes = b.input(b.operand(2), Type::kU32);
  std::uint32_t barrier = is_load ? b.wide_address(b.operand(3), Space::kShared) : kNone;
  if (b.ok()) b.emit(ins, {}, {to, from, bytes, barrier});
  return true;
}

// cp.async.mbarrier.arrive{.noinc} [address].
bool decode_copy_arrival(Opcode& op, Builder& b) {
  b.note_async();
  Ins ins = of_exec(&exec_copy_arrive);
  bool known = op.take("arrive");
  ins.detail = op.take("noinc") ? 1 : 0;
  Space space = take_shared(op);
  if (!known || !op.take("b64")) return false;
  std::uint32_t address = b.wide_address(b.operand(0), space);
  if (b.ok()) b.emit(ins, {}, {address});
  return true;
}

bool decode_async_fence(Opcode& op, Builder& b) {
  if (op.take("mbarrier_init")) {
    if (!op.take("release") || !op.take("cluster")) return false;
    b.note_async();
    b.emit(of_exec(&exec_fence_mbarrier_init), {}, {});
    return true;
  }
  if (!op.take("proxy") || !op.take("async")) return false;
  take_shared(op);
  op.take("global");
  b.emit(of_exec(&exec_fence_proxy), {}, {});
  return true;
}

DecodeFn find_async_decoder(std::string_view base) {
  if (base == "mbarrier") return &decode_mbarrier;
  if (base == "wgmma") return &decode_wgmma;
  return base == "setmaxnreg" ? &decode_setmaxnreg : nullptr;
}

}  // namespace attnloom::sim
