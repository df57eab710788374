// SPDX-License-Identifier: Apache-2.0
#include "engine/environment.h"

#include <array>
#include <cstdlib>

namespace attnloom {
namespace {

constexpr std::array kTable = {
    VariableRow{"ATTNLOOM_CACHE_DIR", "the writable cache directory"},
    VariableRow{"ATTNLOOM_CACHE_RO",
                "read-only cache directories and bundles, colon-separated, searched after the "
                "writable one"},
    VariableRow{"ATTNLOOM_TRUST_KEYS",
                "file of public keys; entries outside the writable cache then need a signature"},
    VariableRow{
        "ATTNLOOM_CACHE_MAX_SIZE",
        "bytes that the writable cache may hold, such as 512M or 2G (default 2G, least 64M)"},
    VariableRow{"ATTNLOOM_REMOTE", "address of an HTTP cache, searched last"},
    VariableRow{"ATTNLOOM_REMOTE_WRITE", "1: what is compiled is also put into the HTTP cache"},
    VariableRow{"ATTNLOOM_REMOTE_TOKEN_FILE",
                "file (mode 0600) with the bearer token for HTTP cache and compile service"},
    VariableRow{"ATTNLOOM_REMOTE_UNSIGNED",
                "1: take entries from servers without signatures; else trusted keys are needed"},
    VariableRow{"ATTNLOOM_SIGN_KEY",
                "file (mode 0600) with the private key that signs what is put into the HTTP cache"},
    VariableRow{"ATTNLOOM_COMPILE_URL",
                "address of a compile service, which is then asked before NVRTC here"},
    VariableRow{"ATTNLOOM_OFFLINE", "1: no server is asked"},
    VariableRow{"ATTNLOOM_NVRTC",
                "the NVRTC library, or the folder that holds it; nothing else is then tried"},
    VariableRow{"ATTNLOOM_JIT",
                "allow (default), warn, or never: a kernel that no cache layer holds is an error"},
    VariableRow{"ATTNLOOM_JOBS",
                "compiles at a time; default: by cores and free memory, at most 8"},
    VariableRow{"ATTNLOOM_LOCK_DIR", "node-local directory for compile locks"},
    VariableRow{"ATTNLOOM_ACCESS_LOG",
                "file that gets a line for each kernel asked for, for a manifest"},
    VariableRow{"XDG_CACHE_HOME", "the default cache is XDG_CACHE_HOME/attnloom"},
    VariableRow{"HOME", "without XDG_CACHE_HOME the default cache is HOME/.cache/attnloom"},
    VariableRow{"XDG_RUNTIME_DIR", "the default lock directory is XDG_RUNTIME_DIR/attnloom"},
    VariableRow{"CUDA_HOME", "NVRTC is looked for in CUDA_HOME/lib64"},
    VariableRow{"VIRTUAL_ENV", "NVRTC is looked for in the packages of this Python environment"},
    VariableRow{"PYTHONPATH", "NVRTC is looked for in the packages of these folders"},
};

}  // namespace

std::span<const VariableRow> environment_table() {
  return kTable;
}

std::string Environment::get(const std::string& name) const {
  const auto found = values.find(name);
  return found == values.end() ? std::string() : found->second;
}

Environment read_environment() {
  Environment environment;
  for (const VariableRow& row : kTable) {
    const std::string name(row.name);
    const char* value = std::getenv(name.c_str());
    if (value && *value) environment.values[name] = value;
  }
  return environment;
}

}  // namespace attnloom
