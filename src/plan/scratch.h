// SPDX-License-Identifier: Apache-2.0
// Where the planner keeps what it needs only while it plans. An engine plans every step, and what
// malloc does with a dozen vectors a step is a lock, and at times a page fault, in the way of all
// requests. Owns its memory; one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <vector>

namespace attnloom {

using Memory = std::pmr::memory_resource;

// For callers that do not care.
inline Memory* heap() {
  return std::pmr::new_delete_resource();
}

// Hands memory out by moving a pointer, and takes it back all at once.
class PlanScratch final : public Memory {
 public:
  PlanScratch() = default;
  PlanScratch(const PlanScratch&) = delete;
  PlanScratch& operator=(const PlanScratch&) = delete;

  // Afterwards as many bytes as were handed out so far fit without a call of operator new, in
  // whatever pieces. REQUIRES: nothing that was made of it is in use.
  void release();

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void*, std::size_t, std::size_t) override {}
  bool do_is_equal(const Memory& other) const noexcept override { return this == &other; }
  void add_block(std::size_t bytes);

  std::vector<std::unique_ptr<std::byte[]>> blocks_;  // the last one is handed out
  std::size_t block_bytes_ = 0;                       // of the last one
  std::size_t used_ = 0;                              // of the last one
  std::size_t all_bytes_ = 0;                         // of all blocks
};

}  // namespace attnloom
