// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/svg.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <utility>

#include "base/utf8.h"
#include "tools/cli/text_format.h"

namespace attnloom::cli {
namespace {

// Corners of the RGB hexagon, 60 degrees apart, between 70 and 235.
std::array<int, 3> rgb_of_hue(int degrees, int low, int high) {
  const int sector = degrees / 60;
  const int rise = low + (high - low) * (degrees % 60) / 60;
  const int fall = low + high - rise;
  switch (sector) {
    case 0:
      return {high, rise, low};
    case 1:
      return {fall, high, low};
    case 2:
      return {low, high, rise};
    case 3:
      return {low, fall, high};
    case 4:
      return {rise, low, high};
    default:
      return {high, low, fall};
  }
}

std::string attribute(std::string_view name, std::string_view value) {
  return " " + std::string(name) + "=\"" + escape_xml(value) + "\"";
}

std::string attribute(std::string_view name, double value) {
  return attribute(name, fixed(value, 2));
}

}  // namespace

std::string escape_xml(std::string_view text) {
  std::string out;
  for (std::size_t bad = find_invalid_utf8(text); bad < text.size();
       bad = find_invalid_utf8(text)) {
    out += escape_xml(text.substr(0, bad)) + '?';
    text.remove_prefix(bad + 1);
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c < 0x20)
      out += '?';
    else if (text.substr(i, 3) == "\xEF\xBF\xBE" || text.substr(i, 3) == "\xEF\xBF\xBF")
      out += '?', i += 2;
    else
      out += text[i];
  }
  return out;
}

double round_step(double least) {
  if (!(least > 0) || !std::isfinite(least)) return 0;
  const double decade = std::pow(10.0, std::floor(std::log10(least)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * decade >= least) return times * decade;
  }
  return 10 * decade;
}

std::string colour_of(int number) {
  // 137 degrees, the golden angle, is prime to 360: neighbours are far apart and 360 numbers
  // differ.
  const int hue = static_cast<int>(number % 360LL * 137 % 360);
  const int shade = number / 3 % 3;
  const std::array<int, 3> rgb = rgb_of_hue(hue, 96 + 16 * shade, 220 + 8 * shade);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string colour = "#";
  for (const int part : rgb) {
    colour += kDigits[part / 16];
    colour += kDigits[part % 16];
  }
  return colour;
}

void Svg::open(double width, double height) {
  out_ = R"(<?xml version="1.0" encoding="UTF-8"?>)"
         "\n<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\"" +
         attribute("width", width) + attribute("height", height) +
         attribute("viewBox", "0 0 " + fixed(width, 2) + " " + fixed(height, 2)) +
         " font-family=\"sans-serif\">\n"
         "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
}

void Svg::hatch(std::string_view name, int spacing, int degrees) {
  const std::string size = std::to_string(spacing);
  out_ += "<defs><pattern" + attribute("id", name) + attribute("width", size) +
          attribute("height", size) +
          " patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(" + std::to_string(degrees) +
          ")\">"
          "<rect width=\"1.6\" height=\"" +
          size + "\" fill=\"#202020\" fill-opacity=\"0.55\"/></pattern></defs>\n";
}

void Svg::box(const SvgBox& place, std::string_view fill, const SvgBoxLook& look) {
  out_ += "<rect" + attribute("class", look.name) + attribute("x", place.x) +
          attribute("y", place.y) + attribute("width", place.width) +
          attribute("height", place.height) + attribute("fill", fill);
  if (look.border) out_ += R"( stroke="#404040" stroke-width="0.5")";
  out_ += look.tip.empty() ? "/>\n" : "><title>" + escape_xml(look.tip) + "</title></rect>\n";
}

void Svg::text(double x, double y, std::string_view text, const SvgTextLook& look) {
  out_ += "<text" + attribute("x", x) + attribute("y", y) +
          attribute("font-size", std::to_string(look.size)) + attribute("fill", look.fill) +
          attribute("text-anchor", look.anchor);
  if (look.bold) out_ += R"( font-weight="bold")";
  out_ += ">" + escape_xml(text) + "</text>\n";
}

void Svg::line(double x0, double y0, double x1, double y1, std::string_view colour, double width,
               bool dashed) {
  out_ += "<line" + attribute("x1", x0) + attribute("y1", y0) + attribute("x2", x1) +
          attribute("y2", y1) + attribute("stroke", colour) + attribute("stroke-width", width);
  out_ += dashed ? " stroke-dasharray=\"5 3\"/>\n" : "/>\n";
}

void Svg::curve(double x0, double y0, double x1, double y1, double opacity) {
  const double bend = std::clamp(std::abs(y1 - y0) / 3, 6.0, 40.0);
  out_ += "<path class=\"merge\" d=\"M" + fixed(x0, 2) + " " + fixed(y0, 2) + "C" +
          fixed(x0 + bend, 2) + " " + fixed(y0, 2) + " " + fixed(x1 + bend, 2) + " " +
          fixed(y1, 2) + " " + fixed(x1, 2) + " " + fixed(y1, 2) +
          "\" fill=\"none\" stroke=\"#202020\" stroke-width=\"0.8\"" +
          attribute("stroke-opacity", opacity) + "/>\n";
}

void Svg::dot(double x, double y, double radius) {
  out_ += "<circle class=\"merger\"" + attribute("cx", x) + attribute("cy", y) +
          attribute("r", radius) + " fill=\"#202020\"/>\n";
}

std::string Svg::close() {
  out_ += "</svg>\n";
  return std::move(out_);
}

}  // namespace attnloom::cli
