// SPDX-License-Identifier: Apache-2.0
#include "loom/plan.cuh"
#include "loom/types.cuh"

namespace loom_rendered {

struct Config {
  static constexpr int kElementBytes = 1;
  static constexpr int kHeadDimQk = 192;
  static constexpr int kHeadDimVo = 128;
  static constexpr int kPageSize = 1;
  static constexpr int kThreads = 128;
};

}  // namespace loom_rendered

#include "page_copy.cuh"

extern "C" __global__ void __launch_bounds__(128, 1)
page_copy(const __grid_constant__ loom::PageCopyArgs args) {
  loom::page_copy<loom_rendered::Config>(args);
}
