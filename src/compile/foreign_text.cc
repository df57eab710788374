// SPDX-License-Identifier: Apache-2.0
#include "compile/foreign_text.h"

#include <algorithm>
#include <optional>

namespace attnloom {
namespace {

constexpr std::string_view kFunctor = "variant.";
constexpr std::string_view kLeftOut = "[what was said about another file is left out]\n";
constexpr std::string_view kSeverities[] = {"error",  "catastrophic error", "warning",
                                            "remark", "internal error",     "command-line error"};

// FILE of "FILE(LINE): error: MESSAGE". The first such place in the line: MESSAGE may hold another.
std::optional<std::string_view> diagnosed_file(std::string_view line) {
  if (line.starts_with(' ')) return std::nullopt;  // quoted
  for (std::size_t close = line.find("): "); close != std::string_view::npos;
       close = line.find("): ", close + 1)) {
    const std::string_view said = line.substr(close + 3);
    const std::size_t open = line.rfind('(', close);
    const bool known =
        std::any_of(std::begin(kSeverities), std::end(kSeverities),
                    [&](std::string_view severity) { return said.starts_with(severity); });
    if (!known || open == std::string_view::npos || open + 1 == close) continue;
    const std::string_view number = line.substr(open + 1, close - open - 1);
    if (number.find_first_not_of("0123456789") == std::string_view::npos)
      return line.substr(0, open);
  }
  return std::nullopt;
}

// What no quotation begins with: the tools behind the front end, and its last line.
bool begins_anew(std::string_view line) {
  return line.starts_with("ptxas ") || line.starts_with("nvrtc: ") ||
         line.find(" detected in the compilation of \"") != std::string_view::npos;
}

}  // namespace

std::string without_foreign_text(std::string_view log, const std::vector<std::string_view>& own) {
  std::string kept;
  bool foreign = false;
  while (!log.empty()) {
    const std::size_t end = std::min(log.find('\n'), log.size() - 1) + 1;
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(end);
    const std::optional<std::string_view> file = diagnosed_file(line);
    if (file) {
      foreign =
          !file->starts_with(kFunctor) && std::find(own.begin(), own.end(), *file) == own.end();
      if (foreign) kept.append(kLeftOut);
    } else if (begins_anew(line)) {
      foreign = false;
    }
    if (!foreign) kept.append(line);
  }
  return kept;
}

}  // namespace attnloom
