// SPDX-License-Identifier: Apache-2.0
// Bundles as bytes: what is written, and that nothing but that is ever read.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>

#include "base/format_version.h"
#include "base/sha256.h"
#include "cache/bundle_file.h"
#include "cache/bundle_writer.h"
#include "cache/entry.h"
#include "cache/tar_member.h"
#include "cache/zstd_frame.h"
#include "cache_for_tests.h"

namespace attnloom {
namespace {

constexpr const char* kPath = "/b.alb";
const std::string kTemplates(64, '7');

std::string entry_bytes(const std::string& text, const Fingerprint& compiler = kCuda130,
                        const std::string& target = "sm_90a") {
  const Source source = fake_source(text, target);
  return encode_entry(request_key(source), source, fake_artifact(source, compiler));
}

std::vector<BundleInput> inputs() {
  return {{entry_bytes("one"), "", Json()},
          {without_ptx(entry_bytes("two", kCuda129)).value(), "sig", {{"variant", "soft_cap"}}},
          {entry_bytes("three", kCuda135, "sm_80"), "", Json()}};
}

std::string bundle_of(std::vector<BundleInput> entries) {
  return write_bundle("1.2.3", kTemplates, std::move(entries)).value();
}

struct OnDisk {
  explicit OnDisk(const std::string& bytes) {
    REQUIRE(files->publish("/", kPath, bytes, Publish::kReplace).ok());
  }
  Result<BundleFile> open(const std::string& pin = "") const {
    return BundleFile::open(*files, kPath, pin);
  }
  std::unique_ptr<FileSystem> files = make_memory_file_system();
};

// The cause of refusing to open, else of the first entry that cannot be read, else "".
std::string refusal(const std::string& bytes) {
  const OnDisk disk(bytes);
  const auto bundle = disk.open();
  if (!bundle.ok()) {
    CHECK(bundle.status().code == Code::kCacheCorrupt);
    return bundle.status().cause;
  }
  for (const BundleEntry& entry : bundle->index().entries) {
    const auto read = bundle->read(entry);
    if (read.ok()) continue;
    CHECK(read.status().code == Code::kCacheCorrupt);
    return read.status().cause;
  }
  return bundle->check_archive().cause;
}

// The bundle of inputs() with its index changed and sealed again, as a liar would.
std::string lie(const std::function<void(BundleIndex&)>& change) {
  const OnDisk disk(bundle_of(inputs()));
  const BundleFile bundle = disk.open().value();
  BundleIndex index = bundle.index();
  change(index);
  return with_bundle_index(index, bundle.frames().value());
}

// The bundle of inputs() with the text of its index replaced.
std::string with_index_text(const std::function<void(std::string&)>& change) {
  const OnDisk disk(bundle_of(inputs()));
  const BundleFile bundle = disk.open().value();
  std::string text = print_bundle_index(bundle.index());
  change(text);
  return compress_frame(tar_member(kBundleIndexName, text), 1, FrameChecksum::kNone) +
         bundle.frames().value();
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  REQUIRE(text.find(from) != std::string::npos);
  text.replace(text.find(from), from.size(), to);
}

}  // namespace

TEST_CASE("a bundle gives back its entries") {
  const OnDisk disk(bundle_of(inputs()));
  const auto bundle = disk.open();
  REQUIRE(bundle.ok());
  CHECK(bundle->index().library == "1.2.3");
  CHECK(bundle->index().templates == kTemplates);
  CHECK(bundle->index().toolchains == std::vector<Fingerprint>{kCuda135, kCuda130, kCuda129});
  CHECK(bundle_targets(bundle->index()) == std::vector<std::string>{"sm_80", "sm_90a"});
  CHECK(bundle->index().entries.size() == 3);
  CHECK(bundle->check_archive().ok());
  for (const BundleInput& input : inputs()) {
    const Entry entry = decode_entry(input.bytes, Unpack::kAll).value();
    const BundleEntry* listed = bundle->find(entry.request_key, entry.artifact.fingerprint.hex);
    REQUIRE(listed);
    CHECK(bundle->read(*listed).value() == input.bytes);
    CHECK(listed->target == entry.artifact.target);
    CHECK(listed->bytes == input.bytes.size());
    CHECK(listed->sha256 == to_hex(sha256(input.bytes)));
    CHECK(listed->cubin_sha256 == to_hex(sha256(entry.artifact.cubin)));
    CHECK(listed->ptx_sha256 == (entry.has_ptx ? to_hex(sha256(entry.artifact.ptx)) : ""));
    CHECK(listed->signature == input.signature);
    CHECK(listed->about == input.about);
    CHECK_FALSE(bundle->find(entry.request_key, "9999999999999999"));
  }
  CHECK_FALSE(bundle->find(std::string(64, 'f'), kCuda130.hex));
}

TEST_CASE("the order of the entries does not show, nor does one that is given twice") {
  std::vector<BundleInput> turned = inputs();
  std::reverse(turned.begin(), turned.end());
  turned.push_back(inputs()[1]);
  CHECK(bundle_of(turned) == bundle_of(inputs()));
  CHECK(bundle_of({}) == bundle_of({}));
  CHECK(refusal(bundle_of({})).empty());
}

TEST_CASE("an entry without its PTX is the entry as compiled without") {
  Artifact artifact = fake_artifact(fake_source());
  artifact.ptx.clear();
  const std::string key = request_key(fake_source());
  CHECK(without_ptx(entry_bytes("kernel")).value() == encode_entry(key, fake_source(), artifact));
  const std::string once = without_ptx(entry_bytes("kernel")).value();
  CHECK(without_ptx(once).value() == once);
  CHECK(without_ptx("nothing").status().code == Code::kCacheCorrupt);
}

TEST_CASE("a damaged entry makes no bundle") {
  std::vector<BundleInput> entries = inputs();
  entries[1].bytes[7] ^= 1;
  CHECK(write_bundle("1", kTemplates, entries).status().code == Code::kCacheCorrupt);
}

TEST_CASE("a bundle that is cut anywhere is noticed") {
  const std::string whole = bundle_of(inputs());
  CHECK(refusal(whole).empty());
  for (std::size_t bytes = 0; bytes < whole.size(); bytes += 5)
    REQUIRE_FALSE(refusal(whole.substr(0, bytes)).empty());
  CHECK_FALSE(refusal(whole.substr(0, whole.size() - 1)).empty());
  CHECK_FALSE(refusal(whole + "x").empty());
}

TEST_CASE("a changed byte gives the right bytes or none") {
  const std::string whole = bundle_of(inputs());
  const OnDisk good(whole);
  const BundleFile before = good.open().value();
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ (1 << (at % 8)));
    const OnDisk disk(changed);
    const auto bundle = disk.open();
    if (!bundle.ok()) continue;
    for (const BundleEntry& entry : bundle->index().entries) {
      const auto read = bundle->read(entry);
      const BundleEntry* same = before.find(entry.request_key, entry.fingerprint);
      REQUIRE(same);
      if (read.ok()) REQUIRE(read.value() == before.read(*same).value());
    }
  }
}

TEST_CASE("an index that lies is noticed at the entry that it lies about") {
  const auto of_first = [](const std::function<void(BundleEntry&)>& change) {
    return refusal(lie([&](BundleIndex& index) { change(index.entries[0]); }));
  };
  CHECK(of_first([](BundleEntry&) {}).empty());
  CHECK(of_first([](BundleEntry& entry) { entry.offset += 1; }) == "its frame is damaged");
  CHECK(of_first([](BundleEntry& entry) { entry.offset = ~0ull; }) == "the file is cut");
  CHECK(of_first([](BundleEntry& entry) { entry.offset = 1 << 30; }) == "the file is cut");
  CHECK(of_first([](BundleEntry& entry) { entry.frame_bytes += 1; }) == "its frame is damaged");
  CHECK(of_first([](BundleEntry& entry) { entry.frame_bytes = 0; }) == "its frame is damaged");
  CHECK(of_first([](BundleEntry& entry) { entry.bytes += 1; }) ==
        "its frame holds another member than the index says");
  CHECK(of_first([](BundleEntry& entry) { entry.bytes += 600; }) == "its frame is damaged");
  CHECK(of_first([](BundleEntry& entry) { entry.bytes = 1ull << 40; }) ==
        "the index claims an entry of 1099511627776 bytes");
  CHECK(of_first([](BundleEntry& entry) { entry.sha256[5] ^= 1; }) ==
        "the SHA-256 differs from the index");
  CHECK(of_first([](BundleEntry& entry) {
          entry.request_key[63] = entry.request_key[63] == '0' ? '1' : '0';
        }) == "its frame holds another member than the index says");
  // One entry under the name of another one.
  CHECK(refusal(lie([](BundleIndex& index) {
          std::swap(index.entries[0].request_key, index.entries[1].request_key);
          std::swap(index.entries[0].fingerprint, index.entries[1].fingerprint);
        })) == "the entries of the index are not in order");
  CHECK(refusal(lie([](BundleIndex& index) {
          std::swap(index.entries[0].offset, index.entries[1].offset);
          std::swap(index.entries[0].frame_bytes, index.entries[1].frame_bytes);
          std::swap(index.entries[0].bytes, index.entries[1].bytes);
          std::swap(index.entries[0].sha256, index.entries[1].sha256);
        })) == "its frame holds another member than the index says");
  CHECK(refusal(lie([](BundleIndex& index) { index.entries[1] = index.entries[0]; })) ==
        "the entries of the index are not in order");
  CHECK(refusal(lie([](BundleIndex& index) { index.entries[0].request_key = "../../x"; })) ==
        "the index names an entry badly");
  CHECK(refusal(lie([](BundleIndex& index) { index.toolchains.pop_back(); })) ==
        "its TOOLCHAINS differ from the index");
  CHECK(refusal(lie([](BundleIndex& index) { index.toolchains[0].hex = "x"; })) ==
        "the index names a compiler badly");
}

TEST_CASE("what is no index is refused") {
  const auto changed = [](const std::string& from, const std::string& to) {
    return refusal(with_index_text([&](std::string& text) { replace(text, from, to); }));
  };
  CHECK(changed("\"version\":1", "\"version\":1").empty());
  CHECK(changed("\"version\":1", "\"version\":2") ==
        "bundle version 2 is newer than what this library reads (1)");
  CHECK(changed("\"version\":1", "\"version\":0") ==
        "bundle version 0 is older than what this library reads (1)");
  CHECK(changed("attnloom-bundle", "attnloom-other") == "the index is of another format");
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"\"version\":1", "\"version\":-1"},
                                                        {"\"version\":1", "\"version\":1.0"},
                                                        {"\"offset\":", "\"offset\":-"},
                                                        {"\"offset\":", "\"offzet\":"},
                                                        {"\"sha256\":\"", "\"sha256\":1,\"x\":\""},
                                                        {"{", "["}})
    CHECK(changed(from, to).rfind("the index cannot be read: ", 0) == 0);
  CHECK(changed("\"entries\":[", "\"entries\":5,\"x\":[") ==
        "the index cannot be read: entries is no list");
  CHECK(changed("\"offset\":", "\"offset\":\"\",\"x\":") ==
        "the index cannot be read: offset is no whole number");
  CHECK(changed("\"about\":{\"variant\":\"soft_cap\"}",
                "\"about\":" + std::string(100, '[') + std::string(100, ']')) ==
        "the index nests too deep");
  CHECK(refusal("") == "it does not begin with a zstd frame of known size");
  CHECK(refusal(std::string(1000, 'x')) == "it does not begin with a zstd frame of known size");
  CHECK(refusal(compress_frame(tar_member("other/name", "{}"), 1, FrameChecksum::kNone)) ==
        "its first member is not attnloom/v1/index.json");
  // A frame that says that it unpacks to a terabyte costs no memory.
  std::string huge = compress_frame(std::string(100000, 'x'), 1, FrameChecksum::kNone);
  const std::string header("\x28\xb5\x2f\xfd\xe0\0\0\0\0\0\1\0\0", 13);
  CHECK(refusal(header + huge) == "the index claims 1099511627776 bytes");
}

TEST_CASE("a frame is one frame of the size that it says") {
  const std::string frame = compress_frame("content", 3, FrameChecksum::kContent);
  CHECK(decompress_frame(frame, 7) == std::string("content"));
  CHECK_FALSE(decompress_frame(frame, 8));
  CHECK_FALSE(decompress_frame(frame, 6));
  CHECK_FALSE(decompress_frame(frame + compress_frame("", 3, FrameChecksum::kNone), 7));
  CHECK_FALSE(decompress_frame(frame.substr(0, frame.size() - 1), 7));
  CHECK_FALSE(decompress_frame("", 0));
  CHECK_FALSE(frame_content_bytes("content"));
  CHECK(frame_bytes(frame + "more") == frame.size());
}

TEST_CASE("a pin names the bytes of the file") {
  const std::string whole = bundle_of(inputs());
  const OnDisk disk(whole);
  const std::string pin = to_hex(sha256(whole));
  REQUIRE(disk.open(pin).ok());
  const auto other = disk.open(std::string(64, '0'));
  CHECK(other.status().code == Code::kUntrusted);
  CHECK(other.status().cause == "its SHA-256 is " + pin + ", not the pinned one");
  // The file is exchanged behind an open bundle: its entries are those that were hashed, or none.
  const BundleFile bundle = disk.open(pin).value();
  REQUIRE(disk.files->publish("/", kPath, bundle_of({inputs()[0]}), Publish::kReplace).ok());
  for (const BundleEntry& entry : bundle.index().entries)
    if (const auto read = bundle.read(entry); read.ok())
      CHECK(to_hex(sha256(read.value())) == entry.sha256);
}

TEST_CASE("formats are read one major back") {
  CHECK(reads_version(1, 1));
  CHECK_FALSE(reads_version(0, 1));
  CHECK_FALSE(reads_version(2, 1));
  CHECK(reads_version(2, 3));
  CHECK(reads_version(3, 3));
  CHECK_FALSE(reads_version(1, 3));
  CHECK_FALSE(reads_version(~0ull, 3));
  CHECK(refused_version(1, 3) == "version 1 is older than what this library reads (2 and 3)");
  CHECK(refused_version(4, 3) == "version 4 is newer than what this library reads (2 and 3)");
}

}  // namespace attnloom
