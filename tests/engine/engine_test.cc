// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <unistd.h>
#include <barrier>

#include <catch2/catch.hpp>
#include <fstream>
#include <thread>

#include "cache/bundle_writer.h"
#include "cache/read_only_place.h"
#include "engine/stubs.h"
#include "engine/walk.h"
#include "render/render.h"

namespace attnloom {
namespace {

TEST_CASE("open compiles and loads nothing") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache"});
  const auto kernels = one.open(auto_spec());
  CHECK(kernels->size() > 1);
  CHECK(kernels->request_key(0).value().size() == 64);
  CHECK(one.engine->counters() == EngineCounters{});
  CHECK(one.compiler->compiles == 0);
}

TEST_CASE("the first acquire compiles and loads, every later one is a pointer") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache"});
  const auto kernels = one.open(one_kernel_spec());
  CHECK(kernels->acquired(0) == nullptr);
  const AcquiredKernel* kernel = kernels->acquire(0).value();
  CHECK(kernel->origin == Origin::kCompiled);
  CHECK(kernel->target == "sm_90a");
  CHECK(kernel->figures.registers == 96);
  CHECK(kernels->acquire(0).value() == kernel);
  CHECK(kernels->acquired(0) == kernel);
  CHECK(one.engine->counters() == EngineCounters{.misses = 1, .compiles = 1, .loads = 1});
}

TEST_CASE("a second set of the same spec takes the loaded kernel from memory") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache"});
  REQUIRE(one.open(one_kernel_spec())->prepare().ok());
  const auto again = one.open(one_kernel_spec());
  CHECK(again->acquire(0).value()->origin == Origin::kMemory);
  CHECK(one.engine->counters() ==
        EngineCounters{.memory_hits = 1, .misses = 1, .compiles = 1, .loads = 1});
}

TEST_CASE(
    "a second process takes it from disk, a third from a read-only layer, without a compiler") {
  const TempDirectory root;
  StubEngine first({.root = root / "cache"});
  REQUIRE(first.open(one_kernel_spec())->prepare().ok());

  StubEngine second({.root = root / "cache", .jit = false});
  CHECK(second.acquire(one_kernel_spec()).origin == Origin::kDisk);
  CHECK(second.engine->counters() == EngineCounters{.disk_hits = 1, .loads = 1});
  CHECK(second.device->loaded_cubins == first.device->loaded_cubins);

  StubEngine third({.root = root / "other", .read_only = {root / "cache"}, .jit = false});
  CHECK(third.acquire(one_kernel_spec()).origin == Origin::kReadOnly);
  CHECK(third.engine->counters() == EngineCounters{.read_only_hits = 1, .loads = 1});
  CHECK(third.compiler->compiles == 0);
}

TEST_CASE("without jit a kernel that no layer holds is NOT_CACHED, with the key and the layers") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache", .jit = false});
  const auto kernels = one.open(one_kernel_spec());
  const Status status = kernels->acquire(0).status();
  CHECK(status.code == Code::kNotCached);
  CHECK(status.cause.find(kernels->request_key(0).value()) != std::string::npos);
  CHECK(status.cause.find(root / "cache") != std::string::npos);
  CHECK(status.remedy ==
        "`attnloom explain SPEC` says why; prewarm the spec for sm_90a (`attnloom prewarm`), or "
        "allow compiling");
  CHECK(one.compiler->compiles == 0);
}

TEST_CASE("a bundle is a layer without a compiler; one of other templates is named as the reason") {
  const TempDirectory root;
  StubEngine first({.root = root / "cache"});
  const auto kernels = first.open(one_kernel_spec());
  REQUIRE(kernels->prepare().ok());
  const auto files = make_real_file_system();
  const ReadOnlyPlace place(*files, root / "cache");
  REQUIRE(place.list().size() == 1);
  const std::string entry = place.read(place.list()[0].first, place.list()[0].second)->bytes;
  const auto bundle = [&](const std::string& name, const std::string& templates,
                          std::vector<BundleInput> entries) {
    std::ofstream(root / name, std::ios::binary)
        << write_bundle("1", templates, std::move(entries)).value();
    return root / name;
  };
  const std::string own = template_set_digest();
  const std::string good = bundle("good.alb", own, {{entry, "", Json()}});
  StubEngine second({.root = root / "other", .read_only = {good}, .jit = false});
  CHECK(second.acquire(one_kernel_spec()).origin == Origin::kBundle);
  CHECK(second.engine->counters() == EngineCounters{.bundle_hits = 1, .loads = 1});
  CHECK(second.compiler->compiles == 0);

  const std::string old = bundle("old.alb", std::string(64, '7'), {});
  const std::string empty = bundle("empty.alb", own, {});
  StubEngine third({.root = root / "other", .read_only = {old, empty, good}, .jit = false});
  const Status status = third.open(one_kernel_spec("", "", 128))->acquire(0).status();
  CHECK(status.code == Code::kNotCached);
  CHECK(status.cause.find("; " + old + " is a bundle for templates 777777777777, the library has " +
                          own.substr(0, 12)) != std::string::npos);
  CHECK(status.cause.find("; " + empty + " is a bundle without kernels for sm_90a") !=
        std::string::npos);
  CHECK(status.cause.find(good + " is a bundle") == std::string::npos);
}

TEST_CASE("without any cache directory kernels live in memory") {
  StubEngine one({.root = ""});
  REQUIRE(one.open(one_kernel_spec())->prepare().ok());
  REQUIRE(one.open(one_kernel_spec())->prepare().ok());
  CHECK(one.engine->counters().compiles == 1);
}

// B77.
TEST_CASE("a failed compile fails each time, leaves nothing behind, and the mended spec works") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache"});
  one.compiler->fail = [](const Source& source) {
    if (source.text.find("undefined_name") == std::string::npos) return ok_status();
    return make_error(Code::kCompileFailed, "$.variant.logits_transform",
                      "variant.logits_transform:2: identifier \"undefined_name\" is undefined");
  };
  const auto broken = one.open(
      one_kernel_spec(R"("logits_transform": "float x = logits;\nreturn undefined_name;")"));
  for (int i = 1; i <= 3; ++i) {
    const Status status = broken->acquire(0).status();
    CHECK(status.code == Code::kCompileFailed);
    CHECK(status.path == "$.variant.logits_transform");
    CHECK(status.cause ==
          "line 4 of the JSON, line 2 of the field: identifier \"undefined_name\" is undefined");
    CHECK(one.compiler->compiles == 1);
    CHECK(one.engine->counters().negative_hits == i - 1u);
  }
  CHECK(one.device->loads == 0);
  CHECK(one.engine->store().counters().published == 0);
  CHECK(one.open(one_kernel_spec(R"("logits_transform": "float x = logits;\nreturn x;")"))
            ->prepare()
            .ok());
}

TEST_CASE(
    "a compile error in a composed functor names the member, or the JSON line of the own part") {
  // Lines 2 and 5 begin members, line 7 the user's own, which stands on line 30 of the JSON.
  const FieldOrigin both{30, 7, {{"soft_cap", 2}, {"alibi", 5}}};
  const FieldOrigin members{0, 1, {{"soft_cap", 2}, {"alibi", 5}}};
  const auto cause = [](const FieldOrigin& origin, int line) {
    const Status error =
        make_error(Code::kCompileFailed, "$.variant.logits_mask",
                   "variant.logits_mask:" + std::to_string(line) + ": unknown", "correct it");
    return with_json_line(error, {{"variant.logits_mask", origin}}).cause;
  };
  CHECK(cause(both, 3) == "shipped variant \"soft_cap\", line 2 of the field: unknown");
  CHECK(cause(both, 5) == "shipped variant \"alibi\", line 1 of the field: unknown");
  CHECK(cause(both, 8) == "line 30 of the JSON, line 2 of the field: unknown");
  CHECK(cause(members, 9) == "shipped variant \"alibi\", line 5 of the field: unknown");
  CHECK(cause({30, 1, {}}, 4) == "line 30 of the JSON, line 4 of the field: unknown");
}

TEST_CASE("a compiler that reports success without a cubin is an error, and nothing is kept") {
  class EmptyToolchain : public StubToolchain {
   public:
    using StubToolchain::StubToolchain;
    Result<Artifact> compile(const Source& source) override {
      ATTNLOOM_TRY(Artifact artifact, StubToolchain::compile(source));
      artifact.cubin.clear();
      return artifact;
    }
  };
  const TempDirectory root;
  EngineOptions options;
  options.toolchain = std::make_unique<EmptyToolchain>(std::make_shared<CompilerScript>());
  options.files = make_real_file_system();
  options.store.root = root / "cache";
  Engine engine(std::move(options));
  const auto kernels = engine.open(one_kernel_spec("", R"("target": "sm_90a", )")).value();
  CHECK(kernels->acquire(0).status().code == Code::kCompileFailed);
  CHECK(engine.store().counters().published == 0);
}

// B107.
TEST_CASE("16 threads asking for two new kernels cause two compiles, in parallel") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache", .lock_directory = root / "locks"});
  std::barrier both(2);  // each compile waits for the other: they must overlap
  one.compiler->before = [&] { both.arrive_and_wait(); };
  std::atomic<int> good{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 16; ++i) {
      threads.emplace_back([&, i] {
        const auto kernels = one.engine->open(one_kernel_spec("", "", i % 2 == 0 ? 64 : 128));
        if (kernels.ok() && kernels.value()->prepare().ok()) ++good;
      });
    }
  }
  CHECK(good == 16);
  const EngineCounters counters = one.engine->counters();
  CHECK(counters.compiles == 2);
  CHECK(counters.loads == 2);
  // Who looks between a publication and the hand-over in memory finds the kernel on disk.
  CHECK(counters.memory_hits + counters.disk_hits == 14);
}

// B55.
TEST_CASE(
    "during a capture a kernel that is not loaded is refused before anything is compiled or "
    "loaded") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache"});
  const auto kernels = one.open(one_kernel_spec());
  one.device->capturing = true;
  int stream = 0;
  const Status status = kernels->acquire(0, &stream).status();
  CHECK(status.code == Code::kCaptureActive);
  CHECK(status.remedy.find("alm_kernel_prepare") != std::string::npos);
  CHECK(one.engine->counters() == EngineCounters{});
  one.device->capturing = false;
  REQUIRE(kernels->prepare().ok());
  one.device->capturing = true;
  CHECK(kernels->acquire(0, &stream).ok());
}

// B99, on the engine's side: the runtime room tests that the device is the current one.
TEST_CASE("without a target the device's own is compiled for, and a named one is used as it is") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache"});
  one.device->info.target = {86, '\0'};
  CHECK(one.acquire(one_kernel_spec()).target == "sm_86");
  CHECK(one.acquire(one_kernel_spec("", R"("target": "sm_80", )")).target == "sm_80");
  CHECK(one.compiler->targets == std::vector<std::string>{"sm_86", "sm_80"});
}

TEST_CASE("a named target that the device cannot load is refused before the compile") {
  StubEngine one({.root = ""});
  const Status status =
      one.open(one_kernel_spec("", R"("target": "sm_80", )"))->acquire(0).status();
  CHECK(status.code == Code::kArchMismatch);
  CHECK(status.path == "$.target");
  CHECK(one.compiler->compiles == 0);
}

TEST_CASE("without a named target a cached kernel of the same family is taken before a compile") {
  const TempDirectory root;
  StubEngine prewarmed({.root = root / "cache", .has_device = false});
  REQUIRE(prewarmed.open(one_kernel_spec("", R"("target": "sm_80", )"))->prepare().ok());
  StubEngine one({.root = root / "cache"});
  one.device->info.target = {86, '\0'};
  const AcquiredKernel kernel = one.acquire(one_kernel_spec());
  CHECK(kernel.target == "sm_80");
  CHECK(kernel.origin == Origin::kDisk);
  CHECK(one.compiler->compiles == 0);

  StubEngine refusing({.root = root / "cache"});
  refusing.device->info.target = {86, '\0'};
  refusing.device->refused_target = "sm_80";
  CHECK(refusing.acquire(one_kernel_spec()).target == "sm_86");
  CHECK(refusing.compiler->compiles == 1);
}

TEST_CASE("without a device a target must be named, and nothing is loaded") {
  const TempDirectory root;
  StubEngine one({.root = root / "cache", .has_device = false});
  const auto refused = one.engine->open(one_kernel_spec());
  CHECK(refused.status().code == Code::kSpecInvalid);
  CHECK(refused.status().path == "$.target");
  const auto kernels = one.open(one_kernel_spec("", R"("target": "sm_90a", )"));
  CHECK(kernels->acquire(0).value()->loaded == nullptr);
  CHECK(one.engine->backend().status().code == Code::kNoDevice);
}

// B105, on the engine's side.
TEST_CASE("with a named target, opening and keys do not touch the device") {
  StubEngine one({.root = ""});
  const auto kernels = one.open(one_kernel_spec("", R"("target": "sm_90a", )"));
  CHECK(kernels->request_key(0).ok());
  CHECK(kernels->describe()["kernels"].size() == 1);
  CHECK(one.device->made == 0);
}

TEST_CASE(
    "a kernel that spills steps down, and a later process walks the same steps from the cache") {
  const TempDirectory root;
  std::string settled;
  int index = 0;
  {
    StubEngine one({.root = root / "cache"});
    one.compiler->spill_bytes = [&](const Source&) { return one.compiler->compiles == 1 ? 24 : 0; };
    const auto kernels = one.open(auto_spec());
    index = kernel_that_can_step_down(*kernels);
    const KernelChoice before = kernels->choices()[index];
    const AcquiredKernel* kernel = kernels->acquire(index).value();
    CHECK(kernel->choice.classes.back().kv < before.classes.back().kv);
    CHECK(kernels->choices()[index] == kernel->choice);
    REQUIRE(kernel->stepped_down.size() == 1);
    CHECK(kernel->stepped_down[0].figures.spill_store_bytes == 24);
    CHECK(kernels->describe()["kernels"][index]["stepped_down"].size() == 1);
    CHECK(one.engine->counters() ==
          EngineCounters{.misses = 2, .compiles = 2, .step_downs = 1, .loads = 1});
    settled = kernel->request_key;
  }
  StubEngine later({.root = root / "cache", .jit = false});
  const auto later_kernels = later.open(auto_spec());
  const AcquiredKernel* kernel = later_kernels->acquire(index).value();
  CHECK(kernel->request_key == settled);
  CHECK(later.engine->counters() == EngineCounters{.disk_hits = 2, .step_downs = 1, .loads = 1});
}

TEST_CASE("a kernel that spills at its smallest tile is used, with a warning") {
  StubEngine one({.root = ""});
  one.compiler->spill_bytes = [](const Source&) { return 8; };
  const auto kernels = one.open(auto_spec());
  CHECK(kernels->acquire(0).value()->figures.spill_store_bytes == 8);
  bool warned = false;
  for (const std::string& line : one.log)
    warned = warned || line.find("spills") != std::string::npos;
  CHECK(warned);
}

TEST_CASE("a renamed variant and a reformatted spec have the same key") {
  StubEngine one({.root = ""});
  const std::string spec = one_kernel_spec();
  std::string renamed = spec;
  renamed.replace(renamed.find("\"test\""), 6, "\"other\"");
  renamed.insert(1, "\n\n  ");
  CHECK(one.open(spec)->request_key(0).value() == one.open(renamed)->request_key(0).value());
}

// B127: one line at the start with spec, key and target, one at the end.
TEST_CASE("a compile logs its start and its end") {
  StubEngine one({.root = ""});
  const auto kernels = one.open(one_kernel_spec());
  REQUIRE(kernels->prepare().ok());
  const auto has = [&](const std::string& text) {
    return std::any_of(one.log.begin(), one.log.end(), [&](const std::string& line) {
      return line.find(text) != std::string::npos;
    });
  };
  CHECK(has("compiling test attention_mma 16x64 for sm_90a, request_key " +
            kernels->request_key(0).value()));
  CHECK(has("compiled test attention_mma 16x64 for sm_90a in "));
}

TEST_CASE("describe shows origin, key and figures once a kernel was acquired") {
  StubEngine one({.root = ""});
  const auto kernels = one.open(one_kernel_spec());
  CHECK_FALSE(kernels->describe()["kernels"][0].contains("key"));
  REQUIRE(kernels->prepare().ok());
  const Json described = kernels->describe()["kernels"][0];
  CHECK(described["source"] == "compiled");
  CHECK(described["key"].get<std::string>().size() == 64);
  CHECK(described["registers"] == 96);
  CHECK(described["classes"][0]["kv"] == 64);
  CHECK(kernels->describe()["spec"]["target"] == "sm_90a");
  CHECK(one.engine->describe()["counters"]["compiles"] == 1);
  CHECK(one.engine->describe()["device"]["name"] == "stub");
}

TEST_CASE("a spec that is refused names its field") {
  StubEngine one({.root = ""});
  const auto opened =
      one.engine->open(R"({"attnloom": 1, "kernel": "attention", "targt": "sm_90a"})");
  CHECK(opened.status().code == Code::kSpecInvalid);
  CHECK(opened.status().path == "$.targt");
  CHECK(one.device->made == 0);
}

}  // namespace
}  // namespace attnloom
