// SPDX-License-Identifier: Apache-2.0
// What the checkers saw, grouped by (kind, place). One object a launch; not thread-safe.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/program.h"

namespace attnloom::sim {

// Names of Finding::kind.
namespace kind {
inline constexpr std::string_view kRaceShared = "race-shared";
inline constexpr std::string_view kRaceLanes = "race-lanes";  // of one warp
inline constexpr std::string_view kRaceGlobal = "race-global";
inline constexpr std::string_view kUninitialisedShared = "uninitialised-shared";
inline constexpr std::string_view kUninitialisedGlobal = "uninitialised-global";
inline constexpr std::string_view kInFlightRead = "in-flight-read";
inline constexpr std::string_view kInFlightWrite = "in-flight-write";
inline constexpr std::string_view kOutOfBounds = "out-of-bounds";
inline constexpr std::string_view kMisaligned = "misaligned";
inline constexpr std::string_view kDeadlock = "deadlock";
inline constexpr std::string_view kDivergentBarrier = "divergent-barrier";
inline constexpr std::string_view kInactiveLanes = "inactive-lanes";
inline constexpr std::string_view kBarrierCount = "barrier-count";
inline constexpr std::string_view kBadCopySize = "bad-copy-size";
inline constexpr std::string_view kTrap = "trap";
inline constexpr std::string_view kMbarrierState = "mbarrier-state";
inline constexpr std::string_view kMbarrierOverflow = "mbarrier-overflow";
inline constexpr std::string_view kMbarrierFence = "missing-mbarrier-fence";
inline constexpr std::string_view kProxyFence = "missing-proxy-fence";
inline constexpr std::string_view kUnfinishedCopy = "unfinished-copy";
inline constexpr std::string_view kTensorMap = "bad-tensor-map";
inline constexpr std::string_view kRegisterBudget = "register-budget";
inline constexpr std::string_view kWgmma = "bad-wgmma";
inline constexpr std::string_view kWgmmaFence = "missing-wgmma-fence";
inline constexpr std::string_view kInFlightRegister = "in-flight-register";
}  // namespace kind

class Findings {
 public:
  Findings(const Module::State& module, std::string_view kernel)
      : module_(module), kernel_(kernel) {}

  // `detail` is called for the first finding of its group only.
  template <class Detail>
  void add(std::string_view kind, const Ins& ins, Detail detail) {
    Finding& f = group(kind, ins);
    if (f.count++ == 0) f.detail = detail() + inlined_at(ins);
  }

  std::string place(const Ins& ins) const;
  std::vector<Finding> take();  // sorted by kind and place

 private:
  Finding& group(std::string_view kind, const Ins& ins);
  std::string inlined_at(const Ins& ins) const;

  const Module::State& module_;
  std::string kernel_;
  std::map<std::pair<std::string, std::string>, Finding> groups_;
  std::map<std::pair<const char*, const Ins*>, Finding*>
      cache_;  // a faulty kernel reports millions of times
};

}  // namespace attnloom::sim
