// Pictures, drawn with Cairo: the same calls give a PNG or an SVG, as the file's extension says.
//
// Coordinates are pixels of the SVG from the top left corner; a PNG has two for each.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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
  double size = 15;
  Anchor anchor = Anchor::start;
  Colour colour = kBlack;
  bool upwards = false;  // rotated by 90 degrees, read from below
};

struct Box {
  double left = 0, top = 0, width = 0, height = 0;
  double right() const { return left + width; }
  double bottom() const { return top + height; }
  bool holds(double x, double y) const { return x >= left && x <= right() && y >= top && y <= bottom(); }
  bool overlaps(const Box& other) const {
    return left < other.right() && other.left < right() && top < other.bottom() && other.top < bottom();
  }
};

struct Point {
  double x = 0, y = 0;
};

struct LineStyle {
  double width = 1;
  Colour colour = kBlack;
  bool dashed = false;
};

double text_width(const std::string& text, double size);
// Lines of at most `width`, broken at spaces where there are any; line ends of the text are kept.
std::vector<std::string> wrap_text(const std::string& text, double size, double width);

// What a picture says about its origin, in its caption.
struct Provenance {
  std::string command;  // as one would type it
  std::string machine;
};

class Picture {
 public:
  struct Text {
    std::string text;
    Box box;
  };

  Picture(double width, double height, bool vector);  // vector: SVG
  ~Picture();
  Picture(const Picture&) = delete;
  Picture& operator=(const Picture&) = delete;

  void fill_rectangle(const Box& box, Colour colour, double opacity = 1);
  void line(const std::vector<Point>& points, const LineStyle& style);
  void disc(Point centre, double radius, Colour colour);
  // The middle of the letters is at the height of `at` (for upwards text: at its x).
  void text(Point at, const std::string& text, const TextStyle& style = {});
  // pixels: [rows, columns], stretched over the box without smoothing.
  void image(const Box& box, int rows, int columns, const std::vector<Colour>& pixels);

  const std::vector<Text>& texts() const { return texts_; }  // all that were drawn, with the room they take
  std::string bytes();                                       // of the file; nothing can be drawn afterwards

 private:
  struct Surface;
  std::unique_ptr<Surface> surface_;
  std::vector<Text> texts_;
};

// A picture of the size with a caption below it: `caption` and then its origin, small and grey.
struct CaptionedPicture {
  double width = 0, height = 0;  // without the caption
  std::string caption;           // may be empty
  std::function<void(Picture&)> draw;
};
// `path` ends in .png or .svg. Returns the texts of the picture.
std::vector<Picture::Text> write_picture(const CaptionedPicture& picture, const Provenance& provenance,
                                         const std::string& path);

// pixels: [height, width, channels] bytes; channels is 1 (grey) or 3 (RGB). The bytes of a PNG.
std::string encode_png(const std::uint8_t* pixels, int width, int height, int channels);

}  // namespace topomask::cli
