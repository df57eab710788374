// SPDX-License-Identifier: Apache-2.0
// In the place of attnloom-cc: does what its own file name says, so that a test can choose by a
// link.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "compile/worker_messages.h"

namespace {

namespace fs = std::filesystem;
using namespace attnloom;

void put(const std::string& payload) {
  std::cout << frame(payload) << std::flush;
}

void greet() {
  put(encode(Result<Fingerprint>(Fingerprint{"0123456789abcdef", 13, 0, 13000})));
}

// What a child of the host program holds.
std::string holdings() {
  std::string found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc/self/fd")) {
    const std::string target = fs::read_symlink(entry.path());
    if (target.find("/proc/") == std::string::npos)  // the directory being read
      found += entry.path().filename().string() + " ";
  }
  std::ifstream environment("/proc/self/environ");
  return found + "environment [" + std::string(std::istreambuf_iterator<char>(environment), {}) +
         "]";
}

}  // namespace

int main(int, char** argv) {
  const std::string how = fs::path(argv[0]).filename();
  if (how == "mute") return 0;
  if (how == "status") return 5;
  if (how == "holdings") {
    put(encode(Result<Fingerprint>(make_error(Code::kInternal, "", holdings()))));
    return 0;
  }
  greet();
  if (how == "crash") ::raise(SIGSEGV);
  if (how == "killed") ::raise(SIGKILL);
  if (how == "out_of_time") ::raise(SIGXCPU);
  if (how == "hang") ::pause();
  if (how == "closes_and_hangs") {
    ::close(1);
    ::pause();
  }
  if (how == "garbage") put("garbage");
  if (how == "no_cubin") put(encode(Result<CompiledText>(CompiledText{"x", "y", ""})));
  if (how == "control") {
    put(encode(Result<CompiledText>(
        make_error(Code::kCompileFailed, "$.x", "one\ntwo\33[31m" + std::string(10'000, 'x')))));
  }
  while (how == "flood") std::cout << std::string(1 << 20, 'x');
  return 0;
}
