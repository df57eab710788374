// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

namespace attnloom {
namespace {

TEST_CASE("Known digests (FIPS 180-4)") {
  CHECK(to_hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(to_hex(sha256("abc")) ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(to_hex(sha256(std::string(1'000'000, 'a'))) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("Fields are named and length-prefixed, little endian") {
  // The bytes written out: 8 bytes of length before every part.
  const std::string bytes = std::string("\1\0\0\0\0\0\0\0d", 9) +
                            std::string("\1\0\0\0\0\0\0\0n", 9) +
                            std::string("\2\0\0\0\0\0\0\0xy", 10);
  CHECK(FieldHasher("d").field("n", "xy").finish() == sha256(bytes));
}

TEST_CASE("Different lists of fields never hash alike") {
  std::set<Digest> digests;
  digests.insert(FieldHasher("d").field("option", "-I-O2").finish());
  digests.insert(FieldHasher("d").field("option", "-I").field("option", "-O2").finish());
  digests.insert(FieldHasher("d").field("A", "1|B=2").finish());
  digests.insert(FieldHasher("d").field("A", "1").field("B", "2").finish());
  digests.insert(FieldHasher("d").field("ab", "c").finish());
  digests.insert(FieldHasher("d").field("a", "bc").finish());
  digests.insert(FieldHasher("e").field("a", "bc").finish());
  digests.insert(FieldHasher("d").finish());
  digests.insert(FieldHasher("d").field("", "").finish());
  CHECK(digests.size() == 9);
}

}  // namespace
}  // namespace attnloom
