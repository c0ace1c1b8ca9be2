#include <gtest/gtest.h>

#include "core/numbers.h"
#include "core/units.h"

namespace topomask {
namespace {

using Sizes = std::vector<std::int64_t>;

TEST(Extent, IsOneToThreeSizes) {
  EXPECT_EQ(parse_extent("5"), Sizes({5}));
  EXPECT_EQ(parse_extent("16x9"), Sizes({16, 9}));
  EXPECT_EQ(parse_extent("4,4,3"), Sizes({4, 4, 3}));
  EXPECT_EQ(parse_extent("1000000007x1"), Sizes({1000000007, 1}));
  EXPECT_EQ(parse_extent(std::string_view("16x99").substr(0, 4)), Sizes({16, 9}));
}

TEST(Extent, IsNothingElse) {
  for (const char* text : {"", "x", "3x", "x3", "3xx4", "3x0", "-3", "3x-4", "1x2x3x4", "3X4", "3 x4", "3.5",
                           "a", "3x4a", "99999999999999999999"})
    EXPECT_TRUE(parse_extent(text).empty()) << text;
  EXPECT_TRUE(parse_extent({}).empty());
}

TEST(Units, TheLargestThatIsNotAboveTheNumber) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1.5e9), "1.5 GB");
  EXPECT_EQ(format_bytes(-2.25e6), "-2.25 MB");
  EXPECT_EQ(format_bytes(7e15), "7e+03 TB");
  EXPECT_EQ(format_seconds(12), "12 s");
  EXPECT_EQ(format_seconds(0.00123), "1.23 ms");
  EXPECT_EQ(format_seconds(2e-9), "0.002 us");
  EXPECT_EQ(format_rate(1.234e7), "12.3 M/s");
}

TEST(Units, RoundingReachesTheNext) {
  EXPECT_EQ(format_bytes(999.4e6), "999 MB");
  EXPECT_EQ(format_bytes(999.6e6), "1 GB");
  EXPECT_EQ(format_seconds(0.9996), "1 s");
}

}  // namespace
}  // namespace topomask
