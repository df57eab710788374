// SPDX-License-Identifier: Apache-2.0
// What is known of each 4-byte word of a CTA's shared memory: which bytes are initialised, whether
// a copy is in flight, who wrote last and when each warp last read. Full accesses of 16 aligned
// bytes take a short way.
//
// Lanes of one warp: a lane may read what another wrote only after the warp met (__syncwarp, a
// barrier, ...), which advances its clock. Words that are written in parts, and writes after reads,
// are not looked at in this way.
//
// Bytes of a word that different warps write are told apart (a side table); readers of parts of a
// word are kept as readers of all of it, and then ignored when only a part is overwritten: a miss
// at worst, never a false finding.
#pragma once

#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "sim/check/clock.h"
#include "sim/ins.h"

namespace attnloom::sim {

// Who touches shared memory, and how.
struct SharedAccess {
  Cta& cta;
  Warp& warp;
  const Ins& ins;
  const std::uint32_t* known;  // the warp's clock, by local agent
  std::uint32_t agent = 0;     // local
  std::uint32_t ins_index = 0;
  bool is_strong = false;
};

class SharedShadow {
 public:
  // `warps` weak agents and as many strong ones; `async_readers` agents of the async proxy that
  // read, numbered behind them.
  void configure(std::uint32_t bytes, std::uint32_t warps, std::uint32_t async_readers);
  void begin_cta();      // nothing is initialised; what earlier CTAs did is below the clock base
  void forget_clocks();  // the clock base starts again

  void read(const SharedAccess& a, int lane, std::uint32_t address, std::uint32_t bytes) {
    if (bytes == 16 && read_granule(a, lane, address >> 4)) return;
    if (bytes == 4 && read_word(a, lane, address >> 2)) return;
    if (bytes == 8 && read_word(a, lane, address >> 2) && read_word(a, lane, (address >> 2) + 1))
      return;
    read_slow(a, lane, address, bytes);
  }
  void write(const SharedAccess& a, int lane, std::uint32_t address, std::uint32_t bytes) {
    if (bytes == 16 && write_granule(a, lane, address >> 4)) return;
    if (bytes == 4 && write_word(a, lane, address >> 2)) return;
    if (bytes == 8 && write_word(a, lane, address >> 2) && write_word(a, lane, (address >> 2) + 1))
      return;
    write_slow(a, lane, address, bytes);
  }
  // A copy counts as a write when it is issued and again when it lands.
  void begin_copy(const SharedAccess& a, int lane, std::uint32_t address, std::uint32_t bytes);
  void end_copy(const SharedAccess& a, int lane, std::uint32_t address, std::uint32_t bytes);

  // The async proxy: pieces are whole granules of 16 bytes. `a` is the warp that asks for it;
  // `agent` is who does it, and `clock` when, by that agent's own count: whoever knows that clock
  // is ordered after it (async_shadow.cc).
  struct AsyncAgent {
    std::uint32_t agent = 0;
    std::uint32_t clock = 0;
  };
  void begin_async_write(const SharedAccess& a, int lane, const AsyncAgent& by,
                         std::uint32_t address, std::uint32_t bytes);
  void end_async_write(const AsyncAgent& by, std::uint32_t address, std::uint32_t bytes);
  // `proxied`: what the async proxy sees of the warps' own writes; nullptr: nothing.
  void async_read(const SharedAccess& a, int lane, const AsyncAgent& by,
                  const std::uint32_t* proxied, std::uint32_t address, std::uint32_t bytes);

 private:
  static constexpr std::uint8_t kInit = 0x0f, kFlight = 0x30, kFlightOne = 0x10, kPartRead = 0x40,
                                kSplit = 0x80;
  static constexpr std::uint32_t kClockBits = 24;
  struct Split {
    std::uint32_t writer[4];
  };

  static std::uint32_t clock_of(std::uint32_t epoch) { return epoch & ((1u << kClockBits) - 1); }
  static std::uint32_t agent_of(std::uint32_t epoch) { return epoch >> kClockBits; }
  std::uint32_t epoch(const SharedAccess& a) const {
    return a.agent << kClockBits | a.known[a.agent];
  }
  bool is_strong(std::uint32_t agent) const { return agent - warps_ < warps_; }
  bool ordered(const SharedAccess& a, std::uint32_t epoch) const {
    std::uint32_t agent = agent_of(epoch);
    return clock_of(epoch) <= a.known[agent] || (a.is_strong && is_strong(agent));
  }
  // True where another lane of the warp wrote it and the warp has not met since. At the last clock
  // nothing is known of that.
  bool by_other_lane(const SharedAccess& a, int lane, std::uint32_t word) const {
    return writer_[word] == epoch(a) && writer_lane_[word] != lane &&
           clock_of(writer_[word]) != (1u << kClockBits) - 1;
  }
  std::uint32_t* readers(std::uint32_t granule, std::uint32_t agent) {
    return &reader_[(granule * warps_ + agent) * 4];
  }

  bool read_granule(const SharedAccess& a, int lane, std::uint32_t g) {
    std::uint32_t state;
    std::memcpy(&state, &state_[4 * g], 4);
    const std::uint32_t* w = &writer_[4 * g];
    bool same = w[0] == w[1] && w[0] == w[2] && w[0] == w[3];
    if ((state & 0xbfbfbfbfu) != 0x0f0f0f0fu || !same || !ordered(a, w[0]) || a.is_strong)
      return false;
    for (std::uint32_t k = 0; k < 4 && w[0] == epoch(a); ++k) {
      if (by_other_lane(a, lane, 4 * g + k)) return false;
    }
    std::uint32_t* r = readers(g, a.agent);
    std::uint32_t now = a.known[a.agent];
    r[0] = r[1] = r[2] = r[3] = now;
    return true;
  }
  bool read_word(const SharedAccess& a, int lane, std::uint32_t word) {
    if ((state_[word] & ~kPartRead) != kInit || !ordered(a, writer_[word]) || a.is_strong ||
        by_other_lane(a, lane, word))
      return false;
    readers(word >> 2, a.agent)[word & 3] = a.known[a.agent];
    return true;
  }
  bool write_granule(const SharedAccess& a, int lane, std::uint32_t g) {
    std::uint32_t state;
    std::memcpy(&state, &state_[4 * g], 4);
    const std::uint32_t* w = &writer_[4 * g];
    bool same = w[0] == w[1] && w[0] == w[2] && w[0] == w[3];
    if ((state & 0xb0b0b0b0u) != 0 || !same || !ordered(a, w[0]) || a.is_strong ||
        has_other_readers_)
      return false;
    const std::uint32_t* r = readers(g, 0);
    std::uint32_t late = 0;
    for (std::uint32_t v = 0; v < warps_; ++v, r += 4) {
      std::uint32_t k = a.known[v];
      late |= static_cast<std::uint32_t>(r[0] > k) | static_cast<std::uint32_t>(r[1] > k) |
              static_cast<std::uint32_t>(r[2] > k) | static_cast<std::uint32_t>(r[3] > k);
    }
    if (late != 0) return false;
    set_granule(a, lane, g, 0x0f0f0f0fu);
    return true;
  }
  void set_granule(const SharedAccess& a, int lane, std::uint32_t g, std::uint32_t state) {
    std::memcpy(&state_[4 * g], &state, 4);
    std::uint32_t e = epoch(a);
    for (int k = 0; k < 4; ++k) writer_[4 * g + k] = e;
    for (int k = 0; k < 4; ++k) writer_ins_[4 * g + k] = a.ins_index;
    std::memset(&writer_lane_[4 * g], lane, 4);
  }
  bool write_word(const SharedAccess& a, int lane, std::uint32_t word) {
    if ((state_[word] & (kFlight | kSplit)) != 0 || !ordered(a, writer_[word]) || a.is_strong ||
        has_other_readers_)
      return false;
    const std::uint32_t* r = readers(word >> 2, 0) + (word & 3);
    for (std::uint32_t v = 0; v < warps_; ++v) {
      if (r[4 * v] > a.known[v]) return false;
    }
    state_[word] = kInit;
    writer_[word] = epoch(a);
    writer_ins_[word] = a.ins_index;
    writer_lane_[word] = static_cast<std::uint8_t>(lane);
    return true;
  }

  void read_slow(const SharedAccess& a, int lane, std::uint32_t address, std::uint32_t bytes);
  void write_slow(const SharedAccess& a, int lane, std::uint32_t address, std::uint32_t bytes);
  void check_write(const SharedAccess& a, int lane, std::uint32_t word, std::uint32_t mask,
                   bool own_flight);
  void check_readers(const SharedAccess& a, int lane, std::uint32_t word, std::uint32_t mask);
  void check_writers(const SharedAccess& a, int lane, std::uint32_t word, std::uint32_t mask,
                     bool is_read);
  void set_writer(const SharedAccess& a, int lane, std::uint32_t word, std::uint32_t mask);
  void race(const SharedAccess& a, int lane, std::uint32_t word, const char* what,
            std::uint32_t other_agent, std::uint32_t other_ins);
  bool is_free(const SharedAccess& a, std::uint32_t granule);
  bool is_visible(const SharedAccess& a, const std::uint32_t* proxied, std::uint32_t granule) const;
  void check_proxy(const SharedAccess& a, int lane, const std::uint32_t* proxied,
                   std::uint32_t word);
  const std::uint32_t* async_readers(std::uint32_t granule) const {
    return async_reader_.data() + std::size_t{granule} * async_readers_;
  }

  std::uint32_t warps_ = 0;
  std::vector<std::uint8_t> state_;           // by word
  std::vector<std::uint32_t> writer_;         // by word: epoch
  std::vector<std::uint32_t> writer_ins_;     // by word: index in the kernel
  std::vector<std::uint8_t> writer_lane_;     // by word
  std::vector<std::uint32_t> reader_;         // by granule of 16 bytes, warp, word: clock
  std::vector<std::uint32_t> strong_reader_;  // by word and warp; empty until the first strong read
  std::vector<std::uint32_t> async_reader_;   // by granule and async reader: clock
  std::uint32_t async_readers_ = 0;
  bool has_other_readers_ = false;  // strong or async ones, since the CTA began
  std::unordered_map<std::uint32_t, Split> split_;
};

}  // namespace attnloom::sim
