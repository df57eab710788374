// SPDX-License-Identifier: Apache-2.0
// "ld.global.nc.v4.f32" as a base and modifiers that are taken one by one; what nobody takes is an
// unknown form.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "sim/ins.h"
#include "sim/ptx/types.h"

namespace attnloom::sim {

class Opcode {
 public:
  explicit Opcode(std::string_view text);
  std::string_view text() const { return text_; }
  std::string_view base() const { return base_; }
  bool take(std::string_view modifier);
  // Takes the first modifier that starts so and returns what follows ("v4" with "v" gives "4").
  std::optional<std::string_view> take_prefix(std::string_view prefix);
  std::optional<Type> take_type();
  Rounding take_rounding();
  bool empty() const { return modifiers_.empty(); }
  std::string_view front() const { return modifiers_.front(); }

 private:
  std::string_view text_, base_;
  std::vector<std::string_view> modifiers_;
};

}  // namespace attnloom::sim
