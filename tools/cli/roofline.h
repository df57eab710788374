// SPDX-License-Identifier: Apache-2.0
// What a batch costs at least on a device: the arithmetic that its masks leave, the bytes that have
// to move, and which of the two takes longer (the roofline model). Not a prediction: a kernel may
// come close to it and never below. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tools/case/case_file.h"
#include "tools/cli/plan_view.h"

namespace attnloom::cli {

struct Roofs {
  std::string_view device;
  double bytes_per_second = 0;  // read from device memory
  double flops_per_second = 0;  // of the tensor cores with 16-bit operands, which 8-bit keys become
  std::string_view source;
};

// `device`: a profile of the simulator ("h200") or the driver's name ("NVIDIA H200").
std::optional<Roofs> find_roofs(std::string_view device);

// Doubles, as the products of a batch at the int32 bounds are past int64; exact below 2^53.
struct Traffic {
  double pairs = 0;  // of query token and key that the mask leaves, once for all heads
  double flops = 0;  // of both products
  double kv_bytes = 0;
  double q_bytes = 0;
  double o_bytes = 0;
  double partial_bytes = 0;  // states of split tiles, written once and read once

  void add(const Traffic& other) {
    pairs += other.pairs;
    flops += other.flops;
    kv_bytes += other.kv_bytes;
    q_bytes += other.q_bytes;
    o_bytes += other.o_bytes;
    partial_bytes += other.partial_bytes;
  }
  double bytes() const { return kv_bytes + q_bytes + o_bytes + partial_bytes; }
};

// A tile of a prefix that several requests share: its keys are read once for all of them. Queries
// and outputs stand with the requests.
struct PrefixTraffic {
  int level = 0;
  std::vector<int> members;  // requests
  std::int64_t tokens = 0;   // of their queries
  KeyRange keys;
  Traffic traffic;
};

struct Roofline {
  std::vector<Traffic> requests;         // without what stands in prefixes
  std::vector<std::int64_t> prefix_len;  // of each request: the keys that do
  std::vector<PrefixTraffic> prefixes;
  Traffic all;  // a page that several requests or prefix tiles name is read once
};

// Free masks (logits_mask) count as if they kept everything, as nobody knows what they drop.
Roofline make_roofline(const CaseFile& file, const PlanView& plan);

Json roofline_to_json(const CaseFile& file, const Roofline& roofline, const Roofs& roofs);
std::string roofline_to_text(const CaseFile& file, const Roofline& roofline, const Roofs& roofs);

}  // namespace attnloom::cli
