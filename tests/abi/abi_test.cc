// SPDX-License-Identifier: Apache-2.0
#include "abi/convert.h"
#include "abi_fixture.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

extern "C" int alm_header_is_as_published(void);

namespace {

using Json = nlohmann::json;

std::string take_text(alm_text* text) {
  std::string copy(text->data, text->bytes);
  CHECK(text->data[text->bytes] == '\0');
  alm_text_free(text);
  return copy;
}

TEST_CASE("versions and code names") {
  CHECK(alm_header_is_as_published() == 1);
  CHECK(alm_abi_version() == ALM_ABI_VERSION);
  CHECK(std::string(alm_version()) == "0.1.0");
  CHECK(std::string(alm_code_name(ALM_SPEC_INVALID)) == "SPEC_INVALID");
  CHECK(std::string(alm_code_name(ALM_CAPTURE_ACTIVE)) == "CAPTURE_ACTIVE");
}

TEST_CASE("destroying and freeing NULL does nothing") {
  alm_context_destroy(nullptr);
  alm_kernel_destroy(nullptr);
  alm_plan_destroy(nullptr);
  alm_error_free(nullptr);
  alm_text_free(nullptr);
}

TEST_CASE("NULL arguments are errors with the argument's name, never a crash") {
  AbiFixture one;
  CHECK(tell([](alm_error** error) { return alm_context_create(nullptr, nullptr, error); }).path ==
        "context");
  CHECK(tell([&](alm_error** e) {
          return alm_kernel_open(one.context, nullptr, 0, &one.kernel, e);
        }).path == "spec_json");
  CHECK(tell([&](alm_error** e) {
          return alm_kernel_open(nullptr, "{}", 2, &one.kernel, e);
        }).path == "context");
  CHECK(tell([](alm_error** error) { return alm_kernel_prepare(nullptr, error); }).path ==
        "kernel");
  CHECK(tell([](alm_error** error) { return alm_run(nullptr, nullptr, nullptr, error); }).path ==
        "plan");
  CHECK(tell([](alm_error** error) { return alm_synchronize(nullptr, nullptr, error); }).path ==
        "context");
  CHECK(tell([](alm_error** error) {
          return alm_tensor_from_dlpack(nullptr, nullptr, error);
        }).path == "dl_tensor");
  // Without a place for the error the code alone is returned.
  CHECK(alm_kernel_prepare(nullptr, nullptr) == ALM_ARGUMENT_INVALID);
}

TEST_CASE("a struct of another age is read by its size") {
  AbiFixture one;
  alm_context* made = nullptr;
  SECTION("size not set") {
    one.options.struct_bytes = 0;
    CHECK(tell([&](alm_error** e) { return alm_context_create(&one.options, &made, e); }).path ==
          "options.struct_bytes");
  }
  SECTION("an older, shorter one") {
    one.options.struct_bytes = offsetof(alm_context_options, log);
    one.options.log = reinterpret_cast<alm_log_callback>(std::uintptr_t{1});  // lies behind its end
    CHECK(alm_context_create(&one.options, &made, nullptr) == ALM_OK);
    alm_context_destroy(made);
  }
  SECTION("a newer, longer one") {
    struct {
      alm_context_options known;
      long long unknown;
    } newer = {one.options, 0};
    newer.known.struct_bytes = sizeof newer;
    REQUIRE(alm_context_create(&newer.known, &made, nullptr) == ALM_OK);
    alm_context_destroy(made);
    newer.unknown = 1;
    CHECK(tell([&](alm_error** e) {
            return alm_context_create(&newer.known, &made, e);
          }).cause.find("does not have") != std::string::npos);
  }
}

TEST_CASE("options outside their tables are refused by name") {
  AbiFixture one;
  alm_context* made = nullptr;
  one.options.device = static_cast<alm_device>(9);
  CHECK(tell([&](alm_error** e) { return alm_context_create(&one.options, &made, e); }).path ==
        "options.device");
  one.options.device = ALM_DEVICE_SIMULATOR;
  one.options.simulator_profile = "b200";
  CHECK(tell([&](alm_error** e) { return alm_context_create(&one.options, &made, e); }).path ==
        "simulator_profile");
  one.options.simulator_profile = nullptr;
  one.options.cache_max_size = "63M";
  CHECK(tell([&](alm_error** e) { return alm_context_create(&one.options, &made, e); }).path ==
        "option cache_max_size");
  CHECK(made == nullptr);
}

TEST_CASE("a spec error carries name, path, cause and remedy") {
  AbiFixture one;
  const Told told = one.open(R"({"attnloom": 1, "kernel": "attention", "targt": "sm_90a"})");
  CHECK(told.code == ALM_SPEC_INVALID);
  CHECK(told.name == "SPEC_INVALID");
  CHECK(told.path == "$.targt");
  CHECK_FALSE(told.cause.empty());
  CHECK_FALSE(told.remedy.empty());
  CHECK(one.kernel == nullptr);
}

TEST_CASE("without a device: open, describe, plan; a run says NO_DEVICE") {
  AbiFixture one;
  REQUIRE(one.open(kRaggedSpec).code == ALM_OK);
  alm_text* text = nullptr;
  REQUIRE(alm_kernel_describe(one.kernel, &text, nullptr) == ALM_OK);
  const Json described = Json::parse(take_text(text));
  CHECK(described["spec"]["target"] == "sm_90a");
  CHECK(described["kernels"][0]["request_key"].get<std::string>().size() == 64);

  REQUIRE(one.create_plan().code == ALM_OK);
  CHECK(one.sizes.workspace_bytes > 0);
  CHECK(one.sizes.workspace_bytes % 256 == 0);
  alm_attention tensors = {};
  tensors.struct_bytes = sizeof tensors;
  CHECK(tell([&](alm_error** e) { return alm_run(one.plan, &tensors, nullptr, e); }).code ==
        ALM_NO_DEVICE);
  CHECK(tell([&](alm_error** e) { return alm_plan_describe(one.plan, &text, e); }).code ==
        ALM_PLAN_STALE);

  REQUIRE(alm_context_describe(one.context, &text, nullptr) == ALM_OK);
  const Json context = Json::parse(take_text(text));
  CHECK(context["device"] == "none");
  CHECK(context["cache"]["origin"] == "option cache_dir");
  CHECK(context["counters"]["compiles"] == 0);
}

TEST_CASE("limits of a plan are refused by name, and say what a plan is") {
  AbiFixture one;
  REQUIRE(one.open(kRaggedSpec).code == ALM_OK);
  const auto refused = [&](std::int32_t alm_plan_limits::*field, std::int32_t value) {
    one.limits = {};
    one.limits.*field = value;
    const Told told = one.create_plan();
    CHECK(told.code == ALM_ARGUMENT_INVALID);
    return told.path;
  };
  CHECK(refused(&alm_plan_limits::batch_invariant, 2) == "limits.batch_invariant");
  CHECK(refused(&alm_plan_limits::graph, -1) == "limits.graph");
  CHECK(refused(&alm_plan_limits::kernel, -1) == "limits.kernel");
  CHECK(refused(&alm_plan_limits::kernel, 99) == "limits.kernel");
  CHECK(refused(&alm_plan_limits::sm_budget, -1) == "limits.sm_budget");
  CHECK(refused(&alm_plan_limits::max_ctas, 100000) == "limits.max_ctas");
  CHECK(one.plan == nullptr);

  one.limits = {};
  one.limits.max_ctas = 3;
  one.limits.batch_invariant = 1;
  one.limits.kernel = 1;
  REQUIRE(one.create_plan().code == ALM_OK);
  const std::int32_t qo[] = {0, 1};
  const std::int32_t kv[] = {0, 100000};
  alm_workload workload = {};
  workload.struct_bytes = sizeof workload;
  workload.qo_indptr = {qo, 2, 1, ALM_I32};
  workload.kv_indptr = {kv, 2, 1, ALM_I32};
  const Told told =
      tell([&](alm_error** e) { return alm_plan_update(one.plan, &workload, nullptr, e); });
  INFO(told.cause);
  REQUIRE(told.code == ALM_OK);
  alm_text* text = nullptr;
  REQUIRE(alm_plan_describe(one.plan, &text, nullptr) == ALM_OK);
  const Json plan = Json::parse(take_text(text));
  CHECK(plan["grid"] == 3);
  CHECK(plan["figures"]["items"] == 2 * 16);  // 2 KV heads of 16 chunks
}

TEST_CASE("a negative scale is refused") {
  AbiFixture one;
  REQUIRE(one.open(kRaggedSpec).code == ALM_OK);
  REQUIRE(one.create_plan().code == ALM_OK);
  const std::int32_t indptr[] = {0};
  alm_workload workload = {};
  workload.struct_bytes = sizeof workload;
  workload.qo_indptr = workload.kv_indptr = {indptr, 1, 0, ALM_DTYPE_NONE};
  workload.scale = -1;
  const Told told =
      tell([&](alm_error** e) { return alm_plan_update(one.plan, &workload, nullptr, e); });
  CHECK(told.code == ALM_WORKLOAD_INVALID);
  CHECK(told.path == "workload.scale");
}

// B111.
TEST_CASE("index arrays of another width or stride are refused by name") {
  AbiFixture one;
  REQUIRE(one.open(kRaggedSpec).code == ALM_OK);
  REQUIRE(one.create_plan().code == ALM_OK);
  const std::int32_t qo[] = {0, 1, 2};
  const std::int64_t wide[] = {0, 1, 2};
  alm_workload workload = {};
  workload.struct_bytes = sizeof workload;
  workload.qo_indptr = {qo, 3, 0, ALM_DTYPE_NONE};
  workload.kv_indptr = {wide, 3, 1, ALM_I64};
  const auto update = [&] {
    return tell([&](alm_error** e) { return alm_plan_update(one.plan, &workload, nullptr, e); });
  };
  Told told = update();
  CHECK(told.code == ALM_WORKLOAD_INVALID);
  CHECK(told.path == "workload.kv_indptr");
  CHECK(told.cause == "dtype must be i32, given i64");
  workload.kv_indptr = {wide, 3, 2, ALM_I32};
  told = update();
  CHECK(told.path == "workload.kv_indptr");
  CHECK(told.cause == "stride must be 1, given 2");
  workload.kv_indptr = {wide, 3, 1, static_cast<alm_dtype>(99)};
  CHECK(update().cause == "dtype must be i32, given unknown dtype 99");
  workload.kv_indptr = {nullptr, 3, 1, ALM_I32};
  CHECK(update().cause.find("NULL") != std::string::npos);
  workload.kv_indptr = {qo, -1, 1, ALM_I32};
  CHECK(update().cause.find("negative") != std::string::npos);
  workload.kv_indptr = {qo, 3, 1, ALM_I32};
  const std::pair<alm_index_array*, const char*> others[] = {
      {&workload.kv_start, "workload.kv_start"},
      {&workload.block_indptr, "workload.block_indptr"},
      {&workload.block_indices, "workload.block_indices"}};
  for (const auto& [array, path] : others) {
    *array = {wide, 3, 1, ALM_I64};
    CHECK(update().path == path);
    *array = {qo, 3, 1, ALM_I32};  // converted, and not of this layout
    CHECK(update().path == path);
    *array = {};
  }
  workload.kv_capacity = 5;
  CHECK(update().path == "workload.kv_capacity");
}

TEST_CASE("scales of an 8-bit cache are read, and are not there in a struct of before") {
  alm_attention given = {};
  given.struct_bytes = sizeof given;
  float scales[3] = {};
  given.k_scale = {scales, ALM_F32, 1, {1}, {1}};
  given.v_scale = {scales + 1, ALM_F32, 1, {2}, {1}};
  attnloom::AttentionTensors tensors;
  REQUIRE(attnloom::convert_attention(&given, &tensors).ok());
  CHECK(tensors.k_scale.data == attnloom::address_of(scales));
  CHECK(tensors.k_scale.shape[0] == 1);
  CHECK(tensors.v_scale.data == attnloom::address_of(scales + 1));
  CHECK(tensors.v_scale.shape[0] == 2);
  given.struct_bytes = offsetof(alm_attention, k_scale);
  REQUIRE(attnloom::convert_attention(&given, &tensors).ok());
  CHECK_FALSE(tensors.k_scale.given());
  CHECK_FALSE(tensors.v_scale.given());
}

TEST_CASE("memory on the simulator goes in and out, and bad addresses are errors") {
  AbiFixture one(ALM_DEVICE_SIMULATOR);
  void* address = nullptr;
  REQUIRE(alm_memory_allocate(one.context, 16, nullptr, &address, nullptr) == ALM_OK);
  const char in[16] = "fifteen letters";
  char out[16] = {};
  REQUIRE(alm_memory_copy_in(one.context, address, in, sizeof in, nullptr) == ALM_OK);
  REQUIRE(alm_memory_copy_out(one.context, out, address, sizeof out, nullptr) == ALM_OK);
  CHECK(std::string(out) == in);
  CHECK(alm_memory_copy_out(one.context, out, nullptr, 1, nullptr) != ALM_OK);
  CHECK(alm_synchronize(one.context, nullptr, nullptr) == ALM_OK);
  Told told = tell([&](alm_error** e) {
    return alm_memory_free(one.context, static_cast<char*>(address) + 1, e);
  });
  CHECK(told.code == ALM_ARGUMENT_INVALID);
  CHECK(told.path == "address");
  void* none = nullptr;
  told =
      tell([&](alm_error** e) { return alm_memory_allocate(one.context, 0, nullptr, &none, e); });
  CHECK(told.code == ALM_ARGUMENT_INVALID);
  CHECK(told.path == "bytes");
  CHECK(alm_memory_free(one.context, address, nullptr) == ALM_OK);
  CHECK(alm_memory_free(one.context, nullptr, nullptr) == ALM_OK);
}

TEST_CASE("host memory is aligned, and only what was allocated can be freed") {
  AbiFixture one(ALM_DEVICE_SIMULATOR);
  void* address = nullptr;
  REQUIRE(alm_memory_allocate_host(one.context, 100, &address, nullptr) == ALM_OK);
  CHECK(reinterpret_cast<std::uintptr_t>(address) % 64 == 0);
  std::memset(address, 7, 100);
  CHECK(alm_memory_free_host(one.context, address, nullptr) == ALM_OK);
  Told told = tell([&](alm_error** e) { return alm_memory_free_host(one.context, address, e); });
  CHECK(told.code == ALM_ARGUMENT_INVALID);
  CHECK(told.path == "address");
  CHECK(alm_memory_free_host(one.context, nullptr, nullptr) == ALM_OK);
  told = tell([&](alm_error** e) { return alm_memory_allocate_host(one.context, 0, &address, e); });
  CHECK(told.code == ALM_ARGUMENT_INVALID);
  CHECK(told.path == "bytes");
}

void remember(void* user, int level, const char* message) {
  static_cast<std::vector<std::string>*>(user)->push_back(std::to_string(level) + " " + message);
}

TEST_CASE("log lines go to the callback, from the wanted level on") {
  const attnloom::TempDirectory directory;
  std::vector<std::string> lines;
  alm_context_options options = {};
  options.struct_bytes = sizeof options;
  options.device = ALM_DEVICE_SIMULATOR;
  const std::string cache = directory / "cache";
  options.cache_dir = cache.c_str();
  options.log = remember;
  options.log_user = &lines;
  for (const int level : {0, 1}) {
    options.log_level = level;
    alm_context* context = nullptr;
    REQUIRE(alm_context_create(&options, &context, nullptr) == ALM_OK);
    REQUIRE(alm_synchronize(context, nullptr, nullptr) == ALM_OK);  // makes the device
    alm_context_destroy(context);
    CHECK(lines.size() == static_cast<std::size_t>(level));
  }
  CHECK(lines[0] == "1 device: simulated h200, sm_90a");
}

struct DlTensor {  // DLPack's DLTensor, by its published layout
  void* data;
  std::int32_t device_type, device_id, ndim;
  std::uint8_t code, bits;
  std::uint16_t lanes;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};

TEST_CASE("a DLPack tensor becomes a view") {
  std::int64_t shape[] = {2, 3, 64};
  std::int64_t strides[] = {1000, 64, 1};
  DlTensor given = {reinterpret_cast<void*>(0x1000), 2, 0, 3, 4, 16, 1, shape, strides, 32};
  alm_tensor tensor = {};
  REQUIRE(alm_tensor_from_dlpack(&given, &tensor, nullptr) == ALM_OK);
  CHECK(tensor.data == reinterpret_cast<void*>(0x1020));
  CHECK(tensor.dtype == ALM_BF16);
  CHECK(tensor.rank == 3);
  CHECK(tensor.strides[0] == 1000);
  given.strides = nullptr;
  REQUIRE(alm_tensor_from_dlpack(&given, &tensor, nullptr) == ALM_OK);
  CHECK(tensor.strides[0] == 192);
  SECTION("on the CPU") {
    given.device_type = 1;
    CHECK(tell([&](alm_error** e) { return alm_tensor_from_dlpack(&given, &tensor, e); }).path ==
          "dl_tensor.device");
  }
  SECTION("complex numbers") {
    given.code = 5;
    CHECK(tell([&](alm_error** e) { return alm_tensor_from_dlpack(&given, &tensor, e); }).path ==
          "dl_tensor.dtype");
  }
  SECTION("six dimensions") {
    given.ndim = 6;
    CHECK(tell([&](alm_error** e) { return alm_tensor_from_dlpack(&given, &tensor, e); }).path ==
          "dl_tensor.ndim");
  }
}

}  // namespace
