// SPDX-License-Identifier: Apache-2.0
// The compiler and the small Sources that the tests of compile and cache share.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "compile/toolchain.h"

namespace attnloom {

// ATTNLOOM_NVRTC, as for the programs under test, so that one build is judged with many versions;
// where it is not set, what the build was configured with.
inline NvrtcSearch test_search() {
  const char* named = std::getenv("ATTNLOOM_NVRTC");
  NvrtcSearch search;
  search.path = named != nullptr ? named : ATTNLOOM_NVRTC_DIR;
  return search;
}

inline std::unique_ptr<Toolchain> test_toolchain() {
  return make_nvrtc_toolchain(test_search());
}

inline Source test_source(std::string text, std::vector<std::string> entries,
                          const std::string& target = "sm_90a") {
  Source source;
  source.text = std::move(text);
  source.options = {"--gpu-architecture=" + target, "--no-cache", "--no-source-include",
                    "--modify-stack-limit=false",   "-std=c++17", "--ptxas-options=-v"};
  source.target = target;
  source.entries = std::move(entries);
  return source;
}

inline Source trivial_source(const std::string& target = "sm_90a") {
  return test_source("extern \"C\" __global__ void one(float* out) { *out = 1.0f; }\n", {"one"},
                     target);
}

}  // namespace attnloom
