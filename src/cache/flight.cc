// SPDX-License-Identifier: Apache-2.0
#include "cache/flight.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <thread>
#include <utility>

#include "base/sha256.h"

namespace attnloom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{20};
constexpr mode_t kDirectoryMode = 0700;
constexpr mode_t kFileMode = 0600;

// Only a directory of our own: in a shared one another user could hold our locks for ever.
bool own_directory(const std::string& path) {
  struct stat info;
  if (::mkdir(path.c_str(), kDirectoryMode) != 0 && errno != EEXIST) return false;
  if (::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != ::geteuid())
    return false;
  return (info.st_mode & 0777) == kDirectoryMode || ::chmod(path.c_str(), kDirectoryMode) == 0;
}

// Locking an inode that lost its name would let a second holder lock the new one.
bool still_named(int descriptor, const std::string& path) {
  struct stat opened;
  struct stat named;
  return ::fstat(descriptor, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// For the notice of whoever waits for us. A failure only makes that notice poorer.
void write_pid(int descriptor) {
  const std::string text = std::to_string(::getpid()) + "\n";
  if (::ftruncate(descriptor, 0) != 0) return;
  [[maybe_unused]] const ssize_t written = ::pwrite(descriptor, text.data(), text.size(), 0);
}

std::string read_pid(int descriptor) {
  std::array<char, 16> text{};
  const ssize_t bytes = ::pread(descriptor, text.data(), text.size() - 1, 0);
  if (bytes <= 0) return "unknown";
  const std::string_view view(text.data(), static_cast<std::size_t>(bytes));
  return std::string(view.substr(0, view.find('\n')));
}

enum class Attempt { kHeld, kBusy, kRetry, kFailed };

Attempt try_lock(int descriptor, const std::string& path) {
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
    return still_named(descriptor, path) ? Attempt::kHeld : Attempt::kRetry;
  }
  if (errno == EWOULDBLOCK || errno == EINTR) return Attempt::kBusy;
  return errno == ESTALE ? Attempt::kRetry : Attempt::kFailed;
}

}  // namespace

NodeLock NodeLock::acquire(const std::string& directory, const std::string& key,
                           std::chrono::milliseconds patience, const std::function<bool()>& done,
                           const std::function<void(const std::string&)>& notice) {
  NodeLock lock;
  const auto say = [&](const std::string& text) {
    if (notice) notice(text);
  };
  if (!own_directory(directory)) {
    say("no lock: " + directory + " is not a directory of this user; compiling without one");
    return lock;
  }
  // Hashed, because a key is not always fit for a file name.
  const std::string path = directory + "/" + to_hex(sha256(key)).substr(0, 32) + ".lock";
  const auto deadline = Clock::now() + patience;
  int descriptor = -1;
  while (true) {
    if (descriptor < 0)
      descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kFileMode);
    const Attempt attempt = descriptor < 0 ? Attempt::kFailed : try_lock(descriptor, path);
    if (attempt == Attempt::kHeld) {
      write_pid(descriptor);
      lock.descriptor_ = descriptor;
      return lock;
    }
    if (attempt == Attempt::kFailed) {
      say("no lock: " + path + ": " + std::generic_category().message(errno) +
          "; compiling without one");
      break;
    }
    if (done && done()) break;
    if (Clock::now() >= deadline) {
      say(path + " is held by process " + (descriptor < 0 ? "unknown" : read_pid(descriptor)) +
          " for more than " + std::to_string(patience.count()) + " ms");
      break;
    }
    if (attempt == Attempt::kRetry) ::close(std::exchange(descriptor, -1));
    std::this_thread::sleep_for(kPoll);
  }
  if (descriptor >= 0) ::close(descriptor);
  return lock;
}

NodeLock::NodeLock(NodeLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

NodeLock::~NodeLock() {
  if (descriptor_ < 0) return;
  // Explicitly: a child that was forked meanwhile shares the descriptor, and its copy would keep
  // the lock.
  ::flock(descriptor_, LOCK_UN);
  ::close(descriptor_);
}

}  // namespace attnloom
