// SPDX-License-Identifier: Apache-2.0
// The walk from a chosen kernel to the one in use: each step is found or compiled, and one that
// spilled leads to the next smaller KV tile. A later process walks the same steps from the cache
// alone, because every step is kept with its figures. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "engine/engine_state.h"
#include "engine/kernel_set.h"

namespace attnloom {

struct WalkRequest {
  const Spec* spec = nullptr;  // target set
  const FieldOrigins* field_lines = nullptr;
  KernelChoice choice;
  int index = 0;                   // of the choice in the set, for the sets of other targets
  bool try_other_targets = false;  // look-ups only, before a compile
  MissOptions how;
  Source* missed = nullptr;  // may be null; gets the program of a NOT_CACHED
};

struct WalkResult {
  AcquiredKernel kernel;  // not loaded
  std::shared_ptr<BuiltKernel> built;
  // Miss::kStart only: the compile that the walk waits for; kernel and built then say nothing but
  // the request_key. Walk again when it has landed.
  std::shared_ptr<Landing> landing;
};

Result<WalkResult> walk(Engine::State& engine, const WalkRequest& request);

// A compile error whose path is a functor field, with the user's own JSON line:
// "$.variant.logits_transform", "line 9 of the JSON, line 1 of the field: ...", or "line 1 of the
// field in \"alibi\": ..." where a member of compose is at fault.
Status with_json_line(Status error, const FieldOrigins& field_lines);

}  // namespace attnloom
