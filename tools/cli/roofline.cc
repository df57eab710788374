// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/roofline.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <utility>

#include "base/join_ranges.h"
#include "tools/cli/text_format.h"

namespace attnloom::cli {
namespace {

constexpr std::array<Roofs, 2> kRoofs = {{
    {"h200", 4.42e12, 788e12, "measured (docs/BENCHMARKS.md, Roofs)"},
    {"a100", 2.039e12, 312e12, "data sheet (docs/BENCHMARKS.md, Roofs)"},
}};

// The keys that one query token may see, before a custom mask.
KeyRange row_keys(const CaseFile& file, int request, std::int64_t window, std::int64_t token) {
  const std::int64_t kv_len = file.kv_len[request];
  const std::int64_t at = token + kv_len - file.qo_len[request];
  KeyRange keys{0, kv_len};
  if (file.spec.variant.mask.causal) keys.end = std::clamp<std::int64_t>(at + 1, 0, kv_len);
  if (window >= 0) keys.begin = std::clamp<std::int64_t>(at - window, 0, keys.end);
  return keys;
}

double total(const std::vector<KeyRange>& ranges) {
  double keys = 0;
  for (const KeyRange& range : ranges) keys += static_cast<double>(range.end - range.begin);
  return keys;
}

// What the query tokens of one request see.
struct Seen {
  double pairs = 0;
  std::vector<KeyRange> keys;
  std::size_t most_ranges = 1 << 16;  // before they are joined: long sparse lists repeat themselves

  void add(const KeyRange& range) {
    if (range.begin >= range.end) return;
    pairs += static_cast<double>(range.end - range.begin);
    // Rows follow each other, so most ranges lengthen the one before.
    if (!keys.empty() && range.begin >= keys.back().begin && range.begin <= keys.back().end)
      keys.back().end = std::max(keys.back().end, range.end);
    else
      keys.push_back(range);
    if (keys.size() < most_ranges) return;
    join_ranges(keys);
    most_ranges = std::max(most_ranges, 2 * keys.size());
  }
};

class Counting {
 public:
  Counting(const CaseFile& file, const PlanView& plan) : file_(file), plan_(plan) {}

  Roofline count() {
    count_prefixes();
    for (int r = 0; r < file_.batch(); ++r) {
      Seen seen = see(r);
      join_ranges(seen.keys);
      roofline_.requests.push_back(traffic(r, seen));
      if (shares_pages()) add_slots(r, seen.keys);
    }
    count_states();
    for (const Traffic& one : roofline_.requests) roofline_.all.add(one);
    for (const PrefixTraffic& one : roofline_.prefixes) roofline_.all.add(one.traffic);
    if (shares_pages()) {
      join_ranges(slots_);
      roofline_.all.kv_bytes = total(slots_) * key_bytes();
    }
    return std::move(roofline_);
  }

 private:
  void count_prefixes() {
    roofline_.prefix_len.assign(file_.qo_len.size(), 0);
    for (int i = 0; i < std::ssize(plan_.entries); ++i) {
      const ViewEntry& entry = plan_.entries[i];
      if (entry.level == 0) continue;
      // Those of a request come from the outermost to the innermost.
      for (const int member : entry.members) roofline_.prefix_len[member] = entry.walk_len;
      const KeyRange keys{entry.walk_begin, entry.walk_len};
      const double pairs =
          static_cast<double>(entry.q_end) * static_cast<double>(keys.end - keys.begin);
      prefix_of_entry_[i] = roofline_.prefixes.size();
      roofline_.prefixes.push_back(
          {.level = entry.level,
           .members = entry.members,
           .tokens = entry.q_end,
           .keys = keys,
           .traffic = {
               .pairs = pairs, .flops = flops_of(pairs), .kv_bytes = total({keys}) * key_bytes()}});
      add_slots(entry.request, {keys});
    }
  }

  void count_states() {
    for (const auto& queue : plan_.queues) {
      for (const ViewItem& item : queue) {
        if (item.merge < 0) continue;
        Traffic& traffic = item.level > 0 ? roofline_.prefixes[prefix_of_entry_[item.entry]].traffic
                                          : roofline_.requests[item.request];
        traffic.partial_bytes +=
            2.0 * sizeof(float) * static_cast<double>(item.rows) * (file_.spec.head_dim.vo + 1);
      }
    }
  }

  double flops_of(double pairs) const {
    const HeadDim& dim = file_.spec.head_dim;
    return 2 * pairs * file_.q_heads * (dim.qk + dim.vo);
  }

  bool shares_pages() const { return !file_.page_indices.empty(); }

  double key_bytes() const {
    const Spec& spec = file_.spec;
    return static_cast<double>(std::int64_t{spec.head_dim.qk + spec.head_dim.vo} *
                               bytes_of(spec.dtype.kv)) *
           file_.kv_heads;
  }

  Seen see(int r) const {
    Seen seen;
    const bool bsr = file_.spec.layout.kv == KvLayout::kBsr;
    const std::int64_t block_row = bsr ? first_block_row(r) : 0;
    for (std::int64_t token = 0; token < file_.qo_len[r]; ++token) {
      KeyRange keys = row_keys(file_, r, plan_.window, token);
      keys.begin = std::max(keys.begin, roofline_.prefix_len[r]);
      if (bsr)
        see_blocks(r, block_row + token / file_.spec.layout.block_rows, token, keys, seen);
      else
        see_masked(r, token, keys, seen);
    }
    return seen;
  }

  // What a custom mask leaves of a range.
  void see_masked(int r, std::int64_t token, const KeyRange& keys, Seen& seen) const {
    if (file_.custom_masks.empty()) return seen.add(keys);
    const std::uint8_t* row = file_.custom_masks[r].data() + token * file_.kv_len[r];
    for (std::int64_t key = keys.begin; key < keys.end; ++key) {
      if (row[key] != 0) seen.add({key, key + 1});
    }
  }

  void see_blocks(int r, std::int64_t row, std::int64_t token, const KeyRange& keys,
                  Seen& seen) const {
    const Layout& layout = file_.spec.layout;
    for (std::int64_t i = file_.block_indptr[row]; i < file_.block_indptr[row + 1]; ++i) {
      const std::int64_t first = std::int64_t{file_.block_indices[i]} * layout.block_columns;
      see_masked(r, token,
                 {std::max(first, keys.begin), std::min(first + layout.block_columns, keys.end)},
                 seen);
    }
  }

  std::int64_t first_block_row(int r) const {
    std::int64_t row = 0;
    for (int before = 0; before < r; ++before)
      row += block_row_count(file_.spec.layout, file_.qo_len[before]);
    return row;
  }

  Traffic traffic(int r, const Seen& seen) const {
    const Spec& spec = file_.spec;
    const double rows = static_cast<double>(file_.qo_len[r]) * file_.q_heads;
    return {.pairs = seen.pairs,
            .flops = flops_of(seen.pairs),
            .kv_bytes = total(seen.keys) * key_bytes(),
            .q_bytes = rows * spec.head_dim.qk * bytes_of(spec.dtype.q),
            .o_bytes = rows * spec.head_dim.vo * bytes_of(spec.dtype.o)};
  }

  void add_slots(int r, const std::vector<KeyRange>& keys) {
    const std::int64_t size = file_.spec.layout.page_size;
    const std::int32_t* pages = file_.page_indices.data() + file_.kv_indptr[r];
    for (KeyRange range : keys) {
      while (range.begin < range.end) {
        const std::int64_t page = range.begin / size;
        const std::int64_t end = std::min(range.end, (page + 1) * size);
        const std::int64_t shift = (pages[page] - page) * size;
        slots_.push_back({range.begin + shift, end + shift});
        range.begin = end;
      }
    }
  }

  const CaseFile& file_;
  const PlanView& plan_;
  Roofline roofline_;
  std::map<int, std::size_t> prefix_of_entry_;
  std::vector<KeyRange> slots_;  // of the cache, by all readers
};

struct Bound {
  double intensity = 0;  // FLOP a byte
  bool memory = true;    // binds
  double seconds = 0;
};

Bound bound_of(const Traffic& traffic, const Roofs& roofs) {
  const double bytes = traffic.bytes() / roofs.bytes_per_second;
  const double flops = traffic.flops / roofs.flops_per_second;
  return {.intensity = traffic.bytes() > 0 ? traffic.flops / traffic.bytes() : 0,
          .memory = bytes >= flops,
          .seconds = std::max(bytes, flops)};
}

std::string_view roof_name(const Bound& bound) {
  return bound.memory ? "memory" : "tensor_cores";
}

// JSON readers keep whole numbers whole.
Json whole(double value) {
  if (value < 9e18) return static_cast<std::int64_t>(value);
  return value;
}

Json traffic_to_json(const Traffic& traffic, const Roofs& roofs) {
  const Bound bound = bound_of(traffic, roofs);
  return {{"pairs", whole(traffic.pairs)},
          {"flops", whole(traffic.flops)},
          {"bytes",
           {{"kv", whole(traffic.kv_bytes)},
            {"q", whole(traffic.q_bytes)},
            {"o", whole(traffic.o_bytes)},
            {"partial", whole(traffic.partial_bytes)},
            {"total", whole(traffic.bytes())}}},
          {"intensity", bound.intensity},
          {"roof", roof_name(bound)},
          {"seconds", bound.seconds}};
}

std::string by(std::int64_t queries, std::int64_t keys) {
  return std::to_string(queries) + " x " + std::to_string(keys);
}

std::string text_row(const std::string& name, const std::string& lengths, const Traffic& traffic,
                     const Roofs& roofs) {
  const Bound bound = bound_of(traffic, roofs);
  std::string row = padded(name, 7) + padded(lengths, 17);
  for (const double value :
       {traffic.flops / 1e9, traffic.kv_bytes / 1e6, traffic.q_bytes / 1e6, traffic.o_bytes / 1e6,
        traffic.partial_bytes / 1e6, bound.intensity, bound.seconds * 1e6})
    row += padded(shown(value), 11);
  return row + "  " + (bound.memory ? "memory" : "tensor cores") + "\n";
}

}  // namespace

std::optional<Roofs> find_roofs(std::string_view device) {
  std::string name(device);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const Roofs& roofs : kRoofs) {
    if (name.find(roofs.device) != std::string::npos) return roofs;
  }
  return std::nullopt;
}

Roofline make_roofline(const CaseFile& file, const PlanView& plan) {
  return Counting(file, plan).count();
}

Json roofline_to_json(const CaseFile& file, const Roofline& roofline, const Roofs& roofs) {
  Json requests = Json::array();
  for (int r = 0; r < file.batch(); ++r) {
    Json row = {{"request", r},
                {"qo_len", file.qo_len[r]},
                {"kv_len", file.kv_len[r]},
                {"prefix_len", roofline.prefix_len[r]}};
    row.update(traffic_to_json(roofline.requests[r], roofs));
    requests.push_back(std::move(row));
  }
  Json prefixes = Json::array();
  for (const PrefixTraffic& prefix : roofline.prefixes) {
    Json row = {{"level", prefix.level},
                {"members", prefix.members},
                {"qo_len", prefix.tokens},
                {"kv", {prefix.keys.begin, prefix.keys.end}}};
    row.update(traffic_to_json(prefix.traffic, roofs));
    prefixes.push_back(std::move(row));
  }
  return {{"device", roofs.device},
          {"roofs",
           {{"bytes_per_second", roofs.bytes_per_second},
            {"flops_per_second", roofs.flops_per_second},
            {"ridge", roofs.flops_per_second / roofs.bytes_per_second},
            {"source", roofs.source}}},
          {"requests", std::move(requests)},
          {"prefixes", std::move(prefixes)},
          {"all", traffic_to_json(roofline.all, roofs)}};
}

std::string roofline_to_text(const CaseFile& file, const Roofline& roofline, const Roofs& roofs) {
  std::string text = std::string(roofs.device) + ": " + fixed(roofs.bytes_per_second / 1e12, 3) +
                     " TB/s, " + fixed(roofs.flops_per_second / 1e12, 0) + " TFLOP/s, ridge at " +
                     fixed(roofs.flops_per_second / roofs.bytes_per_second, 1) + " FLOP a byte; " +
                     std::string(roofs.source) + "\n" + padded("request", 7) +
                     padded("queries x keys", 17);
  for (const char* column :
       {"GFLOP", "KV MB", "Q MB", "O MB", "partial MB", "FLOP/byte", "least us"})
    text += padded(column, 11);
  text += "  roof\n";
  for (int r = 0; r < file.batch(); ++r) {
    text += text_row(std::to_string(r), by(file.qo_len[r], file.kv_len[r] - roofline.prefix_len[r]),
                     roofline.requests[r], roofs);
  }
  for (const PrefixTraffic& prefix : roofline.prefixes) {
    text += text_row("prefix", by(prefix.tokens, prefix.keys.end - prefix.keys.begin),
                     prefix.traffic, roofs);
  }
  return text + text_row("all", "", roofline.all, roofs);
}

}  // namespace attnloom::cli
