// SPDX-License-Identifier: Apache-2.0
// Sizes as people write them. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace attnloom {

// "1048576", "64M", "2G", "2GiB": digits, then nothing or K, M, G or T (powers of 1024, either
// case, "iB" or "B" may follow). nullopt for anything else and for what does not fit 64 bits.
std::optional<std::uint64_t> parse_byte_size(std::string_view text);
// The largest unit that leaves a number below 1024, with one digit after the point: "1.5 MiB".
std::string byte_size_text(std::uint64_t bytes);

}  // namespace attnloom
