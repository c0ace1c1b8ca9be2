// Where pictures are drawn: the same calls give a PNG (through our own rasteriser) or an SVG.
//
// Coordinates are pixels from the top left corner; shapes may stick out of the picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace topomask::cli {

struct Colour {
  std::uint8_t red = 0, green = 0, blue = 0;
};
inline constexpr Colour kBlack{0, 0, 0}, kWhite{255, 255, 255}, kGrey{110, 110, 110},
    kPaleGrey{225, 225, 225};

enum class Anchor { start, middle, end };  // which point of a text its position is

struct TextStyle {
  int size = 2;  // pixels a cell of the 5 x 7 font
  Anchor anchor = Anchor::start;
  Colour colour = kBlack;
  bool upwards = false;  // rotated by 90 degrees, read from below
};

class Canvas {
 public:
  virtual ~Canvas() = default;
  virtual void fill_rectangle(double left, double top, double width, double height, Colour colour) = 0;
  virtual void line(double x0, double y0, double x1, double y1, double thickness, Colour colour) = 0;
  virtual void disc(double x, double y, double radius, Colour colour) = 0;
  // `y` is the middle of the letters (`x` for upwards text).
  virtual void text(double x, double y, const std::string& text, const TextStyle& style) = 0;
};

int text_width(const std::string& text, int size);

class RasterCanvas : public Canvas {
 public:
  RasterCanvas(int width, int height);
  void fill_rectangle(double left, double top, double width, double height, Colour colour) override;
  void line(double x0, double y0, double x1, double y1, double thickness, Colour colour) override;
  void disc(double x, double y, double radius, Colour colour) override;
  void text(double x, double y, const std::string& text, const TextStyle& style) override;
  void write_png(const std::string& path) const;

 private:
  void blend(int x, int y, Colour colour, double coverage);

  int width_, height_;
  std::vector<std::uint8_t> pixels_;  // [height, width, 3]
};

class SvgCanvas : public Canvas {
 public:
  SvgCanvas(int width, int height);
  void fill_rectangle(double left, double top, double width, double height, Colour colour) override;
  void line(double x0, double y0, double x1, double y1, double thickness, Colour colour) override;
  void disc(double x, double y, double radius, Colour colour) override;
  void text(double x, double y, const std::string& text, const TextStyle& style) override;
  std::string to_string() const { return head_ + body_ + "</svg>\n"; }
  void write(const std::string& path) const;

 private:
  std::string head_, body_;
};

}  // namespace topomask::cli
