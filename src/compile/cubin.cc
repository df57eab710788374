// SPDX-License-Identifier: Apache-2.0
#include "compile/cubin.h"

#include <algorithm>

#include "compile/elf.h"

namespace attnloom {
namespace {

// Records of .nv.info sections: format, attribute, 16 bits; with kFormatSized the 16 bits count the
// bytes that follow.
constexpr int kFormatSized = 0x04;
constexpr int kMaxThreads = 0x05;     // x, y, z of __launch_bounds__
constexpr int kFrameSize = 0x11;      // symbol index, bytes of stack frame
constexpr int kRegisterCount = 0x2f;  // symbol index, registers a thread

// From sm_90 on a kernel's shared section begins with the 1 KB that the driver keeps for itself;
// ptxas' "bytes smem" and the figure that limits a launch leave it out. The reserved section stands
// only in such cubins.
constexpr std::uint64_t kReservedSharedBytes = 1024;
constexpr std::string_view kReservedSection = ".nv.shared.reserved.";

template <class Visit>  // Visit(int attribute, std::string_view payload)
void visit_info(std::string_view bytes, const Visit& visit) {
  std::size_t at = 0;
  while (at + 4 <= bytes.size()) {
    const int format = static_cast<unsigned char>(bytes[at]);
    const int attribute = static_cast<unsigned char>(bytes[at + 1]);
    const std::size_t size = format == kFormatSized ? load_u16(bytes, at + 2) : 0;
    at += 4;
    if (size > bytes.size() - at) return;
    if (format == kFormatSized) visit(attribute, bytes.substr(at, size));
    at += size;
  }
}

const ElfSection* find_section(const std::vector<ElfSection>& sections, std::string_view name) {
  const auto found = std::find_if(sections.begin(), sections.end(),
                                  [&](const ElfSection& section) { return section.name == name; });
  return found == sections.end() ? nullptr : &*found;
}

class CubinReader {
 public:
  explicit CubinReader(const std::vector<ElfSection>& sections)
      : sections_(sections), symbols_(elf_symbol_names(sections)) {
    reserves_shared_ = std::any_of(sections.begin(), sections.end(), [](const ElfSection& section) {
      return section.name.substr(0, kReservedSection.size()) == kReservedSection;
    });
  }

  // False when the cubin has no such entry.
  bool read(EntryFigures& figures) const {
    if (find_section(sections_, ".text." + figures.name) == nullptr) return false;
    if (const ElfSection* info = find_section(sections_, ".nv.info")) {
      visit_info(info->bytes, [&](int attribute, std::string_view payload) {
        if (payload.size() < 8 || symbol(load_u32(payload, 0)) != figures.name) return;
        const int value = static_cast<int>(load_u32(payload, 4));
        if (attribute == kRegisterCount) figures.registers = value;
        if (attribute == kFrameSize) figures.local_bytes = value;
      });
    }
    if (const ElfSection* info = find_section(sections_, ".nv.info." + figures.name)) {
      visit_info(info->bytes, [&](int attribute, std::string_view payload) {
        if (attribute != kMaxThreads || payload.size() < 12) return;
        figures.max_threads =
            static_cast<int>(load_u32(payload, 0) * load_u32(payload, 4) * load_u32(payload, 8));
      });
    }
    if (const ElfSection* shared = find_section(sections_, ".nv.shared." + figures.name)) {
      const std::uint64_t reserved =
          reserves_shared_ ? std::min(kReservedSharedBytes, shared->size_bytes) : 0;
      figures.static_shared_bytes = static_cast<int>(shared->size_bytes - reserved);
    }
    return true;
  }

 private:
  std::string_view symbol(std::uint32_t index) const {
    return index < symbols_.size() ? symbols_[index] : std::string_view();
  }

  const std::vector<ElfSection>& sections_;
  std::vector<std::string_view> symbols_;
  bool reserves_shared_ = false;
};

}  // namespace

Result<std::vector<EntryFigures>> read_cubin(std::string_view cubin,
                                             const std::vector<std::string>& entries) {
  const auto sections = read_elf_sections(cubin);
  if (!sections) {
    return make_error(Code::kInternal, "", "the compiler's cubin is not a whole ELF file");
  }
  const CubinReader reader(*sections);
  std::vector<EntryFigures> figures;
  for (const std::string& entry : entries) {
    figures.push_back({.name = entry});
    if (!reader.read(figures.back())) {
      return make_error(Code::kTemplate, "", "the compiled program has no kernel \"" + entry + "\"",
                        "declare it extern \"C\" __global__");
    }
  }
  return figures;
}

}  // namespace attnloom
