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
  static constexpr int kHeadDimQk = 192;
  static constexpr int kHeadDimVo = 128;
  static constexpr int kGroupSize = 1;
  static constexpr bool kPaged = false;
  static constexpr int kPageSize = 1;
  static constexpr bool kPadded = false;
  static constexpr bool kBsr = false;
  static constexpr int kBlockColumns = 1;
  static constexpr bool kCausal = false;
  static constexpr bool kWindow = false;
  static constexpr bool kWindowRuntime = false;
  static constexpr int kWindowLeft = -1;
  static constexpr bool kCustomMask = false;
  static constexpr bool kSoftmax = true;
  static constexpr bool kHasLogitsTransform = true;
  static constexpr bool kHasLogitsMask = true;
  static constexpr bool kHasTileMask = true;
  static constexpr bool kHasSink = true;
  static constexpr bool kHasOutputTransform = true;
  static constexpr bool kHasQueryTransform = true;
  static constexpr bool kHasKeyTransform = true;
  static constexpr bool kHasValueTransform = true;
  static constexpr bool kQuerySquares = false;
  static constexpr bool kKeySquares = false;
  static constexpr bool kValueSquares = false;
  static constexpr bool kShares = false;
  static constexpr int kClassCount = 1;
  static constexpr int kThreads = 128;
  static constexpr int kMinCtasPerSm = 2;
  static constexpr int kSharedBytes = 88176;
};

template <int index>
struct TileClass;  // one specialisation for each class
template <>
struct TileClass<0> {
  static constexpr int kQ = 16, kKv = 64, kStages = 2;
};

#line 1 "variant.prelude"
constexpr float kHalf = 0.5f;
#line 1 "variant.prelude:end"
static_assert(true, "");
#line 1 "attnloom.cu"

struct Variant {
  const float* __restrict__ sinks;
  const float* __restrict__ inv_freq;
  __device__ explicit Variant(const loom::PlanHeader& plan, const loom::AttentionArgs& args)
      : sinks(static_cast<const float*>(args.pointers[0])),
        inv_freq(static_cast<const float*>(args.pointers[1])) {}
  __device__ __forceinline__ auto logits_transform(loom::Logit logits, int batch, int q_pos, loom::KvPosition kv_pos,
                                                    int q_head, int kv_head, int q_len, int kv_len) const {
#line 1 "variant.logits_transform"
return logits * kHalf;
#line 1 "variant.logits_transform:end"
  }
#line 1 "attnloom.cu"
  __device__ __forceinline__ bool logits_mask(int batch, int q_pos, int kv_pos, int q_head, int kv_head, int q_len,
                                              int kv_len) const {
#line 1 "variant.logits_mask"
return kv_pos != batch;
#line 1 "variant.logits_mask:end"
  }
#line 1 "attnloom.cu"
  __device__ __forceinline__ loom::TileMask tile_mask(int batch, int q_pos_begin, int q_pos_end, int kv_pos_begin,
                                                      int kv_pos_end, int q_head_begin, int q_head_end, int kv_head,
                                                      int q_len, int kv_len) const {
#line 1 "variant.tile_mask"
return loom::TileMask::kPartial;
#line 1 "variant.tile_mask:end"
  }
#line 1 "attnloom.cu"
  __device__ __forceinline__ float output_transform(float o, float lse, int dim, int batch, int q_pos, int q_head,
                                                    int kv_head, int q_len, int kv_len) const {
#line 1 "variant.output_transform"
return o * float(dim + 1) + lse;
#line 1 "variant.output_transform:end"
  }
#line 1 "attnloom.cu"
  __device__ __forceinline__ void query_transform(loom::Row<Config::kHeadDimQk>& x, const loom::RowArgs& a) const {
#line 1 "variant.query_transform"
x.scale(kHalf);
#line 1 "variant.query_transform:end"
  }
#line 1 "attnloom.cu"
  __device__ __forceinline__ void key_transform(loom::Row<Config::kHeadDimQk>& x, const loom::RowArgs& a) const {
#line 1 "variant.key_transform"
x.rotate_pairs(64, [&](int i, float& c, float& s) {
  loom::rotation(a.pos, inv_freq[i], c, s);
});
#line 1 "variant.key_transform:end"
  }
#line 1 "attnloom.cu"
  __device__ __forceinline__ void value_transform(loom::Row<Config::kHeadDimVo>& x, const loom::RowArgs& a) const {
#line 1 "variant.value_transform"
x.set(0, 1.0f);
#line 1 "variant.value_transform:end"
  }
#line 1 "attnloom.cu"
  __device__ __forceinline__ float sink_of(int q_head) const { return sinks[q_head]; }
};

}  // namespace loom_rendered

#include "attention_mma.cuh"

extern "C" __global__ void __launch_bounds__(128, 2)
attention(const __grid_constant__ loom::AttentionArgs args) {
  loom::attention_mma<loom_rendered::Config, loom_rendered::TileClass, loom_rendered::Variant>(args);
}
