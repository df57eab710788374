// SPDX-License-Identifier: Apache-2.0
#include "engine/statistics.h"

#include <catch2/catch.hpp>
#include <clocale>

#include "stubs.h"

namespace attnloom {
namespace {

Statistics some() {
  Statistics some;
  some.engine.memory_hits = 7;
  some.memory_misses = 4;
  some.store.layers[0] = {.hits = 1, .misses = 3, .corrupt = 1, .bytes = 100};
  some.store.layers[3] = {.hits = 2, .misses = 1, .corrupt = 0, .bytes = 200};
  some.store.published = 5;
  some.store.evicted = 2;
  some.store.evicted_bytes = 4096;
  some.compiles.counts = {1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 1};
  some.compiles.sum_seconds = 61.25;
  some.engine.negative_hits = 9;
  some.store.remote_refused = 6;
  some.engine.unloads = 8;
  return some;
}

}  // namespace

TEST_CASE("statistics as JSON") {
  const Json json = statistics_to_json(some());
  CHECK(json["layers"]["memory"] == Json{{"hits", 7}, {"misses", 4}, {"corrupt", 0}, {"bytes", 0}});
  CHECK(json["layers"]["disk"] == Json{{"hits", 1}, {"misses", 3}, {"corrupt", 1}, {"bytes", 100}});
  CHECK(json["layers"]["readonly"]["hits"] == 0);
  CHECK(json["layers"]["bundle"]["hits"] == 0);
  CHECK(json["layers"]["remote"]["bytes"] == 200);
  CHECK(json["published"] == 5);
  CHECK(json["evicted_bytes"] == 4096);
  CHECK(json["negative_hits"] == 9);
  CHECK(json["remote_refused"] == 6);
  CHECK(json["unloads"] == 8);
  CHECK(json["compile_seconds"]["count"] == 4);
  CHECK(json["compile_seconds"]["sum"] == 61.25);
  CHECK(json["compile_seconds"]["buckets"].size() == 11);
  CHECK(json["compile_seconds"]["buckets"][3] == Json{{"up_to", 0.5}, {"count", 2}});
  CHECK(json["compile_seconds"]["buckets"][10] == Json{{"up_to", "inf"}, {"count", 1}});
}

TEST_CASE("statistics as Prometheus reads them, in any locale") {
  // Where it is not installed the text is checked in C alone.
  const std::string before = std::setlocale(LC_ALL, nullptr);
  std::setlocale(LC_ALL, "de_DE.UTF-8");
  const std::string text = statistics_to_prometheus(some());
  std::setlocale(LC_ALL, before.c_str());
  CHECK(text.find("# HELP attnloom_cache_hits_total Look-ups that a layer answered.\n"
                  "# TYPE attnloom_cache_hits_total counter\n"
                  "attnloom_cache_hits_total{layer=\"memory\"} 7\n"
                  "attnloom_cache_hits_total{layer=\"disk\"} 1\n"
                  "attnloom_cache_hits_total{layer=\"readonly\"} 0\n"
                  "attnloom_cache_hits_total{layer=\"bundle\"} 0\n"
                  "attnloom_cache_hits_total{layer=\"remote\"} 2\n") == 0);
  CHECK(text.find("\nattnloom_cache_hit_bytes_total{layer=\"remote\"} 200\n") != std::string::npos);
  CHECK(text.find("\nattnloom_cache_evicted_bytes_total 4096\n") != std::string::npos);
  CHECK(text.find("\nattnloom_compile_negative_hits_total 9\n") != std::string::npos);
  CHECK(text.find("\nattnloom_remote_refused_total 6\n") != std::string::npos);
  CHECK(text.find("\nattnloom_kernel_unloads_total 8\n") != std::string::npos);
  const std::string histogram =
      "# TYPE attnloom_compile_seconds histogram\n"
      "attnloom_compile_seconds_bucket{le=\"0.05\"} 1\n"
      "attnloom_compile_seconds_bucket{le=\"0.1\"} 1\n"
      "attnloom_compile_seconds_bucket{le=\"0.25\"} 1\n"
      "attnloom_compile_seconds_bucket{le=\"0.5\"} 3\n"
      "attnloom_compile_seconds_bucket{le=\"1\"} 3\n"
      "attnloom_compile_seconds_bucket{le=\"2.5\"} 3\n"
      "attnloom_compile_seconds_bucket{le=\"5\"} 3\n"
      "attnloom_compile_seconds_bucket{le=\"10\"} 3\n"
      "attnloom_compile_seconds_bucket{le=\"30\"} 3\n"
      "attnloom_compile_seconds_bucket{le=\"60\"} 3\n"
      "attnloom_compile_seconds_bucket{le=\"+Inf\"} 4\n"
      "attnloom_compile_seconds_sum 61.25\n"
      "attnloom_compile_seconds_count 4\n";
  REQUIRE(text.size() > histogram.size());
  CHECK(text.substr(text.size() - histogram.size()) == histogram);
}

TEST_CASE("a compile's seconds fall into the bucket whose bound they do not pass") {
  using std::chrono::milliseconds;
  CompileTimer timer;
  for (const int ms : {50, 51, 500, 501, 60'000, 60'001}) timer.add(milliseconds(ms));
  const CompileTimes times = timer.times();
  CHECK(times.counts == decltype(times.counts){1, 1, 0, 1, 1, 0, 0, 0, 0, 1, 1});
  CHECK(times.sum_seconds == Approx(121.103));
  CHECK(times.total() == 6);
}

TEST_CASE("an engine counts what each layer gave, what was compiled and what failed") {
  const TempDirectory root;
  // Named, or each miss would be looked for under older targets as well.
  const std::string target = R"("target": "sm_90a", )";
  const std::string good = one_kernel_spec("", target);
  StubEngine first({.root = root / "cache"});
  REQUIRE(first.open(good)->prepare().ok());
  REQUIRE(first.open(good)->prepare().ok());
  const Statistics made = first.engine->statistics();
  CHECK(made.engine.memory_hits == 1);
  CHECK(made.memory_misses == 1);
  CHECK(made.store.layers[0] == LayerCounters{.misses = 1});
  CHECK(made.store.published == 1);
  CHECK(made.compiles.total() == 1);
  CHECK(made.engine.loads == 1);

  StubEngine second({.root = root / "other", .read_only = {root / "cache"}});
  second.compiler->fail = [](const Source& source) {
    if (source.text.find("undefined_name") == std::string::npos) return ok_status();
    return make_error(Code::kCompileFailed, "", "undefined");
  };
  REQUIRE(second.open(good)->prepare().ok());
  const auto bad =
      second.open(one_kernel_spec(R"("logits_transform": "return undefined_name;")", target));
  for (int i = 0; i < 3; ++i) CHECK_FALSE(bad->prepare().ok());
  const Statistics found = second.engine->statistics();
  CHECK(found.store.layers[0].misses == 4);
  CHECK(found.store.layers[1].hits == 1);
  CHECK(found.store.layers[1].misses == 3);
  CHECK(found.store.layers[1].bytes == std::string("cubin of ").size() + 64);
  CHECK(found.compiles.total() == 1);
  CHECK(found.engine.compile_failures == 1);
  CHECK(found.engine.negative_hits == 2);
  CHECK(found.waits == 0);
}

}  // namespace attnloom
