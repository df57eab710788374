// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/output.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <vector>

#include "base/byte_size.h"

namespace attnloom::cli {
namespace {

// Far above any spec, manifest, case or day of access log; a device would never end.
constexpr std::size_t kMostInputBytes = 256 << 20;

}  // namespace

Exit exit_of(Code code) {
  switch (code) {
    case Code::kOk:
      return kAgrees;
    case Code::kSpecInvalid:
    case Code::kSpecUnsupported:
    case Code::kTemplate:
    case Code::kCompileFailed:
    case Code::kResourceLimit:
    case Code::kWorkloadInvalid:
    case Code::kTensorInvalid:
    case Code::kPlanBound:
    case Code::kArgumentInvalid:
      return kRefused;
    default:
      return kEnvironment;
  }
}

Exit exit_of(const Status& error) {
  if (error.code == Code::kArgumentInvalid) {
    if (error.path.starts_with("--")) return kUsage;
    // What resolve_settings names says nothing about the input.
    if (error.path.starts_with("ATTNLOOM_") || error.path.starts_with("option "))
      return kEnvironment;
  }
  return exit_of(error.code);
}

void print_error(const Status& error, bool json) {
  if (!json) {
    std::cerr << "attnloom: " << error.to_string() << '\n';
    return;
  }
  print_json({{"code", code_name(error.code)},
              {"path", error.path},
              {"cause", error.cause},
              {"remedy", error.remedy},
              {"retryable", is_retryable(error.code)}});
}

void print_json(const Json& value) {
  // A compiler's log or a file name may hold bytes that are no UTF-8.
  std::cout << value.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
}

Json json_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Json nested_list(std::span<const double> values, std::span<const std::int64_t> extents) {
  Json list = Json::array();
  if (extents.size() == 1) {
    for (const double value : values) list.push_back(json_number(value));
    return list;
  }
  const std::size_t rows = static_cast<std::size_t>(extents[0]);
  const std::size_t row_values = rows == 0 ? 0 : values.size() / rows;
  for (std::size_t row = 0; row < rows; ++row) {
    list.push_back(nested_list(values.subspan(row * row_values, row_values), extents.subspan(1)));
  }
  return list;
}

Result<std::string> read_input(const std::string& path) {
  std::ifstream file;
  if (path != "-") {
    // Opening a directory succeeds; only reading it would throw.
    std::error_code unknown;
    if (std::filesystem::is_directory(path, unknown)) {
      return make_error(Code::kArgumentInvalid, path, "is a directory",
                        "name a file, or - for standard input");
    }
    file.open(path, std::ios::binary);
    if (!file) {
      return make_error(Code::kArgumentInvalid, path,
                        std::string("cannot be read: ") + std::strerror(errno),
                        "name a file, or - for standard input");
    }
  }
  std::istream& in = path == "-" ? std::cin : file;
  std::string text;
  std::vector<char> chunk(1 << 16);
  while (in.read(chunk.data(), std::ssize(chunk)), in.gcount() > 0) {
    text.append(chunk.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMostInputBytes)
      return make_error(Code::kArgumentInvalid, path,
                        "is longer than " + byte_size_text(kMostInputBytes),
                        "name a file of that size at most, not a device");
  }
  if (in.bad()) return make_error(Code::kArgumentInvalid, path, "reading it failed");
  return text;
}

namespace {

Status not_written(const std::string& path, int error) {
  return make_error(Code::kArgumentInvalid, path,
                    std::string("cannot be written: ") + std::strerror(error),
                    error == EEXIST   ? "name another file, or move that one away first"
                    : error == ENOSPC ? "free some space, or name a file elsewhere"
                                      : "name a file in an existing folder");
}

// Writes and closes; 0 or the error.
int write_all(int file, std::string_view bytes) {
  int error = 0;
  while (error == 0 && !bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) error = errno;
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  if (error == 0 && ::fsync(file) != 0 && errno != EINVAL) error = errno;
  if (::close(file) != 0 && error == 0) error = errno;
  return error;
}

int write_new(const std::string& path, std::string_view bytes, mode_t mode) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (file < 0) return errno;
  const int error = ::fchmod(file, mode) == 0 ? write_all(file, bytes) : errno;
  if (error != 0) ::unlink(path.c_str());
  return error;
}

mode_t ordinary_mode() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

}  // namespace

Status write_new_file(const std::string& path, std::string_view bytes, mode_t mode) {
  const int error = write_new(path, bytes, mode);
  return error == 0 ? ok_status() : not_written(path, error);
}

Status replace_file(const std::string& path, std::string_view bytes, mode_t mode) {
  // rename() would put the file in the place of a device or a link: `-o /dev/null` by root.
  struct stat info = {};
  if (::lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
    return make_error(Code::kArgumentInvalid, path, "cannot be written: it is there and no file",
                      "name a new file, or one to replace");
  const std::string fresh = path + ".new-" + std::to_string(::getpid());
  int error = write_new(fresh, bytes, mode);
  if (error == 0 && std::rename(fresh.c_str(), path.c_str()) != 0) {
    error = errno;
    ::unlink(fresh.c_str());
  }
  return error == 0 ? ok_status() : not_written(path, error);
}

Status write_output(const std::string& path, std::string_view bytes) {
  struct stat info = {};
  const bool exists = ::lstat(path.c_str(), &info) == 0;
  if (!exists || S_ISREG(info.st_mode))
    return replace_file(path, bytes, exists ? info.st_mode & 0777 : ordinary_mode());
  // A pipe, /dev/stdout or a link is written through, and stays what it is.
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  const int error = file < 0 ? errno : write_all(file, bytes);
  return error == 0 ? ok_status() : not_written(path, error);
}

Status finish_output() {
  std::cout.flush();
  if (std::cout) return ok_status();
  return make_error(Code::kArgumentInvalid, "standard output", "it cannot be written",
                    "see that its disk is not full and its reader still there");
}

}  // namespace attnloom::cli
