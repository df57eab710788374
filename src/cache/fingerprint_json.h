// SPDX-License-Identifier: Apache-2.0
// A compiler's fingerprint as entries and bundles keep it. Pure; thread-safe.
#pragma once

#include "base/json.h"
#include "base/json_fields.h"
#include "compile/artifact.h"

namespace attnloom {

inline Json fingerprint_to_json(const Fingerprint& fingerprint) {
  return {{"fingerprint", fingerprint.hex},
          {"cuda_major", fingerprint.cuda_major},
          {"cuda_minor", fingerprint.cuda_minor},
          {"least_driver", fingerprint.least_driver}};
}

// Throws FieldFault.
inline Fingerprint to_fingerprint(const Json& json) {
  return {text_field(json, "fingerprint"), int_field(json, "cuda_major"),
          int_field(json, "cuda_minor"), int_field(json, "least_driver")};
}

}  // namespace attnloom
