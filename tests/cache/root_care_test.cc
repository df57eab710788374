// SPDX-License-Identifier: Apache-2.0
// What keeps an own root small: eviction, pins, kept failures, leftovers. Time is the test's own.
#include "cache/root_care.h"

#include <catch2/catch.hpp>

#include "cache/entry.h"
#include "cache/own_files.h"
#include "cache_for_tests.h"

namespace attnloom {
namespace {

constexpr const char* kRoot = "/cache";
constexpr const char* kBase = "/cache/v1";
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kMinute = 60 * kSecond;
constexpr std::int64_t kHour = 60 * kMinute;
constexpr std::int64_t kStart = 1'000'000 * kHour;  // any time; the memory's files begin in 1970
const std::string kFingerprint = kCuda130.hex;

// Entries of one size each: text of one length, which no codec can shrink below another's.
Source numbered(int number) {
  return fake_source("kernel " + std::to_string(1000 + number));
}

std::uint64_t entry_bytes() {
  return encode_entry(request_key(numbered(0)), numbered(0), fake_artifact(numbered(0))).size();
}

struct Session {
  explicit Session(FileSystem& files, std::uint64_t max_bytes = kDefaultCacheBytes)
      : files(files),
        store(files, {.root = kRoot,
                      .warn = [this](const std::string& line) { warnings.push_back(line); },
                      .care = {.max_bytes = max_bytes, .now_ns = [this] { return now; }}}) {}

  void publish(int number) {
    const Source source = numbered(number);
    REQUIRE(store.publish(request_key(source), source, fake_artifact(source)).ok());
  }
  bool has(int number) { return files.info(path_of_entry(kRoot, numbered(number))).exists; }
  bool get(int number) {
    return store.find(request_key(numbered(number)), "sm_90a", {}, 0).has_value();
  }

  FileSystem& files;
  std::int64_t now = kStart;
  std::vector<std::string> warnings;
  Store store;
};

RootCare care_of(FileSystem& files, std::uint64_t max_bytes, std::int64_t now) {
  return RootCare(files, kBase, {.max_bytes = max_bytes, .now_ns = [now] { return now; }}, {});
}

}  // namespace

TEST_CASE("publications keep a root within its limit, down to nine tenths at a time") {
  const auto files = make_memory_file_system();
  Session session(*files, 10 * entry_bytes());
  for (int i = 0; i < 20; ++i) {
    session.now += 11 * kMinute;
    session.publish(i);
    // The 11th makes room for two, and every second one after it.
    CHECK(list_entries(*files, kBase).size() == (i < 10 ? i + 1u : i % 2 == 0 ? 9u : 10u));
  }
  for (int i = 0; i < 20; ++i) CHECK(session.has(i) == (i >= 10));
  CHECK(session.store.counters().evicted == 10);
  CHECK(session.store.counters().evicted_bytes == 10 * entry_bytes());
}

TEST_CASE("what was counted is a hint: a collection measures, and mends the count") {
  const auto files = make_memory_file_system();
  // An entry counts for a started unit of 64 KiB: 20 fit, the 21st seems not to.
  Session session(*files, 20 * 65536);
  const std::uint64_t bytes = entry_bytes();
  REQUIRE(bytes < 65536);
  for (int i = 0; i < 20; ++i) session.publish(i);
  CHECK(files->info(std::string(kBase) + "/state/size").bytes == 20);
  CHECK_FALSE(files->info(std::string(kBase) + "/state/gc.lock").exists);
  session.publish(20);
  CHECK(files->info(std::string(kBase) + "/state/gc.lock").exists);
  CHECK(session.store.counters().evicted == 0);
  CHECK(files->info(std::string(kBase) + "/state/size").bytes == (21 * bytes + 65535) / 65536);
}

TEST_CASE("eviction is by last use: a hit moves an entry to the end, at most once an hour") {
  const auto files = make_memory_file_system();
  Session session(*files);
  for (int i = 0; i < 10; ++i) {
    session.publish(i);
    session.now += kMinute;
  }
  const std::string oldest = path_of_entry(kRoot, numbered(0));
  const std::int64_t published = files->info(oldest).mtime_ns;
  session.now = kStart + kHour;
  CHECK(session.get(0));
  CHECK(files->info(oldest).mtime_ns == published);  // an hour, not more
  session.now = kStart + kHour + 1;
  CHECK(session.get(0));
  CHECK(files->info(oldest).mtime_ns == session.now);
  const std::uint64_t bytes = entry_bytes();
  // Ten entries in the room of nine and a half: nine tenths of it are 8.55 entries.
  const Collection done = care_of(*files, bytes * 19 / 2, kStart + 2 * kHour).collect();
  CHECK(done.ran);
  CHECK(done.entries == 10);
  CHECK(done.bytes == 10 * bytes);
  CHECK(done.evicted == 2);
  CHECK(done.evicted_bytes == 2 * bytes);
  for (int i = 0; i < 10; ++i) {
    INFO(i);
    CHECK(session.has(i) == (i != 1 && i != 2));
  }
  CHECK(list_entries(*files, kBase).size() == 8);
}

TEST_CASE("pinned entries and those of the last ten minutes stay, whatever the limit") {
  const auto files = make_memory_file_system();
  Session session(*files);
  for (int i = 0; i < 6; ++i) session.publish(i);
  REQUIRE(session.store.pin({request_key(numbered(1)), request_key(numbered(9))}).ok());
  CHECK(session.store.pins() ==
        std::set<std::string>{request_key(numbered(1)), request_key(numbered(9))});
  REQUIRE(files->touch(path_of_entry(kRoot, numbered(3)), kStart + 50 * kMinute + 1).ok());
  REQUIRE(files->touch(path_of_entry(kRoot, numbered(4)), kStart + 50 * kMinute).ok());
  std::vector<std::string> warnings;
  RootCare care(*files, kBase,
                {.max_bytes = entry_bytes() / 2, .now_ns = [] { return kStart + kHour; }},
                [&](const std::string& line) { warnings.push_back(line); });
  const Collection done = care.collect();
  CHECK(done.evicted == 4);
  CHECK(done.pinned_bytes == entry_bytes());
  CHECK(care.evicted() == 4);
  CHECK(care.evicted_bytes() == 4 * entry_bytes());
  for (int i = 0; i < 6; ++i) CHECK(session.has(i) == (i == 1 || i == 3));
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("ATTNLOOM_CACHE_MAX_SIZE") != std::string::npos);
  REQUIRE(session.store.unpin({request_key(numbered(1)), request_key(numbered(2))}).ok());
  CHECK(care.collect().evicted == 1);
  CHECK_FALSE(session.has(1));
  CHECK(session.store.pin({"../x"}).code == Code::kArgumentInvalid);
}

TEST_CASE("the signatures beside an entry go where it goes") {
  const auto files = make_memory_file_system();
  Session session(*files);
  std::vector<std::string> paths;
  for (int i = 0; i < 3; ++i) {
    session.publish(i);
    session.now += kMinute;
    paths.push_back(path_of_entry(kRoot, numbered(i)));
    REQUIRE(files->publish("/cache/v1/tmp", paths[i] + ".sig", "signed", Publish::kFirstWins).ok());
  }
  session.store.reject(request_key(numbered(0)), kFingerprint, "refused");
  const std::string aside =
      std::string(kBase) + "/quarantine" + paths[0].substr(paths[0].rfind('/'));
  CHECK(files->info(aside).exists);
  CHECK(files->info(aside + ".sig").exists);
  CHECK_FALSE(files->info(paths[0] + ".sig").exists);
  CHECK(care_of(*files, entry_bytes() * 3 / 2, kStart + kHour).collect().evicted == 1);
  CHECK_FALSE(files->info(paths[1]).exists);
  CHECK_FALSE(files->info(paths[1] + ".sig").exists);
  CHECK(files->info(paths[2] + ".sig").exists);
  CHECK(care_of(*files, kDefaultCacheBytes, kStart + kHour).clear(ClearPinned::kNo).entries == 1);
  CHECK_FALSE(files->info(paths[2] + ".sig").exists);
  CHECK(files->list(paths[2].substr(0, paths[2].rfind('/'))).value().empty());
}

TEST_CASE("an entry that was evicted is a miss and nothing else") {
  const auto files = make_memory_file_system();
  Session session(*files);
  session.publish(0);
  REQUIRE(care_of(*files, 1, kStart + kHour).collect().evicted == 1);
  CHECK_FALSE(session.get(0));
  CHECK(session.warnings.empty());
  session.publish(0);
  CHECK(session.get(0));
}

TEST_CASE(
    "only a publication collects, and a root full of what must stay is not gone through again at "
    "each") {
  const auto files = make_memory_file_system();
  Session session(*files, 65536);
  for (int i = 0; i < 4; ++i) session.publish(i);
  const std::string lock = std::string(kBase) + "/state/gc.lock";
  const std::int64_t collected = files->info(lock).mtime_ns;
  CHECK(collected == kStart);
  session.now += kHour;
  CHECK(session.get(0));
  CHECK(files->info(lock).mtime_ns == collected);
  REQUIRE(files->append(std::string(kBase) + "/state/size", "++").ok());
  session.publish(4);
  CHECK(files->info(lock).mtime_ns == session.now);
  REQUIRE(files->append(std::string(kBase) + "/state/size", "++").ok());
  session.now += kMinute - 1;
  session.publish(5);
  CHECK(files->info(lock).mtime_ns == session.now - kMinute + 1);
}

TEST_CASE("a root without a count is measured once, and one process collects at a time") {
  const auto files = make_memory_file_system();
  Session session(*files);
  for (int i = 0; i < 30; ++i) session.publish(i);
  const std::string size = std::string(kBase) + "/state/size";
  REQUIRE(files->remove(size).ok());
  session.publish(30);
  CHECK(files->info(size).bytes == (31 * entry_bytes() + 65535) / 65536);
  session.publish(31);
  CHECK(files->info(size).bytes == (31 * entry_bytes() + 65535) / 65536 + 1);
  RootCare care = care_of(*files, 1, kStart + kHour);
  {
    const auto other = files->try_lock(std::string(kBase) + "/state/gc.lock");
    REQUIRE(other.ok());
    CHECK_FALSE(care.collect().ran);
    CHECK(list_entries(*files, kBase).size() == 32);
  }
  CHECK(care.collect().evicted == 32);
}

TEST_CASE("quarantine keeps the newest 32 files") {
  const auto files = make_memory_file_system();
  Session session(*files);
  for (int i = 0; i < 40; ++i) {
    session.publish(i);
    const std::string path = path_of_entry(kRoot, numbered(i));
    REQUIRE(files->publish(std::string(kBase) + "/tmp", path, "cut", Publish::kReplace).ok());
    session.now += kSecond;
    CHECK_FALSE(session.get(i));
  }
  const auto left = files->list(std::string(kBase) + "/quarantine");
  CHECK(left->size() == 32);
  const auto held = [&](int number) {
    const std::string path = path_of_entry(kRoot, numbered(number));
    return files->info(std::string(kBase) + "/quarantine" + path.substr(path.rfind('/'))).exists;
  };
  CHECK_FALSE(held(7));
  CHECK(held(8));
  CHECK(session.store.counters().layers[0].corrupt == 40);
}

TEST_CASE("a failure that will not change is kept for an hour, whole and for its own key only") {
  const auto files = make_memory_file_system();
  Session session(*files);
  const std::string key = request_key(numbered(0));
  const Status failure = make_error(Code::kCompileFailed, "$.variant.logits_mask",
                                    "variant.logits_mask:1: \"x\" is undefined", "correct it");
  session.store.keep_failure(key, kFingerprint, failure);
  const auto same = [&](const std::optional<Status>& found) {
    return found && found->code == failure.code && found->path == failure.path &&
           found->cause == failure.cause && found->remedy == failure.remedy;
  };
  CHECK(same(session.store.find_failure(key, kFingerprint)));
  CHECK_FALSE(session.store.find_failure(key, kCuda135.hex));
  CHECK_FALSE(session.store.find_failure(request_key(numbered(1)), kFingerprint));
  const std::string path =
      std::string(kBase) + "/neg/" + key.substr(0, 2) + "/" + key + "." + kFingerprint;
  const std::string text = *files->read(path);
  CHECK(text.substr(0, text.find('\n')) ==
        R"({"attnloom_failure":1,"cause":"variant.logits_mask:1: \"x\" is undefined",)"
        R"("code":"COMPILE_FAILED","path":"$.variant.logits_mask","remedy":"correct it"})");
  session.now += kHour;
  CHECK(same(session.store.find_failure(key, kFingerprint)));
  session.now += 1;
  CHECK_FALSE(session.store.find_failure(key, kFingerprint));
  session.now = kStart;
  SECTION("cut, changed or longer it is no failure") {
    for (std::size_t at = 0; at < text.size(); at += 7) {
      std::string changed = text;
      changed[at] = static_cast<char>(changed[at] ^ 1);
      for (const std::string& bytes :
           {changed, text.substr(0, at), text + text.substr(0, at + 1)}) {
        REQUIRE(files->publish(std::string(kBase) + "/tmp", path, bytes, Publish::kReplace).ok());
        REQUIRE(files->touch(path, session.now).ok());
        INFO(at);
        CHECK_FALSE(session.store.find_failure(key, kFingerprint));
      }
    }
  }
  SECTION("under another key it is no failure") {
    const std::string other = request_key(numbered(1));
    const std::string folder = std::string(kBase) + "/neg/" + other.substr(0, 2);
    REQUIRE(files->make_directories(folder).ok());
    REQUIRE(files->rename(path, folder + "/" + other + "." + kFingerprint).ok());
    CHECK_FALSE(session.store.find_failure(other, kFingerprint));
  }
  SECTION("the next one sweeps what has expired") {
    session.now += 2 * kHour;
    session.store.keep_failure(request_key(numbered(1)), kFingerprint, failure);
    CHECK_FALSE(files->info(path).exists);
    CHECK(list_failures(*files, kBase).size() == 1);
  }
}

TEST_CASE("what may go right the next time is not kept as a failure") {
  const auto files = make_memory_file_system();
  Session session(*files);
  const std::string key = request_key(numbered(0));
  for (const Code code : {Code::kCancelled, Code::kOutOfMemory, Code::kCompilerMissing,
                          Code::kCompilerVersion, Code::kCompileTimeout, Code::kNoDriver,
                          Code::kInternal, Code::kTemplate, Code::kSpecUnsupported, Code::kOk}) {
    session.store.keep_failure(key, kFingerprint, {code, "", "cause", ""});
    CHECK_FALSE(session.store.find_failure(key, kFingerprint));
  }
  CHECK_FALSE(files->info(kRoot).exists);
  session.store.keep_failure(key, kFingerprint, {Code::kResourceLimit, "", "cause", ""});
  CHECK(session.store.find_failure(key, kFingerprint)->code == Code::kResourceLimit);
  session.store.keep_failure("../x", kFingerprint, {Code::kResourceLimit, "", "cause", ""});
  session.store.keep_failure(key, "../x", {Code::kResourceLimit, "", "cause", ""});
  CHECK(list_failures(*files, kBase).size() == 1);
}

TEST_CASE("each layer counts what it was asked and what it gave") {
  const auto files = make_memory_file_system();
  Session writer(*files);
  writer.publish(0);
  writer.publish(1);
  const std::string damaged = path_of_entry(kRoot, numbered(1));
  REQUIRE(files->publish(std::string(kBase) + "/tmp", damaged, "cut", Publish::kReplace).ok());
  Store store(*files, {.root = "/other", .read_only = {kRoot}, .warn = {}, .care = {}});
  CHECK(store.find(request_key(numbered(0)), "sm_90a", {}, 0));
  CHECK_FALSE(store.find(request_key(numbered(1)), "sm_90a", {}, 0));
  CHECK_FALSE(store.find(request_key(numbered(0)), "sm_90a", {}, 0, Asking::kPoll));
  const StoreCounters counters = store.counters();
  const Artifact artifact = fake_artifact(numbered(0));
  CHECK(counters.layers[0] == LayerCounters{.misses = 2});
  CHECK(counters.layers[1] ==
        LayerCounters{.hits = 1, .misses = 1, .corrupt = 1, .bytes = artifact.cubin.size()});
  CHECK(counters.hits == 1);
  CHECK(counters.misses == 1);
}

}  // namespace attnloom
