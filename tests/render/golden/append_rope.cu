// SPDX-License-Identifier: Apache-2.0
#include "loom/ops.cuh"
#include "loom/ops_fp8.cuh"
#include "loom/plan.cuh"
#include "loom/types.cuh"

namespace loom_rendered {

struct Config {
  using Element = loom::Bf16;
  using CacheElement = loom::Bf16;
  static constexpr int kHeadDimQk = 128;
  static constexpr int kHeadDimVo = 128;
  static constexpr int kPageSize = 16;
  static constexpr bool kScaled = false;
  static constexpr bool kScalePerHead = false;
  static constexpr int kRotaryDim = 64;
  static constexpr bool kNeox = true;
  static constexpr int kThreads = 128;
};

}  // namespace loom_rendered

#include "append.cuh"

extern "C" __global__ void __launch_bounds__(128, 1)
append_rope(const __grid_constant__ loom::AppendRopeArgs args) {
  loom::append_rope<loom_rendered::Config>(args);
}
