// Tables and pictures: what a reader would notice if it were wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spng.h>

#include <cmath>
#include <cstdio>
#include <memory>

#include "draw/font.h"
#include "draw/plot.h"
#include "table.h"

namespace topomask::cli {
namespace {

using ::testing::HasSubstr;

TEST(TableText, ColumnsAreAligned) {
  Table table({"name", "value"});
  table.add_row({"a", "1"});
  table.add_row({"longer", "12345678"});
  EXPECT_EQ(table.to_string(),
            "name       value\n"
            "------  --------\n"
            "a              1\n"
            "longer  12345678\n");
}

TEST(TableText, NumbersAreReadable) {
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(-123456), "-123,456");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_seconds(0.00123), "1.23 ms");
  EXPECT_EQ(format_bytes(1.5e9), "1.5 GB");
  EXPECT_EQ(format_bytes(0), "0 B");
}

TEST(Font, EveryPrintableLetterHasInkAndNoTwoAreAlike) {
  std::vector<std::string> shapes;
  for (char letter = '!'; letter <= '~'; ++letter) {
    std::string shape;
    for (int row = 0; row < kGlyphRows; ++row) {
      for (int column = 0; column < kGlyphWidth; ++column)
        shape += glyph_cell(letter, row, column) ? '#' : '.';
    }
    EXPECT_NE(shape.find('#'), std::string::npos) << letter;
    EXPECT_EQ(std::count(shapes.begin(), shapes.end(), shape), 0) << letter;
    shapes.push_back(shape);
  }
  EXPECT_FALSE(glyph_cell(' ', 3, 2));
  EXPECT_FALSE(glyph_cell('\xc3', 3, 2));
}

TEST(HeatColour, LightnessRisesEvenly) {
  // Relative luminance of sRGB, then CIE lightness.
  const auto lightness = [](Colour colour) {
    const auto linear = [](double channel) {
      channel /= 255;
      return channel <= 0.04045 ? channel / 12.92 : std::pow((channel + 0.055) / 1.055, 2.4);
    };
    const double luminance =
        0.2126 * linear(colour.red) + 0.7152 * linear(colour.green) + 0.0722 * linear(colour.blue);
    return luminance > 0.008856 ? 116 * std::cbrt(luminance) - 16 : 903.3 * luminance;
  };
  const double low = lightness(heat_colour(0)), high = lightness(heat_colour(1));
  EXPECT_LT(low, 15);
  EXPECT_GT(high, 85);
  for (int i = 0; i <= 20; ++i) {
    EXPECT_NEAR(lightness(heat_colour(i / 20.0)), low + (high - low) * i / 20, 4) << i;
  }
}

TEST(ChartDrawing, SvgHasAxesLabelsAndOnlyDrawablePoints) {
  Chart chart{.title = "a < b", .x_axis = {"nodes", true}, .y_axis = {"seconds", true}, .series = {}};
  chart.series.push_back(
      {.label = "measured", .x = {0, 10, 100, 1000}, .y = {1, 1, NAN, 100}, .colour = kBlack});
  SvgCanvas canvas(chart.width, chart.height);
  draw_chart(chart, canvas);
  const std::string svg = canvas.to_string();
  for (const char* part : {">a &lt; b<", ">nodes<", ">seconds<", ">measured<", ">100<"})
    EXPECT_THAT(svg, HasSubstr(part));
  EXPECT_THAT(svg, ::testing::Not(HasSubstr("=\"nan")));
  EXPECT_THAT(svg, ::testing::Not(HasSubstr("=\"inf")));
  std::size_t circles = 0;
  for (std::size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1))
    ++circles;
  EXPECT_EQ(circles, 2u + 1u);  // two points and the sample in the legend
}

TEST(ChartDrawing, AnEmptyChartAndASinglePointAreFine) {
  for (const bool logarithmic : {false, true}) {
    Chart chart{.title = "", .x_axis = {"x", logarithmic}, .y_axis = {"y", logarithmic}, .series = {}};
    RasterCanvas canvas(chart.width, chart.height);
    draw_chart(chart, canvas);
    chart.series.push_back({.label = "", .x = {5}, .y = {5}, .colour = kBlack});
    SvgCanvas svg(chart.width, chart.height);
    draw_chart(chart, svg);
    EXPECT_THAT(svg.to_string(), HasSubstr("<circle"));
  }
}

TEST(Raster, PngHoldsWhatWasDrawn) {
  RasterCanvas canvas(20, 10);
  canvas.fill_rectangle(2, 3, 4, 2, {255, 0, 0});
  canvas.fill_rectangle(-5, -5, 6, 6, {0, 0, 255});  // partly outside
  const std::string path = ::testing::TempDir() + "/topomask_raster_test.png";
  canvas.write_png(path);
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  ASSERT_NE(file, nullptr);
  const std::unique_ptr<spng_ctx, void (*)(spng_ctx*)> decoder(spng_ctx_new(0), spng_ctx_free);
  ASSERT_EQ(spng_set_png_file(decoder.get(), file.get()), 0);
  std::size_t size = 0;
  ASSERT_EQ(spng_decoded_image_size(decoder.get(), SPNG_FMT_RGB8, &size), 0);
  ASSERT_EQ(size, 20u * 10u * 3u);
  std::vector<unsigned char> pixels(size);
  ASSERT_EQ(spng_decode_image(decoder.get(), pixels.data(), size, SPNG_FMT_RGB8, 0), 0);
  const auto pixel = [&](std::size_t x, std::size_t y) {
    const auto at = (y * 20 + x) * 3;
    return std::array<int, 3>{pixels[at], pixels[at + 1], pixels[at + 2]};
  };
  EXPECT_EQ(pixel(2, 3), (std::array<int, 3>{255, 0, 0}));
  EXPECT_EQ(pixel(5, 4), (std::array<int, 3>{255, 0, 0}));
  EXPECT_EQ(pixel(6, 4), (std::array<int, 3>{255, 255, 255}));
  EXPECT_EQ(pixel(0, 0), (std::array<int, 3>{0, 0, 255}));
  EXPECT_EQ(pixel(1, 1), (std::array<int, 3>{255, 255, 255}));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace topomask::cli
