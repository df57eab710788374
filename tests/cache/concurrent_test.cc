// SPDX-License-Identifier: Apache-2.0
// One root, many threads, everything at once: run under ThreadSanitizer by tools/test --all.
#include <catch2/catch.hpp>
#include <thread>

#include "cache/entry.h"
#include "cache/layout.h"
#include "cache/own_files.h"
#include "cache_for_tests.h"

namespace attnloom {
namespace {

constexpr int kThreads = 8;
constexpr int kSteps = 150;
constexpr int kKeys = 24;
constexpr std::int64_t kMinute = std::int64_t{60} * 1'000'000'000;

Source numbered(int number) {
  return fake_source("kernel " + std::to_string(1000 + number % kKeys));
}

// What the threads do together; each store stands for a process.
struct Crowd {
  Crowd(FileSystem& files, const std::string& root, std::uint64_t max_bytes)
      : first(files, options(root, max_bytes)), second(files, options(root, max_bytes)) {}

  // Each look at the clock is eleven minutes later, so that what was published gets old at once.
  StoreOptions options(const std::string& root, std::uint64_t max_bytes) {
    return {.root = root,
            .warn =
                [this](const std::string& line) {
                  // That is right: more keys may be pinned than there is room for.
                  if (line.find("pinned entries alone") == std::string::npos) ++warnings;
                },
            .care = {.max_bytes = max_bytes, .now_ns = [this] { return now += 11 * kMinute; }}};
  }

  void work(int thread) {
    Store& store = thread % 2 == 0 ? first : second;
    const Status failure = make_error(Code::kCompileFailed, "$.x", "cause", "remedy");
    for (int step = 0; step < kSteps; ++step) {
      const Source source = numbered(thread * 7 + step * 5);
      const std::string key = request_key(source);
      const auto found = store.find(key, source.target, {.cubin = true, .ptx = true}, 0);
      ++asked;
      if (found && found->artifact != fake_artifact(source)) ++wrong;
      if (!found && !store.publish(key, source, fake_artifact(source)).ok()) ++wrong;
      if (step % 10 == 0 && !store.pin({key}).ok()) ++wrong;
      if (step % 10 == 5 && !store.unpin({key}).ok()) ++wrong;
      if (step % 7 == 0) store.keep_failure(key, kCuda130.hex, failure);
      if (const auto kept = store.find_failure(key, kCuda130.hex); kept && kept->cause != "cause")
        ++wrong;
      const StoreCounters counters = store.counters();
      if (counters.quarantined != 0) ++wrong;
    }
  }

  void run() {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back([this, i] { work(i); });
  }

  std::atomic<std::int64_t> now{1'000'000 * kMinute};
  std::atomic<int> asked{0}, wrong{0}, warnings{0};
  Store first;
  Store second;
};

}  // namespace

TEST_CASE(
    "threads and stores that publish, read, pin, fail and evict in one root never disturb each "
    "other") {
  const TempFolder folder;
  const bool memory = GENERATE(true, false);
  const auto files = memory ? make_memory_file_system() : make_real_file_system();
  const std::string root = memory ? "/cache" : folder.root();
  const std::uint64_t bytes =
      encode_entry(request_key(numbered(0)), numbered(0), fake_artifact(numbered(0))).size();
  Crowd crowd(*files, root, 8 * bytes);
  crowd.run();
  CHECK(crowd.wrong == 0);
  CHECK(crowd.warnings == 0);
  CHECK(crowd.asked == kThreads * kSteps);
  const StoreCounters first = crowd.first.counters();
  const StoreCounters second = crowd.second.counters();
  CHECK(first.hits + first.misses + second.hits + second.misses == kThreads * kSteps);
  CHECK(first.evicted + second.evicted > 0);
  CHECK(first.published + second.published > kKeys);
  const std::string base = layout::base(root);
  CHECK(files->list(layout::temps(base))->empty());
  for (const OwnFile& entry : list_entries(*files, base))
    CHECK(decode_entry(*files->read(entry.path), Unpack::kAll).ok());
}

}  // namespace attnloom
