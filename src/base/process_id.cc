// SPDX-License-Identifier: Apache-2.0
#include "base/process_id.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <new>

namespace attnloom {
namespace {

// On a page that every fork gives the child zeroed (Linux 4.14), however it forks: handlers of
// pthread_atfork miss a bare clone(). Null where the kernel has none. Never unmapped: threads may
// launch while static objects end.
std::atomic<pid_t>* page_of_this_process() {
  void* const page = mmap(nullptr, sizeof(std::atomic<pid_t>), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (madvise(page, sizeof(std::atomic<pid_t>), MADV_WIPEONFORK) == 0)
    return new (page) std::atomic<pid_t>(0);
  munmap(page, sizeof(std::atomic<pid_t>));
  return nullptr;
}

}  // namespace

pid_t process_id() {
  static std::atomic<pid_t>* const kept = page_of_this_process();
  if (!kept) return getpid();
  pid_t id = kept->load(std::memory_order_relaxed);
  if (id == 0) {
    id = getpid();
    kept->store(id, std::memory_order_relaxed);
  }
  return id;
}

}  // namespace attnloom
