// SPDX-License-Identifier: Apache-2.0
// Logits, scaled results and positions as element functors see them (loom/logit.cuh): whatever a
// text does with them must come out as it does with the plain float and int.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/kernel_rig.h"
#include "render/embedded.h"
#include "render/headers.h"
#include "sim/device.h"

namespace attnloom::testing {
namespace {

constexpr double kCap = 3.0;
constexpr int kQueryPosition = 40;

// Of x, the logit, and k, the key's position; `cap` is an f32 param, q_pos is kQueryPosition.
struct Form {
  const char* text;
  double (*exact)(double x, int k);
};

const Form kForms[] = {
    {"return logits;", [](double x, int) { return x; }},
    {"return -logits;", [](double x, int) { return -x; }},
    {"return logits * 2.0f;", [](double x, int) { return 2 * x; }},
    {"return 2 * logits;", [](double x, int) { return 2 * x; }},
    {"return logits / 4.0f;", [](double x, int) { return x / 4; }},
    {"return logits / 4;", [](double x, int) { return x / 4; }},
    {"return 4.0f / logits;", [](double x, int) { return 4 / x; }},
    {"return logits + 1.5f;", [](double x, int) { return x + 1.5; }},
    {"return 1 + logits;", [](double x, int) { return x + 1; }},
    {"return logits - 1u;", [](double x, int) { return x - 1; }},
    {"return 1.0f - logits;", [](double x, int) { return 1 - x; }},
    {"return logits * logits + logits;", [](double x, int) { return x * x + x; }},
    {"return (logits + 1.0f) * 3.0f - 2.0f;", [](double x, int) { return (x + 1) * 3 - 2; }},
    {"return -(logits * 2.0f - 1.0f);", [](double x, int) { return 1 - 2 * x; }},
    {"return (logits + 1.0f) / cap;", [](double x, int) { return (x + 1) / kCap; }},
    {"return cap * logits;", [](double x, int) { return kCap * x; }},
    {"return logits * cap + cap;", [](double x, int) { return kCap * x + kCap; }},
    {"return cap * (float)logits;", [](double x, int) { return kCap * x; }},
    {"float x = logits; return x * cap - x;", [](double x, int) { return x * kCap - x; }},
    {"auto x = cap * fabsf(logits); x = x + 1.0f; return x;",
     [](double x, int) { return kCap * std::fabs(x) + 1; }},
    {"auto x = logits; x += 1.0f; x *= 2.0f; x -= 3.0f; x /= 4.0f; return x;",
     [](double x, int) { return ((x + 1) * 2 - 3) / 4; }},
    {"logits = logits * 2.0f; logits = fmaxf(logits, 0.0f); return logits + 1.0f;",
     [](double x, int) { return std::fmax(2 * x, 0.0) + 1; }},
    {"return logits > 0.0f ? logits : 0.25f * logits;",
     [](double x, int) { return x > 0 ? x : x / 4; }},
    {"return logits < 0.0f ? 0.0f : logits;", [](double x, int) { return x < 0 ? 0 : x; }},
    {"if (kv_pos & 1) return cap * 1.0f; return logits;",
     [](double x, int k) { return k % 2 != 0 ? kCap : x; }},
    {"return max(logits, 0.5f) + min(kv_pos, 3);",
     [](double x, int k) { return std::fmax(x, 0.5) + std::min(k, 3); }},
    {"return loom::exp(logits);", [](double x, int) { return std::exp(x); }},
    {"return loom::exp(logits - 1.0f);", [](double x, int) { return std::exp(x - 1); }},
    {"return loom::sigmoid(logits);", [](double x, int) { return 1 / (1 + std::exp(-x)); }},
    {"return loom::sigmoid(logits + cap);",
     [](double x, int) { return 1 / (1 + std::exp(-x - kCap)); }},
    {"return cap * loom::sigmoid(1.0f);", [](double, int) { return kCap / (1 + std::exp(-1.0)); }},
    {"return kv_pos;", [](double, int k) { return double(k); }},
    {"return q_pos - kv_pos;", [](double, int k) { return double(kQueryPosition - k); }},
    {"return kv_pos - q_pos;", [](double, int k) { return double(k - kQueryPosition); }},
    {"return 0.5f * (q_pos - kv_pos);", [](double, int k) { return (kQueryPosition - k) / 2.0; }},
    {"return (kv_pos - q_pos) * cap;", [](double, int k) { return (k - kQueryPosition) * kCap; }},
    {"return float(kv_pos - q_pos) + float(kv_pos);",
     [](double, int k) { return 2.0 * k - kQueryPosition; }},
    {"return ((q_pos - kv_pos) & 7) + kv_pos % 5 + kv_pos / 3;",
     [](double, int k) { return double(((kQueryPosition - k) & 7) + k % 5 + k / 3); }},
    {"return 2 * kv_pos + 0.5f * kv_pos + cap * kv_pos;",
     [](double, int k) { return (2 + 0.5 + kCap) * k; }},
    {"return abs(q_pos - kv_pos) + (kv_pos << 1);",
     [](double, int k) { return double(std::abs(kQueryPosition - k) + 2 * k); }},
    {"kv_pos += 3; kv_pos -= 1; return kv_pos - 1;", [](double, int k) { return k + 1.0; }},
    {"kv_pos = q_pos; return kv_pos;", [](double, int) { return double(kQueryPosition); }},
    {"return kv_pos > 9 && kv_pos != 12 ? 1.0f : 0.0f;",
     [](double, int k) { return k > 9 && k != 12 ? 1.0 : 0.0; }},
    {"const int table[4] = {5, 6, 7, 8}; return table[kv_pos & 3];",
     [](double, int k) { return 5.0 + k % 4; }},
    {"return logits - slopes[1] * (q_pos - kv_pos);",
     [](double x, int k) { return x - 0.75 * (kQueryPosition - k); }},
};

// Every form as a function of its own, like a rendered one; each element has another way of being
// cut into parts.
std::string kernel_text() {
  std::string text =
      "#include \"loom/ops.cuh\"\n"
      "struct Forms {\n  loom::ScalarF32 cap; const float* slopes; int q_pos;\n";
  std::string calls;
  int row = 0;
  for (const Form& form : kForms) {
    const std::string name = "form" + std::to_string(row);
    const std::string body = form.text;
    const bool is_one = body.find("return") == body.rfind("return");
    text += "  __device__ " + std::string(is_one ? "auto " : "float ") + name +
            "(loom::Logit logits, loom::KvPosition kv_pos) const { " + body + " }\n";
    calls +=
        "  out[" + std::to_string(row++) + " * 64 + i] = forms." + name + "(logit, position);\n";
  }
  return text +
         "};\nextern \"C\" __global__ void forms(const float* x, const float* slopes, float* out) "
         "{\n"
         "  const int i = threadIdx.x;\n"
         "  const Forms forms{loom::scalar_f32(0x40400000), slopes, 40};\n"
         "  const loom::Logit logit = i % 2 ? loom::Logit{x[i] * 8.0f, 0.125f} : loom::Logit{x[i] "
         "- "
         "1.0f, 1.0f, 1.0f};\n"
         "  const loom::KvPosition position{{i - i % 8, i % 8}};\n" +
         calls + "}\n";
}

TEST_CASE("a text's arithmetic on logits and positions is that on floats and ints") {
  Source source;
  source.text = kernel_text();
  source.headers = reachable_headers(source.text, embedded_files()).value();
  source.options = {"--gpu-architecture=sm_90a", "-std=c++17"};
  source.target = "sm_90a";
  source.entries = {"forms"};
  const Result<Artifact> artifact = make_test_toolchain()->compile(source);
  INFO(artifact.status().to_string());
  REQUIRE(artifact.ok());
  const auto module = sim::load_module(artifact->ptx);
  REQUIRE(module.ok());

  std::vector<float> x(64);
  for (int i = 0; i < 64; ++i) x[i] = static_cast<float>(i - 32) / 8 + 0.0625f;
  const std::vector<float> slopes = {0.25f, 0.75f};
  std::vector<float> out(64 * std::size(kForms));
  sim::Memory memory;
  struct {
    std::uint64_t x, slopes, out;
  } params = {memory.allocate(x.size() * 4, "x").value(),
              memory.allocate(slopes.size() * 4, "slopes").value(),
              memory.allocate(out.size() * 4, "out").value()};
  REQUIRE(memory.write(params.x, std::as_bytes(std::span(x))).ok());
  REQUIRE(memory.write(params.slopes, std::as_bytes(std::span(slopes))).ok());
  sim::LaunchConfig config;
  config.entry = "forms";
  config.block[0] = 64;
  config.params = std::as_bytes(std::span(&params, 1));
  const auto report = sim::launch(*sim::find_profile("h200"), **module, memory, config, {});
  INFO(report.status().to_string());
  REQUIRE(report.ok());
  REQUIRE(memory.read(params.out, std::as_writable_bytes(std::span(out))).ok());
  for (std::size_t f = 0; f < std::size(kForms); ++f) {
    for (int i = 0; i < 64; ++i) {
      INFO(kForms[f].text << " of " << x[i] << ", " << i);
      const double want = kForms[f].exact(x[i], i);
      CHECK(std::fabs(out[f * 64 + i] - want) <= 4e-6 * std::fabs(want) + 1e-6);
    }
  }
}

}  // namespace
}  // namespace attnloom::testing
