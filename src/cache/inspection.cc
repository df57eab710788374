// SPDX-License-Identifier: Apache-2.0
#include "cache/inspection.h"

#include "base/sha256.h"
#include "cache/layout.h"
#include "cache/own_root.h"

namespace attnloom {

Inspection inspect_entry(std::string_view bytes, const std::string& name) {
  Inspection found;
  Result<Entry> decoded = decode_entry(bytes, Unpack::kAll);
  if (!decoded.ok()) {
    found.fault = decoded.status().cause;
    return found;
  }
  const std::string key = decoded->request_key;
  const std::string fingerprint = decoded->artifact.fingerprint.hex;
  const bool named = name.size() == layout::entry_name(key, fingerprint).size() &&
                     is_key(name.substr(0, key.size())) && name.ends_with(".alk");
  found.fault = named ? refuse_entry(decoded, name.substr(0, key.size()),
                                     name.substr(key.size() + 1, fingerprint.size()))
                      : refuse_entry(decoded, key, fingerprint);
  if (Result<std::string> metadata = entry_metadata(bytes); metadata.ok())
    found.metadata = std::move(metadata).value();
  found.entry = std::move(decoded).value();
  const Artifact& artifact = found.entry.artifact;
  found.note = read_cubin_note(artifact.cubin);
  found.cubin_sha256 = to_hex(sha256(artifact.cubin));
  if (found.entry.has_ptx) found.ptx_sha256 = to_hex(sha256(artifact.ptx));
  return found;
}

}  // namespace attnloom
