// SPDX-License-Identifier: Apache-2.0
// The Builder's walk over statements: functions, jumps, expanded calls.
#include <algorithm>

#include "sim/decode/builder.h"
#include "sim/machine/exec.h"

namespace attnloom::sim {
namespace {

constexpr int kDeepestCall = 16;

DecodeFn find_decoder(std::string_view base) {
  for (auto find : {&find_lane_decoder, &find_memory_decoder, &find_copy_decoder,
                    &find_warp_decoder, &find_control_decoder, &find_async_decoder}) {
    if (DecodeFn decoder = find(base)) return decoder;
  }
  return nullptr;
}

// "mov.u32 %r, %clock": a register that changes while the kernel runs is read by an instruction of
// its own.
bool is_clock(const PtxStatement& s) {
  if (!s.opcode.starts_with("mov.") || s.operands.size() != 2) return false;
  const PtxOperand& from = s.operands[1];
  return from.kind == PtxOperand::Kind::kSpecial &&
         (from.text.starts_with("%clock") || from.text.starts_with("%globaltimer"));
}

}  // namespace

void Builder::layout_parameters(const PtxFunction& function) {
  for (std::uint32_t id : function.parameters) {
    const PtxSymbol& s = module_.symbols[id];
    std::uint32_t align = std::max<std::uint32_t>(s.align_bytes, 1);
    parameter_bytes_ = (parameter_bytes_ + align - 1) / align * align;
    parameter_offset_[id] = parameter_bytes_;
    parameter_bytes_ += static_cast<std::uint32_t>(s.bytes);
  }
}

Status Builder::decode_entry(const PtxFunction& function) {
  entry_name_ = function.name;
  threads_limit_ = function.threads_limit;
  registers_limit_ = function.registers_limit;
  ctas_per_sm_ = function.ctas_per_sm;
  layout_parameters(function);
  Instance instance;
  instance.function = &function;
  decode_function(instance);
  return status_;
}

void Builder::decode_function(Instance& instance) {
  Instance* caller = instance_;
  const PtxStatement* call_site = statement_;
  instance_ = &instance;
  instance.caller = caller;
  instance.first_register = static_cast<std::uint32_t>(slots_.size());
  for (const PtxRegister& r : instance.function->registers) {
    temporary(r.type == Type::kPred ? 1 : static_cast<std::uint8_t>(register_bytes(r.type)));
  }
  for (const PtxStatement& s : instance.function->statements) {
    if (!ok()) break;
    instance.start.push_back(static_cast<std::uint32_t>(drafts_.size()));
    statement_ = &s;
    decode_statement();
  }
  if (caller == nullptr) {
    PtxStatement end;  // a thread that runs off the end is done
    end.line = statement_ != nullptr ? statement_->line : 0;
    statement_ = &end;
    Ins ins;
    ins.kind = InsKind::kExit;
    ins.weight = 0;
    emit(ins, {}, {});
  }
  if (ok()) settle_jumps(instance);
  statement_ = call_site;
  instance_ = caller;
}

void Builder::decode_statement() {
  const PtxStatement& s = *statement_;
  if (is_clock(s)) {
    bool wide = s.opcode.ends_with("64");
    Ins ins;
    ins.kind = InsKind::kExec;
    ins.exec = &exec_clock;
    ins.register_bytes = wide ? 8 : 4;
    std::uint32_t d = output(s.operands[0], wide ? Type::kU64 : Type::kU32);
    if (ok()) emit(ins, {d}, {});
    return;
  }
  Opcode op(s.opcode);
  DecodeFn decoder = find_decoder(op.base());
  if (decoder == nullptr) return fail("unknown opcode");
  if (!decoder(op, *this))
    return fail(op.empty() ? "unknown form"
                           : "unknown form, at '." + std::string(op.front()) + "'");
  if (!op.empty()) return fail("unknown modifier '." + std::string(op.front()) + "'");
  settle_outputs();
}

void Builder::jump(std::string_view label) {
  std::uint32_t target = instance_->function->find_label(statement_->scope, label);
  if (target == kNone) return fail("unknown label '" + std::string(label) + "'");
  Ins ins;
  ins.kind = InsKind::kBranch;
  instance_->jumps.emplace_back(static_cast<std::uint32_t>(drafts_.size()), target);
  emit(ins, {}, {});
}

void Builder::leave() {
  Ins ins;
  ins.kind = InsKind::kExit;
  if (!in_entry()) {
    ins.kind = InsKind::kBranch;
    instance_->jumps.emplace_back(static_cast<std::uint32_t>(drafts_.size()), kNone);
  }
  emit(ins, {}, {});
}

void Builder::jump_table(std::uint32_t index_slot, std::string_view label) {
  const std::vector<std::string_view>* names =
      instance_->function->find_targets(statement_->scope, label);
  if (names == nullptr || names->empty())
    return fail("unknown list of targets '" + std::string(label) + "'");
  Ins ins;
  ins.kind = InsKind::kBranchTable;
  ins.imm = static_cast<std::int64_t>(names->size());
  Draft& draft = emit(ins, {}, {index_slot});
  for (std::string_view name : *names) {
    std::uint32_t target = instance_->function->find_label(statement_->scope, name);
    if (target == kNone) return fail("unknown label '" + std::string(name) + "'");
    draft.table.push_back(target);
  }
  instance_->tables.push_back(static_cast<std::uint32_t>(drafts_.size() - 1));
}

void Builder::settle_jumps(Instance& instance) {
  auto end = static_cast<std::uint32_t>(drafts_.size());
  auto start_of = [&](std::uint32_t statement) {
    return statement < instance.start.size() ? instance.start[statement]
           : instance.caller == nullptr      ? end - 1
                                             : end;
  };
  for (auto [draft, statement] : instance.jumps) drafts_[draft].ins.target = start_of(statement);
  for (std::uint32_t draft : instance.tables) {
    for (std::uint32_t& target : drafts_[draft].table) target = start_of(target);
  }
}

void Builder::call(const PtxFunction& callee, std::span<const PtxOperand> results,
                   std::span<const PtxOperand> arguments) {
  int depth = 0;
  for (const Instance* at = instance_; at != nullptr; at = at->caller, ++depth) {
    if (at->function == &callee || depth > kDeepestCall)
      return fail("recursive or too deep call of " + std::string(callee.name));
  }
  if (results.size() != callee.results.size() || arguments.size() != callee.parameters.size())
    return fail("argument count");
  Instance instance;
  instance.function = &callee;
  auto bind = [&](std::span<const PtxOperand> given, const std::vector<std::uint32_t>& wanted) {
    for (std::size_t k = 0; k < given.size(); ++k) {
      if (given[k].kind != PtxOperand::Kind::kSymbol)
        return fail("an argument that is no .param variable");
      instance.frame[wanted[k]] = frame_offset(given[k].id);
    }
  };
  bind(results, callee.results);
  bind(arguments, callee.parameters);
  if (!ok()) return;
  std::size_t skip = drafts_.size();
  bool guarded = statement_->guard != kNone;
  if (guarded) {
    Ins around;
    around.kind = InsKind::kBranch;
    around.weight = 0;
    Draft& draft = emit(around, {}, {});
    draft.ins.guard_negated = !draft.ins.guard_negated;
  }
  decode_function(instance);
  if (guarded && ok()) drafts_[skip].ins.target = static_cast<std::uint32_t>(drafts_.size());
}

}  // namespace attnloom::sim
