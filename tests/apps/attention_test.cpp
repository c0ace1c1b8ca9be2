// attend, bench attention and flops: what the program computes, against plain loops in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <set>

#include "archives.h"
#include "run_program.h"

namespace topomask::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr std::int64_t kChannels = 3, kValueChannels = 4;
constexpr double kEpsilon = 1e-3;  // the default of --epsilon

using Entry = std::function<double(std::int64_t i, std::int64_t j)>;

// Numbers that look random, of both signs, the same everywhere.
NumpyArray wave(std::vector<std::int64_t> shape, double phase, const std::string& dtype = "<f8") {
  NumpyArray array{std::move(shape), dtype, {}};
  std::int64_t size = 1;
  for (const std::int64_t extent : array.shape) size *= extent;
  for (std::int64_t i = 0; i < size; ++i) {
    array.value.push_back(std::sin(phase + 12.9898 * static_cast<double>(i + 1)) + 0.3);
  }
  return array;
}

// q, k, v as files and in memory, [outer, N, d] whatever their layout on disk.
struct Inputs {
  Inputs(const TemporaryDirectory& scratch, const std::vector<std::int64_t>& leading,
         const std::string& dtype = "<f8")
      : Inputs(scratch, leading, leading, leading, dtype) {}
  Inputs(const TemporaryDirectory& scratch, std::vector<std::int64_t> q_shape,
         std::vector<std::int64_t> k_shape, std::vector<std::int64_t> v_shape, const std::string& dtype) {
    q_shape.push_back(kChannels);
    k_shape.push_back(kChannels);
    v_shape.push_back(kValueChannels);
    q = wave(q_shape, 0.1, dtype);
    k = wave(k_shape, 0.5, dtype);
    v = wave(v_shape, 0.9, dtype);
    files = {"--q", write_numpy(scratch.path("q.npy"), q), "--k", write_numpy(scratch.path("k.npy"), k),
             "--v", write_numpy(scratch.path("v.npy"), v)};
  }
  NumpyArray q, k, v;
  std::vector<std::string> files;
};

// (M . phi(q) phi(k)^T) v or (M . exp(q k^T / sqrt(d))) v over the row sum, for rows that lie `stride` rows
// apart, the first of them row `first`.
void add_head(std::vector<double>& out, const Inputs& x, const Entry& mask, std::int64_t nodes,
              std::int64_t first, std::int64_t stride, bool softmax) {
  const auto row = [&](const NumpyArray& array, std::int64_t node, std::int64_t channel,
                       std::int64_t channels) {
    return array.value[static_cast<std::size_t>((first + node * stride) * channels + channel)];
  };
  for (std::int64_t i = 0; i < nodes; ++i) {
    std::vector<double> sum(kValueChannels);
    double normaliser = 0;
    for (std::int64_t j = 0; j < nodes; ++j) {
      double score = 0;
      for (std::int64_t c = 0; c < kChannels; ++c) {
        const double a = row(x.q, i, c, kChannels), b = row(x.k, j, c, kChannels);
        score += softmax ? a * b : (std::max(a, 0.0) + kEpsilon) * (std::max(b, 0.0) + kEpsilon);
      }
      const double weight = mask(i, j) * (softmax ? std::exp(score / std::sqrt(double{kChannels})) : score);
      normaliser += weight;
      for (std::int64_t c = 0; c < kValueChannels; ++c) {
        sum[static_cast<std::size_t>(c)] += weight * row(x.v, j, c, kValueChannels);
      }
    }
    for (std::int64_t c = 0; c < kValueChannels; ++c) {
      out[static_cast<std::size_t>((first + i * stride) * kValueChannels + c)] =
          normaliser == 0 ? 0 : sum[static_cast<std::size_t>(c)] / normaliser;
    }
  }
}

// For [N, d], [N, H, d] and [B, H, N, d].
std::vector<double> oracle(const Inputs& x, const Entry& mask, bool softmax = false) {
  std::vector<double> out(x.v.value.size());
  const std::vector<std::int64_t>& shape = x.q.shape;
  if (shape.size() == 4) {
    for (std::int64_t head = 0; head < shape[0] * shape[1]; ++head)
      add_head(out, x, mask, shape[2], head * shape[2], 1, softmax);
  } else {
    const std::int64_t heads = shape.size() == 3 ? shape[1] : 1;
    for (std::int64_t head = 0; head < heads; ++head) add_head(out, x, mask, shape[0], head, heads, softmax);
  }
  return out;
}

void expect_near(const NumpyArray& result, const std::vector<double>& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(result.value.size(), expected.size()) << what;
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    // Written so that a NaN is a difference.
    if (!(std::abs(result.value[i] - expected[i]) <= difference))
      difference = std::abs(result.value[i] - expected[i]);
  }
  EXPECT_LE(difference, tolerance * largest) << what;
}

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

NumpyArray attend(const TemporaryDirectory& scratch, const Inputs& x,
                  const std::vector<std::string>& arguments) {
  const std::string out = scratch.path("o.npy");
  const ProgramResult result =
      run_program(joined(joined({"attend", "--quiet", "--out", out}, x.files), arguments));
  EXPECT_EQ(result.status, 0) << ::testing::PrintToString(arguments) << result.err;
  return read_numpy(out);
}

// M = Phi Psi^T from the files that `features` writes.
DenseMatrix sampled_mask(const TemporaryDirectory& scratch, const std::vector<std::string>& arguments) {
  const std::string phi_path = scratch.path("phi.npz"), psi_path = scratch.path("psi.npz");
  run_json(joined({"features", "--out", phi_path, "--out-keys", psi_path}, arguments));
  const DenseMatrix phi = read_csr(phi_path), psi = read_csr(psi_path);
  DenseMatrix mask{phi.rows, psi.rows, {}};
  for (std::int64_t i = 0; i < phi.rows; ++i) {
    for (std::int64_t j = 0; j < psi.rows; ++j) {
      double sum = 0;
      for (std::int64_t c = 0; c < phi.columns; ++c) sum += phi(i, c) * psi(j, c);
      mask.value.push_back(sum);
    }
  }
  return mask;
}

struct GrfCase {
  std::string name;
  std::vector<std::string> features, attend;  // beside the common options
};

class GrfMasks : public ::testing::TestWithParam<GrfCase> {};

TEST_P(GrfMasks, EveryKindAndEngineIsTheProductOfTheFeatures) {
  const TemporaryDirectory scratch;
  const Inputs x(scratch, {20, 2});
  const std::vector<std::string> common = {"--graph", "grid:4x5", "--seed", "7", "--walks", "6"};
  const DenseMatrix mask = sampled_mask(scratch, joined(common, GetParam().features));
  const std::vector<double> linear = oracle(x, mask), softmax = oracle(x, mask, true);
  const std::vector<std::string> arguments = joined(common, GetParam().attend);
  for (const std::string engine : {"auto", "dense", "feature", "mask"}) {
    const NumpyArray result = attend(scratch, x, joined(arguments, {"--engine", engine}));
    EXPECT_EQ(result.shape, x.v.shape);
    EXPECT_EQ(result.dtype, "<f8");
    expect_near(result, linear, 1e-5, "linear, " + engine);
    if (engine == "feature" || engine == "auto") continue;
    expect_near(attend(scratch, x, joined(arguments, {"--engine", engine, "--kind", "softmax"})), softmax,
                1e-5, "softmax, " + engine);
  }
}

INSTANTIATE_TEST_SUITE_P(Ensembles, GrfMasks,
                         ::testing::Values(GrfCase{"shared", {}, {}},
                                           GrfCase{"independent",
                                                   {"--ensembles", "independent", "--coupling", "both"},
                                                   {"--ensembles", "independent", "--coupling", "both"}},
                                           GrfCase{"asymmetric",
                                                   {"--ensembles", "asymmetric", "--p-halt", "0.3"},
                                                   {"--mask", "grf-asymmetric", "--p-halt", "0.3"}}),
                         [](const auto& test) { return test.param.name; });

TEST(Attend, ModulationAndAdHocWalksAreThoseOfFeatures) {
  const TemporaryDirectory scratch;
  const Inputs x(scratch, {16});
  const std::vector<std::string> graph = {"--graph", "cycle:16"};
  const DenseMatrix given = sampled_mask(scratch, joined(graph, {"--kernel", "modulation:1,0.5,0.2"}));
  expect_near(attend(scratch, x, joined(graph, {"--modulation", "1,0.5,0.2"})), oracle(x, given), 1e-5,
              "modulation");
  const DenseMatrix ad_hoc = sampled_mask(scratch, joined(graph, {"--ad-hoc"}));
  expect_near(attend(scratch, x, joined(graph, {"--mask", "ad-hoc"})), oracle(x, ad_hoc), 1e-5, "ad-hoc");
}

TEST(Attend, KeepsLayoutAndDtype) {
  const TemporaryDirectory scratch;
  const std::vector<std::string> arguments = {"--graph", "path:6", "--mask", "causal"};
  const Entry causal = [](std::int64_t i, std::int64_t j) { return j <= i ? 1 : 0; };
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> cases = {
      {"<f4", {6}}, {"<f8", {6, 2}}, {"<f4", {6, 2}}, {"<f4", {2, 3, 6}}};
  for (const auto& [dtype, leading] : cases) {
    const Inputs x(scratch, leading, dtype);
    const NumpyArray result = attend(scratch, x, arguments);
    EXPECT_EQ(result.shape, x.v.shape);
    EXPECT_EQ(result.dtype, dtype);
    expect_near(result, oracle(x, causal), dtype == "<f4" ? 1e-5 : 1e-10, dtype);
  }
}

TEST(Attend, GlobalTokensSeeAndAreSeenByAll) {
  const TemporaryDirectory scratch;
  const Inputs x(scratch, {2 + 9});
  const std::vector<std::string> graph = {"--graph", "grid:3x3", "--seed", "2"};
  const DenseMatrix inner = sampled_mask(scratch, graph);
  const Entry mask = [&](std::int64_t i, std::int64_t j) {
    return i < 2 || j < 2 ? 1.0 : inner(i - 2, j - 2);
  };
  for (const std::string kind : {"linear", "softmax"}) {
    expect_near(attend(scratch, x, joined(graph, {"--global-tokens", "2", "--kind", kind})),
                oracle(x, mask, kind == "softmax"), 1e-5, kind);
  }
}

TEST(Attend, StructuredMasksHaveTheirClosedForms) {
  const TemporaryDirectory scratch;
  const auto expect_mask = [&](std::int64_t nodes, const std::vector<std::string>& arguments,
                               const Entry& mask) {
    const Inputs x(scratch, {nodes});
    expect_near(attend(scratch, x, arguments), oracle(x, mask), 1e-9, ::testing::PrintToString(arguments));
  };
  const auto apart = [](std::int64_t i, std::int64_t j) { return static_cast<double>(std::abs(i - j)); };
  expect_mask(5, {"--graph", "path:5", "--mask", "none"}, [](auto, auto) { return 1; });
  expect_mask(6, {"--graph", "path:6", "--mask", "neighbours", "--hops", "2"},
              [&](auto i, auto j) { return apart(i, j) <= 2 ? 1 : 0; });
  expect_mask(5, {"--graph", "path:5", "--mask", "forest", "--a", "-0.7", "--b", "0.2"},
              [&](auto i, auto j) { return std::exp(-0.7 * apart(i, j) + 0.2); });
  expect_mask(5, {"--graph", "path:5", "--mask", "shortest-path", "--decay", "0.4"},
              [&](auto i, auto j) { return std::exp(-0.4 * apart(i, j)); });
  expect_mask(12, {"--graph", "grid:3x4", "--mask", "toeplitz", "--decay", "0.5"},
              [&](auto i, auto j) { return std::exp(-0.5 * (apart(i / 4, j / 4) + apart(i % 4, j % 4))); });
  expect_mask(3, {"--graph", "path:3", "--mask", "degree"}, [](auto i, auto j) {
    const double z[] = {2.0 / 3, 3.0 / 4, 2.0 / 3};
    return std::sin(std::numbers::pi / 4 * (z[i] + z[j]));
  });
  expect_mask(4, {"--graph", "hypercube:2", "--mask", "hypercube-heat", "--beta", "0.3"}, [](auto i, auto j) {
    const auto factor = [](bool same) { return (1 + (same ? 1 : -1) * std::exp(-0.6)) / 2; };
    return factor(i / 2 == j / 2) * factor(i % 2 == j % 2);
  });
  // W of a single edge is its adjacency matrix.
  expect_mask(2, {"--graph", "path:2", "--mask", "power-series", "--coefficients", "1,0.5,0.25"},
              [](auto i, auto j) { return i == j ? 1.25 : 0.5; });
}

// A file of learned parameters says by itself how many terms the series has.
TEST(Attend, SizesFollowFromTheParametersOfAFile) {
  const TemporaryDirectory scratch;
  const Inputs x(scratch, {12});
  const std::string file = scratch.path("mask.safetensors"), again = scratch.path("again.safetensors");
  const std::vector<std::string> graph = {"--graph", "grid:3x4", "--seed", "5"};
  const std::vector<std::string> series = {"--f", "1,0.5,0.25,0.125,0.0625"};
  for (const auto& [mask, flag] :
       {std::pair{"grf", "--max-hops"}, std::pair{"power-series", "--max-power"}}) {
    const std::vector<std::string> common = joined(graph, {"--mask", mask});
    const NumpyArray made =
        attend(scratch, x, joined(common, joined(series, {flag, "4", "--out-parameters", file})));
    expect_near(attend(scratch, x, joined(common, {"--parameters", file, "--out-parameters", again})),
                made.value, 1e-5, mask);
    EXPECT_EQ(read_whole_file(again), read_whole_file(file)) << mask;
    // Another size that is asked for is a mistake.
    expect_rejected(
        joined(joined({"attend", "--out", scratch.path("o.npy"), "--parameters", file, flag, "6"}, x.files),
               common),
        "must be");
  }
}

TEST(Attend, PrintsItsPlan) {
  const TemporaryDirectory scratch;
  const Inputs x(scratch, {9});
  const std::vector<std::string> arguments =
      joined({"attend", "--graph", "grid:3x3", "--print-plan"}, x.files);
  const ProgramResult text = run_program(arguments);
  EXPECT_EQ(text.status, 0) << text.err;
  for (const char* part : {"engine:", "dense", "feature", "mask", "taken"})
    EXPECT_THAT(text.out, HasSubstr(part));
  const json plan = run_json(joined(arguments, {"--engine", "feature"}))["plan"];
  EXPECT_EQ(plan["engine"], "feature");
  EXPECT_EQ(plan["candidates"].size(), 3u);
  for (const json& candidate : plan["candidates"]) EXPECT_GT(candidate["multiply_adds"].get<double>(), 0);
}

TEST(Attend, HelpGivesEachWordAndEachMaskItsOwnMeaning) {
  const std::string help = run_program({"attend", "--help"}).out;
  for (const char* part :
       {"relu: max(x, 0) + epsilon", "identity: x, for q and k that are features already",
        "favor: positive random features", "toeplitz: the offsets start as exp(-decay |offset|_1)",
        "shortest-path: the table starts as exp(-decay k)", "asymmetric for grf-asymmetric"})
    EXPECT_THAT(help, HasSubstr(part));
}

TEST(Attend, MistakesAreOneSentence) {
  const TemporaryDirectory scratch;
  const Inputs x(scratch, {9});
  const auto reject = [&](const std::vector<std::string>& arguments, const std::string& part) {
    expect_rejected(joined(joined({"attend", "--out", scratch.path("o.npy")}, x.files), arguments), part);
  };
  reject({"--graph", "grid:3x4"}, "expected 12 rows");
  reject({"--graph", "grid:3x3", "--global-tokens", "1"}, "10 rows");
  reject({"--graph", "grid:3x3", "--global-tokens", "-1"}, "--global-tokens");
  reject({"--graph", "grid:3x3", "--mask", "torplitz"}, "did you mean 'toeplitz'?");
  reject({"--graph", "grid:3x3", "--kind", "linaer"}, "did you mean 'linear'?");
  reject({"--graph", "grid:3x3", "--feature-map", "relo"}, "did you mean 'relu'?");
  reject({"--graph", "grid:3x3", "--engine", "desne"}, "did you mean 'dense'?");
  reject({"--graph", "grid:3x3", "--engine", "feature", "--kind", "softmax"}, "feature");
  reject({"--graph", "grid:3x3", "--mask", "causal", "--engine", "mask"}, "causal");
  reject({"--graph", "grid:3x3", "--max-workspace", "10"}, "workspace");
  reject({"--graph", "grid:3x3", "--ranks", "2", "--engine", "feature", "--max-workspace", "10"},
         "bytes of workspace for one feature of the largest part, max_workspace is 10");
  reject({"--graph", "grid:3x3", "--ranks", "2", "--max-workspace", "-1"},
         "--max-workspace: expected at least 0 bytes, got -1");
  reject({"--graph", "grid:3x3", "--ranks", "0"}, "--ranks: expected 1 to 256, got 0");
  reject({"--graph", "grid:3x3", "--mask", "forest"}, "cycle");
  reject({"--graph", "cycle:9", "--mask", "toeplitz"}, "grid");
  reject({"--graph", "cycle:9", "--mask", "toeplitz", "--extent", "3x3"}, "grid");
  reject({"--graph", "grid:3x3", "--mask", "toeplitz", "--extent", "3x4"}, "3x4");
  reject({"--graph", "grid:3x3", "--mask", "hypercube-heat"}, "hypercube");
  reject({"--graph", "grid:3x3", "--modulation", "1,x"}, "modulation:1,x");
  reject({"--graph", "grid:3x3", "--modulation", "1", "--kernel", "matern"},
         "--modulation and --kernel both set f; give one");
  reject({"--graph", "grid:3x3", "--decay", "1"},
         "--decay: not an option of mask 'grf', only of: toeplitz, shortest-path");
  expect_rejected(joined({"attend", "--graph", "grid:3x3"}, x.files), "--out");
}

TEST(Attend, BadArraysAreOneSentence) {
  const TemporaryDirectory scratch;
  const std::vector<std::string> common = {"attend", "--graph", "path:6", "--out", scratch.path("o.npy")};
  expect_rejected(joined(common, Inputs(scratch, {6}, {6, 2}, {6}, "<f8").files), "k");
  expect_rejected(joined(common, Inputs(scratch, {6}, {6}, {5}, "<f8").files), "v.npy");
  expect_rejected(joined(common, Inputs(scratch, {1, 1, 1, 6}).files), "5 dimensions");
  expect_rejected(joined(common, {"--q", "/nonexistent/q.npy", "--k", "k.npy", "--v", "v.npy"}),
                  "/nonexistent/q.npy");
  Inputs x(scratch, {6});
  write_numpy(scratch.path("k.npy"), wave({6, kChannels}, 0, "<f4"));
  expect_rejected(joined(common, x.files), "dtype");
  x.k.value[4] = std::nan("");
  write_numpy(scratch.path("k.npy"), x.k);
  expect_rejected(joined(joined(common, x.files), {"--check-finite"}), "NaN");
  scratch.write("q.npy", "not an array");
  expect_rejected(joined(common, x.files), "q.npy");
}

TEST(BenchAttention, MeasuresEveryContestantInBothPasses) {
  const json bench = run_json({"bench", "attention", "--graph", "grid:12x12", "--walks", "4", "--d", "8",
                               "--heads", "2", "--repeats", "2"});
  std::set<std::pair<std::string, std::string>> seen;
  for (const json& row : bench["results"]) {
    seen.emplace(row["name"].get<std::string>(), row["pass"].get<std::string>());
    ASSERT_FALSE(row.contains("reason")) << row;
    EXPECT_GT(row["seconds_median"].get<double>(), 0) << row;
    EXPECT_GE(row["seconds_spread"].get<double>(), 0) << row;
    EXPECT_TRUE(row["peak_bytes"].is_number() || row["peak_bytes"].is_null()) << row;
    // All masked ones compute the same.
    EXPECT_LT(row.value("difference", 0.0), 1e-5) << row;
  }
  // What a pass amounts to, as a share of what the machine can do.
  const double entries = bench["setting"]["mask_nonzeros"].get<double>();
  for (const json& row : bench["results"]) {
    const bool masked = row.contains("difference"), forward = row["pass"] == "forward";
    const double bytes = 4 * 2 * 144 * 8 * sizeof(float) + (masked ? 8 * entries : 0);
    EXPECT_EQ(row["bytes"].get<double>(), forward ? bytes : 3 * bytes) << row;
    EXPECT_NEAR(row["of_bytes_per_second"].get<double>(),
                row["bytes"].get<double>() / row["seconds_median"].get<double>() /
                    bench["limits"]["bytes_per_second"].get<double>(),
                1e-9)
        << row;
    EXPECT_EQ(row.contains("flops"), row["name"].get<std::string>().starts_with("grf-")) << row;
    // A dot product and a sum of 8 channels a nonzero, for each of two heads.
    if (row["name"] == "grf-mask" && forward) {
      EXPECT_GE(row["flops"].get<double>(), 2 * 2 * entries * 16);
    }
  }
  EXPECT_GT(bench["limits"]["flops_per_second"].get<double>(), 1e8);
  for (const char* name :
       {"grf-auto", "grf-mask", "grf-feature", "grf-dense", "linear", "softmax", "literal", "unfused"}) {
    EXPECT_TRUE(seen.contains({name, "forward"})) << name;
    EXPECT_TRUE(seen.contains({name, "forward+backward"})) << name;
  }
  EXPECT_EQ(seen.size(), bench["results"].size());
  EXPECT_EQ(bench["plan"]["candidates"].size(), 3u);
  EXPECT_GT(bench["refresh_seconds"].get<double>(), 0);
  for (const char* ratio : {"grf-auto/linear", "literal/grf-auto", "unfused/grf-auto"}) {
    EXPECT_GT(bench["ratios"]["forward"][ratio].get<double>(), 0) << ratio;
    EXPECT_GT(bench["ratios"]["forward+backward"][ratio].get<double>(), 0) << ratio;
  }
  EXPECT_EQ(bench["machine"]["threads"], 2);
}

TEST(BenchAttention, WhatDoesNotFitHasAReason) {
  const json bench = run_json({"bench", "attention", "--graph", "grid:40x40", "--d", "4", "--repeats", "1",
                               "--max-workspace", "2000000", "--walks", "2"});
  for (const json& row : bench["results"]) {
    if (row["name"] != "grf-dense") continue;
    EXPECT_THAT(row["reason"].get<std::string>(), HasSubstr("workspace"));
    EXPECT_FALSE(row.contains("seconds_median"));
  }
  const json two = run_json({"bench", "attention", "--graph", "path:9", "--d", "4", "--repeats", "1",
                             "--only", "linear,grf-mask", "--forward-only"});
  EXPECT_EQ(two["results"].size(), 2u);
  // Without grf-auto, rows are compared with the first masked row.
  const std::string words = run_program({"bench", "attention", "--graph", "path:9", "--d", "4", "--repeats",
                                         "1", "--only", "linear,grf-mask", "--forward-only"})
                                .out;
  EXPECT_THAT(words, HasSubstr("times grf-mask"));
  EXPECT_THAT(words, ::testing::Not(HasSubstr("nan")));
  expect_rejected({"bench", "attention", "--graph", "path:4", "--only", "literl"}, "did you mean 'literal'?");
  expect_rejected({"bench", "attention", "--graph", "path:4", "--d", "0"}, "--d");
  expect_rejected({"bench", "attention", "--graph", "path:4", "--repeats", "0"}, "--repeats");
}

TEST(Flops, GrowAsTheTheorySays) {
  const TemporaryDirectory scratch;
  const json study = run_json(
      {"flops", "--smallest", "64", "--largest", "1024", "--seeds", "3", "--out", scratch.path("plots")});
  ASSERT_EQ(study["rows"].size(), 5u);
  EXPECT_NEAR(study["slopes"]["softmax"].get<double>(), 2, 0.05);
  for (const char* name : {"linear", "grf-paper", "grf-feature", "grf-mask"})
    EXPECT_NEAR(study["slopes"][name].get<double>(), 1, 0.05) << name;
  for (const json& row : study["rows"]) {
    EXPECT_GT(row["grf-feature"].get<double>(), row["linear"].get<double>());
    EXPECT_LT(row["grf-mask"].get<double>(), row["grf-feature"].get<double>());
    EXPECT_LE(row["grf-feature"].get<double>(), row["grf-paper"].get<double>());
  }
  for (const json& file : study["files"])
    EXPECT_GT(read_whole_file(file.get<std::string>()).size(), 1000u) << file;
  expect_rejected({"flops", "--largest", "8"}, "--largest");
}

TEST(Bench, TimesTrainingStepsAgainstTokens) {
  const TemporaryDirectory scratch;
  const std::vector<std::string> tiny = {"bench",      "tokens", "--layers",  "1", "--embedding", "8",
                                         "--heads",    "2",      "--mlp",     "8", "--walks",     "2",
                                         "--max-hops", "2",      "--repeats", "2", "--threads",   "1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), tiny.begin(), tiny.end());
    return more;
  };
  // 1156 tokens are more than a dense mask has.
  const json study =
      run_json(with({"--tokens", "16,1156", "--batch-tokens", "64", "--out", scratch.path("plots")}));
  ASSERT_EQ(study["results"].size(), 6u);
  double most_memory = 0;
  for (const json& row : study["results"]) {
    EXPECT_EQ(row["batch"], row["tokens"] == 16 ? 4 : 1);
    EXPECT_GT(row["images_per_second"].get<double>(), 0);
    most_memory = std::max(most_memory, row["peak_bytes"].get<double>());
  }
  EXPECT_GT(most_memory, 0);
  for (const json& file : study["files"])
    EXPECT_GT(read_whole_file(file.get<std::string>()).size(), 1000u) << file;
  const json limited = run_json(with({"--tokens", "16,64", "--variants", "linear", "--max-seconds", "0"}));
  EXPECT_THAT(limited["results"][1]["skipped"].get<std::string>(), HasSubstr("at 16 tokens"));
  const json walks = run_json(with({"--tokens", "16", "--variants", "softmax,grf@walks=3@share-walks=true"}));
  EXPECT_EQ(walks["results"][1]["attention"], "grf@walks=3@share-walks=true");
  EXPECT_GT(walks["results"][1]["images_per_second"].get<double>(), 0);
  expect_rejected(with({"--variants", "grf@epochs=3"}), "changes epochs, which is not a setting of the mask");
  expect_rejected(with({"--variants", "grf@wlaks=3"}), "not a setting of the mask, did you mean 'walks'?");
  expect_rejected(with({"--variants", "grf@walks=3@walks=4"}), "'grf@walks=3@walks=4' changes walks twice");
  expect_rejected(with({"--variants", "grf@max-hops=2147483647"}), "max-hops must be 0 to 32767");
  expect_rejected(with({"--variants", "grf@walks=0"}), "walks must be 1 or more");
  expect_rejected(with({"--tokens", "15"}), "--tokens: expected squares");
  expect_rejected(with({"--tokens", "64,16"}), "--tokens: expected ascending numbers");
  expect_rejected(with({"--variants", "gfr"}), "did you mean 'grf'?");
}

}  // namespace
}  // namespace topomask::testing
