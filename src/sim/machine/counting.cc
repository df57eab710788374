// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/counting.h"

#include <algorithm>
#include <bit>

namespace attnloom::sim {
namespace {

// Wavefronts of lanes [begin, end): the most distinct words in one bank.
std::uint32_t request(const std::uint32_t* address, std::uint32_t mask, int begin, int end,
                      std::uint32_t words) {
  std::uint32_t seen[32][8], count[32] = {}, most = 0;
  for (int lane = begin; lane < end; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    for (std::uint32_t k = 0; k < words; ++k) {
      std::uint32_t word = (address[lane] >> 2) + k, bank = word & 31;
      std::uint32_t known = std::min(count[bank], 8u);
      if (std::find(seen[bank], seen[bank] + known, word) != seen[bank] + known) continue;
      // Beyond 8 distinct words a repetition is not recognised; such an access is lost anyway.
      if (count[bank] < 8) seen[bank][count[bank]] = word;
      most = std::max(most, ++count[bank]);
    }
  }
  return most;
}

}  // namespace

std::uint32_t count_shared(Counters& counters, const std::uint32_t* address, std::uint32_t mask,
                           std::uint32_t bytes) {
  std::uint32_t words = bytes <= 4 ? 1 : bytes / 4;
  std::uint32_t conflicts = 0;
  int lanes = static_cast<int>(32 / words);
  for (int begin = 0; begin < 32; begin += lanes) {
    std::uint32_t part = lanes == 32 ? mask : mask & ((1u << lanes) - 1) << begin;
    if (part == 0) continue;
    // Lanes that each have banks of their own: the common case, found with one pass.
    std::uint32_t banks = 0, run = words == 1 ? 1u : (1u << words) - 1;
    bool apart = true;
    for (int lane = begin; lane < begin + lanes && apart; ++lane) {
      if ((part >> lane & 1) == 0) continue;
      std::uint32_t mine = std::rotl(run, static_cast<int>(address[lane] >> 2 & 31));
      apart = (banks & mine) == 0;
      banks |= mine;
    }
    std::uint32_t wavefronts = apart ? 1 : request(address, mask, begin, begin + lanes, words);
    counters.shared_wavefronts += wavefronts;
    conflicts += wavefronts - 1;
  }
  counters.shared_conflicts += conflicts;
  return conflicts;
}

std::uint32_t count_matrix(Counters& counters, const std::uint32_t* row_address) {
  std::uint32_t groups = 0;
  for (int r = 0; r < 8; ++r) groups |= 1u << (row_address[r] >> 4 & 7);
  std::uint32_t wavefronts = groups == 0xff ? 1 : request(row_address, 0xff, 0, 8, 4);
  counters.shared_wavefronts += wavefronts;
  counters.shared_conflicts += wavefronts - 1;
  return wavefronts - 1;
}

std::uint32_t list_sectors(const std::uint64_t* address, std::uint32_t mask, std::uint32_t bytes,
                           std::uint64_t* sector) {
  std::uint32_t count = 0;
  bool ascending = true;
  for (; mask != 0; mask &= mask - 1) {
    int lane = std::countr_zero(mask);
    std::uint64_t first = address[lane] >> 5, last = (address[lane] + bytes - 1) >> 5;
    for (std::uint64_t s = first; s <= last && count < kMostSectors; ++s) {
      if (count > 0 && s == sector[count - 1]) continue;
      ascending = ascending && (count == 0 || s > sector[count - 1]);
      sector[count++] = s;
    }
  }
  if (!ascending) {
    std::sort(sector, sector + count);
    count = static_cast<std::uint32_t>(std::unique(sector, sector + count) - sector);
  }
  return count;
}

std::uint32_t count_sectors(const std::uint64_t* address, std::uint32_t mask, std::uint32_t bytes) {
  std::uint64_t sector[kMostSectors];
  return list_sectors(address, mask, bytes, sector);
}

}  // namespace attnloom::sim
