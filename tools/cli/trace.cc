// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/trace.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>

#include "reference/generators.h"

namespace attnloom::cli {
namespace {

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::string_view kHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";

// A whole number in front of `text`, which is cut off together with `end` behind it ('\0': the text
// ends there).
std::optional<std::int64_t> take_integer(std::string_view& text, char end) {
  std::int64_t value = 0;
  const auto [next, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0 || value > kMaxInt32) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(next - text.data()));
  if (end == '\0') return text.empty() ? std::optional(value) : std::nullopt;
  if (text.empty() || text.front() != end) return std::nullopt;
  text.remove_prefix(1);
  return value;
}

// "2023-11-16 18:15:46.6805900," as seconds; the days are kept small, so that a double holds 100
// ns.
std::optional<double> take_time(std::string_view& text, std::int64_t& first_day) {
  const auto year = take_integer(text, '-');
  const auto month = take_integer(text, '-');
  const auto day = take_integer(text, ' ');
  const auto hour = take_integer(text, ':');
  const auto minute = take_integer(text, ':');
  if (!year || !month || !day || !hour || !minute) return std::nullopt;
  if (*year > 9999 || *hour > 23 || *minute > 59) return std::nullopt;
  double second = 0;
  const auto [next, error] = std::from_chars(text.data(), text.data() + text.size(), second);
  if (error != std::errc{} || next == text.data() + text.size() || *next != ',')
    return std::nullopt;
  if (!(second >= 0 && second < 61)) return std::nullopt;  // from_chars also reads "nan" and "inf"
  text.remove_prefix(static_cast<std::size_t>(next - text.data()) + 1);
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(*year)),
                                         std::chrono::month(static_cast<unsigned>(*month)),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok()) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  if (first_day < 0) first_day = days;
  return static_cast<double>(((days - first_day) * 24 + *hour) * 60 + *minute) * 60.0 + second;
}

std::optional<Arrival> parse_row(std::string_view row, std::int64_t& first_day) {
  const auto seconds = take_time(row, first_day);
  if (!seconds) return std::nullopt;
  const auto context = take_integer(row, ',');
  const auto generated = take_integer(row, '\0');
  if (!context || !generated) return std::nullopt;
  return Arrival{*seconds, *context, *generated};
}

Status row_error(const std::string& name, std::size_t line, const std::string& cause) {
  return make_error(Code::kArgumentInvalid, name + ":" + std::to_string(line), cause,
                    "the columns are " + std::string(kHeader));
}

}  // namespace

Result<std::vector<Arrival>> parse_trace(std::string_view csv, const std::string& name) {
  std::vector<Arrival> arrivals;
  std::int64_t first_day = -1;
  for (std::size_t line = 1; !csv.empty(); ++line) {
    const std::size_t end = std::min(csv.find('\n'), csv.size());
    std::string_view row = csv.substr(0, end);
    csv.remove_prefix(std::min(end + 1, csv.size()));
    if (!row.empty() && row.back() == '\r') row.remove_suffix(1);
    if (line == 1) {
      if (row != kHeader)
        return row_error(name, 1, "wanted the header, given \"" + std::string(row) + "\"");
      continue;
    }
    if (row.empty()) continue;
    std::optional<Arrival> arrival = parse_row(row, first_day);
    if (!arrival)
      return row_error(
          name, line,
          "wanted YYYY-MM-DD HH:MM:SS[.FRACTION] and two counts of at most 2147483647, "
          "given \"" +
              std::string(row) + "\"");
    arrival->line = line;
    arrivals.push_back(*arrival);
    if (arrivals.size() > 1 && arrival->seconds < arrivals[arrivals.size() - 2].seconds) {
      return row_error(name, line, "an arrival before the row above it");
    }
  }
  if (arrivals.empty()) return row_error(name, 1, "wanted rows, given none");
  const double start = arrivals.front().seconds;
  for (Arrival& arrival : arrivals) arrival.seconds -= start;
  return arrivals;
}

Result<BatchLengths> batch_at(const std::vector<Arrival>& trace, double at_seconds, int batch,
                              BatchKind kind, std::uint64_t seed) {
  std::size_t end = 0;
  while (end < trace.size() && trace[end].seconds < at_seconds) ++end;
  if (batch < 1 || static_cast<std::size_t>(batch) > end) {
    return make_error(Code::kArgumentInvalid, "--batch",
                      "wanted 1 to " + std::to_string(end) + ", the arrivals before --at; given " +
                          std::to_string(batch),
                      "take a later moment or a smaller batch");
  }
  return batch_ending(trace, end, batch, kind, seed);
}

Result<BatchLengths> batch_ending(const std::vector<Arrival>& trace, std::size_t end, int batch,
                                  BatchKind kind, std::uint64_t seed) {
  BatchLengths lengths;
  for (int i = 0; i < batch; ++i) {
    const Arrival& arrival =
        trace[end - static_cast<std::size_t>(batch) + static_cast<std::size_t>(i)];
    const bool prefill =
        kind == BatchKind::kPrefill || (kind == BatchKind::kMixed && i + 1 == batch);
    std::int64_t tokens = arrival.context_tokens;
    if (!prefill) {
      const double share = reference::random_value(reference::Generator::kUniform, seed,
                                                   static_cast<std::uint64_t>(i));
      tokens += static_cast<std::int64_t>(
          std::floor(share * static_cast<double>(arrival.generated_tokens)));
    }
    if (tokens > kMaxInt32) {
      return make_error(Code::kWorkloadInvalid, "--trace",
                        "line " + std::to_string(arrival.line) + ": a request of " +
                            std::to_string(tokens) + " tokens, more than an int32 holds");
    }
    lengths.kv_len.push_back(static_cast<std::int32_t>(tokens));
    lengths.prompt_tokens.push_back(arrival.context_tokens);
    lengths.blocks.push_back(arrival.blocks);
    lengths.qo_len.push_back(prefill ? static_cast<std::int32_t>(tokens) : 1);
  }
  return lengths;
}

}  // namespace attnloom::cli
