// SPDX-License-Identifier: Apache-2.0
// Source: everything a compile depends on, as a value. Two equal Sources compile to equal bytes
// with one compiler; nothing in it varies with machine, path, time, locale or user. Value; safe to
// pass between threads.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace attnloom {

// A header passed to the compiler in memory, already without comments and blank lines.
struct Header {
  std::string name;  // "loom/tile.cuh", as #include spells it
  std::string text;
  bool operator==(const Header&) const = default;
};

struct Source {
  std::string text;                  // the rendered CUDA program
  std::vector<Header> headers;       // sorted by name; only those the program can reach
  std::vector<std::string> options;  // in order, no path among them
  std::string target;                // "sm_90a"
  std::vector<std::string> entries;  // extern "C" kernel names
  bool operator==(const Source&) const = default;
};

}  // namespace attnloom
