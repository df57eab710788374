// SPDX-License-Identifier: Apache-2.0
// The store over a file system in memory: what is found, counted, replaced and warned of.
#include "cache/store.h"

#include <catch2/catch.hpp>

#include "cache/entry.h"
#include "cache_for_tests.h"

namespace attnloom {
namespace {

constexpr const char* kRoot = "/cache";

// One process that uses the cache.
struct Session {
  explicit Session(FileSystem& files, Fingerprint fingerprint = kCuda130,
                   std::vector<std::string> read_only = {})
      : store(files, {.root = kRoot,
                      .read_only = std::move(read_only),
                      .warn = [this](const std::string& line) { warnings.push_back(line); }}),
        toolchain(std::move(fingerprint)) {}

  Result<Artifact> get(const Source& source, Need need = {}, int driver = 0) {
    return attnloom::get(store, toolchain, source, need, driver);
  }

  std::vector<std::string> warnings;
  Store store;
  FakeToolchain toolchain;
};

void overwrite(FileSystem& files, const std::string& path, std::string_view bytes) {
  REQUIRE(files.publish(std::string(kRoot) + "/v1/tmp", path, bytes, Publish::kReplace).ok());
}

}  // namespace

TEST_CASE("what was published is found by the next process without a compile") {
  const auto files = make_memory_file_system();
  Session first(*files);
  REQUIRE(first.get(fake_source()).ok());
  CHECK(first.toolchain.compiles == 1);
  CHECK(first.store.counters().published == 1);
  CHECK(first.store.counters().misses == 1);
  Session second(*files);
  const auto artifact = second.get(fake_source(), {.cubin = true, .ptx = true});
  REQUIRE(artifact.ok());
  CHECK(*artifact == fake_artifact(fake_source()));
  CHECK(second.toolchain.compiles == 0);
  CHECK(second.store.counters().hits == 1);
  CHECK(second.store.counters().misses == 0);
  const auto found = second.store.find(request_key(fake_source()), "sm_90a", {}, 0);
  REQUIRE(found);
  CHECK(found->layer == Layer::kDisk);
  CHECK(found->kernel_key == kernel_key(request_key(fake_source()), kCuda130));
  CHECK(second.warnings.empty());
}

TEST_CASE("a look-up leaves no trace") {
  const auto files = make_memory_file_system();
  Session session(*files);
  CHECK_FALSE(session.store.find(request_key(fake_source()), "sm_90a", {}, 0));
  CHECK_FALSE(files->info(kRoot).exists);
}

TEST_CASE("the layout on disk") {
  const auto files = make_memory_file_system();
  Session session(*files);
  REQUIRE(session.get(fake_source()).ok());
  const std::string base = std::string(kRoot) + "/v1";
  CHECK(*files->list(base) ==
        std::vector<std::string>{"CACHEDIR.TAG", "TOOLCHAINS", "k", "state", "tmp"});
  CHECK(files->info(path_of_entry(kRoot, fake_source())).is_regular);
  CHECK(files->list(base + "/tmp")->empty());
  CHECK(*files->read(base + "/TOOLCHAINS") ==
        "attnloom-toolchains 1\n2222222222222222 13.0 13000\n");
  CHECK(files->read(base + "/CACHEDIR.TAG")
            ->rfind("Signature: 8a477f597d28d172789f06886806bc55", 0) == 0);
}

TEST_CASE(
    "entries of several compilers live side by side, the newest that the driver loads is taken") {
  const auto files = make_memory_file_system();
  for (const Fingerprint& fingerprint : {kCuda130, kCuda129, kCuda135}) {
    REQUIRE(Session(*files, fingerprint)
                .store
                .publish(request_key(fake_source()), fake_source(),
                         fake_artifact(fake_source(), fingerprint))
                .ok());
  }
  CHECK(*files->read(std::string(kRoot) + "/v1/TOOLCHAINS") ==
        "attnloom-toolchains 1\n3333333333333333 13.5 13000\n2222222222222222 13.0 13000\n"
        "1111111111111111 12.9 12000\n");
  Session session(*files);
  const std::string key = request_key(fake_source());
  const auto taken = [&](int driver) {
    const auto found = session.store.find(key, "sm_90a", {}, driver);
    return found ? found->artifact.fingerprint : Fingerprint{};
  };
  CHECK(taken(0) == kCuda135);
  CHECK(taken(13000) == kCuda135);
  CHECK(taken(12040) == kCuda129);
  CHECK(taken(11080) == Fingerprint{});
  REQUIRE(files->remove(path_of_entry(kRoot, fake_source(), kCuda135)).ok());
  CHECK(taken(13000) == kCuda130);
}

TEST_CASE("an entry of CUDA 13 is a miss for a driver of CUDA 12") {
  const auto files = make_memory_file_system();
  REQUIRE(Session(*files, kCuda130).get(fake_source()).ok());
  Session old(*files, kCuda129);
  const auto artifact = old.get(fake_source(), {}, 12090);
  REQUIRE(artifact.ok());
  CHECK(artifact->fingerprint == kCuda129);
  CHECK(old.toolchain.compiles == 1);
  Session again(*files, kCuda129);
  CHECK(again.get(fake_source(), {}, 12090)->fingerprint == kCuda129);
  CHECK(again.toolchain.compiles == 0);
}

TEST_CASE("changed text is a new key; the same text is a hit whatever its file's time") {
  const auto files = make_memory_file_system();
  Session session(*files);
  REQUIRE(session.get(fake_source("a")).ok());
  Source changed = fake_source("a");
  changed.headers[0].text = "int b;";
  REQUIRE(session.get(changed).ok());
  CHECK(session.toolchain.compiles == 2);
  REQUIRE(session.get(fake_source("a")).ok());
  REQUIRE(session.get(changed).ok());
  CHECK(session.toolchain.compiles == 2);
}

TEST_CASE("each target has an entry of its own, and a moved cubin is a miss") {
  const auto files = make_memory_file_system();
  const std::vector<std::string> targets = {"sm_80", "sm_90", "sm_90a", "sm_120"};
  for (int round = 0; round < 2; ++round) {
    Session session(*files);
    for (const std::string& target : targets) REQUIRE(session.get(fake_source("k", target)).ok());
    CHECK(session.toolchain.compiles == (round == 0 ? 4 : 0));
    CHECK(session.store.counters().hits == (round == 0 ? 0 : 4));
  }
  const auto hopper = files->read(path_of_entry(kRoot, fake_source("k", "sm_90")));
  overwrite(*files, path_of_entry(kRoot, fake_source("k", "sm_80")), *hopper);
  Session session(*files);
  const auto artifact = session.get(fake_source("k", "sm_80"));
  REQUIRE(artifact.ok());
  CHECK(artifact->target == "sm_80");
  CHECK(session.toolchain.compiles == 1);
  CHECK(session.store.counters().quarantined == 1);
}

TEST_CASE("a wrong target for the right key is a miss") {
  const auto files = make_memory_file_system();
  Session session(*files);
  REQUIRE(session.get(fake_source()).ok());
  CHECK_FALSE(session.store.find(request_key(fake_source()), "sm_80", {}, 0));
}

TEST_CASE(
    "a missing part is a miss, and the entry that holds more replaces the one that holds less") {
  const auto files = make_memory_file_system();
  Session session(*files);
  Artifact cubin_only = fake_artifact(fake_source());
  cubin_only.ptx.clear();
  const std::string key = request_key(fake_source());
  REQUIRE(session.store.publish(key, fake_source(), cubin_only).ok());
  CHECK(session.store.find(key, "sm_90a", {.cubin = true, .ptx = false}, 0));
  CHECK_FALSE(session.store.find(key, "sm_90a", {.cubin = true, .ptx = true}, 0));
  CHECK(session.store.counters().quarantined == 0);
  REQUIRE(session.get(fake_source(), {.cubin = true, .ptx = true}).ok());
  CHECK(session.toolchain.compiles == 1);
  CHECK(session.store.find(key, "sm_90a", {.cubin = true, .ptx = true}, 0)->artifact ==
        fake_artifact(fake_source()));
  CHECK(session.store.counters().published == 2);
  // And not the other way round.
  REQUIRE(session.store.publish(key, fake_source(), cubin_only).ok());
  CHECK(session.store.find(key, "sm_90a", {.cubin = true, .ptx = true}, 0));
  CHECK(session.store.counters().published == 2);
}

TEST_CASE("a damaged entry is quarantined, warned of once, compiled again and then a hit") {
  const auto damage =
      GENERATE(as<std::string>(), "flip", "cut", "append", "empty", "other key", "other compiler");
  INFO(damage);
  const auto files = make_memory_file_system();
  REQUIRE(Session(*files).get(fake_source()).ok());
  REQUIRE(Session(*files).get(fake_source("other")).ok());
  const std::string path = path_of_entry(kRoot, fake_source());
  std::string bytes = *files->read(path);
  if (damage == "flip") bytes[1000] = static_cast<char>(bytes[1000] ^ 4);
  if (damage == "cut") bytes.pop_back();
  if (damage == "append") bytes += "x";
  if (damage == "empty") bytes.clear();
  if (damage == "other key") bytes = *files->read(path_of_entry(kRoot, fake_source("other")));
  if (damage == "other compiler") {
    bytes = encode_entry(request_key(fake_source()), fake_source(),
                         fake_artifact(fake_source(), kCuda135));
  }
  overwrite(*files, path, bytes);
  Session session(*files);
  const auto artifact = session.get(fake_source());
  REQUIRE(artifact.ok());
  CHECK(*artifact == fake_artifact(fake_source()));
  CHECK(session.toolchain.compiles == 1);
  CHECK(session.store.counters().quarantined == 1);
  REQUIRE(session.warnings.size() == 1);
  CHECK(session.warnings[0].find(path) != std::string::npos);
  CHECK(*files->read(std::string(kRoot) + "/v1/quarantine/" + path.substr(path.rfind('/') + 1)) ==
        bytes);
  REQUIRE(session.get(fake_source()).ok());
  CHECK(session.toolchain.compiles == 1);
  CHECK(session.store.counters().hits == 1);
  CHECK(session.warnings.size() == 1);
}

TEST_CASE("a failed compile leaves nothing behind") {
  const auto files = make_memory_file_system();
  Session session(*files);
  for (int i = 0; i < 3; ++i) {
    const auto artifact = session.get(fake_source("error 1"));
    REQUIRE_FALSE(artifact.ok());
    CHECK(artifact.status().code == Code::kCompileFailed);
    CHECK(artifact.status().cause == "error 1");
  }
  CHECK(session.toolchain.compiles == 3);
  CHECK_FALSE(files->info(kRoot).exists);
  CHECK(session.get(fake_source("mended")).ok());
}

TEST_CASE("an empty cubin, another target and odd names are not stored") {
  const auto files = make_memory_file_system();
  Session session(*files);
  const Source source = fake_source();
  const std::string key = request_key(source);
  Artifact empty = fake_artifact(source);
  empty.cubin.clear();
  CHECK(session.store.publish(key, source, empty).code == Code::kCacheIo);
  CHECK(session.store.publish(key, fake_source("k", "sm_80"), fake_artifact(source)).code ==
        Code::kCacheIo);
  for (const std::string& name :
       {std::string("../../x"), std::string("a/b"), std::string("a<b>"), std::string(300, 'a'),
        std::string(), std::string("."), std::string("CON")}) {
    CHECK(session.store.publish(name, source, fake_artifact(source)).code == Code::kCacheIo);
    CHECK_FALSE(session.store.find(name, "sm_90a", {}, 0));
    CHECK(session.store.publish(key, source, fake_artifact(source, {name, 13, 0, 13000})).code ==
          Code::kCacheIo);
  }
  CHECK_FALSE(files->info(kRoot).exists);
}

TEST_CASE("a disk that fills up at any byte costs a warning and no kernel") {
  const Artifact artifact = fake_artifact(fake_source());
  const std::size_t entry_bytes =
      encode_entry(request_key(fake_source()), fake_source(), artifact).size();
  int stored = 0;
  for (std::int64_t room = 0; room < static_cast<std::int64_t>(entry_bytes) + 400; ++room) {
    INFO(room);
    const auto files = make_memory_file_system(room);
    Session session(*files);
    const auto got = session.get(fake_source());
    REQUIRE(got.ok());
    CHECK(*got == artifact);
    const StoreCounters counters = session.store.counters();
    CHECK(counters.write_failures + (session.warnings.empty() ? 1 : 0) == 1);
    CHECK(session.warnings.size() == counters.write_failures);
    if (!session.warnings.empty()) {
      CHECK(session.warnings[0].find(kRoot) != std::string::npos);
      CHECK(session.warnings[0].find("ATTNLOOM_CACHE_DIR") != std::string::npos);
    }
    const FileInfo entry = files->info(path_of_entry(kRoot, fake_source()));
    CHECK((!entry.exists || entry.bytes == entry_bytes));
    stored += entry.exists ? 1 : 0;
  }
  CHECK(stored > 0);
  CHECK(stored < 400);
}

TEST_CASE("TOOLCHAINS that cannot be read is a miss and is written anew") {
  const auto files = make_memory_file_system();
  REQUIRE(Session(*files).get(fake_source()).ok());
  overwrite(*files, std::string(kRoot) + "/v1/TOOLCHAINS", "\n\nrubbish");
  Session session(*files);
  REQUIRE(session.get(fake_source()).ok());
  CHECK(session.toolchain.compiles == 1);
  CHECK(session.store.counters().published == 0);  // the entry was there and whole
  REQUIRE(session.get(fake_source()).ok());
  CHECK(session.toolchain.compiles == 1);
}

TEST_CASE("lines of a later version in TOOLCHAINS are passed over") {
  const auto files = make_memory_file_system();
  REQUIRE(Session(*files).get(fake_source()).ok());
  overwrite(*files, std::string(kRoot) + "/v1/TOOLCHAINS",
            "attnloom-toolchains 1\n../../../../x 13.0 13000\nsigned by somebody\n2222222222222222 "
            "13.0 13000");
  Session session(*files);
  REQUIRE(session.get(fake_source()).ok());
  CHECK(session.toolchain.compiles == 0);
}

TEST_CASE("read-only directories are searched after the root, in order, and never written") {
  const auto files = make_memory_file_system();
  const auto fill = [&](const std::string& root, const std::string& text) {
    Store store(*files, {.root = root});
    REQUIRE(store
                .publish(request_key(fake_source(text)), fake_source(text),
                         fake_artifact(fake_source(text)))
                .ok());
  };
  fill("/shipped", "a");
  fill("/more", "b");
  Session session(*files, kCuda130, {"/shipped", "/more"});
  for (const std::string text : {"a", "b"}) {
    const auto found = session.store.find(request_key(fake_source(text)), "sm_90a", {}, 0);
    REQUIRE(found);
    CHECK(found->layer == Layer::kReadOnly);
    CHECK(found->artifact.cubin == fake_artifact(fake_source(text)).cubin);
  }
  REQUIRE(session.get(fake_source("c")).ok());
  CHECK(session.toolchain.compiles == 1);
  CHECK_FALSE(files->info(path_of_entry("/shipped", fake_source("c"))).exists);
  // Damaged: passed over with one warning, left where it is.
  const std::string path = path_of_entry("/shipped", fake_source("a"));
  overwrite(*files, path, "short");
  for (int i = 0; i < 2; ++i)
    CHECK_FALSE(session.store.find(request_key(fake_source("a")), "sm_90a", {}, 0));
  CHECK(session.warnings.size() == 1);
  CHECK(*files->read(path) == "short");
  CHECK_FALSE(files->info("/shipped/v1/quarantine").exists);
}

TEST_CASE("without a root everything is a miss and publishing is no error") {
  const auto files = make_memory_file_system();
  Store store(*files, {});
  CHECK(store.root().empty());
  CHECK(store.root_refusal().empty());
  CHECK(
      store.publish(request_key(fake_source()), fake_source(), fake_artifact(fake_source())).ok());
  CHECK_FALSE(store.find(request_key(fake_source()), "sm_90a", {}, 0));
  CHECK(store.counters().published == 0);
}

TEST_CASE("the default root") {
  CHECK(default_cache_root("/c", "/x", "/h") == "/c");
  CHECK(default_cache_root("", "/x", "/h") == "/x/attnloom");
  CHECK(default_cache_root("", "relative", "/h") == "/h/.cache/attnloom");
  CHECK(default_cache_root("", "", "/h") == "/h/.cache/attnloom");
  CHECK(default_cache_root("", "", "").empty());
}

}  // namespace attnloom
