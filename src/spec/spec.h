// SPDX-License-Identifier: Apache-2.0
// Spec: what a kernel is to compute and for which data, as plain data with ==. DESIGN §5 holds the
// meaning of each field; docs/SPEC.md tells it to users; parse.h makes one from JSON; check.h says
// whether a target can run it.
//
// Values: copyable, no ownership, safe to pass between threads.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "spec/types.h"

namespace attnloom {

inline constexpr int kSpecVersion = 1;

struct DTypes {
  DType q = DType::kBf16;
  DType kv = DType::kBf16;
  DType o = DType::kBf16;
  bool operator==(const DTypes&) const = default;
};

struct HeadDim {
  int qk = 0;  // elements
  int vo = 0;
  bool operator==(const HeadDim&) const = default;
};

struct Layout {
  KvLayout kv = KvLayout::kRagged;
  int page_size = 0;      // tokens; paged only
  int block_rows = 0;     // B_r, query tokens; bsr only
  int block_columns = 0;  // B_c, KV tokens; bsr only
  bool operator==(const Layout&) const = default;
};

// The three forms of "tile".
struct AutoTile {
  bool operator==(const AutoTile&) const = default;
};
struct FixedTile {
  int q = 0;   // packed query rows: (token, head in group)
  int kv = 0;  // KV tokens
  TileFamily family = TileFamily::kMma;
  bool operator==(const FixedTile&) const = default;
};
struct JointTile {
  std::vector<int> classes;  // query tiles, ascending
  bool operator==(const JointTile&) const = default;
};
using TileChoice = std::variant<AutoTile, FixedTile, JointTile>;

struct Mask {
  bool causal = false;
  bool custom = false;
  std::optional<int> window_left =
      -1;  // tokens before the query's own; -1 is off; nullopt is "runtime"
  bool operator==(const Mask&) const = default;
};

struct Param {
  std::string name;
  ParamType type = ParamType::kF32;
  bool operator==(const Param&) const = default;
};

// Rotary position embedding of the first elements of a key.
struct Rope {
  RopeStyle style = RopeStyle::kNeox;
  int rotary_dim = 0;  // elements
  bool operator==(const Rope&) const = default;
};

struct Variant {
  std::string name = "plain";  // for people; enters no key
  Mask mask;
  std::vector<Param> params;
  bool softmax = true;
  std::string sink;  // name of an f32[q_heads] pointer param, or empty
  KvScale kv_scale = KvScale::kNone;
  std::optional<Rope> rope;  // append_rope only, and always there
  std::string prelude;
  std::string logits_transform;
  std::string logits_mask;
  std::string tile_mask;
  std::string output_transform;
  std::string query_transform;
  std::string key_transform;
  std::string value_transform;
  std::vector<std::string> compose;
  bool operator==(const Variant&) const = default;
};

struct Spec {
  KernelKind kernel = KernelKind::kAttention;
  std::optional<Target> target;  // nullopt: the device's own
  Task task = Task::kMixed;
  DTypes dtype;
  HeadDim head_dim;
  int group_size = 1;  // query heads per KV head
  Layout layout;
  TileChoice tile = AutoTile{};
  Variant variant;
  bool operator==(const Spec&) const = default;
};

}  // namespace attnloom
