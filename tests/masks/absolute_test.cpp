#include "topomask/mask_combinators.h"

#include "gradcheck.h"
#include "topomask/graph_builders.h"
#include "topomask/grf_mask.h"
#include "topomask/masks.h"

namespace topomask {
namespace {

using oracle::check_gradients;
using oracle::expect_matches;
using oracle::parameter;

// f with both signs, so that some entries of the mask are negative.
std::shared_ptr<GrfMask> signed_walks() {
  FeatureOptions options;
  options.walks.num_walks = 4;
  options.walks.max_hops = 3;
  options.walks.seed = 3;
  return GrfMask::per_head(normalise(grid_graph({3, 3}), Normalisation::symmetric), options,
                           parameter({2, 4}, 1));
}

TEST(AbsoluteMask, TakesTheMagnitudeOfEveryEntry) {
  const auto walks = signed_walks();
  const at::Tensor oracle = walks->dense(at::kDouble).detach().abs();
  ASSERT_TRUE((walks->dense(at::kDouble) < 0).any().item<bool>());
  expect_matches(AbsoluteMask(walks), oracle);
}

TEST(AbsoluteMask, TakesTheMagnitudeOfADenseMask) {
  const at::Tensor matrix = oracle::test_values({2, 5, 5});
  expect_matches(AbsoluteMask(std::make_shared<DenseMask>(matrix)), matrix.abs());
}

TEST(AbsoluteMask, HasGradients) {
  check_gradients(AbsoluteMask(signed_walks()));
  check_gradients(AbsoluteMask(std::make_shared<DenseMask>(parameter({1, 4, 4}))));
}

TEST(AbsoluteMask, EntriesThatAreZeroHaveNoGradient) {
  const at::Tensor matrix = at::zeros({1, 2, 2}, at::kDouble).requires_grad_();
  AbsoluteMask(std::make_shared<DenseMask>(matrix)).dense(at::kDouble).sum().backward();
  EXPECT_EQ(matrix.grad().abs().max().item<double>(), 0);
}

TEST(AbsoluteMask, RefusesNothing) {
  oracle::expect_error([] { AbsoluteMask(nullptr); }, {"AbsoluteMask", "null"});
}

}  // namespace
}  // namespace topomask
