// SPDX-License-Identifier: Apache-2.0
// attnloom-cc: compiles one Source that nobody vouches for. Standard input holds an order and the
// Source, standard output gets a greeting and the answer (compile/worker_messages.h).
// SandboxToolchain starts it; it is no program for people.
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "compile/toolchain.h"
#include "compile/worker_messages.h"
#include "tools/worker/restrict.h"

namespace attnloom::worker {
namespace {

// As many bytes as there are until `count`.
std::string read_bytes(std::uint64_t count) {
  std::string bytes(count, '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::read(STDIN_FILENO, bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

std::optional<std::string> read_frame() {
  const std::string head = read_bytes(kFrameHeadBytes);
  if (head.size() < kFrameHeadBytes) return std::nullopt;
  const std::uint64_t length = frame_length(head);
  if (length > kMostSourceBytes) return std::nullopt;
  std::string payload = read_bytes(length);
  if (payload.size() < length) return std::nullopt;
  return payload;
}

void write_frame(const std::string& payload) {
  const std::string bytes = frame(payload);
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put = ::write(STDOUT_FILENO, bytes.data() + done, bytes.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return;  // nobody reads any more
    done += static_cast<std::size_t>(put);
  }
}

Result<Fingerprint> prepare(const WorkerOrder& order, Toolchain& toolchain) {
  // Opens the compiler, which takes files; nothing of the Source has been read yet.
  ATTNLOOM_TRY(Fingerprint fingerprint, toolchain.fingerprint());
  ATTNLOOM_CHECK(restrict_process({.address_space_bytes = order.address_space_bytes,
                                   .cpu_seconds = order.cpu_seconds,
                                   .weak_sandbox = order.weak_sandbox}));
  return fingerprint;
}

Result<CompiledText> compile(Toolchain& toolchain, const std::string& bytes) {
  try {
    ATTNLOOM_TRY(const Source source, decode_source(bytes));
    ATTNLOOM_TRY(Artifact artifact, toolchain.compile(source));
    return CompiledText{std::move(artifact.cubin), std::move(artifact.ptx),
                        std::move(artifact.log)};
  } catch (const std::bad_alloc&) {
    return make_error(Code::kOutOfMemory, "", "the compiler ran out of memory",
                      "simplify the functors");
  }
}

// The compiler's libraries end the process where an allocation fails. Which end it was shows in
// whether there is room now.
void tell_want_of_memory(int) {
  constexpr std::size_t kProbeBytes = 64 << 20;
  if (::mmap(nullptr, kProbeBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) ==
      MAP_FAILED)
    ::_exit(kOutOfMemoryExit);
  // The signal's own effect follows as soon as this returns.
}

void watch_for_want_of_memory() {
  struct sigaction action = {};
  action.sa_handler = tell_want_of_memory;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS}) ::sigaction(signal, &action, nullptr);
}

int serve_one() {
  // A second arena reserves 64 MiB of the address space that is about to be bounded.
  ::mallopt(M_ARENA_MAX, 1);
  const std::optional<std::string> bytes = read_frame();
  const Result<WorkerOrder> order =
      bytes ? decode_order(*bytes) : Result<WorkerOrder>(decode_order(""));
  if (!order.ok()) {
    std::cerr << "attnloom-cc compiles for `attnloom --untrusted`, which starts it\n";
    return 2;
  }
  const std::unique_ptr<Toolchain> toolchain = make_nvrtc_toolchain(order->search);
  const Result<Fingerprint> greeting = prepare(*order, *toolchain);
  watch_for_want_of_memory();
  write_frame(encode(greeting));
  if (!greeting.ok()) return 0;
  if (const std::optional<std::string> source = read_frame())
    write_frame(encode(compile(*toolchain, *source)));
  return 0;
}

}  // namespace
}  // namespace attnloom::worker

int main() {
  // Without the compiler's own exit handlers, which have nothing to save.
  ::_exit(attnloom::worker::serve_one());
}
