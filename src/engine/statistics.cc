// SPDX-License-Identifier: Apache-2.0
#include "engine/statistics.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string_view>
#include <type_traits>

namespace attnloom {
namespace {

struct Sum {
  std::string_view json;
  std::string_view metric;
  std::string_view help;
  std::uint64_t (*value)(const Statistics&);
};
// Of a counter of the engine or of its store.
template <auto counter>
std::uint64_t of(const Statistics& statistics) {
  if constexpr (std::is_same_v<decltype(counter), std::uint64_t EngineCounters::*>)
    return statistics.engine.*counter;
  else
    return statistics.store.*counter;
}
constexpr std::array kSums = {
    Sum{"published", "cache_published", "Entries written to the own root",
        of<&StoreCounters::published>},
    Sum{"write_failures", "cache_write_failures", "Entries that could not be written",
        of<&StoreCounters::write_failures>},
    Sum{"evicted", "cache_evicted", "Entries removed to keep the own root within its size",
        of<&StoreCounters::evicted>},
    Sum{"evicted_bytes", "cache_evicted_bytes", "Bytes of evicted entries",
        of<&StoreCounters::evicted_bytes>},
    Sum{"quarantined", "cache_quarantined", "Entries of the own root that were moved aside",
        of<&StoreCounters::quarantined>},
    Sum{"untrusted", "cache_untrusted", "Entries or places that nobody vouches for",
        of<&StoreCounters::untrusted>},
    Sum{"remote_published", "remote_published", "Entries written to the remote cache",
        of<&StoreCounters::remote_published>},
    Sum{"remote_refused", "remote_refused",
        "Entries of the remote cache that were damaged or not trusted",
        of<&StoreCounters::remote_refused>},
    Sum{"remote_failures", "remote_failures",
        "Requests to the remote cache without a usable answer",
        of<&StoreCounters::remote_failures>},
    Sum{"compile_failures", "compile_failures", "Compiles that failed",
        of<&EngineCounters::compile_failures>},
    Sum{"compile_timeouts", "compile_timeouts", "Compiles that were stopped at their deadline",
        of<&EngineCounters::compile_timeouts>},
    Sum{"cancelled", "compile_cancelled", "Compiles that nobody wanted any more",
        of<&EngineCounters::cancelled>},
    Sum{"frozen", "compile_frozen", "Compiles after freeze, warned of or refused",
        of<&EngineCounters::frozen>},
    Sum{"negative_hits", "compile_negative_hits", "Failures answered without a compile",
        of<&EngineCounters::negative_hits>},
    Sum{"waits", "compile_waits", "Waits for another process that compiled the same kernel",
        [](const Statistics& all) { return all.waits; }},
    Sum{"step_downs", "kernel_step_downs", "Kernels replaced because they spilled registers",
        of<&EngineCounters::step_downs>},
    Sum{"fallbacks", "kernel_fallbacks", "Plans made with another kernel than the one wanted",
        of<&EngineCounters::fallbacks>},
    Sum{"rejected", "kernel_rejected", "Cached kernels that the driver refused",
        of<&EngineCounters::rejected>},
    Sum{"loads", "kernel_loads", "Kernels loaded onto the device", of<&EngineCounters::loads>},
    Sum{"unloads", "kernel_unloads", "Kernels let go to stay within the limits",
        of<&EngineCounters::unloads>},
    Sum{"launches", "kernel_launches", "Kernel launches", of<&EngineCounters::launches>},
    Sum{"copies", "plan_copies", "Plans copied to the device", of<&EngineCounters::copies>},
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
  return {.hits = statistics.engine.memory_hits, .misses = statistics.memory_misses};
}

std::string layers_text(const Statistics& statistics, const LayerSum& sum) {
  const std::string metric = std::string(sum.metric) + "_total";
  std::string text = heading(metric, sum.help, "counter");
  const auto add = [&](std::string_view layer, const LayerCounters& counters) {
    text += "attnloom_" + metric + "{layer=\"" + std::string(layer) + "\"} " +
            std::to_string(counters.*sum.value) + "\n";
  };
  add("memory", memory_layer(statistics));
  for (int i = 0; i < kLayers; ++i) add(layer_name(Layer{i}), statistics.store.layers[i]);
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
  for (int i = 0; i < kLayers; ++i)
    json["layers"][std::string(layer_name(Layer{i}))] = layer_json(statistics.store.layers[i]);
  for (const Sum& sum : kSums) json[std::string(sum.json)] = sum.value(statistics);
  json["compile_seconds"] = compiles_json(statistics.compiles);
  return json;
}

std::string statistics_to_prometheus(const Statistics& statistics) {
  std::string text;
  for (const LayerSum& sum : kLayerSums) text += layers_text(statistics, sum);
  for (const Sum& sum : kSums) {
    const std::string metric = std::string(sum.metric) + "_total";
    text += heading(metric, sum.help, "counter") + "attnloom_" + metric + " " +
            std::to_string(sum.value(statistics)) + "\n";
  }
  return text + compiles_text(statistics.compiles);
}

}  // namespace attnloom
