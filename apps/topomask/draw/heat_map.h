// Heat maps: rows of panels and their colour bar.
#pragma once

#include <string>
#include <vector>

#include "draw/picture.h"

namespace topomask::cli {

// Dark violet to yellow with evenly rising lightness; t in [0, 1].
Colour heat_colour(double t);

struct HeatMap {
  std::string title;
  std::string note;  // below the panel
  int rows = 0, columns = 0;
  std::vector<double> value;  // [rows, columns]
};

// Rows of panels; the first panel of a row sets the colour scale: t = sqrt(value / its largest), so that
// faint tails stay visible. Values beyond it have the last colour.
struct HeatMapFigure {
  std::string title;
  std::vector<std::vector<HeatMap>> panels;
  std::string caption;
  double panel_size = 256;
};

void draw_heat_maps(const HeatMapFigure& figure, Picture& picture);
// Writes `stem`.png and `stem`.svg.
void write_heat_maps(const HeatMapFigure& figure, const Provenance& provenance, const std::string& stem);

}  // namespace topomask::cli
