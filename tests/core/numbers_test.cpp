#include <gtest/gtest.h>

#include "core/units.h"

namespace topomask {
namespace {

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
