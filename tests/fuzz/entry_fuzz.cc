// SPDX-License-Identifier: Apache-2.0
// The reader of cache entries. First byte: 0 bytes as they are, 1 under a SHA-256 that fits.
#include "base/sha256.h"
#include "cache/entry.h"
#include "cache/trust.h"
#include "fuzz/fuzz.h"

using namespace attnloom;

namespace {

std::string seal(std::string_view bytes) {
  constexpr std::size_t kDigestBytes = 32;
  if (bytes.size() < kDigestBytes) return std::string(bytes);
  std::string sealed(bytes.substr(0, bytes.size() - kDigestBytes));
  const Digest digest = sha256(sealed);
  return sealed.append(reinterpret_cast<const char*>(digest.data()), digest.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto [how, rest] = fuzz::undress(data, size, 2);
  const std::string bytes = how == 0 ? std::string(rest) : seal(rest);
  const auto cubin_only = decode_entry(bytes, Unpack::kCubinOnly);
  const auto all = decode_entry(bytes, Unpack::kAll);
  if (!cubin_only.ok()) {
    fuzz::require(!all.ok(), "what has no cubin has no PTX either");
    fuzz::require(cubin_only.status().code == Code::kCacheCorrupt, "a refusal is CACHE_CORRUPT");
    return 0;
  }
  fuzz::require(is_key(cubin_only->request_key), "the key is 64 hex digits");
  fuzz::require(!cubin_only->artifact.cubin.empty(), "the cubin is not empty");
  (void)TrustedKeys().verify(facts_of(*cubin_only), "attnloom-signature 1\n");
  const auto less = without_ptx(bytes);
  fuzz::require(less.ok(), "PTX can be dropped from every whole entry");
  const auto again = decode_entry(*less, Unpack::kAll);
  fuzz::require(again.ok() && !again->has_ptx, "what is left is a whole entry");
  fuzz::require(again->artifact == cubin_only->artifact, "and the same one");
  return 0;
}
