// SPDX-License-Identifier: Apache-2.0
// The store over bundles on a real disk: they are searched like directories, and what is wrong with
// one is a warning and a count.
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "base/sha256.h"
#include "cache/bundle_writer.h"
#include "cache/entry.h"
#include "cache/read_only_place.h"
#include "cache/tar_member.h"
#include "cache/zstd_frame.h"
#include "cache_for_tests.h"

namespace attnloom {
namespace {

namespace fs = std::filesystem;

void write(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string entry_bytes(const Source& source, const Fingerprint& compiler = kCuda130) {
  return encode_entry(request_key(source), source, fake_artifact(source, compiler));
}

std::string signature_of(const SigningKey& key, const std::string& entry) {
  return add_signature("", key.sign(facts_of(decode_entry(entry, Unpack::kAll).value())));
}

struct Bundled {
  Bundled() { fill({{without_ptx(entry_bytes(source)).value(), "", Json()}}); }

  void fill(std::vector<BundleInput> entries) {
    bytes = write_bundle("1", std::string(64, '7'), std::move(entries)).value();
    write(path, bytes);
  }
  std::uint64_t corrupt() const {
    return counters.layers[static_cast<std::size_t>(Layer::kBundle)].corrupt;
  }
  std::optional<Found> look(Need need = {}, int driver = 0) {
    warnings.clear();
    Store store(*files, {.read_only = places,
                         .trust_keys = keys,
                         .warn = [this](const std::string& line) { warnings.push_back(line); }});
    auto found = store.find(request_key(source), source.target, need, driver);
    (void)store.find(request_key(source), source.target, need, driver);
    counters = store.counters();
    summaries = store.bundles();
    return found;
  }

  TempFolder folder;
  std::unique_ptr<FileSystem> files = make_real_file_system();
  Source source = fake_source();
  std::string path = folder.path() + "/kernels.alb";
  std::vector<std::string> places = {path};
  std::shared_ptr<const TrustedKeys> keys;
  std::string bytes;
  std::vector<std::string> warnings;
  StoreCounters counters;
  std::vector<BundleSummary> summaries;
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a bundle is a layer of its own") {
  Bundled bundled;
  const auto found = bundled.look();
  REQUIRE(found);
  CHECK(found->layer == Layer::kBundle);
  CHECK(found->artifact.cubin == fake_artifact(bundled.source).cubin);
  CHECK(found->kernel_key == kernel_key(request_key(bundled.source), kCuda130));
  CHECK(bundled.warnings.empty());
  REQUIRE(bundled.summaries.size() == 1);
  CHECK(bundled.summaries[0].path == bundled.path);
  CHECK(bundled.summaries[0].templates == std::string(64, '7'));
  CHECK(bundled.summaries[0].targets == std::vector<std::string>{"sm_90a"});
  // What a bundle lacks is a miss without a word: another key, PTX, a driver that is too old.
  CHECK_FALSE(bundled.look({.cubin = false, .ptx = true}));
  CHECK_FALSE(bundled.look({}, 12090));
  bundled.source = fake_source("another");
  CHECK_FALSE(bundled.look());
  CHECK(bundled.warnings.empty());
  CHECK(bundled.corrupt() == 0);
  bundled.source = fake_source();
  bundled.fill({{entry_bytes(bundled.source), "", Json()}});
  REQUIRE(bundled.look({.cubin = false, .ptx = true}));
}

TEST_CASE("the newest compiler that the driver can load is taken from a bundle") {
  Bundled bundled;
  bundled.fill({{entry_bytes(bundled.source, kCuda129), "", Json()},
                {entry_bytes(bundled.source, kCuda135), "", Json()},
                {entry_bytes(bundled.source, kCuda130), "", Json()}});
  CHECK(bundled.look()->artifact.fingerprint == kCuda135);
  CHECK(bundled.look({}, 12090)->artifact.fingerprint == kCuda129);
}

TEST_CASE("a bundle that cannot be read is passed over for the next place") {
  Bundled bundled;
  const std::string good = bundled.folder.path() + "/good.alb";
  write(good, bundled.bytes);
  bundled.places = {bundled.path, good};
  for (const std::string& bad :
       {std::string(), bundled.bytes.substr(0, 100), std::string("text")}) {
    write(bundled.path, bad);
    CHECK(bundled.look());
    REQUIRE(bundled.warnings.size() == 1);
    CHECK(contains(bundled.warnings[0], "the bundle " + bundled.path + " is passed over: "));
    CHECK(bundled.corrupt() == 1);
  }
  // Cut behind its index: it opens, and the entry is what is missing.
  write(bundled.path, bundled.bytes.substr(0, bundled.bytes.size() - 60));
  CHECK(bundled.look());
  REQUIRE(bundled.warnings.size() == 1);
  CHECK(contains(bundled.warnings[0], "is damaged (the file is cut)"));
  CHECK(bundled.corrupt() == 2);
}

TEST_CASE("an entry of a bundle that is the entry of another key is passed over") {
  Bundled bundled;
  // Whole, checksummed and named by the index: only the entry itself tells.
  const std::string other = without_ptx(entry_bytes(fake_source("another"))).value();
  BundleIndex index = BundleFile::open(*bundled.files, bundled.path, "").value().index();
  const std::string frame_name = bundle_member_name(index.entries[0]);
  const std::string frame = compress_frame(tar_member(frame_name, other), 1, FrameChecksum::kNone);
  index.entries[0].offset = 0;
  index.entries[0].frame_bytes = frame.size();
  index.entries[0].bytes = other.size();
  index.entries[0].sha256 = to_hex(sha256(other));
  write(bundled.path, with_bundle_index(index, frame));
  CHECK_FALSE(bundled.look());
  REQUIRE(bundled.warnings.size() == 1);
  CHECK(contains(bundled.warnings[0], "it is the entry of another key"));
}

TEST_CASE("keys, owners and pins decide whether a bundle is used") {
  Bundled bundled;
  const SigningKey key = SigningKey::generate();
  const auto listed =
      std::make_shared<const TrustedKeys>(TrustedKeys::parse(key.public_pem(), "test").value());
  const std::string pinned = bundled.path + "#sha256=" + to_hex(sha256(bundled.bytes));
  // Others can write it.
  REQUIRE(::chmod(bundled.path.c_str(), 0666) == 0);
  CHECK_FALSE(bundled.look());
  CHECK(bundled.counters.untrusted == 1);
  REQUIRE(bundled.warnings.size() == 1);
  CHECK(contains(bundled.warnings[0], "is not used: it can be written by other users"));
  bundled.places = {pinned};
  CHECK(bundled.look());
  CHECK(bundled.warnings.empty());
  // With keys a signature is needed as well.
  bundled.keys = listed;
  CHECK_FALSE(bundled.look());
  CHECK(bundled.counters.untrusted == 2);
  CHECK(contains(bundled.warnings.at(0), "it is not signed"));
  const std::string entry = without_ptx(entry_bytes(bundled.source)).value();
  bundled.fill({{entry, signature_of(key, entry), Json()}});
  // The pin is of the bundle before.
  CHECK_FALSE(bundled.look());
  REQUIRE(bundled.warnings.size() == 1);
  CHECK(contains(bundled.warnings[0], "not the pinned one"));
  CHECK(bundled.counters.untrusted == 1);
  bundled.places = {bundled.path};
  CHECK(bundled.look());
  bundled.keys = nullptr;
  CHECK_FALSE(bundled.look());
  bundled.places = {bundled.path + "#sha256=" + std::string(64, 'G')};
  CHECK_FALSE(bundled.look());
  CHECK(contains(bundled.warnings.at(0), "64 lower-case hex digits"));
}

TEST_CASE("a bundle may be named by a link, and a directory cannot be pinned") {
  Bundled bundled;
  const std::string link = bundled.folder.path() + "/current.alb";
  fs::create_symlink(bundled.path, link);
  bundled.places = {link};
  CHECK(bundled.look());
  bundled.places = {bundled.folder.path() + "#sha256=" + std::string(64, '0')};
  CHECK_FALSE(bundled.look());
  CHECK(contains(bundled.warnings.at(0), "a digest pins one file"));
}

TEST_CASE("places list their entries, sorted") {
  Bundled bundled;
  Store store(*bundled.files, {.root = bundled.folder.root()});
  FakeToolchain toolchain;
  std::vector<std::pair<std::string, std::string>> wanted;
  std::vector<BundleInput> entries;
  for (const char* text : {"a", "b", "c"}) {
    REQUIRE(get(store, toolchain, fake_source(text)).ok());
    wanted.emplace_back(request_key(fake_source(text)), kCuda130.hex);
    entries.push_back({entry_bytes(fake_source(text)), "", Json()});
  }
  std::sort(wanted.begin(), wanted.end());
  write(path_of_entry(bundled.folder.root(), fake_source("a")) + ".sig", "");
  write(bundled.folder.root() + "/v1/k/stray", "");
  CHECK(ReadOnlyPlace(*bundled.files, bundled.folder.root()).list() == wanted);
  bundled.fill(std::move(entries));
  CHECK(ReadOnlyPlace(*bundled.files, bundled.path).list() == wanted);
  CHECK(ReadOnlyPlace(*bundled.files, bundled.folder.path() + "/absent").list().empty());
}

}  // namespace attnloom
