// SPDX-License-Identifier: Apache-2.0
#include "sim/ptx/parser.h"

#include <algorithm>

namespace attnloom::sim {
namespace {

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

// Directives that take numbers and say nothing that the simulation needs.
bool is_ignored_attribute(std::string_view word) {
  return word == ".maxnctapersm" || word == ".noreturn" || word == ".explicitcluster" ||
         word == ".reqnctapercluster" || word == ".maxclusterrank" || word == ".blocksareclusters";
}

}  // namespace

std::uint32_t PtxFunction::find_label(std::uint32_t scope, std::string_view label) const {
  for (; scope != kNone; scope = scope_parent[scope]) {
    if (auto it = labels.find({scope, label}); it != labels.end()) return it->second;
  }
  return kNone;
}

const std::vector<std::string_view>* PtxFunction::find_targets(std::uint32_t scope,
                                                               std::string_view label) const {
  for (; scope != kNone; scope = scope_parent[scope]) {
    if (auto it = targets.find({scope, label}); it != targets.end()) return &it->second;
  }
  return nullptr;
}

const PtxFunction* PtxModule::find_function(std::string_view name) const {
  for (const PtxFunction& f : functions) {
    if (f.name == name && f.has_body) return &f;
  }
  return nullptr;
}

Result<PtxModule> parse_ptx(std::string_view text) {
  return PtxParser(text).parse();
}

void PtxParser::fail(std::string cause) {
  if (!ok()) return;
  status_ = make_error(
      Code::kLoadFailed, "ptx:" + std::to_string(scan_.line()), std::move(cause),
      "The simulator reads the PTX that NVRTC emits; report this form if it came from there.");
}

bool PtxParser::expect(char c) {
  if (!ok()) return false;
  if (scan_.accept(c)) return true;
  std::string got = scan_.at_end() ? "the end of the text" : std::string("'") + scan_.peek() + "'";
  fail(std::string("wanted '") + c + "', found " + got);
  return false;
}

Result<PtxModule> PtxParser::parse() {
  scopes_.emplace_back();
  module_.places.emplace_back();
  while (ok() && !scan_.at_end()) {
    if (scan_.accept(';')) continue;
    std::string_view word = scan_.word();
    if (word.empty()) {
      fail(std::string("unexpected '") + scan_.peek() + "' outside a function");
    } else {
      module_directive(word);
    }
  }
  if (!ok()) return status_;
  return std::move(module_);
}

void PtxParser::module_directive(std::string_view word) {
  if (shared_directive(word)) return;
  if (word == ".version" || word == ".address_size") {
    scan_.rest_of_line();
  } else if (word == ".target") {
    module_.target = scan_.word();
    scan_.rest_of_line();
  } else if (word == ".visible" || word == ".extern" || word == ".weak" || word == ".common") {
    return;  // linkage: one module is all there is
  } else if (word == ".entry" || word == ".func") {
    function(word == ".entry");
  } else if (word == ".global" || word == ".const" || word == ".shared") {
    variable(word == ".global"  ? Space::kGlobal
             : word == ".const" ? Space::kConst
                                : Space::kShared);
  } else if (word == ".section") {
    scan_.skip_block();
  } else {
    fail("unknown directive '" + std::string(word) + "'");
  }
}

bool PtxParser::shared_directive(std::string_view word) {
  if (word == ".file") {
    std::uint32_t id = static_cast<std::uint32_t>(number());
    module_.files[id] = scan_.quoted();
    scan_.rest_of_line();
  } else if (word == ".loc") {
    location();
  } else if (word == ".pragma") {
    scan_.quoted();
    expect(';');
  } else {
    return false;
  }
  return true;
}

void PtxParser::location() {
  PtxPlace place;
  place.file = static_cast<std::uint32_t>(number());
  place.line = static_cast<std::uint32_t>(number());
  std::string_view rest = scan_.rest_of_line();
  if (std::size_t at = rest.find("inlined_at"); at != std::string_view::npos) {
    Scanner tail(rest.substr(at + 10));
    place.caller_file =
        static_cast<std::uint32_t>(literal_bits(tail.word(), Type::kU32).value_or(0));
    place.caller_line =
        static_cast<std::uint32_t>(literal_bits(tail.word(), Type::kU32).value_or(0));
  }
  place_ = static_cast<std::uint32_t>(module_.places.size());
  module_.places.push_back(place);
}

std::uint64_t PtxParser::number() {
  bool negative = scan_.accept('-');
  std::string_view word = scan_.word();
  std::optional<std::uint64_t> value = literal_bits(word, Type::kU64);
  if (!value) fail("wanted a number, found '" + std::string(word) + "'");
  return negative ? 0 - value.value_or(0) : value.value_or(0);
}

void PtxParser::function(bool is_entry) {
  function_ = {};
  function_.is_entry = is_entry;
  scopes_.resize(1);
  push_scope();
  if (!is_entry && scan_.accept('(')) parameters(function_.results);
  function_.name = scan_.word();
  if (scan_.accept('(')) parameters(function_.parameters);
  function_attributes(function_);
  if (ok() && scan_.accept('{')) {
    function_.has_body = true;
    body();
  }
  scopes_.resize(1);
  if (ok()) module_.functions.push_back(std::move(function_));
}

void PtxParser::function_attributes(PtxFunction& function) {
  while (ok() && scan_.peek() == '.') {
    std::string_view word = scan_.word();
    bool is_limit = word == ".maxntid" || word == ".reqntid";
    std::uint32_t* single = word == ".maxnreg"        ? &function.registers_limit
                            : word == ".minnctapersm" ? &function.ctas_per_sm
                                                      : nullptr;
    if (!is_limit && single == nullptr && !is_ignored_attribute(word))
      return fail("unknown attribute '" + std::string(word) + "'");
    if (scan_.peek() < '0' || scan_.peek() > '9') continue;
    std::uint64_t product = number();
    while (ok() && scan_.accept(',')) product *= number();
    if (single != nullptr)
      *single = static_cast<std::uint32_t>(std::max<std::uint64_t>(product, 1));
    if (is_limit) function.threads_limit = static_cast<std::uint32_t>(product);
  }
}

void PtxParser::parameters(std::vector<std::uint32_t>& list) {
  if (scan_.accept(')')) return;
  do {
    std::string_view word = scan_.word();
    if (word != ".param") return fail("wanted .param, found '" + std::string(word) + "'");
    list.push_back(add_symbol(Space::kParam, declaration()));
  } while (ok() && scan_.accept(','));
  expect(')');
}

PtxParser::Declaration PtxParser::declaration() {
  Declaration d;
  std::string_view word;
  while (ok() && (word = scan_.word()).starts_with('.')) {
    if (word == ".align") {
      d.align_bytes = static_cast<std::uint32_t>(number());
    } else if (word == ".ptr" || word == ".global" || word == ".shared" || word == ".const" ||
               word == ".local" || word == ".generic" || word == ".managed") {
      continue;  // what a pointer points to: no use for it
    } else if (std::optional<Type> type = parse_type(word.substr(1))) {
      d.type = *type;
    } else {
      fail("unknown type or qualifier '" + std::string(word) + "'");
    }
  }
  d.name = word;
  std::uint64_t element_bytes = static_cast<std::uint64_t>(type_bytes(d.type));
  d.align_bytes = std::max<std::uint32_t>(d.align_bytes, static_cast<std::uint32_t>(element_bytes));
  d.bytes = element_bytes;
  while (ok() && scan_.accept('[')) {
    d.bytes *= scan_.peek() == ']' ? 0 : number();
    expect(']');
  }
  return d;
}

std::uint32_t PtxParser::add_symbol(Space space, const Declaration& d) {
  std::uint32_t id = static_cast<std::uint32_t>(module_.symbols.size());
  PtxSymbol symbol;
  symbol.name = d.name;
  symbol.space = space;
  symbol.align_bytes = d.align_bytes;
  symbol.bytes = d.bytes;
  module_.symbols.push_back(std::move(symbol));
  scopes_.back().symbols[d.name] = id;
  return id;
}

void PtxParser::variable(Space space) {
  do {
    Declaration d = declaration();
    if (!ok()) return;
    std::uint32_t id = add_symbol(space, d);
    if (scan_.accept('=')) initializer(module_.symbols[id], d.type);
  } while (ok() && scan_.accept(','));
  expect(';');
}

void PtxParser::initializer(PtxSymbol& symbol, Type type) {
  std::uint64_t at = 0;
  int depth = 0;
  symbol.initial.assign(symbol.bytes, 0);
  do {
    while (scan_.accept('{')) ++depth;
    if (scan_.peek() != '}') initial_value(symbol, type, at);
    while (depth > 0 && scan_.accept('}')) --depth;
  } while (ok() && scan_.accept(','));
}

void PtxParser::initial_value(PtxSymbol& symbol, Type type, std::uint64_t& at) {
  std::uint64_t bytes = static_cast<std::uint64_t>(type_bytes(type));
  std::string literal = scan_.accept('-') ? "-" : "";
  std::string_view word = scan_.word();
  literal += word;
  at = round_up(at, bytes);
  if (at + bytes > symbol.initial.size())
    return fail("too many initial values for " + std::string(symbol.name));
  if (std::optional<std::uint64_t> value = literal_bits(literal, type)) {
    for (std::uint64_t k = 0; k < bytes; ++k) {
      symbol.initial[at + k] = static_cast<std::uint8_t>(k < 8 ? *value >> (8 * k) : 0);
    }
  } else {
    bool in_parentheses = word == "generic" && scan_.accept('(');
    std::string_view name = in_parentheses ? scan_.word() : word;
    if (in_parentheses) expect(')');
    if (bytes != 8 || name.empty()) return fail("initial value of " + std::string(symbol.name));
    symbol.pointers.emplace_back(at, name);
  }
  at += bytes;
}

}  // namespace attnloom::sim
