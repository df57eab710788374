// SPDX-License-Identifier: Apache-2.0
#include "compile/sandbox_toolchain.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include <mutex>
#include <optional>
#include <utility>

#include "compile/compiler_log.h"
#include "compile/cubin.h"
#include "compile/worker_messages.h"
#include "compile/worker_process.h"

namespace attnloom {
namespace {

constexpr std::chrono::milliseconds kLook{20};    // how soon a cancel is seen
constexpr std::chrono::seconds kStartAndWait{5};  // wall time beyond the processor time

struct Ended {
  std::string output;
  int status = -1;  // of waitpid
};

class SandboxToolchain : public Toolchain {
 public:
  explicit SandboxToolchain(SandboxOptions options) : options_(std::move(options)) {}

  Result<Fingerprint> fingerprint() override {
    const std::scoped_lock lock(mutex_);
    if (!fingerprint_) {
      ATTNLOOM_TRY(const Ended ended, run(order(), Interrupt()));
      std::string_view output = ended.output;
      ATTNLOOM_TRY(fingerprint_, read_greeting(output, ended.status));
    }
    return *fingerprint_;
  }

  Result<Artifact> compile(const Source& source) override {
    return compile_interruptibly(source, Interrupt());
  }

  Result<Artifact> compile_interruptibly(const Source& source,
                                         const Interrupt& interrupt) override {
    const std::string bytes = encode(source);
    if (bytes.size() > kMostSourceBytes) {
      return make_error(Code::kResourceLimit, "",
                        "the program has " + std::to_string(bytes.size()) +
                            " bytes, of which the compile worker takes " +
                            std::to_string(kMostSourceBytes),
                        "shorten the functors");
    }
    ATTNLOOM_TRY(const Ended ended, run(order() + frame(bytes), interrupt));
    std::string_view output = ended.output;
    ATTNLOOM_TRY(const Fingerprint fingerprint, read_greeting(output, ended.status));
    const std::optional<std::string_view> answer = take_frame(output);
    if (!answer) return why_it_ended(ended.status);
    ATTNLOOM_TRY(CompiledText text, decode_answer(*answer));
    return make_artifact(source, fingerprint, std::move(text));
  }

 private:
  std::string order() const {
    return frame(encode(WorkerOrder{
        .search = options_.search,
        .address_space_bytes = options_.address_space_bytes,
        .cpu_seconds = static_cast<std::uint64_t>(options_.time.count()),
        .weak_sandbox = options_.weak_sandbox,
    }));
  }

  Result<Ended> run(const std::string& input, const Interrupt& interrupt) const {
    const auto until = std::chrono::steady_clock::now() + options_.time + kStartAndWait;
    WorkerProcess worker;
    ATTNLOOM_CHECK(worker.start(options_.worker, input));
    Ended ended;
    for (;;) {
      const auto progress = worker.read(ended.output, kMostAnswerBytes, kLook);
      if (progress == WorkerProcess::Progress::kTooMuch) {
        return make_error(
            Code::kResourceLimit, "",
            "the compiled program is larger than " + std::to_string(kMostAnswerBytes) + " bytes");
      }
      if (progress == WorkerProcess::Progress::kEnded) break;
      if (interrupt.reason() == Code::kCancelled)
        return make_error(Code::kCancelled, "", "the compile was cancelled");
      if (interrupt.reason() != Code::kOk || std::chrono::steady_clock::now() >= until)
        return too_long();
    }
    ended.status = worker.finish();
    return ended;
  }

  Result<Fingerprint> read_greeting(std::string_view& output, int status) const {
    const std::optional<std::string_view> greeting = take_frame(output);
    if (!greeting) return why_it_ended(status);
    return decode_greeting(*greeting);
  }

  // Of what the worker says only what cannot be found out here is believed.
  static Result<Artifact> make_artifact(const Source& source, const Fingerprint& fingerprint,
                                        CompiledText text) {
    Artifact artifact;
    artifact.log = std::move(text.log);
    ATTNLOOM_CHECK(fatal_remark_in_log(artifact.log));
    if (text.cubin.empty() || text.ptx.empty())
      return make_error(Code::kInternal, "", "the compile worker reports success without a result");
    artifact.cubin = std::move(text.cubin);
    artifact.ptx = std::move(text.ptx);
    ATTNLOOM_TRY(artifact.entries, read_cubin(artifact.cubin, source.entries));
    read_spills(artifact.log, artifact.entries);
    artifact.target = source.target;
    artifact.fingerprint = fingerprint;
    return artifact;
  }

  static Status too_long() {
    return make_error(Code::kCompileTimeout, "", "the compile took too long and was stopped",
                      "look for functors that unroll without end");
  }

  // For a worker that ended before it had answered.
  Status why_it_ended(int status) const {
    if (status == -1)
      return make_error(Code::kInternal, "", "the compile worker ended without an answer");
    if (WIFEXITED(status) && WEXITSTATUS(status) == kOutOfMemoryExit) {
      return make_error(Code::kOutOfMemory, "",
                        "the compiler ran out of the " +
                            std::to_string(options_.address_space_bytes >> 20) +
                            " MiB of address space that untrusted text may use",
                        "simplify the functors: nested calls grow fastest");
    }
    if (!WIFSIGNALED(status)) {
      return make_error(Code::kInternal, "",
                        "the compile worker ended with status " +
                            std::to_string(WEXITSTATUS(status)) + " without an answer",
                        "install attnloom and attnloom-cc of one build");
    }
    const int signal = WTERMSIG(status);
    if (signal == SIGXCPU) return too_long();
    if (signal == SIGKILL) {
      return make_error(Code::kOutOfMemory, "",
                        "the compile worker was killed, as happens when memory runs out",
                        "compile fewer kernels at a time");
    }
    const char* name = ::sigabbrev_np(signal);
    return make_error(Code::kInternal, "",
                      "the compiler crashed with SIG" + std::string(name == nullptr ? "?" : name) +
                          " in its worker",
                      "simplify the functors");
  }

  const SandboxOptions options_;
  std::mutex mutex_;
  std::optional<Fingerprint> fingerprint_;
};

}  // namespace

std::unique_ptr<Toolchain> make_sandbox_toolchain(const SandboxOptions& options) {
  return std::make_unique<SandboxToolchain>(options);
}

}  // namespace attnloom
