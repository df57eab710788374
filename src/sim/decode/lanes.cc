// SPDX-License-Identifier: Apache-2.0
// Opcodes whose work is lane-wise: one table of bases and operand patterns, and the few that need
// more.
#include <array>
#include <string>

#include "sim/decode/builder.h"

namespace attnloom::sim {
namespace {

using Kind = PtxOperand::Kind;

// Operands, output first: 't' the instruction's type, '4' 32 bits, '2' twice the type's width, 'p'
// a predicate, 's' the second type.
struct LaneRow {
  std::string_view base;
  LaneOp op;
  std::string_view pattern;
};

constexpr std::array<LaneRow, 36> kRows = {{
    {"add", LaneOp::kAdd, "ttt"},
    {"sub", LaneOp::kSub, "ttt"},
    {"div", LaneOp::kDiv, "ttt"},
    {"rem", LaneOp::kRem, "ttt"},
    {"fma", LaneOp::kFma, "tttt"},
    {"min", LaneOp::kMin, "ttt"},
    {"max", LaneOp::kMax, "ttt"},
    {"abs", LaneOp::kAbs, "tt"},
    {"neg", LaneOp::kNeg, "tt"},
    {"sad", LaneOp::kSad, "tttt"},
    {"and", LaneOp::kAnd, "ttt"},
    {"or", LaneOp::kOr, "ttt"},
    {"xor", LaneOp::kXor, "ttt"},
    {"not", LaneOp::kNot, "tt"},
    {"cnot", LaneOp::kCnot, "tt"},
    {"shl", LaneOp::kShl, "tt4"},
    {"shr", LaneOp::kShr, "tt4"},
    {"bfe", LaneOp::kBfe, "tt44"},
    {"bfi", LaneOp::kBfi, "ttt44"},
    {"prmt", LaneOp::kPrmt, "4444"},
    {"popc", LaneOp::kPopc, "4t"},
    {"clz", LaneOp::kClz, "4t"},
    {"brev", LaneOp::kBrev, "tt"},
    {"bfind", LaneOp::kBfind, "4t"},
    {"copysign", LaneOp::kCopysign, "ttt"},
    {"rcp", LaneOp::kRcp, "tt"},
    {"sqrt", LaneOp::kSqrt, "tt"},
    {"rsqrt", LaneOp::kRsqrt, "tt"},
    {"ex2", LaneOp::kEx2, "tt"},
    {"lg2", LaneOp::kLg2, "tt"},
    {"sin", LaneOp::kSin, "tt"},
    {"cos", LaneOp::kCos, "tt"},
    {"tanh", LaneOp::kTanh, "tt"},
    {"selp", LaneOp::kSelp, "tttp"},
    {"slct", LaneOp::kSlct, "ttts"},
    {"dp4a", LaneOp::kDp4a, "4444"},
}};

std::uint16_t take_flags(Opcode& op) {
  std::uint16_t flags = 0;
  if (op.take("ftz")) flags |= kFlagFtz;
  if (op.take("sat")) flags |= kFlagSaturate;
  if (op.take("NaN")) flags |= kFlagNan;
  if (op.take("relu")) flags |= kFlagRelu;
  if (op.take("approx") || op.take("full")) flags |= kFlagApprox;
  if (op.take("satfinite")) flags |= kFlagFinite;
  if (op.take("shiftamt")) flags |= kFlagShiftAmount;
  return flags;
}

Type wide_of(Type type) {
  switch (type) {
    case Type::kS16:
      return Type::kS32;
    case Type::kU16:
      return Type::kU32;
    case Type::kS32:
      return Type::kS64;
    default:
      return Type::kU64;
  }
}

// Emits by a pattern; unused places up to four operands are kNone, because the lane functions look
// at them.
bool emit_pattern(Builder& b, const LaneForm& form, std::string_view pattern) {
  std::array<std::uint32_t, 5> slots = {kNone, kNone, kNone, kNone, kNone};
  for (std::size_t k = 0; k < pattern.size(); ++k) {
    Type type = pattern[k] == 't'   ? form.type
                : pattern[k] == '4' ? Type::kB32
                : pattern[k] == '2' ? wide_of(form.type)
                : pattern[k] == 's' ? form.source
                                    : Type::kPred;
    slots[k] = k == 0 ? b.output(b.operand(k), type) : b.input(b.operand(k), type);
  }
  if (b.operand_count() > pattern.size()) b.fail("too many operands");
  if (!b.ok()) return true;
  b.emit_lane(form, {slots[0]}, {slots[1], slots[2], slots[3], slots[4]});
  return true;
}

bool decode_table_row(Opcode& op, Builder& b) {
  for (const LaneRow& row : kRows) {
    if (row.base != op.base()) continue;
    LaneForm form;
    form.op = row.op;
    form.rounding = op.take_rounding();
    form.flags = take_flags(op);
    std::optional<Type> type = op.take_type();
    if (!type) return false;
    form.type = *type;
    if (std::optional<Type> second = op.take_type()) form.source = *second;
    return emit_pattern(b, form, row.pattern);
  }
  return false;
}

// mul and mad choose by .lo, .hi or .wide; on floats they are plain and fma.
bool decode_multiply(Opcode& op, Builder& b) {
  bool is_mad = op.base() == "mad";
  bool hi = op.take("hi"), wide = op.take("wide");
  op.take("lo");
  LaneForm form;
  form.rounding = op.take_rounding();
  form.flags = take_flags(op);
  std::optional<Type> type = op.take_type();
  if (!type) return false;
  form.type = *type;
  if (is_float(*type)) {
    form.op = is_mad ? LaneOp::kFma : LaneOp::kMul;
    return emit_pattern(b, form, is_mad ? "tttt" : "ttt");
  }
  if (wide) {
    form.op = is_mad ? LaneOp::kMadWide : LaneOp::kMulWide;
    return emit_pattern(b, form, is_mad ? "2tt2" : "2tt");
  }
  form.op =
      hi ? (is_mad ? LaneOp::kMadHi : LaneOp::kMulHi) : (is_mad ? LaneOp::kMad : LaneOp::kMul);
  return emit_pattern(b, form, is_mad ? "tttt" : "ttt");
}

bool decode_shf(Opcode& op, Builder& b) {
  LaneForm form;
  form.op = op.take("l") ? LaneOp::kShfL : LaneOp::kShfR;
  if (form.op == LaneOp::kShfR && !op.take("r")) return false;
  if (op.take("wrap")) form.flags |= kFlagWrap;
  op.take("clamp");
  op.take("b32");
  return emit_pattern(b, form, "4444");
}

bool decode_lop3(Opcode& op, Builder& b) {
  op.take("b32");
  LaneForm form{LaneOp::kLop3};
  std::optional<std::int64_t> table = b.immediate(b.operand(4));
  if (!table) return false;
  std::uint32_t d = b.output(b.operand(0), Type::kB32), x = b.input(b.operand(1), Type::kB32),
                y = b.input(b.operand(2), Type::kB32), z = b.input(b.operand(3), Type::kB32);
  if (Draft* draft = b.ok() ? b.emit_lane(form, {d}, {x, y, z}) : nullptr) draft->ins.imm = *table;
  return true;
}

// mov also packs and unpacks: "mov.b64 {%r1, %r2}, %rd1".
bool decode_mov(Opcode& op, Builder& b) {
  std::optional<Type> type = op.take_type();
  if (!type) return false;
  const PtxOperand &to = b.operand(0), &from = b.operand(1);
  Type half = type_bytes(*type) == 8 ? Type::kB32 : Type::kB16;
  bool two = to.items.size() == 2 || from.items.size() == 2;
  if (to.kind == Kind::kVector || from.kind == Kind::kVector) {
    if (!two || type_bytes(*type) < 4) return false;
    if (from.kind == Kind::kVector) {
      std::uint32_t lo = b.input(from.items[0], half), hi = b.input(from.items[1], half);
      std::uint32_t d = b.output(to, *type);
      if (b.ok()) b.emit_lane({LaneOp::kPack2, *type}, {d}, {lo, hi});
      return true;
    }
    std::uint32_t whole = b.input(from, *type);
    std::uint32_t lo = b.output(to.items[0], half), hi = b.output(to.items[1], half);
    if (!b.ok()) return true;
    b.emit_lane({LaneOp::kUnpackLow, *type}, {lo}, {whole});
    if (Draft* second = b.emit_lane({LaneOp::kUnpackHigh, *type}, {hi}, {whole}))
      second->ins.weight = 0;
    return true;
  }
  std::uint32_t source = b.input(from, *type), d = b.output(to, *type);
  if (b.ok()) b.emit_lane({LaneOp::kMov, *type}, {d}, {source, kNone});
  return true;
}

std::optional<Compare> take_compare(Opcode& op) {
  constexpr std::array<std::pair<std::string_view, Compare>, 18> kNames = {{
      {"eq", Compare::kEq},
      {"ne", Compare::kNe},
      {"lt", Compare::kLt},
      {"le", Compare::kLe},
      {"gt", Compare::kGt},
      {"ge", Compare::kGe},
      {"equ", Compare::kEqu},
      {"neu", Compare::kNeu},
      {"ltu", Compare::kLtu},
      {"leu", Compare::kLeu},
      {"gtu", Compare::kGtu},
      {"geu", Compare::kGeu},
      {"num", Compare::kNum},
      {"nan", Compare::kNan},
      {"lo", Compare::kLt},
      {"ls", Compare::kLe},
      {"hi", Compare::kGt},
      {"hs", Compare::kGe},
  }};
  for (const auto& [name, compare] : kNames) {
    if (op.take(name)) return compare;
  }
  return std::nullopt;
}

bool decode_setp(Opcode& op, Builder& b) {
  LaneForm form{LaneOp::kSetp};
  std::optional<Compare> compare = take_compare(op);
  if (!compare) return false;
  form.detail = static_cast<std::uint8_t>(*compare);
  Combine combine = op.take("and")   ? Combine::kAnd
                    : op.take("or")  ? Combine::kOr
                    : op.take("xor") ? Combine::kXor
                                     : Combine::kNone;
  if (op.take("ftz")) form.flags |= kFlagFtz;
  std::optional<Type> type = op.take_type();
  if (!type) return false;
  form.type = *type;
  const PtxOperand& to = b.operand(0);
  std::uint32_t p = b.output(to, Type::kPred), q = b.predicate_output(to.second);
  std::uint32_t x = b.input(b.operand(1), *type), y = b.input(b.operand(2), *type), c = kNone;
  if (combine != Combine::kNone) c = b.input(b.operand(3), Type::kPred);
  if (!b.ok()) return true;
  if (Draft* draft = b.emit_lane(form, {p, q}, {x, y, c}))
    draft->ins.detail = static_cast<std::uint8_t>(combine);
  return true;
}

// set.cmp.dtype.stype: setp and a selection.
bool decode_set(Opcode& op, Builder& b) {
  LaneForm form{LaneOp::kSetp};
  std::optional<Compare> compare = take_compare(op);
  if (op.take("ftz")) form.flags |= kFlagFtz;
  std::optional<Type> to = op.take_type(), from = op.take_type();
  if (!compare || !to || !from || type_bytes(*to) != 4) return false;
  form.detail = static_cast<std::uint8_t>(*compare);
  form.type = *from;
  std::uint32_t x = b.input(b.operand(1), *from), y = b.input(b.operand(2), *from),
                p = b.temporary(1);
  std::uint32_t d = b.output(b.operand(0), *to);
  if (!b.ok()) return true;
  if (Draft* draft = b.emit_lane(form, {p, kNone}, {x, y, kNone})) draft->ins.detail = 0;
  std::uint32_t one = b.constant(4, *to == Type::kF32 ? 0x3f800000u : 0xffffffffu);
  if (Draft* second = b.emit_lane({LaneOp::kSelp, Type::kB32}, {d}, {one, b.constant(4, 0), p}))
    second->ins.weight = 0;
  return true;
}

bool decode_testp(Opcode& op, Builder& b) {
  constexpr std::array<std::string_view, 6> kProperties = {"finite",     "infinite", "number",
                                                           "notanumber", "normal",   "subnormal"};
  LaneForm form{LaneOp::kTestp};
  std::uint8_t property = 0;
  while (property < kProperties.size() && !op.take(kProperties[property])) ++property;
  std::optional<Type> type = op.take_type();
  if (property == kProperties.size() || !type) return false;
  form.type = *type;
  form.detail = property;
  std::uint32_t p = b.output(b.operand(0), Type::kPred), a = b.input(b.operand(1), *type);
  if (b.ok()) b.emit_lane(form, {p}, {a});
  return true;
}

bool decode_cvt(Opcode& op, Builder& b) {
  LaneForm form{LaneOp::kConvert};
  form.rounding = op.take_rounding();
  form.flags = take_flags(op);
  std::optional<Type> to = op.take_type(), from = op.take_type();
  if (!to || !from) return false;
  form.type = *to;
  form.source = *from;
  bool packed =
      *to == Type::kF16x2 || *to == Type::kBf16x2 || *to == Type::kE4m3x2 || *to == Type::kE5m2x2;
  bool two_inputs = packed && *from == Type::kF32;
  bool is_fp8 = *to == Type::kE4m3x2 || *to == Type::kE5m2x2;
  if (is_fp8 && (form.flags & kFlagFinite) == 0) return false;  // there is no other form
  std::uint32_t x = b.input(b.operand(1), *from),
                y = two_inputs ? b.input(b.operand(2), *from) : kNone;
  std::uint32_t d = b.output(b.operand(0), *to);
  if (b.operand_count() != (two_inputs ? 3u : 2u)) return false;
  if (b.ok()) b.emit_lane(form, {d}, {x, y});
  return true;
}

}  // namespace

DecodeFn find_lane_decoder(std::string_view base) {
  if (base == "mul" || base == "mad") return &decode_multiply;
  if (base == "shf") return &decode_shf;
  if (base == "lop3") return &decode_lop3;
  if (base == "mov") return &decode_mov;
  if (base == "setp") return &decode_setp;
  if (base == "set") return &decode_set;
  if (base == "testp") return &decode_testp;
  if (base == "cvt") return &decode_cvt;
  for (const LaneRow& row : kRows) {
    if (row.base == base) return &decode_table_row;
  }
  return nullptr;
}

}  // namespace attnloom::sim
