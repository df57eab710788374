// SPDX-License-Identifier: Apache-2.0
#include <attnloom/attnloom.hpp>
#include <catch2/catch.hpp>
#include <type_traits>

#include "abi_fixture.h"

namespace {

using attnloom::cxx::Context;
using attnloom::cxx::Error;
using attnloom::cxx::Kernel;
using attnloom::cxx::Memory;
using attnloom::cxx::Plan;

static_assert(std::is_nothrow_move_constructible_v<Kernel> &&
              !std::is_copy_constructible_v<Kernel>);
static_assert(std::is_nothrow_move_constructible_v<Memory> &&
              !std::is_copy_constructible_v<Memory>);

struct Place {
  attnloom::TempDirectory directory;
  std::string cache = directory / "cache";
  alm_context_options options = attnloom::cxx::zeroed<alm_context_options>();
  explicit Place(alm_device device) {
    options.device = device;
    options.cache_dir = cache.c_str();
  }
};

TEST_CASE("an error is thrown with all that alm_error holds") {
  const Place place(ALM_DEVICE_NONE);
  Context context(place.options);
  try {
    Kernel kernel(context, R"({"attnloom": 1, "kernel": "attention", "targt": "sm_90a"})");
    FAIL("opened");
  } catch (const Error& error) {
    CHECK(error.code() == ALM_SPEC_INVALID);
    CHECK(error.path() == "$.targt");
    CHECK(std::string(error.what()).find("SPEC_INVALID at $.targt: ") == 0);
  }
}

TEST_CASE("handles and texts own what they hold") {
  const Place place(ALM_DEVICE_NONE);
  Context context(place.options);
  Kernel kernel(context, kRaggedSpec);
  CHECK(kernel.describe().find("request_key") != std::string::npos);
  alm_plan_limits limits = attnloom::cxx::zeroed<alm_plan_limits>();
  limits.max_batch = 1;
  limits.max_qo_tokens = 1;
  limits.q_heads = 2;
  limits.kv_heads = 1;
  Plan plan(kernel, limits);
  Plan moved = std::move(plan);
  CHECK(moved.sizes().staging_bytes > 0);
  CHECK(plan.get() == nullptr);
}

TEST_CASE("statistics come as JSON and as Prometheus reads them") {
  const Place place(ALM_DEVICE_NONE);
  Context context(place.options);
  CHECK(context.statistics().find("\"compile_seconds\"") != std::string::npos);
  CHECK(context.statistics(ALM_STATISTICS_PROMETHEUS).find("# HELP attnloom_cache_hits_total ") ==
        0);
  try {
    context.statistics(static_cast<alm_statistics_format>(2));
    FAIL("no such format");
  } catch (const Error& error) {
    CHECK(error.code() == ALM_ARGUMENT_INVALID);
    CHECK(error.path() == "format");
  }
}

TEST_CASE("device memory is freed once") {
  const Place place(ALM_DEVICE_SIMULATOR);
  Context context(place.options);
  Memory memory = context.upload(std::vector<int>{1, 2, 3}, "numbers");
  Memory moved = std::move(memory);
  int read[3] = {};
  moved.copy_out(read, sizeof read);
  CHECK(read[2] == 3);
  CHECK_THROWS_AS(moved.copy_out(read, 1000), Error);
}

TEST_CASE("dense tensors and index arrays") {
  const alm_tensor tensor = attnloom::cxx::dense_tensor(nullptr, ALM_BF16, {2, 3, 64});
  CHECK(tensor.rank == 3);
  CHECK(tensor.strides[0] == 192);
  CHECK(tensor.strides[2] == 1);
  const std::vector<std::int32_t> values = {0, 4};
  CHECK(attnloom::cxx::index_array(values).length == 2);
  CHECK(attnloom::cxx::index_array(values).data == values.data());
}

}  // namespace
