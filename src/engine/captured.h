// SPDX-License-Identifier: Apache-2.0
// CapturedRuns: what a plan's runs froze into CUDA graphs. A replay launches the kernel of then on
// the tensors of then, with the lengths of the latest update; nobody checks them against each other
// any more, so an update must.
//
// One thread at a time, as the plan that owns it. Allocates only to report an error.
#pragma once

#include <cstdint>
#include <limits>

#include "base/status.h"
#include "plan/plan.h"
#include "runtime/launch.h"
#include "spec/spec.h"

namespace attnloom {

class CapturedRuns {
 public:
  // A run that is being captured, its tensors already checked.
  void add(const Spec& spec, int kernel, const AttentionTensors& tensors);
  // PLAN_MISMATCH where `next` is for another kernel than the captured one; PLAN_BOUND where a
  // captured tensor has no room for it. `pool_pages`: of the workload, 0 where it names none.
  Status check(const Plan& next, std::int64_t pool_pages) const;

 private:
  // The least that the tensors of all captured runs hold of one thing.
  struct Held {
    std::int64_t count = std::numeric_limits<std::int64_t>::max();
    const char* tensor = "";
    void take(const char* name, std::int64_t held) {
      if (held < count) *this = {held, name};
    }
  };

  int kernel_ = -1;
  Held qo_tokens_;
  Held kv_rows_;
  Held kv_slots_;
  Held pool_pages_;
  Held block_entries_;
  Held mask_bytes_;
};

}  // namespace attnloom
