// SPDX-License-Identifier: Apache-2.0
// How far a long command is, on standard error: a bar with the time left on a terminal, elsewhere a
// line for each piece of work. Not thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace attnloom::cli {

class Progress {
 public:
  enum class Style { kBar, kLines, kNone };
  // kBar where standard error is a terminal.
  static Style style_for(bool quiet);

  explicit Progress(Style style) : style_(style) {}

  void begin(std::size_t pieces);
  // One more piece is done. `line` tells of it; `keep` leaves that line above the bar.
  void advance(const std::string& line, bool keep);
  // Takes the bar away.
  void end();

 private:
  void draw(const std::string& line) const;

  Style style_;
  std::size_t pieces_ = 0;
  std::size_t done_ = 0;
  std::chrono::steady_clock::time_point start_;
};

// What a line on standard error begins with, so that a bar is not in it: "" without a terminal.
const char* clear_line();

// "[####----] 12/24 50 % 0:31 left, TEXT", cut to `columns`. `seconds` since the start, while
// `done` of `pieces` were done.
std::string bar_text(std::size_t done, std::size_t pieces, double seconds, std::size_t columns,
                     const std::string& text);

}  // namespace attnloom::cli
