// SPDX-License-Identifier: Apache-2.0
#include "cache/entry_metadata.h"

#include "base/json.h"
#include "base/json_fields.h"
#include "cache/fingerprint_json.h"
#include "cache/key.h"

namespace attnloom {
namespace {

Json to_json(const EntryFigures& entry) {
  return {{"name", entry.name},
          {"registers", entry.registers},
          {"static_shared_bytes", entry.static_shared_bytes},
          {"local_bytes", entry.local_bytes},
          {"spill_store_bytes", entry.spill_store_bytes},
          {"spill_load_bytes", entry.spill_load_bytes},
          {"max_threads", entry.max_threads}};
}

EntryFigures to_figures(const Json& json) {
  EntryFigures entry;
  entry.name = text_field(json, "name");
  entry.registers = int_field(json, "registers");
  entry.static_shared_bytes = int_field(json, "static_shared_bytes");
  entry.local_bytes = int_field(json, "local_bytes");
  entry.spill_store_bytes = int_field(json, "spill_store_bytes");
  entry.spill_load_bytes = int_field(json, "spill_load_bytes");
  entry.max_threads = int_field(json, "max_threads");
  return entry;
}

// The log holds bytes of the user's source, which need not be UTF-8; JSON must be.
std::string ascii(const std::string& text) {
  std::string out;
  for (const char c : text) out += static_cast<unsigned char>(c) < 0x80 ? c : '?';
  return out;
}

}  // namespace

std::string encode_metadata(const Source& source, const Artifact& artifact) {
  Json entries = Json::array();
  for (const EntryFigures& entry : artifact.entries) entries.push_back(to_json(entry));
  return canonical_json({{"target", artifact.target},
                         {"entries", entries},
                         {"log", ascii(artifact.log)},
                         {"options", source.options},
                         {"fields", field_digests(source)},
                         {"compiler", fingerprint_to_json(artifact.fingerprint)}});
}

Status decode_metadata(std::string_view text, Artifact& artifact,
                       std::map<std::string, std::string>& fields) {
  try {
    const Json json = Json::parse(text);
    artifact.target = text_field(json, "target");
    artifact.log = text_field(json, "log");
    const Json& digests = field(json, "fields");
    if (!digests.is_object()) throw FieldFault{"fields is no object"};
    for (const auto& [name, digest] : digests.items()) {
      if (!digest.is_string()) throw FieldFault{"a digest of fields is no text"};
      fields[name] = digest.get<std::string>();
    }
    for (const Json& entry : list_field(json, "entries"))
      artifact.entries.push_back(to_figures(entry));
    artifact.fingerprint = to_fingerprint(field(json, "compiler"));
  } catch (const FieldFault& fault) {
    return make_error(Code::kCacheCorrupt, "", "the metadata cannot be read: " + fault.cause);
  } catch (const Json::exception&) {
    return make_error(Code::kCacheCorrupt, "", "the metadata cannot be read: it is no JSON");
  }
  return ok_status();
}

}  // namespace attnloom
