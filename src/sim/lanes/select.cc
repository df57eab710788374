// SPDX-License-Identifier: Apache-2.0
#include "sim/lanes/loops.h"

namespace attnloom::sim::ATTNLOOM_SIM_ISA {

LaneFn select(const LaneForm& form);

LaneFn select(const LaneForm& form) {
  switch (form.op) {
    case LaneOp::kSetp:
    case LaneOp::kTestp:
      return select_compare(form);
    case LaneOp::kConvert:
      return select_convert(form);
    case LaneOp::kMma:
      return select_matrix(form);
    case LaneOp::kEx2:
    case LaneOp::kLg2:
    case LaneOp::kSin:
    case LaneOp::kCos:
    case LaneOp::kTanh:
    case LaneOp::kRsqrt:
      return select_approx(form);
    default:
      break;
  }
  if (LaneFn f = select_integer(form)) return f;
  if (LaneFn f = select_float(form)) return f;
  if (LaneFn f = select_half(form)) return f;
  return select_bits(form);
}

}  // namespace attnloom::sim::ATTNLOOM_SIM_ISA
