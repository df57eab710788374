// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/mooncake.h"

#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/json.h"
#include "reference/generators.h"

namespace attnloom::cli {
namespace {

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

std::optional<std::int64_t> count_at(const Json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end() || !found->is_number_integer()) return std::nullopt;
  if (*found < 0 || *found > kMaxInt32) return std::nullopt;
  return found->get<std::int64_t>();
}

std::optional<Arrival> parse_row(const Json& row) {
  if (!row.is_object()) return std::nullopt;
  const auto time = count_at(row, "timestamp");
  const auto input = count_at(row, "input_length");
  const auto output = count_at(row, "output_length");
  const auto ids = row.find("hash_ids");
  if (!time || !input || !output || ids == row.end() || !ids->is_array()) return std::nullopt;
  if (std::ssize(*ids) != (*input + kMooncakeBlock - 1) / kMooncakeBlock) return std::nullopt;
  Arrival arrival{static_cast<double>(*time) / 1000, *input, *output, 0, {}};
  for (const Json& id : *ids) {
    if (!id.is_number_integer() || id < 0 || id > kMaxInt32) return std::nullopt;
    arrival.blocks.push_back(id);
  }
  return arrival;
}

Status row_error(const std::string& name, std::size_t line, const std::string& cause) {
  return make_error(Code::kArgumentInvalid, name + ":" + std::to_string(line), cause,
                    "a line is {\"timestamp\": milliseconds, \"input_length\": N, "
                    "\"output_length\": N, \"hash_ids\": [an id for each 512 tokens begun]}");
}

}  // namespace

Result<std::vector<Arrival>> parse_mooncake(std::string_view lines, const std::string& name) {
  std::vector<Arrival> arrivals;
  for (std::size_t line = 1; !lines.empty(); ++line) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    std::string_view text = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    if (text.empty()) continue;
    const Result<JsonDocument> row = parse_json(text, Code::kArgumentInvalid);
    if (!row.ok()) return row_error(name, line, row.status().cause);
    std::optional<Arrival> arrival = parse_row(row->value);
    if (!arrival)
      return row_error(name, line,
                       "wanted a request's lengths and ids, all whole numbers of at "
                       "most 2147483647, given \"" +
                           std::string(text.substr(0, 80)) + "\"");
    arrival->line = line;
    if (!arrivals.empty() && arrival->seconds < arrivals.back().seconds)
      return row_error(name, line, "an arrival before the row above it");
    arrivals.push_back(*std::move(arrival));
  }
  if (arrivals.empty()) return row_error(name, 1, "wanted rows, given none");
  const double start = arrivals.front().seconds;
  for (Arrival& arrival : arrivals) arrival.seconds -= start;
  return arrivals;
}

Result<PageTable> share_pages(const BatchLengths& batch, std::int64_t page_size,
                              std::uint64_t seed) {
  PageTable table{.indptr = {0}};
  // The last block that a page touches says all that lies before it. A prompt's page in it stands
  // at the same place for every request, so both name the page.
  std::map<std::pair<std::int64_t, std::int64_t>, std::int32_t> known;
  for (std::size_t r = 0; r < batch.kv_len.size(); ++r) {
    const std::int64_t tokens = batch.kv_len[r];
    const std::int64_t pages = (tokens + page_size - 1) / page_size;
    if (table.indptr.back() + pages >= kMaxInt32) {
      return make_error(Code::kArgumentInvalid, "--batch",
                        "the requests have more pages than an int32 counts",
                        "take fewer requests or another moment");
    }
    for (std::int64_t page = 0; page < pages; ++page) {
      const std::int64_t end = (page + 1) * page_size;
      std::int32_t number = static_cast<std::int32_t>(table.pool);
      if (end <= batch.prompt_tokens[r]) {
        const std::int64_t block = batch.blocks[r][(end - 1) / kMooncakeBlock];
        number = known.try_emplace({block, page}, number).first->second;
      }
      table.indices.push_back(number);
      table.pool = std::max<std::int64_t>(table.pool, number + std::int64_t{1});
    }
    table.indptr.push_back(static_cast<std::int32_t>(table.indices.size()));
    table.last_page_len.push_back(
        pages == 0 ? 0 : static_cast<std::int32_t>(tokens - (pages - 1) * page_size));
  }
  ++table.pool;
  // As for cases that leave "pages" out: a kernel must not get away with numbers in order.
  std::vector<std::int32_t> places(static_cast<std::size_t>(table.pool));
  std::iota(places.begin(), places.end(), 0);
  for (std::size_t i = places.size() - 1; i > 0; --i)
    std::swap(places[i], places[reference::random_bits(seed, i) % (i + 1)]);
  for (std::int32_t& index : table.indices) index = places[static_cast<std::size_t>(index)];
  return table;
}

}  // namespace attnloom::cli
