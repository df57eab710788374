// SPDX-License-Identifier: Apache-2.0
// Writers that are killed anywhere: between any two system calls of a publication, of the counting
// after it, and of a collection.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <random>

#include "cache/entry.h"
#include "cache/layout.h"
#include "cache/own_files.h"
#include "cache_for_tests.h"

namespace attnloom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 2000;
constexpr int kKeys = 61;  // fewer than rounds: some publications find their entry there
constexpr std::int64_t kMinute = std::int64_t{60} * 1'000'000'000;

Source numbered(int number) {
  return fake_source("kernel " + std::to_string(1000 + number % kKeys));
}

// The clock goes on by eleven minutes a round, so that entries get old enough to be evicted, and
// the limit holds about thirty of them: every second round or so collects.
StoreOptions options_of_round(const std::string& root, int round) {
  const std::uint64_t bytes =
      encode_entry(request_key(numbered(0)), numbered(0), fake_artifact(numbered(0))).size();
  const std::int64_t start = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 std::chrono::system_clock::now().time_since_epoch())
                                 .count();
  return {.root = root,
          .warn = {},
          .care = {.max_bytes = 30 * bytes,
                   .now_ns = [now = start + round * 11 * kMinute] { return now; }}};
}

int publish(const std::string& root, int round, const Source& source) {
  const auto files = make_real_file_system();
  Store store(*files, options_of_round(root, round));
  return store.publish(request_key(source), source, fake_artifact(source)).ok() ? 0 : 1;
}

// True when the child was killed before it was done.
bool publish_and_kill(const std::string& root, int round, std::chrono::microseconds after) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(publish(root, round, numbered(round)));
  const auto end = Clock::now() + after;
  while (Clock::now() < end) continue;  // sleeping is coarser than a publication is long
  ::kill(child, SIGKILL);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (WIFEXITED(status)) CHECK(WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status);
}

}  // namespace

TEST_CASE("2000 publications killed at random: no bad read, no lock that stays, no leftovers") {
  // In memory where there is such a place: a disk's own syncs would be most of the time.
  const bool in_memory = std::filesystem::is_directory("/dev/shm");
  const TempFolder folder(in_memory ? "/dev/shm" : std::filesystem::temp_directory_path());
  const std::string root = folder.root();
  const std::string base = layout::base(root);
  const auto files = make_real_file_system();
  std::vector<std::chrono::microseconds> whole;
  for (int i = 0; i < 20; ++i) {
    const auto begin = Clock::now();
    REQUIRE(publish(folder.path() + "/timed", i, numbered(i)) == 0);
    whole.push_back(std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin));
  }
  std::sort(whole.begin(), whole.end());
  // A fork comes before it, and some publications collect.
  const auto longest = 3 * whole[whole.size() / 2] + std::chrono::microseconds(500);
  std::mt19937 random(20261130);
  std::uniform_int_distribution<long> delay(0, longest.count());
  int killed = 0;
  int found = 0;
  std::uint64_t quarantined = 0;
  for (int round = 0; round < kRounds; ++round) {
    if (publish_and_kill(root, round, std::chrono::microseconds(delay(random)))) ++killed;
    const Source source = numbered(round);
    Store reader(*files, options_of_round(root, round));
    const auto entry =
        reader.find(request_key(source), source.target, {.cubin = true, .ptx = true}, 0);
    if (entry) {
      ++found;
      REQUIRE(entry->artifact == fake_artifact(source));
    }
    quarantined += reader.counters().quarantined;
    if (!files->info(layout::state(base)).exists) continue;  // killed before there was one
    const auto lock = files->try_lock(layout::state(base) + "/gc.lock");
    REQUIRE(lock.ok());
    REQUIRE(*lock != nullptr);
  }
  INFO(killed << " killed, " << found << " found, median of a publication "
              << whole[whole.size() / 2].count() << " us");
  CHECK(quarantined == 0);
  // Where all or none were killed the points were not spread over the publication.
  CHECK(killed > kRounds / 10);
  CHECK(killed < kRounds);
  CHECK(found > kRounds / 20);
  CHECK(found < kRounds);
  // Whoever comes later finds a root that works, sweeps it and keeps it small.
  REQUIRE(publish(root, kRounds + 1000, fake_source("the last one")) == 0);
  CHECK(files->list(layout::temps(base))->empty());
  const std::vector<OwnFile> entries = list_entries(*files, base);
  CHECK(bytes_of(entries) <= options_of_round(root, 0).care.max_bytes);
  for (const OwnFile& entry : entries)
    CHECK(decode_entry(*files->read(entry.path), Unpack::kAll).ok());
}

}  // namespace attnloom
