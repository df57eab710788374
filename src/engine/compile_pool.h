// SPDX-License-Identifier: Apache-2.0
// CompilePool: the threads that compile, no more at a time than its limit. What is asked for by a
// request goes before what is prewarmed, then first come, first served.
//
// Thread-safe. A thread lives only while there is work: a process whose compiles are over can fork,
// and the child compiles with threads of its own. A child that is forked while compiles are under
// way has lost them; abandon_after_fork() tells.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace attnloom {

enum class Priority : int { kRequest = 0, kPrewarm = 1 };

class CompilePool {
 public:
  using Ticket = std::uint64_t;  // never 0

  // `limit` is asked whenever one more thread could start; at least one always may.
  explicit CompilePool(std::function<int()> limit);
  ~CompilePool();  // stops
  CompilePool(const CompilePool&) = delete;
  CompilePool& operator=(const CompilePool&) = delete;

  // 0, and the job is never called, after stop() and where no thread can be started. A job must not
  // throw.
  Ticket submit(Priority priority, std::function<void()> job);
  // True when the job had not begun; it never will.
  bool withdraw(Ticket ticket);
  // To Priority::kRequest, unless it has begun.
  void hasten(Ticket ticket);
  // Drops what waits and returns when what runs is over. Not to be called by a job.
  void stop();

  // In a process that was forked from the one that used the pool: forgets all jobs and says true,
  // once.
  bool abandon_after_fork();

  struct Figures {
    int waiting = 0;
    int running = 0;
  };
  Figures figures() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attnloom
