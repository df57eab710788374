// SPDX-License-Identifier: Apache-2.0
#include "plan/sections.h"

namespace attnloom {

std::pmr::vector<int> sections_of(const Spec& spec, int kv_heads,
                                  std::span<const loom::RequestRow> rows, Memory* memory) {
  const std::int64_t key_bytes =
      std::int64_t{spec.head_dim.qk + spec.head_dim.vo} * bytes_of(spec.dtype.kv) * kv_heads;
  std::pmr::vector<int> sections(memory);
  sections.reserve(rows.size());
  std::int64_t bytes = 0;
  int section = 0;
  for (const loom::RequestRow& row : rows) {
    const std::int64_t more = row.walk_len * key_bytes;
    if (bytes > 0 && bytes + more > kSectionBytes) {
      ++section;
      bytes = 0;
    }
    bytes += more;
    sections.push_back(section);
  }
  return sections;
}

}  // namespace attnloom
