// Heat maps: rows of panels and their colour bar.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "draw/plot.h"

namespace topomask::cli {
namespace {

constexpr int kMargin = 24, kTitleHeight = 50, kPanelTitle = 30, kCaption = 34, kBarWidth = 22,
              kBarRoom = 110;
constexpr int kBarTicks = 5;

double largest_value(const HeatMap& panel) {
  double largest = 0;
  for (const double value : panel.value) largest = std::max(largest, value);
  return largest > 0 ? largest : 1;
}

void draw_panel(const HeatMap& panel, double left, double top, double size, double largest, Canvas& canvas) {
  const double middle = left + size / 2;
  canvas.text(middle, top + kPanelTitle / 2.0, panel.title, {2, Anchor::middle, kBlack, false});
  top += kPanelTitle;
  const double cell_width = size / panel.columns, cell_height = size / panel.rows;
  for (int row = 0; row < panel.rows; ++row) {
    for (int column = 0; column < panel.columns; ++column) {
      const double value = panel.value[static_cast<std::size_t>(row) * panel.columns + column];
      canvas.fill_rectangle(left + column * cell_width, top + row * cell_height, cell_width, cell_height,
                            heat_colour(std::sqrt(std::max(0.0, value) / largest)));
    }
  }
  canvas.text(middle, top + size + 16, panel.caption, {2, Anchor::middle, kGrey, false});
}

void draw_colour_bar(double left, double top, double height, double largest, Canvas& canvas) {
  for (int y = 0; y < static_cast<int>(height); ++y) {
    canvas.fill_rectangle(left, top + y, kBarWidth, 1, heat_colour(1 - y / height));
  }
  for (int tick = 0; tick < kBarTicks; ++tick) {
    const double t = static_cast<double>(tick) / (kBarTicks - 1), y = top + (1 - t) * height;
    canvas.line(left + kBarWidth, y, left + kBarWidth + 5, y, 1.5, kBlack);
    canvas.text(left + kBarWidth + 9, y, fmt::format("{:.2g}", t * t * largest),
                {2, Anchor::start, kBlack, false});
  }
}

}  // namespace

Colour heat_colour(double t) {
  t = std::clamp(t, 0.0, 1.0);
  // Colours whose lightness rises evenly from 10 to 90; straight lines between them stay even to the eye.
  static constexpr double kKnots[][3] = {{38, 12, 66},   {64, 40, 120},  {52, 80, 143},  {38, 115, 146},
                                         {32, 148, 139}, {64, 181, 114}, {145, 208, 72}, {248, 230, 60}};
  constexpr int kPieces = static_cast<int>(std::size(kKnots)) - 1;
  const int piece = std::min(static_cast<int>(t * kPieces), kPieces - 1);
  const double part = t * kPieces - piece;
  const auto channel = [&](int i) {
    return static_cast<std::uint8_t>(
        std::lround((1 - part) * kKnots[piece][i] + part * kKnots[piece + 1][i]));
  };
  return {channel(0), channel(1), channel(2)};
}

void write_heat_maps(const HeatMapFigure& figure, const std::string& path) {
  std::size_t columns = 0;
  for (const auto& row : figure.panels) columns = std::max(columns, row.size());
  const int row_height = kPanelTitle + figure.panel_size + kCaption;
  const int width = kMargin + static_cast<int>(columns) * (figure.panel_size + kMargin) + kBarRoom;
  const int height = kTitleHeight + static_cast<int>(figure.panels.size()) * row_height + kMargin;
  RasterCanvas canvas(width, height);
  canvas.text(width / 2.0, kTitleHeight / 2.0 + 4, figure.title, {3, Anchor::middle, kBlack, false});
  double top = kTitleHeight;
  for (const auto& row : figure.panels) {
    if (row.empty()) continue;
    const double largest = largest_value(row.front());
    double left = kMargin;
    for (const HeatMap& panel : row) {
      draw_panel(panel, left, top, figure.panel_size, largest, canvas);
      left += figure.panel_size + kMargin;
    }
    draw_colour_bar(left, top + kPanelTitle, figure.panel_size, largest, canvas);
    top += row_height;
  }
  canvas.write_png(path);
}

}  // namespace topomask::cli
