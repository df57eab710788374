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

TEST_CASE("items of a shared prefix are hatched") {
  PlanView plan = five_parts();
  plan.queues[0][1].level = 2;
  const std::string svg = draw_plan(plan, "case");
  CHECK(count(svg, "class=\"level\"") == 1);
  CHECK(count(svg, "<pattern id=\"shared\"") == 1);
  CHECK(count(svg, "prefix level 2") == 1);
  CHECK(count(svg, ">shared prefix<") == 1);
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
