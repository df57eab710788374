// SPDX-License-Identifier: Apache-2.0
// The operations that are more than lane-wise, as the decoder refers to them. Operand orders are
// given as outputs | inputs of Ins::more.
#pragma once

#include "sim/ins.h"

namespace attnloom::sim {

// Memory order and scope of an access, in Ins::detail.
enum class Order : std::uint8_t { kWeak, kRelaxed, kAcquire, kRelease, kAcqRel };
enum class Scope : std::uint8_t { kCta, kGpu };
inline std::uint8_t pack_order(Order order, Scope scope) {
  return static_cast<std::uint8_t>(static_cast<int>(order) | static_cast<int>(scope) << 4);
}
inline Order order_of(const Ins& ins) {
  return static_cast<Order>(ins.detail & 15);
}
inline Scope scope_of(const Ins& ins) {
  return static_cast<Scope>(ins.detail >> 4);
}

enum class AtomicOp : std::uint8_t { kAdd, kExch, kCas, kMin, kMax, kInc, kDec, kAnd, kOr, kXor };

// ld: values | address. st: | address, values. space, count, element_bytes, register_bytes, type,
// detail = order.
void exec_load(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
void exec_store(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
// old (kNone for red) | address, b, c (kNone but for cas). type, detail = order, flags = AtomicOp.
void exec_atomic(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
// detail = order; only acquire-release is asked for.
void exec_fence(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);

// | shared address, global address, source bytes (kNone: all). imm, target = the displacements;
// count = bytes.
void exec_copy(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
void exec_copy_commit(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
void exec_copy_wait(Cta& cta, Warp& warp, const Ins& ins,
                    std::uint32_t mask);  // imm groups may stay; -1: none at all

// An arrival on a mbarrier when the lane's earlier copies have landed. | address. detail: 1 noinc.
void exec_copy_arrive(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);

// 1, 2 or 4 registers | address. count, flags & 1 = transposed.
void exec_load_matrix(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
// | address, registers.
void exec_store_matrix(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
// result | a. The transposed 8x8 matrix.
void exec_move_matrix(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
// Goes before an mma, which is a lane function: counts it and reports when lanes are missing.
void exec_before_mma(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);

// value, predicate (kNone) | a, b, c, members. detail: 0 up, 1 down, 2 bfly, 3 idx.
void exec_shuffle(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
// result | predicate, members. detail: 0 all, 1 any, 2 uni (to predicates), 3 ballot.
void exec_vote(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
// result, predicate (kNone) | a, members. detail: 0 any, 1 all. type.
void exec_match(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
// result | a, members. flags = AtomicOp, type.
void exec_reduce(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
void exec_active_mask(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);   // result |
void exec_warp_barrier(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);  // | members
void exec_elect(Cta& cta, Warp& warp, const Ins& ins,
                std::uint32_t mask);  // leader, predicate | members
// result | . element_bytes 4 or 8. A deterministic count, not time.
void exec_clock(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
void exec_trap(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
// predicate | address. space.
void exec_is_space(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);

// InsKind::kWait, InsKind::kExec on mbarriers; addresses have 64 bits. | address, count.
void exec_mbarrier_init(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
void exec_mbarrier_inval(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);  // | address
// state (kNone) | address, count (kNone: 1), bytes (kNone). detail: 1 arrives, 0 only expects.
void exec_mbarrier_arrive(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
// predicate | address, parity or state. detail: 0 parity, 1 state.
Turn wait_mbarrier(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
void exec_fence_mbarrier_init(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
void exec_fence_proxy(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
// setmaxnreg to imm registers; detail: 1 inc, 0 dec.
Turn wait_registers(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);

// | shared address, global address, bytes, mbarrier.
void exec_bulk_load(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
// | shared address, tensor map, mbarrier, coordinates. count = coordinates.
void exec_tensor_load(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
// | global address, shared address, bytes.
void exec_bulk_store(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
// | tensor map, shared address, coordinates. count = coordinates.
void exec_tensor_store(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
void exec_bulk_commit(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
// imm groups may stay; detail: 1 only the source must be read.
void exec_bulk_wait(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);

// D | D, A (4 registers or a descriptor), B's descriptor, scale-d. WgmmaFlag, imm = N,
// type and source = A's and B's.
enum WgmmaFlag : std::uint16_t {
  kWgmmaRegisterA = 1,
  kWgmmaTransposeA = 2,
  kWgmmaTransposeB = 4,
  kWgmmaNegateA = 8,
  kWgmmaNegateB = 16,
};
Turn wait_mma_async(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
void exec_wgmma_fence(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
void exec_wgmma_commit(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);
Turn wait_wgmma(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask);  // imm groups may stay

// InsKind::kBarrier: result (kNone) | id, threads (kNone: all), predicate (kNone). detail:
enum class BarrierOp : std::uint8_t { kSync, kArrive, kRedPopc, kRedAnd, kRedOr };

}  // namespace attnloom::sim
