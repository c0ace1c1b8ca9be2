#include "core/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace topomask {
namespace {

// Known answers of Philox4x32-10, published with the Random123 library.
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0, 0), (RandomBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffff, 0xffffffff),
            (RandomBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (RandomBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, IsUniformBelowABound) {
  RandomStream stream(7, 1);
  constexpr int kBound = 6, kDraws = 60000;
  std::vector<int> count(kBound);
  for (int i = 0; i < kDraws; ++i) ++count[stream.next_below(kBound)];
  const double se = std::sqrt(kDraws * (1.0 / kBound) * (1 - 1.0 / kBound));
  for (const int c : count) EXPECT_NEAR(c, kDraws / kBound, 4 * se);
}

TEST(RandomStream, DiffersByPurposeAndSeed) {
  EXPECT_NE(RandomStream(1, 0).next_u64(), RandomStream(1, 1).next_u64());
  EXPECT_NE(RandomStream(1, 0).next_u64(), RandomStream(2, 0).next_u64());
  EXPECT_EQ(RandomStream(3, 4).next_u64(), RandomStream(3, 4).next_u64());
}

}  // namespace
}  // namespace topomask
