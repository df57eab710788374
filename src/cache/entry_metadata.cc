// SPDX-License-Identifier: Apache-2.0
#include "cache/entry_metadata.h"

#include "base/json.h"
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
  json.at("name").get_to(entry.name);
  json.at("registers").get_to(entry.registers);
  json.at("static_shared_bytes").get_to(entry.static_shared_bytes);
  json.at("local_bytes").get_to(entry.local_bytes);
  json.at("spill_store_bytes").get_to(entry.spill_store_bytes);
  json.at("spill_load_bytes").get_to(entry.spill_load_bytes);
  json.at("max_threads").get_to(entry.max_threads);
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
  const Fingerprint& fingerprint = artifact.fingerprint;
  return canonical_json({{"target", artifact.target},
                         {"entries", entries},
                         {"log", ascii(artifact.log)},
                         {"options", source.options},
                         {"fields", field_digests(source)},
                         {"compiler",
                          {{"fingerprint", fingerprint.hex},
                           {"cuda_major", fingerprint.cuda_major},
                           {"cuda_minor", fingerprint.cuda_minor},
                           {"least_driver", fingerprint.least_driver}}}});
}

Status decode_metadata(std::string_view text, Artifact& artifact,
                       std::map<std::string, std::string>& fields) {
  // The library's JSON type throws on a key or type that we do not expect; this is the one place
  // where it may.
  try {
    const Json json = Json::parse(text);
    json.at("target").get_to(artifact.target);
    json.at("log").get_to(artifact.log);
    json.at("fields").get_to(fields);
    for (const Json& entry : json.at("entries")) artifact.entries.push_back(to_figures(entry));
    const Json& compiler = json.at("compiler");
    compiler.at("fingerprint").get_to(artifact.fingerprint.hex);
    compiler.at("cuda_major").get_to(artifact.fingerprint.cuda_major);
    compiler.at("cuda_minor").get_to(artifact.fingerprint.cuda_minor);
    compiler.at("least_driver").get_to(artifact.fingerprint.least_driver);
  } catch (const Json::exception& error) {
    return make_error(Code::kCacheCorrupt, "",
                      std::string("the metadata cannot be read: ") + error.what());
  }
  return ok_status();
}

}  // namespace attnloom
