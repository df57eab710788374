// SPDX-License-Identifier: Apache-2.0
#include "kernels/graph_device.h"

#include <dlfcn.h>

#include <utility>
#include <vector>

#include "kernels/kernel_rig.h"
#include "runtime/cuda.h"
#include "runtime/sim_backend.h"

namespace attnloom::testing {
namespace {

class RecordingBackend : public SimBackend {
 public:
  using SimBackend::SimBackend;
  Result<bool> is_capturing(Stream) override { return capturing; }
  Status launch(LoadedKernel& kernel, const LaunchShape& shape, std::span<const std::byte> args,
                Stream stream) override {
    if (!capturing) return SimBackend::launch(kernel, shape, args, stream);
    recorded_.push_back({&kernel, shape, {args.begin(), args.end()}});
    return ok_status();
  }
  Status replay() {
    for (const Recorded& one : recorded_)
      ATTNLOOM_CHECK(SimBackend::launch(*one.kernel, one.shape, one.args, nullptr));
    return ok_status();
  }
  bool capturing = false;

 private:
  struct Recorded {
    LoadedKernel* kernel = nullptr;
    LaunchShape shape;
    std::vector<std::byte> args;
  };
  std::vector<Recorded> recorded_;
};

class SimulatedGraphs : public GraphDevice {
 public:
  Result<std::unique_ptr<Backend>> make_backend() override {
    auto made = std::make_unique<RecordingBackend>(*sim::find_profile("h200"), sim::Options{});
    backend_ = made.get();
    return std::unique_ptr<Backend>(std::move(made));
  }
  Stream stream() override { return nullptr; }
  Status begin_capture() override {
    backend_->capturing = true;
    return ok_status();
  }
  Status end_capture() override {
    backend_->capturing = false;
    return ok_status();
  }
  Status replay() override { return backend_->replay(); }
  void set_seed(std::uint64_t seed) override { backend_->set_seed(seed); }
  std::string take_finding() override {
    const sim::Report report = backend_->take_report();
    if (report.findings.empty()) return "";
    const sim::Finding& first = report.findings.front();
    return first.kind + " at " + first.place + ": " + first.detail;
  }

 private:
  RecordingBackend* backend_ = nullptr;
};

// The few functions of the driver that only someone who captures needs. What is made here lives as
// long as the process.
class CudaGraphs : public GraphDevice {
 public:
  Result<std::unique_ptr<Backend>> make_backend() override {
    ATTNLOOM_TRY(std::unique_ptr<Backend> backend, make_cuda_backend(""));
    ATTNLOOM_CHECK(open());
    // A blocking stream: synchronous copies wait for it.
    ATTNLOOM_CHECK(check(stream_create_(&stream_, 0), "cuStreamCreate"));
    return backend;
  }
  Stream stream() override { return stream_; }
  Status begin_capture() override {
    constexpr int kGlobal = 0;  // the strictest mode: of all threads
    return check(begin_(stream_, kGlobal), "cuStreamBeginCapture");
  }
  Status end_capture() override {
    void* graph = nullptr;
    ATTNLOOM_CHECK(check(end_(stream_, &graph), "cuStreamEndCapture"));
    void* executable = nullptr;
    ATTNLOOM_CHECK(check(instantiate_(&executable, graph, 0), "cuGraphInstantiateWithFlags"));
    graphs_.push_back(executable);
    return ok_status();
  }
  Status replay() override {
    for (void* graph : graphs_) ATTNLOOM_CHECK(check(launch_(graph, stream_), "cuGraphLaunch"));
    return ok_status();
  }
  void set_seed(std::uint64_t) override {}
  std::string take_finding() override { return ""; }

 private:
  static Status check(int result, const char* doing) {
    if (result == 0) return ok_status();
    return make_error(Code::kLaunch, doing, "CUDA error " + std::to_string(result));
  }
  template <class Function>
  Status find(void* library, const char* symbol, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library, symbol));
    return function ? ok_status() : make_error(Code::kNoDriver, symbol, "is not in the driver");
  }
  Status open() {
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) return make_error(Code::kNoDriver, "", "there is no libcuda.so.1");
    ATTNLOOM_CHECK(find(library, "cuStreamCreate", stream_create_));
    ATTNLOOM_CHECK(find(library, "cuStreamBeginCapture_v2", begin_));
    ATTNLOOM_CHECK(find(library, "cuStreamEndCapture", end_));
    ATTNLOOM_CHECK(find(library, "cuGraphInstantiateWithFlags", instantiate_));
    return find(library, "cuGraphLaunch", launch_);
  }

  int (*stream_create_)(void** stream, unsigned flags) = nullptr;
  int (*begin_)(void* stream, int mode) = nullptr;
  int (*end_)(void* stream, void** graph) = nullptr;
  int (*instantiate_)(void** executable, void* graph, unsigned long long flags) = nullptr;
  int (*launch_)(void* executable, void* stream) = nullptr;
  void* stream_ = nullptr;
  std::vector<void*> graphs_;
};

}  // namespace

std::unique_ptr<GraphDevice> GraphDevice::make() {
  if (on_cuda()) return std::make_unique<CudaGraphs>();
  return std::make_unique<SimulatedGraphs>();
}

}  // namespace attnloom::testing
