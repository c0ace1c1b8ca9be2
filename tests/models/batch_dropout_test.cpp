// Dropout of a part of a batch: the rows that the whole batch would have.
#include "nn/batch_dropout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <utility>

#include "support/expect_error.h"

namespace topomask {
namespace {

TEST(BatchDropout, OfAPartIsThatOfTheWhole) {
  // Six samples with two rows each, as the moments of clips; the layout of the memory must not matter.
  const at::Tensor plain = at::arange(12 * 5 * 3, at::kFloat).view({12, 5, 3}) + 1;
  const at::Tensor turned = plain.transpose(1, 2).contiguous().transpose(1, 2);
  for (const at::Tensor& x : {plain, turned}) {
    at::manual_seed(5);
    const at::Tensor first = at::dropout(x, 0.4, true), second = at::dropout(x, 0.4, true);
    EXPECT_FALSE(at::equal(first, second));
    for (const auto& [begin, count] : {std::pair(0, 2), std::pair(2, 3), std::pair(5, 1), std::pair(0, 6)}) {
      const SampleRangeScope scope({begin, count, 6});
      const at::Tensor part = x.narrow(0, 2 * begin, 2 * count);
      at::manual_seed(5);
      EXPECT_TRUE(at::equal(batch_dropout(part, 0.4, true), first.narrow(0, 2 * begin, 2 * count)));
      EXPECT_TRUE(at::equal(batch_dropout(part, 0.4, true), second.narrow(0, 2 * begin, 2 * count)));
      EXPECT_TRUE(at::equal(batch_dropout(part, 0.4, false), part));
      EXPECT_TRUE(at::equal(batch_dropout(part, 0, true), part));
    }
  }
  // Outside of the scope every batch is whole.
  at::manual_seed(5);
  const at::Tensor expected = at::dropout(plain, 0.4, true);
  at::manual_seed(5);
  EXPECT_TRUE(at::equal(batch_dropout(plain, 0.4, true), expected));
  const SampleRangeScope scope({0, 5, 6});
  testing::expect_error([&] { batch_dropout(plain, 0.4, true); }, "expected rows for 5 samples, got 12");
}

}  // namespace
}  // namespace topomask
