// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

namespace attnloom::cli {
namespace {

constexpr std::size_t kBarWidth = 24;
constexpr std::size_t kUsualColumns = 80;
constexpr const char* kEraseLine = "\r\x1b[K";

std::size_t terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualColumns;
  return size.ws_col;
}

// "0:31", "1:02:03"
std::string clock_text(double seconds) {
  const long whole = static_cast<long>(seconds + 0.5);
  char text[40];
  if (whole >= 3600)
    std::snprintf(text, sizeof(text), "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
  else
    std::snprintf(text, sizeof(text), "%ld:%02ld", whole / 60, whole % 60);
  return text;
}

}  // namespace

std::string bar_text(std::size_t done, std::size_t pieces, double seconds, std::size_t columns,
                     const std::string& text) {
  const std::size_t filled = pieces == 0 ? kBarWidth : kBarWidth * done / pieces;
  std::string bar = "[" + std::string(filled, '#') + std::string(kBarWidth - filled, '-') + "] " +
                    std::to_string(done) + "/" + std::to_string(pieces) + " " +
                    std::to_string(pieces == 0 ? 100 : 100 * done / pieces) + " %";
  if (done > 0 && done < pieces)
    bar += " " +
           clock_text(seconds / static_cast<double>(done) * static_cast<double>(pieces - done)) +
           " left";
  bar += ", " + text;
  // One column stays free: a full line makes some terminals go to the next.
  return bar.substr(0, columns > 0 ? columns - 1 : 0);
}

const char* clear_line() {
  return isatty(STDERR_FILENO) ? kEraseLine : "";
}

Progress::Style Progress::style_for(bool quiet) {
  if (quiet) return Style::kNone;
  return isatty(STDERR_FILENO) ? Style::kBar : Style::kLines;
}

void Progress::begin(std::size_t pieces) {
  pieces_ = pieces;
  start_ = std::chrono::steady_clock::now();
  if (style_ == Style::kBar && pieces > 0) draw("");
}

void Progress::draw(const std::string& line) const {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  std::cerr << kEraseLine << bar_text(done_, pieces_, elapsed.count(), terminal_columns(), line)
            << std::flush;
}

void Progress::advance(const std::string& line, bool keep) {
  ++done_;
  if (style_ == Style::kLines || (style_ == Style::kNone && keep))
    std::cerr << line << '\n';
  else if (style_ == Style::kBar && keep)
    std::cerr << kEraseLine << line << '\n';
  if (style_ == Style::kBar) draw(line);
}

void Progress::end() {
  if (style_ == Style::kBar) std::cerr << kEraseLine << std::flush;
}

}  // namespace attnloom::cli
