#include "draw/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace topomask::cli {
namespace {

constexpr double kTextSize = 15, kTitleSize = 20;
constexpr double kRight = 30, kTop = 56, kBottom = 76;
constexpr double kTickLength = 6, kTickGap = 6;  // tick marks, and from them to their labels
constexpr double kAxisLabelRoom = 40;            // left of the tick labels
constexpr int kFewestTicks = 4;

struct Tick {
  double value;
  std::string label;  // "": a small tick
};

std::string superscript(int number) {
  static constexpr const char* kDigits[] = {"\u2070", "\u00b9", "\u00b2", "\u00b3", "\u2074",
                                            "\u2075", "\u2076", "\u2077", "\u2078", "\u2079"};
  std::string text = number < 0 ? "\u207b" : "";
  for (const char digit : std::to_string(std::abs(number))) text += kDigits[digit - '0'];
  return text;
}

// 20000 -> "20k", 3e9 -> "3G", 2e-5 -> "2·10⁻⁵"; with a unit "20 ks", "20 µs".
std::string tick_label(double value, const std::string& unit) {
  struct Prefix {
    double factor;
    const char* name;
  };
  static constexpr Prefix kPrefixes[] = {{1e12, "T"}, {1e9, "G"},  {1e6, "M"},       {1e3, "k"},
                                         {1, ""},     {1e-3, "m"}, {1e-6, "\u00b5"}, {1e-9, "n"}};
  const double magnitude = std::abs(value);
  if (magnitude < 1e-300) return unit.empty() ? "0" : "0 " + unit;
  for (const Prefix& prefix : kPrefixes) {
    if (unit.empty() && (prefix.factor < 1 || (prefix.factor == 1e3 && magnitude < 0.9995e4))) continue;
    // Without a unit thousandths are still easy to read.
    const double smallest = unit.empty() && prefix.factor == 1 ? 1e-3 : prefix.factor;
    if (magnitude < 0.9995 * smallest || magnitude >= 0.9995e3 * kPrefixes[0].factor) continue;
    const std::string number = fmt::format("{:.4g}", value / prefix.factor);
    return unit.empty() ? number + prefix.name : fmt::format("{} {}{}", number, prefix.name, unit);
  }
  const int exponent = static_cast<int>(std::floor(std::log10(magnitude) + 1e-9));
  const std::string factor = fmt::format("{:.3g}", value / std::pow(10, exponent));
  const std::string number = (factor == "1" ? "10" : factor + "\u00b710") + superscript(exponent);
  return unit.empty() ? number : number + " " + unit;
}

// Maps values to pixels along one axis and knows its ticks.
class Scale {
 public:
  Scale(double low, double high, const Axis& axis)
      : logarithmic_(axis.logarithmic), unit_(axis.unit), chosen_(axis.ticks) {
    low_ = transform(low);
    high_ = transform(high);
    // Room on both sides, also for a single value.
    const double margin = high_ > low_ ? 0.05 * (high_ - low_) : 0.5;
    low_ -= margin;
    high_ += margin;
  }

  void place(double begin, double end) {
    begin_ = begin;
    end_ = end;
  }

  double pixel(double value) const {
    return begin_ + (transform(value) - low_) / (high_ - low_) * (end_ - begin_);
  }

  std::vector<Tick> ticks() const {
    std::vector<Tick> chosen;
    for (const double value : chosen_) {
      if (transform(value) >= low_ && transform(value) <= high_)
        chosen.push_back({value, tick_label(value, unit_)});
    }
    if (!chosen.empty()) return chosen;
    if (!logarithmic_) return linear_ticks(low_, high_);
    // Between 2 and 5 there is nothing to write: a short piece of a logarithmic axis is almost linear.
    constexpr double kShort = 0.5;
    return high_ - low_ < kShort ? linear_ticks(std::pow(10, low_), std::pow(10, high_)) : decade_ticks();
  }

 private:
  double transform(double value) const { return logarithmic_ ? std::log10(value) : value; }

  // Labels at whole decades, at 1-2-5 steps where there are too few of them, at every n-th decade where there
  // are many; small ticks between them.
  std::vector<Tick> decade_ticks() const {
    const double decades = high_ - low_;
    const int every = static_cast<int>(std::ceil(decades / 12));
    const bool small_ticks = decades < 8;
    std::vector<Tick> ticks;
    for (int decade = static_cast<int>(std::floor(low_)); decade <= high_; ++decade) {
      for (int step = 1; step < 10; ++step) {
        const double value = step * std::pow(10, decade), at = transform(value);
        if (at < low_ || at > high_ || (step > 1 && !small_ticks)) continue;
        const bool labelled =
            step == 1 ? decade % every == 0 : decades < kFewestTicks && (step == 2 || step == 5);
        ticks.push_back({value, labelled ? tick_label(value, unit_) : ""});
      }
    }
    return ticks;
  }

  std::vector<Tick> linear_ticks(double low, double high) const {
    const double rough = (high - low) / kFewestTicks, decade = std::pow(10, std::floor(std::log10(rough)));
    const double step = decade * (rough < 2 * decade ? 1 : rough < 5 * decade ? 2 : 5);
    std::vector<Tick> ticks;
    for (double index = std::ceil(low / step); index * step <= high; ++index)
      ticks.push_back({index * step, tick_label(index * step, unit_)});
    return ticks;
  }

  bool logarithmic_;
  std::string unit_;
  std::vector<double> chosen_;
  double begin_ = 0, end_ = 1, low_ = 0, high_ = 0;
};

bool drawable(const Chart& chart, double x, double y) {
  return std::isfinite(x) && std::isfinite(y) && (x > 0 || !chart.x_axis.logarithmic) &&
         (y > 0 || !chart.y_axis.logarithmic);
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

struct Plane {
  Scale x, y;
  Box box;  // between the axes

  Point at(double x_value, double y_value) const { return {x.pixel(x_value), y.pixel(y_value)}; }
};

Plane make_plane(const Chart& chart) {
  Range x_range, y_range;
  for (const Series& series : chart.series) {
    for (std::size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
      if (!drawable(chart, series.x[i], series.y[i])) continue;
      x_range.include(series.x[i]);
      y_range.include(series.y[i]);
    }
  }
  // A chart without points still has axes.
  if (x_range.low > x_range.high) x_range = {1, 10};
  if (y_range.low > y_range.high) y_range = {1, 10};
  Plane plane{
      Scale(x_range.low, x_range.high, chart.x_axis), Scale(y_range.low, y_range.high, chart.y_axis), {}};
  double widest = 0;
  for (const Tick& tick : plane.y.ticks()) widest = std::max(widest, text_width(tick.label, kTextSize));
  const double left = kAxisLabelRoom + widest + kTickLength + kTickGap;
  plane.box = {left, kTop, chart.width - kRight - left, chart.height - kBottom - kTop};
  plane.x.place(plane.box.left, plane.box.right());
  plane.y.place(plane.box.bottom(), plane.box.top);
  return plane;
}

void draw_axes(const Chart& chart, const Plane& plane, Picture& picture) {
  const Box& box = plane.box;
  constexpr LineStyle kGrid{.width = 1, .colour = kPaleGrey}, kMark{.width = 1.5};
  double free_from = -1;  // labels must not run into each other
  for (const Tick& tick : plane.x.ticks()) {
    const double x = plane.x.pixel(tick.value), half = text_width(tick.label, kTextSize) / 2;
    const bool large = !tick.label.empty() && x - half > free_from;
    if (large) {
      picture.line({{x, box.top}, {x, box.bottom()}}, kGrid);
      picture.text({x, box.bottom() + kTickLength + kTickGap + kTextSize / 2}, tick.label,
                   {.size = kTextSize, .anchor = Anchor::middle});
      free_from = x + half + kTextSize / 2;
    }
    picture.line({{x, box.bottom()}, {x, box.bottom() + (large ? 1 : 0.5) * kTickLength}}, kMark);
  }
  free_from = chart.height;
  for (const Tick& tick : plane.y.ticks()) {
    const double y = plane.y.pixel(tick.value);
    const bool large = !tick.label.empty() && y + kTextSize / 2 < free_from;
    if (large) {
      picture.line({{box.left, y}, {box.right(), y}}, kGrid);
      picture.text({box.left - kTickLength - kTickGap, y}, tick.label,
                   {.size = kTextSize, .anchor = Anchor::end});
      free_from = y - kTextSize;
    }
    picture.line({{box.left - (large ? 1 : 0.5) * kTickLength, y}, {box.left, y}}, kMark);
  }
  picture.line({{box.left, box.top}, {box.left, box.bottom()}, {box.right(), box.bottom()}}, kMark);
  picture.text({chart.width / 2, kTop / 2}, chart.title, {.size = kTitleSize, .anchor = Anchor::middle});
  picture.text({(box.left + box.right()) / 2, box.bottom() + kBottom - kTextSize - 8}, chart.x_axis.label,
               {.size = kTextSize, .anchor = Anchor::middle});
  picture.text({20, (box.top + box.bottom()) / 2}, chart.y_axis.label,
               {.size = kTextSize, .anchor = Anchor::middle, .upwards = true});
}

constexpr double kLineWidth = 2.5, kMarker = 5;

LineStyle line_style(const Series& series) {
  return {.width = series.dashed ? 2 : kLineWidth, .colour = series.colour, .dashed = series.dashed};
}

// The parts of a series between points that cannot be drawn.
std::vector<std::vector<Point>> pieces(const Chart& chart, const Series& series, const Plane& plane) {
  std::vector<std::vector<Point>> all(1);
  for (std::size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
    if (drawable(chart, series.x[i], series.y[i])) {
      all.back().push_back(plane.at(series.x[i], series.y[i]));
    } else if (!all.back().empty()) {
      all.emplace_back();
    }
  }
  return all;
}

void draw_series(const Chart& chart, const Series& series, const Plane& plane, Picture& picture) {
  for (const std::vector<Point>& piece : pieces(chart, series, plane)) {
    if (series.line) picture.line(piece, line_style(series));
    if (!series.markers) continue;
    for (const Point& point : piece) picture.disc(point, kMarker, series.colour);
  }
}

constexpr double kLegendRow = 24, kLegendSample = 36, kLegendPadding = 10;

// How many places along the drawn lines lie in the box.
int places_covered(const Chart& chart, const Plane& plane, const Box& box) {
  constexpr int kPlaces = 32;  // per segment
  const Box grown{box.left - kMarker, box.top - kMarker, box.width + 2 * kMarker, box.height + 2 * kMarker};
  int covered = 0;
  for (const Series& series : chart.series) {
    for (const std::vector<Point>& piece : pieces(chart, series, plane)) {
      for (std::size_t i = 0; i + 1 < piece.size(); ++i) {
        for (int place = 0; place <= kPlaces; ++place) {
          const double t = static_cast<double>(place) / kPlaces;
          covered += grown.holds(piece[i].x + t * (piece[i + 1].x - piece[i].x),
                                 piece[i].y + t * (piece[i + 1].y - piece[i].y))
                         ? 1
                         : 0;
        }
      }
    }
  }
  return covered;
}

// In the corner where it hides least.
Box legend_box(const Chart& chart, const Plane& plane, double width, double height) {
  constexpr double kGap = 10;
  const double left = plane.box.left + kGap, right = plane.box.right() - width - kGap;
  const double top = plane.box.top + kGap, bottom = plane.box.bottom() - height - kGap;
  const Box corners[] = {{left, top, width, height},
                         {right, top, width, height},
                         {right, bottom, width, height},
                         {left, bottom, width, height}};
  return *std::min_element(std::begin(corners), std::end(corners), [&](const Box& a, const Box& b) {
    return places_covered(chart, plane, a) < places_covered(chart, plane, b);
  });
}

void draw_legend(const Chart& chart, const Plane& plane, Picture& picture) {
  double widest = 0;
  int rows = 0;
  for (const Series& series : chart.series) {
    if (series.label.empty()) continue;
    widest = std::max(widest, text_width(series.label, kTextSize));
    ++rows;
  }
  if (rows == 0) return;
  const Box box = legend_box(chart, plane, widest + kLegendSample + 3 * kLegendPadding,
                             rows * kLegendRow + kLegendPadding);
  picture.fill_rectangle(box, kWhite, 0.85);
  const double x = box.left + kLegendPadding;
  double y = box.top + kLegendPadding / 2 + kLegendRow / 2;
  for (const Series& series : chart.series) {
    if (series.label.empty()) continue;
    if (series.line) picture.line({{x, y}, {x + kLegendSample, y}}, line_style(series));
    if (series.markers) picture.disc({x + kLegendSample / 2, y}, kMarker, series.colour);
    picture.text({x + kLegendSample + kLegendPadding, y}, series.label, {.size = kTextSize});
    y += kLegendRow;
  }
}

}  // namespace

Colour series_colour(std::size_t index) {
  // Blue, orange, green, magenta, sky, brown: apart in hue and in lightness.
  static constexpr Colour kColours[] = {{20, 90, 170},  {225, 120, 20}, {20, 135, 95},
                                        {185, 60, 140}, {90, 175, 225}, {120, 75, 40}};
  return kColours[index % std::size(kColours)];
}

void draw_chart(const Chart& chart, Picture& picture) {
  const Plane plane = make_plane(chart);
  draw_axes(chart, plane, picture);
  for (const Series& series : chart.series) draw_series(chart, series, plane, picture);
  draw_legend(chart, plane, picture);
}

void write_chart(const Chart& chart, const Provenance& provenance, const std::string& stem) {
  const CaptionedPicture picture{
      .width = chart.width, .height = chart.height, .caption = chart.caption, .draw = [&](Picture& canvas) {
        draw_chart(chart, canvas);
      }};
  for (const char* extension : {".png", ".svg"}) write_picture(picture, provenance, stem + extension);
}

}  // namespace topomask::cli
