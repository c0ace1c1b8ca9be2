#include "draw/picture.h"

#include <cairo/cairo-svg.h>
#include <cairo/cairo.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "core/check.h"
#include "io/files.h"

namespace topomask::cli {

// Named, since Picture::Surface holds them.
struct DestroySurface {
  void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
};
struct DestroyContext {
  void operator()(cairo_t* context) const { cairo_destroy(context); }
};
using SurfacePtr = std::unique_ptr<cairo_surface_t, DestroySurface>;
using ContextPtr = std::unique_ptr<cairo_t, DestroyContext>;

namespace {

constexpr double kPngScale = 2;
constexpr double kCaptionSize = 12, kCaptionLine = 17, kCaptionMargin = 16;

void check_status(cairo_status_t status) {
  if (status != CAIRO_STATUS_SUCCESS)
    throw std::runtime_error(fmt::format("drawing: {}", cairo_status_to_string(status)));
}

cairo_status_t append(void* target, const unsigned char* bytes, unsigned int count) {
  static_cast<std::string*>(target)->append(reinterpret_cast<const char*>(bytes), count);
  return CAIRO_STATUS_SUCCESS;
}

std::string png_bytes(cairo_surface_t* surface) {
  std::string bytes;
  check_status(cairo_surface_write_to_png_stream(surface, append, &bytes));
  return bytes;
}

// An opaque image whose pixel (x, y) is colour(x, y).
template <class ColourAt>
SurfacePtr make_image(int width, int height, const ColourAt& colour) {
  SurfacePtr surface(cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height));
  check_status(cairo_surface_status(surface.get()));
  cairo_surface_flush(surface.get());
  unsigned char* data = cairo_image_surface_get_data(surface.get());
  const int stride = cairo_image_surface_get_stride(surface.get());
  for (int y = 0; y < height; ++y) {
    auto* row = reinterpret_cast<std::uint32_t*>(data + static_cast<std::ptrdiff_t>(y) * stride);
    for (int x = 0; x < width; ++x) {
      const Colour c = colour(x, y);
      row[x] = std::uint32_t{c.red} << 16 | std::uint32_t{c.green} << 8 | std::uint32_t{c.blue};
    }
  }
  cairo_surface_mark_dirty(surface.get());
  return surface;
}

void set_colour(cairo_t* context, Colour colour, double opacity = 1) {
  cairo_set_source_rgba(context, colour.red / 255.0, colour.green / 255.0, colour.blue / 255.0, opacity);
}

void set_font(cairo_t* context, double size) {
  cairo_select_font_face(context, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(context, size);
  // Letters keep their distances at any size, so that measured widths hold for PNG and SVG.
  cairo_font_options_t* options = cairo_font_options_create();
  cairo_font_options_set_hint_style(options, CAIRO_HINT_STYLE_NONE);
  cairo_font_options_set_hint_metrics(options, CAIRO_HINT_METRICS_OFF);
  cairo_font_options_set_antialias(options, CAIRO_ANTIALIAS_GRAY);
  cairo_set_font_options(context, options);
  cairo_font_options_destroy(options);
}

// A context to measure text in, which needs no picture yet.
cairo_t* measuring_context() {
  static const SurfacePtr surface(cairo_image_surface_create(CAIRO_FORMAT_A8, 1, 1));
  static const ContextPtr context(cairo_create(surface.get()));
  return context.get();
}

// The letters of a UTF-8 text; what is no UTF-8 (a path may be anything) becomes the replacement character,
// since Cairo draws nothing more after an invalid text.
std::vector<std::string> letters(const std::string& text) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) {
      return static_cast<unsigned char>(at < text.size() ? text[at] : 0);
    };
    const unsigned char first = byte(i);
    const std::size_t length = first < 0x80   ? 1
                               : first < 0xc2 ? 0
                               : first < 0xe0 ? 2
                               : first < 0xf0 ? 3
                               : first < 0xf5 ? 4
                                              : 0;
    bool valid = length > 0;
    for (std::size_t k = 1; k < length; ++k) valid = valid && (byte(i + k) & 0xc0) == 0x80;
    // Overlong forms, surrogates, and beyond the last letter.
    const unsigned char second = byte(i + 1);
    if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second >= 0xa0) ||
        (first == 0xf0 && second < 0x90) || (first == 0xf4 && second >= 0x90))
      valid = false;
    result.push_back(valid ? text.substr(i, length) : "\ufffd");
    i += valid ? length : 1;
  }
  return result;
}

std::string cleaned(const std::string& text) {
  return fmt::format("{}", fmt::join(letters(text), ""));
}

}  // namespace

double text_width(const std::string& text, double size) {
  set_font(measuring_context(), size);
  cairo_text_extents_t extents;
  cairo_text_extents(measuring_context(), cleaned(text).c_str(), &extents);
  check_status(cairo_status(measuring_context()));
  return extents.x_advance;
}

std::vector<std::string> wrap_text(const std::string& text, double size, double width) {
  std::vector<std::string> lines;
  const auto fits = [&](const std::string& line) { return text_width(line, size) <= width; };
  std::istringstream paragraphs(text);
  for (std::string paragraph; std::getline(paragraphs, paragraph);) {
    std::istringstream words(paragraph);
    std::string line;
    for (std::string word; words >> word;) {
      if (!line.empty() && !fits(line + " " + word)) lines.push_back(std::exchange(line, ""));
      if (!line.empty()) line += " ";
      for (const std::string& letter : letters(word)) {
        if (!line.empty() && !fits(line + letter)) lines.push_back(std::exchange(line, ""));
        line += letter;
      }
    }
    lines.push_back(line);
  }
  return lines;
}

struct Picture::Surface {
  std::string svg;  // written by `surface` until it is finished
  bool vector;
  SurfacePtr surface;
  ContextPtr context;
};

Picture::Picture(double width, double height, bool vector)
    : surface_(std::make_unique<Surface>(Surface{{}, vector, nullptr, nullptr})) {
  if (vector) {
    surface_->surface.reset(cairo_svg_surface_create_for_stream(append, &surface_->svg, width, height));
    cairo_svg_surface_set_document_unit(surface_->surface.get(), CAIRO_SVG_UNIT_PX);
  } else {
    surface_->surface.reset(cairo_image_surface_create(CAIRO_FORMAT_RGB24,
                                                       static_cast<int>(std::ceil(kPngScale * width)),
                                                       static_cast<int>(std::ceil(kPngScale * height))));
    cairo_surface_set_device_scale(surface_->surface.get(), kPngScale, kPngScale);
  }
  surface_->context.reset(cairo_create(surface_->surface.get()));
  check_status(cairo_status(surface_->context.get()));
  fill_rectangle({0, 0, width, height}, kWhite);
}

Picture::~Picture() = default;

void Picture::fill_rectangle(const Box& box, Colour colour, double opacity) {
  cairo_t* context = surface_->context.get();
  set_colour(context, colour, opacity);
  cairo_rectangle(context, box.left, box.top, box.width, box.height);
  cairo_fill(context);
}

void Picture::line(const std::vector<Point>& points, const LineStyle& style) {
  if (points.size() < 2) return;
  cairo_t* context = surface_->context.get();
  static constexpr double kDashes[] = {8, 6};
  set_colour(context, style.colour);
  cairo_set_line_width(context, style.width);
  cairo_set_line_join(context, CAIRO_LINE_JOIN_ROUND);
  cairo_set_line_cap(context, style.dashed ? CAIRO_LINE_CAP_BUTT : CAIRO_LINE_CAP_ROUND);
  cairo_set_dash(context, kDashes, style.dashed ? 2 : 0, 0);
  cairo_new_path(context);
  for (const Point& point : points) cairo_line_to(context, point.x, point.y);
  cairo_stroke(context);
}

void Picture::disc(Point centre, double radius, Colour colour) {
  cairo_t* context = surface_->context.get();
  set_colour(context, colour);
  cairo_new_path(context);
  cairo_arc(context, centre.x, centre.y, radius, 0, 2 * M_PI);
  cairo_fill(context);
}

void Picture::text(Point at, const std::string& text, const TextStyle& style) {
  if (text.empty()) return;
  cairo_t* context = surface_->context.get();
  set_font(context, style.size);
  set_colour(context, style.colour);
  cairo_text_extents_t digit;  // as high as a capital
  cairo_text_extents(context, "0", &digit);
  const double width = text_width(text, style.size);
  const double shift = style.anchor == Anchor::start ? 0 : style.anchor == Anchor::middle ? width / 2 : width;
  cairo_save(context);
  cairo_translate(context, at.x, at.y);
  if (style.upwards) cairo_rotate(context, -M_PI / 2);
  cairo_move_to(context, -shift, digit.height / 2);
  cairo_show_text(context, cleaned(text).c_str());
  cairo_restore(context);
  // Letters such as g reach below the line by about as much as brackets reach above it.
  const double height = 1.3 * style.size;
  texts_.push_back({text, style.upwards ? Box{at.x - height / 2, at.y + shift - width, height, width}
                                        : Box{at.x - shift, at.y - height / 2, width, height}});
}

void Picture::image(const Box& box, int rows, int columns, const std::vector<Colour>& pixels) {
  // Programs that show an SVG smooth what they stretch: few large cells are stretched here.
  const auto repeats = [](double size, int cells) {
    return std::max(1, static_cast<int>(std::ceil(kPngScale * size / cells)));
  };
  const int wide = repeats(box.width, columns), high = repeats(box.height, rows);
  const SurfacePtr image = make_image(columns * wide, rows * high, [&](int x, int y) {
    return pixels[static_cast<std::size_t>(y / high) * static_cast<std::size_t>(columns) +
                  static_cast<std::size_t>(x / wide)];
  });
  cairo_t* context = surface_->context.get();
  cairo_save(context);
  cairo_translate(context, box.left, box.top);
  cairo_scale(context, box.width / (columns * wide), box.height / (rows * high));
  cairo_set_source_surface(context, image.get(), 0, 0);
  cairo_pattern_set_filter(cairo_get_source(context), CAIRO_FILTER_NEAREST);
  cairo_paint(context);
  cairo_restore(context);
}

std::string Picture::bytes() {
  check_status(cairo_status(surface_->context.get()));
  if (!surface_->vector) return png_bytes(surface_->surface.get());
  surface_->context.reset();
  cairo_surface_finish(surface_->surface.get());
  check_status(cairo_surface_status(surface_->surface.get()));
  return surface_->svg;
}

std::vector<Picture::Text> write_picture(const CaptionedPicture& picture, const Provenance& provenance,
                                         const std::string& path) {
  const bool vector = path.ends_with(".svg");
  check(vector || path.ends_with(".png"), "cannot draw '{}': expected a name that ends in .png or .svg",
        path);
  const std::string caption = fmt::format("{}{}{}\n{}", picture.caption, picture.caption.empty() ? "" : "\n",
                                          provenance.command, provenance.machine);
  const std::vector<std::string> lines = wrap_text(caption, kCaptionSize, picture.width - 2 * kCaptionMargin);
  const double height = picture.height + kCaptionLine * static_cast<double>(lines.size()) + kCaptionMargin;
  Picture canvas(picture.width, height, vector);
  picture.draw(canvas);
  double y = picture.height + kCaptionLine / 2;
  for (const std::string& line : lines) {
    canvas.text({kCaptionMargin, y}, line, {.size = kCaptionSize, .colour = kGrey});
    y += kCaptionLine;
  }
  write_file(path, canvas.bytes());
  return canvas.texts();
}

std::string encode_png(const std::uint8_t* pixels, int width, int height, int channels) {
  const SurfacePtr image = make_image(width, height, [&](int x, int y) {
    const std::uint8_t* pixel = pixels + (static_cast<std::ptrdiff_t>(y) * width + x) * channels;
    return channels == 1 ? Colour{pixel[0], pixel[0], pixel[0]} : Colour{pixel[0], pixel[1], pixel[2]};
  });
  return png_bytes(image.get());
}

}  // namespace topomask::cli
