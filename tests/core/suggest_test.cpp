#include <gtest/gtest.h>

#include <array>

#include "core/suggest.h"

namespace topomask {
namespace {

constexpr std::array<std::string_view, 4> kCouplings{"independent", "antithetic", "repelling", "both"};

TEST(suggest, counts_insertions_deletions_replacements_and_swaps) {
  EXPECT_EQ(edit_distance("both", "both"), 0u);
  EXPECT_EQ(edit_distance("Both", "bOTH"), 0u);
  EXPECT_EQ(edit_distance("", "both"), 4u);
  EXPECT_EQ(edit_distance("bth", "both"), 1u);
  EXPECT_EQ(edit_distance("boath", "both"), 1u);
  EXPECT_EQ(edit_distance("bath", "both"), 1u);
  EXPECT_EQ(edit_distance("boht", "both"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(suggest, finds_the_nearest_name) {
  EXPECT_EQ(nearest_name("repeling", kCouplings), "repelling");
  EXPECT_EQ(nearest_name("Antithetik", kCouplings), "antithetic");
  EXPECT_EQ(nearest_name("indep", kCouplings), "independent");
  EXPECT_EQ(nearest_name("btoh", std::vector<std::string>{"none", "both"}), "both");
}

TEST(suggest, is_silent_when_nothing_is_near) {
  EXPECT_EQ(nearest_name("zebra", kCouplings), "");
  EXPECT_EQ(nearest_name("", kCouplings), "");
  EXPECT_EQ(nearest_name(std::string(100000, 'a'), kCouplings), "");
  EXPECT_EQ(did_you_mean("zebra", kCouplings), "");
  EXPECT_EQ(did_you_mean("bot", kCouplings), ", did you mean 'both'?");
  EXPECT_EQ(nearest_or_all("bot", kCouplings), ", did you mean 'both'?");
  EXPECT_EQ(nearest_or_all("zebra", kCouplings), ", expected independent, antithetic, repelling, both");
}

}  // namespace
}  // namespace topomask
