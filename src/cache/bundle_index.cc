// SPDX-License-Identifier: Apache-2.0
#include "cache/bundle_index.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/format_version.h"
#include "base/json_fields.h"
#include "cache/entry.h"
#include "cache/fingerprint_json.h"
#include "cache/layout.h"

namespace attnloom {
namespace {

constexpr std::string_view kFormat = "attnloom-bundle";
constexpr int kMostNesting = 64;

Json text_or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json to_json(const BundleEntry& entry) {
  Json json = {{"request_key", entry.request_key},
               {"fingerprint", entry.fingerprint},
               {"target", entry.target},
               {"offset", entry.offset},
               {"frame_bytes", entry.frame_bytes},
               {"bytes", entry.bytes},
               {"sha256", entry.sha256},
               {"cubin_sha256", entry.cubin_sha256},
               {"ptx_sha256", text_or_null(entry.ptx_sha256)}};
  if (!entry.signature.empty()) json["signature"] = entry.signature;
  if (!entry.about.is_null()) json["about"] = entry.about;
  return json;
}

Status corrupt(const std::string& cause) {
  return make_error(Code::kCacheCorrupt, "", cause);
}

BundleEntry to_entry(const Json& json) {
  BundleEntry entry;
  entry.request_key = text_field(json, "request_key");
  entry.fingerprint = text_field(json, "fingerprint");
  entry.target = text_field(json, "target");
  entry.offset = number_field(json, "offset");
  entry.frame_bytes = number_field(json, "frame_bytes");
  entry.bytes = number_field(json, "bytes");
  entry.sha256 = text_field(json, "sha256");
  entry.cubin_sha256 = text_field(json, "cubin_sha256");
  if (!field(json, "ptx_sha256").is_null()) entry.ptx_sha256 = text_field(json, "ptx_sha256");
  if (json.contains("signature")) entry.signature = text_field(json, "signature");
  if (json.contains("about")) entry.about = json["about"];
  return entry;
}

auto name_of(const BundleEntry& entry) {
  return std::tie(entry.request_key, entry.fingerprint);
}

// Printing recurses, so an index must not nest as deep as its writer likes.
bool deeper_than(int limit, const Json& json) {
  if (!json.is_structured()) return false;
  return limit == 0 || std::any_of(json.begin(), json.end(), [limit](const Json& inner) {
           return deeper_than(limit - 1, inner);
         });
}

Status check(const BundleIndex& index) {
  for (const Fingerprint& toolchain : index.toolchains)
    if (!is_fingerprint(toolchain.hex)) return corrupt("the index names a compiler badly");
  const BundleEntry* before = nullptr;
  for (const BundleEntry& entry : index.entries) {
    if (!is_key(entry.request_key) || !is_fingerprint(entry.fingerprint) || !is_key(entry.sha256))
      return corrupt("the index names an entry badly");
    if (deeper_than(kMostNesting, entry.about)) return corrupt("the index nests too deep");
    // Also keeps two lines from claiming one name.
    if (before != nullptr && !(name_of(*before) < name_of(entry)))
      return corrupt("the entries of the index are not in order");
    before = &entry;
  }
  return ok_status();
}

}  // namespace

std::string print_bundle_index(const BundleIndex& index) {
  Json toolchains = Json::array();
  for (const Fingerprint& toolchain : index.toolchains)
    toolchains.push_back(fingerprint_to_json(toolchain));
  Json entries = Json::array();
  for (const BundleEntry& entry : index.entries) entries.push_back(to_json(entry));
  return canonical_json({{"format", kFormat},
                         {"version", kBundleVersion},
                         {"library", index.library},
                         {"templates", index.templates},
                         {"targets", bundle_targets(index)},
                         {"toolchains", std::move(toolchains)},
                         {"entries", std::move(entries)}});
}

Result<BundleIndex> parse_bundle_index(std::string_view text) {
  BundleIndex index;
  try {
    const Json json = Json::parse(text);
    if (text_field(json, "format") != kFormat) return corrupt("the index is of another format");
    const std::uint64_t version = number_field(json, "version");
    if (!reads_version(version, kBundleVersion))
      return corrupt("bundle " + refused_version(version, kBundleVersion));
    index.library = text_field(json, "library");
    index.templates = text_field(json, "templates");
    for (const Json& toolchain : list_field(json, "toolchains"))
      index.toolchains.push_back(to_fingerprint(toolchain));
    for (const Json& entry : list_field(json, "entries")) index.entries.push_back(to_entry(entry));
  } catch (const FieldFault& fault) {
    return corrupt("the index cannot be read: " + fault.cause);
  } catch (const Json::exception&) {
    return corrupt("the index cannot be read: it is no JSON");
  }
  ATTNLOOM_CHECK(check(index));
  return index;
}

std::string bundle_member_name(const BundleEntry& entry) {
  return layout::entry("attnloom/v1", entry.request_key, entry.fingerprint);
}

std::vector<std::string> bundle_targets(const BundleIndex& index) {
  std::set<std::string> targets;
  for (const BundleEntry& entry : index.entries) targets.insert(entry.target);
  return {targets.begin(), targets.end()};
}

}  // namespace attnloom
