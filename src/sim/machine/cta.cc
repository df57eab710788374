// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <string>

#include "sim/machine/async.h"
#include "sim/machine/state.h"

namespace attnloom::sim {
namespace {

// A CTA that is not done after so many warp instructions polls for something that nobody will do.
constexpr std::uint64_t kMostInstructions = std::uint64_t{1} << 28;
// The shadow of shared memory keeps 24 bits of a clock.
constexpr std::uint32_t kRestartClock = 1u << 23;

std::uint32_t round_up(std::uint32_t value, std::uint32_t to) {
  return (value + to - 1) / to * to;
}

std::byte* aligned(std::vector<std::byte>& storage, std::size_t bytes) {
  storage.resize(bytes + 64);
  auto address = reinterpret_cast<std::uintptr_t>(storage.data());
  return storage.data() + (64 - address % 64) % 64;
}

std::uint32_t special_value(const Cta& cta, const Warp& w, Special special, std::uint32_t lane) {
  const LaunchConfig& c = cta.launch.config;
  std::uint32_t thread = w.id * kLanes + lane;
  switch (special) {
    case Special::kTidX:
      return thread % c.block[0];
    case Special::kTidY:
      return thread / c.block[0] % c.block[1];
    case Special::kTidZ:
      return thread / c.block[0] / c.block[1];
    case Special::kNtidX:
      return c.block[0];
    case Special::kNtidY:
      return c.block[1];
    case Special::kNtidZ:
      return c.block[2];
    case Special::kCtaidX:
      return cta.index[0];
    case Special::kCtaidY:
      return cta.index[1];
    case Special::kCtaidZ:
      return cta.index[2];
    case Special::kNctaidX:
      return c.grid[0];
    case Special::kNctaidY:
      return c.grid[1];
    case Special::kNctaidZ:
      return c.grid[2];
    case Special::kLaneid:
      return lane;
    case Special::kWarpid:
      return w.id;
    case Special::kNwarpid:
      return static_cast<std::uint32_t>(cta.warps.size());
    case Special::kSmid:
      return cta.linear % static_cast<std::uint32_t>(cta.launch.profile.sm_count);
    case Special::kNsmid:
      return static_cast<std::uint32_t>(cta.launch.profile.sm_count);
    case Special::kLanemaskEq:
      return 1u << lane;
    case Special::kLanemaskLt:
      return (1u << lane) - 1;
    case Special::kLanemaskLe:
      return (2u << lane) - 1;
    case Special::kLanemaskGt:
      return ~((2u << lane) - 1);
    case Special::kLanemaskGe:
      return ~((1u << lane) - 1);
    case Special::kDynamicSharedBytes:
      return c.dynamic_shared_bytes;
    case Special::kTotalSharedBytes:
      return cta.shared_bytes;
    case Special::kOne:
      return 1;
    case Special::kGridid:
    case Special::kZero:
      return 0;
  }
  return 0;
}

}  // namespace

Cta::Cta(Launch& l) : launch(l), kernel(l.kernel), checks(l.checks) {
  const LaunchConfig& c = l.config;
  thread_count = c.block[0] * c.block[1] * c.block[2];
  warps.resize((thread_count + kLanes - 1) / kLanes);
  shared_bytes = kernel.static_shared_bytes + c.dynamic_shared_bytes;
  auto count = static_cast<std::uint32_t>(warps.size());
  if (kernel.uses_async) async = std::make_unique<Async>(count);
  if (checks) shadow.configure(shared_bytes, count, async != nullptr ? async->readers() : 0);
  frame.warps = count;
  frame.agents = async != nullptr ? async->agents() : 2 * count;
  std::size_t file = round_up(kernel.register_bytes, 64),
              local = std::size_t{kernel.local_bytes} * kLanes;
  std::byte* registers = aligned(register_storage_, file * count);
  std::byte* local_memory = aligned(local_storage_, local * count);
  for (std::uint32_t k = 0; k < count; ++k) {
    warps[k].id = k;
    warps[k].registers = registers + k * file;
    warps[k].local = local_memory + k * local;
    std::uint32_t threads = std::min<std::uint32_t>(thread_count - k * kLanes, kLanes);
    warps[k].all_lanes = threads == kLanes ? ~0u : (1u << threads) - 1;
  }
  if (kernel.uses_wgmma) {
    row_marks_.resize(file / kRowMarkBytes * count);
    for (Warp& w : warps) w.row_marks = row_marks_.data() + w.id * (file / kRowMarkBytes);
  }
  fill_constants();
}

Cta::~Cta() = default;

void Cta::fill_constants() {
  constants.assign(kernel.constant_bytes, std::byte{0});
  auto fill = [&](std::uint32_t offset, std::uint8_t bytes, std::uint64_t value) {
    if (bytes == 1) {
      auto mask = static_cast<std::uint32_t>(value != 0 ? ~0u : 0u);
      std::memcpy(constants.data() + offset, &mask, 4);
      return;
    }
    for (std::size_t l = 0; l < kLanes; ++l)
      std::memcpy(constants.data() + offset + l * bytes, &value, bytes);
  };
  for (const ConstantRow& r : kernel.constants) fill(r.offset, r.bytes, r.value);
  for (const SymbolRow& r : kernel.symbols)
    fill(r.offset, r.bytes, (*launch.variables)[r.variable]);
}

void Cta::fill_specials(Warp& w) {
  for (const SpecialRow& r : kernel.specials) {
    for (std::uint32_t l = 0; l < kLanes; ++l) {
      std::uint64_t value = special_value(*this, w, r.special, l);
      std::memcpy(w.registers + r.offset + l * r.bytes, &value, r.bytes);
    }
  }
}

void Cta::begin(std::uint32_t linear_index) {
  const unsigned* grid = launch.config.grid;
  linear = linear_index;
  index[0] = linear % grid[0];
  index[1] = linear / grid[0] % grid[1];
  index[2] = linear / grid[0] / grid[1];
  std::uint32_t last = frame.base;
  for (Warp& w : warps) {
    if (!w.clock.known.is_bottom()) last = std::max(last, w.clock.known.own(w.id));
  }
  if (async != nullptr) {
    for (std::uint32_t c : async->clock) last = std::max(last, c);
  }
  frame.cta = linear;
  frame.base = last + 1;
  if (checks) shadow.begin_cta();
  if (frame.base > kRestartClock) {
    shadow.forget_clocks();
    frame.base = 1;
  }
  shared.assign(shared_bytes, std::byte{0xff});
  shared_sync.clear();
  sectors.clear();
  barriers.fill(Barrier{});
  std::fill(row_marks_.begin(), row_marks_.end(), kRowTouched);
  for (Warp& w : warps) {
    std::memcpy(w.registers, constants.data(), constants.size());
    std::memset(w.registers + constants.size(), 0xff, kernel.register_bytes - constants.size());
    if (kernel.local_bytes != 0)
      std::memset(w.local, 0xff, std::size_t{kernel.local_bytes} * kLanes);
    fill_specials(w);
    w.state = Warp::State::kReady;
    w.last_group_first = false;
    w.poll_pc = kNone;
    w.groups.assign(1, Group{0, w.all_lanes});
    w.executed = 0;
    w.copy_group.fill(0);
    w.copies.clear();
    w.waits_at = nullptr;
    w.clock.reset(frame);
    w.clock.known.own(w.id) = w.clock.known.own(strong_agent(w)) = frame.base;
  }
  if (async != nullptr) {
    async->begin(frame);
    begin_registers(*this);
  }
}

void Cta::run() {
  for (;;) {
    std::uint32_t ready = 0;
    std::uint64_t executed = 0;
    for (Warp& w : warps) {
      if (w.state == Warp::State::kPolling && w.polled_at != events) w.state = Warp::State::kReady;
      if (w.state == Warp::State::kReady) ready |= 1u << w.id;
      executed += w.executed;
    }
    if (ready == 0) {
      if (!wake_pollers()) break;
      continue;
    }
    if (executed > kMostInstructions) return report_deadlock("no end in sight: ");
    std::uint32_t skip = launch.random_below(static_cast<std::uint32_t>(std::popcount(ready)));
    for (; skip > 0; --skip) ready &= ready - 1;
    Warp& w = warps[static_cast<std::size_t>(std::countr_zero(ready))];
    w.waits_at = nullptr;
    run_warp(*this, w);
    if (w.state != Warp::State::kDone) continue;
    ++events;
    barriers_after_exit(*this);
  }
  bool stuck = std::any_of(warps.begin(), warps.end(),
                           [](const Warp& w) { return w.state != Warp::State::kDone; });
  if (stuck) return report_deadlock("");
  if (async != nullptr) finish_copies(*this);
}

void Cta::report_deadlock(std::string_view why) {
  auto first = std::find_if(warps.begin(), warps.end(),
                            [](const Warp& w) { return w.state != Warp::State::kDone; });
  const Ins* at = first->waits_at != nullptr ? first->waits_at : &kernel.ins[first->groups[0].pc];
  launch.findings.add(kind::kDeadlock, *at, [&] {
    std::string text(why);
    text += describe(*first, -1) + " and others:";
    for (const Warp& w : warps) {
      text += " warp " + std::to_string(w.id);
      if (w.state == Warp::State::kDone) {
        text += " done;";
      } else if (w.waits_at == nullptr) {
        text += " runs at " + launch.findings.place(kernel.ins[w.groups[0].pc]) + ";";
      } else if (w.waits_at->kind == InsKind::kWait) {
        text += " (" + launch.findings.place(*w.waits_at) + ") " + describe_wait(*this, w) + ";";
      } else {
        const Barrier& b = barriers[w.waits_for];
        text += " at barrier " + std::to_string(w.waits_for) + " (" +
                launch.findings.place(*w.waits_at) + "), " + std::to_string(b.arrived) + " of " +
                (b.expected != 0 ? std::to_string(b.expected) : "all") + " warps there;";
      }
    }
    return text;
  });
}

}  // namespace attnloom::sim
