// SPDX-License-Identifier: Apache-2.0
// Flight: one compile per key in a process (waiters share the leader's result) and on a node (a
// kernel-released lock in a node-local directory). Correctness never depends on the lock: after
// `patience` a waiter compiles privately. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"

namespace attnloom {

// Held while in scope. Locks are advisory, released by the kernel when the holder dies; the lock
// file stays.
class NodeLock {
 public:
  // `directory` is made 0700. A holder that lives on past `patience` is reported through `notice`
  // (path, pid) and the lock is returned unheld. Polls `done` (may be empty) while waiting and
  // returns early when it is true.
  static NodeLock acquire(const std::string& directory, const std::string& key,
                          std::chrono::milliseconds patience, const std::function<bool()>& done,
                          const std::function<void(const std::string&)>& notice);
  NodeLock(NodeLock&& other) noexcept;
  NodeLock& operator=(NodeLock&&) = delete;
  ~NodeLock();
  bool held() const { return descriptor_ >= 0; }

 private:
  NodeLock() = default;
  int descriptor_ = -1;
};

// Runs `work` once for all threads that ask for `key` at the same time; each gets the same value or
// error. A failure is not remembered: the next caller tries again.
template <class Value>
class Flight {
 public:
  Result<std::shared_ptr<Value>> run(const std::string& key,
                                     const std::function<Result<std::shared_ptr<Value>>()>& work);

 private:
  struct State;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace attnloom

#include "cache/flight_inline.h"
