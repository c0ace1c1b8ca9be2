#include "options/mask_options.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "options/choices.h"
#include "options/mask_parameters.h"
#include "topomask/grf_mask.h"
#include "topomask/masks.h"
#include "topomask/theory.h"

namespace topomask::cli {
namespace {

constexpr const char* kGroup = "Mask";
constexpr Choice<MaskName> kMasks[] = {{"grf", MaskName::grf},
                                       {"grf-asymmetric", MaskName::grf_asymmetric},
                                       {"ad-hoc", MaskName::ad_hoc},
                                       {"power-series", MaskName::power_series},
                                       {"none", MaskName::none},
                                       {"causal", MaskName::causal},
                                       {"neighbours", MaskName::neighbours},
                                       {"degree", MaskName::degree},
                                       {"toeplitz", MaskName::toeplitz},
                                       {"forest", MaskName::forest},
                                       {"hypercube-heat", MaskName::hypercube_heat},
                                       {"shortest-path", MaskName::shortest_path},
                                       {"learned-features", MaskName::learned_features},
                                       {"spe-sine", MaskName::spe_sine},
                                       {"spe-convolutional", MaskName::spe_convolutional}};

at::Tensor one_head(double value) {
  return at::full({1}, value, at::kDouble);
}

// [1, numbers]: one head.
at::Tensor series(const std::vector<double>& numbers) {
  return at::tensor(numbers, at::kDouble).unsqueeze(0);
}

MaskPtr random_features(const MaskFlags& flags, const Graph& graph, std::uint64_t seed,
                        MaskParameters& parameters) {
  FeatureOptions options = flags.walks.to_feature_options(flags.num_walks, seed);
  if (flags.name == MaskName::grf_asymmetric) options.ensembles = Ensembles::asymmetric;
  if (flags.name == MaskName::ad_hoc) options.importance_weights = false;
  const std::vector<double> modulation = flags.modulation.empty()
                                             ? feature_modulation(NodeKernel::parse(flags.kernel), options)
                                             : parse_numbers(flags.modulation, "--modulation");
  return std::make_shared<GrfMask>(graph, options, parameters.take({"f", "modulation"}, series(modulation)));
}

MaskPtr power_series(const MaskFlags& flags, const Graph& graph, MaskParameters& parameters) {
  const std::vector<double> coefficients =
      flags.coefficients.empty()
          ? NodeKernel::parse(flags.kernel).coefficients_up_to(flags.walks.max_hops.value_or(kDefaultMaxHops))
          : parse_numbers(flags.coefficients, "--coefficients");
  return std::make_shared<PowerSeriesMask>(graph,
                                           parameters.take({"alpha", "coefficients"}, series(coefficients)));
}

// "HxW[xD]" as given, or what stands behind path: and grid: in the graph's name.
std::vector<std::int64_t> grid_extent(const MaskFlags& flags) {
  std::string text = flags.extent;
  if (text.empty()) {
    const std::string& spec = flags.graph.spec;
    check(spec.starts_with("grid:") || spec.starts_with("path:"),
          "mask toeplitz needs a grid: expected --graph path:N or grid:HxW[xD], or --extent, got '{}'", spec);
    text = spec.substr(5, spec.find(',') - 5);
  }
  std::replace(text.begin(), text.end(), 'x', ',');
  return parse_integers(text, flags.extent.empty() ? "--graph" : "--extent");
}

// exp(-decay |offset|_1) over all offsets that two cells can have.
MaskPtr toeplitz(const MaskFlags& flags, const Graph& graph, MaskParameters& parameters) {
  const std::vector<std::int64_t> extent = grid_extent(flags);
  std::int64_t cells = 1;
  for (const std::int64_t size : extent) {
    check(size >= 1 && cells <= graph.num_nodes() / size, "--extent: {} is no grid of the graph's {} nodes",
          fmt::join(extent, "x"), graph.num_nodes());
    cells *= size;
  }
  at::Tensor distance = at::zeros({}, at::kDouble);
  for (const std::int64_t size : extent) {
    const at::Tensor steps = at::arange(1 - size, size, at::kDouble).abs();
    distance = distance.unsqueeze(-1) + steps;
  }
  const at::Tensor offsets = distance.mul(-flags.decay).exp().view({1, -1});
  return ToeplitzMask::for_graph(graph, extent, parameters.take({"offsets"}, offsets));
}

// exp(-decay k) for k hops, 0 for nodes farther than that.
MaskPtr shortest_path(const MaskFlags& flags, const Graph& graph, MaskParameters& parameters) {
  constexpr std::int64_t kFarthest = 254;
  const std::int64_t last = std::min(kFarthest, std::max<std::int64_t>(graph.num_nodes() - 1, 0));
  const at::Tensor near = at::arange(last + 1, at::kDouble).mul(-flags.decay).exp();
  const at::Tensor table = at::cat({near, at::zeros({1}, at::kDouble)}).unsqueeze(0);
  return std::make_shared<ShortestPathMask>(graph, parameters.take({"table"}, table));
}

// z(degree) = (1 + degree) / (2 + degree) unless logits are given.
MaskPtr degree(const MaskFlags& flags, const Graph& graph, MaskParameters& parameters) {
  const std::int64_t largest = summarise(graph.to(c10::kCPU)).degree_max;
  const at::Tensor logits = flags.logits.empty() ? at::arange(1, largest + 2, at::kDouble).log().unsqueeze(0)
                                                 : series(parse_numbers(flags.logits, "--logits"));
  return std::make_shared<DegreeMask>(graph, parameters.take({"logits"}, logits));
}

MaskPtr learned_features(const MaskFlags& flags, const Graph& graph, MaskParameters& parameters) {
  check(!flags.parameters.empty(),
        "mask learned-features has no features but learned ones: expected --parameters FILE");
  const at::Tensor features = parameters.take({"features"}, at::zeros({1, graph.num_nodes(), 1}));
  check(features.size(1) == graph.num_nodes(), "{}: expected 'features' [heads, {}, rank], got [{}]",
        flags.parameters, graph.num_nodes(), fmt::join(features.sizes(), ", "));
  return std::make_shared<LearnedFeaturesMask>(features);
}

// Waves of 4, 8, 16 and 32 steps with equal gains.
MaskPtr spe_sine(const MaskFlags& flags, const Graph& graph, std::uint64_t seed, MaskParameters& parameters) {
  constexpr std::int64_t kWaves = 4;
  const at::Tensor frequencies = series({0.25, 0.125, 0.0625, 0.03125});
  return SpeMask::sine(
      graph.num_nodes(), parameters.take({"frequencies"}, frequencies),
      parameters.take({"gains"}, at::full({1, kWaves}, 1 / std::sqrt(double{kWaves}), at::kDouble)),
      parameters.take({"phases"}, at::zeros({1, kWaves}, at::kDouble)), flags.realisations, seed);
}

// Two boxes of eight steps: their product is a triangle.
MaskPtr spe_convolutional(const MaskFlags& flags, const Graph& graph, std::uint64_t seed,
                          MaskParameters& parameters) {
  constexpr std::int64_t kTaps = 8;
  const at::Tensor box = at::full({1, kTaps}, 1 / std::sqrt(double{kTaps}), at::kDouble);
  return SpeMask::convolutional(graph.num_nodes(), parameters.take({"query_filter"}, box),
                                parameters.take({"key_filter"}, box), flags.realisations, seed);
}

MaskPtr make_without_tokens(const MaskFlags& flags, std::uint64_t seed, c10::Device device,
                            MaskParameters& parameters) {
  const Graph raw = flags.graph.load_raw().to(device);
  switch (flags.name) {
    case MaskName::grf:
    case MaskName::grf_asymmetric:
    case MaskName::ad_hoc:
      return random_features(flags, normalise(raw, flags.graph.normalisation), seed, parameters);
    case MaskName::power_series:
      return power_series(flags, normalise(raw, flags.graph.normalisation), parameters);
    case MaskName::none:
      return std::make_shared<NoMask>(raw.num_nodes());
    case MaskName::causal:
      return std::make_shared<CausalMask>(raw.num_nodes());
    case MaskName::neighbours:
      return std::make_shared<NeighbourMask>(raw, flags.hops);
    case MaskName::degree:
      return degree(flags, raw, parameters);
    case MaskName::toeplitz:
      return toeplitz(flags, raw, parameters);
    case MaskName::forest:
      return std::make_shared<ForestMask>(raw, parameters.take({"a"}, one_head(flags.a)),
                                          parameters.take({"b"}, one_head(flags.b)));
    case MaskName::hypercube_heat:
      return HypercubeHeatMask::for_graph(raw, parameters.take({"beta"}, one_head(flags.beta)));
    case MaskName::shortest_path:
      return shortest_path(flags, raw, parameters);
    case MaskName::learned_features:
      return learned_features(flags, raw, parameters);
    case MaskName::spe_sine:
      return spe_sine(flags, raw, seed, parameters);
    case MaskName::spe_convolutional:
      return spe_convolutional(flags, raw, seed, parameters);
  }
  fail("unknown mask {}", static_cast<int>(flags.name));
}

}  // namespace

MaskPtr MaskFlags::make(std::uint64_t seed, c10::Device device) const {
  check(global_tokens >= 0, "--global-tokens: expected 0 or more, got {}", global_tokens);
  MaskParameters learned(parameters, device);
  const MaskPtr mask = make_without_tokens(*this, seed, device, learned);
  learned.check_all_taken();
  if (!out_parameters.empty()) learned.write(out_parameters);
  return global_tokens == 0 ? mask : std::make_shared<GlobalTokensMask>(mask, global_tokens);
}

void add_mask_options(CLI::App& command, MaskFlags& flags) {
  add_graph_options(command, flags.graph);
  add_choice(command, kGroup, "--mask", flags.name, kMasks, "Which mask");
  add_kernel_option(command, flags.kernel);
  command.get_option("--kernel")->group(kGroup);
  const auto add = [&](const char* flag, auto& value, const char* description) {
    return command.add_option(flag, value, description)->group(kGroup);
  };
  add("--modulation", flags.modulation, "grf, ad-hoc: f0,f1,... instead of the kernel's");
  add("--coefficients", flags.coefficients, "power-series: alpha0,alpha1,... instead of the kernel's");
  add("--hops", flags.hops, "neighbours: as far as this many hops")->capture_default_str();
  add("--decay", flags.decay, "toeplitz, shortest-path: exp(-decay distance)")->capture_default_str();
  add("--extent", flags.extent, "toeplitz: HxW[xD], where --graph does not say it");
  add("--a", flags.a, "forest: exp(a distance + b)")->capture_default_str();
  add("--b", flags.b, "forest: exp(a distance + b)")->capture_default_str();
  add("--beta", flags.beta, "hypercube-heat: exp(-beta L)")->capture_default_str();
  add("--logits", flags.logits,
      "degree: z = sigmoid(logit) for degrees 0,1,... (default: z = (1 + degree) / (2 + degree))");
  add("--realisations", flags.realisations, "spe-sine, spe-convolutional: rank of the random factors")
      ->capture_default_str();
  add("--parameters", flags.parameters,
      "Learned parameters of the mask (.safetensors): its state dict in the Python package, [heads, ...]")
      ->type_name("FILE");
  add("--out-parameters", flags.out_parameters, "Write the parameters, for mask.load_state_dict in Python")
      ->type_name("FILE");
  add("--global-tokens", flags.global_tokens, "The first rows of q, k, v see and are seen by all")
      ->capture_default_str();
  command.add_option("--walks", flags.num_walks, "Walks from every node")
      ->capture_default_str()
      ->group("Walks");
  add_walk_options(command, flags.walks);
}

}  // namespace topomask::cli
