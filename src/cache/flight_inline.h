// SPDX-License-Identifier: Apache-2.0
// The template of flight.h; include that.
#pragma once

#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "cache/flight.h"

namespace attnloom {

template <class Value>
struct Flight<Value>::State {
  struct Call {
    std::condition_variable landed;
    std::optional<Result<std::shared_ptr<Value>>> result;
  };
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Call>> calls;  // in the air
};

template <class Value>
Result<std::shared_ptr<Value>> Flight<Value>::run(
    const std::string& key, const std::function<Result<std::shared_ptr<Value>>()>& work) {
  // The state outlives this object as long as a call does.
  const std::shared_ptr<State> state = state_;
  std::unique_lock lock(state->mutex);
  if (const auto found = state->calls.find(key); found != state->calls.end()) {
    const auto call = found->second;
    call->landed.wait(lock, [&] { return call->result.has_value(); });
    return *call->result;
  }
  const auto call = std::make_shared<typename State::Call>();
  state->calls.emplace(key, call);
  lock.unlock();
  // An exception (no memory) must land the waiters too, so it becomes an error here.
  Result<std::shared_ptr<Value>> result =
      make_error(Code::kInternal, "", "the work ended without a result");
  try {
    result = work();
  } catch (const std::bad_alloc&) {
    result = make_error(Code::kOutOfMemory, "", "no memory is left for the compile");
  } catch (const std::exception& error) {
    result = make_error(Code::kInternal, "", error.what());
  }
  lock.lock();
  call->result = result;
  state->calls.erase(key);
  lock.unlock();
  call->landed.notify_all();
  return result;
}

}  // namespace attnloom
