// SPDX-License-Identifier: Apache-2.0
#include "sim/decode/opcode.h"

#include <algorithm>
#include <array>
#include <utility>

namespace attnloom::sim {

Opcode::Opcode(std::string_view text) : text_(text) {
  std::size_t dot = text.find('.');
  base_ = text.substr(0, dot);
  while (dot != std::string_view::npos) {
    std::size_t next = text.find('.', dot + 1);
    modifiers_.push_back(
        text.substr(dot + 1, next == std::string_view::npos ? next : next - dot - 1));
    dot = next;
  }
}

bool Opcode::take(std::string_view modifier) {
  auto it = std::find(modifiers_.begin(), modifiers_.end(), modifier);
  if (it == modifiers_.end()) return false;
  modifiers_.erase(it);
  return true;
}

std::optional<std::string_view> Opcode::take_prefix(std::string_view prefix) {
  for (auto it = modifiers_.begin(); it != modifiers_.end(); ++it) {
    if (!it->starts_with(prefix)) continue;
    std::string_view rest = it->substr(prefix.size());
    modifiers_.erase(it);
    return rest;
  }
  return std::nullopt;
}

std::optional<Type> Opcode::take_type() {
  for (auto it = modifiers_.begin(); it != modifiers_.end(); ++it) {
    if (std::optional<Type> type = parse_type(*it)) {
      modifiers_.erase(it);
      return type;
    }
  }
  return std::nullopt;
}

Rounding Opcode::take_rounding() {
  constexpr std::array<std::pair<std::string_view, Rounding>, 9> kNames = {{
      {"rn", Rounding::kRn},
      {"rz", Rounding::kRz},
      {"rm", Rounding::kRm},
      {"rp", Rounding::kRp},
      {"rni", Rounding::kRni},
      {"rzi", Rounding::kRzi},
      {"rmi", Rounding::kRmi},
      {"rpi", Rounding::kRpi},
      {"rna", Rounding::kRna},
  }};
  for (const auto& [name, rounding] : kNames) {
    if (take(name)) return rounding;
  }
  return Rounding::kNone;
}

}  // namespace attnloom::sim
