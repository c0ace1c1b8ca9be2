#include "draw/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace topomask::cli {
namespace {

constexpr int kTextSize = 2, kTitleSize = 3;
constexpr double kLeft = 110, kRight = 30, kTop = 60, kBottom = 80;
constexpr int kFewestTicks = 4;

struct Tick {
  double value;
  std::string label;
};

// Maps values to pixels along one axis and knows its ticks.
class Scale {
 public:
  Scale(double low, double high, bool logarithmic, double begin, double end)
      : logarithmic_(logarithmic), begin_(begin), end_(end) {
    low_ = transform(low);
    high_ = transform(high);
    // Room on both sides, also for a single value.
    const double margin = high_ > low_ ? 0.05 * (high_ - low_) : 0.5;
    low_ -= margin;
    high_ += margin;
  }

  double pixel(double value) const {
    return begin_ + (transform(value) - low_) / (high_ - low_) * (end_ - begin_);
  }

  std::vector<Tick> ticks() const { return logarithmic_ ? decade_ticks() : linear_ticks(); }

 private:
  double transform(double value) const { return logarithmic_ ? std::log10(value) : value; }

  std::vector<Tick> decade_ticks() const {
    std::vector<Tick> ticks;
    // Whole decades, or 1-2-5 steps where there are too few of them.
    const std::vector<double> steps =
        high_ - low_ >= kFewestTicks ? std::vector<double>{1} : std::vector<double>{1, 2, 5};
    for (double decade = std::floor(low_); decade <= high_; ++decade) {
      for (const double step : steps) {
        const double value = step * std::pow(10, decade);
        if (transform(value) >= low_ && transform(value) <= high_) ticks.push_back({value, label(value)});
      }
    }
    return ticks;
  }

  std::vector<Tick> linear_ticks() const {
    const double rough = (high_ - low_) / kFewestTicks, decade = std::pow(10, std::floor(std::log10(rough)));
    const double step = decade * (rough < 2 * decade ? 1 : rough < 5 * decade ? 2 : 5);
    std::vector<Tick> ticks;
    for (double index = std::ceil(low_ / step); index * step <= high_; ++index) {
      ticks.push_back({index * step, label(index * step)});
    }
    return ticks;
  }

  static std::string label(double value) {
    const double magnitude = std::abs(value);
    if (magnitude >= 1e6) return fmt::format("{:.3g}M", value / 1e6);
    if (magnitude >= 1e4) return fmt::format("{:.3g}k", value / 1e3);
    return fmt::format("{:.4g}", std::abs(value) < 1e-12 ? 0 : value);
  }

  bool logarithmic_;
  double begin_, end_, low_ = 0, high_ = 0;
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

void draw_dashes(Canvas& canvas, double x0, double y0, double x1, double y1, Colour colour) {
  constexpr double kDash = 8, kGap = 6;
  const double length = std::hypot(x1 - x0, y1 - y0);
  for (double at = 0; at < length; at += kDash + kGap) {
    const double from = at / length, to = std::min(1.0, (at + kDash) / length);
    canvas.line(x0 + from * (x1 - x0), y0 + from * (y1 - y0), x0 + to * (x1 - x0), y0 + to * (y1 - y0), 2,
                colour);
  }
}

void draw_axes(const Chart& chart, const Scale& x_scale, const Scale& y_scale, Canvas& canvas) {
  const double right = chart.width - kRight, bottom = chart.height - kBottom;
  for (const Tick& tick : x_scale.ticks()) {
    const double x = x_scale.pixel(tick.value);
    canvas.line(x, kTop, x, bottom, 1, kPaleGrey);
    canvas.line(x, bottom, x, bottom + 6, 1.5, kBlack);
    canvas.text(x, bottom + 20, tick.label, {kTextSize, Anchor::middle, kBlack, false});
  }
  for (const Tick& tick : y_scale.ticks()) {
    const double y = y_scale.pixel(tick.value);
    canvas.line(kLeft, y, right, y, 1, kPaleGrey);
    canvas.line(kLeft - 6, y, kLeft, y, 1.5, kBlack);
    canvas.text(kLeft - 12, y, tick.label, {kTextSize, Anchor::end, kBlack, false});
  }
  canvas.line(kLeft, bottom, right, bottom, 1.5, kBlack);
  canvas.line(kLeft, kTop, kLeft, bottom, 1.5, kBlack);
  canvas.text((kLeft + right) / 2, kTop / 2, chart.title, {kTitleSize, Anchor::middle, kBlack, false});
  canvas.text((kLeft + right) / 2, bottom + 52, chart.x_axis.label,
              {kTextSize, Anchor::middle, kBlack, false});
  canvas.text(22, (kTop + bottom) / 2, chart.y_axis.label, {kTextSize, Anchor::middle, kBlack, true});
}

void draw_series(const Chart& chart, const Series& series, const Scale& x_scale, const Scale& y_scale,
                 Canvas& canvas) {
  bool connected = false;
  double last_x = 0, last_y = 0;
  for (std::size_t i = 0; i < std::min(series.x.size(), series.y.size()); ++i) {
    if (!drawable(chart, series.x[i], series.y[i])) {
      connected = false;
      continue;
    }
    const double x = x_scale.pixel(series.x[i]), y = y_scale.pixel(series.y[i]);
    if (series.line && connected) {
      if (series.dashed) {
        draw_dashes(canvas, last_x, last_y, x, y, series.colour);
      } else {
        canvas.line(last_x, last_y, x, y, 2.5, series.colour);
      }
    }
    if (series.markers) canvas.disc(x, y, 5, series.colour);
    connected = true;
    last_x = x;
    last_y = y;
  }
}

constexpr double kLegendRow = 24, kLegendSample = 36, kLegendPadding = 10;

struct Box {
  double left, top, width, height;
  bool holds(double x, double y) const {
    return x >= left && x <= left + width && y >= top && y <= top + height;
  }
};

// How many places along the drawn lines lie in the box.
int places_covered(const Chart& chart, const Scale& x_scale, const Scale& y_scale, const Box& box) {
  constexpr int kPlaces = 32;  // per segment
  int covered = 0;
  for (const Series& series : chart.series) {
    for (std::size_t i = 0; i + 1 < std::min(series.x.size(), series.y.size()); ++i) {
      if (!drawable(chart, series.x[i], series.y[i]) || !drawable(chart, series.x[i + 1], series.y[i + 1]))
        continue;
      const double x0 = x_scale.pixel(series.x[i]), y0 = y_scale.pixel(series.y[i]);
      const double x1 = x_scale.pixel(series.x[i + 1]), y1 = y_scale.pixel(series.y[i + 1]);
      for (int place = 0; place <= kPlaces; ++place) {
        const double t = static_cast<double>(place) / kPlaces;
        covered += box.holds(x0 + t * (x1 - x0), y0 + t * (y1 - y0)) ? 1 : 0;
      }
    }
  }
  return covered;
}

// In the corner where it hides least.
Box legend_box(const Chart& chart, const Scale& x_scale, const Scale& y_scale, double width, double height) {
  constexpr double kGap = 10;
  const double near_left = kLeft + kGap, near_right = chart.width - kRight - width - kGap;
  const double near_top = kTop + kGap, near_bottom = chart.height - kBottom - height - kGap;
  const Box corners[] = {{near_left, near_top, width, height},
                         {near_right, near_top, width, height},
                         {near_right, near_bottom, width, height},
                         {near_left, near_bottom, width, height}};
  return *std::min_element(std::begin(corners), std::end(corners), [&](const Box& a, const Box& b) {
    return places_covered(chart, x_scale, y_scale, a) < places_covered(chart, x_scale, y_scale, b);
  });
}

void draw_legend(const Chart& chart, const Scale& x_scale, const Scale& y_scale, Canvas& canvas) {
  int widest = 0, rows = 0;
  for (const Series& series : chart.series) {
    if (series.label.empty()) continue;
    widest = std::max(widest, text_width(series.label, kTextSize));
    ++rows;
  }
  if (rows == 0) return;
  const Box box = legend_box(chart, x_scale, y_scale, widest + kLegendSample + 3 * kLegendPadding,
                             rows * kLegendRow + kLegendPadding);
  canvas.fill_rectangle(box.left, box.top, box.width, box.height, kWhite);
  const double x = box.left + kLegendPadding;
  double y = box.top + kLegendPadding / 2 + kLegendRow / 2;
  for (const Series& series : chart.series) {
    if (series.label.empty()) continue;
    if (series.line && series.dashed) draw_dashes(canvas, x, y, x + kLegendSample, y, series.colour);
    if (series.line && !series.dashed) canvas.line(x, y, x + kLegendSample, y, 2.5, series.colour);
    if (series.markers) canvas.disc(x + kLegendSample / 2, y, 5, series.colour);
    canvas.text(x + kLegendSample + kLegendPadding, y, series.label,
                {kTextSize, Anchor::start, kBlack, false});
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

void draw_chart(const Chart& chart, Canvas& canvas) {
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
  const Scale x_scale(x_range.low, x_range.high, chart.x_axis.logarithmic, kLeft, chart.width - kRight);
  const Scale y_scale(y_range.low, y_range.high, chart.y_axis.logarithmic, chart.height - kBottom, kTop);
  draw_axes(chart, x_scale, y_scale, canvas);
  for (const Series& series : chart.series) draw_series(chart, series, x_scale, y_scale, canvas);
  draw_legend(chart, x_scale, y_scale, canvas);
}

void write_chart(const Chart& chart, const std::string& stem) {
  RasterCanvas raster(chart.width, chart.height);
  draw_chart(chart, raster);
  raster.write_png(stem + ".png");
  SvgCanvas svg(chart.width, chart.height);
  draw_chart(chart, svg);
  svg.write(stem + ".svg");
}

}  // namespace topomask::cli
