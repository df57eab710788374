// SPDX-License-Identifier: Apache-2.0
// What bulk copies and wgmma do to the shadow of shared memory. They move whole granules, so a
// granule is looked at once, and word by word only where something is wrong.
#include <string>

#include "sim/check/findings.h"
#include "sim/check/shared_shadow.h"
#include "sim/machine/state.h"

namespace attnloom::sim {

// True where a write to the granule has nothing to report.
bool SharedShadow::is_free(const SharedAccess& a, std::uint32_t g) {
  std::uint32_t state;
  std::memcpy(&state, &state_[4 * g], 4);
  const std::uint32_t* w = &writer_[4 * g];
  bool same = w[0] == w[1] && w[0] == w[2] && w[0] == w[3];
  if ((state & 0xb0b0b0b0u) != 0 || !same || !ordered(a, w[0])) return false;
  const std::uint32_t* r = readers(g, 0);
  std::uint32_t late = 0;
  for (std::uint32_t v = 0; v < warps_; ++v, r += 4) {
    for (int k = 0; k < 4; ++k) late |= static_cast<std::uint32_t>(r[k] > a.known[v]);
  }
  const std::uint32_t* async = async_readers(g);
  for (std::uint32_t v = 0; v < async_readers_; ++v)
    late |= static_cast<std::uint32_t>(async[v] > a.known[2 * warps_ + v]);
  return late == 0 && strong_reader_.empty();
}

void SharedShadow::begin_async_write(const SharedAccess& a, int lane, const AsyncAgent& by,
                                     std::uint32_t address, std::uint32_t bytes) {
  std::uint32_t e = by.agent << kClockBits | by.clock;
  for (std::uint32_t g = address >> 4; g < (address + bytes) >> 4; ++g) {
    bool free = is_free(a, g);
    for (std::uint32_t word = 4 * g; word < 4 * g + 4; ++word) {
      if (!free) check_write(a, lane, word, 15, false);
      if ((state_[word] & kSplit) != 0) split_.erase(word);
      state_[word] = kInit | kFlightOne;
      writer_[word] = e;
      writer_ins_[word] = a.ins_index;
    }
  }
}

void SharedShadow::end_async_write(const AsyncAgent& by, std::uint32_t address,
                                   std::uint32_t bytes) {
  std::uint32_t e = by.agent << kClockBits | by.clock;
  for (std::uint32_t word = address >> 2; word < (address + bytes) >> 2; ++word) {
    state_[word] = kInit;
    writer_[word] = e;
  }
}

// True where a read of the granule by the async proxy has nothing to report.
bool SharedShadow::is_visible(const SharedAccess& a, const std::uint32_t* proxied,
                              std::uint32_t g) const {
  std::uint32_t state;
  std::memcpy(&state, &state_[4 * g], 4);
  const std::uint32_t* w = &writer_[4 * g];
  bool same = w[0] == w[1] && w[0] == w[2] && w[0] == w[3];
  if ((state & 0xbfbfbfbfu) != 0x0f0f0f0fu || !same || !ordered(a, w[0])) return false;
  std::uint32_t agent = agent_of(w[0]);
  return agent >= 2 * warps_ || (proxied != nullptr && clock_of(w[0]) <= proxied[agent]);
}

void SharedShadow::check_proxy(const SharedAccess& a, int lane, const std::uint32_t* proxied,
                               std::uint32_t word) {
  auto hidden = [&](std::uint32_t writer) {
    std::uint32_t agent = agent_of(writer);
    return agent < 2 * warps_ && (proxied == nullptr || clock_of(writer) > proxied[agent]);
  };
  if ((state_[word] & kInit) == 0) return;
  std::uint32_t writer = writer_[word];
  if ((state_[word] & kSplit) != 0) {
    for (std::uint32_t w : split_[word].writer) {
      if (hidden(w)) writer = w;
    }
  }
  if (!hidden(writer)) return;
  a.cta.launch.findings.add(kind::kProxyFence, a.ins, [&] {
    return "reads through the async proxy, without fence.proxy.async after it, what " +
           a.cta.agent_name(agent_of(writer)) + " wrote at " +
           a.cta.launch.findings.place(a.cta.kernel.ins[writer_ins_[word]]) + ": shared+" +
           std::to_string(word * 4) + ", " + a.cta.describe(a.warp, lane);
  });
}

void SharedShadow::async_read(const SharedAccess& a, int lane, const AsyncAgent& by,
                              const std::uint32_t* proxied, std::uint32_t address,
                              std::uint32_t bytes) {
  has_other_readers_ = true;
  std::uint32_t reader = by.agent - 2 * warps_;
  for (std::uint32_t g = address >> 4; g < (address + bytes) >> 4; ++g) {
    std::uint32_t& last = async_reader_[std::size_t{g} * async_readers_ + reader];
    last = std::max(last, by.clock);
    if (is_visible(a, proxied, g)) continue;
    for (std::uint32_t word = 4 * g; word < 4 * g + 4; ++word) {
      if ((state_[word] & kFlight) != 0) {
        a.cta.launch.findings.add(kind::kInFlightRead, a.ins, [&] {
          return "an asynchronous copy into it was not waited for: shared+" +
                 std::to_string(word * 4) + ", " + a.cta.describe(a.warp, lane);
        });
      } else if ((state_[word] & kInit) != kInit) {
        a.cta.launch.findings.add(kind::kUninitialisedShared, a.ins, [&] {
          return "never written: shared+" + std::to_string(word * 4) + ", " +
                 a.cta.describe(a.warp, lane);
        });
      }
      check_writers(a, lane, word, 15, true);
      check_proxy(a, lane, proxied, word);
    }
  }
}

}  // namespace attnloom::sim
