// SPDX-License-Identifier: Apache-2.0
// bench/load_only.cu, the ceiling that decode rows are measured against, on the simulated device:
// it reads every key and value of its items once, and nothing else.
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel_rig.h"
#include "render/embedded.h"
#include "sim/device.h"

namespace attnloom::testing {
namespace {

constexpr int kHeads = 2;
constexpr int kPageTokens = 16;
constexpr unsigned kThreads = 128;
constexpr unsigned kSharedBytes = 64 << 10;

struct Item {
  int first_page;
  int kv_head;
  int begin;
  int end;
};

// Args of load_only.cu.
struct Args {
  std::uint64_t k, v, page_indices, items, items_begin, sums;
  std::int64_t page_bytes, token_bytes, head_bytes;
  int page_shift;
};

// Requests of 100 and 37 keys in shuffled pages of a pool of 12. A CTA of several items, one that
// begins inside a request, one without items, and one of whole tiles.
const std::vector<int> kPages = {7, 2, 9, 0, 4, 11, 1, 5, 8, 3};
constexpr int kPool = 12;
const std::vector<Item> kItems = {
    {0, 0, 0, 100}, {0, 1, 0, 64}, {0, 1, 64, 100}, {7, 0, 0, 37}, {7, 1, 0, 37}};
const std::vector<int> kItemsBegin = {0, 2, 2, 4, 5};

std::shared_ptr<const sim::Module> load_kernel() {
  std::ifstream in(ATTNLOOM_LOAD_ONLY, std::ios::binary);
  Source source;
  source.text = std::string(std::istreambuf_iterator<char>(in), {});
  for (const EmbeddedFile& file : embedded_files())
    source.headers.push_back({std::string(file.name), std::string(file.text)});
  source.options = {"--gpu-architecture=sm_90a",  "--no-cache", "--no-source-include",
                    "--modify-stack-limit=false", "-std=c++17", "--ptxas-options=-v"};
  source.target = "sm_90a";
  source.entries = {"load_only_256", "load_only_128"};
  const Result<Artifact> artifact = make_test_toolchain()->compile(source);
  INFO(artifact.status().to_string());
  REQUIRE(artifact.ok());
  for (const EntryFigures& entry : artifact->entries) CHECK(entry.spill_store_bytes == 0);
  const auto module = sim::load_module(artifact->ptx);
  INFO(module.status().to_string());
  REQUIRE(module.ok());
  return *module;
}

// The cache, keys and values of a page beside each other; only slots that hold a key are written.
class Cache {
 public:
  explicit Cache(int row_bytes) : row_words_(row_bytes / 4), words_(kPool * page_words()) {
    std::mt19937 random(1);
    for (std::uint32_t& word : words_) word = random();
  }
  std::size_t page_words() const {
    return static_cast<std::size_t>(2 * kPageTokens * kHeads * row_words_);
  }
  const std::uint32_t* row(int page, int value, int slot, int head) const {
    const int row = (value * kPageTokens + slot) * kHeads + head;
    return &words_[static_cast<std::size_t>(page) * page_words() +
                   static_cast<std::size_t>(row * row_words_)];
  }
  std::uint32_t sum(const Item& item) const {
    std::uint32_t total = 0;
    for_rows(item, [&](const std::uint32_t* row) {
      for (int i = 0; i < row_words_; ++i) total += row[i];
    });
    return total;
  }
  void write(sim::Memory& memory, std::uint64_t address) const {
    for (const Item& item : kItems) {
      for_rows(item, [&](const std::uint32_t* row) {
        const auto at = static_cast<std::uint64_t>(row - words_.data()) * 4;
        const std::span words(row, static_cast<std::size_t>(row_words_));
        REQUIRE(memory.write(address + at, std::as_bytes(words)).ok());
      });
    }
  }
  std::size_t bytes() const { return words_.size() * 4; }

 private:
  template <class F>
  void for_rows(const Item& item, F&& f) const {
    for (int token = item.begin; token < item.end; ++token) {
      const int page = kPages[static_cast<std::size_t>(item.first_page + token / kPageTokens)];
      for (int value = 0; value < 2; ++value)
        f(row(page, value, token % kPageTokens, item.kv_head));
    }
  }

  int row_words_;
  std::vector<std::uint32_t> words_;
};

template <class T>
std::uint64_t place(sim::Memory& memory, const std::vector<T>& values, const char* label) {
  const auto address = memory.allocate(values.size() * sizeof(T), label);
  REQUIRE(address.ok());
  REQUIRE(memory.write(*address, std::as_bytes(std::span(values))).ok());
  return *address;
}

void check_kernel(const sim::Module& module, int row_bytes, std::uint64_t seed) {
  const auto ctas = static_cast<unsigned>(kItemsBegin.size() - 1);
  const Cache cache(row_bytes);
  sim::Memory memory;
  const auto kv = memory.allocate(cache.bytes(), "kv");
  const auto sums = memory.allocate(ctas * kThreads * 4, "sums");
  REQUIRE((kv.ok() && sums.ok()));
  cache.write(memory, *kv);
  const std::int64_t token = kHeads * row_bytes;
  const Args args{*kv,
                  *kv + static_cast<std::uint64_t>(kPageTokens * token),
                  place(memory, kPages, "pages"),
                  place(memory, kItems, "items"),
                  place(memory, kItemsBegin, "items_begin"),
                  *sums,
                  2 * kPageTokens * token,
                  token,
                  row_bytes,
                  4};
  sim::LaunchConfig config;
  config.entry = "load_only_" + std::to_string(row_bytes);
  config.grid[0] = ctas;
  config.block[0] = kThreads;
  config.dynamic_shared_bytes = kSharedBytes;
  config.params = std::as_bytes(std::span(&args, 1));
  const auto report =
      sim::launch(*sim::find_profile("h200"), module, memory, config, {.seed = seed});
  INFO(report.status().to_string());
  REQUIRE(report.ok());
  for (const sim::Finding& finding : report->findings)
    FAIL_CHECK(finding.kind << " at " << finding.place << ": " << finding.detail);
  std::vector<std::uint32_t> got(ctas * kThreads);
  REQUIRE(memory.read(*sums, std::as_writable_bytes(std::span(got))).ok());
  std::int64_t tokens = 0;
  for (std::size_t cta = 0; cta < ctas; ++cta) {
    std::uint32_t sum = 0, want = 0;
    for (std::size_t i = 0; i < kThreads; ++i) sum += got[cta * kThreads + i];
    for (int i = kItemsBegin[cta]; i < kItemsBegin[cta + 1]; ++i) {
      const Item& item = kItems[static_cast<std::size_t>(i)];
      want += cache.sum(item);
      tokens += item.end - item.begin;
    }
    CHECK(sum == want);
  }
  const auto sectors = static_cast<std::uint64_t>(2 * tokens * row_bytes / 32);
  CHECK(report->counters.global_fetch_sectors >= sectors);
  CHECK(report->counters.global_fetch_sectors < sectors + sectors / 8);  // items and page indices
  CHECK(report->counters.shared_conflicts == 0);
}

}  // namespace

TEST_CASE("the load-only kernel reads every key and value once") {
  const auto module = load_kernel();
  for (const int row_bytes : {256, 128}) {
    for (const std::uint64_t seed : {1, 2, 3}) {
      CAPTURE(row_bytes, seed);
      check_kernel(*module, row_bytes, seed);
    }
  }
}

}  // namespace attnloom::testing
