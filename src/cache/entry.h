// SPDX-License-Identifier: Apache-2.0
// The bytes of a cache entry, file name `<request_key>.<fingerprint>.alk`:
//
//   entry       = cubin ptx metadata trailer        the cubin comes first, so ELF tools read the
//   file as it is ptx         = "" | one zstd frame metadata    = canonical JSON (entry_metadata.cc
//   lists its keys) trailer     = 112 bytes, numbers little-endian:
//       0  "ALK1"                     32  metadata bytes u64
//       4  version u32 = 1            40  request_key, 32 bytes
//       8  cubin bytes u64            72  fingerprint, 8 bytes
//      16  ptx bytes u64              80  SHA-256 of everything before it, 32 bytes
//      24  ptx bytes unpacked u64
//
// The parts are adjacent, so their lengths are their offsets too. Whole-file rule: the lengths and
// the trailer add up to the file's size. Nothing but request_key and fingerprint determines the
// bytes: two writers write equal ones. Thread-safe: pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/status.h"
#include "compile/artifact.h"
#include "render/source.h"

namespace attnloom {

struct Entry {
  std::string request_key;
  Artifact artifact;
  bool has_ptx = false;  // in the file; artifact.ptx is unpacked on demand only
  std::map<std::string, std::string> fields;  // name -> digest, for `explain`
};

enum class Unpack { kCubinOnly, kAll };

// REQUIRES: is_key(request_key), is_fingerprint(artifact.fingerprint.hex).
std::string encode_entry(const std::string& request_key, const Source& source,
                         const Artifact& artifact);

// The same entry without its PTX. CACHE_CORRUPT as below.
Result<std::string> without_ptx(std::string_view bytes);

// CACHE_CORRUPT, with the reason, for bytes that are not exactly a whole entry.
Result<Entry> decode_entry(std::string_view bytes, Unpack unpack);

// The metadata as stored. CACHE_CORRUPT as decode_entry.
Result<std::string> entry_metadata(std::string_view bytes);

// 64 and 16 lower-case hex digits. Only such text ever becomes part of a file name.
bool is_key(std::string_view text);
bool is_fingerprint(std::string_view text);

}  // namespace attnloom
