// SPDX-License-Identifier: Apache-2.0
// A compiler and a device that only count, so that the engine's tests need no NVRTC and no kernel.
#pragma once

#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/sha256.h"
#include "base/temp_directory.h"
#include "engine/engine.h"

namespace attnloom {

// A gate that threads wait at until a test opens it. It is declared before the engine whose threads
// wait at it: they leave it at the latest when the engine ends.
class Gate {
 public:
  // Notifies under the lock: one that waited may end the gate as soon as it has the lock.
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  // Until so many have come to it.
  void wait_for_waiters(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;  // ever
};

// What a stub compiler did and is to do; shared with the test, because the engine owns the
// compiler.
struct CompilerScript {
  std::atomic<int> compiles{0};
  std::function<Status(const Source&)> fail;      // an error to return
  std::function<int(const Source&)> spill_bytes;  // of the only entry
  std::function<void()> before;                   // called in each compile
  // An error to return, found while somebody may stop the compile.
  std::function<Status(const Source&, const Interrupt&)> interruptible;
  std::string log;  // of every artifact
  std::mutex mutex;
  std::vector<std::string> targets;  // asked for, in order
};

class StubToolchain : public Toolchain {
 public:
  explicit StubToolchain(std::shared_ptr<CompilerScript> script) : script_(std::move(script)) {}
  Result<Fingerprint> fingerprint() override { return kFingerprint; }
  Result<Artifact> compile_interruptibly(const Source& source,
                                         const Interrupt& interrupt) override {
    if (script_->interruptible) ATTNLOOM_CHECK(script_->interruptible(source, interrupt));
    return compile(source);
  }
  Result<Artifact> compile(const Source& source) override {
    ++script_->compiles;
    {
      const std::lock_guard lock(script_->mutex);
      script_->targets.push_back(source.target);
    }
    if (script_->before) script_->before();
    if (script_->fail) {
      if (const Status status = script_->fail(source); !status.ok()) return status;
    }
    Artifact artifact;
    artifact.cubin = "cubin of " + to_hex(sha256(source.text));
    artifact.ptx = "ptx of " + to_hex(sha256(source.text));
    artifact.target = source.target;
    artifact.log = script_->log;
    const int spills = script_->spill_bytes ? script_->spill_bytes(source) : 0;
    for (const std::string& name : source.entries)
      artifact.entries.push_back(
          {.name = name, .registers = 96, .spill_store_bytes = spills, .max_threads = 128});
    artifact.fingerprint = kFingerprint;
    return artifact;
  }

 private:
  inline static const Fingerprint kFingerprint = {"0123456789abcdef", 13, 0, 13000};
  std::shared_ptr<CompilerScript> script_;
};

// One asynchronous copy, performed late, as a GPU may.
struct LateCopy {
  DeviceAddress to = 0;
  std::span<const std::byte> from;
};

struct DeviceScript {
  DeviceInfo info{"stub", {90, 'a'}, 4, 232448, 13000, false};
  int made = 0;
  std::atomic<int> loads{0};
  std::vector<std::string> loaded_cubins;
  std::string refused_target;                     // artifacts of it cannot be loaded
  std::function<Status(const Artifact&)> refuse;  // an error to return from a load
  std::atomic<int> unloads{0};
  int waits = 0;
  std::atomic<bool> capturing{false};
  std::vector<LateCopy> pending;
  std::map<DeviceAddress, std::vector<std::byte>> memory;
  std::vector<LaunchShape> launches;
  std::vector<std::vector<std::byte>> launch_arguments;
  std::vector<std::vector<std::byte>>
      workspace_at_launch;  // first bytes of what the argument block points to

  void perform_all() {
    for (const LateCopy& copy : pending) memory[copy.to].assign(copy.from.begin(), copy.from.end());
    pending.clear();
  }
};

class StubKernel : public LoadedKernel {
 public:
  explicit StubKernel(std::shared_ptr<DeviceScript> script) : script_(std::move(script)) {}
  ~StubKernel() override { ++script_->unloads; }

 private:
  std::shared_ptr<DeviceScript> script_;
};
class StubEvent : public Event {
 public:
  std::size_t copies_before = 0;
};

class StubBackend : public Backend {
 public:
  explicit StubBackend(std::shared_ptr<DeviceScript> script) : script_(std::move(script)) {
    ++script_->made;
  }
  const DeviceInfo& device() const override { return script_->info; }
  Result<std::shared_ptr<LoadedKernel>> load(const Artifact& artifact, const std::string&,
                                             int) override {
    if (artifact.target == script_->refused_target)
      return make_error(Code::kArchMismatch, "", "refused by the stub");
    if (script_->refuse) ATTNLOOM_CHECK(script_->refuse(artifact));
    ++script_->loads;
    const std::lock_guard lock(mutex_);
    script_->loaded_cubins.push_back(artifact.cubin);
    return std::shared_ptr<LoadedKernel>(std::make_shared<StubKernel>(script_));
  }
  Status launch(LoadedKernel&, const LaunchShape& shape, std::span<const std::byte> args,
                Stream) override {
    script_->perform_all();
    script_->launches.push_back(shape);
    script_->launch_arguments.emplace_back(args.begin(), args.end());
    DeviceAddress workspace = 0;
    std::memcpy(&workspace, args.data(), sizeof(workspace));
    script_->workspace_at_launch.push_back(script_->memory[workspace]);
    return ok_status();
  }
  Status copy_in_async(DeviceAddress to, std::span<const std::byte> from, Stream) override {
    script_->pending.push_back({to, from});
    return ok_status();
  }
  Result<TensorMap> encode_tensor_map(const TensorMapShape&) override { return TensorMap{}; }
  Result<std::unique_ptr<Event>> make_event() override {
    return std::unique_ptr<Event>(std::make_unique<StubEvent>());
  }
  Status record(Event& event, Stream) override {
    static_cast<StubEvent&>(event).copies_before = script_->pending.size();
    return ok_status();
  }
  Status wait(Event& event) override {
    ++script_->waits;
    if (static_cast<StubEvent&>(event).copies_before > 0) script_->perform_all();
    return ok_status();
  }
  Result<bool> is_capturing(Stream) override { return script_->capturing.load(); }
  Status synchronize(Stream) override {
    script_->perform_all();
    return ok_status();
  }
  Result<DeviceAddress> allocate(std::size_t, const std::string&) override {
    return DeviceAddress{0x10000};
  }
  Status release(DeviceAddress) override { return ok_status(); }
  Status copy_in(DeviceAddress, std::span<const std::byte>) override { return ok_status(); }
  Status copy_out(std::span<std::byte> to, DeviceAddress from) override {
    const std::vector<std::byte>& bytes = script_->memory[from];
    std::memcpy(to.data(), bytes.data(), std::min(to.size(), bytes.size()));
    return ok_status();
  }
  Result<void*> allocate_host(std::size_t bytes) override { return ::operator new(bytes); }
  Status release_host(void* address) override {
    ::operator delete(address);
    return ok_status();
  }

 private:
  std::shared_ptr<DeviceScript> script_;
  std::mutex mutex_;
};

// An engine over the stubs, with its cache in a directory of the test.
struct StubEngine {
  std::shared_ptr<CompilerScript> compiler = std::make_shared<CompilerScript>();
  std::shared_ptr<DeviceScript> device = std::make_shared<DeviceScript>();
  std::vector<std::string> log;
  std::mutex log_mutex;
  std::unique_ptr<Engine> engine;

  struct Choices {
    std::string root;
    std::vector<std::string> read_only = {};
    bool jit = true;
    bool has_device = true;
    std::string lock_directory = {};
    std::function<void(EngineOptions&)> more = {};
    int least_driver = 0;
    std::string access_log = {};
  };
  explicit StubEngine(const Choices& choices) {
    EngineOptions options;
    if (choices.has_device) {
      options.make_backend = [script = device]() -> Result<std::unique_ptr<Backend>> {
        return std::unique_ptr<Backend>(std::make_unique<StubBackend>(script));
      };
    }
    options.toolchain = std::make_unique<StubToolchain>(compiler);
    options.files = make_real_file_system();
    options.store.root = choices.root;
    options.store.read_only = choices.read_only;
    options.jit = choices.jit;
    options.least_driver = choices.least_driver;
    options.access_log = choices.access_log;
    options.lock_directory = choices.lock_directory;
    options.log = Log(
        [this](LogLevel, const std::string& line) {
          const std::lock_guard lock(log_mutex);
          log.push_back(line);
        },
        LogLevel::kDebug);
    if (choices.more) choices.more(options);
    engine = std::make_unique<Engine>(std::move(options));
  }
  std::shared_ptr<KernelSet> open(const std::string& spec) {
    Result<std::shared_ptr<KernelSet>> kernels = engine->open(spec);
    INFO(kernels.status().to_string());
    REQUIRE(kernels.ok());
    return std::move(kernels).value();
  }
  // Until nothing is in the air, and nothing held by what was.
  void wait_until_idle() const {
    const auto busy = [&] {
      const Json compiles = engine->describe()["compiles"];
      return compiles["running"] != 0 || compiles["waiting"] != 0;
    };
    while (busy()) std::this_thread::yield();
  }
  // The first kernel of a set that ends here.
  AcquiredKernel acquire(const std::string& spec) {
    const std::shared_ptr<KernelSet> kernels = open(spec);
    const Result<const AcquiredKernel*> kernel = kernels->acquire(0);
    INFO(kernel.status().to_string());
    REQUIRE(kernel.ok());
    return *kernel.value();
  }
};

// A spec with one kernel: `extra` goes into the variant.
inline std::string one_kernel_spec(const std::string& extra = "", const std::string& head = "",
                                   int kv_tile = 64) {
  return R"({"attnloom": 1, "kernel": "attention", )" + head +
         R"("dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"}, "head_dim": {"qk": 64, "vo": 64}, "group_size": 2,
"layout": {"kv": "paged", "page_size": 16}, "tile": {"q": 16, "kv": )" +
         std::to_string(kv_tile) + R"(},
"variant": {"name": "test")" +
         (extra.empty() ? "" : ",\n" + extra) + "}}";
}

inline std::string auto_spec() {
  return R"({"attnloom": 1, "kernel": "attention", "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"},
"head_dim": {"qk": 64, "vo": 64}, "group_size": 2, "layout": {"kv": "paged", "page_size": 16}, "tile": "auto",
"variant": {"name": "test"}})";
}

// The last kernel of the set that has a smaller KV tile to step down to.
inline int kernel_that_can_step_down(const KernelSet& kernels) {
  const std::vector<KernelChoice> choices = kernels.choices();
  for (int i = kernels.size() - 1; i >= 0; --i)
    if (step_down(kernels.spec(), choices[i]).ok()) return i;
  FAIL("no kernel of the set can step down");
  return -1;
}

}  // namespace attnloom
