// SPDX-License-Identifier: Apache-2.0
#include "compile/elf.h"

#include <fstream>
#include <span>

#include "base/sha256.h"

namespace attnloom {
namespace {

// Offsets and sizes of the ELF64 format (System V ABI).
constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kSectionHeaderBytes = 64;
constexpr std::size_t kProgramHeaderBytes = 56;
constexpr std::size_t kSymbolBytes = 24;
constexpr std::uint32_t kSectionNoBits = 8;
constexpr std::uint32_t kSectionSymbols = 2;
constexpr std::uint32_t kSegmentNote = 4;
constexpr std::uint32_t kNoteGnuBuildId = 3;
constexpr std::uint64_t kMostNoteBytes = 1 << 20;

bool is_elf64(std::string_view bytes) {
  return bytes.size() >= kHeaderBytes && bytes.substr(0, 4) == "\177ELF" && bytes[4] == 2 &&
         bytes[5] == 1;
}

bool inside(std::string_view bytes, std::uint64_t offset, std::uint64_t size) {
  return offset <= bytes.size() && size <= bytes.size() - offset;
}

std::string_view text_at(std::string_view table, std::uint64_t offset) {
  if (offset >= table.size()) return {};
  const std::string_view rest = table.substr(offset);
  return rest.substr(0, rest.find('\0'));
}

template <class Number>
Number load(std::string_view bytes, std::size_t offset) {
  Number value = 0;
  for (std::size_t i = sizeof value; i-- > 0;) {
    value = static_cast<Number>(value << 8 | static_cast<unsigned char>(bytes[offset + i]));
  }
  return value;
}

std::string build_id_in_notes(std::string_view notes) {
  while (notes.size() >= 12) {
    const std::uint64_t name_bytes = load_u32(notes, 0);
    const std::uint64_t text_bytes = load_u32(notes, 4);
    const std::uint64_t text_offset = 12 + ((name_bytes + 3) & ~std::uint64_t{3});
    if (!inside(notes, text_offset, text_bytes)) return {};
    if (load_u32(notes, 8) == kNoteGnuBuildId && text_at(notes, 12) == "GNU") {
      const std::string_view id = notes.substr(text_offset, text_bytes);
      return to_hex({reinterpret_cast<const std::uint8_t*>(id.data()), id.size()});
    }
    const std::uint64_t next = text_offset + ((text_bytes + 3) & ~std::uint64_t{3});
    if (next >= notes.size()) return {};
    notes.remove_prefix(next);
  }
  return {};
}

std::string read_part(std::ifstream& file, std::uint64_t offset, std::uint64_t size_bytes) {
  std::string bytes(size_bytes, '\0');
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(bytes.data(), static_cast<std::streamsize>(size_bytes));
  return file ? bytes : std::string();
}

}  // namespace

std::uint16_t load_u16(std::string_view bytes, std::size_t offset) {
  return load<std::uint16_t>(bytes, offset);
}
std::uint32_t load_u32(std::string_view bytes, std::size_t offset) {
  return load<std::uint32_t>(bytes, offset);
}
std::uint64_t load_u64(std::string_view bytes, std::size_t offset) {
  return load<std::uint64_t>(bytes, offset);
}

std::optional<std::vector<ElfSection>> read_elf_sections(std::string_view bytes) {
  if (!is_elf64(bytes)) return std::nullopt;
  const std::uint64_t table = load_u64(bytes, 0x28);
  const std::uint64_t entry_bytes = load_u16(bytes, 0x3a);
  const std::uint64_t count = load_u16(bytes, 0x3c);
  const std::uint64_t names_index = load_u16(bytes, 0x3e);
  if (entry_bytes != kSectionHeaderBytes || names_index >= count ||
      !inside(bytes, table, count * entry_bytes)) {
    return std::nullopt;
  }
  std::vector<ElfSection> sections;
  std::vector<std::uint32_t> name_offsets;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string_view header = bytes.substr(table + i * entry_bytes, entry_bytes);
    ElfSection section;
    section.type = load_u32(header, 0x04);
    section.link = load_u32(header, 0x28);
    section.size_bytes = load_u64(header, 0x20);
    if (section.type != kSectionNoBits && section.type != 0) {
      const std::uint64_t offset = load_u64(header, 0x18);
      if (!inside(bytes, offset, section.size_bytes)) return std::nullopt;
      section.bytes = bytes.substr(offset, section.size_bytes);
    }
    name_offsets.push_back(load_u32(header, 0x00));
    sections.push_back(section);
  }
  for (std::size_t i = 0; i < sections.size(); ++i) {
    sections[i].name = text_at(sections[names_index].bytes, name_offsets[i]);
  }
  return sections;
}

std::vector<std::string_view> elf_symbol_names(const std::vector<ElfSection>& sections) {
  std::vector<std::string_view> names;
  for (const ElfSection& section : sections) {
    if (section.type != kSectionSymbols || section.link >= sections.size()) continue;
    for (std::size_t at = 0; at + kSymbolBytes <= section.bytes.size(); at += kSymbolBytes) {
      names.push_back(text_at(sections[section.link].bytes, load_u32(section.bytes, at)));
    }
    break;
  }
  return names;
}

std::string read_build_id(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string header = read_part(file, 0, kHeaderBytes);
  if (!is_elf64(header)) return {};
  const std::uint64_t table = load_u64(header, 0x20);
  const std::uint64_t count = load_u16(header, 0x38);
  if (load_u16(header, 0x36) != kProgramHeaderBytes) return {};
  const std::string segments = read_part(file, table, count * kProgramHeaderBytes);
  for (std::size_t at = 0; at + kProgramHeaderBytes <= segments.size(); at += kProgramHeaderBytes) {
    if (load_u32(segments, at) != kSegmentNote) continue;
    const std::uint64_t size_bytes = load_u64(segments, at + 0x20);
    if (size_bytes > kMostNoteBytes) continue;
    const std::string id =
        build_id_in_notes(read_part(file, load_u64(segments, at + 0x08), size_bytes));
    if (!id.empty()) return id;
  }
  return {};
}

}  // namespace attnloom
