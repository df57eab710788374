// SPDX-License-Identifier: Apache-2.0
// A decoded instruction. Kept free of library templates: the files of lanes/ are compiled once for
// each instruction set, and a std:: function instantiated there could be the copy that the linker
// keeps for everybody.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sim/ptx/types.h"

namespace attnloom::sim {

inline constexpr int kLanes = 32;

struct Ins;
struct Cta;
struct Warp;
// Lane-wise work on the register file of one warp; `mask` is never 0.
using LaneFn = void (*)(std::byte* registers, const Ins& ins, std::uint32_t mask);
// Work that touches memory, other warps or the checkers.
using ExecFn = void (*)(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
// Work that may have to wait for others: the warp goes on, goes on after others have had a turn, or
// tries the same instruction again when something has happened.
enum class Turn : std::uint8_t { kGoOn, kLater, kAgain };
using WaitFn = Turn (*)(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);

enum class InsKind : std::uint8_t {
  kLane,
  kExec,
  kBranch,       // to target
  kBranchTable,  // to table[register o[0]]
  kExit,
  kBarrier,  // may block the warp
  kWait,     // may end the warp's turn
  kNothing,
};

enum class Rounding : std::uint8_t { kNone, kRn, kRz, kRm, kRp, kRni, kRzi, kRmi, kRpi, kRna };

enum class Compare : std::uint8_t {
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kEqu,
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,
  kNan,
};

enum class Combine : std::uint8_t { kNone, kAnd, kOr, kXor };

// What each field means is said by the decoder of the operation; unused ones are zero.
struct Ins {
  union {
    LaneFn lane = nullptr;
    ExecFn exec;
    WaitFn wait;
  };
  std::uint32_t o[6] =
      {};  // byte offsets of the first operands in the register file; kNone: absent
  const std::uint32_t* more = nullptr;  // all operands
  const std::uint32_t* table = nullptr;
  std::int64_t imm = 0;
  std::uint32_t target = 0;
  std::uint32_t guard = ~0u;  // offset of a predicate
  std::uint32_t line = 0;     // of the PTX text
  std::uint32_t place = 0;    // index into the module's places
  InsKind kind = InsKind::kLane;
  bool guard_negated = false;
  std::uint8_t weight = 1;  // 0: put in by the decoder, not counted
  Space space = Space::kGeneric;
  std::uint8_t count = 1;           // elements of a vector access
  std::uint8_t element_bytes = 4;   // in memory
  std::uint8_t register_bytes = 4;  // of a data operand
  bool address_is_64 = true;
  Type type = Type::kB32;
  Type source = Type::kB32;
  Rounding rounding = Rounding::kNone;
  std::uint8_t detail = 0;
  std::uint16_t flags = 0;
  std::uint8_t outputs = 0;   // of `more`, up to 255
  std::uint8_t operands = 0;  // outputs and inputs, up to 255
};

}  // namespace attnloom::sim
