// SPDX-License-Identifier: Apache-2.0
#include "spec/object_reader.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/joined.h"

namespace attnloom {
namespace {

bool is_printable(const std::string& text) {
  constexpr std::size_t kMaxBytes = 64;
  return text.size() <= kMaxBytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

}  // namespace

std::string shown(const Json& value) {
  constexpr std::size_t kMaxBytes = 60;
  std::string text = canonical_json(value);
  if (text.size() <= kMaxBytes) return text;
  // Not in the middle of a character: continuation bytes are 10xxxxxx.
  std::size_t end = kMaxBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;
  return text.substr(0, end) + "...";
}

Status spec_error(const JsonDocument& document, const std::string& path, const std::string& cause,
                  std::string remedy) {
  const int line = document.line_of(path);
  const std::string place = line > 0 ? "line " + std::to_string(line) + ": " : "";
  return make_error(Code::kSpecInvalid, path, place + cause, std::move(remedy));
}

Result<ObjectReader> ObjectReader::open(const JsonDocument& document, const Json& value,
                                        std::string path, std::span<const std::string_view> known) {
  if (!value.is_object()) {
    return spec_error(document, path, "wanted an object, given " + shown(value), "");
  }
  for (const auto& [key, member] : value.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::vector<std::string> names(known.begin(), known.end());
    const std::string near = nearest_name(key, names);
    Status error = spec_error(
        document, path + "." + key, "unknown key " + shown(Json(key)),
        near.empty() ? "known keys: " + joined(names) : "did you mean \"" + near + "\"?");
    // A path is one line of a log, and a key may be anything.
    if (!is_printable(key)) error.path = path;
    return error;
  }
  return ObjectReader(document, value, std::move(path));
}

Status ObjectReader::refuse(const std::string& path, const std::string& cause,
                            std::string remedy) const {
  return spec_error(*document_, path, cause, std::move(remedy));
}

Status ObjectReader::wrong_type(std::string_view key, std::string_view wanted) const {
  return refuse(path(key), "wanted " + std::string(wanted) + ", given " + shown(at(key)), "");
}

Status ObjectReader::require(std::string_view key) const {
  if (has(key)) return ok_status();
  return refuse(path(key), "the key is missing", "add \"" + std::string(key) + "\"");
}

Status ObjectReader::read(std::string_view key, bool& out) const {
  if (!has(key)) return ok_status();
  if (!at(key).is_boolean()) return wrong_type(key, "true or false");
  out = at(key).get<bool>();
  return ok_status();
}

Status ObjectReader::read(std::string_view key, std::string& out) const {
  if (!has(key)) return ok_status();
  if (!at(key).is_string()) return wrong_type(key, "a string");
  out = at(key).get<std::string>();
  if (!out.empty()) return ok_status();
  // An empty text would have to mean the same as no text; one spelling is enough.
  return refuse(path(key), "an empty string", "leave the key out");
}

Status ObjectReader::read(std::string_view key, std::int64_t least, std::int64_t most,
                          int& out) const {
  if (!has(key)) return ok_status();
  const Json& value = at(key);
  const std::string wanted =
      "an integer from " + std::to_string(least) + " to " + std::to_string(most);
  if (!value.is_number_integer()) return wrong_type(key, wanted);
  const bool above_int64 = value.is_number_unsigned() &&
                           value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  if (above_int64 || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most) {
    return wrong_type(key, wanted);
  }
  out = static_cast<int>(value.get<std::int64_t>());
  return ok_status();
}

Status ObjectReader::not_in_list(std::string_view key,
                                 const std::vector<std::string>& names) const {
  const std::string given = at(key).is_string() ? at(key).get<std::string>() : "";
  const std::string near = nearest_name(given, names);
  return refuse(path(key), "wanted one of " + joined(names) + ", given " + shown(at(key)),
                near.empty() ? "" : "did you mean \"" + near + "\"?");
}

}  // namespace attnloom
