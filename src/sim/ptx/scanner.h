// SPDX-License-Identifier: Apache-2.0
// Characters of a PTX text to words, numbers and punctuation. Never fails: at the end it yields
// empty words.
#pragma once

#include <cstdint>
#include <string_view>

namespace attnloom::sim {

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  std::uint32_t line() const { return line_; }
  bool at_end();  // skips blanks and comments first, as all below do
  char peek();    // '\0' at the end
  bool accept(char c);
  bool accept_word(std::string_view word);
  // Letters, digits, '_', '$', '%', '.' and "::": an opcode, an operand or a number. A word that
  // begins with '.' is a directive and ends before the next '.'.
  std::string_view word();
  std::string_view quoted();        // "..." without the quotes; empty if there is none
  std::string_view rest_of_line();  // without its newline
  void skip_block();                // from '{' to its '}'

 private:
  void skip();

  std::string_view text_;
  std::size_t at_ = 0;
  std::uint32_t line_ = 1;
};

}  // namespace attnloom::sim
