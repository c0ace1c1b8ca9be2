// Charts: lines and markers over linear or logarithmic axes.
#pragma once

#include <string>
#include <vector>

#include "draw/picture.h"

namespace topomask::cli {

struct Series {
  std::string label;  // in the legend; empty: not there
  std::vector<double> x, y;
  Colour colour;
  bool line = true, markers = true, dashed = false;
};

struct Axis {
  std::string label;
  bool logarithmic = false;
  std::string unit = {};           // behind the numbers, which then have SI prefixes: "s" gives "20 ms"
  std::vector<double> ticks = {};  // where to write numbers; empty: at round ones
};

struct Chart {
  std::string title;
  Axis x_axis, y_axis;
  // Points that are not finite, or not positive on a logarithmic axis, are left out.
  std::vector<Series> series;
  std::string caption;  // what was measured, and how; below the chart
  double width = 960, height = 600;
};

Colour series_colour(std::size_t index);  // distinguishable by colour-blind readers too

void draw_chart(const Chart& chart, Picture& picture);
// Writes `stem`.png and `stem`.svg.
void write_chart(const Chart& chart, const Provenance& provenance, const std::string& stem);

}  // namespace topomask::cli
