// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <mutex>
#include <optional>
#include <utility>

#include "compile/compiler_log.h"
#include "compile/cubin.h"
#include "compile/deep_stack.h"
#include "compile/foreign_text.h"
#include "compile/nvrtc_library.h"
#include "compile/toolchain.h"

namespace attnloom {
namespace {

// nvrtcResult, as far as we tell them apart.
constexpr int kSuccess = 0;
constexpr int kOutOfMemory = 1;
constexpr int kInvalidOption = 5;
constexpr int kCompilation = 6;
constexpr int kBuiltinFailure = 7;
constexpr int kCancelledByCallback = 16;

constexpr const char* kProgramName =
    "attnloom.cu";  // fixed: it can reach the bytes through __FILE__
constexpr std::string_view kArchOption = "--gpu-architecture=";
constexpr std::string_view kVerboseOption = "--ptxas-options=-v";

// Destroys the program on every path.
class Program {
 public:
  Program(const NvrtcFunctions& call, const Interrupt& interrupt)
      : call_(call), interrupt_(interrupt) {}
  ~Program() {
    if (program_ != nullptr) call_.destroy_program(&program_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  int create(const Source& source) {
    own_ = {kProgramName};
    std::vector<const char*> texts;
    std::vector<const char*> names;
    for (const Header& header : source.headers) {
      texts.push_back(header.text.c_str());
      names.push_back(header.name.c_str());
      own_.push_back(header.name);
    }
    return call_.create_program(&program_, source.text.c_str(), kProgramName,
                                static_cast<int>(texts.size()), texts.data(), names.data());
  }

  int compile(const std::vector<std::string>& options) {
    std::vector<const char*> pointers;
    for (const std::string& option : options) pointers.push_back(option.c_str());
    // A compiler that does not take it cannot be stopped, which is no reason not to compile.
    if (call_.set_flow_callback != nullptr)
      call_.set_flow_callback(program_, should_stop, const_cast<Interrupt*>(&interrupt_));
    return call_.compile_program(program_, static_cast<int>(pointers.size()), pointers.data());
  }

  std::string cubin() { return fetch(call_.cubin_size, call_.cubin); }
  std::string ptx() { return without_end(fetch(call_.ptx_size, call_.ptx)); }
  std::string log() {
    return without_foreign_text(without_end(fetch(call_.log_size, call_.log)), own_);
  }

 private:
  std::string fetch(int (*size_of)(NvrtcProgram, std::size_t*), int (*get)(NvrtcProgram, char*)) {
    std::size_t bytes = 0;
    if (size_of(program_, &bytes) != kSuccess) return {};
    std::string text(bytes, '\0');
    return get(program_, text.data()) == kSuccess ? text : std::string();
  }
  static int should_stop(void* payload, void*) {
    return static_cast<const Interrupt*>(payload)->reason() == Code::kOk ? 0 : 1;
  }
  // Texts come with their terminating zero.
  static std::string without_end(std::string text) {
    while (!text.empty() && text.back() == '\0') text.pop_back();
    return text;
  }

  const NvrtcFunctions& call_;
  const Interrupt& interrupt_;
  NvrtcProgram program_ = nullptr;
  std::vector<std::string_view> own_;  // names of the Source's files
};

// 90 of "sm_90a"; 0 for anything but sm_NN[a|f].
int arch_of(const std::string& target) {
  if (target.compare(0, 3, "sm_") != 0) return 0;
  int arch = 0;
  std::size_t at = 3;
  for (; at < target.size() && at < 6 && std::isdigit(static_cast<unsigned char>(target[at])) != 0;
       ++at) {
    arch = arch * 10 + (target[at] - '0');
  }
  const bool suffixed = at + 1 == target.size() && (target[at] == 'a' || target[at] == 'f');
  return at == target.size() || suffixed ? arch : 0;
}

Status unsupported_target(const NvrtcLibrary& library, const std::string& target) {
  std::string known;
  for (const int arch : library.archs)
    known += (known.empty() ? "sm_" : ", sm_") + std::to_string(arch);
  return make_error(Code::kSpecUnsupported, "$.target",
                    "NVRTC " + std::to_string(library.major) + "." + std::to_string(library.minor) +
                        " does not know \"" + target + "\"",
                    "it knows " + known + ", some with the suffix a or f");
}

std::vector<std::string> without_verbose(std::vector<std::string> options) {
  options.erase(std::remove(options.begin(), options.end(), kVerboseOption), options.end());
  return options;
}

class NvrtcToolchain : public Toolchain {
 public:
  explicit NvrtcToolchain(NvrtcSearch search) : search_(std::move(search)) {}

  Result<Fingerprint> fingerprint() override {
    ATTNLOOM_TRY(const NvrtcLibrary* library, library());
    return library->fingerprint;
  }

  Result<Artifact> compile(const Source& source) override {
    return compile_interruptibly(source, Interrupt());
  }

  Result<Artifact> compile_interruptibly(const Source& source,
                                         const Interrupt& interrupt) override {
    ATTNLOOM_TRY(const NvrtcLibrary* library, library());
    const int arch = arch_of(source.target);
    if (std::find(library->archs.begin(), library->archs.end(), arch) == library->archs.end()) {
      return unsupported_target(*library, source.target);
    }
    // Without it NVRTC would compile for a target of its own choice, and succeed.
    const std::string wanted = std::string(kArchOption) + source.target;
    if (std::count(source.options.begin(), source.options.end(), wanted) != 1) {
      return make_error(Code::kTemplate, "", "the options do not hold " + wanted + " once",
                        "please report it");
    }
    std::optional<Result<Artifact>> made;
    ATTNLOOM_CHECK(run_on_deep_stack([&] { made = compile_here(*library, source, interrupt); }));
    return std::move(*made);
  }

 private:
  // A library that is missing now may be there at the next call, so only success is kept.
  Result<const NvrtcLibrary*> library() {
    const std::scoped_lock lock(mutex_);
    if (library_ == nullptr) {
      ATTNLOOM_TRY(NvrtcLibrary opened, open_nvrtc(search_, nullptr));
      library_ = std::make_unique<NvrtcLibrary>(std::move(opened));
    }
    return library_.get();
  }

  static Result<Artifact> compile_here(const NvrtcLibrary& library, const Source& source,
                                       const Interrupt& interrupt) {
    Program program(library.call, interrupt);
    if (const int result = program.create(source); result != kSuccess) {
      return failure(library, source, result, {}, interrupt);
    }
    const int result = program.compile(source.options);
    if (result != kSuccess) return failure(library, source, result, program.log(), interrupt);
    return make_artifact(library, source, program);
  }

  static Result<Artifact> make_artifact(const NvrtcLibrary& library, const Source& source,
                                        Program& program) {
    Artifact artifact;
    artifact.log = stable_log(program.log());
    ATTNLOOM_CHECK(fatal_remark_in_log(artifact.log));
    artifact.cubin = program.cubin();
    artifact.ptx = program.ptx();
    // NVRTC's calls succeed with size 0 where it made nothing; such an artifact must never be
    // published.
    if (artifact.cubin.empty() || artifact.ptx.empty()) {
      return make_error(Code::kInternal, "",
                        library.path + " reports success but made no " +
                            (artifact.cubin.empty() ? "cubin" : "PTX"));
    }
    ATTNLOOM_TRY(artifact.entries, read_cubin(artifact.cubin, source.entries));
    read_spills(artifact.log, artifact.entries);
    artifact.target = source.target;
    artifact.fingerprint = library.fingerprint;
    return artifact;
  }

  static Status failure(const NvrtcLibrary& library, const Source& source, int result,
                        std::string log, const Interrupt& interrupt) {
    if (result == kCancelledByCallback) return stopped(interrupt);
    if (result == kOutOfMemory) {
      return make_error(Code::kOutOfMemory, "", "the compiler ran out of memory",
                        "compile fewer kernels at a time");
    }
    const std::string cause = library.path + " (NVRTC " + std::to_string(library.major) + "." +
                              std::to_string(library.minor) +
                              "): " + library.call.error_string(result) + ": " + one_line(log);
    if (result == kBuiltinFailure) {
      return make_error(Code::kCompilerMissing, "", cause,
                        "reinstall NVRTC: its builtins library is missing or damaged");
    }
    if (result == kInvalidOption && log.find("--gpu-architecture") != std::string::npos) {
      return unsupported_target(library, source.target);
    }
    if (result != kCompilation) {
      return make_error(Code::kInternal, "", cause, "please report it");
    }
    if (!names_an_error(log)) log = quiet_log(library, source, interrupt);
    return failure_in_log(
        log, make_error(Code::kCompileFailed, "", cause, "correct the functor's text"));
  }

  static Status stopped(const Interrupt& interrupt) {
    if (interrupt.reason() == Code::kCompileTimeout)
      return make_error(Code::kCompileTimeout, "", "the compile took too long and was stopped");
    return make_error(Code::kCancelled, "", "the compile was cancelled");
  }

  // NVRTC 13.0 leaves ptxas' error out of the log as soon as ptxas is verbose. Failures are rare,
  // so they pay twice.
  static std::string quiet_log(const NvrtcLibrary& library, const Source& source,
                               const Interrupt& interrupt) {
    Program program(library.call, interrupt);
    if (program.create(source) != kSuccess) return {};
    if (program.compile(without_verbose(source.options)) == kSuccess) return {};
    return program.log();
  }

  static std::string one_line(const std::string& text) {
    std::string line = stable_log(text);
    if (!line.empty()) line.pop_back();
    for (std::size_t at = 0; (at = line.find('\n', at)) != std::string::npos; at += 3) {
      line.replace(at, 1, " / ");
    }
    return line;
  }

  const NvrtcSearch search_;
  std::mutex mutex_;
  std::unique_ptr<NvrtcLibrary> library_;
};

}  // namespace

std::unique_ptr<Toolchain> make_nvrtc_toolchain(const NvrtcSearch& search) {
  return std::make_unique<NvrtcToolchain>(search);
}

NvrtcProbe probe_nvrtc(const NvrtcSearch& search) {
  NvrtcProbe probe;
  const auto library = open_nvrtc(search, &probe.tried);
  if (library.ok()) {
    probe.found = library->path;
    probe.major = library->major;
    probe.minor = library->minor;
  }
  return probe;
}

}  // namespace attnloom
