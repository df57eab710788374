// SPDX-License-Identifier: Apache-2.0
// The functions of CUDA's math library that functors call, as NVRTC expands them: on the simulated
// device each must stay within the error that the CUDA programming guide states for it, over
// subnormals, infinities and arguments so large that sinf takes its slow path, whose table of 2/pi
// and partial products lie in constant and local memory.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/kernel_rig.h"
#include "sim/device.h"

namespace attnloom::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Function {
  const char* code;  // of x and y
  double (*exact)(double x, double y);
  double ulps;      // of the result; 0: exact
  double absolute;  // allowed as well
  float least, most;
};

double nearest_even(double x) {
  return std::nearbyint(x);
}

const Function kFunctions[] = {
    {"sinf(x)", [](double x, double) { return std::sin(x); }, 2, 0, -kInf, kInf},
    {"cosf(x)", [](double x, double) { return std::cos(x); }, 2, 0, -kInf, kInf},
    {"tanf(x)", [](double x, double) { return std::tan(x); }, 4, 0, -kInf, kInf},
    {"__sinf(x)", [](double x, double) { return std::sin(x); }, 0, 0x1p-21, -3.14f, 3.14f},
    {"__cosf(x)", [](double x, double) { return std::cos(x); }, 0, 0x1p-20, -3.14f, 3.14f},
    {"[&] { float s, c; sincosf(x, &s, &c); return c; }()",
     [](double x, double) { return std::cos(x); }, 2, 0, -kInf, kInf},
    {"[&] { float s, c; __sincosf(x, &s, &c); return s; }()",
     [](double x, double) { return std::sin(x); }, 0, 0x1p-21, -3.14f, 3.14f},
    {"__expf(x)", [](double x, double) { return std::exp(x); }, 2 + 1.173f * 20, 0, -20, 20},
    {"__logf(x)", [](double x, double) { return std::log(x); }, 3, 0x1p-21, 1e-30f, 1e30f},
    {"expf(x)", [](double x, double) { return std::exp(x); }, 2, 0, -kInf, kInf},
    {"exp2f(x)", [](double x, double) { return std::exp2(x); }, 2, 0, -kInf, kInf},
    {"expm1f(x)", [](double x, double) { return std::expm1(x); }, 2, 0, -kInf, kInf},
    {"logf(x)", [](double x, double) { return std::log(x); }, 1, 0, 0, kInf},
    {"log2f(x)", [](double x, double) { return std::log2(x); }, 1.5, 0, 0, kInf},
    {"log1pf(x)", [](double x, double) { return std::log1p(x); }, 1.5, 0, -1, kInf},
    {"powf(fabsf(x), y)", [](double x, double y) { return std::pow(std::fabs(x), y); }, 4, 0, -kInf,
     kInf},
    {"rsqrtf(x)", [](double x, double) { return 1 / std::sqrt(x); }, 2, 0, 0, kInf},
    {"sqrtf(x)", [](double x, double) { return std::sqrt(x); }, 0.5, 0, 0, kInf},
    {"x / y", [](double x, double y) { return x / y; }, 0.5, 0, -kInf, kInf},
    {"__fdividef(x, y)", [](double x, double y) { return x / y; }, 2, 0, -1e30f, 1e30f},
    {"tanhf(x)", [](double x, double) { return std::tanh(x); }, 2, 0, -kInf, kInf},
    {"erff(x)", [](double x, double) { return std::erf(x); }, 2, 0, -kInf, kInf},
    {"fmodf(x, y)", [](double x, double y) { return std::fmod(x, y); }, 0, 0, -kInf, kInf},
    {"floorf(x)", [](double x, double) { return std::floor(x); }, 0, 0, -kInf, kInf},
    {"ceilf(x)", [](double x, double) { return std::ceil(x); }, 0, 0, -kInf, kInf},
    {"truncf(x)", [](double x, double) { return std::trunc(x); }, 0, 0, -kInf, kInf},
    {"rintf(x)", [](double x, double) { return nearest_even(x); }, 0, 0, -kInf, kInf},
    {"roundf(x)", [](double x, double) { return std::round(x); }, 0, 0, -kInf, kInf},
    {"fabsf(x)", [](double x, double) { return std::fabs(x); }, 0, 0, -kInf, kInf},
};

std::vector<float> arguments() {
  std::vector<float> x = {0.0f,       -0.0f,   1.0f,      -1.0f,     0.5f,       1e-40f,  -1e-45f,
                          0.1f,       -0.1f,   2.5f,      3.5f,      -2.5f,      10.0f,   88.0f,
                          -87.0f,     -100.0f, 127.5f,    1e4f,      105615,     -105616, 1e6f,
                          -1e10f,     1e20f,   3.402e38f, -1e38f,    7e15f,      kInf,    -kInf,
                          8388607.5f, 1e-20f,  3.0f,      0.999999f, 1.0000001f, -20.0f};
  for (int k = 0; x.size() < 256; ++k)
    x.push_back(std::ldexp(std::sin(static_cast<float>(k)), k % 40 - 10));
  return x;
}

double ulp_of(double value) {
  const int exponent = value == 0 ? -126 : std::max(std::ilogb(value), -126);
  return std::ldexp(1.0, exponent - 23);
}

std::string difference(const Function& f, float x, float y, float got) {
  if (x < f.least || x > f.most) return {};
  const double want = f.exact(x, y);
  const auto rounded = static_cast<float>(want);
  const bool agrees =
      std::isnan(want) ? std::isnan(got)
      : std::isinf(rounded)
          ? got == rounded
          : std::fabs(got - want) <= f.absolute + f.ulps * ulp_of(want) * (1 + 0x1p-20);
  if (agrees) return {};
  return std::string(f.code) + " of " + std::to_string(x) + ", " + std::to_string(y) + " is " +
         std::to_string(got) + ", not " + std::to_string(want);
}

std::string kernel_text() {
  std::string text =
      "extern \"C\" __global__ void math(const float* in, float* out, int n) {\n"
      "  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
      "  const float x = in[i], y = in[(i * 7 + 3) % n];\n";
  int row = 0;
  for (const Function& f : kFunctions)
    text += "  out[" + std::to_string(row++) + " * n + i] = " + f.code + ";\n";
  return text + "}\n";
}

TEST_CASE("CUDA's math functions keep their stated error on the simulated device") {
  const std::string target = GENERATE("sm_80", "sm_90a");
  const bool fast_math = GENERATE(false, true);  // then only that every form is executed
  Source source;
  source.text = kernel_text();
  source.options = {"--gpu-architecture=" + target, "-std=c++17"};
  if (fast_math) source.options.push_back("--use_fast_math");
  source.target = target;
  source.entries = {"math"};
  const Result<Artifact> artifact = make_test_toolchain()->compile(source);
  INFO(artifact.status().to_string());
  REQUIRE(artifact.ok());
  const auto module = sim::load_module(artifact->ptx);
  INFO(module.status().to_string());
  REQUIRE(module.ok());

  const std::vector<float> x = arguments();
  std::vector<float> y(x.size() * std::size(kFunctions));
  sim::Memory memory;
  struct {
    std::uint64_t in, out;
    int n;
  } params = {memory.allocate(x.size() * 4, "in").value(),
              memory.allocate(y.size() * 4, "out").value(), static_cast<int>(x.size())};
  REQUIRE(memory.write(params.in, std::as_bytes(std::span(x))).ok());
  sim::LaunchConfig config;
  config.entry = "math";
  config.grid[0] = 2;
  config.block[0] = static_cast<unsigned>(x.size()) / 2;
  config.params = std::as_bytes(std::span(&params, 1));
  const auto report = sim::launch(*sim::find_profile("h200"), **module, memory, config, {});
  INFO(report.status().to_string());
  REQUIRE(report.ok());
  CHECK(report->findings.empty());
  if (fast_math) return;
  CHECK(report->counters.spill_bytes > 0);  // the slow path of sinf went through local memory
  REQUIRE(memory.read(params.out, std::as_writable_bytes(std::span(y))).ok());
  for (std::size_t f = 0; f < std::size(kFunctions); ++f) {
    std::string first;
    for (std::size_t i = 0; i < x.size() && first.empty(); ++i)
      first = difference(kFunctions[f], x[i], x[(i * 7 + 3) % x.size()], y[f * x.size() + i]);
    CHECK(first == "");
  }
}

}  // namespace
}  // namespace attnloom::testing
