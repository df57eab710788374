// SPDX-License-Identifier: Apache-2.0
// The compiler and the small Sources that the tests of compile and cache share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "compile/toolchain.h"

namespace attnloom {

inline NvrtcSearch test_search() {
  NvrtcSearch search;
  search.path = ATTNLOOM_NVRTC_DIR;
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
