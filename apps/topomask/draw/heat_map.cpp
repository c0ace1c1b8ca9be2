#include "draw/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace topomask::cli {
namespace {

constexpr double kMargin = 24, kTitleHeight = 50, kPanelTitle = 30, kNote = 34, kBarWidth = 22, kBarRoom = 90;
constexpr int kBarTicks = 5, kBarSteps = 256;
constexpr double kMapTitleSize = 20, kMapTextSize = 15;

struct Size {
  double width, height;
};

Size figure_size(const HeatMapFigure& figure) {
  std::size_t columns = 0;
  for (const auto& row : figure.panels) columns = std::max(columns, row.size());
  return {
      kMargin + static_cast<double>(columns) * (figure.panel_size + kMargin) + kBarRoom,
      kTitleHeight + static_cast<double>(figure.panels.size()) * (kPanelTitle + figure.panel_size + kNote)};
}

double largest_value(const HeatMap& panel) {
  double largest = 0;
  for (const double value : panel.value) largest = std::max(largest, value);
  return largest > 0 ? largest : 1;
}

void draw_panel(const HeatMap& panel, const Box& box, double largest, Picture& picture) {
  const double middle = box.left + box.width / 2;
  picture.text({middle, box.top - kPanelTitle / 2}, panel.title,
               {.size = kMapTextSize, .anchor = Anchor::middle});
  std::vector<Colour> pixels;
  pixels.reserve(panel.value.size());
  for (const double value : panel.value)
    pixels.push_back(heat_colour(std::sqrt(std::max(0.0, value) / largest)));
  picture.image(box, panel.rows, panel.columns, pixels);
  picture.text({middle, box.bottom() + kNote / 2}, panel.note,
               {.size = kMapTextSize, .anchor = Anchor::middle, .colour = kGrey});
}

void draw_colour_bar(const Box& box, double largest, Picture& picture) {
  std::vector<Colour> steps;
  for (int i = 0; i < kBarSteps; ++i) steps.push_back(heat_colour(1 - (i + 0.5) / kBarSteps));
  picture.image(box, kBarSteps, 1, steps);
  for (int tick = 0; tick < kBarTicks; ++tick) {
    const double t = static_cast<double>(tick) / (kBarTicks - 1), y = box.top + (1 - t) * box.height;
    picture.line({{box.right(), y}, {box.right() + 5, y}}, {.width = 1.5});
    picture.text({box.right() + 9, y}, fmt::format("{:.2g}", t * t * largest), {.size = kMapTextSize});
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

void draw_heat_maps(const HeatMapFigure& figure, Picture& picture) {
  picture.text({figure_size(figure).width / 2, kTitleHeight / 2 + 4}, figure.title,
               {.size = kMapTitleSize, .anchor = Anchor::middle});
  Box box{kMargin, kTitleHeight + kPanelTitle, figure.panel_size, figure.panel_size};
  for (const auto& row : figure.panels) {
    if (row.empty()) continue;
    const double largest = largest_value(row.front());
    box.left = kMargin;
    for (const HeatMap& panel : row) {
      draw_panel(panel, box, largest, picture);
      box.left += box.width + kMargin;
    }
    draw_colour_bar({box.left, box.top, kBarWidth, box.height}, largest, picture);
    box.top += kPanelTitle + box.height + kNote;
  }
}

void write_heat_maps(const HeatMapFigure& figure, const Provenance& provenance, const std::string& stem) {
  const Size size = figure_size(figure);
  const CaptionedPicture picture{
      .width = size.width, .height = size.height, .caption = figure.caption, .draw = [&](Picture& canvas) {
        draw_heat_maps(figure, canvas);
      }};
  for (const char* extension : {".png", ".svg"}) write_picture(picture, provenance, stem + extension);
}

}  // namespace topomask::cli
