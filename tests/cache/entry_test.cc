// SPDX-License-Identifier: Apache-2.0
#include "cache/entry.h"

#include <catch2/catch.hpp>

#include "base/sha256.h"
#include "cache_for_tests.h"

namespace attnloom {
namespace {

const std::string kKey = request_key(fake_source());

std::string fake_entry() {
  return encode_entry(kKey, fake_source(), fake_artifact(fake_source()));
}

std::uint64_t number_at(const std::string& bytes, std::size_t at) {
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i)
    value = value << 8 | static_cast<unsigned char>(bytes[at + static_cast<std::size_t>(i)]);
  return value;
}

// As a writer with other intentions would: a body of its own under a digest that fits.
std::string seal(std::string body) {
  const Digest digest = sha256(body);
  return body.append(reinterpret_cast<const char*>(digest.data()), digest.size());
}

std::string with_number(std::string entry, std::size_t at_in_trailer, std::uint64_t value) {
  std::string body = entry.substr(0, entry.size() - 32);
  for (std::size_t i = 0; i < 8; ++i)
    body[entry.size() - 112 + at_in_trailer + i] = static_cast<char>(value >> (8 * i));
  return seal(body);
}

}  // namespace

TEST_CASE("an entry holds all of the artifact") {
  const Artifact artifact = fake_artifact(fake_source());
  const auto entry = decode_entry(fake_entry(), Unpack::kAll);
  REQUIRE(entry.ok());
  CHECK(entry->artifact == artifact);
  CHECK(entry->request_key == kKey);
  CHECK(entry->has_ptx);
  CHECK(entry->fields == field_digests(fake_source()));
  const auto cubin_only = decode_entry(fake_entry(), Unpack::kCubinOnly);
  REQUIRE(cubin_only.ok());
  CHECK(cubin_only->has_ptx);
  CHECK(cubin_only->artifact.ptx.empty());
  CHECK(cubin_only->artifact.cubin == artifact.cubin);
}

TEST_CASE("the bytes are those of the grammar") {
  const Artifact artifact = fake_artifact(fake_source());
  const std::string bytes = fake_entry();
  const std::string trailer = bytes.substr(bytes.size() - 112);
  CHECK(bytes.compare(0, artifact.cubin.size(), artifact.cubin) == 0);
  CHECK(trailer.substr(0, 8) == std::string("ALK1\1\0\0\0", 8));
  CHECK(number_at(trailer, 8) == artifact.cubin.size());
  CHECK(number_at(trailer, 24) == artifact.ptx.size());
  CHECK(number_at(trailer, 8) + number_at(trailer, 16) + number_at(trailer, 32) + 112 ==
        bytes.size());
  // A zstd frame's own magic.
  CHECK(bytes.substr(artifact.cubin.size(), 4) == "\x28\xb5\x2f\xfd");
  const std::string metadata =
      bytes.substr(artifact.cubin.size() + number_at(trailer, 16), number_at(trailer, 32));
  CHECK(metadata.front() == '{');
  CHECK(metadata.back() == '}');
  CHECK(metadata.find(
            "\"compiler\":{\"cuda_major\":13,\"cuda_minor\":0,\"fingerprint\":\"2222222222222222\","
            "\"least_driver\":13000}") != std::string::npos);
  CHECK(to_hex({reinterpret_cast<const std::uint8_t*>(trailer.data()) + 40, 32}) == kKey);
  CHECK(trailer.substr(72, 8) == std::string(8, '\x22'));
  CHECK(seal(bytes.substr(0, bytes.size() - 32)) == bytes);
}

TEST_CASE("two writers write equal bytes") {
  CHECK(fake_entry() == fake_entry());
}

TEST_CASE("an entry without PTX says so") {
  Artifact artifact = fake_artifact(fake_source());
  artifact.ptx.clear();
  const auto entry = decode_entry(encode_entry(kKey, fake_source(), artifact), Unpack::kAll);
  REQUIRE(entry.ok());
  CHECK_FALSE(entry->has_ptx);
  CHECK(entry->artifact == artifact);
}

TEST_CASE("a log that is not ASCII does not spoil the entry") {
  Artifact artifact = fake_artifact(fake_source());
  artifact.log = "warning: \xc3\xa9 \xff\n";
  const auto entry = decode_entry(encode_entry(kKey, fake_source(), artifact), Unpack::kAll);
  REQUIRE(entry.ok());
  CHECK(entry->artifact.log == "warning: ?? ?\n");
}

TEST_CASE("a cut, longer or changed entry is corrupt, wherever it is hit") {
  const std::string bytes = fake_entry();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto entry = decode_entry(std::string_view(bytes).substr(0, size), Unpack::kAll);
    if (entry.ok() || entry.status().code != Code::kCacheCorrupt) FAIL("cut to " << size);
  }
  CHECK_FALSE(decode_entry(bytes + "x", Unpack::kAll).ok());
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    if (decode_entry(changed, Unpack::kAll).ok()) FAIL("changed at " << at);
  }
}

TEST_CASE("wrong lengths under a right digest are corrupt and never read outside") {
  const std::string bytes = fake_entry();
  REQUIRE(
      decode_entry(with_number(bytes, 8, fake_artifact(fake_source()).cubin.size()), Unpack::kAll)
          .ok());
  for (const std::size_t at : {8, 16, 24, 32}) {
    for (const std::uint64_t value :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 40, ~std::uint64_t{0}}) {
      INFO(at << " " << value);
      CHECK_FALSE(decode_entry(with_number(bytes, at, value), Unpack::kAll).ok());
    }
  }
  // Lengths that add up to the right sum only because 64 bits overflow.
  const std::uint64_t half = std::uint64_t{1} << 63;
  const std::uint64_t metadata_bytes = number_at(bytes.substr(bytes.size() - 112), 32);
  const std::uint64_t cubin_bytes = fake_artifact(fake_source()).cubin.size();
  const std::string overflowing = with_number(bytes, 8, cubin_bytes + half);
  CHECK_FALSE(decode_entry(with_number(overflowing, 32, metadata_bytes + half), Unpack::kAll).ok());
  const std::string other_compiler = with_number(bytes, 72, 1);
  CHECK_FALSE(decode_entry(other_compiler, Unpack::kAll).ok());
  std::string body = bytes.substr(0, bytes.size() - 32);
  body[bytes.size() - 112 + 4] = 2;
  CHECK(decode_entry(seal(body), Unpack::kAll).status().cause ==
        "version 2 is newer than what this library reads (1)");
}

TEST_CASE("only hex becomes a file name") {
  CHECK(is_key(std::string(64, 'a')));
  for (const std::string& bad :
       {std::string(), std::string(63, 'a'), std::string(64, 'A'), std::string(300, 'a'),
        "../" + std::string(61, 'a'), std::string(63, 'a') + "/"}) {
    CHECK_FALSE(is_key(bad));
  }
  CHECK(is_fingerprint("0123456789abcdef"));
  CHECK_FALSE(is_fingerprint("0123456789abcdeg"));
}

}  // namespace attnloom
