#include "draw/canvas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "core/check.h"
#include "draw/font.h"
#include "draw/png.h"

namespace topomask::cli {
namespace {

// How much of the pixel [p, p + 1] an interval covers.
double overlap(int p, double begin, double end) {
  return std::clamp(std::min(end, p + 1.0) - std::max<double>(begin, p), 0.0, 1.0);
}

void check_written(bool good, const std::string& path) {
  check(good, "cannot write '{}'", path);
}

std::string css(Colour colour) {
  return fmt::format("#{:02x}{:02x}{:02x}", colour.red, colour.green, colour.blue);
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace

int text_width(const std::string& text, int size) {
  return text.empty() ? 0 : size * (static_cast<int>(text.size()) * kGlyphAdvance - 1);
}

RasterCanvas::RasterCanvas(int width, int height)
    : width_(width), height_(height), pixels_(static_cast<std::size_t>(width) * height * 3, 255) {}

void RasterCanvas::blend(int x, int y, Colour colour, double coverage) {
  if (x < 0 || y < 0 || x >= width_ || y >= height_ || coverage <= 0) return;
  std::uint8_t* pixel = &pixels_[(static_cast<std::size_t>(y) * width_ + x) * 3];
  const std::uint8_t channels[] = {colour.red, colour.green, colour.blue};
  for (int i = 0; i < 3; ++i) {
    pixel[i] = static_cast<std::uint8_t>(std::lround(pixel[i] + coverage * (channels[i] - pixel[i])));
  }
}

void RasterCanvas::fill_rectangle(double left, double top, double width, double height, Colour colour) {
  const int last_x = static_cast<int>(std::ceil(left + width)),
            last_y = static_cast<int>(std::ceil(top + height));
  for (int y = static_cast<int>(std::floor(top)); y < last_y; ++y) {
    for (int x = static_cast<int>(std::floor(left)); x < last_x; ++x) {
      blend(x, y, colour, overlap(x, left, left + width) * overlap(y, top, top + height));
    }
  }
}

void RasterCanvas::line(double x0, double y0, double x1, double y1, double thickness, Colour colour) {
  const double half = thickness / 2, dx = x1 - x0, dy = y1 - y0, squared = dx * dx + dy * dy;
  const int last_x = static_cast<int>(std::ceil(std::max(x0, x1) + half));
  const int last_y = static_cast<int>(std::ceil(std::max(y0, y1) + half));
  for (int y = static_cast<int>(std::floor(std::min(y0, y1) - half)); y < last_y; ++y) {
    for (int x = static_cast<int>(std::floor(std::min(x0, x1) - half)); x < last_x; ++x) {
      const double px = x + 0.5 - x0, py = y + 0.5 - y0;
      const double along = squared == 0 ? 0 : std::clamp((px * dx + py * dy) / squared, 0.0, 1.0);
      // The distance to the segment, turned into a coverage over one pixel: smooth edges and round ends.
      blend(x, y, colour, std::clamp(half + 0.5 - std::hypot(px - along * dx, py - along * dy), 0.0, 1.0));
    }
  }
}

void RasterCanvas::disc(double x, double y, double radius, Colour colour) {
  line(x, y, x, y, 2 * radius, colour);
}

void RasterCanvas::text(double x, double y, const std::string& text, const TextStyle& style) {
  const int width = text_width(text, style.size);
  const int shift = style.anchor == Anchor::start ? 0 : style.anchor == Anchor::middle ? width / 2 : width;
  const int half_height = style.size * kGlyphHeight / 2;
  const int origin_x = static_cast<int>(std::lround(x)), origin_y = static_cast<int>(std::lround(y));
  for (std::size_t index = 0; index < text.size(); ++index) {
    for (int row = 0; row < kGlyphRows; ++row) {
      for (int column = 0; column < kGlyphWidth; ++column) {
        if (!glyph_cell(text[index], row, column)) continue;
        const int along = (static_cast<int>(index) * kGlyphAdvance + column) * style.size - shift;
        const int across = row * style.size - half_height;
        const int cell_x = style.upwards ? origin_x + across : origin_x + along;
        const int cell_y = style.upwards ? origin_y - along - style.size : origin_y + across;
        fill_rectangle(cell_x, cell_y, style.size, style.size, style.colour);
      }
    }
  }
}

void RasterCanvas::write_png(const std::string& path) const {
  const std::string bytes = encode_png(pixels_.data(), width_, height_, 3);
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  check_written(file.good(), path);
}

SvgCanvas::SvgCanvas(int width, int height)
    : head_(fmt::format(
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
          "font-family=\"Helvetica, Arial, sans-serif\">\n",
          width, height)) {
  fill_rectangle(0, 0, width, height, kWhite);
}

void SvgCanvas::fill_rectangle(double left, double top, double width, double height, Colour colour) {
  body_ += fmt::format("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"/>\n",
                       left, top, width, height, css(colour));
}

void SvgCanvas::line(double x0, double y0, double x1, double y1, double thickness, Colour colour) {
  body_ += fmt::format(
      "<line x1=\"{:.2f}\" y1=\"{:.2f}\" x2=\"{:.2f}\" y2=\"{:.2f}\" stroke=\"{}\" stroke-width=\"{:.2f}\" "
      "stroke-linecap=\"round\"/>\n",
      x0, y0, x1, y1, css(colour), thickness);
}

void SvgCanvas::disc(double x, double y, double radius, Colour colour) {
  body_ += fmt::format("<circle cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"{:.2f}\" fill=\"{}\"/>\n", x, y, radius,
                       css(colour));
}

void SvgCanvas::text(double x, double y, const std::string& text, const TextStyle& style) {
  static constexpr const char* kAnchors[] = {"start", "middle", "end"};
  // A capital of the bitmap font is 7 cells high, one of a usual font about 0.72 of its size.
  const double size = kGlyphHeight * style.size / 0.72;
  const std::string turn = style.upwards ? fmt::format(" transform=\"rotate(-90 {:.2f} {:.2f})\"", x, y) : "";
  body_ += fmt::format(
      "<text x=\"{:.2f}\" y=\"{:.2f}\" font-size=\"{:.1f}\" fill=\"{}\" text-anchor=\"{}\" "
      "dominant-baseline=\"central\"{}>{}</text>\n",
      x, y, size, css(style.colour), kAnchors[static_cast<int>(style.anchor)], turn, escaped(text));
}

void SvgCanvas::write(const std::string& path) const {
  std::ofstream file(path, std::ios::binary);
  file << to_string();
  file.close();
  check_written(file.good(), path);
}

}  // namespace topomask::cli
