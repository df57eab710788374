// SPDX-License-Identifier: Apache-2.0
#include "sim/check/shared_shadow.h"

#include <algorithm>
#include <string>

#include "sim/check/findings.h"
#include "sim/machine/state.h"

namespace attnloom::sim {
namespace {

std::string where(const SharedAccess& a, int lane, std::uint32_t address) {
  return "shared+" + std::to_string(address) + ", " + a.cta.describe(a.warp, lane);
}

// The bytes of `word` that [address, address + bytes) touches.
std::uint32_t byte_mask(std::uint32_t word, std::uint32_t address, std::uint32_t bytes) {
  std::uint32_t begin = std::max(address, word * 4) - word * 4,
                end = std::min(address + bytes, word * 4 + 4) - word * 4;
  return (1u << end) - (1u << begin);
}

}  // namespace

void SharedShadow::configure(std::uint32_t bytes, std::uint32_t warps,
                             std::uint32_t async_readers) {
  std::uint32_t granules = (bytes + 15) / 16;
  warps_ = warps;
  state_.assign(4 * granules, 0);
  writer_.assign(4 * granules, 0);
  writer_ins_.assign(4 * granules, 0);
  writer_lane_.assign(4 * granules, 0);
  reader_.assign(std::size_t{4} * granules * warps, 0);
  strong_reader_.clear();
  async_readers_ = async_readers;
  async_reader_.assign(std::size_t{granules} * async_readers, 0);
  has_other_readers_ = false;
  split_.clear();
}

void SharedShadow::begin_cta() {
  std::fill(state_.begin(), state_.end(), std::uint8_t{0});
  split_.clear();
  has_other_readers_ = false;
}

void SharedShadow::forget_clocks() {
  std::fill(writer_.begin(), writer_.end(), 0u);
  std::fill(reader_.begin(), reader_.end(), 0u);
  std::fill(strong_reader_.begin(), strong_reader_.end(), 0u);
  std::fill(async_reader_.begin(), async_reader_.end(), 0u);
}

void SharedShadow::race(const SharedAccess& a, int lane, std::uint32_t word, const char* what,
                        std::uint32_t other_agent, std::uint32_t other_ins) {
  a.cta.launch.findings.add(kind::kRaceShared, a.ins, [&] {
    std::string text = std::string(what) + " " + a.cta.agent_name(other_agent);
    if (other_ins != kNone)
      text += " at " + a.cta.launch.findings.place(a.cta.kernel.ins[other_ins]);
    return text + ": " + where(a, lane, word * 4);
  });
}

void SharedShadow::check_writers(const SharedAccess& a, int lane, std::uint32_t word,
                                 std::uint32_t mask, bool is_read) {
  const char* what =
      is_read ? "read, not ordered after the write of" : "write, not ordered after the write of";
  if ((state_[word] & kSplit) == 0) {
    if (!ordered(a, writer_[word]))
      race(a, lane, word, what, agent_of(writer_[word]), writer_ins_[word]);
    return;
  }
  const Split& s = split_[word];
  for (int k = 0; k < 4; ++k) {
    if ((mask >> k & 1) == 0 || ordered(a, s.writer[k])) continue;
    return race(a, lane, word, what, agent_of(s.writer[k]), writer_ins_[word]);
  }
}

void SharedShadow::check_readers(const SharedAccess& a, int lane, std::uint32_t word,
                                 std::uint32_t mask) {
  if (mask != 15 && (state_[word] & kPartRead) != 0) return;
  const std::uint32_t* r = readers(word >> 2, 0) + (word & 3);
  for (std::uint32_t v = 0; v < warps_; ++v) {
    if (r[4 * v] > a.known[v])
      return race(a, lane, word, "write, not ordered after the read of", v, kNone);
  }
  if (!has_other_readers_) return;
  const std::uint32_t* async = async_readers(word >> 2);
  for (std::uint32_t v = 0; v < async_readers_; ++v) {
    if (async[v] > a.known[2 * warps_ + v])
      return race(a, lane, word, "write, not ordered after the read of", 2 * warps_ + v, kNone);
  }
  if (strong_reader_.empty() || a.is_strong) return;
  for (std::uint32_t v = 0; v < warps_; ++v) {
    if (strong_reader_[word * warps_ + v] > a.known[warps_ + v])
      return race(a, lane, word, "write, not ordered after the strong read of", v, kNone);
  }
}

void SharedShadow::read_slow(const SharedAccess& a, int lane, std::uint32_t address,
                             std::uint32_t bytes) {
  Findings& findings = a.cta.launch.findings;
  for (std::uint32_t word = address >> 2; word <= (address + bytes - 1) >> 2; ++word) {
    std::uint32_t mask = byte_mask(word, address, bytes);
    if ((state_[word] & kFlight) != 0) {
      findings.add(kind::kInFlightRead, a.ins, [&] {
        return "an asynchronous copy into it was not waited for: " + where(a, lane, word * 4);
      });
    } else if ((state_[word] & mask) != mask) {
      findings.add(kind::kUninitialisedShared, a.ins,
                   [&] { return "never written: " + where(a, lane, word * 4); });
    }
    check_writers(a, lane, word, mask, true);
    if (!a.is_strong && (state_[word] & (kSplit | kFlight)) == 0 && by_other_lane(a, lane, word)) {
      findings.add(kind::kRaceLanes, a.ins, [&] {
        return "read without __syncwarp after the write of lane " +
               std::to_string(writer_lane_[word]) + " at " +
               findings.place(a.cta.kernel.ins[writer_ins_[word]]) + ": " +
               where(a, lane, word * 4);
      });
    }
    if (mask != 15) state_[word] |= kPartRead;
    if (!a.is_strong) {
      readers(word >> 2, a.agent)[word & 3] = a.known[a.agent];
      continue;
    }
    if (strong_reader_.empty()) strong_reader_.assign(state_.size() * warps_, 0);
    has_other_readers_ = true;
    strong_reader_[word * warps_ + (a.agent - warps_)] = a.known[a.agent];
  }
}

void SharedShadow::check_write(const SharedAccess& a, int lane, std::uint32_t word,
                               std::uint32_t mask, bool own_flight) {
  if ((state_[word] & kFlight) != 0 && !own_flight) {
    a.cta.launch.findings.add(kind::kInFlightWrite, a.ins, [&] {
      return "over an asynchronous copy that was not waited for: " + where(a, lane, word * 4);
    });
  }
  check_writers(a, lane, word, mask, false);
  check_readers(a, lane, word, mask);
}

void SharedShadow::set_writer(const SharedAccess& a, int lane, std::uint32_t word,
                              std::uint32_t mask) {
  std::uint32_t e = epoch(a);
  if (mask == 15) {
    if ((state_[word] & kSplit) != 0) split_.erase(word);
    state_[word] = static_cast<std::uint8_t>((state_[word] & kFlight) | kInit);
    writer_[word] = e;
  } else {
    if ((state_[word] & kSplit) == 0) std::fill_n(split_[word].writer, 4, writer_[word]);
    for (int k = 0; k < 4; ++k) {
      if (mask >> k & 1) split_[word].writer[k] = e;
    }
    state_[word] |= static_cast<std::uint8_t>(kSplit | mask);
  }
  writer_ins_[word] = a.ins_index;
  writer_lane_[word] = static_cast<std::uint8_t>(lane);
}

void SharedShadow::write_slow(const SharedAccess& a, int lane, std::uint32_t address,
                              std::uint32_t bytes) {
  for (std::uint32_t word = address >> 2; word <= (address + bytes - 1) >> 2; ++word) {
    std::uint32_t mask = byte_mask(word, address, bytes);
    check_write(a, lane, word, mask, false);
    set_writer(a, lane, word, mask);
  }
}

void SharedShadow::begin_copy(const SharedAccess& a, int lane, std::uint32_t address,
                              std::uint32_t bytes) {
  if (bytes == 16 && write_granule(a, lane, address >> 4)) {
    std::uint32_t state = 0x1f1f1f1fu;
    std::memcpy(&state_[address >> 2], &state, 4);
    return;
  }
  for (std::uint32_t word = address >> 2; word < (address + bytes) >> 2; ++word) {
    check_write(a, lane, word, 15, false);
    set_writer(a, lane, word, 15);
    if ((state_[word] & kFlight) != kFlight) state_[word] += kFlightOne;
  }
}

void SharedShadow::end_copy(const SharedAccess& a, int lane, std::uint32_t address,
                            std::uint32_t bytes) {
  std::uint32_t state = 0;
  if (bytes == 16) std::memcpy(&state, &state_[address >> 2], 4);
  if ((state & 0xb0b0b0b0u) == 0x10101010u && agent_of(writer_[address >> 2]) == a.agent) {
    // Only this warp's copy is in flight: readers were checked at its issue, and later ones have
    // been reported.
    return set_granule(a, lane, address >> 4, 0x0f0f0f0fu);
  }
  for (std::uint32_t word = address >> 2; word < (address + bytes) >> 2; ++word) {
    if ((state_[word] & kFlight) != 0) state_[word] -= kFlightOne;
    check_write(a, lane, word, 15, true);
    set_writer(a, lane, word, 15);
  }
}

}  // namespace attnloom::sim
