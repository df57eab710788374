// SPDX-License-Identifier: Apache-2.0
// Inspection: all that one entry says of itself, and whether it may be used. For tools; a look-up
// reads less. Thread-safe: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "cache/entry.h"
#include "compile/cubin_note.h"

namespace attnloom {

struct Inspection {
  std::string fault;  // "" when it is whole and what its name says
  Entry entry;        // with its PTX; empty where the bytes could not be read at all
  std::string metadata;
  CubinNote note;  // the cubin's own words
  std::string cubin_sha256;
  std::string ptx_sha256;  // "" without PTX
};

// `name`: the file's, "<request_key>.<fingerprint>.alk"; under any other name an entry only has to
// agree with itself.
Inspection inspect_entry(std::string_view bytes, const std::string& name);

}  // namespace attnloom
