// SPDX-License-Identifier: Apache-2.0
// Toolchains whose worker is the real one or one that misbehaves.
#pragma once

#include <memory>
#include <string>

#include "../compile/nvrtc_for_tests.h"
#include "compile/sandbox_toolchain.h"

namespace attnloom {

inline SandboxOptions sandbox_options(const std::string& worker = WORKER) {
  SandboxOptions options;
  options.worker = worker;
  options.search = test_search();
  return options;
}

// sinf(sinf(...(x)...)), whose time and memory grow faster than its text.
inline Source nested(int depth) {
  std::string open, close;
  for (int i = 0; i < depth; ++i) {
    open += "sinf(";
    close += ")";
  }
  return test_source(
      "extern \"C\" __global__ void one(float* out) { *out = " + open + "*out" + close + "; }\n",
      {"one"});
}

}  // namespace attnloom
