// SPDX-License-Identifier: Apache-2.0
// The recursive-descent parser behind parse_ptx. The first error sticks; every loop stops on it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/ptx/ast.h"
#include "sim/ptx/scanner.h"

namespace attnloom::sim {

class PtxParser {
 public:
  explicit PtxParser(std::string_view text) : scan_(text) {}
  Result<PtxModule> parse();

 private:
  struct RegisterName {
    std::uint32_t first = 0;
    std::uint32_t count = 0;  // 0: a single register, otherwise "%r<count>"
  };
  struct Scope {
    std::uint32_t id = 0;
    std::map<std::string_view, RegisterName> registers;
    std::map<std::string_view, std::uint32_t> symbols;
  };
  struct Declaration {  // "align 8 .b8 name[16]"
    std::string_view name;
    Type type = Type::kB8;
    std::uint32_t align_bytes = 0;
    std::uint64_t bytes = 0;
  };

  bool ok() const { return status_.ok(); }
  void fail(std::string cause);
  bool expect(char c);

  // parser.cc: module level
  void module_directive(std::string_view word);
  bool shared_directive(std::string_view word);  // those legal at both levels
  void function(bool is_entry);
  void function_attributes(PtxFunction& function);
  void parameters(std::vector<std::uint32_t>& list);
  void variable(Space space);
  void initializer(PtxSymbol& symbol, Type type);
  void initial_value(PtxSymbol& symbol, Type type, std::uint64_t& at);
  Declaration declaration();
  std::uint64_t number();
  void location();
  std::uint32_t add_symbol(Space space, const Declaration& declaration);

  // parser_body.cc: function level
  void body();
  void body_directive(std::string_view word);
  void register_declaration();
  void statement_or_label();
  void statement(std::string_view first_word);
  void branch_targets(std::string_view label);
  PtxOperand operand();
  PtxOperand word_operand();
  PtxOperand address();
  PtxOperand list(char end);
  std::uint32_t find_register(std::string_view name) const;
  std::uint32_t find_symbol(std::string_view name) const;
  void push_scope();

  Scanner scan_;
  PtxModule module_;
  PtxFunction function_;
  std::vector<Scope> scopes_;  // [0] is the module's
  std::uint32_t place_ = 0;
  Status status_;
};

// The bits of a literal as a value of `type`: "0f3F800000", "0d...", "-72", "0x10", "1.5",
// "WARP_SZ".
std::optional<std::uint64_t> literal_bits(std::string_view text, Type type);

}  // namespace attnloom::sim
