// SPDX-License-Identifier: Apache-2.0
#include "engine/kernel_memory.h"

#include <utility>

namespace attnloom {
namespace {

bool has_parts(const Artifact& artifact, const Need& need) {
  return (!need.cubin || !artifact.cubin.empty()) && (!need.ptx || !artifact.ptx.empty());
}

std::uint64_t bytes_of(const Artifact& artifact) {
  return artifact.cubin.size() + artifact.ptx.size() + artifact.log.size();
}

}  // namespace

// What was found before the device was known may lack the part that the device needs; that is a
// miss here too.
std::shared_ptr<BuiltKernel> KernelMemory::find(const std::string& request_key, const Need& need) {
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(request_key);
  if (found == places_.end() || !has_parts(found->second.built->artifact, need)) return nullptr;
  uses_.splice(uses_.begin(), uses_, found->second.use);
  return found->second.built;
}

std::shared_ptr<BuiltKernel> KernelMemory::keep(const std::string& request_key,
                                                std::shared_ptr<BuiltKernel> built,
                                                const Need& need) {
  const std::lock_guard lock(mutex_);
  auto found = places_.find(request_key);
  if (found != places_.end() && has_parts(found->second.built->artifact, need))
    return found->second.built;
  if (found != places_.end()) erase(found);
  uses_.push_front(request_key);
  const std::uint64_t bytes = bytes_of(built->artifact);
  places_.emplace(request_key, Place{built, bytes, uses_.begin()});
  bytes_ += bytes;
  return built;
}

void KernelMemory::forget(const std::string& request_key, const BuiltKernel& built) {
  std::shared_ptr<BuiltKernel> forgotten;  // ends outside the lock
  const std::lock_guard lock(mutex_);
  const auto found = places_.find(request_key);
  if (found == places_.end() || found->second.built.get() != &built) return;
  forgotten = found->second.built;
  erase(found);
}

void KernelMemory::erase(std::map<std::string, Place>::iterator place) {
  bytes_ -= place->second.bytes;
  uses_.erase(place->second.use);
  places_.erase(place);
}

int KernelMemory::trim(Trim what) {
  std::vector<std::shared_ptr<BuiltKernel>> victims;  // unloaded outside the lock
  int unloaded = 0;
  const std::lock_guard lock(mutex_);
  for (auto use = uses_.end(); is_over() && use != uses_.begin();) {
    --use;
    const auto place = places_.find(*use);
    const BuiltKernel& built = *place->second.built;
    const bool loaded = built.is_loaded.load();
    // A new holder can only come through find() or keep(), which wait for us.
    const bool idle = place->second.built.use_count() == 1 && !built.retained.load();
    if (!idle || (loaded && what == Trim::kUnloadedOnly)) continue;
    unloaded += loaded ? 1 : 0;
    victims.push_back(place->second.built);
    ++use;  // erase() takes the one before
    erase(place);
  }
  return unloaded;
}

KernelMemory::Figures KernelMemory::figures() const {
  const std::lock_guard lock(mutex_);
  return {places_.size(), bytes_};
}

}  // namespace attnloom
