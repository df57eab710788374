// SPDX-License-Identifier: Apache-2.0
// ld and st of every space. An address is resolved lane by lane; what cannot be accessed loads as
// all ones (NaN) and is not stored.
#include <bit>

#include "sim/machine/counting.h"
#include "sim/machine/exec.h"
#include "sim/machine/state.h"

namespace attnloom::sim {
namespace {

struct Lanes {
  std::uint64_t address[kLanes];
  Space space[kLanes];
  std::byte* at[kLanes];
};

Space window(std::uint64_t& address) {
  if (address >= kSharedWindow && address - kSharedWindow < kWindowBytes) {
    address -= kSharedWindow;
    return Space::kShared;
  }
  if (address >= kParamWindow && address < kSharedWindow) {
    address -= kParamWindow;
    return Space::kParam;
  }
  if (address >= kLocalWindow && address < kParamWindow) {
    address -= kLocalWindow;
    return Space::kLocal;
  }
  return Space::kGlobal;
}

void read_addresses(const Warp& warp, const Ins& ins, std::uint32_t slot, Lanes& lanes) {
  const std::byte* row = warp.registers + slot;
  if (ins.address_is_64) {
    auto* base = reinterpret_cast<const std::uint64_t*>(row);
    for (int l = 0; l < kLanes; ++l)
      lanes.address[l] = base[l] + static_cast<std::uint64_t>(ins.imm);
  } else {
    auto* base = reinterpret_cast<const std::uint32_t*>(row);
    auto displacement = static_cast<std::uint32_t>(ins.imm);
    for (int l = 0; l < kLanes; ++l) lanes.address[l] = base[l] + displacement;
  }
  for (int l = 0; l < kLanes; ++l)
    lanes.space[l] = ins.space == Space::kGeneric ? window(lanes.address[l]) : ins.space;
}

std::uint32_t lanes_in(const Lanes& lanes, std::uint32_t mask, Space space) {
  std::uint32_t result = 0;
  for (std::uint32_t m = mask; m != 0; m &= m - 1) {
    int l = std::countr_zero(m);
    if (lanes.space[l] == space) result |= 1u << l;
  }
  return result;
}

void count(Cta& cta, const Ins& ins, const Lanes& lanes, std::uint32_t mask, std::uint32_t bytes,
           bool is_store) {
  Counters& c = cta.launch.counters;
  bool uniform = ins.space != Space::kGeneric;
  std::uint32_t global =
      uniform ? (ins.space == Space::kGlobal ? mask : 0) : lanes_in(lanes, mask, Space::kGlobal);
  if (global != 0) {
    std::uint64_t moved = std::uint64_t{static_cast<std::uint32_t>(std::popcount(global))} * bytes;
    std::uint64_t sector[kMostSectors];
    std::uint32_t sectors = list_sectors(lanes.address, global, bytes, sector);
    (is_store ? c.global_store_bytes : c.global_load_bytes) += moved;
    (is_store ? c.global_store_sectors : c.global_load_sectors) += sectors;
    if (!is_store) c.global_fetch_sectors += cta.sectors.count_missing(sector, sectors);
  }
  std::uint32_t shared =
      uniform ? (ins.space == Space::kShared ? mask : 0) : lanes_in(lanes, mask, Space::kShared);
  if (shared != 0) {
    std::uint32_t address[kLanes];
    for (int l = 0; l < kLanes; ++l) address[l] = static_cast<std::uint32_t>(lanes.address[l]);
    count_shared(c, address, shared, bytes);
  }
  std::uint32_t local =
      uniform ? (ins.space == Space::kLocal ? mask : 0) : lanes_in(lanes, mask, Space::kLocal);
  if (local != 0 && (ins.flags & kFlagNotCounted) == 0) {
    c.spill_bytes += std::uint64_t{static_cast<std::uint32_t>(std::popcount(local))} * bytes;
  }
}

std::byte* private_at(Cta& cta, Warp& warp, const Ins& ins, int lane, Space space,
                      std::uint64_t address, std::uint32_t bytes) {
  std::size_t size =
      space == Space::kLocal ? cta.kernel.local_bytes : cta.launch.config.params.size();
  const char* name = space == Space::kLocal ? "local+" : "param+";
  if (address + bytes > size || address + bytes < address) {
    cta.launch.findings.add(kind::kOutOfBounds, ins, [&] {
      return std::to_string(bytes) + " bytes at " + name + std::to_string(address) + " of " +
             std::to_string(size) + ", " + cta.describe(warp, lane);
    });
    return nullptr;
  }
  if (space == Space::kLocal)
    return warp.local + std::size_t{static_cast<unsigned>(lane)} * cta.kernel.local_bytes + address;
  // Parameters are constant to a kernel; only loads come here with this space.
  return const_cast<std::byte*>(cta.launch.config.params.data()) + address;
}

void strong_access(Cta& cta, Warp& warp, const Ins& ins, int lane, const Lanes& lanes,
                   bool is_store) {
  if (!cta.checks) return;
  bool shared = lanes.space[lane] == Space::kShared;
  SyncTable& table = shared ? cta.shared_sync : cta.launch.shadow.sync();
  StrongAccess access{!is_store, is_store, order_of(ins), scope_of(ins)};
  if (apply_strong(cta.frame, warp.clock, cta.strong_agent(warp), table[lanes.address[lane]],
                   access))
    cta.advance(warp);
}

void resolve(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask, std::uint32_t bytes,
             bool is_store, Lanes& lanes) {
  bool strong = order_of(ins) != Order::kWeak;
  SharedAccess shared = cta.shared_access(warp, ins, strong);
  GlobalAccess global = cta.global_access(warp, ins, strong);
  int last = -1;  // lane of the last global load: lanes that want the same bytes share its checks
  for (std::uint32_t m = mask; m != 0; m &= m - 1) {
    int l = std::countr_zero(m);
    switch (lanes.space[l]) {
      case Space::kShared:
        lanes.at[l] = shared_at(cta, shared, l, lanes.address[l], bytes, is_store);
        break;
      case Space::kLocal:
      case Space::kParam:
        lanes.at[l] = private_at(cta, warp, ins, l, lanes.space[l], lanes.address[l], bytes);
        continue;
      default:
        if (last >= 0 && lanes.address[l] == lanes.address[last] && lanes.at[last] != nullptr) {
          lanes.at[l] = lanes.at[last];
          continue;
        }
        lanes.at[l] = global_at(cta, global, l, lanes.address[l], bytes, is_store);
        if (!is_store && !strong) last = l;
        break;
    }
    if (!strong || lanes.at[l] == nullptr) continue;
    strong_access(cta, warp, ins, l, lanes, is_store);
    global.clock = warp.clock.known.own()[cta.strong_agent(warp)];
  }
}

template <class T>
void move_in(const Ins& ins, std::uint32_t mask, const Lanes& lanes, std::byte* registers) {
  T* row[8];
  for (std::uint32_t k = 0; k < ins.count; ++k)
    row[k] = reinterpret_cast<T*>(registers + ins.more[k]);
  for (std::uint32_t m = mask; m != 0; m &= m - 1) {
    int l = std::countr_zero(m);
    const std::byte* from = lanes.at[l];
    for (std::uint32_t k = 0; k < ins.count; ++k) {
      if (from == nullptr) {
        std::memset(&row[k][l], 0xff, sizeof(T));
      } else {
        std::memcpy(&row[k][l], from + k * sizeof(T), sizeof(T));
      }
    }
  }
}

// Narrower in memory than in the register: extended by the sign of the type.
void move_in_extended(const Ins& ins, std::uint32_t mask, const Lanes& lanes,
                      std::byte* registers) {
  for (std::uint32_t k = 0; k < ins.count; ++k) {
    for (std::uint32_t m = mask; m != 0; m &= m - 1) {
      int l = std::countr_zero(m);
      std::uint64_t v = ~std::uint64_t{0};
      if (lanes.at[l] != nullptr) {
        v = 0;
        std::memcpy(&v, lanes.at[l] + k * ins.element_bytes, ins.element_bytes);
        int unused = 64 - 8 * ins.element_bytes;
        if (is_signed(ins.type))
          v = static_cast<std::uint64_t>(static_cast<std::int64_t>(v << unused) >> unused);
      }
      std::memcpy(registers + ins.more[k] + l * ins.register_bytes, &v, ins.register_bytes);
    }
  }
}

// Ascending and without overlap: the common case, in which no lane can meet another.
bool are_apart(const Lanes& lanes, std::uint32_t mask, std::uint32_t bytes) {
  std::uint64_t end = 0;
  for (std::uint32_t m = mask; m != 0; m &= m - 1) {
    std::uint64_t at = lanes.address[std::countr_zero(m)];
    if (at < end) return false;
    end = at + bytes;
  }
  return true;
}

// Which lane wins is undefined, unless all write the same. A lane whose bytes are not there now was
// overwritten by a later one.
void check_lost_stores(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask,
                       const Lanes& lanes) {
  if (are_apart(lanes, mask, std::uint32_t{ins.element_bytes} * ins.count)) return;
  for (std::uint32_t k = 0; k < ins.count; ++k) {
    const std::byte* row = warp.registers + ins.more[1 + k];
    for (std::uint32_t m = mask; m != 0; m &= m - 1) {
      int l = std::countr_zero(m);
      if (lanes.at[l] == nullptr ||
          std::memcmp(lanes.at[l] + k * ins.element_bytes, row + l * ins.register_bytes,
                      ins.element_bytes) == 0)
        continue;
      return cta.launch.findings.add(kind::kRaceLanes, ins, [&] {
        return "another lane stores a different value to the place of " + cta.describe(warp, l);
      });
    }
  }
}

}  // namespace

void exec_load(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  Lanes lanes;
  std::uint32_t bytes = std::uint32_t{ins.element_bytes} * ins.count;
  read_addresses(warp, ins, ins.more[ins.count], lanes);
  count(cta, ins, lanes, mask, bytes, false);
  resolve(cta, warp, ins, mask, bytes, false, lanes);
  if (ins.element_bytes == ins.register_bytes && ins.element_bytes == 4) {
    move_in<std::uint32_t>(ins, mask, lanes, warp.registers);
  } else if (ins.element_bytes == ins.register_bytes && ins.element_bytes == 8) {
    move_in<std::uint64_t>(ins, mask, lanes, warp.registers);
  } else {
    move_in_extended(ins, mask, lanes, warp.registers);
  }
}

void exec_store(Cta& cta, Warp& warp, const Ins& ins, std::uint32_t mask) {
  Lanes lanes;
  std::uint32_t bytes = std::uint32_t{ins.element_bytes} * ins.count;
  read_addresses(warp, ins, ins.more[0], lanes);
  count(cta, ins, lanes, mask, bytes, true);
  resolve(cta, warp, ins, mask, bytes, true, lanes);
  for (std::uint32_t k = 0; k < ins.count; ++k) {
    const std::byte* row = warp.registers + ins.more[1 + k];
    for (std::uint32_t m = mask; m != 0; m &= m - 1) {
      int l = std::countr_zero(m);
      if (lanes.at[l] != nullptr)
        std::memcpy(lanes.at[l] + k * ins.element_bytes, row + l * ins.register_bytes,
                    ins.element_bytes);
    }
  }
  if (cta.checks && order_of(ins) == Order::kWeak) check_lost_stores(cta, warp, ins, mask, lanes);
}

}  // namespace attnloom::sim
