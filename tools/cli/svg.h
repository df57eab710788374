// SPDX-License-Identifier: Apache-2.0
// Svg writes the few shapes that our pictures have, as well-formed XML with fixed-point numbers, so
// that the same picture is the same bytes on every machine and under every locale. Not shared
// between threads while in use.
#pragma once

#include <string>
#include <string_view>

namespace attnloom::cli {

struct SvgBox {
  double x = 0, y = 0, width = 0, height = 0;
};
struct SvgBoxLook {
  bool border = false;
  std::string_view name;  // of its class
  std::string tip = {};   // shown under the pointer
};
struct SvgTextLook {
  int size = 12;
  std::string_view anchor = "start";
  std::string_view fill = "#202020";
  bool bold = false;
};

class Svg {
 public:
  void open(double width, double height);
  void hatch(std::string_view name, int spacing, int degrees);
  void box(const SvgBox& place, std::string_view fill, const SvgBoxLook& look);
  void text(double x, double y, std::string_view text, const SvgTextLook& look = {});
  void line(double x0, double y0, double x1, double y1, std::string_view colour, double width,
            bool dashed = false);
  // An edge between two places that bends, so that several from one place stay apart.
  void curve(double x0, double y0, double x1, double y1, double opacity);
  void dot(double x, double y, double radius);
  std::string close();

 private:
  std::string out_;
};

// Of any bytes: what XML does not allow becomes '?'.
std::string escape_xml(std::string_view text);
// 1, 2 or 5 times a power of ten, at least `least`; 0 for 0.
double round_step(double least);
// A colour that neighbouring numbers do not share.
std::string colour_of(int number);

}  // namespace attnloom::cli
