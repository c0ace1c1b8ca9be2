// Stages that take longer than the time limit, and what the first rank tells the others.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "support/expect_error.h"
#include "topomask/distributed.h"

namespace topomask {
namespace {

using std::chrono::milliseconds;
using topomask::testing::expect_error;

RankOptions short_limit() {
  RankOptions options;
  options.timeout_seconds = 1;
  return options;
}

TEST(Patience, waits_for_a_rank_that_works_longer_than_the_limit) {
  Ranks::run_threads(
      3,
      [](const RanksPtr& ranks) {
        bool done = false;
        ranks->together_patiently("a long stage", [&] {
          if (ranks->rank() == 1) std::this_thread::sleep_for(milliseconds(2500));
          done = true;
        });
        EXPECT_TRUE(done);
        // And the ranks go on as before.
        EXPECT_EQ(ranks->sum(at::arange(3), "ranks")[2].item<int>(), 6);
      },
      short_limit());
  int calls = 0;
  Ranks::alone()->together_patiently("a stage", [&] { ++calls; });
  EXPECT_EQ(calls, 1);
}

TEST(Patience, all_hear_what_went_wrong_on_one) {
  Ranks::run_threads(3, [](const RanksPtr& ranks) {
    expect_error(
        [&] {
          ranks->together_patiently("a stage", [&] {
            if (ranks->rank() == 2) throw Error("the disk is full");
            std::this_thread::sleep_for(milliseconds(300));
          });
        },
        ranks->rank() == 2 ? "the disk is full" : "rank 2 failed: the disk is full");
  });
}

TEST(Patience, ends_where_a_rank_has_ended) {
  const auto before = std::chrono::steady_clock::now();
  Ranks::run_threads(2, [](const RanksPtr& ranks) {
    if (ranks->rank() == 1) return;
    expect_error([&] { ranks->together_patiently("the checkpoint", [] {}); },
                 "the exchange of the checkpoint failed: another rank ended");
  });
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(20));
}

TEST(FromFirst, every_rank_has_what_the_first_gave) {
  for (const int size : {1, 2, 3}) {
    Ranks::run_threads(size, [](const RanksPtr& ranks) {
      const bool first = ranks->rank() == 0;
      for (const at::ScalarType type : {at::kFloat, at::kLong, at::kByte}) {
        const at::Tensor given = at::arange(12, type).view({3, 4});
        const at::Tensor found = ranks->from_first(first ? given : at::zeros({3, 4}, type), "numbers");
        EXPECT_TRUE(at::equal(found, given));
      }
      EXPECT_EQ(ranks->from_first(at::zeros({0, 2}), "nothing").sizes(), (at::IntArrayRef{0, 2}));
      EXPECT_EQ(ranks->from_first(at::zeros({}), "one number").dim(), 0);
      EXPECT_EQ(ranks->from_first(std::string(first ? "seven\nwords" : "else"), "text"), "seven\nwords");
      EXPECT_EQ(ranks->from_first(std::string(first ? "" : "else"), "text"), "");
    });
  }
}

}  // namespace
}  // namespace topomask
