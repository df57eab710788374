// SPDX-License-Identifier: Apache-2.0
#include "hopper_kernel.h"

#include "sim/tensor_map.h"

namespace attnloom::sim {
namespace {

constexpr std::uint64_t kSeeds = 20;

std::string text_of(std::string_view body, const std::string& bounds) {
  std::string text = ".version 8.0\n.target sm_90a\n.address_size 64\n";
  text += ".visible .entry k(.param .align 64 .b8 map[128], .param .u64 in, .param .u64 out)\n";
  text += bounds + "\n{\n";
  text += R"(
  .reg .pred %p<16>;
  .reg .b16 %h<16>;
  .reg .b32 %r<64>;
  .reg .b32 %d, %t, %w, %lane;
  .reg .f32 %f<256>;
  .reg .b64 %x<64>;
  .reg .b64 %in, %out, %map;
  ld.param.u64 %in, [in];
  ld.param.u64 %out, [out];
  mov.b64 %map, map;
  cvta.param.u64 %map, %map;
  mov.u32 %t, %tid.x;
  shr.u32 %w, %t, 5;
  and.b32 %lane, %t, 31;
  setp.eq.u32 %p0, %t, 0;
  mov.u32 %d, 0;
)";
  text += body;
  text += "\n  ret;\n}\n";
  return text;
}

}  // namespace

RunResult run_hopper(std::string_view body, const HopperSetup& s) {
  auto module = load_module(text_of(body, s.bounds));
  INFO((module.ok() ? std::string() : module.status().to_string()));
  REQUIRE(module.ok());
  Memory memory;
  const RunBuffers buffers = make_buffers(memory, s.in, s.out_words, s.out_written);
  struct {
    alignas(64) TensorMap map;
    std::uint64_t in, out;
  } params = {};
  params.in = buffers.in;
  params.out = buffers.out;
  if (s.map) {
    TensorMapShape shape = *s.map;
    shape.address = s.map_of_out ? params.out : params.in;
    params.map = encode_tensor_map(shape).value();
  }
  LaunchConfig config;
  config.block[0] = s.block;
  config.dynamic_shared_bytes = s.shared_bytes;
  config.params = std::as_bytes(std::span(&params, 1));
  return launch_k(**module, memory, config, s.options, buffers.out, s.out_words);
}

std::string first_finding(std::string_view body, HopperSetup setup) {
  for (setup.options.seed = 0; setup.options.seed < kSeeds; ++setup.options.seed) {
    RunResult r = run_hopper(body, setup);
    for (const Finding& f : r.report.findings)
      return "seed " + std::to_string(setup.options.seed) + ": " + f.kind + ": " + f.detail;
  }
  return "";
}

std::uint64_t fewest(std::string_view body, HopperSetup setup) {
  std::uint64_t least = ~std::uint64_t{0};
  for (setup.options.seed = 0; setup.options.seed < kSeeds; ++setup.options.seed)
    least = std::min<std::uint64_t>(least, run_hopper(body, setup).report.findings.size());
  return least;
}

std::string init_barrier(int address, int count) {
  return "@%p0 mbarrier.init.shared::cta.b64 [" + std::to_string(address) + "], " +
         std::to_string(count) + "; ";
}

std::string wait_barrier(int address, std::string_view parity) {
  return "{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [" +
         std::to_string(address) + "], " + std::string(parity) + "; @!p bra AGAIN; } ";
}

}  // namespace attnloom::sim
