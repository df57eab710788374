// SPDX-License-Identifier: Apache-2.0
// A device's profile from what a few launches took on it. Pure; thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "base/status.h"
#include "plan/cost_model.h"

namespace attnloom {

// What is launched: bf16, pages of 16 tokens, equal requests. Decodes are of query tile 16,
// prefills causal.
inline constexpr int kCalibrationKvHeads = 8;
inline constexpr int kCalibrationGroup = 4;
inline constexpr int kCalibrationDim = 128;
struct CalibrationBatch {
  const char* name;
  int requests;
  int qo_tokens;
  int kv_tokens;
  int query_tile;
  int kv_tile;
  int most_ctas;  // 0: all
};
enum CalibrationStep { kEmpty, kLong, kMany, kWide, kNarrow, kFew, kAlone, kSplit };
inline constexpr std::array<CalibrationBatch, 8> kCalibration = {{
    {"no queries", 1, 0, 16, 16, 64, 0},
    {"decode, long", 64, 1, 4096, 16, 64, 0},
    {"decode, many", 256, 1, 1024, 16, 64, 0},
    {"prefill, KV tile 64", 1, 8192, 8192, 128, 64, 0},
    {"prefill, KV tile 32", 1, 8192, 8192, 128, 32, 0},
    {"decode, few keys on a CTA a head", 1, 1, 128, 16, 64, 8},
    {"decode, a CTA a head", 1, 1, 4096, 16, 64, 8},
    {"decode, two CTAs a head", 1, 1, 4096, 16, 64, 16},
}};

struct CalibrationTime {
  double ns = 0;
  int ctas = 0;   // of the launch
  int items = 0;  // of the plan, on all KV heads
};

// Errors: ARGUMENT_INVALID with the times where they fit no device, which other work on it can
// make.
Result<DeviceProfile> fit_profile(const std::array<CalibrationTime, kCalibration.size()>& times);

}  // namespace attnloom
