// SPDX-License-Identifier: Apache-2.0
#include "sim/ptx/scanner.h"

namespace attnloom::sim {
namespace {

bool is_word(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '$' || c == '%' || c == '.';
}

}  // namespace

void Scanner::skip() {
  while (at_ < text_.size()) {
    char c = text_[at_];
    if (c == '\n') ++line_;
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
      ++at_;
    } else if (text_.compare(at_, 2, "//") == 0) {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (text_.compare(at_, 2, "/*") == 0) {
      std::size_t end = text_.find("*/", at_ + 2);
      if (end == std::string_view::npos) end = text_.size() - 2;
      for (; at_ < end + 2; ++at_) line_ += text_[at_] == '\n';
    } else {
      return;
    }
  }
}

bool Scanner::at_end() {
  skip();
  return at_ >= text_.size();
}

char Scanner::peek() {
  return at_end() ? '\0' : text_[at_];
}

bool Scanner::accept(char c) {
  if (peek() != c) return false;
  ++at_;
  return true;
}

bool Scanner::accept_word(std::string_view word) {
  skip();
  std::size_t at = at_;
  if (this->word() == word) return true;
  at_ = at;  // a word holds no newline, so the line number stands
  return false;
}

std::string_view Scanner::word() {
  skip();
  std::size_t begin = at_;
  // Inline assembly writes ".reg.b16 x": two directives, where an opcode's dots belong to it.
  bool is_directive = at_ < text_.size() && text_[at_] == '.';
  while (at_ < text_.size()) {
    if (is_directive && text_[at_] == '.' && at_ > begin) break;
    if (is_word(text_[at_])) {
      ++at_;
    } else if (text_.compare(at_, 2, "::") == 0) {
      at_ += 2;
    } else {
      break;
    }
  }
  return text_.substr(begin, at_ - begin);
}

std::string_view Scanner::quoted() {
  if (!accept('"')) return {};
  std::size_t begin = at_;
  while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') ++at_;
  std::string_view result = text_.substr(begin, at_ - begin);
  if (at_ < text_.size()) ++at_;
  return result;
}

std::string_view Scanner::rest_of_line() {
  std::size_t begin = at_;
  while (at_ < text_.size() && text_[at_] != '\n') ++at_;
  return text_.substr(begin, at_ - begin);
}

void Scanner::skip_block() {
  while (!at_end() && text_[at_] != '{') ++at_;
  int depth = 0;
  while (!at_end()) {
    char c = text_[at_++];
    if (c == '{') ++depth;
    if (c == '}' && --depth == 0) return;
  }
}

}  // namespace attnloom::sim
