// SPDX-License-Identifier: Apache-2.0
#include <charconv>

#include "sim/ptx/parser.h"

namespace attnloom::sim {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

}  // namespace

void PtxParser::push_scope() {
  std::uint32_t parent = scopes_.size() > 1 ? scopes_.back().id : kNone;
  scopes_.emplace_back();
  scopes_.back().id = static_cast<std::uint32_t>(function_.scope_parent.size());
  function_.scope_parent.push_back(parent);
}

void PtxParser::body() {
  place_ = 0;
  push_scope();
  std::size_t outer = scopes_.size() - 1;
  while (ok()) {
    if (scan_.at_end()) return fail("a function without its '}'");
    if (scan_.accept(';')) continue;
    if (scan_.accept('{')) {
      push_scope();  // inline assembly declares its own registers and labels
    } else if (scan_.accept('}')) {
      scopes_.pop_back();
      if (scopes_.size() == outer) return;
    } else if (scan_.peek() == '@') {
      statement({});
    } else {
      statement_or_label();
    }
  }
}

void PtxParser::statement_or_label() {
  std::string_view word = scan_.word();
  if (word.empty()) return fail(std::string("unexpected '") + scan_.peek() + "'");
  if (word[0] == '.') return body_directive(word);
  if (!scan_.accept(':')) return statement(word);
  if (scan_.accept_word(".branchtargets")) return branch_targets(word);
  function_.labels[{scopes_.back().id, word}] =
      static_cast<std::uint32_t>(function_.statements.size());
}

void PtxParser::branch_targets(std::string_view label) {
  std::vector<std::string_view>& list = function_.targets[{scopes_.back().id, label}];
  do {
    list.push_back(scan_.word());
  } while (scan_.accept(','));
  expect(';');
}

void PtxParser::body_directive(std::string_view word) {
  if (shared_directive(word)) return;
  if (word == ".reg") {
    register_declaration();
  } else if (word == ".shared" || word == ".local" || word == ".param" || word == ".global" ||
             word == ".const") {
    variable(word == ".shared"   ? Space::kShared
             : word == ".local"  ? Space::kLocal
             : word == ".param"  ? Space::kParam
             : word == ".global" ? Space::kGlobal
                                 : Space::kConst);
  } else {
    fail("unknown directive '" + std::string(word) + "' in a function");
  }
}

void PtxParser::register_declaration() {
  std::string_view type_word = scan_.word();
  std::optional<Type> type =
      type_word.starts_with('.') ? parse_type(type_word.substr(1)) : std::nullopt;
  if (!type) return fail("unknown register type '" + std::string(type_word) + "'");
  do {
    RegisterName name;
    name.first = static_cast<std::uint32_t>(function_.registers.size());
    std::string_view word = scan_.word();
    if (scan_.accept('<')) {
      name.count = static_cast<std::uint32_t>(number());
      expect('>');
    }
    std::uint32_t count = name.count == 0 ? 1 : name.count;
    if (count > 1'000'000) return fail("too many registers");
    function_.registers.resize(name.first + count, PtxRegister{*type});
    scopes_.back().registers[word] = name;
  } while (ok() && scan_.accept(','));
  expect(';');
}

void PtxParser::statement(std::string_view first_word) {
  PtxStatement s;
  s.line = scan_.line();
  s.place = place_;
  s.scope = scopes_.back().id;
  if (first_word.empty() && scan_.accept('@')) {
    s.guard_negated = scan_.accept('!');
    std::string_view name = scan_.word();
    s.guard = find_register(name);
    if (s.guard == kNone) return fail("unknown guard '" + std::string(name) + "'");
    first_word = scan_.word();
  }
  s.opcode = first_word;
  if (scan_.peek() != ';') {
    do {
      s.operands.push_back(operand());
    } while (ok() && scan_.accept(','));
  }
  if (expect(';')) function_.statements.push_back(std::move(s));
}

PtxOperand PtxParser::operand() {
  if (scan_.accept('[')) return address();
  if (scan_.accept('{')) return list('}');
  if (scan_.accept('(')) return list(')');
  bool negated = scan_.accept('!');
  PtxOperand result = word_operand();
  result.negated = negated;
  if (scan_.accept('|')) {
    std::string_view name = scan_.word();
    result.second = find_register(name);
    if (result.second == kNone && name != "_") fail("unknown register '" + std::string(name) + "'");
  }
  return result;
}

PtxOperand PtxParser::list(char end) {
  PtxOperand result;
  result.kind = PtxOperand::Kind::kVector;
  if (scan_.accept(end)) return result;
  do {
    result.items.push_back(operand());
  } while (ok() && scan_.accept(','));
  expect(end);
  return result;
}

PtxOperand PtxParser::word_operand() {
  using Kind = PtxOperand::Kind;
  PtxOperand result;
  Scanner before = scan_;
  bool negative = scan_.accept('-');
  std::string_view word = scan_.word();
  if (word.empty()) {
    fail(std::string("wanted an operand, found '") + scan_.peek() + "'");
    return result;
  }
  result.text = word;
  if (negative || is_digit(word[0]) || word == "WARP_SZ") {
    result.kind = Kind::kImmediate;
    // The sign and the digits are neighbours in the text.
    if (negative) result.text = std::string_view(word.data() - 1, word.size() + 1);
    if (negative && result.text[0] != '-') {
      scan_ = before;
      fail("a blank inside a negative number");
    }
  } else if (word == "_") {
    result.kind = Kind::kSink;
  } else if ((result.id = find_register(word)) != kNone) {
    result.kind = Kind::kRegister;
  } else if (word[0] == '%') {
    result.kind = Kind::kSpecial;
  } else if ((result.id = find_symbol(word)) != kNone) {
    result.kind = Kind::kSymbol;
  } else {
    result.kind = Kind::kName;
  }
  return result;
}

PtxOperand PtxParser::address() {
  PtxOperand result;
  result.kind = PtxOperand::Kind::kAddress;
  result.items.push_back(operand());
  if (scan_.accept('+')) {
    result.offset = static_cast<std::int64_t>(number());
  } else if (scan_.peek() == '-') {
    result.offset = static_cast<std::int64_t>(number());
  }
  while (ok() && scan_.accept(',')) result.items.push_back(operand());
  expect(']');
  return result;
}

std::uint32_t PtxParser::find_register(std::string_view name) const {
  std::size_t digits = name.size();
  while (digits > 0 && is_digit(name[digits - 1])) --digits;
  std::uint32_t index = kNone;
  // A leading zero is part of the name: "%r01" is not register 1.
  if (digits < name.size() && (name[digits] != '0' || digits + 1 == name.size())) {
    std::from_chars(name.data() + digits, name.data() + name.size(), index);
  }
  for (std::size_t k = scopes_.size(); k-- > 1;) {
    const auto& registers = scopes_[k].registers;
    if (auto it = registers.find(name); it != registers.end() && it->second.count == 0)
      return it->second.first;
    if (index == kNone) continue;
    auto it = registers.find(name.substr(0, digits));
    if (it != registers.end() && index < it->second.count) return it->second.first + index;
  }
  return kNone;
}

std::uint32_t PtxParser::find_symbol(std::string_view name) const {
  for (std::size_t k = scopes_.size(); k-- > 0;) {
    if (auto it = scopes_[k].symbols.find(name); it != scopes_[k].symbols.end()) return it->second;
  }
  return kNone;
}

}  // namespace attnloom::sim
