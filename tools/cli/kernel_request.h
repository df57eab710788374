// SPDX-License-Identifier: Apache-2.0
// One request to `attnloom serve`: a spec as JSON in, the bytes of one cache entry out. Thread-safe
// where the engine is.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "cache/trust.h"
#include "engine/engine.h"
#include "tools/cli/registered.h"

namespace attnloom::cli {

struct ServedKernel {
  std::string entry;      // encode_entry of it
  std::string signature;  // a line, without its newline; "" where nothing signs
};

struct KernelService {
  Engine* engine = nullptr;  // without a device, with a writable cache
  RegisteredVariants variants;
  std::optional<SigningKey> signing_key;
};

// {"spec": SPEC, "target": "sm_90a", "request_key": HEX}. The spec's own target if none is given;
// the first kernel of its set without a key, else the kernel of that key, be it one that spills and
// that the asker will step down from. Errors: those of parsing and compiling; UNTRUSTED for source
// text that is not registered; ARGUMENT_INVALID at $.request_key where this library's templates
// give the spec no such key.
Result<ServedKernel> serve_kernel(const KernelService& service, std::string_view body);

}  // namespace attnloom::cli
