// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plan_svg.h"

#include <algorithm>
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
// Above this a tooltip an item would make most of the file, and no box is wide enough to be hit.
constexpr std::size_t kMostTips = 8000;

struct Placed {
  const ViewItem* item;
  int cta;
  double end() const { return item->start + item->cost; }
};

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
    shares_ = shares();
  }

  std::string draw() {
    svg_.open(kLeft + kPlotWidth + kLegendWidth,
              kTop + std::max(height_, legend_height()) + kBottom);
    if (levels_ > 0) svg_.hatch("shared", 5);
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

  void heading() {
    svg_.text(kLeft, 26, title_, {.size = 16, .bold = true});
    const double ratio = plan_.ideal > 0 ? plan_.makespan / plan_.ideal : 1;
    svg_.text(kLeft, 46,
              std::to_string(plan_.queues.size()) + " CTAs, " + std::to_string(items_) +
                  " items, " + std::to_string(parts().size()) + " split tiles; longest queue " +
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
    std::string text = "CTA " + std::to_string(placed.cta) + ": request " +
                       std::to_string(item.request) + ", rows " + std::to_string(item.q_row) +
                       " to " + std::to_string(item.q_row + item.rows) + ", KV head " +
                       std::to_string(item.kv_head) + ", keys " + std::to_string(item.keys.begin) +
                       " to " + std::to_string(item.keys.end) + ", cost " + shown(item.cost);
    if (item.merge >= 0) text += ", merge " + std::to_string(item.merge);
    if (item.level > 0) text += ", prefix level " + std::to_string(item.level);
    return text;
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
    svg_.box(place, colour_of(item.request),
             {.border = place.width > 3 && pitch_ >= 4,
              .name = item.merge >= 0 ? "part" : "item",
              .tip = items_ <= kMostTips ? tip(placed) : ""});
    if (item.level > 0) svg_.box(place, "url(#shared)", {.name = "level"});
  }

  // Where the box has room for it.
  void label(const Placed& placed) {
    const std::string text =
        "r" + std::to_string(placed.item->request) + " h" + std::to_string(placed.item->kv_head);
    const SvgBox place = place_of(placed);
    if (place.height < 11 || place.width < 7.0 * static_cast<double>(text.size()) + 6) return;
    svg_.text(place.x + 4, place.y + place.height / 2 + 4, text, {.size = 11});
  }

  // The parts of each split tile, the one that ends last, which merges, at the end.
  std::map<int, std::vector<Placed>> parts() const {
    std::map<int, std::vector<Placed>> tiles;
    for (int cta = 0; cta < std::ssize(plan_.queues); ++cta) {
      for (const ViewItem& item : plan_.queues[cta]) {
        if (item.merge >= 0) tiles[item.merge].push_back({&item, cta});
      }
    }
    for (auto& [merge, list] : tiles) {
      std::stable_sort(list.begin(), list.end(),
                       [](const Placed& a, const Placed& b) { return a.end() < b.end(); });
    }
    return tiles;
  }

  void edges() {
    const auto tiles = parts();
    const double strength = tiles.size() > 60 ? 0.28 : 0.75;
    for (const auto& [merge, list] : tiles) {
      const Placed& last = list.back();
      const double to_y = y(last.cta) + bar() / 2;
      for (const Placed& part : list) {
        if (&part != &last)
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
    int request = 0;
    double cost = 0;
    std::size_t items = 0;
  };

  // The costliest requests first.
  std::vector<Share> shares() const {
    std::map<int, Share> by_request;
    for (const auto& queue : plan_.queues) {
      for (const ViewItem& item : queue) {
        Share& share = by_request[item.request];
        share.request = item.request;
        share.cost += item.cost;
        ++share.items;
      }
    }
    std::vector<Share> list;
    for (const auto& [request, share] : by_request) list.push_back(share);
    std::stable_sort(list.begin(), list.end(),
                     [](const Share& a, const Share& b) { return a.cost > b.cost; });
    return list;
  }

  double legend_height() const {
    const std::size_t lines = std::min<std::size_t>(shares_.size(), kLegendRequests + 1);
    return 110 + 18 * static_cast<double>(lines);
  }

  void legend() {
    const double left = kLeft + kPlotWidth + 24;
    double at = kTop + 24;
    const std::vector<Share>& list = shares_;
    svg_.text(left, at, "request: items, cost", {.bold = true});
    for (std::size_t i = 0; i < std::min<std::size_t>(list.size(), kLegendRequests); ++i) {
      at += 18;
      svg_.box({left, at - 10, 12, 12}, colour_of(list[i].request),
               {.border = true, .name = "key"});
      svg_.text(left + 18, at,
                std::to_string(list[i].request) + ": " + std::to_string(list[i].items) + ", " +
                    shown(list[i].cost));
    }
    if (list.size() > kLegendRequests) {
      at += 18;
      svg_.text(left + 18, at,
                "and " + std::to_string(list.size() - kLegendRequests) + " smaller ones");
    }
    at += 30;
    svg_.curve(left, at - 8, left + 26, at - 2, 0.75);
    svg_.dot(left + 26, at - 2, 3);
    svg_.text(left + 36, at, "partial state, to its merge");
    if (levels_ == 0) return;
    at += 18;
    svg_.box({left, at - 10, 26, 12}, "url(#shared)", {.border = true, .name = "key"});
    svg_.text(left + 36, at, "shared prefix");
  }

  const PlanView& plan_;
  const std::string& title_;
  double pitch_ = 0;
  double height_ = 0;
  double unit_ = 0;  // pixels a unit of cost
  std::size_t items_ = 0;
  int levels_ = 0;
  std::vector<Share> shares_;
  Svg svg_;
};

}  // namespace

std::string draw_plan(const PlanView& plan, const std::string& title) {
  return Drawing(plan, title).draw();
}

}  // namespace attnloom::cli
