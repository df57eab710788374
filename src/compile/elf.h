// SPDX-License-Identifier: Apache-2.0
// A bounded reader of 64-bit little-endian ELF: what a cubin and a shared library have in common.
// Every offset is checked against the bytes given, so a damaged or hostile file yields "not ELF"
// and never a wild read.
//
// Values that point into the caller's bytes, which outlive them. Thread-safe: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attnloom {

struct ElfSection {
  std::string_view name;
  std::uint32_t type = 0;
  std::uint32_t link = 0;
  std::uint64_t size_bytes = 0;  // of a section without bytes in the file, too
  std::string_view bytes;        // empty for those
};

// nullopt when `bytes` is not a whole ELF64 file.
std::optional<std::vector<ElfSection>> read_elf_sections(std::string_view bytes);

// Names of the symbol table, by symbol index; empty when there is none.
std::vector<std::string_view> elf_symbol_names(const std::vector<ElfSection>& sections);

// The GNU build-id (hex) of the library file `path`, or "" where it has none. Reads the headers and
// notes only: the libraries asked about are 100 MB and lie on a cold disk.
std::string read_build_id(const std::string& path);

// Little-endian numbers at `offset`. REQUIRES: offset + size of the number <= bytes.size().
std::uint16_t load_u16(std::string_view bytes, std::size_t offset);
std::uint32_t load_u32(std::string_view bytes, std::size_t offset);
std::uint64_t load_u64(std::string_view bytes, std::size_t offset);

}  // namespace attnloom
