// SPDX-License-Identifier: Apache-2.0
#include "spec/functor_text.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/utf8.h"

namespace attnloom {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_word(char c) {
  return is_letter(c) || is_digit(c);
}
bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// Names that are the preprocessor's, or that make one text compile to other bytes elsewhere or
// tomorrow.
bool is_refused_word(std::string_view word) {
  static constexpr std::string_view kRefused[] = {
      "_Pragma",     "__pragma", "__has_include", "__has_include_next",
      "__has_embed", "__DATE__", "__TIME__",      "__TIMESTAMP__",
  };
  for (const std::string_view refused : kRefused) {
    if (word == refused) return true;
  }
  return false;
}

// What may stand before an operand any number of times: - + ! ~ * & and how else C++ spells them.
bool is_prefix_operator(char c) {
  return std::string_view("-+!~*&").find(c) != std::string_view::npos;
}
bool is_prefix_word(std::string_view word) {
  return word == "not" || word == "compl" || word == "bitand" || word == "and" || word == "sizeof";
}

bool is_raw_prefix(std::string_view word) {
  return word == "R" || word == "u8R" || word == "uR" || word == "UR" || word == "LR";
}

// One pass over the text, a token a step. It has to agree with the compiler on where comments and
// literals end; whatever could make the two differ (splices, trigraphs, lone carriage returns) is
// refused before it starts.
class Scanner {
 public:
  Scanner(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  Result<FunctorTokens> scan() {
    ATTNLOOM_CHECK(check_characters());
    while (at_ < text_.size()) ATTNLOOM_CHECK(step());
    if (!open_.empty()) {
      return refuse(open_.back(), std::string("'") + text_[open_.back()] + "' is never closed",
                    "balance the brackets inside the text");
    }
    if (tokens_ == 0)
      return make_error(Code::kSpecInvalid, path_, "the text has no code", "leave the key out");
    return std::move(found_);
  }

 private:
  Status refuse(std::size_t offset, const std::string& cause, std::string remedy) const {
    const TextPosition place = position_of(text_, offset);
    return make_error(Code::kSpecInvalid, path_,
                      cause + " (line " + std::to_string(place.line) + ", column " +
                          std::to_string(place.column) + " of the text)",
                      std::move(remedy));
  }

  char peek(std::size_t ahead) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool starts(std::string_view word) const { return text_.substr(at_, word.size()) == word; }

  // What no place of the text may hold, comments and literals included.
  Status check_characters() const {
    if (text_.size() > kMaxFunctorBytes) {
      return make_error(Code::kSpecInvalid, path_,
                        "the text has " + std::to_string(text_.size()) + " bytes, more than " +
                            std::to_string(kMaxFunctorBytes),
                        "shorten it");
    }
    for (std::size_t i = 0; i < text_.size(); ++i) {
      const char c = text_[i];
      const char next = i + 1 < text_.size() ? text_[i + 1] : '\0';
      const auto byte = static_cast<unsigned char>(c);
      if ((byte < 0x20 && !is_space(c)) || byte == 0x7f) {
        return refuse(i, "control character " + std::to_string(byte), "remove it");
      }
      if (c == '\r' && next != '\n')
        return refuse(i, "carriage return without line feed", "end lines with \\n");
      if (c == '?' && next == '?' && is_trigraph_end(i + 2)) {
        return refuse(i, "the trigraph " + std::string(text_.substr(i, 3)),
                      "write the character itself");
      }
      if (c == '\\' && is_splice(i + 1)) {
        return refuse(i, "a backslash joins two lines", "write one line");
      }
    }
    return ok_status();
  }
  bool is_trigraph_end(std::size_t i) const {
    return i < text_.size() &&
           std::string_view("=/'()!<>-").find(text_[i]) != std::string_view::npos;
  }
  // Compilers differ on white space between the backslash and the end of the line; the end of the
  // text is one too, since the template ends the line behind it.
  bool is_splice(std::size_t i) const {
    while (i < text_.size() && (text_[i] == ' ' || text_[i] == '\t' || text_[i] == '\r')) ++i;
    return i >= text_.size() || text_[i] == '\n';
  }

  Status step() {
    const char c = text_[at_];
    if (is_space(c)) {
      if (c == '\n') line_has_token_ = false;
      ++at_;
      return ok_status();
    }
    if (starts("//")) {
      at_ = std::min(text_.find('\n', at_), text_.size());
      return ok_status();
    }
    if (starts("/*")) return skip_block_comment();
    if (c == '#') return directive();
    ++tokens_;
    line_has_token_ = true;
    if (is_prefix_operator(c)) {
      ATTNLOOM_CHECK(count_prefix(at_));
    } else if (!is_letter(c)) {
      prefix_run_ = 0;
    }
    if (is_letter(c)) return word();
    if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return number();
    if (c == '"' || c == '\'') return literal(c);
    return punctuation(c);
  }

  Status count_prefix(std::size_t offset) {
    if (++prefix_run_ <= kMaxPrefixRun) return ok_status();
    return refuse(
        offset,
        "more than " + std::to_string(kMaxPrefixRun) + " prefix operators one behind the other",
        "put operands between them");
  }

  Status too_deep() const {
    return refuse(at_, "brackets nest deeper than " + std::to_string(kMaxBracketDepth),
                  "write part of it as a statement of its own");
  }

  Status skip_block_comment() {
    const std::size_t end = text_.find("*/", at_ + 2);
    if (end == std::string_view::npos)
      return refuse(at_, "a comment that does not end", "close it with */");
    // A directive behind a comment is still one; only a line that holds nothing but `#pragma
    // unroll` is let through.
    line_has_token_ = true;
    at_ = end + 2;
    return ok_status();
  }

  std::string_view take_word() {
    const std::size_t begin = at_;
    while (is_word(peek(0))) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  bool skip_blanks() {
    const std::size_t begin = at_;
    while (peek(0) == ' ' || peek(0) == '\t') ++at_;
    return at_ > begin;
  }

  Status directive() {
    const std::size_t begin = at_;
    ++at_;
    skip_blanks();
    const bool unroll =
        !line_has_token_ && take_word() == "pragma" && skip_blanks() && take_word() == "unroll";
    if (!unroll) {
      return refuse(begin, "'#' would start a preprocessor directive",
                    "of directives only #pragma unroll, on a line of its own, is allowed");
    }
    return unroll_count();
  }

  // The rest of the directive's line. The compiler reads it apart from the code around it, so a
  // bracket that opens here must not be balanced by one on a later line.
  Status unroll_count() {
    std::size_t depth = 0;
    while (at_ < text_.size() && peek(0) != '\n' && !starts("//")) {
      const char c = peek(0);
      if (is_letter(c)) {
        ATTNLOOM_CHECK(word());
      } else if (is_digit(c)) {
        ATTNLOOM_CHECK(number());
      } else if (is_space(c) || c == '+' || c == '-' || c == '*' || c == '(' ||
                 (c == ')' && depth > 0)) {
        if (depth == kMaxBracketDepth && c == '(') return too_deep();
        if (is_prefix_operator(c)) ATTNLOOM_CHECK(count_prefix(at_));
        if (c == '(' || c == ')') prefix_run_ = 0;
        depth += c == '(' ? 1 : 0;
        depth -= c == ')' ? 1 : 0;
        ++at_;
      } else {
        return refuse(at_, std::string("'") + c + "' behind #pragma unroll",
                      "write a number or a name there");
      }
    }
    if (depth > 0)
      return refuse(at_, "a '(' behind #pragma unroll is not closed on its line", "close it");
    return ok_status();
  }

  Status word() {
    const std::size_t begin = at_;
    const std::string_view name = take_word();
    if (peek(0) == '"' && is_raw_prefix(name)) return raw_string();
    if (is_refused_word(name)) {
      return refuse(begin, std::string(name) + " is not allowed in a functor", "remove it");
    }
    found_.identifiers.emplace(name);
    if (is_prefix_word(name)) return count_prefix(begin);
    prefix_run_ = 0;
    return ok_status();
  }

  // A preprocessing number: 0x1p-3f, 1'000, 1e+5. A quote inside it is no character literal.
  Status number() {
    prefix_run_ = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\'' && is_word(peek(1))) {
        at_ += 2;
      } else if ((c == 'e' || c == 'E' || c == 'p' || c == 'P') &&
                 (peek(1) == '+' || peek(1) == '-')) {
        at_ += 2;
      } else if (is_word(c) || c == '.') {
        ++at_;
      } else {
        break;
      }
    }
    return ok_status();
  }

  Status literal(char quote) {
    const std::size_t begin = at_;
    ++at_;
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n') {
      at_ += text_[at_] == '\\' ? 2 : 1;
    }
    if (peek(0) != quote)
      return refuse(begin, "a literal that does not end on its line", "close it");
    ++at_;
    return ok_status();
  }

  Status raw_string() {
    const std::size_t begin = at_;
    const std::size_t open = text_.find('(', at_);
    constexpr std::size_t kMaxDelimiter = 16;  // [lex.string]
    if (open == std::string_view::npos || open - at_ - 1 > kMaxDelimiter ||
        text_.substr(at_ + 1, open - at_ - 1).find_first_of(" )\\\t\n\r\"") !=
            std::string_view::npos) {
      return refuse(begin, "a raw string without a valid opening", "write it as R\"(...)\"");
    }
    const std::string end = ")" + std::string(text_.substr(at_ + 1, open - at_ - 1)) + "\"";
    const std::size_t close = text_.find(end, open);
    if (close == std::string_view::npos)
      return refuse(begin, "a raw string that does not end", "close it");
    at_ = close + end.size();
    return ok_status();
  }

  Status punctuation(char c) {
    if (static_cast<unsigned char>(c) >= 0x80) {
      return refuse(at_, "a character outside ASCII in code",
                    "spell names with A-Z, a-z, 0-9 and _");
    }
    if (c == '\\') return refuse(at_, "a backslash outside a literal", "remove it");
    if (c == '$' || c == '@' || c == '`')
      return refuse(at_, std::string("'") + c + "' in code", "remove it");
    if (starts("%:") || starts("<%") || starts("%>")) {
      return refuse(at_, "the digraph " + std::string(text_.substr(at_, 2)),
                    "write braces as { and }; preprocessor directives are not allowed");
    }
    if (c == '(' || c == '[' || c == '{') {
      if (open_.size() == kMaxBracketDepth) return too_deep();
      open_.push_back(at_);
    }
    if (c == ')' || c == ']' || c == '}') {
      const char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (open_.empty() || text_[open_.back()] != wanted) {
        return refuse(at_, std::string("'") + c + "' closes nothing inside the text",
                      "balance the brackets inside the text");
      }
      open_.pop_back();
    }
    ++at_;
    return ok_status();
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t at_ = 0;
  bool line_has_token_ = false;
  int tokens_ = 0;
  int prefix_run_ = 0;             // prefix operators since the last other token
  std::vector<std::size_t> open_;  // offsets of brackets
  FunctorTokens found_;
};

}  // namespace

Result<FunctorTokens> scan_functor(std::string_view text, const std::string& path) {
  return Scanner(text, path).scan();
}

}  // namespace attnloom
