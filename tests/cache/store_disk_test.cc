// SPDX-License-Identifier: Apache-2.0
// The store on a real disk: modes, links, users, directories that cannot be written.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <thread>

#include "cache/entry.h"
#include "cache_for_tests.h"

namespace attnloom {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kNobody = 65534;

struct Session {
  explicit Session(const std::string& root)
      : store(*files, {.root = root,
                       .warn = [this](const std::string& line) { warnings.push_back(line); }}) {}

  Result<Artifact> get(const Source& source) { return attnloom::get(store, toolchain, source); }

  std::unique_ptr<FileSystem> files = make_real_file_system();
  std::vector<std::string> warnings;
  FakeToolchain toolchain;
  Store store;
};

// Runs `body` in a child as a user whom permissions bind (root is not), and returns its exit
// status.
template <class Body>
int as_ordinary_user(const Body& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && (::setgid(kNobody) != 0 || ::setuid(kNobody) != 0)) ::_exit(99);
    ::_exit(body());
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void make_read_only(const std::string& root) {
  for (const auto& item : fs::recursive_directory_iterator(root)) {
    if (!item.is_directory()) fs::permissions(item.path(), fs::perms(0444));
  }
  for (const auto& item : fs::recursive_directory_iterator(root)) {
    if (item.is_directory()) fs::permissions(item.path(), fs::perms(0555));
  }
  fs::permissions(root, fs::perms(0555));
}

void make_writable(const std::string& root) {
  fs::permissions(root, fs::perms(0755));
  for (const auto& item : fs::recursive_directory_iterator(root)) {
    if (item.is_directory()) fs::permissions(item.path(), fs::perms(0755));
  }
}

std::vector<std::string> names_below(const std::string& root) {
  std::vector<std::string> names;
  for (const auto& item : fs::recursive_directory_iterator(root))
    names.push_back(item.path().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("directories are 0700 and files 0600 whatever the umask") {
  const TempFolder folder;
  for (const mode_t mask : {0000, 0077, 0777}) {
    const mode_t before = ::umask(mask);
    Session session(folder.root() + std::to_string(mask));
    const bool stored = session.get(fake_source()).ok() && session.store.counters().published == 1;
    ::umask(before);
    REQUIRE(stored);
    for (const auto& item : fs::recursive_directory_iterator(session.store.root())) {
      INFO(item.path());
      CHECK(item.status().permissions() == fs::perms(item.is_directory() ? 0700 : 0600));
    }
    CHECK(fs::status(session.store.root()).permissions() == fs::perms(0700));
  }
}

TEST_CASE("a root that cannot be written: hits stay hits, a miss is compiled with one warning") {
  const TempFolder folder;
  fs::permissions(folder.path(), fs::perms(0755));
  REQUIRE(Session(folder.root()).get(fake_source()).ok());
  make_read_only(folder.root());
  const auto before = names_below(folder.root());
  const int status = as_ordinary_user([&] {
    Session session(folder.root());
    if (!session.get(fake_source()).ok() || session.toolchain.compiles != 0) return 1;
    if (!session.warnings.empty()) return 2;
    for (const std::string text : {"new", "newer"}) {
      if (!session.get(fake_source(text)).ok()) return 3;
    }
    if (session.toolchain.compiles != 2 || session.store.counters().write_failures != 2) return 4;
    if (session.warnings.size() != 1) return 5;
    if (session.warnings[0].find(folder.root()) == std::string::npos) return 6;
    return session.warnings[0].find("ATTNLOOM_CACHE_DIR") == std::string::npos ? 7 : 0;
  });
  CHECK(status == 0);
  CHECK(names_below(folder.root()) == before);
  make_writable(folder.root());
}

TEST_CASE("an entry that is a directory is moved aside and made again") {
  const TempFolder folder;
  const std::string path = path_of_entry(folder.root(), fake_source());
  REQUIRE(Session(folder.root()).get(fake_source()).ok());
  for (int round = 1; round <= 2; ++round) {  // the second finds the name in quarantine taken
    fs::remove(path);
    fs::create_directories(path + "/inside");
    Session session(folder.root());
    REQUIRE(session.get(fake_source()).ok());
    CHECK(session.toolchain.compiles == 1);
    CHECK(session.store.counters().quarantined == 1);
    CHECK(session.warnings.size() == 1);
    REQUIRE(session.get(fake_source()).ok());
    CHECK(session.toolchain.compiles == 1);
    CHECK(fs::is_regular_file(path));
    CHECK(names_below(folder.root() + "/v1/quarantine").size() ==
          static_cast<std::size_t>(2 * round));
  }
}

TEST_CASE("an entry that was grown to gigabytes is moved aside and not read") {
  const TempFolder folder;
  const std::string path = path_of_entry(folder.root(), fake_source());
  REQUIRE(Session(folder.root()).get(fake_source()).ok());
  fs::resize_file(path, std::uintmax_t{1} << 40);
  Session session(folder.root());
  REQUIRE(session.get(fake_source()).ok());
  CHECK(session.toolchain.compiles == 1);
  CHECK(session.store.counters().quarantined == 1);
}

TEST_CASE("an entry that is a link, or that others may write, is a miss and is replaced") {
  const TempFolder folder;
  const std::string path = path_of_entry(folder.root(), fake_source());
  const std::string planted = folder.path() + "/planted";
  REQUIRE(Session(folder.root()).get(fake_source()).ok());
  SECTION("a link to a whole entry") {
    fs::rename(path, planted);
    fs::create_symlink(planted, path);
  }
  SECTION("a group may write it") {
    fs::permissions(path, fs::perms(0620));
  }
  SECTION("another user's") {
    if (::geteuid() != 0) return;  // only root can give a file away
    REQUIRE(::chown(path.c_str(), kNobody, kNobody) == 0);
  }
  Session session(folder.root());
  REQUIRE(session.get(fake_source()).ok());
  CHECK(session.toolchain.compiles == 1);
  CHECK(session.warnings.size() == 1);
  REQUIRE(session.get(fake_source()).ok());
  CHECK(session.toolchain.compiles == 1);
  CHECK(session.store.counters().hits == 1);
  CHECK_FALSE(fs::is_symlink(path));
  CHECK(session.files->info(path).mode == 0600);
}

TEST_CASE("names from a request stay inside the root") {
  const TempFolder folder;
  Session session(folder.root());
  REQUIRE(session.get(fake_source()).ok());
  const auto before = names_below(folder.path());
  const Artifact artifact = fake_artifact(fake_source());
  for (const std::string& name : {std::string("../../x"), std::string("a/b"), std::string(300, 'a'),
                                  std::string("."), "../../../" + std::string(55, 'a')}) {
    CHECK_FALSE(session.store.publish(name, fake_source(), artifact).ok());
    CHECK_FALSE(session.store.find(name, "sm_90a", {}, 0));
  }
  Source odd = fake_source("odd");
  odd.entries = {"../../x"};
  REQUIRE(session.get(odd).ok());
  CHECK(names_below(folder.path()).size() <= before.size() + 2);  // its entry, and a folder for it
  for (const std::string& name : names_below(folder.path()))
    CHECK(name.find("/x") == std::string::npos);
}

TEST_CASE("files of writers that died are swept, those of live ones are not") {
  const TempFolder folder;
  REQUIRE(Session(folder.root()).get(fake_source()).ok());
  const std::string temps = folder.root() + "/v1/tmp/";
  for (const std::string name : {"old", "new"}) std::ofstream(temps + name) << "half an entry";
  fs::last_write_time(temps + "old", fs::file_time_type::clock::now() - std::chrono::minutes(61));
  fs::create_directory(temps + "directory");
  REQUIRE(Session(folder.root()).get(fake_source("next")).ok());
  CHECK(names_below(folder.root() + "/v1/tmp") ==
        std::vector<std::string>{temps + "directory", temps + "new"});
}

TEST_CASE(
    "two writers leave equal bytes and TOOLCHAINS whole, with all toolchains after the next "
    "publication") {
  const TempFolder folder;
  const auto files = make_real_file_system();
  const std::vector<Fingerprint> compilers = {kCuda129, kCuda130, kCuda135};
  std::atomic<bool> failed{false};
  const auto publish_all = [&](const Fingerprint& compiler, int from, int to) {
    Store store(*files, {.root = folder.root()});
    for (int i = from; i < to; ++i) {
      const Source source = fake_source(std::to_string(i));
      if (!store.publish(request_key(source), source, fake_artifact(source, compiler)).ok())
        failed = true;
      const auto text = files->read(folder.root() + "/v1/TOOLCHAINS");
      if (!text.ok() || text->rfind("attnloom-toolchains 1\n", 0) != 0 || text->back() != '\n')
        failed = true;
    }
  };
  std::vector<std::thread> writers;
  for (int copy = 0; copy < 2; ++copy) {
    for (const Fingerprint& compiler : compilers)
      writers.emplace_back([&] { publish_all(compiler, 0, 10); });
  }
  for (std::thread& writer : writers) writer.join();
  CHECK_FALSE(failed);
  for (const Fingerprint& compiler : compilers) publish_all(compiler, 10, 11);
  CHECK(*files->read(folder.root() + "/v1/TOOLCHAINS") ==
        "attnloom-toolchains 1\n3333333333333333 13.5 13000\n2222222222222222 13.0 13000\n"
        "1111111111111111 12.9 12000\n");
  for (const Fingerprint& compiler : compilers) {
    for (int i = 0; i < 11; ++i) {
      const Source source = fake_source(std::to_string(i));
      CHECK(*files->read(path_of_entry(folder.root(), source, compiler)) ==
            encode_entry(request_key(source), source, fake_artifact(source, compiler)));
    }
  }
  CHECK(names_below(folder.root() + "/v1/tmp").empty());
}

}  // namespace attnloom
