// SPDX-License-Identifier: Apache-2.0
#include "loom/ops.cuh"
#include "loom/plan.cuh"
#include "loom/row.cuh"
#include "loom/types.cuh"

namespace loom_rendered {

struct Config {
  using Element = loom::Bf16;
  using KvElement = loom::E4m3;
  static constexpr loom::KvScale kKvScale = loom::KvScale::kHead;
  static constexpr int kHeadDimQk = 512;
  static constexpr int kHeadDimVo = 512;
  static constexpr int kGroupSize = 4;
  static constexpr bool kPaged = true;
  static constexpr int kPageSize = 16;
  static constexpr bool kPadded = false;
  static constexpr bool kBsr = false;
  static constexpr int kBlockColumns = 1;
  static constexpr bool kCausal = false;
  static constexpr bool kWindow = false;
  static constexpr bool kWindowRuntime = false;
  static constexpr int kWindowLeft = -1;
  static constexpr bool kCustomMask = false;
  static constexpr bool kSoftmax = true;
  static constexpr bool kHasLogitsTransform = false;
  static constexpr bool kHasLogitsMask = false;
  static constexpr bool kHasTileMask = false;
  static constexpr bool kHasSink = false;
  static constexpr bool kHasOutputTransform = false;
  static constexpr bool kHasQueryTransform = false;
  static constexpr bool kHasKeyTransform = false;
  static constexpr bool kHasValueTransform = false;
  static constexpr bool kQuerySquares = false;
  static constexpr bool kKeySquares = false;
  static constexpr bool kValueSquares = false;
  static constexpr bool kShares = false;
  static constexpr int kClassCount = 1;
  static constexpr int kThreads = 128;
  static constexpr int kMinCtasPerSm = 3;
  static constexpr int kSharedBytes = 66672;
};

template <int index>
struct TileClass;  // one specialisation for each class
template <>
struct TileClass<0> {
  static constexpr int kQ = 1, kKv = 32, kStages = 2;
};

struct Variant {
  __device__ explicit Variant(const loom::PlanHeader& plan, const loom::AttentionArgs& args) {}
};

}  // namespace loom_rendered

#include "decode_simt.cuh"

extern "C" __global__ void __launch_bounds__(128, 3)
attention(const __grid_constant__ loom::AttentionArgs args) {
  loom::decode_simt<loom_rendered::Config, loom_rendered::TileClass, loom_rendered::Variant>(args);
}
