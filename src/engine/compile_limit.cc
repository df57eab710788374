// SPDX-License-Identifier: Apache-2.0
#include "engine/compile_limit.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

namespace attnloom {
namespace {

constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();

// These files have no length of their own, so that they cannot be read by it.
std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The first number of a file; nullopt for "max" and where there is none.
std::optional<std::uint64_t> number_in(const std::string& path) {
  std::istringstream text(text_of(path));
  std::uint64_t number = 0;
  if (text >> number) return number;
  return std::nullopt;
}

// The number behind `name` in lines of "name number".
std::uint64_t value_of(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  std::string word;
  while (lines >> word) {
    std::uint64_t value = 0;
    if (word == name && lines >> value) return value;
  }
  return 0;
}

int cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // Fails where there are more cores than the set holds; that is enough.
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? std::max(CPU_COUNT(&set), 1)
                                                        : kMostCompiles;
}

std::uint64_t machine_bytes(const std::string& root) {
  const std::uint64_t kilobytes = value_of(text_of(root + "/proc/meminfo"), "MemAvailable:");
  return kilobytes == 0 ? kUnlimited : kilobytes << 10;
}

// Pages of files that were not used lately go as soon as memory is wanted.
std::uint64_t group_bytes(const std::string& folder, const char* limit_file, const char* used_file,
                          const char* reclaimable) {
  const std::optional<std::uint64_t> limit = number_in(folder + "/" + limit_file);
  const std::optional<std::uint64_t> used = number_in(folder + "/" + used_file);
  if (!limit || !used) return kUnlimited;
  const std::uint64_t freed = value_of(text_of(folder + "/memory.stat"), reclaimable);
  const std::uint64_t held = *used - std::min(*used, freed);
  return *limit - std::min(*limit, held);
}

// Whole cores of a quota, rounded up.
int group_cores(const std::string& folder) {
  std::istringstream text(text_of(folder + "/cpu.max"));
  std::uint64_t quota = 0;
  std::uint64_t period = 0;
  if (!(text >> quota >> period) || period == 0) return kMostCompiles;
  return static_cast<int>(std::clamp<std::uint64_t>((quota + period - 1) / period, 1, 64));
}

// "/a/b" of the unified hierarchy's line "0::/a/b".
std::string own_group(const std::string& root) {
  std::istringstream lines(text_of(root + "/proc/self/cgroup"));
  std::string line;
  while (std::getline(lines, line))
    if (line.starts_with("0::/")) return line.substr(3);
  return "/";
}

}  // namespace

int compile_limit(const std::string& root) {
  int threads = std::min(cores(), kMostCompiles);
  std::uint64_t bytes = machine_bytes(root);
  const std::string groups = root + "/sys/fs/cgroup";
  // Every group around ours limits us; in a container the path may lie outside of what we see, and
  // its own group is then the root.
  std::string group = own_group(root);
  while (true) {
    const std::string folder = groups + (group == "/" ? "" : group);
    bytes = std::min(bytes, group_bytes(folder, "memory.max", "memory.current", "inactive_file"));
    threads = std::min(threads, group_cores(folder));
    if (group == "/" || group.empty()) break;
    group.erase(group.rfind('/'));
    if (group.empty()) group = "/";
  }
  bytes = std::min(bytes, group_bytes(groups + "/memory", "memory.limit_in_bytes",
                                      "memory.usage_in_bytes", "total_inactive_file"));
  const auto by_memory = static_cast<int>(std::min<std::uint64_t>(bytes / kBytesPerCompile, 64));
  return std::max(std::min(threads, by_memory), 1);
}

}  // namespace attnloom
