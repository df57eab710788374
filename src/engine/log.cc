// SPDX-License-Identifier: Apache-2.0
#include "engine/log.h"

#include <spdlog/details/null_mutex.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>

#include <utility>

namespace attnloom {
namespace {

LogLevel level_of(spdlog::level::level_enum level) {
  if (level >= spdlog::level::err) return LogLevel::kError;
  if (level == spdlog::level::warn) return LogLevel::kWarning;
  return level == spdlog::level::info ? LogLevel::kInfo : LogLevel::kDebug;
}

spdlog::level::level_enum level_for(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

// No lock of its own: a callback that calls back into the library must not deadlock.
class CallbackSink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit CallbackSink(Log::Sink sink) : sink_callback_(std::move(sink)) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    sink_callback_(level_of(message.level),
                   std::string(message.payload.data(), message.payload.size()));
  }
  void flush_() override {}

 private:
  Log::Sink sink_callback_;
};

}  // namespace

struct Log::State {
  State(Sink sink, LogLevel least)
      : logger("attnloom", std::make_shared<CallbackSink>(std::move(sink))) {
    logger.set_level(level_for(least));
    // spdlog would print to stderr what a callback throws.
    logger.set_error_handler([](const std::string&) {});
  }
  spdlog::logger logger;
};

Log::Log() = default;
Log::Log(Sink sink, LogLevel least) {
  if (sink) state_ = std::make_unique<State>(std::move(sink), least);
}
Log::~Log() = default;
Log::Log(Log&&) noexcept = default;
Log& Log::operator=(Log&&) noexcept = default;

void Log::write(LogLevel level, const std::string& line) const {
  if (state_) state_->logger.log(level_for(level), spdlog::string_view_t(line));
}

}  // namespace attnloom
