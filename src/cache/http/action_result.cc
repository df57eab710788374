// SPDX-License-Identifier: Apache-2.0
#include "cache/http/action_result.h"

#include <charconv>

#include "base/json.h"
#include "cache/entry.h"

namespace attnloom::http {
namespace {

constexpr std::size_t kMostFiles = 16;
constexpr std::size_t kMostPathBytes = 512;

Status corrupt(const std::string& cause) {
  return make_error(Code::kCacheCorrupt, "", "not an ActionResult of files: " + cause);
}

bool read_size(const Json& value, std::uint64_t& bytes) {
  if (value.is_number_unsigned()) {
    bytes = value.get<std::uint64_t>();
    return true;
  }
  if (!value.is_string()) return false;
  const std::string& digits = value.get_ref<const std::string&>();
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
  return error == std::errc{} && end == digits.data() + digits.size();
}

// Null where the member is absent or `object` is none.
const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

Result<OutputFile> read_file(const Json& value) {
  OutputFile file;
  const Json* path = member(value, "path");
  if (path == nullptr || !path->is_string()) return corrupt("a file without a path");
  file.path = path->get<std::string>();
  if (file.path.size() > kMostPathBytes) return corrupt("a path of more than 512 bytes");
  const Json* digest = member(value, "digest");
  const Json* hash = digest == nullptr ? nullptr : member(*digest, "hash");
  if (hash == nullptr || !hash->is_string() || !is_key(hash->get_ref<const std::string&>()))
    return corrupt("a file without a SHA-256");
  file.sha256 = hash->get<std::string>();
  // A size of 0 is left out by protocol buffers, and no file of ours is empty.
  const Json* size = member(*digest, "sizeBytes");
  if (size == nullptr || !read_size(*size, file.bytes)) return corrupt("a file without a size");
  return file;
}

}  // namespace

Result<std::vector<OutputFile>> parse_action_result(std::string_view text) {
  if (text.size() > kMostActionResultBytes) return corrupt("more than 64 KiB");
  const Result<JsonDocument> document = parse_json(text, Code::kCacheCorrupt);
  if (!document.ok()) return corrupt("no JSON");
  if (const Json* exit = member(document->value, "exitCode"); exit != nullptr && *exit != 0)
    return corrupt("its action failed");
  const Json* list = member(document->value, "outputFiles");
  if (list == nullptr || !list->is_array()) return corrupt("no outputFiles");
  if (list->size() > kMostFiles) return corrupt("more than 16 files");
  std::vector<OutputFile> files;
  for (const Json& item : *list) {
    ATTNLOOM_TRY(OutputFile file, read_file(item));
    files.push_back(std::move(file));
  }
  return files;
}

std::string print_action_result(const std::vector<OutputFile>& files) {
  Json list = Json::array();
  for (const OutputFile& file : files) {
    list.push_back(
        {{"path", file.path},
         {"digest", {{"hash", file.sha256}, {"sizeBytes", std::to_string(file.bytes)}}}});
  }
  return canonical_json({{"outputFiles", std::move(list)}});
}

const OutputFile* find_file(const std::vector<OutputFile>& files, std::string_view path) {
  for (const OutputFile& file : files)
    if (file.path == path) return &file;
  return nullptr;
}

}  // namespace attnloom::http
