// SPDX-License-Identifier: Apache-2.0
// wgmma as its four warps see it: what they issue, commit and wait for.
#include <algorithm>
#include <bit>
#include <string>

#include "sim/machine/async.h"
#include "sim/machine/exec.h"
#include "sim/machine/operand.h"
#include "sim/machine/state.h"

namespace attnloom::sim {
namespace {

constexpr std::uint8_t kAllFour = 15;
constexpr std::uint32_t kWarpRows = 16;

struct Issue {
  Cta& cta;
  Warp& warp;
  const Ins& ins;

  std::uint32_t sums() const { return static_cast<std::uint32_t>(ins.imm / 2); }
  const std::uint32_t* sum_rows() const { return ins.more; }
  const std::uint32_t* a_rows() const { return ins.more + 2 * sums(); }
  bool a_in_registers() const { return (ins.flags & kWgmmaRegisterA) != 0; }
  std::size_t behind_a() const { return 2 * sums() + (a_in_registers() ? 4 : 1); }
  std::uint64_t descriptor(std::size_t k) const { return operand64(warp, ins, k, 0); }
};

std::uint32_t* row(Warp& w, std::uint32_t offset) {
  return reinterpret_cast<std::uint32_t*>(w.registers + offset);
}

void report(const Issue& i, std::string_view kind, const char* what) {
  i.cta.launch.findings.add(kind, i.ins,
                            [&] { return std::string(what) + ", " + i.cta.describe(i.warp, -1); });
}

// Element (r, c) of the warp's 16 rows stands in register 4 * (c / 8) + 2 * (r / 8) + c % 2 of lane
// 4 * (r % 8) + c / 2 % 4.
template <class F>
void each_element(std::uint32_t n, F f) {
  for (std::uint32_t j = 0; j < n / 2; ++j) {
    for (std::uint32_t lane = 0; lane < kLanes; ++lane) {
      std::uint32_t r = lane / 4 + 8 * (j / 2 % 2), c = j / 4 * 8 + 2 * (lane % 4) + j % 2;
      f(j, lane, r, c);
    }
  }
}

// Moves the sums out of the registers, which hold NaN from here on.
void take_out(const Issue& i, Accumulator& sum) {
  float* value = sum.value.data() + std::size_t{i.warp.id % 4 * kWarpRows} * sum.n;
  each_element(sum.n, [&](std::uint32_t j, std::uint32_t lane, std::uint32_t r, std::uint32_t c) {
    std::uint32_t& x = row(i.warp, sum.rows[j])[lane];
    std::memcpy(&value[r * sum.n + c], &x, 4);
    x = ~0u;
  });
}

void put_back(Warp& warp, const Accumulator& sum) {
  const float* value = sum.value.data() + std::size_t{warp.id % 4 * kWarpRows} * sum.n;
  each_element(sum.n, [&](std::uint32_t j, std::uint32_t lane, std::uint32_t r, std::uint32_t c) {
    std::memcpy(&row(warp, sum.rows[j])[lane], &value[r * sum.n + c], 4);
  });
}

void mark(Warp& w, const std::uint32_t* rows, std::uint32_t count, std::uint8_t set,
          std::uint8_t clear) {
  for (std::uint32_t k = 0; k < count; ++k) {
    std::uint8_t& m = w.row_marks[rows[k] / kRowMarkBytes];
    m = static_cast<std::uint8_t>((m & ~clear) | set);
  }
}

std::uint8_t marks(const Warp& w, const std::uint32_t* rows, std::uint32_t count) {
  std::uint8_t all = 0;
  for (std::uint32_t k = 0; k < count; ++k) all |= w.row_marks[rows[k] / kRowMarkBytes];
  return all;
}

// The accumulator of an earlier product into the same registers that the warp has not waited for.
std::shared_ptr<Accumulator> find_chain(const Issue& i, Warpgroup& g, std::uint64_t before) {
  const Warpgroup::Member& m = g.member[i.warp.id % 4];
  for (std::uint64_t k = before; k > m.retired && k > g.first; --k) {
    const Product& p = g.product(k - 1);
    if (p.sum != nullptr && p.sum->n == static_cast<std::uint32_t>(i.ins.imm) &&
        std::equal(p.sum->rows, p.sum->rows + i.sums(), i.sum_rows())) {
      return p.sum;
    }
  }
  return nullptr;
}

void check_registers(const Issue& i, bool is_chained) {
  if (!i.cta.checks) return;
  std::uint8_t sums = marks(i.warp, i.sum_rows(), i.sums());
  std::uint8_t a = i.a_in_registers() ? marks(i.warp, i.a_rows(), 4) : 0;
  bool sums_taken = !is_chained && (sums & (kRowAccumulates | kRowMultiplies)) != 0;
  if (sums_taken || (a & kRowAccumulates) != 0) {
    report(i, kind::kInFlightRegister,
           "wgmma uses registers of another wgmma that was not waited for");
  }
  if (((is_chained ? 0 : sums) & kRowTouched) != 0 || (a & kRowTouched) != 0)
    report(i, kind::kWgmmaFence, "no wgmma.fence since its registers were written");
}

Product& begin_product(const Issue& i, Warpgroup& g, std::uint64_t k) {
  Product p;
  p.ins = &i.ins;
  p.a = i.a_in_registers() ? 0 : i.descriptor(2 * i.sums());
  p.b = i.descriptor(i.behind_a());
  p.adds = (*row(i.warp, i.ins.more[i.behind_a() + 1]) & 1) != 0;
  p.clock = i.cta.async->tick(i.cta.async->product_agent(i.warp.id / 4));
  if (i.a_in_registers()) p.registers_a.resize(std::size_t{4} * 4 * kLanes);
  p.sum = find_chain(i, g, k);
  if (p.sum == nullptr) {
    p.sum = std::make_shared<Accumulator>();
    p.sum->rows = i.sum_rows();
    p.sum->n = static_cast<std::uint32_t>(i.ins.imm);
    p.sum->value.resize(std::size_t{4} * kWarpRows * p.sum->n);
  }
  g.products.push_back(std::move(p));
  return g.products.back();
}

void check_descriptors(const Issue& i, const Product& p) {
  if (((p.a | p.b) >> 49 & 7) != 0)
    report(i, kind::kWgmma, "a descriptor with a base offset, which is not simulated");
}

void check_same(const Issue& i, const Product& p) {
  bool same = p.ins == &i.ins && p.b == i.descriptor(i.behind_a()) &&
              (i.a_in_registers() || p.a == i.descriptor(2 * i.sums()));
  if (!same) report(i, kind::kWgmma, "the warps of a warpgroup issue different products");
}

void read_operands(const Issue& i, const Product& p) {
  if (!i.cta.checks) return;
  SharedAccess access = i.cta.shared_access(i.warp, i.ins);
  SharedShadow::AsyncAgent by{i.cta.async->product_agent(i.warp.id / 4), p.clock};
  const std::uint32_t* proxied = i.warp.clock.proxied.own();
  MatrixOperand b = operand_b(i.ins, p.b);
  check_operand(access, b, 0, b.rows, by, proxied);
  if (i.a_in_registers()) return;
  check_operand(access, operand_a(i.ins, p.a), i.warp.id % 4 * kWarpRows, kWarpRows, by, proxied);
}

void finish_products(Cta& cta, Warpgroup& g, std::uint64_t end) {
  for (std::uint64_t k = g.first; k < end; ++k) {
    Product& p = g.product(k);
    if (p.is_done) continue;
    multiply_product(cta, p);
    p.is_done = true;
  }
}

// The warp has waited for the products before `end`.
void retire(Cta& cta, Warp& warp, Warpgroup& g, std::uint64_t end) {
  std::uint32_t me = warp.id % 4;
  Warpgroup::Member& m = g.member[me];
  for (std::uint64_t k = m.retired; k < end; ++k) {
    Product& p = g.product(k);
    const Issue i{cta, warp, *p.ins};
    p.retired |= static_cast<std::uint8_t>(1u << me);
    if (i.a_in_registers()) mark(warp, i.a_rows(), 4, 0, kRowMultiplies);
    bool goes_on = false;
    for (std::uint64_t later = k + 1; later < m.issued; ++later)
      goes_on = goes_on || g.product(later).sum == p.sum;
    if (!goes_on) {
      put_back(warp, *p.sum);
      mark(warp, p.sum->rows, p.sum->n / 2, 0, kRowAccumulates | kRowTouched);
    }
    if (cta.checks) learn(warp, cta.async->product_agent(warp.id / 4), p.clock);
  }
  m.retired = end;
  // Registers of A that a later product reads as well.
  for (std::uint64_t k = end; k < m.issued; ++k) {
    const Issue i{cta, warp, *g.product(k).ins};
    if (i.a_in_registers()) mark(warp, i.a_rows(), 4, kRowMultiplies, 0);
  }
  while (!g.products.empty() && g.products.front().retired == kAllFour) {
    g.products.pop_front();
    ++g.first;
  }
}

}  // namespace

Turn wait_mma_async(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  const Issue i{cta, warp, ins};
  cta.launch.counters.mma += static_cast<std::uint64_t>(ins.imm) / 8;
  if (mask != ~0u) report(i, kind::kInactiveLanes, "wgmma without all lanes of the warp");
  if (cta.warps.size() % 4 != 0)
    report(i, kind::kWgmma, "wgmma in a CTA that is no multiple of 128 threads");
  Warpgroup& g = cta.async->group[warp.id / 4];
  std::uint32_t me = warp.id % 4;
  Warpgroup::Member& m = g.member[me];
  std::uint64_t k = m.issued++;
  bool is_first = k == g.first + g.products.size();
  Product& p = is_first ? begin_product(i, g, k) : g.product(k);
  if (is_first) {
    check_descriptors(i, p);
  } else {
    check_same(i, p);
  }
  bool is_chained = false;
  for (std::uint64_t earlier = std::max(m.retired, g.first); earlier < k; ++earlier)
    is_chained = is_chained || g.product(earlier).sum == p.sum;
  check_registers(i, is_chained);
  if (!is_chained) take_out(i, *p.sum);
  mark(warp, i.sum_rows(), i.sums(), kRowAccumulates, 0);
  if (i.a_in_registers()) {
    for (std::size_t r = 0; r < 4; ++r)
      std::memcpy(&p.registers_a[(me * 4 + r) * kLanes], row(warp, i.a_rows()[r]), 4 * kLanes);
    mark(warp, i.a_rows(), 4, kRowMultiplies, 0);
  }
  read_operands(i, p);
  p.issued |= static_cast<std::uint8_t>(1u << me);
  ++cta.events;
  return Turn::kGoOn;
}

void exec_wgmma_fence(Cta& cta, Warp& warp, const Ins&, std::uint32_t) {
  std::size_t count = (cta.kernel.register_bytes + 63) / 64 * 64 / kRowMarkBytes;
  for (std::size_t k = 0; k < count; ++k)
    warp.row_marks[k] &= static_cast<std::uint8_t>(~kRowTouched);
}

void exec_wgmma_commit(Cta& cta, Warp& warp, const Ins&, std::uint32_t) {
  Warpgroup::Member& m = cta.async->group[warp.id / 4].member[warp.id % 4];
  m.groups.push_back(m.issued);
}

Turn wait_wgmma(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t) {
  Warpgroup& g = cta.async->group[warp.id / 4];
  Warpgroup::Member& m = g.member[warp.id % 4];
  auto left = static_cast<std::size_t>(ins.imm);
  if (m.groups.size() <= left) return Turn::kGoOn;
  std::uint64_t end = m.groups[m.groups.size() - 1 - left];
  if (end <= m.retired) return Turn::kGoOn;
  for (std::uint64_t k = m.retired; k < end; ++k) {
    if (g.product(k).issued != kAllFour) return Turn::kAgain;
  }
  finish_products(cta, g, end);
  retire(cta, warp, g, end);
  return Turn::kGoOn;
}

}  // namespace attnloom::sim
