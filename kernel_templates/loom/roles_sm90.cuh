// SPDX-License-Identifier: Apache-2.0
// Who does what in a CTA of attention_wgmma, with how many registers: the first warpgroup copies,
// the others multiply, but for a last one that runs row functors where there are any.
#pragma once

#include "loom/ring_sm90.cuh"

namespace loom {

// Registers a thread: copying takes few, more where rows or bits are gathered or tiles asked about,
// and products have what the others leave.
template <class Config, class Class>
struct RoleRegisters {
  static constexpr int kConsumers = Class::kQ / 64;
  static constexpr bool kPasses = kHasRowFunctors<Config>;
  static constexpr int kOfCta = Config::kThreads == 384 ? 504 : 512;  // 168 * 3 or 128 * 4
  static constexpr bool kBusy = MappedRing<Config, Class>::kGathersTiles || kSkipsTiles<Config>;
  static constexpr bool kGathersAll = !kMapsKeys<Config, Class> && Config::kCustomMask;
  static constexpr int kCopies = kBusy && (!kPasses || kGathersAll) ? 56
                                 : kBusy || Config::kThreads == 384 ? 40
                                                                    : 32;
  static constexpr int kRows = kPasses ? 80 : 0;
  static constexpr int kProducts = (kOfCta - kCopies - kRows) / kConsumers / 8 * 8;
};

// The warpgroup of row functors.
template <class Config>
struct PassCrew {
  static constexpr int kThreads = kGroupThreads;
  static constexpr int kFirst = Config::kThreads - kThreads;
  LOOM_DEVICE static int thread_now() { return thread_index_now() - kFirst; }
  LOOM_DEVICE static int warp() { return warp_index() - kFirst / 32; }
};

// The warpgroups that multiply, as the crew that finishes an item, and their turns. Named barrier 0
// is that of the whole CTA.
template <class Config>
struct Consumers {
  static constexpr int kThreads =
      Config::kThreads - (kHasRowFunctors<Config> ? 2 : 1) * kGroupThreads;
  static constexpr int kGroups = kThreads / kGroupThreads;
  static constexpr int kSyncBarrier = 1;
  static constexpr int kTurnBarrier = 2;  // and on, one a group
  LOOM_DEVICE static int thread() { return static_cast<int>(threadIdx.x) - kGroupThreads; }
  LOOM_DEVICE static int warp() { return warp_index() - kGroupThreads / 32; }
  LOOM_DEVICE static int group() { return thread() / kGroupThreads; }
  LOOM_DEVICE static void sync() { named_sync(kSyncBarrier, kThreads); }

  LOOM_DEVICE static void begin_turns() {
    if (group() == 0) named_arrive(kTurnBarrier, 2 * kGroupThreads);
  }
  LOOM_DEVICE static void await_turn() { named_sync(kTurnBarrier + group(), 2 * kGroupThreads); }
  LOOM_DEVICE static void end_turn() {
    const int next = group() + 1 == kGroups ? 0 : group() + 1;
    named_arrive(kTurnBarrier + next, 2 * kGroupThreads);
  }
};

}  // namespace loom
