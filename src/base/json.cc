// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <locale.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.h"

namespace attnloom {
namespace {

constexpr std::size_t kMaxDepth = 64;

// The library reads numbers with strtod and asserts on the outcome, so a host program that calls
// setlocale() could change values or abort. A thread-local "C" locale keeps the host's setting out.
class ScopedCLocale {
 public:
  ScopedCLocale()
      : c_locale_(newlocale(LC_ALL_MASK, "C", nullptr)), before_(uselocale(c_locale_)) {}
  ~ScopedCLocale() {
    uselocale(before_);
    freelocale(c_locale_);
  }
  ScopedCLocale(const ScopedCLocale&) = delete;
  ScopedCLocale& operator=(const ScopedCLocale&) = delete;

 private:
  locale_t c_locale_;
  locale_t before_;
};

// Walks over the text in step with the parser's events: the parser reports no positions, and its
// own count runs one character ahead after a number. It only ever steps over tokens that the parser
// has accepted.
class TokenWalker {
 public:
  explicit TokenWalker(std::string_view text) : text_(text) {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") offset_ = 3;  // the parser skips a byte order mark
  }

  TextPosition position() const { return position_; }

  // Moves to the first character of the next token and returns its place.
  TextPosition seek() {
    while (offset_ < text_.size() && is_between_tokens(text_[offset_])) step();
    return position_;
  }
  void skip_one() { step(); }
  void skip_string() {
    step();
    while (offset_ < text_.size() && text_[offset_] != '"') {
      if (text_[offset_] == '\\') step();
      step();
    }
    step();
  }
  // Returns the text of a number or of a literal.
  std::string_view skip_word() {
    const std::size_t start = offset_;
    while (offset_ < text_.size() && is_word(text_[offset_])) step();
    return text_.substr(start, offset_ - start);
  }

 private:
  static bool is_between_tokens(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ',' || c == ':';
  }
  static bool is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' ||
           c == '-' || c == '.';
  }
  void step() {
    if (offset_ >= text_.size()) return;
    position_ = advance_position(position_, text_[offset_]);
    ++offset_;
  }

  std::string_view text_;
  std::size_t offset_ = 0;
  TextPosition position_{1, 1};
};

std::string at(TextPosition position) {
  return "line " + std::to_string(position.line) + ", column " + std::to_string(position.column);
}

// The parser's own words without its prefix and without the quotation of the text that it had read,
// which may end in the middle of a character.
std::string syntax_cause(std::string message) {
  // "[json.exception.out_of_range.406] number overflow parsing '1e999'"
  if (const auto end = message.find("] "); message.starts_with("[") && end != std::string::npos)
    message.erase(0, end + 2);
  const auto colon = message.find(": ");
  if (message.starts_with("parse error") && colon != std::string::npos) message.erase(0, colon + 2);
  if (const auto quoted = message.find("; last read: "); quoted != std::string::npos) {
    const auto end = message.rfind('\'');
    message.erase(quoted, end == std::string::npos ? std::string::npos : end + 1 - quoted);
  }
  return message;
}

// Builds the value from the parser's events. A handler that returns false stops the parser; error()
// then says why.
class DocumentBuilder : public nlohmann::json_sax<Json> {
 public:
  DocumentBuilder(std::string_view text, Code code) : text_(text), code_(code), walker_(text) {}

  bool null() override { return word(Json(nullptr)); }
  bool boolean(bool value) override { return word(Json(value)); }
  bool number_integer(number_integer_t value) override { return word(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return word(Json(value)); }
  bool number_float(number_float_t, const string_t&) override {
    const TextPosition where = begin_value();
    const std::string_view digits = walker_.skip_word();
    if (digits.find_first_of(".eE") == std::string_view::npos) {
      return refuse(where, "the integer " + std::string(digits) + " does not fit 64 bits",
                    "write a smaller number");
    }
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    // Too small a number is 0 by strtod's rules and an error by from_chars'.
    if (error == std::errc::result_out_of_range) value = digits[0] == '-' ? -0.0 : 0.0;
    return add(Json(value));
  }
  bool string(string_t& value) override {
    begin_value();
    walker_.skip_string();
    return add(Json(std::move(value)));
  }
  bool binary(binary_t&) override { return false; }  // not a text event

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    const TextPosition where = walker_.seek();
    walker_.skip_string();
    Level& level = levels_.back();
    level.child_path = level.path + "." + name;
    if (level.value.contains(name)) {
      return refuse(where,
                    "duplicate key \"" + name + "\", first given on line " +
                        std::to_string(document_.positions[level.child_path].line),
                    "keep one of the two");
    }
    document_.positions.emplace(level.child_path, where);
    level.key = name;
    return true;
  }

  bool parse_error(std::size_t bytes_read, const std::string&,
                   const nlohmann::json::exception& exception) override {
    TextPosition where{1, 1};
    const std::size_t bad = bytes_read == 0 ? 0 : bytes_read - 1;
    for (std::size_t i = 0; i < bad && i < text_.size(); ++i)
      where = advance_position(where, text_[i]);
    const bool comment = bad < text_.size() && (text_[bad] == '/' || text_[bad] == '*');
    return refuse(where, syntax_cause(exception.what()),
                  comment ? "JSON has no comments: remove it" : "");
  }

  const Status& error() const { return error_; }
  JsonDocument take() { return std::move(document_); }

 private:
  struct Level {
    Json value;
    std::string path;
    std::string child_path;  // of the key that waits for its value
    std::string key;
  };

  std::string current_path() const {
    if (levels_.empty()) return "$";
    const Level& level = levels_.back();
    if (level.value.is_object()) return level.child_path.empty() ? level.path : level.child_path;
    return level.path + "[" + std::to_string(level.value.size()) + "]";
  }
  TextPosition begin_value() {
    const TextPosition where = walker_.seek();
    // The place of an object's member is its key, which is there already.
    if (levels_.empty() || levels_.back().value.is_array()) {
      document_.positions.emplace(current_path(), where);
    }
    return where;
  }
  bool word(Json value) {
    begin_value();
    walker_.skip_word();
    return add(std::move(value));
  }
  bool open(Json empty) {
    const TextPosition where = begin_value();
    walker_.skip_one();
    if (levels_.size() == kMaxDepth) {
      return refuse(where, "nested deeper than " + std::to_string(kMaxDepth) + " levels", "");
    }
    std::string path = current_path();
    levels_.push_back({std::move(empty), std::move(path), {}, {}});
    return true;
  }
  bool close() {
    walker_.seek();
    walker_.skip_one();
    Json value = std::move(levels_.back().value);
    levels_.pop_back();
    return add(std::move(value));
  }
  bool add(Json value) {
    if (levels_.empty()) {
      document_.value = std::move(value);
      return true;
    }
    Level& level = levels_.back();
    if (level.value.is_array()) {
      level.value.push_back(std::move(value));
    } else {
      level.value[level.key] = std::move(value);
      level.child_path.clear();
    }
    return true;
  }
  bool refuse(TextPosition where, const std::string& cause, std::string remedy) {
    error_ = make_error(code_, current_path(), at(where) + ": " + cause, std::move(remedy));
    return false;
  }

  std::string_view text_;
  Code code_;
  TokenWalker walker_;
  JsonDocument document_;
  std::vector<Level> levels_;
  Status error_;
};

}  // namespace

int JsonDocument::line_of(const std::string& path) const {
  std::string candidate = path;
  while (true) {
    if (const auto found = positions.find(candidate); found != positions.end()) {
      return found->second.line;
    }
    const auto cut = candidate.find_last_of(".[");
    if (cut == std::string::npos) return 0;
    candidate.erase(cut);
  }
}

Result<JsonDocument> parse_json(std::string_view text, Code code) {
  if (const auto bad = find_invalid_utf8(text); bad != std::string_view::npos) {
    return make_error(code, "$", at(position_of(text, bad)) + ": invalid UTF-8",
                      "save the text as UTF-8");
  }
  // The parser takes a NUL for the end of the text and would drop what follows without a word.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    return make_error(code, "$", at(position_of(text, nul)) + ": NUL character", "remove it");
  }
  const ScopedCLocale c_locale;
  DocumentBuilder builder(text, code);
  if (!Json::sax_parse(text.begin(), text.end(), &builder, Json::input_format_t::json,
                       /*strict=*/true, /*ignore_comments=*/false)) {
    return builder.error();
  }
  return builder.take();
}

}  // namespace attnloom
