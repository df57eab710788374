// SPDX-License-Identifier: Apache-2.0
// A warp-specialised kernel (ring.cu): right and clean under every order, and each planted fault is
// found under every order.
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "../compile/nvrtc_for_tests.h"
#include "sim/device.h"
#include "sim/tensor_map.h"

namespace attnloom::sim {
namespace {

constexpr std::uint64_t kSeeds = 20;
constexpr int kRows = 4 * 128 - 40, kColumns = 64, kSteps = 5, kK = 64 * kSteps;

std::string file_text() {
  std::ifstream file(std::string(ATTNLOOM_SIM_PTX) + "/../ring.cu");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string compile(int fault) {
  static std::map<int, std::string> known;
  std::string& ptx = known[fault];
  if (!ptx.empty()) return ptx;
  Source source =
      test_source("#define FAULT " + std::to_string(fault) + "\n" + file_text(), {"ring"});
  source.options.push_back("--device-as-default-execution-space");
  auto artifact = test_toolchain()->compile(source);
  INFO(artifact.status().to_string());
  REQUIRE(artifact.ok());
  ptx = artifact->ptx;
  return ptx;
}

std::uint16_t bf16(float f) {
  std::uint32_t u;
  std::memcpy(&u, &f, 4);
  return static_cast<std::uint16_t>((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

int a_at(int row, int k) {
  return (row * 7 + k * 3 + row * k) % 5 - 2;
}
int b_at(int k, int column) {
  return (column * 5 + k * 11 + k * column) % 7 - 3;
}

template <class Value>
std::vector<std::uint16_t> matrix(int rows, int columns, Value value) {
  std::vector<std::uint16_t> m;
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) m.push_back(bf16(static_cast<float>(value(r, c))));
  }
  return m;
}

const std::vector<std::uint16_t>& wanted() {
  static const std::vector<std::uint16_t> product = matrix(kRows, kColumns, [](int r, int c) {
    int sum = 0;
    for (int k = 0; k < kK; ++k) sum += a_at(r, k) * b_at(k, c);
    return sum;
  });
  return product;
}

TensorMap map_of(std::uint64_t address, std::uint64_t rows, std::uint64_t columns,
                 std::uint32_t box_rows, TensorSwizzle swizzle) {
  TensorMapShape shape;
  shape.address = address;
  shape.rank = 2;
  shape.dims = {columns, rows};
  shape.stride_bytes = {columns * 2};
  shape.box = {64, box_rows};
  shape.swizzle = swizzle;
  return encode_tensor_map(shape).value();
}

struct Outcome {
  Report report;
  bool is_right = false;

  const Finding* find(std::string_view kind) const {
    for (const Finding& f : report.findings) {
      if (f.kind == kind) return &f;
    }
    return nullptr;
  }
};

Outcome run_ring(const Module& module, std::uint64_t seed) {
  static const auto a = matrix(kRows, kK, a_at), b = matrix(kK, kColumns, b_at);
  Memory memory;
  std::uint64_t in_a = memory.allocate(a.size() * 2, "a").value(),
                in_b = memory.allocate(b.size() * 2, "b").value(),
                out = memory.allocate(wanted().size() * 2, "out").value();
  REQUIRE(memory.write(in_a, std::as_bytes(std::span(a))).ok());
  REQUIRE(memory.write(in_b, std::as_bytes(std::span(b))).ok());
  struct {
    alignas(64) TensorMap a;  // as in the kernel: the block's size follows
    TensorMap b, out;
    int tiles, steps;
  } params = {map_of(in_a, kRows, kK, 128, TensorSwizzle::k128),
              map_of(in_b, kK, kColumns, 64, TensorSwizzle::k128),
              map_of(out, kRows, kColumns, 64, TensorSwizzle::kNone), 4, kSteps};
  LaunchConfig config;
  config.entry = "ring";
  config.grid[0] = 2;
  config.block[0] = 384;
  config.dynamic_shared_bytes = 2 * 24576 + 16384 + 32;
  config.params = std::as_bytes(std::span(&params, 1));
  Options options;
  options.seed = seed;
  auto report = launch(*find_profile("h200"), module, memory, config, options);
  INFO(report.status().to_string());
  REQUIRE(report.ok());
  Outcome outcome;
  outcome.report = *report;
  std::vector<std::uint16_t> got(wanted().size());
  REQUIRE(memory.read(out, std::as_writable_bytes(std::span(got))).ok());
  outcome.is_right = got == wanted();
  return outcome;
}

std::shared_ptr<const Module> load(const std::string& ptx) {
  auto module = load_module(ptx);
  INFO(module.status().to_string());
  REQUIRE(module.ok());
  return *module;
}

TEST_CASE("The ring is right and clean under every order") {
  const auto module = load(compile(0));
  std::uint64_t instructions = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Outcome o = run_ring(*module, seed);
    for (const Finding& f : o.report.findings)
      UNSCOPED_INFO("seed " << seed << ": " << f.kind << " " << f.place << " " << f.detail);
    CHECK(o.report.findings.empty());
    CHECK(o.is_right);
    instructions = o.report.counters.instructions;
    CHECK(o.report.counters.mma == 4 * kSteps * 4 * 8 * 8);
  }
  CHECK(instructions > 0);
}

struct Fault {
  int number;
  const char* what;
  std::vector<std::string_view> kinds;  // one of them must be there; none: the numbers are wrong
};

TEST_CASE("Each planted fault of the ring is found under every order") {
  const std::vector<Fault> faults = {
      {1,
       "consumers wait for the wrong phase",
       {"race-shared", "in-flight-read", "uninitialised-shared"}},
      {2, "an arrival is missing", {"deadlock"}},
      {3, "the descriptor has another swizzle", {}},
      {4, "fewer bytes announced than come", {"deadlock"}},
      {5, "a stage is released before its products are done", {"race-shared"}},
      {7, "no proxy fence before the bulk store", {"missing-proxy-fence"}},
      {8, "no fence after the barriers' initialisation", {"missing-mbarrier-fence"}},
      {11, "the producer does not wait for an empty stage", {"race-shared", "in-flight-write"}},
      {12, "the output tile is overwritten before it was read", {"race-shared"}},
  };
  for (const Fault& fault : faults) {
    const auto module = load(compile(fault.number));
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      Outcome o = run_ring(*module, seed);
      std::string found = o.is_right ? "the numbers are right" : "the numbers are wrong";
      for (const Finding& f : o.report.findings) found += "\n" + f.kind + ": " + f.detail;
      INFO(fault.what << ", seed " << seed << ": " << found);
      bool caught = fault.kinds.empty() && !o.is_right;
      for (std::string_view kind : fault.kinds) caught = caught || o.find(kind) != nullptr;
      CHECK(caught);
    }
  }
}

// The compiler refuses such a kernel where it sees it, so the fault is planted behind it.
TEST_CASE("Sums that are read while a product is under way are found under every order") {
  std::string ptx = compile(0);
  const std::string wait = "wgmma.wait_group.sync.aligned 0;";
  int places = 0;
  for (std::size_t at = 0; (at = ptx.find(wait, at)) != std::string::npos; ++places)
    ptx.replace(at, wait.size(), "wgmma.wait_group.sync.aligned 1;");
  REQUIRE(places > 0);
  const auto module = load(ptx);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Outcome o = run_ring(*module, seed);
    CHECK(o.find("in-flight-register") != nullptr);
    CHECK(!o.is_right);
  }
}

TEST_CASE("A hang says what every warp waits for") {
  Outcome o = run_ring(*load(compile(2)), 3);
  const Finding* f = o.find("deadlock");
  REQUIRE(f != nullptr);
  INFO(f->detail);
  // The producer waits for the stage that the second group never released; the consumers for data.
  const std::string empty = std::to_string(2 * 24576 + 16384 + 16);
  CHECK(f->detail.find("waits for parity 0 of the mbarrier at shared+" + empty +
                       ", which is in phase 0 with 1 of 2 arrivals and 0 bytes to come") !=
        std::string::npos);
  CHECK(f->detail.find("warp 4 (ptx:") != std::string::npos);
  CHECK(f->detail.find("warp 11 (ptx:") != std::string::npos);
}

}  // namespace
}  // namespace attnloom::sim
