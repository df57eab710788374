// SPDX-License-Identifier: Apache-2.0
// A context over the simulator with its cache in a directory of the test, and errors that a test
// can look at.
#pragma once

#include <attnloom/attnloom.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>

#include "base/temp_directory.h"

// What an alm_error said, after it was freed.
struct Told {
  alm_code code = ALM_OK;
  std::string name, path, cause, remedy;
};

template <class Call>
Told tell(Call&& call) {
  alm_error* error = reinterpret_cast<alm_error*>(1);  // must be overwritten, on success too
  Told told;
  told.code = call(&error);
  if (told.code == ALM_OK) {
    CHECK(error == nullptr);
    return told;
  }
  REQUIRE(error != nullptr);
  CHECK(error->code == told.code);
  told.name = error->name;
  told.path = error->path;
  told.cause = error->cause;
  told.remedy = error->remedy;
  alm_error_free(error);
  return told;
}

inline const std::string kRaggedSpec =
    R"({"attnloom": 1, "kernel": "attention", "target": "sm_90a", "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"},
"head_dim": {"qk": 64, "vo": 64}, "group_size": 2, "layout": {"kv": "ragged"}, "variant": {"name": "plain"}})";

class AbiFixture {
 public:
  explicit AbiFixture(alm_device device = ALM_DEVICE_NONE) {
    options.struct_bytes = sizeof options;
    options.device = device;
    options.cache_dir = cache.c_str();
    REQUIRE(tell([&](alm_error** error) {
              return alm_context_create(&options, &context, error);
            }).code == ALM_OK);
  }
  ~AbiFixture() {
    alm_plan_destroy(plan);
    alm_kernel_destroy(kernel);
    alm_context_destroy(context);
  }
  Told open(const std::string& spec) {
    return tell([&](alm_error** error) {
      return alm_kernel_open(context, spec.data(), spec.size(), &kernel, error);
    });
  }
  Told create_plan() {
    limits.struct_bytes = sizeof limits;
    limits.max_batch = 4;
    limits.max_qo_tokens = 8;
    limits.q_heads = 4;
    limits.kv_heads = 2;
    sizes.struct_bytes = sizeof sizes;
    return tell(
        [&](alm_error** error) { return alm_plan_create(kernel, &limits, &plan, &sizes, error); });
  }

  attnloom::TempDirectory directory;
  std::string cache = directory / "cache";
  alm_context_options options = {};
  alm_plan_limits limits = {};
  alm_plan_sizes sizes = {};
  alm_context* context = nullptr;
  alm_kernel* kernel = nullptr;
  alm_plan* plan = nullptr;
};
