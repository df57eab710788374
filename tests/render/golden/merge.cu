// SPDX-License-Identifier: Apache-2.0
#include "loom/ops.cuh"
#include "loom/plan.cuh"
#include "loom/types.cuh"

namespace loom_rendered {

struct Config {
  using Element = loom::Bf16;
  static constexpr int kHeadDimVo = 128;
  static constexpr int kThreads = 128;
};

}  // namespace loom_rendered

#include "merge.cuh"

extern "C" __global__ void __launch_bounds__(128, 1)
merge(const __grid_constant__ loom::MergeArgs args) {
  loom::merge<loom_rendered::Config>(args);
}
