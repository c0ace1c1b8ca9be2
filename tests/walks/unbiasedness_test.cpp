// Unbiasedness of every entry, with standard errors, for every sampler, coupling and kind of ensemble: a mean
// over entries would let errors cancel.
#include <ATen/Context.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/parallel.h"
#include "core/random.h"
#include "topomask/features.h"
#include "topomask/graph_builders.h"
#include "topomask/plan.h"
#include "topomask/theory.h"
#include "walks/cpu/walk_plan.h"

namespace topomask {
namespace {

constexpr double kStandardErrors = 4;
// Probability that anything below fails by chance, had its seed not been fixed: shared out among all
// z-scores.
constexpr double kFalseAlarm = 1e-3;
constexpr double kTests = 1000;  // an upper bound of the number of masks that are looked at

// Sums of one quantity per entry over trials.
struct Moments {
  explicit Moments(std::size_t entries) : sum(entries), products(entries * entries) {}

  void add(const std::vector<double>& sample) {
    ++trials;
    for (std::size_t a = 0; a < sample.size(); ++a) {
      sum[a] += sample[a];
      for (std::size_t b = 0; b <= a; ++b) products[a * sample.size() + b] += sample[a] * sample[b];
    }
  }
  void add(const Moments& other) {
    trials += other.trials;
    for (std::size_t a = 0; a < sum.size(); ++a) sum[a] += other.sum[a];
    for (std::size_t p = 0; p < products.size(); ++p) products[p] += other.products[p];
  }
  double mean(std::size_t a) const { return sum[a] / trials; }
  double covariance(std::size_t a, std::size_t b) const {
    const double product = products[std::max(a, b) * sum.size() + std::min(a, b)];
    return (product - trials * mean(a) * mean(b)) / (trials - 1);
  }

  double trials = 0;
  std::vector<double> sum, products;
};

// `sample(trial, values)` draws all entries once. Samples are taken off `origin` before they are added up, so
// that sums of squares do not cancel.
template <class Sample>
Moments run_trials(std::int64_t trials, const std::vector<double>& origin, const Sample& sample) {
  constexpr std::int64_t kChunks = 16;
  std::vector<Moments> parts(kChunks, Moments(origin.size()));
  parallel_for(kChunks, 1, [&](std::int64_t first, std::int64_t last) {
    std::vector<double> values(origin.size());
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      for (std::int64_t trial = chunk; trial < trials; trial += kChunks) {
        sample(trial, values);
        for (std::size_t a = 0; a < values.size(); ++a) values[a] -= origin[a];
        parts[static_cast<std::size_t>(chunk)].add(values);
      }
    }
  });
  Moments all(origin.size());
  for (const Moments& part : parts) all.add(part);
  return all;
}

// Quantile of a chi-square law with h degrees of freedom (Wilson and Hilferty), z standard deviations out.
double chi_square_quantile(double h, double z) {
  const double cube = 1 - 2 / (9 * h) + z * std::sqrt(2 / (9 * h));
  return h * std::pow(std::max(0.0, cube), 3);
}

// All means are 0 within their standard errors: the largest |z| is below Bonferroni's quantile, and the sum
// of z^2 within the spread of a chi-square law with the same two moments (Satterthwaite), as entries that
// share walks are correlated. `scale` is the size of an entry; what varies less than rounding must be 0 to
// rounding.
void expect_all_zero(const Moments& moments, double scale, const std::string& what) {
  std::vector<std::size_t> random;
  std::vector<double> z(moments.sum.size(), 0);
  double worst = 0, squares = 0;
  std::size_t worst_entry = 0;
  for (std::size_t a = 0; a < z.size(); ++a) {
    const double deviation = std::sqrt(std::max(0.0, moments.covariance(a, a)));
    if (deviation < 1e-5 * scale) {  // loads are single precision
      EXPECT_NEAR(moments.mean(a), 0, 1e-5 * scale) << what << ", entry " << a;
      continue;
    }
    random.push_back(a);
    z[a] = moments.mean(a) / (deviation / std::sqrt(moments.trials));
    squares += z[a] * z[a];
    if (std::abs(z[a]) > worst) worst = std::abs(z[a]), worst_entry = a;
  }
  if (random.empty()) return;
  const auto count = static_cast<double>(random.size());
  const double limit = gaussian_quantile(1 - kFalseAlarm / kTests / count);
  EXPECT_LE(worst, limit) << what << ": entry " << worst_entry << " of " << z.size() << " is off by "
                          << moments.mean(worst_entry);
  double correlations = 0;
  for (const std::size_t a : random) {
    for (const std::size_t b : random) {
      const double squared = moments.covariance(a, b) * moments.covariance(a, b) / moments.covariance(a, a) /
                             moments.covariance(b, b);
      // The square of an estimated correlation is 1 / trials too large on average.
      correlations += a == b ? 1 : squared - (1 - squared) / moments.trials;
    }
  }
  const double freedom = count * count / std::max(correlations, count);
  const double one_sided = gaussian_quantile(1 - 2 * kFalseAlarm / kTests);
  EXPECT_LE(squares * freedom / count, chi_square_quantile(freedom, one_sided)) << what << ", sum of z^2";
  EXPECT_GE(squares * freedom / count, chi_square_quantile(freedom, -one_sided)) << what << ", sum of z^2";
}

std::vector<double> entries_of(const at::Tensor& matrix) {
  const at::Tensor dense = matrix.to(at::kDouble).contiguous();
  return {dense.const_data_ptr<double>(), dense.const_data_ptr<double>() + dense.numel()};
}

double largest(const std::vector<double>& values) {
  double result = 0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
}

// [rows, columns] of one set of features, the slow way.
std::vector<double> dense_features(const WalkFeatures& features, const std::vector<double>& f) {
  const std::int64_t n = features.num_nodes(), columns = features.num_columns;
  std::vector<double> dense(static_cast<std::size_t>(n * columns), 0);
  const auto* row_ptr = features.row_ptr.const_data_ptr<std::int64_t>();
  const auto* col = features.col.const_data_ptr<std::int32_t>();
  const auto* deposit_ptr = features.deposit_ptr.const_data_ptr<std::int64_t>();
  const auto* hop = features.hop.const_data_ptr<std::int16_t>();
  const auto* load = features.load.const_data_ptr<float>();
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t e = row_ptr[i]; e < row_ptr[i + 1]; ++e) {
      for (std::int64_t p = deposit_ptr[e]; p < deposit_ptr[e + 1]; ++p) {
        if (hop[p] < static_cast<std::int64_t>(f.size())) {
          dense[static_cast<std::size_t>(i * columns + col[e])] +=
              f[static_cast<std::size_t>(hop[p])] * load[p];
        }
      }
    }
  }
  return dense;
}

// M_hat, the slow way.
void dense_mask(const GraphFeatures& features, const std::vector<double>& query_f,
                const std::vector<double>& key_f, std::vector<double>& mask) {
  const std::vector<double> query = dense_features(features.query, query_f),
                            key = dense_features(features.key, key_f);
  const std::int64_t n = features.query.num_nodes(), columns = features.query.num_columns;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t q = 0; q < columns; ++q) sum += query[i * columns + q] * key[j * columns + q];
      mask[i * n + j] = sum;
    }
  }
}

// Named graphs on which no two nodes look alike.
Graph small_graph(const std::string& name) {
  EdgeList edges;
  if (name == "lollipop") {  // with a chord and uneven, partly negative weights
    edges.num_nodes = 7;
    edges.source = {0, 0, 0, 1, 2, 3, 4, 5};
    edges.target = {1, 2, 3, 2, 3, 4, 5, 6};
    edges.weight = {1.0f, 0.5f, 2.0f, -1.0f, 1.5f, 0.7f, 1.2f, 0.4f};
  } else if (name == "hub") {  // one node with more neighbours than walkers, and an isolated one
    edges.num_nodes = 8;
    edges.source = {0, 0, 0, 0, 0, 0, 1, 3};
    edges.target = {1, 2, 3, 4, 5, 6, 2, 4};
    edges.weight = {0.2f, 1.0f, 0.6f, 0.3f, 0.8f, 0.4f, 0.5f, 1.0f};
  } else {  // directed, with a self-loop, a node without an edge out and one without an edge in
    edges.num_nodes = 6;
    edges.source = {0, 1, 2, 3, 0, 2, 5, 1};
    edges.target = {1, 2, 0, 1, 3, 2, 0, 4};
    edges.weight = {0.5f, -0.7f, 0.4f, 0.9f, 0.3f, 0.2f, 0.6f, 0.5f};
    edges.directed = true;
  }
  return Graph::from_edges(edges);
}

using NormalisedGraph = std::pair<const char*, Normalisation>;
using Parameters = std::tuple<NormalisedGraph, LengthLaw, StepLaw, Coupling>;
class Unbiased : public ::testing::TestWithParam<Parameters> {
 protected:
  Graph graph() const {
    const auto [name, normalisation] = std::get<NormalisedGraph>(GetParam());
    return normalise(small_graph(name), normalisation);
  }
  FeatureOptions options() const {
    FeatureOptions options;
    options.walks.num_walks = 4;
    options.walks.max_hops = 4;
    options.walks.p_halt = 0.3;
    options.walks.length = std::get<LengthLaw>(GetParam());
    if (options.walks.length == LengthLaw::survival) options.walks.survival = {1, 0.9, 0.8, 0.5, 0.4};
    options.walks.step = std::get<StepLaw>(GetParam());
    options.walks.coupling = std::get<Coupling>(GetParam());
    return options;
  }
};

constexpr std::int64_t kTrials = 4000;
const NodeKernel kKernel = NodeKernel::parse("modulation:1,-0.5,0.6,0.4,0.3");

TEST_P(Unbiased, EveryEntryOfTheMask) {
  const Graph graph = this->graph();
  const auto n = static_cast<std::size_t>(graph.num_nodes());
  FeatureOptions options = this->options();
  for (const Ensembles ensembles : {Ensembles::shared, Ensembles::independent, Ensembles::asymmetric}) {
    for (const bool importance_weights : {true, false}) {
      options.ensembles = ensembles;
      options.importance_weights = importance_weights;
      const std::vector<double> f = feature_modulation(kKernel, options),
                                g = key_modulation(kKernel, options);
      const std::vector<double> target = entries_of(estimated_target(graph, kKernel, options));
      const Moments moments = run_trials(kTrials, target, [&](std::int64_t trial, std::vector<double>& mask) {
        FeatureOptions own = options;
        own.walks.seed = derive_seed(2024, static_cast<std::uint64_t>(trial));
        dense_mask(sample_features(graph, own), f, g, mask);
        if (ensembles != Ensembles::shared) return;
        // The diagonal is biased (SharedDiagonal below).
        for (std::size_t i = 0; i < n; ++i) mask[i * n + i] = target[i * n + i];
      });
      expect_all_zero(moments, largest(target),
                      "ensembles " + std::to_string(static_cast<int>(ensembles)) +
                          (importance_weights ? "" : ", ad hoc"));
    }
  }
}

// Stronger than any f: the loads of hop k average to W^k by themselves.
TEST_P(Unbiased, EveryHopOfTheFeatures) {
  const Graph graph = this->graph();
  const FeatureOptions options = this->options();
  const int hops = options.walks.max_hops + 1;
  std::vector<double> target;
  for (int k = 0; k < hops; ++k) {
    std::vector<double> unit(static_cast<std::size_t>(k) + 1, 0);
    unit.back() = 1;
    for (const double entry : entries_of(dense_power_series(graph, unit))) target.push_back(entry);
  }
  const std::size_t entries = target.size() / static_cast<std::size_t>(hops);
  const Moments moments = run_trials(kTrials, target, [&](std::int64_t trial, std::vector<double>& loads) {
    WalkOptions own = options.walks;
    own.seed = derive_seed(7, static_cast<std::uint64_t>(trial));
    const WalkFeatures features = sample_walk_features(graph, own);
    for (int k = 0; k < hops; ++k) {
      std::vector<double> unit(static_cast<std::size_t>(k) + 1, 0);
      unit.back() = 1;
      const std::vector<double> level = dense_features(features, unit);
      std::copy(level.begin(), level.end(), loads.begin() + static_cast<std::ptrdiff_t>(k * entries));
    }
  });
  expect_all_zero(moments, largest(target), "loads");
}

INSTANTIATE_TEST_SUITE_P(
    Everything, Unbiased,
    ::testing::Combine(::testing::Values(NormalisedGraph{"lollipop", Normalisation::none},
                                         NormalisedGraph{"lollipop", Normalisation::symmetric},
                                         NormalisedGraph{"hub", Normalisation::random_walk},
                                         NormalisedGraph{"directed", Normalisation::none}),
                       ::testing::Values(LengthLaw::geometric, LengthLaw::fixed, LengthLaw::survival),
                       ::testing::Values(StepLaw::uniform, StepLaw::weighted),
                       ::testing::Values(Coupling::independent, Coupling::antithetic, Coupling::repelling,
                                         Coupling::both)));

// One ensemble for queries and keys: E M_hat_ii = M_ii + sum_q Var phi_hat_q. Two independent copies of a row
// give |phi - phi'|^2 / 2, an unbiased estimate of that sum.
TEST(SharedDiagonal, IsTooLargeByTheVarianceOfTheFeatures) {
  const Graph graph = normalise(small_graph("lollipop"), Normalisation::symmetric);
  const auto n = static_cast<std::size_t>(graph.num_nodes());
  FeatureOptions options;
  options.walks.num_walks = 4;
  options.walks.max_hops = 4;
  const std::vector<double> f = feature_modulation(kKernel, options);
  const std::vector<double> mask = entries_of(estimated_target(graph, kKernel, options));
  std::vector<double> target(n);
  for (std::size_t i = 0; i < n; ++i) target[i] = mask[i * n + i];
  std::vector<double> bias(n, 0);
  const auto squared = [n](const std::vector<double>& phi, const std::vector<double>& other, std::size_t i) {
    double sum = 0;
    for (std::size_t q = 0; q < n; ++q) sum += phi[i * n + q] * other[i * n + q];
    return sum;
  };
  const auto draw = [&](std::uint64_t index) {
    WalkOptions walks = options.walks;
    walks.seed = derive_seed(5, index);
    return dense_features(sample_walk_features(graph, walks), f);
  };
  const Moments corrected =
      run_trials(kTrials, target, [&](std::int64_t trial, std::vector<double>& diagonal) {
        const std::vector<double> phi = draw(2 * trial), other = draw(2 * trial + 1);
        for (std::size_t i = 0; i < n; ++i) {
          const double variance =
              (squared(phi, phi, i) + squared(other, other, i)) / 2 - squared(phi, other, i);
          diagonal[i] = squared(phi, phi, i) - variance;
        }
      });
  expect_all_zero(corrected, largest(target), "diagonal less the variance");
  const Moments shared = run_trials(kTrials, target, [&](std::int64_t trial, std::vector<double>& diagonal) {
    const std::vector<double> phi = draw(2 * trial);
    for (std::size_t i = 0; i < n; ++i) diagonal[i] = squared(phi, phi, i);
  });
  for (std::size_t i = 0; i < n; ++i) {
    EXPECT_GT(shared.mean(i), kStandardErrors * std::sqrt(shared.covariance(i, i) / shared.trials)) << i;
  }
}

// The figures of docs/mathematics.md: how much larger the diagonal of a shared ensemble is on the grid of the
// CIFAR recipe, and where walks are rare and their loads large.
TEST(SharedDiagonal, RatioOnTheGridOfPatches) {
  const Graph grid = normalise(grid_graph({16, 16}), Normalisation::symmetric);
  struct Case {
    double p_halt;
    int max_hops;
    double ratio, tolerance;
  };
  for (const Case& c : {Case{0.1, 10, 1.2, 0.05}, Case{0.5, 10, 17.5, 6.0}}) {
    FeatureOptions options;
    options.walks.num_walks = 20;
    options.walks.max_hops = c.max_hops;
    options.walks.p_halt = c.p_halt;
    NodeKernel kernel;
    kernel.kind = KernelKind::modulation;
    for (int k = 0; k <= c.max_hops; ++k) kernel.series.push_back(std::exp(-0.01 * k));
    const KernelError result = measure_kernel_error(grid, kernel, options, 40);
    EXPECT_NEAR(result.diagonal_ratio, c.ratio, c.tolerance) << c.p_halt;
    EXPECT_GT(result.diagonal_ratio, 1 + kStandardErrors * result.diagonal_ratio_se);
    options.ensembles = Ensembles::independent;
    const KernelError independent = measure_kernel_error(grid, kernel, options, 40);
    EXPECT_NEAR(independent.diagonal_ratio, 1, kStandardErrors * independent.diagonal_ratio_se);
  }
}

// 64 times as many walkers must leave at most a 64th of the squared error, whatever the coupling: groups of
// walkers on one node must not leave it in the order in which they came.
TEST(Convergence, ErrorsFallAtLeastLikeOneOverTheWalks) {
  const NodeKernel kernel = NodeKernel::parse("modulation:1,0.6,0.36,0.216,0.13");
  for (const char* name : {"lollipop", "hub"}) {
    const Graph graph = normalise(small_graph(name), Normalisation::symmetric);
    for (const StepLaw step : {StepLaw::uniform, StepLaw::weighted}) {
      for (const Coupling coupling :
           {Coupling::independent, Coupling::antithetic, Coupling::repelling, Coupling::both}) {
        FeatureOptions options;
        options.walks.max_hops = 4;
        options.walks.p_halt = 0.2;
        options.walks.step = step;
        options.walks.coupling = coupling;
        options.ensembles = Ensembles::asymmetric;  // the error of independent walkers is exactly C / n
        options.walks.num_walks = 32;
        const KernelError few = measure_kernel_error(graph, kernel, options, 400);
        options.walks.num_walks = 2048;
        const KernelError many = measure_kernel_error(graph, kernel, options, 100);
        const double spread = std::hypot(64 * many.error_se, few.error_se);
        EXPECT_LE(64 * many.error, few.error + kStandardErrors * spread)
            << name << ", step " << static_cast<int>(step) << ", coupling " << static_cast<int>(coupling);
      }
    }
  }
}

// 27 repelling walkers on 3 neighbours do not take each of the 27 walks of 3 hops once: those that meet on a
// node are mixed. Features enumerate the walks instead; that is what the walkers have on average.
TEST(ExactCase, IsTheExpectationOfTheWalkers) {
  at::manual_seed(3);
  const Graph graph = normalise(knn_graph(at::rand({200, 3}), {3, false}), Normalisation::symmetric);
  WalkOptions options;
  options.num_walks = 27;
  options.max_hops = 3;
  options.length = LengthLaw::fixed;
  options.coupling = Coupling::repelling;
  const WalkFeatures exact = sample_walk_features(graph, options);
  ASSERT_TRUE(exact.exact);
  const CsrView rows = graph.view();
  int each_once = 0, samples = 0;
  const std::int64_t kStarts = 20;  // of which all loads are looked at
  std::vector<double> target(static_cast<std::size_t>(kStarts * 200), 0);
  const std::vector<double> third_hop = dense_features(exact, {0, 0, 0, 1});
  std::copy_n(third_hop.begin(), target.size(), target.begin());
  std::vector<std::vector<double>> walked;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    options.seed = derive_seed(77, seed);
    const at::Tensor paths = sample_walks(graph, options).contiguous();
    const auto* path = paths.const_data_ptr<std::int32_t>();
    std::vector<double> loads(target.size(), 0);
    for (std::int64_t start = 0; start < graph.num_nodes(); ++start) {
      std::set<std::array<std::int32_t, 3>> taken;
      for (int walk = 0; walk < 27; ++walk) {
        const std::int32_t* p = path + (start * 27 + walk) * 4;
        taken.insert({p[1], p[2], p[3]});
        if (start >= kStarts) continue;
        double load = 1;
        for (int hop = 0; hop < 3; ++hop) {
          for (std::int64_t e = rows.row_ptr[p[hop]]; e < rows.row_ptr[p[hop] + 1]; ++e) {
            if (rows.col[e] == p[hop + 1]) load *= 3 * static_cast<double>(rows.weight[e]);
          }
        }
        loads[static_cast<std::size_t>(start * 200 + p[3])] += load / 27;
      }
      each_once += taken.size() == 27 ? 1 : 0;
      ++samples;
    }
    walked.push_back(std::move(loads));
  }
  const double share = static_cast<double>(each_once) / samples;
  RecordProperty("share of starts with each walk once", std::to_string(share));
  EXPECT_GT(share, 0.05);
  EXPECT_LT(share, 0.3);
  std::vector<std::size_t> reached;  // the others are 0 in every sample
  for (std::size_t a = 0; a < target.size(); ++a) {
    if (target[a] != 0) reached.push_back(a);
  }
  std::vector<double> expected;
  for (const std::size_t a : reached) expected.push_back(target[a]);
  const Moments moments = run_trials(300, expected, [&](std::int64_t trial, std::vector<double>& values) {
    for (std::size_t r = 0; r < reached.size(); ++r) {
      values[r] = walked[static_cast<std::size_t>(trial)][reached[r]];
    }
  });
  expect_all_zero(moments, largest(expected), "loads of the third hop");
}

// Weighted repelling walkers are shuffled by this permutation; any pair of them must be able to swap.
TEST(ShuffledRank, IsAPermutationWithoutAPreference) {
  for (const std::uint32_t size : {1u, 2u, 3u, 4u, 5u, 7u, 8u, 13u, 16u, 100u}) {
    constexpr int kKeys = 20000;
    std::vector<int> place(size, 0), distance(size, 0);  // of the last rank; between the first two
    for (std::uint32_t draw = 0; draw < kKeys; ++draw) {
      const RandomBlock key = philox({draw, size, 0, 0}, 11, 12);
      std::vector<char> taken(size, 0);
      for (std::uint32_t rank = 0; rank < size; ++rank) {
        const std::uint32_t where = shuffled_rank(rank, size, key);
        ASSERT_LT(where, size);
        ASSERT_EQ(taken[where], 0);
        taken[where] = 1;
      }
      ++place[shuffled_rank(size - 1, size, key)];
      if (size > 1) ++distance[(shuffled_rank(1, size, key) + size - shuffled_rank(0, size, key)) % size];
    }
    for (std::uint32_t k = 0; k < size; ++k) {
      const double mean = static_cast<double>(kKeys) / size;
      EXPECT_NEAR(place[k], mean, 5 * std::sqrt(mean) + 0.02 * mean) << size << " at " << k;
      if (k == 0) continue;
      const double apart = static_cast<double>(kKeys) / (size - 1);
      EXPECT_NEAR(distance[k], apart, 5 * std::sqrt(apart) + 0.02 * apart) << size << " apart by " << k;
    }
  }
}

// Mean squared relative Frobenius error on the karate club for 2, 4, 8, 16 walkers and the kernel (I -
// W/4)^-2, that is sigma2 = 1/3. The first four rows were obtained by running the authors' code, the last two
// by a simulation of our own.
struct Reference {
  Coupling coupling;
  Ensembles ensembles;
  std::vector<double> error;
};

TEST(KarateClub, ErrorsMatchTheAuthorsCode) {
  const std::vector<Reference> rows = {
      {Coupling::independent, Ensembles::shared, {0.157, 0.071, 0.034, 0.016}},
      {Coupling::antithetic, Ensembles::shared, {0.130, 0.060, 0.029, 0.014}},
      {Coupling::repelling, Ensembles::shared, {0.144, 0.056, 0.0215, 0.0076}},
      {Coupling::both, Ensembles::shared, {0.130, 0.050, 0.018, 0.0058}},
      {Coupling::independent, Ensembles::independent, {0.130, 0.064, 0.032, 0.016}},
      {Coupling::independent, Ensembles::asymmetric, {0.287, 0.145, 0.072, 0.036}},
  };
  const Graph graph = normalise(karate_club(), Normalisation::symmetric);
  NodeKernel kernel;  // 2-regularised Laplacian
  kernel.sigma2 = 1.0 / 3;
  for (const Reference& row : rows) {
    for (std::size_t i = 0; i < row.error.size(); ++i) {
      FeatureOptions options;
      options.walks.num_walks = std::int64_t{2} << i;
      options.walks.max_hops = 20;
      options.walks.coupling = row.coupling;
      options.ensembles = row.ensembles;
      const KernelError result = measure_kernel_error(graph, kernel, options, 1000);
      // The reference is printed with two to three digits: half a unit of its last digit counts too.
      const double rounding = row.error[i] < 0.01 ? 5e-5 : row.error[i] == 0.0215 ? 5e-5 : 5e-4;
      EXPECT_NEAR(result.error, row.error[i], kStandardErrors * result.error_se + rounding)
          << "coupling " << static_cast<int>(row.coupling) << " ensembles " << static_cast<int>(row.ensembles)
          << " walks " << options.walks.num_walks;
    }
  }
}

}  // namespace
}  // namespace topomask
