// SPDX-License-Identifier: Apache-2.0
// Release and acquire as PTX's memory model has them, on vector clocks.
//
// A fence makes what its warp knows publishable ("fenced"); a strong write then publishes it at its
// address; a strong read collects what it finds there ("seen"), and the next fence turns that into
// knowledge. Release and acquire operations do both steps at once. Barriers of the CTA carry all
// three on, because fences are cumulative: "all threads fence; bar.sync; one thread adds to a
// counter" publishes the writes of all.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "sim/check/clock.h"
#include "sim/machine/exec.h"

namespace attnloom::sim {

// One warp's view. Index of the arrays: Scope.
struct WarpClock {
  VectorClock known;
  VectorClock fenced[2];
  VectorClock seen[2];
  // The part of `known` that copies and matrix products of the async proxy see too. Bottom until
  // the first fence.proxy.async.
  VectorClock proxied;

  void reset(const ClockFrame& frame);
  void join(const WarpClock& other);
};

// What strong accesses left at an address.
struct SyncVariable {
  SparseClock released[2];
  std::uint32_t cta = ~0u;  // whose releases released[kCta] holds
  SparseClock strong;       // the strong writes themselves
  // Who released here last: a later strong store of the same warp still counts as its release.
  std::uint32_t releaser = ~0u;
};
using SyncTable = std::unordered_map<std::uint64_t, SyncVariable>;

struct StrongAccess {
  bool reads = false;
  bool writes = false;
  Order order = Order::kRelaxed;
  Scope scope = Scope::kGpu;
};

// Both return true where the warp's clock must advance: what follows is not part of what was
// published.
bool apply_fence(const ClockFrame& frame, WarpClock& clock, Scope scope);
bool apply_strong(const ClockFrame& frame, WarpClock& clock, std::uint32_t strong_agent,
                  SyncVariable& variable, const StrongAccess& access);

}  // namespace attnloom::sim
