// SPDX-License-Identifier: Apache-2.0
#include "loom/ops.cuh"
#include "loom/ops_fp8.cuh"
#include "loom/plan.cuh"
#include "loom/types.cuh"

namespace loom_rendered {

struct Config {
  using Element = loom::F16;
  using CacheElement = loom::E5m2;
  static constexpr int kHeadDimQk = 96;
  static constexpr int kHeadDimVo = 64;
  static constexpr int kPageSize = 3;
  static constexpr bool kScaled = true;
  static constexpr bool kScalePerHead = true;
  static constexpr int kRotaryDim = 0;
  static constexpr bool kNeox = false;
  static constexpr int kThreads = 128;
};

}  // namespace loom_rendered

#include "append.cuh"

extern "C" __global__ void __launch_bounds__(128, 1)
append(const __grid_constant__ loom::AppendArgs args) {
  loom::append<loom_rendered::Config>(args);
}
