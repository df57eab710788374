// SPDX-License-Identifier: Apache-2.0
#include "sim/check/clock.h"

#include <algorithm>

namespace attnloom::sim {
namespace {

bool before(const std::pair<std::uint32_t, std::uint32_t>& entry, std::uint32_t agent) {
  return entry.first < agent;
}

bool includes(const SparseClock& big, const SparseClock& small) {
  auto at = big.begin();
  for (const auto& [agent, clock] : small) {
    at = std::lower_bound(at, big.end(), agent, before);
    if (at == big.end() || at->first != agent || at->second < clock) return false;
  }
  return true;
}

}  // namespace

void join(SparseClock& into, const SparseClock& from) {
  if (from.empty()) return;
  SparseClock result;
  result.reserve(into.size() + from.size());
  auto a = into.begin();
  auto b = from.begin();
  while (a != into.end() && b != from.end()) {
    if (a->first < b->first) {
      result.push_back(*a++);
    } else if (b->first < a->first) {
      result.push_back(*b++);
    } else {
      result.emplace_back(a->first, std::max(a->second, b->second));
      ++a, ++b;
    }
  }
  result.insert(result.end(), a, into.end());
  result.insert(result.end(), b, from.end());
  into = std::move(result);
}

std::uint32_t component(const SparseClock& clock, std::uint32_t agent) {
  auto at = std::lower_bound(clock.begin(), clock.end(), agent, before);
  return at != clock.end() && at->first == agent ? at->second : 0;
}

void VectorClock::join(const VectorClock& other) {
  if (other.own_.empty()) return;
  if (own_.empty()) {
    *this = other;
    return;
  }
  for (std::size_t k = 0; k < own_.size(); ++k) own_[k] = std::max(own_[k], other.own_[k]);
  if (other.foreign_ == nullptr || other.foreign_ == foreign_) return;
  if (foreign_ == nullptr || includes(*other.foreign_, *foreign_)) {
    foreign_ = other.foreign_;
  } else if (!includes(*foreign_, *other.foreign_)) {
    auto merged = std::make_shared<SparseClock>(*foreign_);
    sim::join(*merged, *other.foreign_);
    foreign_ = std::move(merged);
  }
}

void VectorClock::join(const ClockFrame& frame, const SparseClock& other) {
  if (other.empty()) return;
  if (own_.empty()) reset(frame);
  SparseClock foreign;
  for (const auto& [agent, clock] : other) {
    std::uint32_t local = agent - frame.first_agent();
    if (local < frame.agents) {
      own_[local] = std::max(own_[local], clock);
    } else {
      foreign.emplace_back(agent, clock);
    }
  }
  if (foreign.empty() || (foreign_ != nullptr && includes(*foreign_, foreign))) return;
  if (foreign_ != nullptr) sim::join(foreign, *foreign_);
  foreign_ = std::make_shared<const SparseClock>(std::move(foreign));
}

SparseClock VectorClock::sparse(const ClockFrame& frame) const {
  SparseClock result;
  for (std::uint32_t k = 0; k < own_.size(); ++k) {
    if (own_[k] >= frame.base) result.emplace_back(frame.first_agent() + k, own_[k]);
  }
  if (foreign_ != nullptr) sim::join(result, *foreign_);
  return result;
}

}  // namespace attnloom::sim
