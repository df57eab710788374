// SPDX-License-Identifier: Apache-2.0
// What a PTX module is after decoding: kernels of Ins over a dense register file [register][32
// lanes]. Immutable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/device.h"
#include "sim/ins.h"
#include "sim/lanes/form.h"
#include "sim/ptx/ast.h"

namespace attnloom::sim {

// Generic addresses of the windows; a thread's own local, shared and parameter memory appear there.
// Global allocations lie between kGlobalBegin and kLocalWindow.
inline constexpr std::uint64_t kGlobalBegin = 0x1000'0000'0000;
inline constexpr std::uint64_t kLocalWindow = 0x7d00'0000'0000;
inline constexpr std::uint64_t kParamWindow = 0x7e00'0000'0000;
inline constexpr std::uint64_t kSharedWindow = 0x7f00'0000'0000;
inline constexpr std::uint64_t kWindowBytes = 0x0001'0000'0000;

enum class Special : std::uint8_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneid,
  kWarpid,
  kNwarpid,
  kSmid,
  kNsmid,
  kGridid,
  kLanemaskEq,
  kLanemaskLt,
  kLanemaskLe,
  kLanemaskGt,
  kLanemaskGe,
  kDynamicSharedBytes,
  kTotalSharedBytes,
  kZero,
  kOne,
};

struct ConstantRow {
  std::uint32_t offset = 0;
  std::uint8_t bytes = 4;
  std::uint64_t value = 0;
};
struct SpecialRow {
  std::uint32_t offset = 0;
  std::uint8_t bytes = 4;
  Special special = Special::kZero;
};
struct SymbolRow {  // the address of a module variable, known when the module meets a Memory
  std::uint32_t offset = 0;
  std::uint8_t bytes = 8;
  std::uint32_t variable = 0;
};

struct Kernel {
  std::string name;
  std::vector<Ins> ins;
  std::vector<std::uint32_t> operands;  // Ins::more and Ins::table point in here
  std::uint32_t register_bytes = 0;     // of one warp
  std::uint32_t constant_bytes = 0;     // its first part: constants, special registers, addresses
  std::vector<ConstantRow> constants;
  std::vector<SpecialRow> specials;
  std::vector<SymbolRow> symbols;
  std::uint32_t parameter_bytes = 0;
  std::uint32_t static_shared_bytes = 0;
  std::uint32_t local_bytes = 0;  // of one thread
  std::uint32_t threads_limit = 0;
  std::uint32_t registers_limit = 0;  // of one thread, where the text says so; 0: it does not
  std::uint32_t ctas_per_sm = 1;      // that the launch bounds ask for
  bool uses_async = false;            // mbarriers, bulk copies, wgmma or setmaxnreg
  bool uses_wgmma = false;
  const ProductOps* products = nullptr;
};

// A .global or .const variable.
struct Variable {
  std::string name;
  bool is_const = false;
  std::uint32_t align_bytes = 1;
  std::uint64_t bytes = 0;
  std::vector<std::uint8_t> initial;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> pointers;  // offset, variable
};

struct Module::State {
  std::uint64_t text_hash =
      0;  // with the variables' names, what identifies their instances in a Memory
  std::string target;
  std::vector<Kernel> kernels;
  std::vector<Variable> variables;
  std::vector<std::string> places;   // "loom/copy.cuh:41"; [0] is empty
  std::vector<std::string> callers;  // "" or where it was inlined

  const Kernel* find(std::string_view name) const;
};

// load_module for a given instruction set, so that tests can compare them.
Result<std::shared_ptr<const Module>> load_module_for(std::string_view ptx, Isa isa);

}  // namespace attnloom::sim
