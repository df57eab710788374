// SPDX-License-Identifier: Apache-2.0
#include "plan/block_sparse/row_builder.h"

#include <algorithm>
#include <limits>

#include "base/join_ranges.h"

namespace attnloom {

RowBuilder::RowBuilder(BlockSparse* out, std::int32_t kv_len)
    : out_(*out),
      kv_len_(kv_len),
      columns_((kv_len_ + out->block.columns - 1) / out->block.columns) {}

// After join_ranges() a column that a token sees whole lies in one of its ranges.
void RowBuilder::take(const TokenKeys& keys) {
  const std::int64_t size = out_.block.columns;
  for (const KeyRange& range : keys) {
    const std::int64_t first = (range.begin + size - 1) / size;
    const std::int64_t last = range.end == kv_len_ ? columns_ : range.end / size;
    if (first < last) {
      edges_.push_back({first, 1});
      edges_.push_back({last, -1});
    }
    if (range.begin % size != 0) in_part_.push_back(range.begin / size);
    if (last * size < range.end) in_part_.push_back(last);
  }
}

void RowBuilder::sweep(int tokens) {
  std::sort(edges_.begin(), edges_.end(),
            [](const Edge& a, const Edge& b) { return a.column < b.column; });
  int seen_by = 0;
  for (std::size_t i = 0; i < edges_.size(); ++i) {
    seen_by += edges_[i].delta;
    if (i + 1 == edges_.size() || edges_[i].column == edges_[i + 1].column) continue;
    const Run run{edges_[i].column, edges_[i + 1].column};
    if (seen_by == tokens) {
      whole_.push_back(run);
    } else if (seen_by > 0) {
      for (std::int64_t column = run.begin; column < run.end; ++column) in_part_.push_back(column);
    }
  }
  std::sort(in_part_.begin(), in_part_.end());
  in_part_.erase(std::unique(in_part_.begin(), in_part_.end()), in_part_.end());
}

void RowBuilder::list(std::int64_t column, std::int32_t bits) {
  out_.indices.push_back(static_cast<std::int32_t>(column));
  out_.partial.push_back(bits);
}

void RowBuilder::fill_bits(std::span<const TokenKeys> tokens, std::size_t first_byte) {
  const std::int64_t size = out_.block.columns;
  for (std::int64_t t = 0; t < std::ssize(tokens); ++t) {
    for (const KeyRange& range : tokens[t]) {
      auto column = std::lower_bound(in_part_.begin(), in_part_.end(), range.begin / size);
      for (; column != in_part_.end() && *column * size < range.end; ++column) {
        std::uint8_t* bits =
            out_.bits.data() + first_byte + (column - in_part_.begin()) * out_.bytes_of_block();
        const std::int64_t end = std::min<std::int64_t>(range.end, (*column + 1) * size);
        for (std::int64_t key = std::max<std::int64_t>(range.begin, *column * size); key < end;
             ++key) {
          const std::int64_t bit = t * size + key - *column * size;
          bits[bit / 8] |= static_cast<std::uint8_t>(1 << bit % 8);
        }
      }
    }
  }
}

bool RowBuilder::add(std::span<const TokenKeys> tokens) {
  edges_.clear();
  whole_.clear();
  in_part_.clear();
  sorted_.assign(tokens.begin(), tokens.end());
  for (TokenKeys& keys : sorted_) {
    join_ranges(keys);
    take(keys);
  }
  sweep(static_cast<int>(sorted_.size()));
  std::int64_t entries = std::ssize(out_.indices) + std::ssize(in_part_);
  for (const Run& run : whole_) entries += run.end - run.begin;
  if (entries > std::numeric_limits<std::int32_t>::max()) return false;
  const std::size_t first_byte = out_.bits.size();
  auto bits =
      static_cast<std::int32_t>(static_cast<std::int64_t>(first_byte) / out_.bytes_of_block());
  auto next = in_part_.begin();
  const auto list_parts_before = [&](std::int64_t column) {
    for (; next != in_part_.end() && *next < column; ++next) list(*next, bits++);
  };
  for (const Run& run : whole_) {
    list_parts_before(run.begin);
    for (std::int64_t column = run.begin; column < run.end; ++column) list(column, -1);
  }
  list_parts_before(columns_);
  out_.bits.resize(first_byte + in_part_.size() * static_cast<std::size_t>(out_.bytes_of_block()));
  fill_bits(sorted_, first_byte);
  out_.indptr.push_back(static_cast<std::int32_t>(entries));
  return true;
}

}  // namespace attnloom
