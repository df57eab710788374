// SPDX-License-Identifier: Apache-2.0
#include "sim/lanes/form.h"

namespace attnloom::sim {

namespace baseline {
LaneFn select(const LaneForm& form);
const ProductOps& product_ops();
}  // namespace baseline
#if defined(ATTNLOOM_SIM_X86)
namespace avx2 {
LaneFn select(const LaneForm& form);
const ProductOps& product_ops();
}  // namespace avx2
namespace avx512 {
LaneFn select(const LaneForm& form);
const ProductOps& product_ops();
}  // namespace avx512
#endif

bool isa_supported(Isa isa) {
#if defined(ATTNLOOM_SIM_X86)
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
            __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
            __builtin_cpu_supports("popcnt");
  bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512vl");
  if (isa == Isa::kAvx2) return v3;
  if (isa == Isa::kAvx512) return v4;
#endif
  return isa == Isa::kBaseline;
}

Isa best_isa() {
  if (isa_supported(Isa::kAvx512)) return Isa::kAvx512;
  return isa_supported(Isa::kAvx2) ? Isa::kAvx2 : Isa::kBaseline;
}

LaneFn select_lane(Isa isa, const LaneForm& form) {
#if defined(ATTNLOOM_SIM_X86)
  if (isa == Isa::kAvx512) return avx512::select(form);
  if (isa == Isa::kAvx2) return avx2::select(form);
#endif
  (void)isa;
  return baseline::select(form);
}

const ProductOps& select_products(Isa isa) {
#if defined(ATTNLOOM_SIM_X86)
  if (isa == Isa::kAvx512) return avx512::product_ops();
  if (isa == Isa::kAvx2) return avx2::product_ops();
#endif
  (void)isa;
  return baseline::product_ops();
}

}  // namespace attnloom::sim
