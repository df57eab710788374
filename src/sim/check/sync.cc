// SPDX-License-Identifier: Apache-2.0
#include "sim/check/sync.h"

namespace attnloom::sim {
namespace {

constexpr int kCta = static_cast<int>(Scope::kCta);
constexpr int kGpu = static_cast<int>(Scope::kGpu);

void acquire(const ClockFrame& frame, WarpClock& clock, const SyncVariable& v,
             const StrongAccess& access) {
  clock.known.join(frame, v.strong);
  bool now = access.order == Order::kAcquire || access.order == Order::kAcqRel;
  auto collect = [&](int scope) {
    clock.seen[scope].join(frame, v.released[scope]);
    if (now) clock.known.join(frame, v.released[scope]);
  };
  if (access.scope == Scope::kGpu) collect(kGpu);
  if (v.cta == frame.cta) collect(kCta);
}

bool release(const ClockFrame& frame, const WarpClock& clock, std::uint32_t strong_agent,
             SyncVariable& v, const StrongAccess& access) {
  bool now = access.order == Order::kRelease || access.order == Order::kAcqRel;
  std::uint32_t me = frame.first_agent() + strong_agent;
  // A plain store ends the chain of read-modify-writes.
  if (!access.reads && v.releaser != me) {
    for (SparseClock& r : v.released) r.clear();
    v.strong.clear();
    v.releaser = ~0u;
  }
  if (now) v.releaser = me;
  if (v.cta != frame.cta) v.released[kCta].clear();
  v.cta = frame.cta;
  auto publish = [&](int scope) {
    const VectorClock& what = now ? clock.known : clock.fenced[scope];
    join(v.released[scope], what.sparse(frame));
  };
  publish(kCta);
  if (access.scope == Scope::kGpu) publish(kGpu);
  join(v.strong, {{me, clock.known.own()[strong_agent]}});
  return now;
}

}  // namespace

void WarpClock::reset(const ClockFrame& frame) {
  known.reset(frame);
  for (VectorClock& c : fenced) c.clear();
  for (VectorClock& c : seen) c.clear();
  proxied.clear();
}

void WarpClock::join(const WarpClock& other) {
  known.join(other.known);
  for (int s = 0; s < 2; ++s) {
    fenced[s].join(other.fenced[s]);
    seen[s].join(other.seen[s]);
  }
  proxied.join(other.proxied);
}

bool apply_fence(const ClockFrame&, WarpClock& clock, Scope scope) {
  clock.known.join(clock.seen[kCta]);
  if (scope == Scope::kGpu) clock.known.join(clock.seen[kGpu]);
  clock.fenced[kCta] = clock.known;
  if (scope == Scope::kGpu) clock.fenced[kGpu] = clock.known;
  return true;
}

bool apply_strong(const ClockFrame& frame, WarpClock& clock, std::uint32_t strong_agent,
                  SyncVariable& v, const StrongAccess& access) {
  if (access.reads) acquire(frame, clock, v, access);
  return access.writes && release(frame, clock, strong_agent, v, access);
}

}  // namespace attnloom::sim
