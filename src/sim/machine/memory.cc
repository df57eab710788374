// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/memory.h"

#include <algorithm>
#include <new>

namespace attnloom::sim {
namespace {

// Gap between allocations: a 32-bit index times a small stride cannot reach the next one.
constexpr std::uint64_t kGapBytes = std::uint64_t{4} << 30;
constexpr std::uint64_t kAlignBytes = 65536;

Status bad_range(std::uint64_t address, std::size_t bytes, const std::string& where) {
  return make_error(Code::kLaunch, "",
                    std::to_string(bytes) + " bytes at " + where + " (address " +
                        std::to_string(address) + ") are not inside one allocation",
                    "Use an address from allocate() and stay inside.");
}

}  // namespace

void Allocation::mark_range(std::size_t offset, std::size_t length) {
  std::size_t end = offset + length;
  for (; offset < end && (offset & 63) != 0; ++offset) mark_written(offset, 1);
  for (; offset + 64 <= end; offset += 64) written[offset >> 6] = ~std::uint64_t{0};
  for (; offset < end; ++offset) mark_written(offset, 1);
}

Allocation* Memory::State::find(std::uint64_t address) {
  auto after = std::upper_bound(live.begin(), live.end(), address,
                                [](std::uint64_t a, const auto& b) { return a < b->base; });
  if (after == live.begin()) return nullptr;
  Allocation* a = std::prev(after)->get();
  return address - a->base < a->bytes ? a : nullptr;
}

std::string Memory::State::describe(std::uint64_t address) const {
  auto place = [&](std::uint64_t base, std::uint64_t bytes, const std::string& label,
                   const char* state) -> std::string {
    if (address < base) return std::to_string(base - address) + " bytes before " + state + label;
    if (address - base < bytes) return state + label + "+" + std::to_string(address - base);
    return std::to_string(address - base - bytes) + " bytes past the end of " + state + label;
  };
  for (const auto& [base, rest] : freed) {
    if (address >= base && address - base < rest.first)
      return place(base, rest.first, rest.second, "freed ");
  }
  const Allocation* nearest = nullptr;
  std::uint64_t distance = kGapBytes / 2;
  for (const auto& a : live) {
    std::uint64_t d = address < a->base              ? a->base - address
                      : address - a->base < a->bytes ? 0
                                                     : address - a->base - a->bytes;
    if (d < distance) {
      nearest = a.get();
      distance = d;
    }
  }
  if (nearest == nullptr) return "address " + std::to_string(address) + ", far from any allocation";
  return place(nearest->base, nearest->bytes, nearest->label, "");
}

Result<std::uint64_t> Memory::State::allocate(std::size_t bytes, std::string_view label) {
  if (bytes == 0)
    return make_error(Code::kLaunch, "",
                      "an allocation of 0 bytes for '" + std::string(label) + "'");
  auto a = std::make_unique<Allocation>();
  a->base = next;
  a->bytes = bytes;
  a->label = label;
  a->id = next_id;
  a->data.reset(new (std::nothrow) std::byte[bytes]);
  if (a->data == nullptr) {
    return make_error(
        Code::kOutOfMemory, "",
        std::to_string(bytes) + " bytes for '" + std::string(label) + "' on the simulated device",
        "Use a smaller workload.");
  }
  std::memset(a->data.get(), 0xff, bytes);
  a->written.assign(bytes / 64 + 1, 0);
  ++next_id;
  next += (bytes + kGapBytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
  live.push_back(std::move(a));
  return live.back()->base;
}

Result<const std::vector<std::uint64_t>*> Memory::State::instance(const Module::State& module) {
  auto it = instances.find(module.text_hash);
  if (it != instances.end()) return &it->second;
  std::vector<std::uint64_t> addresses;
  for (const Variable& v : module.variables) {
    ATTNLOOM_TRY(std::uint64_t address, allocate(std::max<std::uint64_t>(v.bytes, 1), v.name));
    addresses.push_back(address);
  }
  for (std::size_t k = 0; k < module.variables.size(); ++k) {
    const Variable& v = module.variables[k];
    Allocation* a = find(addresses[k]);
    std::memset(a->data.get(), 0, a->bytes);  // C++ zero-initialises what has no initial value
    a->mark_range(0, a->bytes);
    if (!v.initial.empty()) std::memcpy(a->data.get(), v.initial.data(), v.initial.size());
    for (const auto& [offset, target] : v.pointers)
      std::memcpy(a->data.get() + offset, &addresses[target], 8);
  }
  return &instances.emplace(module.text_hash, std::move(addresses)).first->second;
}

Memory::Memory() : state_(std::make_unique<State>()) {}
Memory::~Memory() = default;

Result<std::uint64_t> Memory::allocate(std::size_t bytes, std::string_view label) {
  return state_->allocate(bytes, label);
}

Status Memory::free(std::uint64_t address) {
  Allocation* a = state_->find(address);
  if (a == nullptr || a->base != address) return bad_range(address, 0, state_->describe(address));
  state_->freed.push_back({a->base, {a->bytes, a->label}});
  std::erase_if(state_->live, [&](const auto& x) { return x.get() == a; });
  return ok_status();
}

Status Memory::write(std::uint64_t address, std::span<const std::byte> bytes) {
  if (bytes.empty()) return ok_status();
  Allocation* a = state_->find(address);
  if (a == nullptr || !a->contains(address, bytes.size()))
    return bad_range(address, bytes.size(), state_->describe(address));
  std::memcpy(a->data.get() + (address - a->base), bytes.data(), bytes.size());
  a->mark_range(address - a->base, bytes.size());
  return ok_status();
}

Status Memory::read(std::uint64_t address, std::span<std::byte> bytes) const {
  if (bytes.empty()) return ok_status();
  Allocation* a = state_->find(address);
  if (a == nullptr || !a->contains(address, bytes.size()))
    return bad_range(address, bytes.size(), state_->describe(address));
  std::memcpy(bytes.data(), a->data.get() + (address - a->base), bytes.size());
  return ok_status();
}

Status Memory::fill(std::uint64_t address, std::uint8_t byte, std::size_t bytes) {
  if (bytes == 0) return ok_status();
  Allocation* a = state_->find(address);
  if (a == nullptr || !a->contains(address, bytes))
    return bad_range(address, bytes, state_->describe(address));
  std::memset(a->data.get() + (address - a->base), byte, bytes);
  a->mark_range(address - a->base, bytes);
  return ok_status();
}

Result<std::uint64_t> symbol_address(const Module& module, Memory& memory, std::string_view name) {
  const std::vector<Variable>& variables = module.state().variables;
  for (std::size_t k = 0; k < variables.size(); ++k) {
    if (variables[k].name != name) continue;
    ATTNLOOM_TRY(const std::vector<std::uint64_t>* addresses,
                 memory.state().instance(module.state()));
    return (*addresses)[k];
  }
  return make_error(Code::kLaunch, "", "the module has no variable '" + std::string(name) + "'");
}

}  // namespace attnloom::sim
