// SPDX-License-Identifier: Apache-2.0
// Loads, stores, atomics, fences and addresses.
#include <array>
#include <charconv>
#include <string>

#include "sim/decode/builder.h"
#include "sim/machine/exec.h"

namespace attnloom::sim {
namespace {

using Kind = PtxOperand::Kind;

Space take_space(Opcode& op) {
  if (op.take("global")) return Space::kGlobal;
  if (op.take("shared::cta") || op.take("shared")) return Space::kShared;
  if (op.take("param::entry") || op.take("param::func") || op.take("param")) return Space::kParam;
  if (op.take("const")) return Space::kConst;
  return op.take("local") ? Space::kLocal : Space::kGeneric;
}

std::uint8_t take_order(Opcode& op, Order otherwise) {
  Order order = otherwise;
  // volatile is relaxed with the widest scope; .mmio likewise.
  if (op.take("volatile") || op.take("relaxed")) order = Order::kRelaxed;
  op.take("mmio");
  op.take("weak");
  if (op.take("acquire")) order = Order::kAcquire;
  if (op.take("release")) order = Order::kRelease;
  if (op.take("acq_rel")) order = Order::kAcqRel;
  Scope scope = op.take("cta") ? Scope::kCta : Scope::kGpu;
  if (op.take("gpu") || op.take("sys") || op.take("cluster")) scope = Scope::kGpu;
  return pack_order(order, scope);
}

// Cache operators and hints change speed only. True if the hint adds a policy operand.
bool take_cache_hints(Opcode& op) {
  for (std::string_view hint : {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc"}) op.take(hint);
  while (op.take_prefix("L1::")) {
  }
  bool policy = op.take("L2::cache_hint");
  while (op.take_prefix("L2::")) {
  }
  return policy;
}

std::uint8_t take_vector(Opcode& op) {
  if (op.take("v2")) return 2;
  if (op.take("v4")) return 4;
  return op.take("v8") ? 8 : 1;
}

// Registers of a vector or of one value. Wider registers than the type are allowed here, so they
// are taken as they are and the access extends or cuts the value.
bool data_registers(Builder& b, const PtxOperand& operand, Type type, bool is_output,
                    std::vector<std::uint32_t>& slots, Ins& ins) {
  std::span<const PtxOperand> items(&operand, 1);
  if (operand.kind == Kind::kVector) items = operand.items;
  ins.register_bytes = 0;
  for (const PtxOperand& item : items) {
    std::uint32_t slot = item.kind == Kind::kRegister ? b.raw(item)
                         : is_output                  ? b.output(item, type)
                                                      : b.input(item, type);
    if (!b.ok()) return false;
    std::uint8_t bytes = b.slot_bytes(slot);
    if (bytes < register_bytes(type) || (ins.register_bytes != 0 && ins.register_bytes != bytes))
      return false;
    ins.register_bytes = bytes;
    slots.push_back(slot);
  }
  return slots.size() == ins.count;
}

bool decode_load_store(Opcode& op, Builder& b) {
  bool is_load = op.base() != "st";
  Ins ins;
  ins.kind = InsKind::kExec;
  ins.exec = is_load ? &exec_load : &exec_store;
  ins.detail = take_order(op, Order::kWeak);
  take_cache_hints(op);
  Space space = take_space(op);
  ins.count = take_vector(op);
  std::optional<Type> type = op.take_type();
  if (!type || type_bytes(*type) > 8) return false;
  ins.type = *type;
  ins.element_bytes = static_cast<std::uint8_t>(type_bytes(*type));
  std::vector<std::uint32_t> data;
  std::uint32_t address = b.address(b.operand(is_load ? 1 : 0), space, ins);
  if (!b.ok()) return true;
  if (!data_registers(b, b.operand(is_load ? 0 : 1), *type, is_load, data, ins)) return false;
  if (is_load) {
    b.emit(ins, data, std::array{address});
  } else {
    data.insert(data.begin(), address);
    b.emit(ins, {}, data);
  }
  return true;
}

std::optional<AtomicOp> take_atomic(Opcode& op) {
  constexpr std::array<std::pair<std::string_view, AtomicOp>, 10> kNames = {{
      {"add", AtomicOp::kAdd},
      {"exch", AtomicOp::kExch},
      {"cas", AtomicOp::kCas},
      {"min", AtomicOp::kMin},
      {"max", AtomicOp::kMax},
      {"inc", AtomicOp::kInc},
      {"dec", AtomicOp::kDec},
      {"and", AtomicOp::kAnd},
      {"or", AtomicOp::kOr},
      {"xor", AtomicOp::kXor},
  }};
  for (const auto& [name, atomic] : kNames) {
    if (op.take(name)) return atomic;
  }
  return std::nullopt;
}

bool is_atomic_type(AtomicOp op, Type type) {
  if (is_float(type)) return op == AtomicOp::kAdd && (type == Type::kF32 || type == Type::kF64);
  return type_bytes(type) == 4 || type_bytes(type) == 8;
}

bool decode_atomic(Opcode& op, Builder& b) {
  bool has_result = op.base() == "atom";
  Ins ins;
  ins.kind = InsKind::kExec;
  ins.exec = &exec_atomic;
  ins.detail = take_order(op, Order::kRelaxed);
  take_cache_hints(op);
  Space space = take_space(op);
  std::optional<AtomicOp> atomic = take_atomic(op);
  op.take("noftz");
  std::optional<Type> type = op.take_type();
  if (!atomic || !type || !is_atomic_type(*atomic, *type)) return false;
  ins.type = *type;
  ins.element_bytes = ins.register_bytes = static_cast<std::uint8_t>(type_bytes(*type));
  std::size_t first = has_result ? 1 : 0;
  std::uint32_t address = b.address(b.operand(first), space, ins);
  ins.flags |= static_cast<std::uint16_t>(*atomic);
  std::uint32_t x = b.input(b.operand(first + 1), *type);
  std::uint32_t y = *atomic == AtomicOp::kCas ? b.input(b.operand(first + 2), *type) : kNone;
  std::uint32_t old = has_result ? b.output(b.operand(0), *type) : kNone;
  if (b.ok()) b.emit(ins, {old}, {address, x, y});
  return true;
}

bool decode_fence(Opcode& op, Builder& b) {
  if (!op.empty() && (op.front() == "proxy" || op.front() == "mbarrier_init"))
    return decode_async_fence(op, b);
  Ins ins;
  ins.kind = InsKind::kExec;
  ins.exec = &exec_fence;
  if (op.base() == "membar") {
    Scope scope = op.take("cta") ? Scope::kCta : Scope::kGpu;
    op.take("gl");
    op.take("sys");
    ins.detail = pack_order(Order::kAcqRel, scope);
  } else {
    op.take("sc");
    ins.detail = take_order(op, Order::kAcqRel);
  }
  b.emit(ins, {}, {});
  return true;
}

std::uint64_t window_of(Space space) {
  switch (space) {
    case Space::kShared:
      return kSharedWindow;
    case Space::kLocal:
      return kLocalWindow;
    case Space::kParam:
      return kParamWindow;
    default:
      return 0;  // global and const addresses are generic ones already
  }
}

bool decode_cvta(Opcode& op, Builder& b) {
  bool to_space = op.take("to");
  Space space = take_space(op);
  std::optional<Type> type = op.take_type();
  if (!type || type_bytes(*type) != 8) return false;
  bool is_local_parameter = space == Space::kParam && !b.in_entry();
  std::uint64_t window = window_of(is_local_parameter ? Space::kLocal : space);
  std::uint32_t a = b.input(b.operand(1), Type::kU64), d = b.output(b.operand(0), Type::kU64);
  if (!b.ok()) return true;
  b.emit_lane({to_space ? LaneOp::kSub : LaneOp::kAdd, Type::kU64}, {d},
              {a, b.constant(8, window)});
  return true;
}

bool decode_isspacep(Opcode& op, Builder& b) {
  Ins ins;
  ins.kind = InsKind::kExec;
  ins.exec = &exec_is_space;
  ins.space = take_space(op);
  std::uint32_t a = b.input(b.operand(1), Type::kU64), p = b.output(b.operand(0), Type::kPred);
  if (b.ok()) b.emit(ins, {p}, {a});
  return true;
}

// Hints without effect here: prefetch.*, applypriority, discard is refused because it destroys
// data.
bool decode_hint(Opcode& op, Builder& b) {
  take_space(op);
  take_cache_hints(op);
  while (!op.empty()) op.take(op.front());
  Ins ins;
  ins.kind = InsKind::kNothing;
  b.emit(ins, {}, {});
  return true;
}

bool decode_createpolicy(Opcode& op, Builder& b) {
  while (!op.empty()) op.take(op.front());
  std::uint32_t d = b.output(b.operand(0), Type::kB64);
  if (b.ok()) b.emit_lane({LaneOp::kMov, Type::kB64}, {d}, {b.constant(8, 0), kNone});
  return true;
}

}  // namespace

DecodeFn find_memory_decoder(std::string_view base) {
  if (base == "ld" || base == "st" || base == "ldu") return &decode_load_store;
  if (base == "atom" || base == "red") return &decode_atomic;
  if (base == "fence" || base == "membar") return &decode_fence;
  if (base == "cvta") return &decode_cvta;
  if (base == "isspacep") return &decode_isspacep;
  if (base == "prefetch" || base == "prefetchu" || base == "applypriority") return &decode_hint;
  return base == "createpolicy" ? &decode_createpolicy : nullptr;
}

}  // namespace attnloom::sim
