// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plan_svg.h"

#include <algorithm>
#include <array>
#include <map>

#include "tools/cli/svg.h"
#include "tools/cli/text_format.h"

namespace attnloom::cli {
namespace {

constexpr double kLeft = 64;
constexpr double kTop = 78;
constexpr double kPlotWidth = 960;
constexpr double kLegendWidth = 236;
constexpr double kBottom = 46;
constexpr double kPlotHeight = 880;  // where the rows need it
constexpr double kMostPitch = 26;    // of rows
constexpr double kLeastPitch = 2.2;
constexpr int kLegendRequests = 16;
constexpr int kLegendLevels = 6;
// Prefixes of many requests in many chunks have an edge for each pair: above this they would cover
// the boxes, and are left out.
constexpr std::size_t kMostPrefixEdges = 2000;
constexpr int kHatches = 4;  // directions, of one level behind the other
// Above this a tooltip an item would make most of the file, and no box is wide enough to be hit.
constexpr std::size_t kMostTips = 8000;

struct Placed {
  const ViewItem* item;
  int cta;
  double end() const { return item->start + item->cost; }
};

// Darker from level to level; the hatching tells those beyond.
std::string grey_of(int level) {
  constexpr std::array<const char*, 6> kGreys = {"#e6e6e6", "#d2d2d2", "#bebebe",
                                                 "#aaaaaa", "#969696", "#828282"};
  return kGreys[std::min<std::size_t>(level - 1, kGreys.size() - 1)];
}

std::string hatch_of(int level) {
  return "level" + std::to_string((level - 1) % kHatches + 1);
}

class Drawing {
 public:
  Drawing(const PlanView& plan, const std::string& title) : plan_(plan), title_(title) {
    const double rows = static_cast<double>(plan.queues.size());
    pitch_ = std::clamp(kPlotHeight / std::max(rows, 1.0), kLeastPitch, kMostPitch);
    height_ = pitch_ * rows;
    unit_ = plan.makespan > 0 ? kPlotWidth / plan.makespan : 0;
    for (const auto& queue : plan.queues) {
      items_ += queue.size();
      for (const ViewItem& item : queue) levels_ = std::max(levels_, item.level);
    }
    requests_ = requests();
    of_levels_ = of_levels();
    tiles_ = parts();
  }

  std::string draw() {
    svg_.open(kLeft + kPlotWidth + kLegendWidth,
              kTop + std::max(height_, legend_height()) + kBottom);
    for (int level = 1; level <= std::min(levels_, kHatches); ++level)
      svg_.hatch(hatch_of(level), 5, 45 * level);
    heading();
    axis();
    for_items(&Drawing::box);
    edges();
    for_items(&Drawing::label);
    limits();
    legend();
    return svg_.close();
  }

 private:
  double x(double cost) const { return kLeft + cost * unit_; }
  double y(int cta) const { return kTop + cta * pitch_; }
  double bar() const { return pitch_ >= 5 ? pitch_ - 1 : pitch_ * 0.86; }

  std::int64_t split_tiles() const {
    return std::count_if(tiles_.begin(), tiles_.end(),
                         [](const auto& tile) { return tile.second.size() > 1; });
  }

  void heading() {
    svg_.text(kLeft, 26, title_, {.size = 16, .bold = true});
    const double ratio = plan_.ideal > 0 ? plan_.makespan / plan_.ideal : 1;
    svg_.text(kLeft, 46,
              std::to_string(plan_.queues.size()) + " CTAs, " + std::to_string(items_) +
                  " items, " + std::to_string(split_tiles()) + " split tiles; longest queue " +
                  shown(plan_.makespan) + ", mean " + shown(plan_.ideal) + ", ratio " +
                  fixed(ratio, 3));
  }

  void axis() {
    const double step = round_step(plan_.makespan / 8);
    const double bottom = kTop + height_;
    for (double at = 0; step > 0 && at <= plan_.makespan * 1.0001; at += step) {
      svg_.line(x(at), kTop - 4, x(at), bottom, "#d8d8d8", 1);
      svg_.text(x(at), bottom + 16, shown(at), {.anchor = "middle"});
    }
    svg_.text(kLeft + kPlotWidth / 2, bottom + 34, "cost (units of the plan's model)",
              {.anchor = "middle"});
    const int labels = std::max(1, static_cast<int>(round_step(15 / pitch_)));
    for (int cta = 0; cta < std::ssize(plan_.queues); cta += labels) {
      svg_.text(kLeft - 8, y(cta) + std::min(pitch_ / 2 + 4, 15.0),
                (cta == 0 ? "CTA " : "") + std::to_string(cta), {.anchor = "end"});
    }
  }

  std::string tip(const Placed& placed) const {
    const ViewItem& item = *placed.item;
    std::string text = "CTA " + std::to_string(placed.cta) + ": " + owner(item) + ", rows " +
                       std::to_string(item.q_row) + " to " +
                       std::to_string(item.q_row + item.rows) + ", KV head " +
                       std::to_string(item.kv_head) + ", keys " + std::to_string(item.keys.begin) +
                       " to " + std::to_string(item.keys.end) + ", cost " + shown(item.cost);
    if (item.merge >= 0 && item.level == 0) text += ", merge " + std::to_string(item.merge);
    return text;
  }

  std::string owner(const ViewItem& item) const {
    if (item.level == 0) return "request " + std::to_string(item.request);
    return "prefix level " + std::to_string(item.level) + " of " +
           std::to_string(plan_.entries[item.entry].members.size()) +
           " requests, pages of request " + std::to_string(item.request);
  }

  void for_items(void (Drawing::*draw)(const Placed&)) {
    for (int cta = 0; cta < std::ssize(plan_.queues); ++cta) {
      for (const ViewItem& item : plan_.queues[cta]) (this->*draw)({&item, cta});
    }
  }

  SvgBox place_of(const Placed& placed) const {
    return {x(placed.item->start), y(placed.cta), placed.item->cost * unit_, bar()};
  }

  void box(const Placed& placed) {
    const ViewItem& item = *placed.item;
    const SvgBox place = place_of(placed);
    svg_.box(place, item.level > 0 ? grey_of(item.level) : colour_of(item.request),
             {.border = place.width > 3 && pitch_ >= 4,
              .name = item.merge >= 0 ? "part" : "item",
              .tip = items_ <= kMostTips ? tip(placed) : ""});
    if (item.level > 0) svg_.box(place, "url(#" + hatch_of(item.level) + ")", {.name = "level"});
  }

  // Where the box has room for it.
  void label(const Placed& placed) {
    const ViewItem& item = *placed.item;
    const std::string text =
        (item.level > 0 ? "L" + std::to_string(item.level) : "r" + std::to_string(item.request)) +
        " h" + std::to_string(item.kv_head);
    const SvgBox place = place_of(placed);
    if (place.height < 11 || place.width < 7.0 * static_cast<double>(text.size()) + 6) return;
    svg_.text(place.x + 4, place.y + place.height / 2 + 4, text, {.size = 11});
  }

  // The parts of each merge, the one that ends last, which merges, at the end.
  std::map<int, std::vector<Placed>> parts() const {
    std::map<int, std::vector<Placed>> tiles;
    for (int cta = 0; cta < std::ssize(plan_.queues); ++cta) {
      for (const ViewItem& item : plan_.queues[cta]) {
        for (const int merge : merges_of(plan_, item)) tiles[merge].push_back({&item, cta});
      }
    }
    for (auto& [merge, list] : tiles) {
      std::stable_sort(list.begin(), list.end(),
                       [](const Placed& a, const Placed& b) { return a.end() < b.end(); });
    }
    return tiles;
  }

  std::size_t prefix_edges() const {
    std::size_t edges = 0;
    for (const auto& [merge, list] : tiles_) {
      for (const Placed& part : list)
        edges += part.item->level > 0 && &part != &list.back() ? 1 : 0;
    }
    return edges;
  }

  void edges() {
    const double strength = tiles_.size() > 60 ? 0.28 : 0.75;
    const bool with_prefixes = prefix_edges() <= kMostPrefixEdges;
    for (const auto& [merge, list] : tiles_) {
      const Placed& last = list.back();
      const double to_y = y(last.cta) + bar() / 2;
      for (const Placed& part : list) {
        if (&part != &last && (with_prefixes || part.item->level == 0))
          svg_.curve(x(part.end()), y(part.cta) + bar() / 2, x(last.end()), to_y, strength);
      }
      svg_.dot(x(last.end()), to_y, std::min(3.0, pitch_ / 2));
    }
  }

  void limits() {
    svg_.line(x(plan_.ideal), kTop - 14, x(plan_.ideal), kTop + height_, "#1f6f3f", 1.5, true);
    svg_.text(x(plan_.ideal) - 4, kTop - 8, "mean", {.anchor = "end", .fill = "#1f6f3f"});
    svg_.line(x(plan_.makespan), kTop - 14, x(plan_.makespan), kTop + height_, "#a02020", 1.5);
    svg_.text(x(plan_.makespan) + 4, kTop - 8, "longest queue", {.fill = "#a02020"});
  }

  struct Share {
    int number = 0;  // of the request or the level
    double cost = 0;
    std::size_t items = 0;

    void add(const ViewItem& item) {
      cost += item.cost;
      ++items;
    }
    std::string text() const {
      return std::to_string(number) + ": " + std::to_string(items) + ", " + shown(cost);
    }
  };

  // What requests read for themselves, the costliest first.
  std::vector<Share> requests() const {
    std::map<int, Share> by_request;
    for (const auto& queue : plan_.queues) {
      for (const ViewItem& item : queue) {
        if (item.level == 0) by_request[item.request].add(item);
      }
    }
    std::vector<Share> list;
    for (const auto& [request, share] : by_request) {
      list.push_back(share);
      list.back().number = request;
    }
    std::stable_sort(list.begin(), list.end(),
                     [](const Share& a, const Share& b) { return a.cost > b.cost; });
    return list;
  }

  std::vector<Share> of_levels() const {
    std::vector<Share> list(static_cast<std::size_t>(levels_));
    for (int level = 1; level <= levels_; ++level) list[level - 1].number = level;
    for (const auto& queue : plan_.queues) {
      for (const ViewItem& item : queue) {
        if (item.level > 0) list[item.level - 1].add(item);
      }
    }
    return list;
  }

  double legend_height() const {
    const std::size_t lines = std::min<std::size_t>(requests_.size(), kLegendRequests + 1) +
                              std::min<std::size_t>(of_levels_.size(), kLegendLevels + 1);
    return 150 + 18 * static_cast<double>(lines);
  }

  void legend() {
    const double left = kLeft + kPlotWidth + 24;
    double at = kTop + 24;
    svg_.text(left, at, "request: items, cost", {.bold = true});
    at = legend_of(requests_, kLegendRequests, " smaller ones", left, at,
                   [this](const Share& share, const SvgBox& place) {
                     svg_.box(place, colour_of(share.number), {.border = true, .name = "key"});
                   });
    if (levels_ > 0) {
      at += 26;
      svg_.text(left, at, "prefix level: items, cost", {.bold = true});
      at = legend_of(of_levels_, kLegendLevels, " deeper ones", left, at,
                     [this](const Share& share, const SvgBox& place) {
                       svg_.box(place, grey_of(share.number), {.border = true, .name = "key"});
                       svg_.box(place, "url(#" + hatch_of(share.number) + ")", {.name = "level"});
                     });
    }
    at += 30;
    svg_.curve(left, at - 8, left + 26, at - 2, 0.75);
    svg_.dot(left + 26, at - 2, 3);
    svg_.text(left + 36, at, "partial state, to its merge");
    if (prefix_edges() <= kMostPrefixEdges) return;
    svg_.text(left + 36, at + 18, "(of prefixes: left out)");
  }

  // The first `most` of the list, a line each. Returns where the last one stands.
  template <class Key>
  double legend_of(const std::vector<Share>& list, std::size_t most, const std::string& others,
                   double left, double at, const Key& key) {
    for (std::size_t i = 0; i < std::min(list.size(), most); ++i) {
      at += 18;
      key(list[i], SvgBox{left, at - 10, 12, 12});
      svg_.text(left + 18, at, list[i].text());
    }
    if (list.size() <= most) return at;
    at += 18;
    svg_.text(left + 18, at, "and " + std::to_string(list.size() - most) + others);
    return at;
  }

  const PlanView& plan_;
  const std::string& title_;
  double pitch_ = 0;
  double height_ = 0;
  double unit_ = 0;  // pixels a unit of cost
  std::size_t items_ = 0;
  int levels_ = 0;
  std::vector<Share> requests_;
  std::vector<Share> of_levels_;
  std::map<int, std::vector<Placed>> tiles_;  // the parts of each output tile that is merged
  Svg svg_;
};

}  // namespace

std::string draw_plan(const PlanView& plan, const std::string& title) {
  return Drawing(plan, title).draw();
}

}  // namespace attnloom::cli
