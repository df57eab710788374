// SPDX-License-Identifier: Apache-2.0
// Compiles that failed and would fail again: remembered by this process, and on disk for the
// others (cache/failures.h).
#include "engine/engine_state.h"

namespace attnloom {
namespace {

// A service that is sent one bad spec after the other must not grow: past this many it begins anew.
constexpr std::size_t kMostRemembered = 4096;

}  // namespace

std::optional<Status> Engine::State::failed_here(const std::string& request_key) {
  const std::lock_guard lock(failed_mutex_);
  const auto found = failed_.find(request_key);
  return found == failed_.end() ? std::nullopt : std::optional<Status>(found->second);
}

std::optional<Status> Engine::State::failed_before(const std::string& request_key) {
  std::optional<Status> failure = failed_here(request_key);
  if (!failure) {
    // Without a compiler there is nobody whose failure it could be; the compile will say so.
    const Result<Fingerprint> compiler = options.toolchain->fingerprint();
    if (compiler.ok()) failure = store->find_failure(request_key, compiler->hex);
    if (!failure) return std::nullopt;
    remember(request_key, *failure);
  }
  count(tallies.negative_hits);
  return failure;
}

void Engine::State::remember(const std::string& request_key, const Status& failure) {
  const std::lock_guard lock(failed_mutex_);
  if (failed_.size() >= kMostRemembered) failed_.clear();
  failed_.insert_or_assign(request_key, failure);
}

void Engine::State::keep_failure(const std::string& request_key, const Status& failure) {
  if (!is_lasting_failure(failure)) return;
  remember(request_key, failure);
  if (const Result<Fingerprint> compiler = options.toolchain->fingerprint(); compiler.ok())
    store->keep_failure(request_key, compiler->hex, failure);
}

}  // namespace attnloom
