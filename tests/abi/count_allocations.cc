// SPDX-License-Identifier: Apache-2.0
#include "count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<long> allocations{0};
}

long allocations_so_far() {
  return allocations;
}

// Both forms: a sanitizer's own nothrow form would not fit the delete below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes ? bytes : 1);
}
void* operator new(std::size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

// Of memory resources, and of what is aligned to more than a cache's word.
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  ++allocations;
  const std::size_t to = static_cast<std::size_t>(alignment);
  return std::aligned_alloc(to, bytes == 0 ? to : (bytes + to - 1) / to * to);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  if (void* memory = operator new(bytes, alignment, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
