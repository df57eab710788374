// SPDX-License-Identifier: Apache-2.0
#include "cache/root_check.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace attnloom {
namespace {

constexpr std::uint32_t kWriteByOthers = 022;
constexpr std::uint32_t kSticky = 01000;

bool owner_trusted(const FileInfo& info) {
  return info.owner == ::geteuid() || info.owner == 0;
}

std::string refuse_ancestors(FileSystem& files, const std::string& path);

std::string refuse_ancestor(FileSystem& files, const std::string& path) {
  const FileInfo info = files.info(path);
  if (!info.exists) return {};
  if (!owner_trusted(info)) return path + " belongs to user " + std::to_string(info.owner);
  if (info.is_symlink) {
    // Its owner is trusted, but the way behind it needs the same look. Only a real file system has
    // links.
    std::error_code error;
    const std::string target = std::filesystem::canonical(path, error).string();
    return error ? path + " is a broken link" : refuse_ancestors(files, target + "/");
  }
  if (!info.is_directory) return path + " is not a directory";
  if ((info.mode & kWriteByOthers) != 0 && (info.mode & kSticky) == 0)
    return path + " can be written by other users";
  return {};
}

std::string refuse_ancestors(FileSystem& files, const std::string& path) {
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    if (const std::string reason = refuse_ancestor(files, path.substr(0, slash)); !reason.empty())
      return reason;
  }
  return {};
}

}  // namespace

std::string refuse_file(const FileInfo& info) {
  if (info.is_symlink) return "it is a symbolic link";
  if (!owner_trusted(info)) return "it belongs to user " + std::to_string(info.owner);
  if ((info.mode & kWriteByOthers) != 0) return "it can be written by other users";
  return {};
}

std::string refuse_place(FileSystem& files, const std::string& path) {
  const std::string normal = normal_path(path);
  const FileInfo info = files.info(normal);
  if (const std::string reason = refuse_ancestors(files, normal); !reason.empty()) return reason;
  if (info.is_symlink) {
    if (!owner_trusted(info)) return "the link belongs to user " + std::to_string(info.owner);
    std::error_code error;
    const std::string target = std::filesystem::canonical(normal, error).string();
    return error ? "it is a broken link" : refuse_place(files, target);
  }
  return info.exists ? refuse_file(info) : "";
}

std::string normal_path(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path normal = std::filesystem::absolute(path, ignored).lexically_normal();
  if (!normal.has_filename()) normal = normal.parent_path();  // "/cache/"
  return normal.string();
}

std::string refuse_root(FileSystem& files, const std::string& path) {
  if (path.empty() || path[0] != '/') return "it is not an absolute path";
  if (const std::string reason = refuse_ancestors(files, path); !reason.empty()) return reason;
  const FileInfo info = files.info(path);
  if (!info.exists) return {};
  if (const std::string reason = refuse_file(info); !reason.empty()) return reason;
  return info.is_directory ? "" : "it is not a directory";
}

}  // namespace attnloom
