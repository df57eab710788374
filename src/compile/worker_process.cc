// SPDX-License-Identifier: Apache-2.0
#include "compile/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/spawn_attributes.h"

namespace attnloom {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

Status system_error(const std::string& what, int error) {
  const bool memory = error == ENOMEM || error == EMFILE || error == ENFILE || error == EAGAIN;
  return make_error(memory ? Code::kOutOfMemory : Code::kInternal, "",
                    what + ": " + std::generic_category().message(error));
}

// In memory and complete, so that neither side ever waits for the other to read, and no write of
// ours can raise SIGPIPE in the host program.
Status fill(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("cannot keep the input of the compile worker", errno);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  // The child gets this description and must not change what is ours.
  if (::lseek(fd, 0, SEEK_SET) != 0 ||
      ::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    return system_error("cannot seal the input of the compile worker", errno);
  return ok_status();
}

int spawn(const std::string& program, int input, int output, pid_t& pid) {
  char* arguments[] = {const_cast<char*>(program.c_str()), nullptr};
  char* environment[] = {nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  // Should the host have closed its standard descriptors, ours may be among 0 to 2; dup2 in this
  // order would overwrite them, so they are moved up when they are made.
  ::posix_spawn_file_actions_adddup2(&actions, input, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, 1);
  ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  // The host may hold files and sockets that are not close-on-exec.
  ::posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  const SpawnAttributes attributes;
  const int error =
      ::posix_spawn(&pid, program.c_str(), &actions, attributes.get(), arguments, environment);
  ::posix_spawn_file_actions_destroy(&actions);
  return error;
}

// Above the standard descriptors.
int moved_up(int fd) {
  if (fd < 0 || fd > 2) return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  ::close(fd);
  return moved;
}

}  // namespace

WorkerProcess::~WorkerProcess() {
  finish();
}

Status WorkerProcess::start(const std::string& program, std::string_view input) {
  const Descriptor file(moved_up(::memfd_create("attnloom-cc", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (file.get() < 0) return system_error("no memory file for the compile worker", errno);
  ATTNLOOM_CHECK(fill(file.get(), input));
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("no pipe to the compile worker", errno);
  Descriptor read_end(moved_up(ends[0]));
  const Descriptor write_end(moved_up(ends[1]));
  const int error = spawn(program, file.get(), write_end.get(), pid_);
  if (error == 0) {
    output_ = read_end.release();
    return ok_status();
  }
  pid_ = -1;
  if (error != ENOENT && error != EACCES && error != ENOEXEC)
    return system_error("cannot start " + program, error);
  return make_error(Code::kCompilerMissing, "",
                    "cannot start " + program + ": " + std::generic_category().message(error),
                    "untrusted text is compiled by attnloom-cc: install it beside attnloom");
}

WorkerProcess::Progress WorkerProcess::read(std::string& output, std::uint64_t most_bytes,
                                            std::chrono::milliseconds patience) {
  pollfd waiting = {output_, POLLIN, 0};
  if (::poll(&waiting, 1, static_cast<int>(patience.count())) <= 0) return Progress::kRunning;
  std::array<char, 1 << 16> buffer;
  const ssize_t count = ::read(output_, buffer.data(), buffer.size());
  if (count < 0) return errno == EINTR ? Progress::kRunning : Progress::kEnded;
  output.append(buffer.data(), static_cast<std::size_t>(count));
  if (output.size() > most_bytes) return Progress::kTooMuch;
  return count > 0 ? Progress::kRunning : Progress::kEnded;
}

int WorkerProcess::finish() {
  if (output_ >= 0) ::close(std::exchange(output_, -1));
  if (pid_ < 0) return -1;
  const pid_t pid = std::exchange(pid_, -1);
  // One that closed its output and goes on is stopped; one that is ending keeps its own status.
  ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return status;
}

}  // namespace attnloom
