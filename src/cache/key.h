// SPDX-License-Identifier: Apache-2.0
// The two keys (DESIGN §6). request_key says what is asked for and needs no compiler; kernel_key
// adds who compiled it. Nothing that varies with machine, path, time, locale or user enters either.
// Pure; thread-safe.
#pragma once

#include <map>
#include <string>

#include "compile/artifact.h"
#include "render/source.h"

namespace attnloom {

// 64 hex digits over length-prefixed named fields: text, options, (name, digest) of each header,
// target, entries.
std::string request_key(const Source& source);
std::string kernel_key(const std::string& request_key, const Fingerprint& fingerprint);

// The digest of each named field, for "why did this miss?" (stored as metadata, printed by
// explain).
std::map<std::string, std::string> field_digests(const Source& source);

}  // namespace attnloom
