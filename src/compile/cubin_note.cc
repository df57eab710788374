// SPDX-License-Identifier: Apache-2.0
#include "compile/cubin_note.h"

#include <algorithm>
#include <iterator>

#include "compile/elf.h"

namespace attnloom {
namespace {

constexpr std::string_view kSection = ".note.nv.tkinfo";
constexpr std::string_view kOwner = "NVIDIA Corp";
constexpr std::uint32_t kNoteToolInfo = 2000;
// Of 13.0 to 13.5, and of 12.9; the form is the same.
constexpr std::uint32_t kVersions[] = {2, 129};
constexpr std::string_view kArchOption = "-arch";
// The description: version, then offsets of five texts (object, tool, version, branch, options)
// into the table that follows them.
constexpr std::size_t kNumberBytes = 4;
constexpr std::size_t kTexts = 5;
constexpr std::size_t kTableOffset = (1 + kTexts) * kNumberBytes;
enum Text : std::size_t { kTool = 1, kToolVersion = 2, kOptions = 4 };

std::string_view text_at(std::string_view description, std::size_t index) {
  const std::size_t offset = load_u32(description, (1 + index) * kNumberBytes);
  const std::string_view table = description.substr(kTableOffset);
  if (offset >= table.size()) return {};
  const std::string_view rest = table.substr(offset);
  return rest.substr(0, rest.find('\0'));
}

std::string_view next_word(std::string_view& text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  text.remove_prefix(begin);
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  return word;
}

std::string_view target_of(std::string_view options) {
  for (std::string_view word = next_word(options); !word.empty(); word = next_word(options))
    if (word == kArchOption) return next_word(options);
  return {};
}

// The description of the note, or "" where it is not the one we know.
std::string_view description_of(std::string_view note) {
  constexpr std::size_t kHeaderBytes = 12;
  if (note.size() < kHeaderBytes) return {};
  const std::size_t name_bytes = load_u32(note, 0);
  const std::size_t description_bytes = load_u32(note, 4);
  const std::size_t begin = kHeaderBytes + ((name_bytes + 3) & ~std::size_t{3});
  if (load_u32(note, 8) != kNoteToolInfo || name_bytes != kOwner.size() + 1 ||
      begin > note.size() || description_bytes > note.size() - begin ||
      description_bytes < kTableOffset || note.substr(kHeaderBytes, kOwner.size()) != kOwner)
    return {};
  return note.substr(begin, description_bytes);
}

}  // namespace

CubinNote read_cubin_note(std::string_view cubin) {
  CubinNote note;
  const auto sections = read_elf_sections(cubin);
  if (!sections) return note;
  for (const ElfSection& section : *sections) {
    if (section.name != kSection) continue;
    const std::string_view description = description_of(section.bytes);
    if (description.empty()) continue;
    const std::uint32_t version = load_u32(description, 0);
    if (std::ranges::find(kVersions, version) == std::end(kVersions)) continue;
    note.tool = text_at(description, kTool);
    note.version = text_at(description, kToolVersion);
    note.target = target_of(text_at(description, kOptions));
    break;
  }
  return note;
}

}  // namespace attnloom
