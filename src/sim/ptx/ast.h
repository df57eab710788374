// SPDX-License-Identifier: Apache-2.0
// A PTX module as text structure: names are resolved (registers, variables, labels), instructions
// are not decoded. Every string_view points into the text given to parse_ptx, which must outlive
// the module.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sim/ptx/types.h"

namespace attnloom::sim {

inline constexpr std::uint32_t kNone = ~0u;

struct PtxOperand {
  enum class Kind : std::uint8_t {
    kRegister,   // id
    kSpecial,    // text "%tid.x"
    kImmediate,  // text "0f3F800000", "-72"
    kSymbol,     // id
    kName,       // text: a label or a function
    kAddress,    // items[0] is the base, offset; further items are coordinates
    kVector,     // items
    kSink,       // "_"
  };
  Kind kind = Kind::kSink;
  bool negated = false;          // "!%p1"
  std::uint32_t id = kNone;      // register of the function, or symbol of the module
  std::uint32_t second = kNone;  // the register behind '|': "%r1|%p2"
  std::int64_t offset = 0;
  std::string_view text;
  std::vector<PtxOperand> items;
};

struct PtxStatement {
  std::string_view opcode;  // "add.s32"
  std::vector<PtxOperand> operands;
  std::uint32_t guard = kNone;  // register
  bool guard_negated = false;
  std::uint32_t line = 0;   // of the PTX text, from 1
  std::uint32_t place = 0;  // index into PtxModule::places
  std::uint32_t scope = 0;
};

// A variable or a parameter.
struct PtxSymbol {
  std::string_view name;
  Space space = Space::kGlobal;
  std::uint32_t align_bytes = 1;
  std::uint64_t bytes = 0;            // 0: dynamic shared memory
  std::vector<std::uint8_t> initial;  // empty: zeros
  std::vector<std::pair<std::uint64_t, std::string_view>>
      pointers;  // offset of an 8-byte address of a symbol
};

struct PtxRegister {
  Type type = Type::kB32;
};

struct PtxFunction {
  std::string_view name;
  bool is_entry = false;
  bool has_body = false;
  std::uint32_t threads_limit = 0;        // .maxntid or .reqntid; 0: none
  std::uint32_t registers_limit = 0;      // .maxnreg; 0: none
  std::uint32_t ctas_per_sm = 1;          // .minnctapersm
  std::vector<std::uint32_t> parameters;  // symbols
  std::vector<std::uint32_t> results;     // symbols
  std::vector<PtxRegister> registers;
  std::vector<PtxStatement> statements;
  std::vector<std::uint32_t> scope_parent;  // by scope; kNone for the outermost
  // Labels by (scope, name): index of the statement that follows.
  std::map<std::pair<std::uint32_t, std::string_view>, std::uint32_t> labels;
  // ".branchtargets" lists, by (scope, name).
  std::map<std::pair<std::uint32_t, std::string_view>, std::vector<std::string_view>> targets;

  // kNone if there is no such label in the scope or around it.
  std::uint32_t find_label(std::uint32_t scope, std::string_view name) const;
  const std::vector<std::string_view>* find_targets(std::uint32_t scope,
                                                    std::string_view name) const;
};

// A ".loc" line: file numbers are those of ".file".
struct PtxPlace {
  std::uint32_t file = 0, line = 0;
  std::uint32_t caller_file = 0, caller_line = 0;  // inlined_at; 0: not inlined
};

struct PtxModule {
  std::string_view target;  // "sm_90a"
  std::vector<PtxSymbol> symbols;
  std::vector<PtxFunction> functions;
  std::vector<PtxPlace> places;  // places[0] is "nowhere"
  std::map<std::uint32_t, std::string_view> files;

  const PtxFunction* find_function(std::string_view name) const;
};

Result<PtxModule> parse_ptx(std::string_view text);

}  // namespace attnloom::sim
