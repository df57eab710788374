// SPDX-License-Identifier: Apache-2.0
// Log: lines for the context's callback, formatted by spdlog, which owns no file, no global logger
// and no clock here.
//
// Thread-safe. Never throws and never writes anywhere but to the callback; without one every line
// is dropped.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace attnloom {

// Numbers are those of alm_log_callback.
enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

class Log {
 public:
  using Sink = std::function<void(LogLevel, const std::string&)>;

  Log();  // drops everything
  Log(Sink sink, LogLevel least);
  ~Log();
  Log(Log&&) noexcept;
  Log& operator=(Log&&) noexcept;

  void debug(const std::string& line) const { write(LogLevel::kDebug, line); }
  void info(const std::string& line) const { write(LogLevel::kInfo, line); }
  void warn(const std::string& line) const { write(LogLevel::kWarning, line); }
  void write(LogLevel level, const std::string& line) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attnloom
