// SPDX-License-Identifier: Apache-2.0
#include "sim_test.h"

namespace attnloom::sim {

std::string kernel_text(std::string_view body, std::string_view module_scope) {
  std::string text = ".version 8.0\n.target sm_80\n.address_size 64\n";
  text += module_scope;
  text += R"(
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n)
{
  .reg .pred %p<16>;
  .reg .b16 %h<16>;
  .reg .b32 %r<64>;
  .reg .b32 %a, %b, %c, %d, %n, %t;
  .reg .b64 %x<32>;
  .reg .b64 %in, %out, %wa, %wb, %wd;
  ld.param.u64 %in, [in];
  ld.param.u64 %out, [out];
  ld.param.u32 %n, [n];
  mov.u32 %t, %tid.x;
)";
  text += body;
  text += "\n  ret;\n}\n";
  return text;
}

std::uint64_t RunResult::count(std::string_view kind) const {
  std::uint64_t total = 0;
  for (const Finding& f : report.findings) total += f.kind == kind ? f.count : 0;
  return total;
}

const Finding* RunResult::find(std::string_view kind) const {
  for (const Finding& f : report.findings) {
    if (f.kind == kind) return &f;
  }
  return nullptr;
}

RunBuffers make_buffers(Memory& memory, const std::vector<std::uint32_t>& in, std::size_t out_words,
                        bool out_written) {
  const std::vector<std::uint32_t> given = in.empty() ? std::vector<std::uint32_t>(1) : in;
  RunBuffers buffers;
  buffers.in = memory.allocate(given.size() * 4, "in").value();
  buffers.out = memory.allocate(out_words * 4, "out").value();
  REQUIRE(memory.write(buffers.in, std::as_bytes(std::span(given))).ok());
  if (out_written) REQUIRE(memory.fill(buffers.out, 0, out_words * 4).ok());
  return buffers;
}

RunResult launch_k(const Module& module, Memory& memory, LaunchConfig config,
                   const Options& options, std::uint64_t out, std::size_t out_words) {
  config.entry = "k";
  auto report = launch(*find_profile("h200"), module, memory, config, options);
  INFO((report.ok() ? std::string() : report.status().to_string()));
  REQUIRE(report.ok());
  RunResult result;
  result.report = *report;
  result.out.resize(out_words);
  REQUIRE(memory.read(out, std::as_writable_bytes(std::span(result.out))).ok());
  return result;
}

RunResult run(std::string_view body, const RunSetup& s, std::string_view module_scope) {
  auto module = load_module_for(kernel_text(body, module_scope), s.isa);
  INFO((module.ok() ? std::string() : module.status().to_string()));
  REQUIRE(module.ok());
  Memory memory;
  const RunBuffers buffers = make_buffers(memory, s.in, s.out_words, s.out_written);
  struct {
    std::uint64_t in, out;
    std::uint32_t n, unused;
  } params = {buffers.in, buffers.out, s.n, 0};
  LaunchConfig config;
  config.grid[0] = s.grid;
  config.block[0] = s.block;
  config.dynamic_shared_bytes = s.shared_bytes;
  config.params = std::as_bytes(std::span(&params, 1));
  return launch_k(**module, memory, config, s.options, buffers.out, s.out_words);
}

std::vector<std::uint64_t> lanes(std::string_view body, const std::vector<LaneCase>& cases,
                                 bool wide) {
  REQUIRE(cases.size() <= 32);
  RunSetup s;
  for (const LaneCase& c : cases) s.in.insert(s.in.end(), {c.a, c.b, c.c, c.d});
  s.in.resize(128, 0);
  s.out_words = 64;
  std::string text = R"(
  mul.wide.u32 %x30, %t, 16;
  add.u64 %x30, %x30, %in;
  ld.global.v4.u32 {%a, %b, %c, %r60}, [%x30];
  mov.b64 %wa, {%a, %b};
  mov.b64 %wb, {%c, %r60};
  mov.b32 %d, 0;
  mov.b64 %wd, 0;
)";
  text += body;
  text += wide ? "\n" : "\n  cvt.u64.u32 %wd, %d;\n";
  text +=
      "  mul.wide.u32 %x30, %t, 8;\n  add.u64 %x30, %x30, %out;\n  st.global.b64 [%x30], %wd;\n";
  std::vector<std::uint64_t> first;
  for (Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512}) {
    if (!isa_supported(isa)) continue;
    s.isa = isa;
    RunResult r = run(text, s);
    CHECK(r.report.findings.empty());
    std::vector<std::uint64_t> values(32);
    std::memcpy(values.data(), r.out.data(), 256);
    values.resize(cases.size());
    if (first.empty()) first = values;
    CHECK(values == first);
  }
  return first;
}

}  // namespace attnloom::sim
