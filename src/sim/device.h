// SPDX-License-Identifier: Apache-2.0
// The simulated device: executes the PTX of our kernels warp by warp on the CPU, checks what no GPU
// tool checks (happens-before in shared and global memory, copies that were not waited for, reads
// of memory never written) and counts what it did. Not a timing model.
//
// Memory is not thread-safe; one launch at a time uses it. A Module is immutable and may be shared.
// Every random choice comes from Options::seed: the same inputs give the same Report and the same
// bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace attnloom::sim {

// A device that can be simulated. `target` is what NVRTC is asked for; modules of a newer base are
// refused.
struct Profile {
  std::string name;    // "h200"
  std::string target;  // "sm_90a"
  int sm_count = 0;
  int shared_bytes_per_cta = 0;  // the opt-in maximum
  int shared_bytes_per_sm = 0;
  int registers_per_sm = 65536;
};
std::span<const Profile> profiles();  // h200 first: the default
const Profile* find_profile(std::string_view name);

// The device's global memory. Addresses are made up, never host pointers: allocations lie far apart
// (>= 4 GiB) with unmapped gaps, so a wild index cannot land in another buffer.
class Memory {
 public:
  Memory();
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // `label` names the allocation in findings ("k", "plan"). Contents start as 0xFF bytes (NaN in
  // every float type) and count as never written until write(), fill() or a kernel stores to them.
  Result<std::uint64_t> allocate(std::size_t bytes, std::string_view label);
  Status free(std::uint64_t address);
  Status write(std::uint64_t address, std::span<const std::byte> bytes);
  Status read(std::uint64_t address, std::span<std::byte> bytes) const;
  Status fill(std::uint64_t address, std::uint8_t byte, std::size_t bytes);

  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

// A decoded PTX module.
class Module {
 public:
  struct State;
  explicit Module(std::unique_ptr<State> state);
  ~Module();
  bool has_entry(std::string_view name) const;
  const State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};
// Unknown instruction forms are errors (LOAD_FAILED) that name the opcode, the line and the kernel.
Result<std::shared_ptr<const Module>> load_module(std::string_view ptx);

// The address in `memory` of a .global or .const variable of the module (as cuModuleGetGlobal). A
// variable lives in a Memory from its first use there on and is shared by modules of equal text.
Result<std::uint64_t> symbol_address(const Module& module, Memory& memory, std::string_view name);

struct Options {
  std::uint64_t seed = 0;  // order of warps and CTAs, completion time of asynchronous copies
  // Off: values and counters only. What cannot be executed (an access outside memory, a deadlock)
  // is reported still.
  bool checks = true;
};

struct LaunchConfig {
  std::string entry;
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned dynamic_shared_bytes = 0;
  std::span<const std::byte>
      params;  // the kernel's parameter block, laid out as the driver wants it
};

// Findings are grouped: one per (kind, kernel, source place), with how often it was seen.
struct Finding {
  std::string kind;  // "race-shared", "race-lanes", "race-global", "in-flight-read",
                     // "out-of-bounds", "misaligned", "deadlock", "divergent-barrier", ...
  std::string kernel;
  std::string place;   // "loom/copy.cuh:41" where the PTX has line information, else "ptx:1234"
  std::string detail;  // one line: addresses by label and offset, the other party of a race
  std::uint64_t count = 0;
};

struct Counters {
  std::uint64_t instructions = 0;         // warp instructions executed
  std::uint64_t mma = 0;                  // warp-level mma instructions
  std::uint64_t global_load_bytes = 0;    // requested by lanes, cp.async included
  std::uint64_t global_load_sectors = 0;  // 32-byte sectors touched, per instruction
  // Sectors that come from beyond the SM: all of cp.async, and of ld those that a first-level cache
  // of 4096 sectors, one to a set and emptied with each CTA, does not hold.
  std::uint64_t global_fetch_sectors = 0;
  std::uint64_t global_store_bytes = 0;
  std::uint64_t global_store_sectors = 0;
  std::uint64_t shared_wavefronts = 0;   // ld, st, ldmatrix, stmatrix and cp.async writes
  std::uint64_t shared_conflicts = 0;    // wavefronts above the least possible for the bytes moved
  std::uint64_t ldmatrix_conflicts = 0;  // of shared_conflicts; the rest is of ld, st and stmatrix
  std::uint64_t copy_conflicts = 0;      // of shared_conflicts, those of cp.async writes
  std::uint64_t barriers = 0;            // CTA barriers, per warp arrival
  std::uint64_t atomics = 0;             // warp instructions
  std::uint64_t spill_bytes = 0;         // local memory moved
  Counters& operator+=(const Counters& other);
};

struct Report {
  std::vector<Finding> findings;
  Counters counters;
};

// Errors: LAUNCH (bad entry, too much shared memory, bad block), LOAD_FAILED (an instruction not
// supported). Findings are not errors: the launch goes on where it can, and the Report says what
// was seen.
Result<Report> launch(const Profile& profile, const Module& module, Memory& memory,
                      const LaunchConfig& config, const Options& options);

}  // namespace attnloom::sim
