// The table of masks: names, settings, parameters, defaults and descriptions.
#include "topomask/mask_catalogue.h"

#include <fmt/format.h>

#include "masks/mask_makers.h"
#include "topomask/kernels.h"

namespace topomask {

namespace {

// Where no kernel is named.
std::string_view default_kernel() {
  static const std::string name = NodeKernel().to_string();
  return name;
}

constexpr MaskSetting kNormalise = {"normalise", SettingType::word, "symmetric",
                                    "how W is computed from the graph: symmetric, random-walk, max-degree, "
                                    "or none if the graph is W already"};
constexpr MaskSetting kSeed = {"seed", SettingType::integer, "0", "random seed"};

std::vector<MaskSetting> walk_settings(std::string_view ensembles, std::string_view importance_weights) {
  static const WalkOptions kUsual;
  static const std::string kWalks = fmt::format("{}", kUsual.num_walks),
                           kHalt = fmt::format("{}", kUsual.p_halt),
                           kHops = fmt::format("{}", kUsual.max_hops);
  return {
      {"num_walks", SettingType::integer, kWalks, "walks per node"},
      {"p_halt", SettingType::real, kHalt, "probability that a walk halts at each node"},
      {"max_hops", SettingType::integer, kHops, "maximum length of a walk in hops"},
      kSeed,
      {"init", SettingType::text, default_kernel(),
       "initial f, the same for every head: the name of a node kernel (its modulation, or its "
       "coefficients for asymmetric ensembles), or the numbers f_0, f_1, ... (zero beyond)"},
      {"key_init", SettingType::text, "",
       "initial f of the keys, if it is separate: a kernel or numbers, as for init; by default the keys use "
       "the queries' f"},
      {"ensembles", SettingType::word, ensembles,
       "walks of the keys: shared (those of the queries; the diagonal is biased upwards), independent "
       "(unbiased), or asymmetric (one-hot keys: M estimates sum_k f_k W^k)"},
      {"coupling", SettingType::word, word_of(kUsual.coupling),
       "coupling of the walks from one node: independent, antithetic, repelling or both"},
      {"shared_walks", SettingType::flag, "true", "false: each head samples its own walks"},
      {"step", SettingType::word, word_of(kUsual.step), "next node: uniform, or weighted by |W|"},
      {"length", SettingType::text, word_of(kUsual.length),
       "length of a walk: geometric, fixed (always max_hops), or the numbers S0,S1,... with Sk = Pr(length "
       ">= k)"},
      {"importance_weights", SettingType::flag, importance_weights, "false: every visit counts 1 (ad hoc)"},
      kNormalise,
  };
}

constexpr MaskParameter kF = {"f", "[heads, max_hops + 1], or with key_init [heads, 2, max_hops + 1]",
                              "the series of init, and of key_init", "modulation"};

const std::vector<MaskEntry>& entries() {
  static const std::vector<MaskEntry> kEntries = {
      {{"grf",
        "GRFMask",
        "Graph random features with learnable f: M = Phi Psi^T estimates sum_k (f * f)_k W^k",
        "O(N)",
        "sparse",
        true,
        true,
        walk_settings("shared", "true"),
        {kF}},
       make_grf},
      {{"grf-asymmetric",
        "GRFMask",
        "Graph random features with one-hot keys: M estimates sum_k f_k W^k",
        "O(N)",
        "sparse",
        true,
        true,
        walk_settings("asymmetric", "true"),
        {kF}},
       make_grf},
      {{"ad-hoc",
        "GRFMask",
        "Graph random features without importance weights",
        "O(N)",
        "sparse",
        true,
        true,
        walk_settings("shared", "false"),
        {kF}},
       make_grf},
      {{"power-series",
        "PowerSeriesMask",
        "M = sum_k alpha_k W^k exactly, by Horner's rule",
        "O(K E)",
        "dense",
        true,
        true,
        {{"max_power", SettingType::integer, "10", "K, the highest power of W"},
         {"init", SettingType::text, default_kernel(),
          "initial alpha, the same for every head: the name of a node kernel, or the numbers alpha_0, "
          "alpha_1, ... (zero beyond)"},
         {"squared", SettingType::flag, "false",
          "M = S S^T where S is the series: the exact limit of a GRF mask with f = alpha"},
         kNormalise},
        {{"alpha", "[heads, max_power + 1]", "the series of init", "coefficients"}}},
       make_power_series},
      {{"none", "NoMask", "Attention without a mask: all entries 1", "O(N)", "low rank", false, true, {}, {}},
       make_none},
      {{"causal",
        "CausalMask",
        "M_ij = 1 for j <= i, as a prefix sum",
        "O(N)",
        "structured",
        false,
        true,
        {},
        {}},
       make_causal},
      {{"neighbours",
        "NeighbourMask",
        "M_ij = 1 where j is within a number of hops of i, else 0 (hard, as in GAT)",
        "O(nonzeros)",
        "sparse",
        true,
        true,
        {{"hops", SettingType::integer, "1", "reach of the mask in hops"},
         {"include_self", SettingType::flag, "true", "M_ii = 1"}},
        {}},
       make_neighbours},
      {{"degree",
        "DegreeMask",
        "M_ij = sin(pi/4 (z(d_i) + z(d_j))) of the degrees d, with learnable z = sigmoid(logits)",
        "O(N)",
        "low rank",
        true,
        true,
        {{"max_degree", SettingType::integer, "",
          "larger degrees count as this one (default: the graph's largest)"}},
        {{"logits", "[heads, max_degree + 1]", "z = (1 + degree) / (2 + degree)"}}},
       make_degree},
      {{"toeplitz",
        "ToeplitzMask",
        "M_ij = t(b_{j-i}): a learned number for every offset on a grid of 1 to 3 dimensions, by FFT",
        "O(N log N)",
        "structured",
        false,
        true,
        {{"extent", SettingType::text, "", "size of the grid in 1 to 3 dimensions, H[xW[xD]]"},
         {"decay", SettingType::real, "1", "the offsets start as exp(-decay |offset|_1)"},
         {"transform", SettingType::word, "none",
          "t, applied to the offsets: none, exponential or absolute"}},
        {{"offsets", "[heads, prod(2 n - 1)]", "exp(-decay |offset|_1), or its logarithm for exponential"}}},
       make_toeplitz},
      {{"forest",
        "ForestMask",
        "M_ij = exp(a dist(i, j) + b) within a tree, 0 between trees; by dynamic programming",
        "O(N)",
        "structured",
        true,
        true,
        {{"weighted", SettingType::flag, "false",
          "distances are sums of edge weights instead of numbers of hops"}},
        {{"a", "[heads]", "-1"}, {"b", "[heads]", "0"}}},
       make_forest},
      {{"hypercube-heat",
        "HypercubeHeatMask",
        "M = exp(-beta L) on the hypercube of 2^d nodes, as d products with 2 x 2 factors",
        "O(N log N)",
        "structured",
        true,
        true,
        {{"laplacian", SettingType::word, "combinatorial",
          "L = D - A (combinatorial) or I - A / d (normalised)"}},
        {{"beta", "[heads]", "1"}}},
       make_hypercube_heat},
      {{"shortest-path",
        "ShortestPathMask",
        "A learned function of the number of hops from i to j (Graphormer's spatial encoding)",
        "O(N^2)",
        "dense",
        true,
        true,
        {{"max_distance", SettingType::integer, "8",
          "nodes that are farther or unreachable share one entry; at most 254"},
         {"decay", SettingType::real, "1", "the table starts as exp(-decay k), and 0 for farther nodes"},
         {"max_bytes", SettingType::integer, "1073741824",
          "limit in bytes on the distances, which take N^2"}},
        {{"table", "[heads, max_distance + 2]", "exp(-decay k), and 0 for farther nodes"}}},
       make_shortest_path},
      {{"learned-features",
        "LearnedFeaturesMask",
        "M = F F^T with freely learned features (an ablation of the paper)",
        "O(N R)",
        "low rank",
        false,
        true,
        {{"rank", SettingType::integer, "16", "R, the number of columns of F"}, kSeed},
        {{"features", "[heads, N, rank]",
          "normal with mean and standard deviation 1, divided by sqrt(rank)"}}},
       make_learned_features},
      {{"spe-sine",
        "SineSPEMask",
        "Stochastic position encoding of sequences (sineSPE): random factors whose product has the "
        "expectation P(i - j), P(t) = sum_k gains_k^2 cos(2 pi frequencies_k t + phases_k)",
        "O(N R)",
        "low rank",
        false,
        true,
        {{"realisations", SettingType::integer, "64", "R, the rank of the random factors"},
         {"waves", SettingType::integer, "4", "number of default frequencies"},
         kSeed},
        {{"frequencies", "[heads, waves]", "1/4, 1/8, ... cycles per step"},
         {"gains", "[heads, waves]", "waves^-1/2"},
         {"phases", "[heads, waves]", "0"}}},
       make_spe_sine},
      {{"spe-convolutional",
        "ConvolutionalSPEMask",
        "Stochastic position encoding of sequences (convSPE): random factors whose product has the "
        "expectation P(i - j), P(t) = sum_p query_filter_p key_filter_{p-t}, 0 for |t| >= taps",
        "O(N R)",
        "low rank",
        false,
        true,
        {{"realisations", SettingType::integer, "64", "R, the rank of the random factors"},
         {"taps", SettingType::integer, "8", "length of the default filters"},
         kSeed},
        {{"query_filter", "[heads, taps]", "taps^-1/2"},
         {"key_filter", "[heads, taps]", "as query_filter, so that P is a triangle"}}},
       make_spe_convolutional},
      {{"sparse",
        "SparseMask",
        "Any sparse matrix: a pattern, and values that may be learned",
        "O(nonzeros)",
        "sparse",
        true,
        false,
        {},
        {{"values", "[heads, nonzeros]", ""}}}},
      {{"low-rank",
        "LowRankMask",
        "Any matrix of low rank: left right^T",
        "O(N R)",
        "low rank",
        false,
        false,
        {},
        {{"left", "[heads, N, rank]", ""}, {"right", "[heads, N, rank]", ""}}}},
      {{"dense",
        "DenseMask",
        "Any matrix",
        "O(N^2)",
        "dense",
        false,
        false,
        {},
        {{"matrix", "[heads, N, N]", ""}}}},
      {{"sum",
        "SumMask",
        "The sum of masks on the same nodes",
        "sum of the parts",
        "as the parts",
        false,
        false,
        {},
        {}}},
      {{"scaled",
        "ScaledMask",
        "diag(r) M diag(c)",
        "as the part",
        "as the part",
        false,
        false,
        {},
        {{"row_scale", "[heads, N]", ""}, {"column_scale", "[heads, N]", ""}}}},
      {{"absolute",
        "AbsoluteMask",
        "|M|, entry by entry",
        "as the entries",
        "as the part",
        false,
        false,
        {},
        {}}},
      {{"global-tokens",
        "GlobalTokensMask",
        "Tokens in front of the nodes (CLS) that attend to all and that all attend to: [[1, 1], [1, M]]",
        "as the part",
        "as the part",
        false,
        false,
        {},
        {}}},
      {{"block-diagonal",
        "BlockDiagonalMask",
        "A batch of graphs, each with its own mask as a block on the diagonal",
        "sum of the parts",
        "as the parts",
        false,
        false,
        {},
        {}}},
  };
  return kEntries;
}

}  // namespace

const MaskEntry& find_mask_entry(std::string_view name) {
  std::vector<std::string_view> names;
  for (const MaskEntry& entry : entries()) {
    if (entry.info.name == name) return entry;
    names.push_back(entry.info.name);
  }
  fail_unknown_word("mask", name, names);
}

const std::vector<MaskInfo>& mask_catalogue() {
  static const std::vector<MaskInfo> kCatalogue = [] {
    std::vector<MaskInfo> infos;
    for (const MaskEntry& entry : entries()) infos.push_back(entry.info);
    return infos;
  }();
  return kCatalogue;
}

const MaskInfo& mask_info(std::string_view name) {
  return find_mask_entry(name).info;
}

std::string current_parameter_name(std::string_view path) {
  const std::size_t last = path.rfind('.') + 1;  // 0 where there is no dot
  for (const MaskEntry& entry : entries()) {
    for (const MaskParameter& known : entry.info.parameters) {
      if (!known.former_name.empty() && path.substr(last) == known.former_name)
        return std::string(path.substr(0, last)).append(known.name);
    }
  }
  return std::string(path);
}

}  // namespace topomask
