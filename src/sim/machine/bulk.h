// SPDX-License-Identifier: Apache-2.0
// What plain and tensor bulk copies share.
#pragma once

#include "sim/machine/async.h"
#include "sim/machine/state.h"

namespace attnloom::sim {

// `bytes` of global memory, as the warp that issues the copy. What cannot be read is NaN.
void read_global(Cta& cta, const GlobalAccess& access, int lane, std::uint64_t address,
                 std::uint32_t bytes, std::byte* to);
void count_bulk(Cta& cta, std::uint64_t address, std::uint32_t bytes, bool is_store);
// True if `bytes` at `address` of shared memory exist and lie on a multiple of `align`; reports
// otherwise.
bool shared_range(Cta& cta, Warp& warp, const Ins& ins, int lane, std::uint64_t address,
                  std::uint64_t bytes, std::uint32_t align);
// The load is under way: its place in shared memory is nobody's until its mbarrier says so.
void issue_load(Cta& cta, Warp& warp, const Ins& ins, int lane, std::uint64_t barrier,
                std::uint32_t to, std::vector<std::byte> data);
void issue_store(Cta& cta, Warp& warp, const Ins& ins, int lane, std::uint32_t from,
                 std::uint32_t bytes, std::vector<BulkStore::Piece> pieces);

}  // namespace attnloom::sim
