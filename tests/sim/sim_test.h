// SPDX-License-Identifier: Apache-2.0
// What the tests of the simulated device share: small kernels as PTX text, and runs of them.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/device.h"
#include "sim/program.h"

namespace attnloom::sim {

// A kernel "k" with parameters in, out and n (32 bits) and many registers of each kind. `in` and
// `out` are loaded into %in and %out, n into %n, the thread's index into %t.
std::string kernel_text(std::string_view body, std::string_view module_scope = "");

struct RunSetup {
  std::vector<std::uint32_t> in;
  std::size_t out_words = 32;
  bool out_written = false;  // zeros from the host
  std::uint32_t n = 0;
  unsigned grid = 1;
  unsigned block = 32;
  unsigned shared_bytes = 0;
  Options options;
  Isa isa = best_isa();
};

struct RunResult {
  std::vector<std::uint32_t> out;
  Report report;

  std::uint64_t count(std::string_view kind) const;  // over all places
  const Finding* find(std::string_view kind) const;
};

// What a test gives to a kernel and gets back: `in` or one zero, and an output that is zero where
// the host wrote it.
struct RunBuffers {
  std::uint64_t in = 0, out = 0;
};
RunBuffers make_buffers(Memory& memory, const std::vector<std::uint32_t>& in, std::size_t out_words,
                        bool out_written);
// On the simulated H200; then reads `out`.
RunResult launch_k(const Module& module, Memory& memory, LaunchConfig config,
                   const Options& options, std::uint64_t out, std::size_t out_words);

RunResult run(std::string_view body, const RunSetup& setup, std::string_view module_scope = "");

// d = op(a, b, c), lane by lane, on every instruction set of this machine, which must agree. The
// body reads %a, %b, %c (32 bits) or %wa, %wb (64 bits, from a | b << 32 and c | d << 32) and
// writes %d, or %wd if `wide`.
struct LaneCase {
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
};
std::vector<std::uint64_t> lanes(std::string_view body, const std::vector<LaneCase>& cases,
                                 bool wide = false);

inline std::uint32_t bits(float f) {
  std::uint32_t u;
  std::memcpy(&u, &f, 4);
  return u;
}
inline std::uint64_t bits(double f) {
  std::uint64_t u;
  std::memcpy(&u, &f, 8);
  return u;
}
inline float as_float(std::uint64_t u) {
  auto x = static_cast<std::uint32_t>(u);
  float f;
  std::memcpy(&f, &x, 4);
  return f;
}

}  // namespace attnloom::sim
