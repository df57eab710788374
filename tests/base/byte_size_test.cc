// SPDX-License-Identifier: Apache-2.0
#include "base/byte_size.h"

#include <catch2/catch.hpp>

namespace attnloom {

TEST_CASE("Sizes are digits with an optional unit, and nothing else") {
  CHECK(parse_byte_size("0") == 0u);
  CHECK(parse_byte_size("67108864") == 67108864u);
  CHECK(parse_byte_size("64M") == 67108864u);
  CHECK(parse_byte_size("64m") == 67108864u);
  CHECK(parse_byte_size("64MiB") == 67108864u);
  CHECK(parse_byte_size("2G") == 2147483648u);
  CHECK(parse_byte_size("2GB") == 2147483648u);
  CHECK(parse_byte_size("1K") == 1024u);
  CHECK(parse_byte_size("3T") == 3298534883328u);
  CHECK(parse_byte_size("18446744073709551615") == 18446744073709551615u);
  for (const char* text : {"", "M", "-1", "+1", " 1", "1 ", "1.5G", "1 G", "1GG", "1Gib", "1P",
                           "0x10", "18446744073709551616", "16777216T", "1e9", "1[", "1G\n"}) {
    INFO(text);
    CHECK_FALSE(parse_byte_size(text));
  }
}

TEST_CASE("Sizes are shown in the largest unit that fits") {
  CHECK(byte_size_text(0) == "0 B");
  CHECK(byte_size_text(1023) == "1023 B");
  CHECK(byte_size_text(1024) == "1.0 KiB");
  CHECK(byte_size_text(1610612736) == "1.5 GiB");
  CHECK(byte_size_text(std::uint64_t{5} << 50) == "5120.0 TiB");
}

}  // namespace attnloom
