// SPDX-License-Identifier: Apache-2.0
// Builds one kernel: slots (future rows of the register file), instructions, jumps. The decoders of
// the opcodes sit on top of it. The first error sticks.
#pragma once

#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/decode/opcode.h"
#include "sim/program.h"
#include "sim/ptx/parser.h"

namespace attnloom::sim {

// A value that gets a row in the register file.
struct Slot {
  enum class Kind : std::uint8_t { kValue, kConstant, kSpecial, kSymbol };
  Kind kind = Kind::kValue;
  std::uint8_t bytes = 4;   // of one lane; 1: a predicate
  std::uint64_t value = 0;  // constant, Special or variable
};

// An instruction whose operands are still slots.
struct Draft {
  Ins ins;
  std::uint32_t first = 0;  // in Builder::operands
  std::uint16_t outputs = 0;
  std::uint16_t inputs = 0;
  std::vector<std::uint32_t> table;  // targets of a branch table
};

// One use of a function's body: the entry itself, or a call that is expanded in place.
struct Instance {
  const PtxFunction* function = nullptr;
  std::uint32_t first_register = 0;  // slot of register 0
  std::vector<std::uint32_t> start;  // draft of each statement
  std::unordered_map<std::uint32_t, std::uint32_t>
      frame;  // .param and .local symbols to local memory offsets
  std::vector<std::pair<std::uint32_t, std::uint32_t>> jumps;  // draft, statement; kNone: the end
  std::vector<std::uint32_t> tables;  // drafts whose table holds statements
  Instance* caller = nullptr;
};

class Builder {
 public:
  Builder(const PtxModule& module, Isa isa, const std::vector<std::uint32_t>& variable_of_symbol)
      : module_(module), isa_(isa), variable_of_symbol_(variable_of_symbol) {}

  Status decode_entry(const PtxFunction& function);
  Kernel finish();  // REQUIRES: decode_entry was ok. Assigns rows and fills the kernel.

  // For the decoders of the opcodes.
  void fail(std::string cause);
  bool ok() const { return status_.ok(); }
  const PtxStatement& statement() const { return *statement_; }
  const PtxOperand& operand(std::size_t k);  // fails and gives a sink beyond the last one
  std::size_t operand_count() const { return statement_->operands.size(); }

  std::uint32_t input(const PtxOperand& operand,
                      Type type);  // a slot of exactly register_bytes(type)
  std::uint32_t output(const PtxOperand& operand,
                       Type type);               // likewise; a wider register is filled afterwards
  std::uint32_t raw(const PtxOperand& operand);  // the register itself, whatever its size
  std::uint32_t predicate_output(std::uint32_t register_id);  // kNone stays kNone
  std::uint32_t constant(std::uint8_t bytes, std::uint64_t value);
  std::uint32_t special(Special special, std::uint8_t bytes);
  std::uint32_t temporary(std::uint8_t bytes);
  std::uint8_t slot_bytes(std::uint32_t slot) const { return slots_[slot].bytes; }
  std::optional<std::int64_t> immediate(const PtxOperand& operand);

  // Marks of the kernel, and what a product that is under way keeps in its registers: no other
  // value may get their rows before a wgmma.wait_group.
  void note_async() { uses_async_ = true; }
  void note_wgmma() { uses_wgmma_ = true; }
  void keep_until_wgmma_wait(std::uint32_t slot) { wgmma_slots_.push_back(slot); }
  void wait_for_wgmma() {  // before it is emitted
    wgmma_waits_.push_back(static_cast<std::uint32_t>(drafts_.size()));
  }

  // The slot and displacement of "[base+offset]". Symbols become constants or symbol rows.
  std::uint32_t address(const PtxOperand& operand, Space space, Ins& ins);
  // The whole address in 64 bits.
  std::uint32_t wide_address(const PtxOperand& operand, Space space);

  Draft& emit(const Ins& ins, std::initializer_list<std::uint32_t> outputs,
              std::initializer_list<std::uint32_t> inputs);
  Draft& emit(const Ins& ins, std::span<const std::uint32_t> outputs,
              std::span<const std::uint32_t> inputs);
  // Asks for a lane operation and fails if there is none.
  Draft* emit_lane(const LaneForm& form, std::initializer_list<std::uint32_t> outputs,
                   std::initializer_list<std::uint32_t> inputs);
  Draft* emit_lane(const LaneForm& form, std::span<const std::uint32_t> outputs,
                   std::span<const std::uint32_t> inputs);
  void jump(std::string_view label);
  void leave();  // ret: the end of an expanded call, or of the thread
  void jump_table(std::uint32_t index_slot, std::string_view label);
  void call(const PtxFunction& callee, std::span<const PtxOperand> results,
            std::span<const PtxOperand> arguments);

  const PtxModule& module() const { return module_; }
  bool in_entry() const { return instance_->caller == nullptr; }

 private:
  struct Pending {
    std::uint32_t to, from;
    Type type;
  };

  void decode_function(Instance& instance);
  void decode_statement();
  void settle_jumps(Instance& instance);
  void settle_outputs();
  std::uint32_t resize(std::uint32_t slot, Type type, std::uint8_t bytes);
  std::uint32_t symbol_slot(std::uint32_t symbol, std::uint8_t bytes);
  std::uint64_t shared_offset(std::uint32_t symbol);
  std::uint32_t frame_offset(std::uint32_t symbol);
  std::uint32_t special_slot(std::string_view name, std::uint8_t bytes);
  std::uint32_t add_slot(Slot slot);
  std::uint32_t map_slot(std::map<std::pair<std::uint8_t, std::uint64_t>, std::uint32_t>& slots,
                         Slot slot);
  void layout_parameters(const PtxFunction& function);
  void extend_wgmma_waits();
  Kernel describe() const;

  const PtxModule& module_;
  Isa isa_;
  const std::vector<std::uint32_t>& variable_of_symbol_;
  Status status_;

  std::vector<Slot> slots_;
  std::vector<Draft> drafts_;
  std::vector<std::uint32_t> operands_;
  std::vector<Pending> pending_;
  std::map<std::pair<std::uint8_t, std::uint64_t>, std::uint32_t> constants_, specials_, symbols_;

  const PtxStatement* statement_ = nullptr;
  Instance* instance_ = nullptr;
  std::string entry_name_;
  std::uint32_t threads_limit_ = 0, registers_limit_ = 0, ctas_per_sm_ = 1;
  bool uses_async_ = false, uses_wgmma_ = false;
  std::vector<std::uint32_t> wgmma_slots_, wgmma_waits_;  // slots; drafts
  std::unordered_map<std::uint32_t, std::uint32_t> parameter_offset_;
  std::uint32_t parameter_bytes_ = 0;
  std::unordered_map<std::uint32_t, std::uint64_t> shared_offset_;
  std::vector<std::uint32_t> dynamic_shared_;  // constants' slots that move behind the static part
  std::uint64_t shared_bytes_ = 0;
  std::uint32_t local_bytes_ = 0;
};

// The decoder of an opcode takes the modifiers it knows from `op` and emits. False: no such form.
using DecodeFn = bool (*)(Opcode& op, Builder& builder);
DecodeFn find_lane_decoder(std::string_view base);
DecodeFn find_memory_decoder(std::string_view base);
DecodeFn find_copy_decoder(std::string_view base);
DecodeFn find_warp_decoder(std::string_view base);
DecodeFn find_control_decoder(std::string_view base);
DecodeFn find_async_decoder(std::string_view base);
bool decode_bulk_copy(Opcode& op, Builder& builder);
bool decode_copy_arrival(Opcode& op, Builder& builder);
bool decode_async_fence(Opcode& op, Builder& builder);
bool decode_wgmma(Opcode& op, Builder& builder);

}  // namespace attnloom::sim
