// Charts: lines and markers over linear or logarithmic axes, and heat maps, on any canvas.
#pragma once

#include <string>
#include <vector>

#include "draw/canvas.h"

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
};

struct Chart {
  std::string title;
  Axis x_axis, y_axis;
  std::vector<Series>
      series;  // points that are not finite, or not positive on a logarithmic axis, are left out
  int width = 960, height = 640;
};

Colour series_colour(std::size_t index);  // distinguishable by colour-blind readers too

void draw_chart(const Chart& chart, Canvas& canvas);
// Writes `stem`.png and `stem`.svg.
void write_chart(const Chart& chart, const std::string& stem);

// Dark violet to yellow with evenly rising lightness; t in [0, 1].
Colour heat_colour(double t);

struct HeatMap {
  std::string title;
  std::string caption;  // below the panel
  int rows = 0, columns = 0;
  std::vector<double> value;  // [rows, columns]
};

// Rows of panels; the first panel of a row sets the colour scale: t = sqrt(value / its largest), so that
// faint tails stay visible. Values beyond it have the last colour.
struct HeatMapFigure {
  std::string title;
  std::vector<std::vector<HeatMap>> panels;
  int panel_size = 256;
};
void write_heat_maps(const HeatMapFigure& figure, const std::string& path);  // PNG

}  // namespace topomask::cli
