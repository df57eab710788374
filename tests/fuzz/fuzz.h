// SPDX-License-Identifier: Apache-2.0
// What the fuzz targets share. A target is one function that libFuzzer, or the replay of the kept
// corpus, calls with any bytes; it ends the process where a promise does not hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace attnloom::fuzz {

inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: does not hold: %s\n", promise);
  std::abort();
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Checksums stop a fuzzer at the door, so the first byte says how the rest is dressed.
struct Dressed {
  int how;
  std::string_view rest;
};
inline Dressed undress(const std::uint8_t* data, std::size_t size, int ways) {
  const std::string_view text = text_of(data, size);
  if (text.empty()) return {0, text};
  return {static_cast<unsigned char>(text[0]) % ways, text.substr(1)};
}

}  // namespace attnloom::fuzz
