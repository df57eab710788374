// SPDX-License-Identifier: Apache-2.0
#include "render/headers.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>

namespace attnloom {
namespace {

std::string_view trim_left(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos ? std::string_view() : text.substr(begin);
}

// The name in `#include "name"`, or "" for any other line.
std::string_view included_name(std::string_view line) {
  line = trim_left(line);
  if (line.empty() || line.front() != '#') return {};
  line = trim_left(line.substr(1));
  constexpr std::string_view kInclude = "include";
  if (line.substr(0, kInclude.size()) != kInclude) return {};
  line = trim_left(line.substr(kInclude.size()));
  if (line.empty() || line.front() != '"') return {};
  return line.substr(1, line.find('"', 1) - 1);
}

Status add_reachable(std::string_view name, std::string_view text,
                     std::span<const EmbeddedFile> files,
                     std::map<std::string_view, std::string_view>& reached) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view wanted = included_name(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (wanted.empty() || reached.count(wanted) > 0) continue;
    const EmbeddedFile* file = find_embedded(wanted, files);
    if (file == nullptr) {
      return make_error(
          Code::kTemplate, std::string(name),
          "includes \"" + std::string(wanted) + "\", which is not in kernel_templates/",
          "add the file to kernel_templates/");
    }
    reached.emplace(file->name, file->text);
    ATTNLOOM_CHECK(add_reachable(file->name, file->text, files, reached));
  }
  return ok_status();
}

}  // namespace

const EmbeddedFile* find_embedded(std::string_view name, std::span<const EmbeddedFile> files) {
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const EmbeddedFile& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}

Result<std::vector<Header>> reachable_headers(std::string_view text,
                                              std::span<const EmbeddedFile> files) {
  std::map<std::string_view, std::string_view> reached;
  ATTNLOOM_CHECK(add_reachable("the entry", text, files, reached));
  std::vector<Header> headers;
  for (const auto& [name, header_text] : reached)
    headers.push_back({std::string(name), std::string(header_text)});
  return headers;
}

}  // namespace attnloom
