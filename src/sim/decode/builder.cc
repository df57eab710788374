// SPDX-License-Identifier: Apache-2.0
#include "sim/decode/builder.h"

#include <algorithm>
#include <array>

namespace attnloom::sim {
namespace {

using Kind = PtxOperand::Kind;

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return to == 0 ? value : (value + to - 1) / to * to;
}

constexpr std::array<std::pair<std::string_view, Special>, 26> kSpecials = {{
    {"%tid.x", Special::kTidX},
    {"%tid.y", Special::kTidY},
    {"%tid.z", Special::kTidZ},
    {"%ntid.x", Special::kNtidX},
    {"%ntid.y", Special::kNtidY},
    {"%ntid.z", Special::kNtidZ},
    {"%ctaid.x", Special::kCtaidX},
    {"%ctaid.y", Special::kCtaidY},
    {"%ctaid.z", Special::kCtaidZ},
    {"%nctaid.x", Special::kNctaidX},
    {"%nctaid.y", Special::kNctaidY},
    {"%nctaid.z", Special::kNctaidZ},
    {"%laneid", Special::kLaneid},
    {"%warpid", Special::kWarpid},
    {"%nwarpid", Special::kNwarpid},
    {"%smid", Special::kSmid},
    {"%nsmid", Special::kNsmid},
    {"%gridid", Special::kGridid},
    {"%lanemask_eq", Special::kLanemaskEq},
    {"%lanemask_lt", Special::kLanemaskLt},
    {"%lanemask_le", Special::kLanemaskLe},
    {"%lanemask_gt", Special::kLanemaskGt},
    {"%lanemask_ge", Special::kLanemaskGe},
    {"%dynamic_smem_size", Special::kDynamicSharedBytes},
    {"%total_smem_size", Special::kTotalSharedBytes},
    {"%cluster_ctarank", Special::kZero},
}};

}  // namespace

void Builder::fail(std::string cause) {
  if (!ok()) return;
  std::string where = "kernel " + entry_name_;
  if (statement_ != nullptr)
    where +=
        ", ptx:" + std::to_string(statement_->line) + ", '" + std::string(statement_->opcode) + "'";
  status_ = make_error(Code::kLoadFailed,
                       "ptx:" + std::to_string(statement_ != nullptr ? statement_->line : 0),
                       where + ": " + std::move(cause),
                       "The simulator does not execute this form; see src/sim/decode.");
}

const PtxOperand& Builder::operand(std::size_t k) {
  static const PtxOperand kSink;
  if (k < statement_->operands.size()) return statement_->operands[k];
  fail("operand " + std::to_string(k + 1) + " is missing");
  return kSink;
}

std::uint32_t Builder::add_slot(Slot slot) {
  slots_.push_back(slot);
  return static_cast<std::uint32_t>(slots_.size() - 1);
}

std::uint32_t Builder::map_slot(
    std::map<std::pair<std::uint8_t, std::uint64_t>, std::uint32_t>& slots, Slot slot) {
  auto [it, is_new] = slots.try_emplace({slot.bytes, slot.value}, 0);
  if (is_new) it->second = add_slot(slot);
  return it->second;
}

std::uint32_t Builder::constant(std::uint8_t bytes, std::uint64_t value) {
  if (bytes < 8) value &= (std::uint64_t{1} << (8 * bytes)) - 1;
  return map_slot(constants_, {Slot::Kind::kConstant, bytes, value});
}

std::uint32_t Builder::special(Special special, std::uint8_t bytes) {
  return map_slot(specials_, {Slot::Kind::kSpecial, bytes, static_cast<std::uint64_t>(special)});
}

std::uint32_t Builder::temporary(std::uint8_t bytes) {
  return add_slot({Slot::Kind::kValue, bytes, 0});
}

std::uint32_t Builder::special_slot(std::string_view name, std::uint8_t bytes) {
  for (const auto& [text, special] : kSpecials) {
    if (text == name) return this->special(special, bytes);
  }
  // A launch without clusters is one of single-CTA clusters.
  if (name == "%cluster_nctarank" || name.starts_with("%cluster_nctaid."))
    return special(Special::kOne, bytes);
  if (name.starts_with("%cluster_ctaid.")) return special(Special::kZero, bytes);
  fail("special register " + std::string(name));
  return constant(bytes, 0);
}

// Offsets are provisional: dynamic shared memory begins where the static part ends, which is known
// at the end.
std::uint64_t Builder::shared_offset(std::uint32_t symbol) {
  const PtxSymbol& s = module_.symbols[symbol];
  auto [it, is_new] = shared_offset_.try_emplace(symbol, 0);
  if (is_new && s.bytes != 0) {
    shared_bytes_ = round_up(shared_bytes_, std::max<std::uint32_t>(s.align_bytes, 1));
    it->second = shared_bytes_;
    shared_bytes_ += s.bytes;
  }
  return it->second;
}

std::uint32_t Builder::frame_offset(std::uint32_t symbol) {
  auto [it, is_new] = instance_->frame.try_emplace(symbol, 0);
  if (is_new) {
    const PtxSymbol& s = module_.symbols[symbol];
    local_bytes_ = static_cast<std::uint32_t>(
        round_up(local_bytes_, std::max<std::uint32_t>(s.align_bytes, 1)));
    it->second = local_bytes_;
    local_bytes_ += static_cast<std::uint32_t>(s.bytes);
  }
  return it->second;
}

std::uint32_t Builder::symbol_slot(std::uint32_t symbol, std::uint8_t bytes) {
  const PtxSymbol& s = module_.symbols[symbol];
  switch (s.space) {
    case Space::kShared: {
      std::uint64_t offset = shared_offset(symbol);
      if (s.bytes != 0) return constant(bytes, offset);
      std::uint32_t slot =
          add_slot({Slot::Kind::kConstant, bytes, std::max<std::uint64_t>(s.align_bytes, 16)});
      dynamic_shared_.push_back(slot);
      return slot;
    }
    case Space::kParam:
      if (auto it = parameter_offset_.find(symbol); it != parameter_offset_.end())
        return constant(bytes, it->second);
      return constant(bytes, frame_offset(symbol));
    case Space::kLocal:
      return constant(bytes, frame_offset(symbol));
    default:
      return map_slot(symbols_, {Slot::Kind::kSymbol, bytes, variable_of_symbol_[symbol]});
  }
}

std::uint32_t Builder::resize(std::uint32_t slot, Type type, std::uint8_t bytes) {
  std::uint32_t to = temporary(bytes);
  static constexpr std::array<Type, 9> kUnsigned = {Type::kU8,  Type::kU8,  Type::kU16,
                                                    Type::kU32, Type::kU32, Type::kU64,
                                                    Type::kU64, Type::kU64, Type::kU64};
  LaneForm form;
  form.op = LaneOp::kResize;
  form.type = kUnsigned[bytes];
  form.source = bytes < slots_[slot].bytes ? kUnsigned[slots_[slot].bytes] : type;
  Draft* draft = emit_lane(form, {to}, {slot});
  if (draft != nullptr) draft->ins.weight = 0;
  return to;
}

std::uint32_t Builder::raw(const PtxOperand& operand) {
  if (operand.kind == Kind::kRegister) return instance_->first_register + operand.id;
  fail("a register is wanted as operand '" + std::string(operand.text) + "'");
  return constant(4, 0);
}

std::uint32_t Builder::input(const PtxOperand& operand, Type type) {
  auto bytes = static_cast<std::uint8_t>(register_bytes(type));
  switch (operand.kind) {
    case Kind::kRegister: {
      std::uint32_t slot = raw(operand);
      if (operand.negated) {
        if (type != Type::kPred) fail("'!' before something that is no predicate");
        LaneForm form{LaneOp::kNot, Type::kPred};
        std::uint32_t to = temporary(1);
        Draft* draft = emit_lane(form, {to}, {slot, kNone});
        if (draft != nullptr) draft->ins.weight = 0;
        return to;
      }
      if (slots_[slot].bytes == bytes) return slot;
      if (slots_[slot].bytes == 1 || bytes == 1) fail("a predicate meets a number");
      return ok() ? resize(slot, type, bytes) : slot;
    }
    case Kind::kSpecial:
      return special_slot(operand.text, bytes);
    case Kind::kSymbol:
      return symbol_slot(operand.id, bytes);
    case Kind::kImmediate: {
      std::optional<std::uint64_t> value = literal_bits(operand.text, type);
      if (!value) fail("the number '" + std::string(operand.text) + "'");
      if (type == Type::kPred) return constant(1, value.value_or(0) != 0 ? ~std::uint64_t{0} : 0);
      return constant(bytes, value.value_or(0));
    }
    default:
      fail("operand '" + std::string(operand.text) + "'");
      return constant(bytes, 0);
  }
}

std::uint32_t Builder::output(const PtxOperand& operand, Type type) {
  auto bytes = static_cast<std::uint8_t>(register_bytes(type));
  if (operand.kind == Kind::kSink) return temporary(bytes);
  std::uint32_t slot = raw(operand);
  if (!ok() || slots_[slot].bytes == bytes) return slot;
  if (slots_[slot].bytes == 1 || bytes == 1) fail("a predicate meets a number");
  pending_.push_back({slot, temporary(bytes), type});
  return pending_.back().from;
}

std::uint32_t Builder::predicate_output(std::uint32_t register_id) {
  return register_id == kNone ? kNone : instance_->first_register + register_id;
}

std::optional<std::int64_t> Builder::immediate(const PtxOperand& operand) {
  if (operand.kind != Kind::kImmediate) return std::nullopt;
  std::optional<std::uint64_t> value = literal_bits(operand.text, Type::kS64);
  if (!value) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

std::uint32_t Builder::address(const PtxOperand& operand, Space space, Ins& ins) {
  if (operand.kind != Kind::kAddress || operand.items.empty()) {
    fail("an address is wanted");
    return constant(8, 0);
  }
  const PtxOperand& base = operand.items[0];
  ins.imm = operand.offset;
  ins.space = space;
  // Parameters of an expanded call, and what they return, live in the thread's local memory.
  bool is_entry_parameter =
      base.kind == Kind::kSymbol ? parameter_offset_.contains(base.id) : in_entry();
  if (space == Space::kParam && !is_entry_parameter) {
    ins.space = Space::kLocal;
    ins.flags |= kFlagNotCounted;
  }
  if (base.kind == Kind::kRegister) {
    std::uint32_t slot = raw(base);
    ins.address_is_64 = slots_[slot].bytes == 8;
    if (slots_[slot].bytes < 4) fail("an address in a narrow register");
    return slot;
  }
  ins.address_is_64 = true;
  return input(base, Type::kU64);
}

std::uint32_t Builder::wide_address(const PtxOperand& operand, Space space) {
  Ins place;
  std::uint32_t slot = address(operand, space, place);
  if (ok() && slots_[slot].bytes == 4) slot = resize(slot, Type::kU32, 8);
  if (!ok() || place.imm == 0) return slot;
  std::uint32_t to = temporary(8);
  auto displacement = static_cast<std::uint64_t>(place.imm);
  Draft* draft = emit_lane({LaneOp::kAdd, Type::kU64}, {to}, {slot, constant(8, displacement)});
  if (draft != nullptr) draft->ins.weight = 0;
  return to;
}

Draft& Builder::emit(const Ins& ins, std::initializer_list<std::uint32_t> outputs,
                     std::initializer_list<std::uint32_t> inputs) {
  return emit(ins, std::span(outputs.begin(), outputs.size()),
              std::span(inputs.begin(), inputs.size()));
}

Draft& Builder::emit(const Ins& ins, std::span<const std::uint32_t> outputs,
                     std::span<const std::uint32_t> inputs) {
  Draft draft;
  draft.ins = ins;
  draft.ins.line = statement_->line;
  draft.ins.place = statement_->place;
  if (statement_->guard != kNone) {
    draft.ins.guard = instance_->first_register + statement_->guard;
    draft.ins.guard_negated = statement_->guard_negated;
  }
  draft.first = static_cast<std::uint32_t>(operands_.size());
  draft.outputs = static_cast<std::uint16_t>(outputs.size());
  draft.inputs = static_cast<std::uint16_t>(inputs.size());
  operands_.insert(operands_.end(), outputs.begin(), outputs.end());
  operands_.insert(operands_.end(), inputs.begin(), inputs.end());
  drafts_.push_back(std::move(draft));
  return drafts_.back();
}

Draft* Builder::emit_lane(const LaneForm& form, std::initializer_list<std::uint32_t> outputs,
                          std::initializer_list<std::uint32_t> inputs) {
  return emit_lane(form, std::span(outputs.begin(), outputs.size()),
                   std::span(inputs.begin(), inputs.size()));
}

Draft* Builder::emit_lane(const LaneForm& form, std::span<const std::uint32_t> outputs,
                          std::span<const std::uint32_t> inputs) {
  Ins ins;
  ins.kind = InsKind::kLane;
  ins.lane = select_lane(isa_, form);
  ins.type = form.type;
  ins.source = form.source;
  ins.rounding = form.rounding;
  ins.flags = form.flags;
  ins.detail = form.detail;
  if (ins.lane == nullptr) {
    fail("no such operation on this type");
    return nullptr;
  }
  bool by_operation = form.op != LaneOp::kSetp && form.op != LaneOp::kTestp;
  if (by_operation) ins.detail = static_cast<std::uint8_t>(form.op);
  return &emit(ins, outputs, inputs);
}

void Builder::settle_outputs() {
  while (ok() && !pending_.empty()) {
    Pending p = pending_.back();
    pending_.pop_back();
    LaneForm form;
    form.op = LaneOp::kResize;
    form.type = slots_[p.to].bytes == 2   ? Type::kU16
                : slots_[p.to].bytes == 4 ? Type::kU32
                                          : Type::kU64;
    form.source = p.type;
    Draft* draft = emit_lane(form, {p.to}, {p.from});
    if (draft != nullptr) draft->ins.weight = 0;
  }
  pending_.clear();
}

}  // namespace attnloom::sim
