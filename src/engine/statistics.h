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

// Events since the engine was made.
struct EngineCounters {
  std::uint64_t memory_hits = 0;
  std::uint64_t disk_hits = 0;
  std::uint64_t read_only_hits = 0;
  std::uint64_t bundle_hits = 0;
  std::uint64_t remote_hits = 0;
  std::uint64_t misses = 0;  // no layer had it
  std::uint64_t compiles = 0;
  std::uint64_t compile_failures = 0;
  std::uint64_t negative_hits = 0;  // failures answered without a compile
  std::uint64_t step_downs = 0;
  std::uint64_t loads = 0;
  std::uint64_t launches = 0;
  std::uint64_t copies = 0;            // of plans to the device
  std::uint64_t compile_timeouts = 0;  // compiles that were stopped at their deadline
  std::uint64_t cancelled = 0;         // compiles that nobody wanted any more
  std::uint64_t frozen = 0;            // compiles after freeze(), warned of or refused
  std::uint64_t fallbacks = 0;         // plans made with another kernel than the one wanted
  std::uint64_t rejected = 0;          // cached kernels that the driver refused
  std::uint64_t unloads = 0;           // kernels let go to stay within the limits
  bool operator==(const EngineCounters&) const = default;
};

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
  EngineCounters engine;
  StoreCounters store;
  std::uint64_t memory_misses = 0;
  std::uint64_t waits = 0;  // for another process that compiled the same kernel
  CompileTimes compiles;    // failed ones too
};

Json statistics_to_json(const Statistics& statistics);
// Text format 0.0.4: HELP, TYPE and samples, each line ended.
std::string statistics_to_prometheus(const Statistics& statistics);

}  // namespace attnloom
