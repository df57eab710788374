// SPDX-License-Identifier: Apache-2.0
#include "engine/statistics.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string_view>

namespace attnloom {
namespace {

constexpr std::array<std::string_view, kLayers> kLayerNames = {"disk", "readonly", "bundle",
                                                               "remote"};

struct Sum {
  std::string_view json;
  std::string_view metric;
  std::string_view help;
  std::uint64_t Statistics::*value;
};
constexpr std::array kSums = {
    Sum{"published", "cache_published", "Entries written to the own root", &Statistics::published},
    Sum{"write_failures", "cache_write_failures", "Entries that could not be written",
        &Statistics::write_failures},
    Sum{"evicted", "cache_evicted", "Entries removed to keep the own root within its size",
        &Statistics::evicted},
    Sum{"evicted_bytes", "cache_evicted_bytes", "Bytes of evicted entries",
        &Statistics::evicted_bytes},
    Sum{"quarantined", "cache_quarantined", "Entries of the own root that were moved aside",
        &Statistics::quarantined},
    Sum{"untrusted", "cache_untrusted", "Entries or places that nobody vouches for",
        &Statistics::untrusted},
    Sum{"remote_published", "remote_published", "Entries written to the remote cache",
        &Statistics::remote_published},
    Sum{"remote_refused", "remote_refused",
        "Entries of the remote cache that were damaged or not trusted",
        &Statistics::remote_refused},
    Sum{"remote_failures", "remote_failures",
        "Requests to the remote cache without a usable answer", &Statistics::remote_failures},
    Sum{"compile_failures", "compile_failures", "Compiles that failed",
        &Statistics::compile_failures},
    Sum{"compile_timeouts", "compile_timeouts", "Compiles that were stopped at their deadline",
        &Statistics::compile_timeouts},
    Sum{"cancelled", "compile_cancelled", "Compiles that nobody wanted any more",
        &Statistics::cancelled},
    Sum{"frozen", "compile_frozen", "Compiles after freeze, warned of or refused",
        &Statistics::frozen},
    Sum{"negative_hits", "compile_negative_hits", "Failures answered without a compile",
        &Statistics::negative_hits},
    Sum{"waits", "compile_waits", "Waits for another process that compiled the same kernel",
        &Statistics::waits},
    Sum{"step_downs", "kernel_step_downs", "Kernels replaced because they spilled registers",
        &Statistics::step_downs},
    Sum{"fallbacks", "kernel_fallbacks", "Plans made with another kernel than the one wanted",
        &Statistics::fallbacks},
    Sum{"rejected", "kernel_rejected", "Cached kernels that the driver refused",
        &Statistics::rejected},
    Sum{"loads", "kernel_loads", "Kernels loaded onto the device", &Statistics::loads},
    Sum{"unloads", "kernel_unloads", "Kernels let go to stay within the limits",
        &Statistics::unloads},
    Sum{"launches", "kernel_launches", "Kernel launches", &Statistics::launches},
    Sum{"copies", "plan_copies", "Plans copied to the device", &Statistics::copies},
};

struct LayerSum {
  std::string_view json;
  std::string_view metric;
  std::string_view help;
  std::uint64_t LayerCounters::*value;
};
constexpr std::array kLayerSums = {
    LayerSum{"hits", "cache_hits", "Look-ups that a layer answered", &LayerCounters::hits},
    LayerSum{"misses", "cache_misses", "Look-ups that a layer could not answer",
             &LayerCounters::misses},
    LayerSum{"corrupt", "cache_corrupt", "Entries of a layer that were damaged",
             &LayerCounters::corrupt},
    LayerSum{"bytes", "cache_hit_bytes", "Bytes of the kernels that a layer gave",
             &LayerCounters::bytes},
};

// printf would write the decimal point of the caller's locale.
std::string number_text(double value) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return std::string(text.data(), end);
}

std::string heading(std::string_view metric, std::string_view help, std::string_view type) {
  const std::string name = "attnloom_" + std::string(metric);
  return "# HELP " + name + " " + std::string(help) + ".\n# TYPE " + name + " " +
         std::string(type) + "\n";
}

// The memory of the process is a layer like the others, but holds nothing that can be damaged.
LayerCounters memory_layer(const Statistics& statistics) {
  return {.hits = statistics.memory_hits, .misses = statistics.memory_misses};
}

std::string layers_text(const Statistics& statistics, const LayerSum& sum) {
  const std::string metric = std::string(sum.metric) + "_total";
  std::string text = heading(metric, sum.help, "counter");
  const auto add = [&](std::string_view layer, const LayerCounters& counters) {
    text += "attnloom_" + metric + "{layer=\"" + std::string(layer) + "\"} " +
            std::to_string(counters.*sum.value) + "\n";
  };
  add("memory", memory_layer(statistics));
  for (std::size_t i = 0; i < kLayerNames.size(); ++i) add(kLayerNames[i], statistics.layers[i]);
  return text;
}

std::string compiles_text(const CompileTimes& times) {
  std::string text = heading("compile_seconds", "Time of one compile", "histogram");
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < times.counts.size(); ++i) {
    below += times.counts[i];
    const std::string bound = i < kCompileBounds.size() ? number_text(kCompileBounds[i]) : "+Inf";
    text += "attnloom_compile_seconds_bucket{le=\"" + bound + "\"} " + std::to_string(below) + "\n";
  }
  return text + "attnloom_compile_seconds_sum " + number_text(times.sum_seconds) +
         "\nattnloom_compile_seconds_count " + std::to_string(below) + "\n";
}

Json layer_json(const LayerCounters& counters) {
  Json json;
  for (const LayerSum& sum : kLayerSums) json[std::string(sum.json)] = counters.*sum.value;
  return json;
}

Json compiles_json(const CompileTimes& times) {
  Json buckets = Json::array();
  for (std::size_t i = 0; i < times.counts.size(); ++i) {
    const Json bound = i < kCompileBounds.size() ? Json(kCompileBounds[i]) : Json("inf");
    buckets.push_back({{"up_to", bound}, {"count", times.counts[i]}});
  }
  return {{"count", times.total()}, {"sum", times.sum_seconds}, {"buckets", std::move(buckets)}};
}

}  // namespace

std::uint64_t CompileTimes::total() const {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

void CompileTimer::add(std::chrono::nanoseconds time) {
  const double seconds = std::chrono::duration<double>(time).count();
  const auto bucket = std::lower_bound(kCompileBounds.begin(), kCompileBounds.end(), seconds);
  const auto index = static_cast<std::size_t>(bucket - kCompileBounds.begin());
  counts_[index].fetch_add(1, std::memory_order_relaxed);
  sum_ns_.fetch_add(time.count(), std::memory_order_relaxed);
}

CompileTimes CompileTimer::times() const {
  CompileTimes times;
  for (std::size_t i = 0; i < counts_.size(); ++i)
    times.counts[i] = counts_[i].load(std::memory_order_relaxed);
  times.sum_seconds = static_cast<double>(sum_ns_.load(std::memory_order_relaxed)) * 1e-9;
  return times;
}

Json statistics_to_json(const Statistics& statistics) {
  Json json;
  json["layers"]["memory"] = layer_json(memory_layer(statistics));
  for (std::size_t i = 0; i < kLayerNames.size(); ++i)
    json["layers"][std::string(kLayerNames[i])] = layer_json(statistics.layers[i]);
  for (const Sum& sum : kSums) json[std::string(sum.json)] = statistics.*sum.value;
  json["compile_seconds"] = compiles_json(statistics.compiles);
  return json;
}

std::string statistics_to_prometheus(const Statistics& statistics) {
  std::string text;
  for (const LayerSum& sum : kLayerSums) text += layers_text(statistics, sum);
  for (const Sum& sum : kSums) {
    const std::string metric = std::string(sum.metric) + "_total";
    text += heading(metric, sum.help, "counter") + "attnloom_" + metric + " " +
            std::to_string(statistics.*sum.value) + "\n";
  }
  return text + compiles_text(statistics.compiles);
}

}  // namespace attnloom
