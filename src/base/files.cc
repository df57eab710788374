// SPDX-License-Identifier: Apache-2.0
#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

namespace attnloom {
namespace {

// Entries, key files and lists are far smaller. A file grown to gigabytes, which may take no place
// on its disk, must not take that memory from the process that looks a kernel up.
constexpr std::uint64_t kMostWholeFile = 256 << 20;

constexpr mode_t kDirectoryMode = 0700;
constexpr mode_t kFileMode = 0600;

Status io_error(const std::string& path, const std::string& what, int error) {
  const std::string remedy =
      error == ENOSPC || error == EDQUOT ? "free some space"
      : error == EACCES || error == EPERM || error == EROFS
          ? "give this user the right to write there, or name another directory"
          : "";
  return make_error(Code::kCacheIo, path, what + ": " + std::generic_category().message(error),
                    remedy);
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void reset(int fd) {
    close();
    fd_ = fd;
  }

  bool valid() const { return fd_ >= 0; }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  // 0 or the error: network file systems report a failed write only here.
  int close() {
    const int fd = release();
    return fd >= 0 && ::close(fd) != 0 && errno != EINTR ? errno : 0;
  }

 private:
  int fd_;
};

int open_retry(const std::string& path, int flags, mode_t mode = 0) {
  int fd;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

FileInfo to_info(const struct stat& status) {
  FileInfo info;
  info.exists = true;
  info.is_regular = S_ISREG(status.st_mode);
  info.is_directory = S_ISDIR(status.st_mode);
  info.is_symlink = S_ISLNK(status.st_mode);
  info.bytes = static_cast<std::uint64_t>(status.st_size);
  info.mode = status.st_mode & 07777;
  info.owner = status.st_uid;
  info.mtime_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  return info;
}

// A private file with a name that nobody can guess. It is gone when the object goes.
class TempFile {
 public:
  static constexpr int kAttempts = 16;

  explicit TempFile(const std::string& directory) : fd_(-1) {
    for (int attempt = 0; attempt < kAttempts && !fd_.valid(); ++attempt) {
      path_ = directory + "/.tmp-" + std::to_string(::getpid()) + "-" + random_name();
      fd_.reset(open_retry(path_, O_WRONLY | O_CREAT | O_EXCL, kFileMode));
      error_ = fd_.valid() ? 0 : errno;
      if (error_ != 0 && error_ != EEXIST) return;
    }
  }
  ~TempFile() {
    if (error_ == 0) ::unlink(path_.c_str());
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  const std::string& path() const { return path_; }

  // 0 or the error.
  int fill(std::string_view bytes) {
    if (error_ != 0) return error_;
    // The umask may have taken bits away from the mode of open().
    if (::fchmod(fd_.get(), kFileMode) != 0) return errno;
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return errno;
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    if (::fsync(fd_.get()) != 0) return errno;
    return fd_.close();
  }

 private:
  static std::string random_name() {
    std::uint64_t value = 0;
    // A failure leaves 0: O_EXCL still keeps the file ours, and a taken name is an error.
    if (::getrandom(&value, sizeof value, 0) != sizeof value) value = 0;
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
    return text;
  }

  std::string path_;
  Descriptor fd_;
  int error_ = 0;
};

// A private file whatever the umask, as an error or a descriptor.
Result<std::unique_ptr<Descriptor>> open_private(const std::string& path, int flags) {
  auto fd = std::make_unique<Descriptor>(open_retry(path, flags | O_CREAT | O_NONBLOCK, kFileMode));
  if (!fd->valid()) return io_error(path, "cannot open", errno);
  struct stat status;
  if (::fstat(fd->get(), &status) != 0) return io_error(path, "cannot stat", errno);
  if (!S_ISREG(status.st_mode)) {
    return make_error(Code::kCacheIo, path, "not a regular file", "move it aside");
  }
  if ((status.st_mode & 0777) != kFileMode && ::fchmod(fd->get(), kFileMode) != 0)
    return io_error(path, "cannot make private", errno);
  return fd;
}

// The new name must survive a power cut. A file system that cannot sync a directory still holds the
// file, and every reader verifies what it reads, so a failure is not one of the publication.
void sync_directory_of(const std::string& path) {
  const auto slash = path.find_last_of('/');
  const std::string directory = slash == std::string::npos ? "."
                                : slash == 0               ? "/"
                                                           : path.substr(0, slash);
  const Descriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid()) ::fsync(fd.get());
}

// Some file systems (FAT, some FUSE and network mounts) and sandboxes have no hard links.
bool links_unavailable(int error) {
  return error == EPERM || error == ENOTSUP || error == EOPNOTSUPP || error == ENOSYS ||
         error == EMLINK || error == EACCES;
}

// 0 or the error. EEXIST is success: the first publisher wins.
int name_if_absent(const std::string& from, const std::string& to) {
  if (::link(from.c_str(), to.c_str()) == 0 || errno == EEXIST) return 0;
  if (!links_unavailable(errno)) return errno;
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno == EEXIST) return 0;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) return errno;
  // Not even that. The window between the two calls can only replace a file that a writer of the
  // same name made just now, whole.
  struct stat status;
  if (::lstat(to.c_str(), &status) == 0) return 0;
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

int make_directory(const std::string& path) {
  struct stat status;
  if (::mkdir(path.c_str(), kDirectoryMode) != 0) {
    if (errno != EEXIST) return errno;
    return ::lstat(path.c_str(), &status) != 0 ? errno : S_ISDIR(status.st_mode) ? 0 : ENOTDIR;
  }
  if (::lstat(path.c_str(), &status) != 0) return errno;
  if ((status.st_mode & 0777) == kDirectoryMode) return 0;
  // The umask took bits away; the directory may be closed to ourselves, so it cannot be opened
  // first.
  return ::fchmodat(AT_FDCWD, path.c_str(), kDirectoryMode, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
}

class RealFileSystem : public FileSystem {
 public:
  FileInfo info(const std::string& path) override {
    struct stat status;
    return ::lstat(path.c_str(), &status) == 0 ? to_info(status) : FileInfo{};
  }

  Result<std::string> read(const std::string& path) override {
    Result<std::string> bytes = read_range(path, 0, kMostWholeFile + 1);
    if (!bytes.ok() || bytes->size() <= kMostWholeFile) return bytes;
    return make_error(Code::kCacheIo, path, "longer than 256 MiB", "move it aside");
  }

  Result<std::string> read_range(const std::string& path, std::uint64_t offset,
                                 std::uint64_t count) override {
    // O_NONBLOCK: a FIFO planted under the name would hold us up for ever.
    const Descriptor fd(open_retry(path, O_RDONLY | O_NONBLOCK));
    if (!fd.valid()) return io_error(path, "cannot open", errno);
    struct stat status;
    if (::fstat(fd.get(), &status) != 0) return io_error(path, "cannot stat", errno);
    if (!S_ISREG(status.st_mode)) {
      return make_error(Code::kCacheIo, path, "not a regular file", "move it aside");
    }
    const auto size = static_cast<std::uint64_t>(status.st_size);
    std::string bytes(std::min(count, size - std::min(size, offset)), '\0');
    std::size_t filled = 0;
    while (filled < bytes.size()) {
      const ssize_t got = ::pread(fd.get(), bytes.data() + filled, bytes.size() - filled,
                                  static_cast<off_t>(offset + filled));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return io_error(path, "cannot read", errno);
      if (got == 0) break;  // cut by somebody meanwhile
      filled += static_cast<std::size_t>(got);
    }
    bytes.resize(filled);
    return bytes;
  }

  Status publish(const std::string& temp_dir, const std::string& path, std::string_view bytes,
                 Publish how) override {
    TempFile temp(temp_dir);
    if (const int error = temp.fill(bytes); error != 0) {
      // Without the size: a full disk then has one text, and one warning, for all kernels.
      return io_error(temp.path(), "writing failed", error);
    }
    const int error = how == Publish::kFirstWins ? name_if_absent(temp.path(), path)
                      : ::rename(temp.path().c_str(), path.c_str()) == 0 ? 0
                                                                         : errno;
    if (error != 0) return io_error(path, "cannot publish", error);
    sync_directory_of(path);
    return ok_status();
  }

  Status make_directories(const std::string& path) override {
    // Existing parents may be links (/tmp, a home on another disk); the last component may not.
    for (auto end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
      const std::string parent = path.substr(0, end);
      struct stat status;
      if (::stat(parent.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) continue;
      if (const int error = make_directory(parent); error != 0) {
        return io_error(parent, "cannot make the directory", error);
      }
    }
    const int error = make_directory(path);
    if (error == 0) return ok_status();
    if (info(path).is_symlink)
      return make_error(Code::kCacheIo, path, "it is a symbolic link", "name the directory itself");
    return io_error(path, "cannot make the directory", error);
  }

  Status rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) == 0) return ok_status();
    return io_error(from, "cannot rename to " + to, errno);
  }

  Status remove(const std::string& path) override {
    if (::unlink(path.c_str()) == 0 || errno == ENOENT) return ok_status();
    return io_error(path, "cannot remove", errno);
  }

  Status remove_tree(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    return error ? io_error(path, "cannot remove", error.value()) : ok_status();
  }

  Status touch(const std::string& path, std::int64_t mtime_ns) override {
    constexpr std::int64_t kSecond = 1'000'000'000;
    const struct timespec times[2] = {
        {0, UTIME_OMIT}, {static_cast<time_t>(mtime_ns / kSecond), mtime_ns % kSecond}};
    if (::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0) return ok_status();
    return io_error(path, "cannot set its time", errno);
  }

  Status append(const std::string& path, std::string_view bytes) override {
    ATTNLOOM_TRY(const std::unique_ptr<Descriptor> fd, open_private(path, O_WRONLY | O_APPEND));
    const ssize_t written = ::write(fd->get(), bytes.data(), bytes.size());
    if (written == static_cast<ssize_t>(bytes.size())) return ok_status();
    return io_error(path, "writing failed", written < 0 ? errno : ENOSPC);
  }

  Result<FileLock> try_lock(const std::string& path) override {
    ATTNLOOM_TRY(std::unique_ptr<Descriptor> fd, open_private(path, O_RDWR));
    if (::flock(fd->get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK || errno == EINTR) return FileLock();
      return io_error(path, "cannot lock", errno);
    }
    // Unlocked by name: a child that was forked meanwhile holds a copy of the descriptor.
    return FileLock(fd.release(), [](Descriptor* held) {
      ::flock(held->get(), LOCK_UN);
      delete held;
    });
  }

  Result<std::vector<std::string>> list(const std::string& path) override {
    Descriptor fd(open_retry(path, O_RDONLY | O_DIRECTORY));
    if (!fd.valid()) return io_error(path, "cannot list", errno);
    DIR* const directory = ::fdopendir(fd.get());
    if (directory == nullptr) return io_error(path, "cannot list", errno);
    fd.release();
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(directory)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    const int error = errno;
    ::closedir(directory);
    if (error != 0) return io_error(path, "cannot list", error);
    std::sort(names.begin(), names.end());
    return names;
  }
};

}  // namespace

std::unique_ptr<FileSystem> make_real_file_system() {
  return std::make_unique<RealFileSystem>();
}

}  // namespace attnloom
