// SPDX-License-Identifier: Apache-2.0
// Where a functor's text comes from, for compile errors: parts of shipped variants (compose.h), and
// behind them the user's own. Values.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace attnloom {

struct FieldOrigin {
  struct Member {
    std::string name;
    int line = 1;  // of the whole text, where its part begins
    bool operator==(const Member&) const = default;
  };

  int json_line = 0;              // in the user's JSON; 0: nothing of it is the user's own
  int own_line = 1;               // of the whole text, where the user's part begins
  std::vector<Member> members{};  // ascending
  bool operator==(const FieldOrigin&) const = default;
};

using FieldOrigins = std::map<std::string, FieldOrigin>;  // "variant.logits_transform" -> origin

}  // namespace attnloom
