// SPDX-License-Identifier: Apache-2.0
// The lane-wise operations and how the decoder asks for one: by operation, types and modifiers.
#pragma once

#include "sim/ins.h"

namespace attnloom::sim {

// Instruction sets that the lane operations are compiled for. All give the same bits.
enum class Isa : std::uint8_t { kBaseline, kAvx2, kAvx512 };

enum class LaneOp : std::uint8_t {
  kMov,
  kAdd,
  kSub,
  kMul,
  kMulHi,
  kMulWide,
  kMad,
  kMadHi,
  kMadWide,
  kFma,
  kDiv,
  kRem,
  kMin,
  kMax,
  kAbs,
  kNeg,
  kSad,
  kAnd,
  kOr,
  kXor,
  kNot,
  kCnot,
  kShl,
  kShr,
  kShfL,
  kShfR,
  kBfe,
  kBfi,
  kPrmt,
  kLop3,
  kPopc,
  kClz,
  kBrev,
  kBfind,
  kCopysign,
  kTestp,
  kRcp,
  kSqrt,
  kRsqrt,
  kEx2,
  kLg2,
  kSin,
  kCos,
  kTanh,
  kSelp,
  kSlct,
  kSetp,
  kConvert,
  kPack2,
  kUnpackLow,
  kUnpackHigh,
  kResize,
  kDp4a,
  kMma,
};

enum LaneFlag : std::uint16_t {
  kFlagFtz = 1,
  kFlagSaturate = 2,
  kFlagNan = 4,   // min.NaN, max.NaN
  kFlagWrap = 8,  // shf.wrap; otherwise shf.clamp
  kFlagRelu = 16,
  kFlagApprox = 32,   // of div, sqrt, tanh ...: any of .approx and .full
  kFlagNegateC = 64,  // setp: the combined predicate is "!%p"
  kFlagFinite = 128,  // cvt.satfinite
  kFlagShiftAmount = 256,
};
// Of Ins::flags, for accesses of local memory that only carry a call's parameters.
inline constexpr std::uint16_t kFlagNotCounted = 512;

struct LaneForm {
  LaneOp op = LaneOp::kMov;
  Type type = Type::kB32;
  Type source = Type::kB32;  // cvt, slct; kResize: only sizes and signs count
  Rounding rounding = Rounding::kNone;
  std::uint16_t flags = 0;
  std::uint8_t detail = 0;  // Compare, testp's property
};

// nullptr: there is no such operation. The caller copies type, source, rounding, flags and detail
// into the Ins.
LaneFn select_lane(Isa isa, const LaneForm& form);

// What wgmma does with whole matrices: codes of a 16- or 8-bit type as floats, and sum[rows][n] +=
// a[rows][k] b[k][n], where rows is a multiple of 4 and n of 8.
struct ProductOps {
  void (*widen)(Type type, const std::byte* from, float* to, int count);
  void (*multiply)(const float* a, const float* b, float* sum, int rows, int n, int k);
};
const ProductOps& select_products(Isa isa);

// The best set of this machine.
Isa best_isa();
bool isa_supported(Isa isa);

}  // namespace attnloom::sim
