// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>

#include "spec/functor_text.h"

namespace attnloom {
namespace {

constexpr std::size_t kMaxNameBytes = 64;

// C++20's keywords and alternative tokens: a name should outlive a change of -std.
constexpr std::string_view kKeywords[] = {
    "alignas",       "alignof",     "and",
    "and_eq",        "asm",         "auto",
    "bitand",        "bitor",       "bool",
    "break",         "case",        "catch",
    "char",          "char16_t",    "char32_t",
    "char8_t",       "class",       "co_await",
    "co_return",     "co_yield",    "compl",
    "concept",       "const",       "const_cast",
    "consteval",     "constexpr",   "constinit",
    "continue",      "decltype",    "default",
    "delete",        "do",          "double",
    "dynamic_cast",  "else",        "enum",
    "explicit",      "export",      "extern",
    "false",         "float",       "for",
    "friend",        "goto",        "if",
    "inline",        "int",         "long",
    "mutable",       "namespace",   "new",
    "noexcept",      "not",         "not_eq",
    "nullptr",       "operator",    "or",
    "or_eq",         "private",     "protected",
    "public",        "register",    "reinterpret_cast",
    "requires",      "return",      "short",
    "signed",        "sizeof",      "static",
    "static_assert", "static_cast", "struct",
    "switch",        "template",    "this",
    "thread_local",  "throw",       "true",
    "try",           "typedef",     "typeid",
    "typename",      "union",       "unsigned",
    "using",         "virtual",     "void",
    "volatile",      "wchar_t",     "while",
    "xor",           "xor_eq",
};

// Arguments of the functors (element functors, then row functors) and names of the rendered program
// that a member of Variant would hide or repeat.
constexpr std::string_view kTaken[] = {
    "logits",
    "batch",
    "q_pos",
    "kv_pos",
    "q_head",
    "kv_head",
    "q_len",
    "kv_len",
    "o",
    "lse",
    "dim",
    "q_pos_begin",
    "q_pos_end",
    "kv_pos_begin",
    "kv_pos_end",
    "q_head_begin",
    "q_head_end",
    "x",
    "a",
    "loom",
    "Variant",
    "Config",
    "TileClass",
    "plan",
    "args",
    "threadIdx",
    "blockIdx",
    "blockDim",
    "gridDim",
    "warpSize",
    "logits_transform",
    "logits_mask",
    "tile_mask",
    "output_transform",
    "query_transform",
    "key_transform",
    "value_transform",
    "sink_of",
    "NULL",
    "NAN",
    "INFINITY",
};

bool contains(const std::string_view* begin, const std::string_view* end, std::string_view name) {
  return std::find(begin, end, name) != end;
}

bool is_identifier(std::string_view name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  if (name.empty() || name.size() > kMaxNameBytes || !is_letter(name.front())) return false;
  return std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

// As much of a bad name as can be shown on one line of a log: it may hold anything.
std::string shown(std::string_view name) {
  std::string text;
  for (const char c : name.substr(0, kMaxNameBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x20 || byte >= 0x7f ? '?' : c;
  }
  if (name.size() > kMaxNameBytes) text += "... (" + std::to_string(name.size()) + " bytes)";
  return "\"" + text + "\"";
}

// Identifiers that the language keeps for the compiler, and which may be macros.
bool is_reserved(std::string_view name) {
  const bool leading = name.size() > 1 && name[0] == '_' && name[1] >= 'A' && name[1] <= 'Z';
  return leading || name.find("__") != std::string_view::npos || name.substr(0, 5) == "LOOM_";
}

}  // namespace

Status check_name(std::string_view name, const std::string& path) {
  if (!is_identifier(name)) {
    return make_error(Code::kSpecInvalid, path, shown(name) + " is not a name",
                      "use a letter or _, then at most 63 letters, digits or _ (ASCII)");
  }
  if (contains(std::begin(kKeywords), std::end(kKeywords), name)) {
    return make_error(Code::kSpecInvalid, path, shown(name) + " is a keyword of C++",
                      "choose another name");
  }
  return ok_status();
}

Status check_param_name(std::string_view name, const std::string& path) {
  ATTNLOOM_CHECK(check_name(name, path));
  if (contains(std::begin(kTaken), std::end(kTaken), name)) {
    return make_error(Code::kSpecInvalid, path,
                      shown(name) + " is the name of a functor's argument or of the kernel",
                      "choose another name");
  }
  if (is_reserved(name)) {
    return make_error(Code::kSpecInvalid, path, shown(name) + " is reserved for the compiler",
                      "choose a name without __, a leading _ and capital, or LOOM_");
  }
  return ok_status();
}

}  // namespace attnloom
