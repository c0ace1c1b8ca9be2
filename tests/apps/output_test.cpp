// Tables and pictures: what a reader would notice if it were wrong.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>

#include "decode_png.h"
#include "draw/chart.h"
#include "draw/contact_sheet.h"
#include "draw/heat_map.h"
#include "io/files.h"
#include "table.h"
#include "topomask/error.h"

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

// No text leaves the picture and no two cover each other.
void expect_readable(const std::vector<Picture::Text>& texts, double width, double height) {
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Box& box = texts[i].box;
    EXPECT_TRUE(box.left >= 0 && box.top >= 0 && box.right() <= width && box.bottom() <= height)
        << texts[i].text;
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_FALSE(box.overlaps(texts[j].box)) << texts[i].text << " and " << texts[j].text;
  }
}

std::vector<std::string> words(const std::vector<Picture::Text>& texts) {
  std::vector<std::string> result;
  for (const Picture::Text& text : texts) result.push_back(text.text);
  return result;
}

TEST(ChartDrawing, HasAxesLabelsAndOnlyDrawablePoints) {
  Chart chart{.title = "a < b",
              .x_axis = {"nodes", true},
              .y_axis = {"time", true, "s"},
              .series = {},
              .caption = ""};
  chart.series.push_back(
      {.label = "measured", .x = {0, 10, 100, 1000}, .y = {1, 1e-5, NAN, 1}, .colour = kBlack});
  Picture picture(chart.width, chart.height, /*vector=*/true);
  draw_chart(chart, picture);
  EXPECT_THAT(words(picture.texts()),
              ::testing::IsSupersetOf({"a < b", "nodes", "time", "measured", "10", "100", "1000",
                                       "10 \u00b5s", "1 ms", "100 ms", "1 s"}));
  expect_readable(picture.texts(), chart.width, chart.height);
  const std::string svg = picture.bytes();
  EXPECT_THAT(svg, HasSubstr("<svg"));
  EXPECT_THAT(svg, HasSubstr("</svg>"));
  EXPECT_THAT(svg, ::testing::Not(HasSubstr("nan")));
  EXPECT_THAT(svg, ::testing::Not(HasSubstr("inf")));
}

TEST(ChartDrawing, LabelsNeverCoverEachOther) {
  for (const bool logarithmic : {false, true}) {
    for (const double low : {1e-9, 3e-4, 1.0, 7.0, 4096.0}) {
      for (const double factor : {1.0, 1.01, 3.0, 40.0, 1e3, 1e6, 1e14}) {
        const Series series{
            .label = "one", .x = {low, low * factor}, .y = {low, low * factor}, .colour = kBlack};
        const Chart chart{.title = "title",
                          .x_axis = {"x", logarithmic},
                          .y_axis = {"y", logarithmic, "s"},
                          .series = {series},
                          .caption = ""};
        Picture picture(chart.width, chart.height, /*vector=*/false);
        draw_chart(chart, picture);
        SCOPED_TRACE(fmt::format("logarithmic {}, from {}, factor {}", logarithmic, low, factor));
        expect_readable(picture.texts(), chart.width, chart.height);
        EXPECT_GE(picture.texts().size(), 4u + 2u);  // title, two axes, the legend; a number on each axis
      }
    }
  }
}

TEST(ChartDrawing, AnEmptyChartAndASinglePointAreFine) {
  for (const bool logarithmic : {false, true}) {
    Chart chart{
        .title = "", .x_axis = {"x", logarithmic}, .y_axis = {"y", logarithmic}, .series = {}, .caption = ""};
    Picture empty(chart.width, chart.height, /*vector=*/false);
    draw_chart(chart, empty);
    chart.series.push_back({.label = "", .x = {5}, .y = {5}, .colour = {255, 0, 0}});
    Picture picture(chart.width, chart.height, /*vector=*/false);
    draw_chart(chart, picture);
    const Pixels pixels = decode_png(picture.bytes());
    std::size_t red = 0;
    for (std::size_t i = 0; i < pixels.width * pixels.height; ++i)
      red += pixels.at(i % pixels.width, i / pixels.width) == std::array<int, 3>{255, 0, 0} ? 1 : 0;
    EXPECT_NEAR(static_cast<double>(red), 10 * 10 * M_PI, 60);  // a disc of radius 5, two pixels to each
  }
}

TEST(HeatMapDrawing, CellsHaveTheirColoursAndTextsTheirRoom) {
  const HeatMap panel{"panel", "note", 2, 2, {4, 1, 0, 16}};
  const HeatMapFigure figure{.title = "title", .panels = {{panel, panel}, {panel, panel}}, .caption = ""};
  const CaptionedPicture picture{.width = 700, .height = 700, .caption = "", .draw = [&](Picture& canvas) {
                                   draw_heat_maps(figure, canvas);
                                 }};
  const std::string path = ::testing::TempDir() + "/topomask_heat_map_test.png";
  expect_readable(write_picture(picture, {"command", "machine"}, path), 700, 760);
  const Pixels pixels = decode_png(read_file(path));
  const auto colour = [&](double x, double y) {
    return pixels.at(static_cast<std::size_t>(2 * x), static_cast<std::size_t>(2 * y));
  };
  const auto expected = [](double t) {
    const Colour c = heat_colour(t);
    return std::array<int, 3>{c.red, c.green, c.blue};
  };
  EXPECT_EQ(colour(24 + 60, 80 + 60), expected(0.5));
  EXPECT_EQ(colour(24 + 180, 80 + 60), expected(0.25));
  EXPECT_EQ(colour(24 + 60, 80 + 180), expected(0));
  EXPECT_EQ(colour(24 + 180, 80 + 180), expected(1));
  std::remove(path.c_str());
}

TEST(Pictures, EveryFileSaysWhatMadeItOnWhichMachine) {
  const std::string stem = ::testing::TempDir() + "/topomask_picture_test";
  const CaptionedPicture picture{
      .width = 300, .height = 100, .caption = "what was timed", .draw = [](Picture&) {}};
  // Paths may be long and need not be UTF-8.
  const Provenance provenance{
      "topomask demo --out " + std::string(200, 'x') + "\xff\xc3 \u00b5\u00b2 --seed 1", "a machine"};
  for (const char* extension : {".png", ".svg"}) {
    const std::vector<Picture::Text> texts = write_picture(picture, provenance, stem + extension);
    std::string all;
    for (const Picture::Text& text : texts) {
      EXPECT_GE(text.box.top, 100) << text.text;
      all += text.text + " ";
    }
    expect_readable(texts, 300, 1000);
    for (const char* part :
         {"what was timed", "topomask demo", "\ufffd\ufffd \u00b5\u00b2 --seed 1", "a machine"})
      EXPECT_THAT(all, HasSubstr(part));
    const std::string bytes = read_file(stem + extension);
    EXPECT_THAT(bytes, HasSubstr(extension == std::string(".png") ? "PNG" : "<svg"));
    std::remove((stem + extension).c_str());
  }
  EXPECT_THROW(write_picture(picture, provenance, stem + ".gif"), Error);
}

TEST(Pictures, TextHasItsWidthWhateverItHolds) {
  const double width = text_width("mmmm", 10);
  EXPECT_GT(width, 30);
  EXPECT_LT(width, 60);
  for (const char* odd :
       {"\xff", "\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80", "\u00b5", "\U0001f600"})
    EXPECT_GT(text_width(odd, 10), 0) << odd;
  EXPECT_EQ(text_width("mmmm", 10), width);
}

TEST(Pictures, PngHoldsWhatWasDrawn) {
  Picture picture(20, 10, /*vector=*/false);
  picture.fill_rectangle({2, 3, 4, 2}, {255, 0, 0});
  picture.fill_rectangle({-5, -5, 6, 6}, {0, 0, 255});  // partly outside
  const Pixels pixels = decode_png(picture.bytes());
  ASSERT_EQ(pixels.width, 40u);
  ASSERT_EQ(pixels.height, 20u);
  EXPECT_EQ(pixels.at(4, 6), (std::array<int, 3>{255, 0, 0}));
  EXPECT_EQ(pixels.at(11, 9), (std::array<int, 3>{255, 0, 0}));
  EXPECT_EQ(pixels.at(12, 9), (std::array<int, 3>{255, 255, 255}));
  EXPECT_EQ(pixels.at(1, 1), (std::array<int, 3>{0, 0, 255}));
  EXPECT_EQ(pixels.at(2, 2), (std::array<int, 3>{255, 255, 255}));
}

TEST(Pictures, ImagesOfAReportKeepTheirPixels) {
  const std::uint8_t rgb[] = {1, 2, 3, 4, 5, 6, 250, 251, 252, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Pixels colour = decode_png(encode_png(rgb, 3, 2, 3));
  EXPECT_EQ(colour.bytes, std::vector<unsigned char>(std::begin(rgb), std::end(rgb)));
  const std::uint8_t grey[] = {0, 128, 255};
  EXPECT_EQ(decode_png(encode_png(grey, 1, 3, 1)).bytes,
            (std::vector<unsigned char>{0, 0, 0, 128, 128, 128, 255, 255, 255}));
}

TEST(ContactSheet, LabelsStandBelowTheirPicturesAndNothingOverlaps) {
  ContactSheet sheet{.title = "An episode with a title that is wider than its few small pictures",
                     .pictures = {},
                     .caption = "What is shown.",
                     .tile = 64};
  const std::vector<Colour> pixels(16, Colour{200, 30, 30});
  for (int row = 0; row < 2; ++row) {
    sheet.pictures.emplace_back();
    for (int column = 0; column < 3; ++column)
      sheet.pictures.back().push_back({fmt::format("{}, {} s", row, column), 4, 4, pixels});
  }
  const std::string path = ::testing::TempDir() + "/contact-sheet.png";
  const std::vector<Picture::Text> texts = write_contact_sheet(sheet, {"topomask show", "a machine"}, path);
  EXPECT_TRUE(read_file(path).starts_with("\x89PNG"));
  ASSERT_GE(texts.size(), 8u);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_GE(texts[i].box.left, 0) << texts[i].text;
    for (std::size_t j = 0; j < i; ++j)
      EXPECT_FALSE(texts[i].box.overlaps(texts[j].box)) << texts[i].text << " and " << texts[j].text;
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace topomask::cli
