// SPDX-License-Identifier: Apache-2.0
// Statistics: what an engine did since it was made, as one value, and that value as JSON and as the
// text that Prometheus scrapes. Sums only grow; times are seconds. Thread-safe: values.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "base/json.h"
#include "cache/layer.h"
#include "cache/store.h"

namespace attnloom {

// Upper bounds of the buckets, in seconds; one more bucket is above them all.
inline constexpr std::array<double, 10> kCompileBounds = {0.05, 0.1, 0.25, 0.5, 1,
                                                          2.5,  5,   10,   30,  60};

struct CompileTimes {
  std::array<std::uint64_t, kCompileBounds.size() + 1> counts = {};  // of each bucket by itself
  double sum_seconds = 0;
  std::uint64_t total() const;
  bool operator==(const CompileTimes&) const = default;
};

// Thread-safe, lock-free.
class CompileTimer {
 public:
  void add(std::chrono::nanoseconds time);
  CompileTimes times() const;

 private:
  std::array<std::atomic<std::uint64_t>, kCompileBounds.size() + 1> counts_ = {};
  std::atomic<std::int64_t> sum_ns_{0};
};

struct Statistics {
  std::uint64_t memory_hits = 0;
  std::uint64_t memory_misses = 0;
  std::array<LayerCounters, kLayers> layers;  // by Layer
  std::uint64_t published = 0;
  std::uint64_t write_failures = 0;
  std::uint64_t evicted = 0;
  std::uint64_t evicted_bytes = 0;
  std::uint64_t quarantined = 0;
  std::uint64_t untrusted = 0;  // entries outside the root, or whole places
  std::uint64_t remote_published = 0;
  std::uint64_t remote_refused = 0;
  std::uint64_t remote_failures = 0;
  CompileTimes compiles;  // failed ones too
  std::uint64_t compile_failures = 0;
  std::uint64_t compile_timeouts = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t negative_hits = 0;  // failures answered without a compile
  std::uint64_t waits = 0;          // for another process that compiled the same kernel
  std::uint64_t step_downs = 0;
  std::uint64_t frozen = 0;
  std::uint64_t fallbacks = 0;
  std::uint64_t rejected = 0;
  std::uint64_t loads = 0;
  std::uint64_t unloads = 0;
  std::uint64_t launches = 0;
  std::uint64_t copies = 0;
};

Json statistics_to_json(const Statistics& statistics);
// Text format 0.0.4: HELP, TYPE and samples, each line ended.
std::string statistics_to_prometheus(const Statistics& statistics);

}  // namespace attnloom
