// SPDX-License-Identifier: Apache-2.0
// Global memory: allocations far apart, with a bit for each byte that was ever written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/device.h"
#include "sim/program.h"

namespace attnloom::sim {

struct Allocation {
  std::uint64_t base = 0;
  std::size_t bytes = 0;
  std::string label;
  std::unique_ptr<std::byte[]> data;
  std::vector<std::uint64_t> written;  // a bit a byte
  std::uint32_t id = 0;                // never reused; index of the launch's shadow

  bool contains(std::uint64_t address, std::size_t length) const {
    return address - base < bytes && bytes - (address - base) >= length;
  }
  // `length` is a power of two up to 32 and `offset` a multiple of it, so all bits lie in one word.
  bool is_written(std::size_t offset, std::size_t length) const {
    std::uint64_t wanted = (std::uint64_t{1} << length) - 1;
    return (written[offset >> 6] >> (offset & 63) & wanted) == wanted;
  }
  void mark_written(std::size_t offset, std::size_t length) {
    written[offset >> 6] |= ((std::uint64_t{1} << length) - 1) << (offset & 63);
  }
  void mark_range(std::size_t offset, std::size_t length);
};

struct Memory::State {
  std::vector<std::unique_ptr<Allocation>> live;  // by base
  std::vector<std::pair<std::uint64_t, std::pair<std::uint64_t, std::string>>>
      freed;  // base, bytes, label
  std::uint64_t next = kGlobalBegin;
  std::uint32_t next_id = 0;
  // Addresses of the variables of each module that was launched here, by the hash of its text.
  std::map<std::uint64_t, std::vector<std::uint64_t>> instances;

  Allocation* find(std::uint64_t address);  // the one that contains the address
  std::string describe(
      std::uint64_t address) const;  // "plan+64", "32 bytes past the end of k", "no allocation"
  Result<std::uint64_t> allocate(std::size_t bytes, std::string_view label);
  Result<const std::vector<std::uint64_t>*> instance(const Module::State& module);
};

}  // namespace attnloom::sim
