// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/batch_input.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>

#include "base/json.h"
#include "spec/parse.h"
#include "tools/cli/mooncake.h"
#include "tools/cli/output.h"
#include "tools/cli/session.h"
#include "tools/cli/trace.h"

namespace attnloom::cli {
namespace {

constexpr const char* kDefaultSpec = R"({"attnloom": 1, "kernel": "attention",
  "dtype": {"q": "bf16", "kv": "bf16", "o": "bf16"}, "head_dim": {"qk": 128, "vo": 128}, "group_size": 4,
  "layout": {"kv": "paged", "page_size": 16}, "variant": {"name": "plain", "mask": {"causal": true}}})";

BatchKind kind_of(const std::string& name) {
  if (name == "prefill") return BatchKind::kPrefill;
  return name == "mixed" ? BatchKind::kMixed : BatchKind::kDecode;
}

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();

struct TraceBatch {
  ParsedSpec parsed;
  BatchLengths lengths;
  std::optional<PageTable> pages;  // where the trace says which prompts are alike
  std::vector<ScalarParam> scalars;
};

Result<ScalarParam> parse_param(const std::string& text) {
  const std::size_t equals = text.find('=');
  double value = 0;
  if (equals != std::string::npos) {
    const char* begin = text.data() + equals + 1;
    const auto [end, error] = std::from_chars(begin, text.data() + text.size(), value);
    if (error == std::errc{} && end == text.data() + text.size())
      return ScalarParam{text.substr(0, equals), value};
  }
  return make_error(Code::kArgumentInvalid, "--param", "wanted NAME=NUMBER, given " + text);
}

Result<std::vector<Arrival>> read_arrivals(const std::string& text, const std::string& name) {
  return text.starts_with('{') ? parse_mooncake(text, name) : parse_trace(text, name);
}

Result<TraceBatch> load_trace(const BatchOptions& options, std::uint64_t seed) {
  TraceBatch batch;
  if (options.spec.empty()) {
    ATTNLOOM_TRY(batch.parsed, parse_spec(kDefaultSpec));
  } else {
    ATTNLOOM_TRY(batch.parsed, load_spec(options.spec));
  }
  const std::int64_t q_heads = std::int64_t{options.kv_heads} * batch.parsed.spec.group_size;
  if (q_heads > kMaxInt32) {
    return make_error(Code::kArgumentInvalid, "--kv-heads",
                      "times group_size this is " + std::to_string(q_heads) +
                          " query heads, more than an int32 holds");
  }
  ATTNLOOM_TRY(const std::string text, read_input(options.trace));
  const bool is_mooncake = text.starts_with('{');
  ATTNLOOM_TRY(const std::vector<Arrival> arrivals, read_arrivals(text, options.trace));
  ATTNLOOM_TRY(batch.lengths,
               batch_at(arrivals, options.at_seconds, options.batch, kind_of(options.kind), seed));
  const Layout& layout = batch.parsed.spec.layout;
  if (is_mooncake && layout.kv == KvLayout::kPaged) {
    ATTNLOOM_TRY(batch.pages, share_pages(batch.lengths, layout.page_size, seed));
  }
  for (const std::string& text : options.params) {
    ATTNLOOM_TRY(ScalarParam param, parse_param(text));
    batch.scalars.push_back(std::move(param));
  }
  return batch;
}

// The trace's batch as a case file would say it: one reader for both.
Json case_json(const BatchOptions& options, const TraceBatch& batch, std::uint64_t seed) {
  const auto normal = [seed](std::uint64_t which) {
    return Json{{"random", "normal"}, {"seed", (seed * 3 + which) & 0xFFFFFFFF}};
  };
  Json workload = {
      {"heads", {{"q", options.kv_heads * batch.parsed.spec.group_size}, {"kv", options.kv_heads}}},
      {"qo_len", batch.lengths.qo_len},
      {"kv_len", batch.lengths.kv_len}};
  if (options.window_left) workload["window_left"] = *options.window_left;
  if (batch.pages) {
    workload["pages"] = {{"indptr", batch.pages->indptr},
                         {"indices", batch.pages->indices},
                         {"last_page_len", batch.pages->last_page_len},
                         {"pool", batch.pages->pool}};
  }
  Json inputs = {{"q", normal(0)}, {"k", normal(1)}, {"v", normal(2)}};
  for (const ScalarParam& param : batch.scalars) inputs["params"][param.name] = param.value;
  return {{"case", kCaseVersion},
          {"spec", spec_to_json(batch.parsed.spec)},
          {"workload", std::move(workload)},
          {"inputs", std::move(inputs)}};
}

Result<CaseFile> lengths_only(const BatchOptions& options, TraceBatch batch) {
  CaseFile file;
  file.spec = std::move(batch.parsed.spec);
  file.kv_heads = options.kv_heads;
  file.q_heads = options.kv_heads * file.spec.group_size;
  file.qo_len = std::move(batch.lengths.qo_len);
  file.kv_len = std::move(batch.lengths.kv_len);
  file.window_left = options.window_left;
  file.scalars = std::move(batch.scalars);
  file.qo_indptr = {0};
  file.kv_indptr = {0};
  const bool paged = file.spec.layout.kv == KvLayout::kPaged;
  for (int r = 0; r < file.batch(); ++r) {
    const std::int64_t page_size = paged ? file.spec.layout.page_size : 1;
    const std::int64_t entries = (file.kv_len[r] + page_size - 1) / page_size;
    const std::int64_t rows = std::int64_t{file.qo_indptr.back()} + file.qo_len[r];
    if (rows > kMaxInt32 || file.kv_indptr.back() + entries > kMaxInt32) {
      return make_error(Code::kArgumentInvalid, "--batch",
                        "the lengths of the requests add up to more than an int32 holds",
                        "take fewer requests or another moment");
    }
    file.qo_indptr.push_back(static_cast<std::int32_t>(rows));
    file.kv_indptr.push_back(static_cast<std::int32_t>(file.kv_indptr.back() + entries));
    const std::int64_t last = entries == 0 ? 0 : file.kv_len[r] - (entries - 1) * page_size;
    if (paged) file.last_page_len.push_back(static_cast<std::int32_t>(last));
  }
  if (batch.pages) {
    file.page_indices = std::move(batch.pages->indices);
    file.pool_pages = batch.pages->pool;
  }
  return file;
}

Result<CaseFile> load_case(const BatchOptions& options, const CaseOptions& how) {
  ATTNLOOM_TRY(const std::string text, read_input(options.case_path));
  const std::string folder = std::filesystem::path(options.case_path).parent_path().string();
  return parse_case(text, folder.empty() ? "." : folder, how);
}

CLI::Validator seconds() {
  const auto check = [](std::string& text) {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [next, error] = std::from_chars(text.data(), end, value);
    const bool good = error == std::errc{} && next == end && std::isfinite(value) && value >= 0;
    return good ? std::string() : "wanted seconds of at least 0, given " + text.substr(0, 40);
  };
  return CLI::Validator(check, "");
}

}  // namespace

void add_batch_options(CLI::App& command, BatchOptions& options, bool whole_traces) {
  CLI::Option_group& source = *command.add_option_group("Batch", "a case, or a moment of a trace");
  source.add_option("CASE", options.case_path, "case file");
  CLI::Option* trace =
      source.add_option("--trace", options.trace, "serving trace (CSV, or JSON lines of Mooncake)");
  source.require_option(1);
  CLI::Option* at =
      command.add_option("--at", options.at_seconds, "seconds from the trace's first row")
          ->check(seconds())
          ->needs(trace);
  CLI::Option* batch =
      command.add_option("--batch", options.batch, "requests: the last arrivals before --at")
          ->check(whole_number(1, kMaxInt32))
          ->needs(trace);
  if (!whole_traces) trace->needs(at)->needs(batch);
  command.add_option("--kind", options.kind, "of the trace's batch")
      ->check(CLI::IsMember({"decode", "mixed", "prefill"}))
      ->needs(trace)
      ->capture_default_str();
  command
      .add_option("--spec", options.spec, "for the trace (default: plain causal bf16, pages of 16)")
      ->needs(trace);
  command.add_option("--kv-heads", options.kv_heads, "of the trace's batch")
      ->check(whole_number(1, kMaxInt32))
      ->needs(trace)
      ->capture_default_str();
  command
      .add_option("--param", options.params,
                  "NAME=NUMBER, a scalar param of --spec; may be repeated")
      ->needs(trace);
  command.add_flag("--no-shared-prefix", options.no_shared_prefix,
                   "read a prefix that requests share once for each of them");
  command.add_option("--window-left", options.window_left, "where --spec says \"runtime\"")
      ->needs(trace);
}

Result<TraceSource> load_trace_source(const BatchOptions& options) {
  ATTNLOOM_TRY(const ParsedSpec parsed,
               options.spec.empty() ? parse_spec(kDefaultSpec) : load_spec(options.spec));
  ATTNLOOM_TRY(const std::string text, read_input(options.trace));
  TraceSource source{parsed.spec, {}, kind_of(options.kind)};
  ATTNLOOM_TRY(source.arrivals, read_arrivals(text, options.trace));
  return source;
}

Result<CaseFile> load_batch(const BatchOptions& options, std::uint64_t seed) {
  if (!options.case_path.empty()) return load_case(options, {.page_seed = seed});
  ATTNLOOM_TRY(const TraceBatch batch, load_trace(options, seed));
  ATTNLOOM_TRY(CaseFile file,
               parse_case(case_json(options, batch, seed).dump(), ".", {.page_seed = seed}));
  file.field_lines = batch.parsed.field_lines;  // those of the spec's own file
  file.composed = batch.parsed.composed;
  file.own_functors = batch.parsed.own_functors;
  return file;
}

Result<CaseFile> load_batch_lengths(const BatchOptions& options, std::uint64_t seed) {
  if (!options.case_path.empty()) return load_case(options, {.page_seed = seed, .tensors = false});
  ATTNLOOM_TRY(TraceBatch batch, load_trace(options, seed));
  return lengths_only(options, std::move(batch));
}

}  // namespace attnloom::cli
