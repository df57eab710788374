// SPDX-License-Identifier: Apache-2.0
// SandboxToolchain: NVRTC in a process of its own, attnloom-cc, one for each compile. That process
// gives up files, network and other programs before it reads the Source, and its memory and time
// are bounded: a hostile functor costs a request, not the host program. Thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "compile/toolchain.h"

namespace attnloom {

struct SandboxOptions {
  std::string worker;  // path of attnloom-cc
  NvrtcSearch search;  // the worker has no environment: the loader's own search lacks its variables
  // 256 MiB of them are the stack (deep_stack.h); of the shipped variants none needs 500 in all.
  std::uint64_t address_space_bytes = std::uint64_t{1} << 30;
  std::chrono::seconds time{60};  // processor time, and with 5 s more the longest wait
  bool weak_sandbox = false;      // goes on where the kernel lacks Landlock or seccomp
};

// Its errors are those of NVRTC's toolchain, and: UNTRUSTED where the kernel cannot confine the
// worker; COMPILE_TIMEOUT; OUT_OF_MEMORY; INTERNAL with the signal of a worker that crashed.
std::unique_ptr<Toolchain> make_sandbox_toolchain(const SandboxOptions& options);

}  // namespace attnloom
