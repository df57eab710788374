// SPDX-License-Identifier: Apache-2.0
#include "loom/ops.cuh"
#include "loom/plan.cuh"
#include "loom/row.cuh"
#include "loom/types.cuh"

namespace loom_rendered {

struct Config {
  using Element = loom::Bf16;
  using KvElement = loom::Bf16;
  static constexpr loom::KvScale kKvScale = loom::KvScale::kNone;
  static constexpr int kHeadDimQk = 128;
  static constexpr int kHeadDimVo = 128;
  static constexpr int kGroupSize = 4;
  static constexpr bool kPaged = true;
  static constexpr int kPageSize = 16;
  static constexpr bool kPadded = false;
  static constexpr bool kBsr = false;
  static constexpr int kBlockColumns = 1;
  static constexpr bool kCausal = true;
  static constexpr bool kWindow = true;
  static constexpr bool kWindowRuntime = true;
  static constexpr int kWindowLeft = -1;
  static constexpr bool kCustomMask = false;
  static constexpr bool kSoftmax = true;
  static constexpr bool kHasLogitsTransform = true;
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
  static constexpr int kClassCount = 2;
  static constexpr int kThreads = 128;
  static constexpr int kMinCtasPerSm = 2;
  static constexpr int kSharedBytes = 69744;
};

template <int index>
struct TileClass;  // one specialisation for each class
template <>
struct TileClass<0> {
  static constexpr int kQ = 16, kKv = 64, kStages = 2;
};
template <>
struct TileClass<1> {
  static constexpr int kQ = 128, kKv = 32, kStages = 2;
};

struct Variant {
  loom::ScalarF32 cap;
  __device__ explicit Variant(const loom::PlanHeader& plan, const loom::AttentionArgs& args)
      : cap(loom::scalar_f32(plan.scalars[0])) {}
  __device__ __forceinline__ auto logits_transform(loom::Logit logits, int batch, int q_pos, loom::KvPosition kv_pos,
                                                    int q_head, int kv_head, int q_len, int kv_len) const {
#line 1 "variant.logits_transform"
return cap * loom::tanh(logits / cap);
#line 1 "variant.logits_transform:end"
  }
#line 1 "attnloom.cu"
};

}  // namespace loom_rendered

#include "attention_mma.cuh"

extern "C" __global__ void __launch_bounds__(128, 2)
attention(const __grid_constant__ loom::AttentionArgs args) {
  loom::attention_mma<loom_rendered::Config, loom_rendered::TileClass, loom_rendered::Variant>(args);
}
