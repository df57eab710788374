// SPDX-License-Identifier: Apache-2.0
#include "compile/compiler_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace attnloom {
namespace {

// Render's #line names. Behind a functor's text stands "variant.x:end": a text that stops too early
// only shows at the next token, which is ours.
constexpr std::string_view kUserFile = "variant.";
constexpr std::string_view kEnd = ":end";

struct LogError {
  std::string file;  // empty: no place in a file
  int line = 0;
  std::string message;
};

struct FatalRemark {
  std::string_view number;
  Code code;
  std::string_view meaning;
};
constexpr std::array<FatalRemark, 6> kFatalRemarks = {{
    {"C7508", Code::kCompileFailed, "setmaxnreg is ignored"},
    {"C7510", Code::kCompileFailed, "wgmma is serialised across a call that was not inlined"},
    {"C7512", Code::kResourceLimit, "wgmma is serialised for want of registers"},
    {"C7513", Code::kCompileFailed,
     "wgmma is serialised: its register operand is written while it runs"},
    {"C7514", Code::kCompileFailed, "wgmma is serialised: its accumulator is read while it runs"},
    {"C7520", Code::kCompileFailed, "wgmma stands in a divergent path"},
}};

template <class Visit>  // Visit(line) -> true to stop
void visit_lines(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (visit(text.substr(0, end))) return;
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The text between the first `before` and the next `after`.
std::optional<std::string_view> between(std::string_view text, std::string_view before,
                                        std::string_view after) {
  const std::size_t begin = text.find(before);
  if (begin == std::string_view::npos) return std::nullopt;
  text.remove_prefix(begin + before.size());
  const std::size_t end = text.find(after);
  if (end == std::string_view::npos) return std::nullopt;
  return text.substr(0, end);
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

std::optional<int> to_int(std::string_view text, int base = 10) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "FILE(LINE): error: MESSAGE", "FILE(LINE): catastrophic error #5-D: MESSAGE".
std::optional<LogError> front_end_error(std::string_view line) {
  const std::size_t close = line.find("): ");
  if (close == std::string_view::npos) return std::nullopt;
  const std::size_t open = line.rfind('(', close);
  if (open == std::string_view::npos) return std::nullopt;
  const auto number = to_int(line.substr(open + 1, close - open - 1));
  const std::string_view rest = line.substr(close + 3);
  const std::size_t colon = rest.find(": ");
  if (!number || colon == std::string_view::npos || !contains(rest.substr(0, colon), "error"))
    return std::nullopt;
  return LogError{std::string(line.substr(0, open)), *number,
                  std::string(trimmed(rest.substr(colon + 2)))};
}

// "ptxas error   : MESSAGE", "ptxas application ptx input, line 28; error   : MESSAGE", "nvrtc:
// error: MESSAGE".
std::optional<LogError> tool_error(std::string_view line) {
  if (line.substr(0, 5) != "ptxas" && line.substr(0, 5) != "nvrtc") return std::nullopt;
  for (const std::string_view word : {"error", "fatal"}) {
    const std::size_t at = line.find(word);
    const std::size_t colon = line.find(": ", at);
    if (at == std::string_view::npos || colon == std::string_view::npos) continue;
    if (!trimmed(line.substr(at + word.size(), colon - at - word.size())).empty()) continue;
    return LogError{{}, 0, std::string(trimmed(line.substr(colon + 2)))};
  }
  return std::nullopt;
}

std::optional<LogError> first_error(std::string_view log) {
  std::optional<LogError> found;
  visit_lines(log, [&](std::string_view line) {
    found = front_end_error(line);
    if (!found) found = tool_error(line);
    return found.has_value();
  });
  return found;
}

// "Entry function 'k' uses too much shared data (0x61a80 bytes, 0x38c00 max)".
Status over_limit(const std::string& message) {
  const auto kernel = between(message, "'", "'").value_or("");
  const auto what = between(message, "uses too much ", " (").value_or("of a resource");
  const auto used = to_int(between(message, "(0x", " bytes").value_or(""), 16);
  const auto most = to_int(between(message, ", 0x", " max)").value_or(""), 16);
  if (!used || !most) return make_error(Code::kResourceLimit, "", message, "choose a smaller tile");
  return make_error(Code::kResourceLimit, "",
                    "kernel \"" + std::string(kernel) + "\" needs " + std::to_string(*used) +
                        " bytes of " + std::string(what) + "; the target has " +
                        std::to_string(*most) + " (" + message + ")",
                    "choose a smaller tile");
}

// "A function without execution space annotations ... Consider using -default-device flag ...":
// specs have no way to give that option.
constexpr std::string_view kDeviceAdvice = " Consider using -default-device";

Status user_error(const LogError& error) {
  std::string_view field = error.file;
  const bool at_end =
      field.size() > kEnd.size() && field.substr(field.size() - kEnd.size()) == kEnd;
  if (at_end) field.remove_suffix(kEnd.size());
  const std::string path = "$." + std::string(field);
  if (at_end) {
    return make_error(Code::kCompileFailed, path,
                      std::string(field) + ": at the end of the text: " + error.message,
                      "end the text with a whole statement or declaration: it may lack a ';', or "
                      "a return");
  }
  const std::string place = error.file + ":" + std::to_string(error.line) + ": ";
  if (const std::size_t advice = error.message.find(kDeviceAdvice); advice != std::string::npos) {
    return make_error(Code::kCompileFailed, path, place + error.message.substr(0, advice),
                      contains(error.message, "variable")
                          ? "write __device__ or constexpr before the variable"
                          : "write __device__ before the function");
  }
  return make_error(Code::kCompileFailed, path, place + error.message,
                    "correct the functor's text");
}

}  // namespace

std::string stable_log(std::string_view log) {
  std::string kept;
  visit_lines(log, [&](std::string_view line) {
    if (!trimmed(line).empty() && !contains(line, "Compile time ="))
      kept.append(line).push_back('\n');
    return false;
  });
  return kept;
}

bool names_an_error(std::string_view log) {
  return first_error(log).has_value();
}

Status failure_in_log(std::string_view log, const Status& fallback) {
  const auto error = first_error(log);
  if (!error) return fallback;
  if (contains(error->message, "uses too much")) return over_limit(error->message);
  if (contains(error->message, "not supported on .target")) {
    return make_error(Code::kSpecUnsupported, "$.target", error->message,
                      "name the target that has the instruction, such as sm_90a for Hopper's own");
  }
  // Of the machine, not of the text: it must never be kept as a failure of this spec.
  if (error->file.empty() && contains(error->message, "emory allocation")) {
    return make_error(Code::kOutOfMemory, "", "the compiler ran out of memory: " + error->message,
                      "compile fewer kernels at a time");
  }
  // ptxas sees no file: the text is PTX from a functor's asm statement, as our own is tested.
  if (error->file.empty())
    return make_error(Code::kCompileFailed, "", error->message, fallback.remedy);
  const std::string cause = error->file + ":" + std::to_string(error->line) + ": " + error->message;
  if (error->file.compare(0, kUserFile.size(), kUserFile) == 0) return user_error(*error);
  return make_error(Code::kTemplate, "", cause,
                    "a fault of the library or of the param list: please report it");
}

Status fatal_remark_in_log(std::string_view log) {
  Status status;
  visit_lines(log, [&](std::string_view line) {
    for (const FatalRemark& remark : kFatalRemarks) {
      if (!contains(line, "(" + std::string(remark.number) + ")")) continue;
      status = make_error(remark.code, "",
                          "ptxas remark " + std::string(remark.number) + ": " +
                              std::string(remark.meaning) + " (" + std::string(trimmed(line)) + ")",
                          remark.code == Code::kResourceLimit
                              ? "choose a smaller tile"
                              : "simplify the functors, or choose another tile");
    }
    return !status.ok();
  });
  return status;
}

void read_spills(std::string_view log, std::vector<EntryFigures>& entries) {
  auto current = entries.end();
  visit_lines(log, [&](std::string_view line) {
    if (const auto name = between(line, "Compiling entry function '", "'")) {
      current = std::find_if(entries.begin(), entries.end(),
                             [&](const EntryFigures& entry) { return entry.name == *name; });
    }
    // "0 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads"
    const auto stores =
        to_int(between(line, "bytes stack frame, ", " bytes spill stores").value_or(""));
    const auto loads =
        to_int(between(line, "bytes spill stores, ", " bytes spill loads").value_or(""));
    if (current != entries.end() && stores && loads) {
      current->spill_store_bytes += *stores;
      current->spill_load_bytes += *loads;
    }
    return false;
  });
}

}  // namespace attnloom
