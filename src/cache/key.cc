// SPDX-License-Identifier: Apache-2.0
#include "cache/key.h"

#include "base/sha256.h"

namespace attnloom {
namespace {

// Domains carry the version of the rule: a new rule gets new keys and leaves old entries alone.
constexpr std::string_view kRequestDomain = "attnloom.request.1";
constexpr std::string_view kKernelDomain = "attnloom.kernel.1";

std::string hex_of_list(std::string_view name, const std::vector<std::string>& items) {
  FieldHasher hasher("attnloom.list.1");
  for (const std::string& item : items) hasher.field(name, item);
  return to_hex(hasher.finish());
}

}  // namespace

std::map<std::string, std::string> field_digests(const Source& source) {
  std::map<std::string, std::string> digests = {
      {"text", to_hex(sha256(source.text))},
      {"options", hex_of_list("option", source.options)},
      {"target", to_hex(sha256(source.target))},
      {"entries", hex_of_list("entry", source.entries)},
  };
  for (const Header& header : source.headers)
    digests["header:" + header.name] = to_hex(sha256(header.text));
  return digests;
}

std::string request_key(const Source& source) {
  FieldHasher hasher(kRequestDomain);
  for (const auto& [name, digest] : field_digests(source)) hasher.field(name, digest);
  return to_hex(hasher.finish());
}

std::string kernel_key(const std::string& request_key, const Fingerprint& fingerprint) {
  FieldHasher hasher(kKernelDomain);
  return to_hex(
      hasher.field("request_key", request_key).field("fingerprint", fingerprint.hex).finish());
}

}  // namespace attnloom
