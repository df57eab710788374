// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "base/spawn_attributes.h"

extern char** environ;

namespace attnloom {
namespace {

// A pipe that the child does not inherit but through an explicit dup2.
struct Pipe {
  int read_end = -1;
  int write_end = -1;

  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) == 0) {
      read_end = ends[0];
      write_end = ends[1];
    }
  }
  ~Pipe() {
    close_end(read_end);
    close_end(write_end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  bool valid() const { return read_end >= 0; }
  static void close_end(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
};

Status start_error(const std::string& program, int error) {
  return make_error(Code::kInternal, program,
                    "cannot start the program: " + std::generic_category().message(error));
}

// Appends what is there; false at the end of the stream.
bool drain(int fd, std::string& text) {
  std::array<char, 4096> buffer;
  const ssize_t count = ::read(fd, buffer.data(), buffer.size());
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  text.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0;
}

// Reads both streams at once: a child that fills one pipe while we wait for the other would never
// end.
void drain_both(Pipe& output, Pipe& errors, ProcessResult& result) {
  while (output.read_end >= 0 || errors.read_end >= 0) {
    pollfd waiting[2] = {{output.read_end, POLLIN, 0}, {errors.read_end, POLLIN, 0}};
    if (::poll(waiting, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (waiting[0].revents != 0 && !drain(output.read_end, result.output)) {
      Pipe::close_end(output.read_end);
    }
    if (waiting[1].revents != 0 && !drain(errors.read_end, result.errors)) {
      Pipe::close_end(errors.read_end);
    }
  }
}

int spawn(const std::vector<std::string>& argv, const Pipe& output, const Pipe& errors,
          pid_t& pid) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output.write_end, 1);
  posix_spawn_file_actions_adddup2(&actions, errors.write_end, 2);
  const SpawnAttributes attributes;
  const int error =
      ::posix_spawnp(&pid, arguments[0], &actions, attributes.get(), arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

Result<ProcessResult> run_process(const std::vector<std::string>& argv) {
  if (argv.empty() || argv[0].empty()) {
    return make_error(Code::kArgumentInvalid, "argv", "no program named");
  }
  Pipe output, errors;
  if (!output.valid() || !errors.valid()) return start_error(argv[0], errno);
  pid_t pid = -1;
  if (const int error = spawn(argv, output, errors, pid); error != 0) {
    return start_error(argv[0], error);
  }
  Pipe::close_end(output.write_end);
  Pipe::close_end(errors.write_end);
  ProcessResult result;
  drain_both(output, errors, result);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    // ECHILD: the host program ignores SIGCHLD and the kernel has already reaped the child.
    if (errno != EINTR) return start_error(argv[0], errno);
  }
  result.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace attnloom
