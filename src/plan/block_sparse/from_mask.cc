// SPDX-License-Identifier: Apache-2.0
// From dense boolean masks, and the check that a mask and a BlockSparse mean the same.
#include <algorithm>

#include "plan/block_sparse/checks.h"

namespace attnloom {
namespace {

Status check_mask(const DenseMask& mask) {
  ATTNLOOM_CHECK(check_indptrs("mask", mask.qo_indptr, mask.kv_indptr));
  std::int64_t wanted = 0;
  for (std::size_t r = 0; r + 1 < mask.qo_indptr.size(); ++r)
    wanted += std::int64_t{mask.qo_indptr[r + 1] - mask.qo_indptr[r]} *
              (mask.kv_indptr[r + 1] - mask.kv_indptr[r]);
  if (std::ssize(mask.bytes) != wanted)
    return invalid("mask.mask",
                   "wanted " + text(wanted) + " bytes, qo_len x kv_len of each request, given " +
                       text(std::ssize(mask.bytes)),
                   "make the mask for the lengths of this batch");
  return check_flags("mask", "mask", mask.bytes, "a byte for each query token and key");
}

std::int32_t length(IndexArray indptr, int request) {
  return indptr[request + 1] - indptr[request];
}

Status check_same_lengths(const BlockSparse& sparse, const DenseMask& mask) {
  if (std::ssize(mask.qo_indptr) - 1 != sparse.batch())
    return invalid("mask.qo_indptr",
                   "wanted " + text(sparse.batch()) + " requests as the lists have, given " +
                       text(std::ssize(mask.qo_indptr) - 1),
                   "describe one batch");
  for (int r = 0; r < sparse.batch(); ++r) {
    const std::int32_t qo_len = length(sparse.qo_indptr, r);
    const std::int32_t kv_len = length(sparse.kv_indptr, r);
    if (length(mask.qo_indptr, r) == qo_len && length(mask.kv_indptr, r) == kv_len) continue;
    return invalid("mask",
                   "request " + text(r) + ": wanted " + text(qo_len) + " x " + text(kv_len) +
                       " as the lists have, given " + text(length(mask.qo_indptr, r)) + " x " +
                       text(length(mask.kv_indptr, r)),
                   "describe one batch");
  }
  return ok_status();
}

}  // namespace

Result<BlockSparse> from_mask(const DenseMask& mask, BlockSize block) {
  ATTNLOOM_CHECK(check_block(block, "block"));
  ATTNLOOM_CHECK(check_mask(mask));
  BlockSparse out;
  out.block = block;
  const std::uint8_t* bytes = mask.bytes.data();
  for (int r = 0; r + 1 < std::ssize(mask.qo_indptr); ++r) {
    const std::int32_t kv_len = length(mask.kv_indptr, r);
    std::vector<TokenKeys> tokens(static_cast<std::size_t>(length(mask.qo_indptr, r)));
    for (TokenKeys& keys : tokens) {
      for (std::int32_t begin = 0; begin < kv_len;) {
        const std::int32_t first =
            static_cast<std::int32_t>(std::find(bytes + begin, bytes + kv_len, 1) - bytes);
        const std::int32_t end =
            static_cast<std::int32_t>(std::find(bytes + first, bytes + kv_len, 0) - bytes);
        if (first < end) keys.push_back({first, end});
        begin = end;
      }
      bytes += kv_len;
    }
    ATTNLOOM_CHECK(append_request(tokens, kv_len, &out));
  }
  return out;
}

Status check_agrees(const BlockSparse& sparse, const DenseMask& mask) {
  ATTNLOOM_CHECK(check_mask(mask));
  ATTNLOOM_CHECK(check_same_lengths(sparse, mask));
  std::int64_t at = 0;  // in mask.bytes
  for (int r = 0; r < sparse.batch(); ++r) {
    const std::int32_t kv_len = length(sparse.kv_indptr, r);
    std::int64_t token = 0;
    for (const TokenKeys& keys : keys_of_request(sparse, r)) {
      std::vector<std::uint8_t> listed(static_cast<std::size_t>(kv_len), 0);
      for (const KeyRange& range : keys)
        std::fill(listed.begin() + range.begin, listed.begin() + range.end, std::uint8_t{1});
      const auto differs = std::mismatch(listed.begin(), listed.end(), mask.bytes.begin() + at);
      if (differs.first != listed.end())
        return invalid(entry("mask", "mask", differs.second - mask.bytes.begin()),
                       "request " + text(r) + ", query token " + text(token) + ", key " +
                           text(differs.first - listed.begin()) + ": the lists say " +
                           text(*differs.first) + ", the mask says " + text(*differs.second),
                       "give one description, or two of one pattern");
      at += kv_len;
      ++token;
    }
  }
  return ok_status();
}

}  // namespace attnloom
