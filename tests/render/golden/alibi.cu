// SPDX-License-Identifier: Apache-2.0
#include "loom/ops.cuh"
#include "loom/plan.cuh"
#include "loom/row.cuh"
#include "loom/types.cuh"

namespace loom_rendered {

struct Config {
  using Element = loom::F16;
  using KvElement = loom::F16;
  static constexpr loom::KvScale kKvScale = loom::KvScale::kNone;
  static constexpr int kHeadDimQk = 128;
  static constexpr int kHeadDimVo = 64;
  static constexpr int kGroupSize = 7;
  static constexpr bool kPaged = true;
  static constexpr int kPageSize = 1;
  static constexpr bool kPadded = false;
  static constexpr bool kBsr = false;
  static constexpr int kBlockColumns = 1;
  static constexpr bool kCausal = false;
  static constexpr bool kWindow = true;
  static constexpr bool kWindowRuntime = false;
  static constexpr int kWindowLeft = 1234567;
  static constexpr bool kCustomMask = false;
  static constexpr bool kSoftmax = false;
  static constexpr bool kHasLogitsTransform = true;
  static constexpr bool kHasLogitsMask = true;
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
  static constexpr int kMinCtasPerSm = 2;
  static constexpr int kSharedBytes = 41072;
};

template <int index>
struct TileClass;  // one specialisation for each class
template <>
struct TileClass<0> {
  static constexpr int kQ = 64, kKv = 32, kStages = 2;
};

#line 1 "variant.prelude"
// distance
__device__ float distance(int a, int b) { return float(a - b); }
#line 1 "variant.prelude:end"
static_assert(true, "");
#line 1 "attnloom.cu"

struct Variant {
  const float* __restrict__ slopes;
  int step;
  const loom::Bf16* __restrict__ table;
  unsigned limit;
  __device__ explicit Variant(const loom::PlanHeader& plan, const loom::AttentionArgs& args)
      : slopes(static_cast<const float*>(args.pointers[0])),
        step(loom::scalar_i32(plan.scalars[0])),
        table(static_cast<const loom::Bf16*>(args.pointers[1])),
        limit(loom::scalar_u32(plan.scalars[1])) {}
  __device__ __forceinline__ auto logits_transform(loom::Logit logits, int batch, int q_pos, loom::KvPosition kv_pos,
                                                    int q_head, int kv_head, int q_len, int kv_len) const {
#line 1 "variant.logits_transform"
float bias = slopes[q_head] * distance(q_pos, kv_pos);
return logits - 0.125f * bias;
#line 1 "variant.logits_transform:end"
  }
#line 1 "attnloom.cu"
  __device__ __forceinline__ bool logits_mask(int batch, int q_pos, int kv_pos, int q_head, int kv_head, int q_len,
                                              int kv_len) const {
#line 1 "variant.logits_mask"
return unsigned(kv_pos / step) <= limit && loom::to_float(table[kv_head]) > 1e-5f;
#line 1 "variant.logits_mask:end"
  }
#line 1 "attnloom.cu"
};

}  // namespace loom_rendered

#include "attention_mma.cuh"

extern "C" __global__ void __launch_bounds__(128, 2)
attention(const __grid_constant__ loom::AttentionArgs args) {
  loom::attention_mma<loom_rendered::Config, loom_rendered::TileClass, loom_rendered::Variant>(args);
}
