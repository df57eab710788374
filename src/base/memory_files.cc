// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "base/files.h"

namespace attnloom {
namespace {

std::string parent_of(const std::string& path) {
  const auto slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// As strict as a disk: a parent must be there, so that a test notices a directory that was never
// made.
class MemoryFileSystem : public FileSystem {
 public:
  explicit MemoryFileSystem(std::int64_t fail_after_bytes) : fail_after_bytes_(fail_after_bytes) {}

  FileInfo info(const std::string& path) override {
    const std::scoped_lock lock(mutex_);
    if (is_directory(path)) {
      return {.exists = true, .is_directory = true, .mode = 0700, .owner = ::geteuid()};
    }
    const auto node = nodes_.find(path);
    if (node == nodes_.end()) return {};
    return {.exists = true,
            .is_regular = true,
            .bytes = node->second.bytes.size(),
            .mode = 0600,
            .owner = ::geteuid(),
            .mtime_ns = node->second.mtime_ns};
  }

  Result<std::string> read(const std::string& path) override {
    const std::scoped_lock lock(mutex_);
    const auto node = nodes_.find(path);
    if (node == nodes_.end() || node->second.directory) return error(path, "no such file");
    return node->second.bytes;
  }

  Result<std::string> read_range(const std::string& path, std::uint64_t offset,
                                 std::uint64_t count) override {
    ATTNLOOM_TRY(const std::string bytes, read(path));
    return bytes.substr(std::min<std::uint64_t>(offset, bytes.size()), count);
  }

  Status publish(const std::string& temp_dir, const std::string& path, std::string_view bytes,
                 Publish how) override {
    const std::scoped_lock lock(mutex_);
    if (!is_directory(temp_dir)) return error(temp_dir, "no such directory");
    if (!take_room(bytes.size())) return error(path, "no space left");
    if (!is_directory(parent_of(path))) return error(path, "no such directory");
    if (is_directory(path)) {
      return how == Publish::kFirstWins ? ok_status() : error(path, "is a directory");
    }
    const Node node{.directory = false, .bytes = std::string(bytes), .mtime_ns = ++clock_ns_};
    if (how == Publish::kFirstWins) {
      nodes_.emplace(path, node);
    } else {
      nodes_[path] = node;
    }
    return ok_status();
  }

  Status make_directories(const std::string& path) override {
    const std::scoped_lock lock(mutex_);
    for (std::string at = path; !is_directory(at); at = parent_of(at)) {
      if (nodes_.count(at) != 0) return error(at, "is a file");
      nodes_.emplace(at, Node{.directory = true, .bytes = {}, .mtime_ns = ++clock_ns_});
    }
    return ok_status();
  }

  Status rename(const std::string& from, const std::string& to) override {
    const std::scoped_lock lock(mutex_);
    if (nodes_.count(from) == 0) return error(from, "no such file");
    if (!is_directory(parent_of(to))) return error(to, "no such directory");
    std::map<std::string, Node> moved;
    for (auto node = nodes_.begin(); node != nodes_.end();) {
      const bool inside = node->first == from || node->first.rfind(from + "/", 0) == 0;
      if (!inside) {
        ++node;
        continue;
      }
      moved[to + node->first.substr(from.size())] = std::move(node->second);
      node = nodes_.erase(node);
    }
    for (auto& [path, node] : moved) nodes_[path] = std::move(node);
    return ok_status();
  }

  Status remove(const std::string& path) override {
    const std::scoped_lock lock(mutex_);
    if (is_directory(path)) return error(path, "is a directory");
    nodes_.erase(path);
    return ok_status();
  }

  Status remove_tree(const std::string& path) override {
    const std::scoped_lock lock(mutex_);
    std::erase_if(nodes_, [&](const auto& node) {
      return node.first == path || node.first.rfind(path + "/", 0) == 0;
    });
    return ok_status();
  }

  Status touch(const std::string& path, std::int64_t mtime_ns) override {
    const std::scoped_lock lock(mutex_);
    const auto node = nodes_.find(path);
    if (node == nodes_.end()) return error(path, "no such file");
    node->second.mtime_ns = mtime_ns;
    return ok_status();
  }

  Status append(const std::string& path, std::string_view bytes) override {
    const std::scoped_lock lock(mutex_);
    if (!take_room(bytes.size())) return error(path, "no space left");
    if (!is_directory(parent_of(path))) return error(path, "no such directory");
    if (is_directory(path)) return error(path, "is a directory");
    Node& node = nodes_[path];
    node.bytes += bytes;
    node.mtime_ns = ++clock_ns_;
    return ok_status();
  }

  Result<FileLock> try_lock(const std::string& path) override {
    const std::scoped_lock lock(mutex_);
    if (!is_directory(parent_of(path))) return error(path, "no such directory");
    if (is_directory(path)) return error(path, "is a directory");
    nodes_.try_emplace(path, Node{.directory = false, .bytes = {}, .mtime_ns = ++clock_ns_});
    std::weak_ptr<void>& holder = locks_[path];
    if (!holder.expired()) return FileLock();
    FileLock held = std::make_shared<char>();
    holder = held;
    return held;
  }

  Result<std::vector<std::string>> list(const std::string& path) override {
    const std::scoped_lock lock(mutex_);
    if (!is_directory(path)) return error(path, "no such directory");
    std::vector<std::string> names;  // the map is sorted
    for (const auto& [name, node] : nodes_) {
      if (parent_of(name) == path) names.push_back(name.substr(name.find_last_of('/') + 1));
    }
    return names;
  }

 private:
  struct Node {
    bool directory = false;
    std::string bytes;
    std::int64_t mtime_ns = 0;
  };

  bool take_room(std::size_t bytes) {
    const auto size = static_cast<std::int64_t>(bytes);
    if (fail_after_bytes_ >= 0 && size > fail_after_bytes_ - written_bytes_) {
      written_bytes_ = fail_after_bytes_;  // the disk is full from now on
      return false;
    }
    written_bytes_ += size;
    return true;
  }
  bool is_directory(const std::string& path) const {
    if (path == "/" || path == ".") return true;
    const auto node = nodes_.find(path);
    return node != nodes_.end() && node->second.directory;
  }
  static Status error(const std::string& path, std::string cause) {
    return make_error(Code::kCacheIo, path, std::move(cause));
  }

  std::mutex mutex_;
  std::map<std::string, Node> nodes_;
  std::map<std::string, std::weak_ptr<void>> locks_;
  const std::int64_t fail_after_bytes_;
  std::int64_t written_bytes_ = 0;
  std::int64_t clock_ns_ = 0;  // every write is later than the one before
};

}  // namespace

std::unique_ptr<FileSystem> make_memory_file_system(std::int64_t fail_after_bytes) {
  return std::make_unique<MemoryFileSystem>(fail_after_bytes);
}

}  // namespace attnloom
