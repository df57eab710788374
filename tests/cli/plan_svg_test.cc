// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/plan_svg.h"

#include <catch2/catch.hpp>
#include <string>

#include "tools/cli/svg.h"
#include "tools/cli/text_format.h"

namespace attnloom::cli {
namespace {

int count(const std::string& text, const std::string& part) {
  int times = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++times;
  return times;
}

ViewItem item(int request, double start, double cost) {
  return {.request = request, .rows = 16, .keys = {0, 64}, .cost = cost, .start = start};
}

ViewItem part(int request, double start, double cost, int merge) {
  ViewItem made = item(request, start, cost);
  made.merge = merge;
  return made;
}

// Two split tiles, one of three parts, which CTA 2 ends last, and one of two.
PlanView five_parts() {
  PlanView plan;
  plan.queues = {{part(0, 0, 50, 0), item(1, 50, 30)},
                 {part(0, 0, 60, 0), part(2, 60, 40, 1)},
                 {part(0, 0, 100, 0)},
                 {part(2, 0, 20, 1)}};
  plan.makespan = 100;
  plan.ideal = 75;
  return plan;
}

TEST_CASE("each item is a box as wide as its cost, and each part but the last has an edge") {
  const std::string svg = draw_plan(five_parts(), "case");
  CHECK(count(svg, "class=\"item\"") == 1);
  CHECK(count(svg, "class=\"part\"") == 5);
  CHECK(count(svg, "class=\"merge\"") == 3 + 1);  // the last one is the legend's
  CHECK(count(svg, "class=\"merger\"") == 2 + 1);
  CHECK(count(svg, "class=\"key\"") == 3);  // requests
  CHECK(count(svg, "class=\"level\"") == 0);
  // 960 pixels are the longest queue: 50 of 100 are 480, from the plot's left edge on.
  CHECK(count(svg, "x=\"64\" y=\"78\" width=\"480\"") == 1);
  CHECK(count(svg, "x=\"544\" y=\"78\" width=\"288\"") == 1);
  CHECK(count(svg, "4 CTAs, 6 items, 2 split tiles; longest queue 100, mean 75, ratio 1.333") == 1);
  CHECK(count(svg,
              "<title>CTA 1: request 2, rows 0 to 16, KV head 0, keys 0 to 64, cost 40, "
              "merge 1</title>") == 1);
  CHECK(svg == draw_plan(five_parts(), "case"));
}

// Requests 0 to 2 behind a prefix, of which 0 and 1 share more, on two KV heads with a merge for
// each request and head: 2 r + head. Head 0 has a CTA for each of its items, head 1 one CTA.
PlanView two_levels() {
  PlanView plan{.kv_heads = 2};
  for (int r = 0; r < 3; ++r) plan.entries.push_back({.request = r});
  plan.entries.push_back({.request = 2, .level = 1, .members = {0, 1, 2}, .merges = {0, 2, 4}});
  plan.entries.push_back({.request = 0, .level = 2, .members = {0, 1}, .merges = {0, 2}});
  const auto item_of = [&](int entry, int head, double start, double cost) {
    const ViewEntry& of = plan.entries[entry];
    const int merge = of.level > 0 ? of.merges[0] + head : 2 * entry + head;
    return ViewItem{.entry = entry,
                    .request = of.request,
                    .rows = 4,
                    .kv_head = head,
                    .keys = {0, 64},
                    .merge = merge,
                    .level = of.level,
                    .cost = cost,
                    .start = start};
  };
  plan.queues = {{item_of(3, 0, 0, 100)},
                 {item_of(4, 0, 0, 40), item_of(0, 0, 40, 20), item_of(1, 0, 60, 30)},
                 {item_of(2, 0, 0, 10)},
                 {item_of(3, 1, 0, 100), item_of(4, 1, 100, 40), item_of(0, 1, 140, 20),
                  item_of(1, 1, 160, 30), item_of(2, 1, 190, 10)}};
  plan.makespan = 200;
  plan.ideal = 100;
  return plan;
}

TEST_CASE("prefix tiles are hatched by level, and each level has a line of the legend") {
  const std::string svg = draw_plan(two_levels(), "case");
  CHECK(count(svg, "<pattern id=\"level") == 2);
  CHECK(count(svg, "rotate(45)") == 1);
  CHECK(count(svg, "rotate(90)") == 1);
  // Each item has a grey box and a hatched one, and so has its line of the legend.
  CHECK(count(svg, "fill=\"#e6e6e6\"") == 2 + 1);
  CHECK(count(svg, "fill=\"url(#level1)\"") == 2 + 1);
  CHECK(count(svg, "fill=\"#d2d2d2\"") == 2 + 1);
  CHECK(count(svg, "fill=\"url(#level2)\"") == 2 + 1);
  CHECK(count(svg, "class=\"level\"") == 6);
  CHECK(count(svg, "class=\"part\"") == 10);
  CHECK(count(svg, ">prefix level: items, cost<") == 1);
  CHECK(count(svg, ">1: 2, 200<") == 1);
  // Level 2 with two items of 40. Requests 0 to 2 are without the prefixes that they share.
  CHECK(count(svg, ">2: 2, 80<") == 1);
  CHECK(count(svg, ">0: 2, 40<") == 1);
  CHECK(count(svg, ">1: 2, 60<") == 1);
  CHECK(count(svg, ">2: 2, 20<") == 1);
  CHECK(count(svg, "class=\"key\"") == 5);
  CHECK(count(svg, ">L1 h0<") == 1);
  CHECK(count(svg, ">L2 h1<") == 1);
  CHECK(count(svg,
              "<title>CTA 1: prefix level 2 of 2 requests, pages of request 0, rows 0 to 4, KV "
              "head 0, keys 0 to 64, cost 40</title>") == 1);
}

TEST_CASE("a prefix tile has an edge to the merge of each of its members") {
  // A head's merges have 3, 3 and 2 states: five edges. On head 0 the prefix of CTA 0 ends last and
  // merges all three, at 100 of 200; on head 1 each request does, at 160, 190 and 200.
  const std::string svg = draw_plan(two_levels(), "case");
  CHECK(count(svg, "4 CTAs, 10 items, 6 split tiles") == 1);
  CHECK(count(svg, "class=\"merge\"") == 2 * 5 + 1);  // and the legend's
  CHECK(count(svg, "class=\"merger\"") == 6 + 1);
  CHECK(count(svg, "cx=\"544\" cy=\"90.5\"") == 3);
  CHECK(count(svg, "cx=\"832\" cy=\"168.5\"") == 1);
  CHECK(count(svg, "cx=\"976\" cy=\"168.5\"") == 1);
  CHECK(count(svg, "cx=\"1024\" cy=\"168.5\"") == 1);
}

TEST_CASE("more edges of prefixes than a picture can hold are left out, by word") {
  PlanView plan = two_levels();
  for (int merge = 10; merge < 2013; ++merge) {
    plan.entries[3].members.push_back(0);
    plan.entries[3].merges.push_back(merge);
  }
  // Each of those merges has this one state, and so no edge.
  plan.queues[3].erase(plan.queues[3].begin());
  CHECK(count(draw_plan(plan, "case"), "left out") == 0);
  plan.queues[2].push_back(plan.queues[0][0]);  // a second chunk: 2003 edges
  const std::string svg = draw_plan(plan, "case");
  CHECK(count(svg, ">(of prefixes: left out)<") == 1);
  CHECK(count(svg, " 2008 split tiles;") == 1);   // 2003, three on head 0, two on head 1
  CHECK(count(svg, "class=\"merge\"") == 3 + 1);  // of requests 0 to 2 on head 0
}

TEST_CASE("levels beyond the greys and the hatchings repeat those, and have no line") {
  PlanView plan;
  plan.entries = {{.level = 9}};
  plan.queues = {{item(0, 0, 10)}};
  plan.queues[0][0].level = 9;
  plan.makespan = plan.ideal = 10;
  const std::string svg = draw_plan(plan, "deep");
  CHECK(count(svg, "<pattern id=\"level") == 4);
  CHECK(count(svg, "fill=\"#828282\"") == 1 + 1);       // and level 6 of the legend
  CHECK(count(svg, "fill=\"url(#level1)\"") == 1 + 2);  // and levels 1 and 5
  CHECK(count(svg, ">and 3 deeper ones<") == 1);
}

TEST_CASE("one CTA, 400 CTAs and none have a picture") {
  PlanView plan;
  CHECK(count(draw_plan(plan, "none"), "class=\"item\"") == 0);
  plan.queues = {{item(0, 0, 10)}};
  plan.makespan = plan.ideal = 10;
  CHECK(count(draw_plan(plan, "one"), ">r0 h0<") == 1);
  plan.queues.assign(400, {item(7, 0, 10)});
  const std::string svg = draw_plan(plan, "many");
  CHECK(count(svg, "class=\"item\"") == 400);
  CHECK(count(svg, ">r7 h0<") == 0);  // rows of 2.2 pixels have no room for text
  CHECK(count(svg, "height=\"1004\"") == 1);
}

TEST_CASE("a queue without cost is drawn, not divided by") {
  PlanView plan;
  plan.queues = {{item(0, 0, 0)}};
  CHECK(count(draw_plan(plan, ""), "width=\"0\"") == 1);
}

TEST_CASE("any bytes become text that XML allows") {
  CHECK(escape_xml("a<b>&\"c\"") == "a&lt;b&gt;&amp;&quot;c&quot;");
  CHECK(escape_xml(std::string("\x01\n\t\0z", 5)) == "????z");
  CHECK(escape_xml("\xC3\xA9\xFF\xC3") == "\xC3\xA9??");
  CHECK(escape_xml("\xEF\xBF\xBE!") == "?!");  // U+FFFE
}

TEST_CASE("numbers are short and the same everywhere") {
  CHECK(fixed(1.5, 2) == "1.5");
  CHECK(fixed(-0.001, 2) == "0");
  CHECK(fixed(1e20, 2) == "100000000000000000000");
  CHECK(shown(99.456) == "99.46");
  CHECK(shown(100.4) == "100");
  CHECK(round_step(0.3) == Approx(0.5));
  CHECK(round_step(101) == Approx(200));
  CHECK(round_step(0) == 0);
  CHECK(colour_of(0) != colour_of(1));
  CHECK(colour_of(2147483647).size() == 7);
}

}  // namespace
}  // namespace attnloom::cli
