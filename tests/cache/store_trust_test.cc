// SPDX-License-Identifier: Apache-2.0
// Who is believed outside the own root: docs/decisions/011.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "cache/entry.h"
#include "cache/trust.h"
#include "cache_for_tests.h"

namespace attnloom {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const TrustedKeys> keys_of(const std::string& text) {
  return std::make_shared<const TrustedKeys>(TrustedKeys::parse(text, "test").value());
}

void write(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// A directory that one store filled and another one reads.
struct Shared {
  Shared() {
    Store writer(*files, {.root = folder.root()});
    FakeToolchain toolchain;
    REQUIRE(get(writer, toolchain, source).ok());
  }

  std::optional<Found> look(std::shared_ptr<const TrustedKeys> keys = nullptr, Need need = {}) {
    warnings.clear();
    Store store(*files, {.read_only = {folder.root()},
                         .trust_keys = std::move(keys),
                         .warn = [this](const std::string& line) { warnings.push_back(line); }});
    std::optional<Found> found;
    for (int i = 0; i < 3; ++i) found = store.find(request_key(source), source.target, need, 0);
    untrusted = store.counters().untrusted;
    return found;
  }
  Entry entry() { return decode_entry(files->read(path).value(), Unpack::kAll).value(); }
  void sign(const SigningKey& key) {
    write(path + ".sig", add_signature("", key.sign(facts_of(entry()))));
  }

  TempFolder folder;
  std::unique_ptr<FileSystem> files = make_real_file_system();
  Source source = fake_source();
  std::string path = path_of_entry(folder.root(), source);
  std::vector<std::string> warnings;
  std::uint64_t untrusted = 0;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a directory that only this user can write needs no signature") {
  Shared shared;
  CHECK(shared.look());
  CHECK(shared.untrusted == 0);
  CHECK(shared.warnings.empty());
}

TEST_CASE("with keys every entry outside the own root needs a signature of theirs") {
  Shared shared;
  const SigningKey key = SigningKey::generate();
  CHECK_FALSE(shared.look(keys_of(key.public_pem())));
  CHECK(shared.untrusted == 3);
  REQUIRE(shared.warnings.size() == 1);
  CHECK(contains(shared.warnings[0], "UNTRUSTED"));
  CHECK(contains(shared.warnings[0], "it is not signed"));
  CHECK(contains(shared.warnings[0], "ATTNLOOM_TRUST_KEYS"));
  shared.sign(SigningKey::generate());
  CHECK_FALSE(shared.look(keys_of(key.public_pem())));
  shared.sign(key);
  for (const bool ptx : {false, true}) {
    CHECK(shared.look(keys_of(key.public_pem()), {.cubin = true, .ptx = ptx}));
    CHECK(shared.untrusted == 0);
    CHECK(shared.warnings.empty());
  }
  CHECK_FALSE(shared.look(keys_of(key.public_pem() + "revoked " + key.key_id() + "\n")));
  CHECK(contains(shared.warnings.at(0), "is revoked"));
}

TEST_CASE("the own root needs no signature, with keys or without") {
  Shared shared;
  Store store(*shared.files, {.root = shared.folder.root(),
                              .trust_keys = keys_of(SigningKey::generate().public_pem())});
  CHECK(store.find(request_key(shared.source), "sm_90a", {}, 0));
  CHECK(store.counters().untrusted == 0);
}

TEST_CASE("a whole entry under a signature for another one is passed over") {
  Shared shared;
  const SigningKey key = SigningKey::generate();
  shared.sign(key);
  // Same key and compiler, whole and checksummed, but another program.
  Artifact other = fake_artifact(shared.source);
  other.cubin[100] ^= 1;
  write(shared.path, encode_entry(request_key(shared.source), shared.source, other));
  CHECK_FALSE(shared.look(keys_of(key.public_pem())));
  CHECK(contains(shared.warnings.at(0), "is for other content"));
  // Other PTX matters where PTX is wanted.
  other = fake_artifact(shared.source);
  other.ptx += "// more";
  write(shared.path, encode_entry(request_key(shared.source), shared.source, other));
  CHECK(shared.look(keys_of(key.public_pem())));
  CHECK_FALSE(shared.look(keys_of(key.public_pem()), {.cubin = true, .ptx = true}));
  CHECK(contains(shared.warnings.at(0), "its PTX is not what"));
}

TEST_CASE("B119: a directory that others can write is used for signed entries only") {
  Shared shared;
  const SigningKey key = SigningKey::generate();
  for (const int mode : {0777, 0775, 01777}) {
    REQUIRE(::chmod(shared.folder.root().c_str(), static_cast<mode_t>(mode)) == 0);
    CHECK_FALSE(shared.look());
    CHECK(shared.untrusted == 1);
    REQUIRE(shared.warnings.size() == 1);
    CHECK(contains(shared.warnings[0], "is not used: it can be written by other users"));
  }
  CHECK_FALSE(shared.look(keys_of(key.public_pem())));
  shared.sign(key);
  CHECK(shared.look(keys_of(key.public_pem())));
  CHECK_FALSE(shared.look());
}

TEST_CASE("B119: one entry that others can write is passed over without keys") {
  Shared shared;
  REQUIRE(::chmod(shared.path.c_str(), 0666) == 0);
  CHECK_FALSE(shared.look());
  CHECK(shared.untrusted == 3);
  REQUIRE(shared.warnings.size() == 1);
  CHECK(contains(shared.warnings[0], "it can be written by other users"));
  REQUIRE(::chmod(shared.path.c_str(), 0644) == 0);
  CHECK(shared.look());
  if (::geteuid() != 0) return;  // only root can give a file away
  REQUIRE(::chown(shared.path.c_str(), 12345, 12345) == 0);
  CHECK_FALSE(shared.look());
  CHECK(contains(shared.warnings.at(0), "it belongs to user 12345"));
  REQUIRE(::chown(shared.path.c_str(), 0, 0) == 0);
  REQUIRE(::chown(shared.folder.root().c_str(), 12345, 12345) == 0);
  CHECK_FALSE(shared.look());
  CHECK(contains(shared.warnings.at(0), "is not used: it belongs to user 12345"));
}

TEST_CASE("a named directory may be a link where everything on its way is trusted") {
  Shared shared;
  const std::string link = shared.folder.path() + "/link";
  fs::create_directory_symlink(shared.folder.root(), link);
  const auto hit = [&] {
    Store store(*shared.files, {.read_only = {link}});
    return store.find(request_key(shared.source), "sm_90a", {}, 0).has_value();
  };
  CHECK(hit());
  REQUIRE(::chmod(shared.folder.root().c_str(), 0777) == 0);
  CHECK_FALSE(hit());
  // An entry that is a link is not followed, signed or not.
  REQUIRE(::chmod(shared.folder.root().c_str(), 0700) == 0);
  CHECK(hit());
  fs::rename(shared.path, shared.folder.path() + "/elsewhere");
  fs::create_symlink(shared.folder.path() + "/elsewhere", shared.path);
  CHECK_FALSE(hit());
}

}  // namespace attnloom
