// SPDX-License-Identifier: Apache-2.0
#include "plan/scratch.h"

#include <algorithm>

namespace attnloom {
namespace {

// Of whatever the tables hold, and of operator new: each piece begins at a multiple.
constexpr std::size_t kAlignment = alignof(std::max_align_t);

// Holds a plan of 256 requests; below what malloc would map anew for each scratch.
constexpr std::size_t kFirstBytes = 96 << 10;

}  // namespace

void PlanScratch::add_block(std::size_t bytes) {
  blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
  block_bytes_ = bytes;
  all_bytes_ += bytes;
  used_ = 0;
}

void* PlanScratch::do_allocate(std::size_t bytes, std::size_t alignment) {
  const std::size_t shift = alignment > kAlignment ? alignment : 0;
  const std::size_t piece = (bytes + kAlignment - 1) / kAlignment * kAlignment + shift;
  if (piece > block_bytes_ - used_) add_block(std::max({piece, all_bytes_, kFirstBytes}));
  void* place = blocks_.back().get() + used_;
  std::size_t room = piece;
  used_ += piece;
  return shift == 0 ? place : std::align(alignment, bytes, place, room);
}

// One block instead of several: what was left over at the end of each is of use then.
void PlanScratch::release() {
  used_ = 0;
  if (blocks_.size() < 2) return;
  const std::size_t bytes = all_bytes_;
  blocks_.clear();
  all_bytes_ = 0;
  add_block(bytes);
}

}  // namespace attnloom
