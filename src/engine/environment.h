// SPDX-License-Identifier: Apache-2.0
// Environment: the variables that Attnloom looks at, read once when a context is made and never
// again. A value, so that tests and tools can make up their own.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

namespace attnloom {

struct VariableRow {
  std::string_view name;
  std::string_view meaning;
};

// Every variable read, in the order that documents list them. The only place of the library that
// names one.
std::span<const VariableRow> environment_table();

struct Environment {
  std::map<std::string, std::string> values;  // set and not empty only

  // "" when the variable is not set. An empty variable counts as not set.
  std::string get(const std::string& name) const;
};

// REQUIRES: no other thread changes the environment meanwhile (the C library's own rule).
Environment read_environment();

}  // namespace attnloom
