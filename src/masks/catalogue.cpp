#include "topomask/mask_catalogue.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "core/check.h"
#include "core/normal.h"
#include "core/numbers.h"
#include "core/random.h"
#include "core/tensors.h"
#include "topomask/grf_mask.h"
#include "topomask/kernels.h"
#include "topomask/mask_size.h"
#include "topomask/masks.h"

namespace topomask {

namespace {

// Whether a setting lists numbers, or else names something.
bool begins_with_number(std::string_view text) {
  return !text.empty() && (std::isdigit(static_cast<unsigned char>(text[0])) || text[0] == '-' ||
                           text[0] == '.' || text[0] == '+');
}

// A request with its catalogue entry: settings as values, parameters as tensors.
class Order {
 public:
  Order(const MaskInfo& info, const MaskRequest& request) : info_(info), request_(request) {
    check(request.heads >= 1, "{}: heads must be at least 1, got {}", info.python_name, request.heads);
    check(!info.on_graph || request.graph, "{}: graph must be given", info.python_name);
    for (const auto& [name, value] : request.settings) setting(name);
    for (const auto& [name, tensor] : request.parameters) {
      const bool known = std::any_of(info.parameters.begin(), info.parameters.end(),
                                     [&](const MaskParameter& parameter) { return parameter.name == name; });
      check(known, "{}: there is no parameter '{}', expected {}", info.python_name, name, parameter_names());
    }
  }

  const char* owner() const { return info_.python_name.data(); }
  std::int64_t heads() const { return request_.heads; }
  const Graph& graph() const { return *request_.graph; }
  Normalisation normalisation() const {
    return parse_word<Normalisation>(label("normalise"), text("normalise"));
  }
  Graph normalised() const { return normalise(graph(), normalisation()); }
  std::int64_t num_nodes() const { return request_.graph ? graph().num_nodes() : request_.num_nodes; }
  c10::Device device() const { return request_.graph ? graph().device() : request_.device; }

  bool is_given(std::string_view name) const { return request_.settings.contains(std::string(name)); }
  std::string text(std::string_view name) const {
    const MaskSetting& known = setting(name);
    const auto found = request_.settings.find(std::string(name));
    return found == request_.settings.end() ? std::string(known.fallback) : found->second;
  }
  std::int64_t integer(std::string_view name) const { return parse_integer(text(name), label(name)); }
  std::uint64_t seed() const { return parse_seed(text("seed"), label("seed")); }
  double real(std::string_view name) const {
    const double value = parse_number(text(name), label(name));
    check(std::isfinite(value), "{}: expected a finite number, got {}", label(name), value);
    return value;
  }
  bool flag(std::string_view name) const {
    const std::string value = text(name);
    check(value == "true" || value == "false", "{}: expected true or false, got '{}'", label(name), value);
    return value == "true";
  }
  template <class Value>
  Value word(std::string_view name) const {
    return parse_word<Value>(label(name), text(name));
  }

  // A setting that follows from the size of a tensor (dimension -1: the last), where that alone is given.
  std::int64_t integer_or_size(std::string_view setting_name, std::string_view parameter_name, int dimension,
                               std::int64_t less) const {
    const auto found = request_.parameters.find(std::string(parameter_name));
    if (is_given(setting_name) || found == request_.parameters.end() ||
        found->second.dim() <= std::max(dimension, 0))
      return integer(setting_name);
    return found->second.size(dimension) - less;
  }
  bool has_parameter(std::string_view name) const { return request_.parameters.contains(std::string(name)); }
  // The tensor that was given, [heads, ...] or [...] for every head, with the sizes of `start` but for one
  // dimension that may be free; else `start`, [1 or heads, ...], for every head.
  at::Tensor parameter(std::string_view name, const at::Tensor& start, int free_dimension = -1) const {
    std::vector<std::int64_t> shape = start.sizes().vec();
    shape[0] = heads();
    const auto found = request_.parameters.find(std::string(name));
    if (found == request_.parameters.end())
      return start.to(device(), request_.dtype).expand(shape).contiguous();
    at::Tensor given = found->second;
    if (given.dim() + 1 == start.dim()) given = given.unsqueeze(0).expand({heads(), -1}).contiguous();
    if (free_dimension >= 0 && given.dim() == start.dim())
      shape[static_cast<std::size_t>(free_dimension)] = given.size(free_dimension);
    check(given.is_floating_point() && given.sizes() == at::IntArrayRef(shape),
          "{}: {} must be a real tensor {} = [{}], got {}", info_.python_name, name, shape_of(name),
          fmt::join(shape, ", "), describe(found->second));
    const bool wide = given.scalar_type() == at::kFloat || given.scalar_type() == at::kDouble;
    return wide ? given : given.to(at::kFloat);
  }
  // [heads], or one number for all of them.
  at::Tensor per_head(std::string_view name, double start) const {
    const auto found = request_.parameters.find(std::string(name));
    if (found == request_.parameters.end() || found->second.dim() != 0)
      return parameter(name, at::full({1}, start, at::kDouble));
    return found->second.to(device(), request_.dtype).expand({heads()}).contiguous();
  }

  // f or alpha: terms 0 .. last of the setting `init`, which names a kernel or lists the terms themselves.
  at::Tensor series(std::string_view name, std::int64_t last, bool of_modulation) const {
    return parameter(name, terms_of("init", last, of_modulation).unsqueeze(0));
  }
  // f of walks: [heads, terms], or [heads, 2, terms] where the keys have their own.
  at::Tensor modulations(std::int64_t last, bool of_modulation) const {
    const auto given = request_.parameters.find("f");
    const bool tensor_has_both = given != request_.parameters.end() && given->second.dim() == 3;
    if (!is_given("key_init") && !tensor_has_both) return series("f", last, of_modulation);
    check(of_modulation, "{}: asymmetric ensembles have one-hot keys, which have no f of their own",
          label("key_init"));
    check(tensor_has_both || given == request_.parameters.end(),
          "{}: f must be [heads, 2, max_hops + 1] where the keys have their own, got {}", label("key_init"),
          given == request_.parameters.end() ? "" : describe(given->second));
    const std::string_view of_keys = is_given("key_init") ? "key_init" : "init";
    return parameter("f",
                     at::stack({terms_of("init", last, true), terms_of(of_keys, last, true)}).unsqueeze(0));
  }

 private:
  at::Tensor terms_of(std::string_view setting_name, std::int64_t last, bool of_modulation) const {
    const std::string init = text(setting_name);
    std::vector<double> terms;
    if (begins_with_number(init)) {
      terms = parse_numbers(init, label(setting_name));
      check(static_cast<std::int64_t>(terms.size()) <= last + 1,
            "{}: expected at most {} numbers (hops 0 to {}), got {}", label(setting_name), last + 1, last,
            terms.size());
    } else {
      const NodeKernel kernel = NodeKernel::parse(init);
      const int power = static_cast<int>(last);
      terms = of_modulation ? kernel.modulation_up_to(power) : kernel.coefficients_up_to(power);
    }
    terms.resize(static_cast<std::size_t>(last) + 1, 0.0);
    return at::tensor(terms, at::kDouble);
  }
  const MaskSetting& setting(std::string_view name) const {
    std::vector<std::string_view> names;
    for (const MaskSetting& known : info_.settings) {
      if (known.name == name) return known;
      names.push_back(known.name);
    }
    check(!names.empty(), "{}: there is no setting '{}', expected none", info_.python_name, name);
    fail_unknown_word(fmt::format("setting of {}", info_.python_name), name, names);
  }
  std::string label(std::string_view name) const { return fmt::format("{}: {}", info_.python_name, name); }
  std::string parameter_names() const {
    std::vector<std::string_view> names;
    for (const MaskParameter& known : info_.parameters) names.push_back(known.name);
    return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
  }
  std::string_view shape_of(std::string_view name) const {
    for (const MaskParameter& known : info_.parameters) {
      if (known.name == name) return known.shape;
    }
    return "?";
  }
  const MaskInfo& info_;
  const MaskRequest& request_;
};

constexpr std::int64_t kMostHops = 32767;
constexpr std::uint32_t kLearnedFeaturesPurpose =
    0x6C656172;  // keeps these draws apart from others of a seed

FeatureOptions feature_options(const Order& order) {
  FeatureOptions options;
  WalkOptions& walks = options.walks;
  walks.num_walks = order.integer("num_walks");
  walks.p_halt = order.real("p_halt");
  walks.step = order.word<StepLaw>("step");
  walks.coupling = order.word<Coupling>("coupling");
  walks.seed = order.seed();
  const std::string length = order.text("length");
  constexpr std::string_view kSurvival = "survival:";
  if (length.starts_with(kSurvival) || begins_with_number(length)) {
    walks.length = LengthLaw::survival;
    walks.survival = parse_numbers(length.starts_with(kSurvival) ? length.substr(kSurvival.size()) : length,
                                   fmt::format("{}: length", order.owner()));
  } else {
    walks.length = order.word<LengthLaw>("length");
    check(walks.length != LengthLaw::survival, "{}: length: expected survival:S0,S1,..., got '{}'",
          order.owner(), length);
  }
  const bool follows = walks.length == LengthLaw::survival && !order.is_given("max_hops");
  const std::int64_t hops = follows ? static_cast<std::int64_t>(walks.survival.size()) - 1
                                    : order.integer_or_size("max_hops", "f", -1, 1);
  check(hops >= 0 && hops <= kMostHops, "{}: max_hops must be between 0 and {}, got {}", order.owner(),
        kMostHops, hops);
  walks.max_hops = static_cast<int>(hops);
  options.ensembles = order.word<Ensembles>("ensembles");
  options.importance_weights = order.flag("importance_weights");
  check_walk_options(walks);
  return options;
}

bool has_one_set_of_walks(const Order& order) {
  return order.flag("shared_walks") || order.heads() == 1;
}

WalkMaskPlan plan_grf(const Order& order) {
  WalkMaskPlan plan;
  plan.features = feature_options(order);
  plan.f = order.modulations(plan.features.walks.max_hops, plan.features.ensembles != Ensembles::asymmetric);
  plan.normalisation = order.normalisation();
  if (has_one_set_of_walks(order) && !order.flag("shared_walks"))
    plan.features.walks.seed = derive_seed(plan.features.walks.seed, 0);
  plan.per_head = !has_one_set_of_walks(order);
  return plan;
}

MaskPtr make_grf(const Order& order) {
  const WalkMaskPlan plan = plan_grf(order);
  if (plan.per_head) return GrfMask::per_head(order.normalised(), plan.features, plan.f);
  return std::make_shared<GrfMask>(order.normalised(), plan.features, plan.f);
}

MaskPtr make_power_series(const Order& order) {
  const std::int64_t last = order.integer_or_size("max_power", "alpha", -1, 1);
  check(last >= 0 && last <= kMostHops, "{}: max_power must be between 0 and {}, got {}", order.owner(),
        kMostHops, last);
  const bool squared = order.flag("squared");
  return std::make_shared<PowerSeriesMask>(order.normalised(), order.series("alpha", last, squared), squared);
}

MaskPtr make_none(const Order& order) {
  return std::make_shared<NoMask>(order.num_nodes(), order.device());
}

MaskPtr make_causal(const Order& order) {
  return std::make_shared<CausalMask>(order.num_nodes(), order.device());
}

MaskPtr make_neighbours(const Order& order) {
  const std::int64_t hops = order.integer("hops");
  check(hops >= 0, "NeighbourMask: hops must be at least 0, got {}", hops);
  // No path is longer than there are nodes.
  const std::int64_t farthest = std::min(hops, std::max<std::int64_t>(order.num_nodes(), 1));
  return std::make_shared<NeighbourMask>(order.graph(), static_cast<int>(farthest),
                                         order.flag("include_self"));
}

MaskPtr make_degree(const Order& order) {
  std::int64_t last = order.is_given("max_degree") ? order.integer("max_degree") : -1;
  check(last >= 0 || !order.is_given("max_degree"), "DegreeMask: max_degree must be at least 0, got {}",
        last);
  if (last < 0 && order.has_parameter("logits")) last = 0;  // the tensor says how many there are
  if (last < 0) {
    const at::Tensor degrees = order.graph().row_ptr.diff();
    last = degrees.numel() == 0 ? 0 : degrees.max().item<std::int64_t>();
  }
  // z = sigmoid(log(1 + degree)) = (1 + degree) / (2 + degree)
  const at::Tensor logits = at::arange(1, last + 2, at::kDouble).log().unsqueeze(0);
  return std::make_shared<DegreeMask>(
      order.graph(), order.parameter("logits", logits, order.is_given("max_degree") ? -1 : 1));
}

std::vector<std::int64_t> extent_of(const Order& order) {
  std::string text = order.text("extent");
  std::replace(text.begin(), text.end(), 'x', ',');
  const std::vector<std::int64_t> extent = parse_integers(text, "ToeplitzMask: extent");
  check(extent.size() <= 3, "ToeplitzMask: extent must hold 1 to 3 sizes, got {}", extent.size());
  std::int64_t cells = 1;
  for (const std::int64_t size : extent) {
    check(size >= 1 && size <= std::numeric_limits<std::int32_t>::max() / cells,
          "ToeplitzMask: extent must hold sizes of at least 1 whose product is below 2^31, got {}",
          fmt::join(extent, "x"));
    cells *= size;
  }
  return extent;
}

MaskPtr make_toeplitz(const Order& order) {
  const std::vector<std::int64_t> extent = extent_of(order);
  const auto transform = order.word<OffsetTransform>("transform");
  at::Tensor distance = at::zeros({}, at::kDouble);
  for (const std::int64_t size : extent)
    distance = distance.unsqueeze(-1) + at::arange(1 - size, size, at::kDouble).abs();
  const at::Tensor exponent = distance.mul(-order.real("decay")).view({1, -1});
  const at::Tensor offsets =
      order.parameter("offsets", transform == OffsetTransform::exponential ? exponent : exponent.exp());
  return std::make_shared<ToeplitzMask>(extent, offsets, transform);
}

MaskPtr make_forest(const Order& order) {
  const auto length = order.flag("weighted") ? ForestMask::Length::edge_weight : ForestMask::Length::hops;
  return std::make_shared<ForestMask>(order.graph(), order.per_head("a", -1), order.per_head("b", 0), length);
}

MaskPtr make_hypercube_heat(const Order& order) {
  return HypercubeHeatMask::for_graph(order.graph(), order.per_head("beta", 1),
                                      order.word<HypercubeHeatMask::Laplacian>("laplacian"));
}

MaskPtr make_shortest_path(const Order& order) {
  const std::int64_t last = order.integer_or_size("max_distance", "table", 1, 2);
  check(last >= 0 && last <= 254, "ShortestPathMask: max_distance must be from 0 to 254, got {}", last);
  const at::Tensor near = at::arange(last + 1, at::kDouble).mul(-order.real("decay")).exp();
  const at::Tensor table = at::cat({near, at::zeros({1}, at::kDouble)}).unsqueeze(0);
  return std::make_shared<ShortestPathMask>(order.graph(), order.parameter("table", table),
                                            order.integer("max_bytes"));
}

MaskPtr make_learned_features(const Order& order) {
  const std::int64_t rank = order.integer_or_size("rank", "features", 2, 0), n = order.num_nodes();
  check(rank >= 1, "LearnedFeaturesMask: rank must be at least 1, got {}", rank);
  // Independent columns, or all of them would learn the same; their products are 1 on average.
  at::Tensor features = at::empty({order.heads(), n, rank}, at::kDouble);
  RandomStream random(order.seed(), kLearnedFeaturesPurpose);
  fill_standard_normal(random, features.data_ptr<double>(), features.numel());
  features.add_(1).div_(std::sqrt(static_cast<double>(rank)));
  return std::make_shared<LearnedFeaturesMask>(order.parameter("features", features));
}

MaskPtr make_spe_sine(const Order& order) {
  const std::int64_t waves = order.integer("waves");
  check(waves >= 1, "SineSPEMask: waves must be at least 1, got {}", waves);
  const at::Tensor frequencies =
      at::arange(waves, at::kDouble).neg().exp2().mul(0.25).unsqueeze(0);  // 1/4, 1/8, ... cycles per step
  const at::Tensor given = order.parameter("frequencies", frequencies, 1);
  const std::int64_t number = given.size(1);
  check(number >= 1, "SineSPEMask: frequencies must be [heads, waves] with at least one wave, got {}",
        describe(given));
  const at::Tensor gains = at::full({1, number}, 1 / std::sqrt(static_cast<double>(number)), at::kDouble);
  return SpeMask::sine(order.num_nodes(), given, order.parameter("gains", gains),
                       order.parameter("phases", at::zeros({1, number}, at::kDouble)),
                       order.integer("realisations"), order.seed());
}

MaskPtr make_spe_convolutional(const Order& order) {
  const std::int64_t taps = order.integer("taps");
  check(taps >= 1, "ConvolutionalSPEMask: taps must be at least 1, got {}", taps);
  // Two boxes: their product is a triangle.
  const auto box = [](std::int64_t size) {
    return at::full({1, size}, 1 / std::sqrt(static_cast<double>(size)), at::kDouble);
  };
  const at::Tensor query = order.parameter("query_filter", box(taps), 1);
  check(query.size(1) >= 1, "ConvolutionalSPEMask: query_filter must be [heads, taps] with at least one tap");
  const at::Tensor key = order.has_parameter("key_filter") ? order.parameter("key_filter", box(query.size(1)))
                                                           : query.detach().clone();
  return SpeMask::convolutional(order.num_nodes(), query, key, order.integer("realisations"), order.seed());
}

struct Entry {
  MaskInfo info;
  MaskPtr (*make)(const Order&) = nullptr;
};

// Where no kernel is named.
std::string_view default_kernel() {
  static const std::string name = NodeKernel().to_string();
  return name;
}

constexpr MaskSetting kNormalise = {
    "normalise", SettingType::word, "symmetric",
    "how W is made of the graph: symmetric, random-walk, max-degree, or none if it is W already"};
constexpr MaskSetting kSeed = {"seed", SettingType::integer, "0", "everything random follows from it"};

std::vector<MaskSetting> walk_settings(std::string_view ensembles, std::string_view importance_weights) {
  return {
      {"num_walks", SettingType::integer, "16", "walks from every node"},
      {"p_halt", SettingType::real, "0.5", "probability to halt at every node"},
      {"max_hops", SettingType::integer, "10", "length of the longest walk"},
      kSeed,
      {"init", SettingType::text, default_kernel(),
       "f at the start, the same for every head: a node kernel by its name (its modulation, or its "
       "coefficients for asymmetric ensembles), or the numbers f_0, f_1, ... (zero beyond)"},
      {"key_init", SettingType::text, "",
       "f of the keys at the start, if they are to have their own: a kernel or numbers, as init; else the "
       "keys use the queries' f"},
      {"ensembles", SettingType::word, ensembles,
       "walks of the keys: shared (the queries' own; the diagonal is biased upwards), independent "
       "(unbiased), or asymmetric (one-hot keys: M estimates sum_k f_k W^k)"},
      {"coupling", SettingType::word, "independent",
       "coupling of the walks of a node: independent, antithetic, repelling or both"},
      {"shared_walks", SettingType::flag, "true", "false: each head samples its own walks"},
      {"step", SettingType::word, "uniform", "next node: uniform, or weighted by |W|"},
      {"length", SettingType::text, "geometric",
       "length of a walk: geometric, fixed (always max_hops), or the numbers S0,S1,...; Sk = Pr(length >= "
       "k)"},
      {"importance_weights", SettingType::flag, importance_weights, "false: every visit counts 1 (ad hoc)"},
      kNormalise,
  };
}

constexpr MaskParameter kF = {"f", "[heads, max_hops + 1], or with key_init [heads, 2, max_hops + 1]",
                              "the series of init, and of key_init"};

const std::vector<Entry>& entries() {
  static const std::vector<Entry> kEntries = {
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
          "alpha at the start, the same for every head: a node kernel by its name, or the numbers alpha_0, "
          "alpha_1, ... (zero beyond)"},
         {"squared", SettingType::flag, "false",
          "M = S S^T with S the series: the exact limit of a GRF mask with f = alpha"},
         kNormalise},
        {{"alpha", "[heads, max_power + 1]", "the series of init"}}},
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
        "M_ij = 1 where j lies within some steps of i along the edges, else 0 (hard, as in GAT)",
        "O(nonzeros)",
        "sparse",
        true,
        true,
        {{"hops", SettingType::integer, "1", "as far as this many steps"},
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
          "larger degrees count as this (default: the graph's largest)"}},
        {{"logits", "[heads, max_degree + 1]", "z = (1 + degree) / (2 + degree)"}}},
       make_degree},
      {{"toeplitz",
        "ToeplitzMask",
        "M_ij = t(b_{j-i}): a learned number for every offset on a grid of 1 to 3 dimensions, by FFT",
        "O(N log N)",
        "structured",
        false,
        true,
        {{"extent", SettingType::text, "", "1 to 3 sizes of the grid, HxW[xD]"},
         {"decay", SettingType::real, "1", "the offsets start as exp(-decay |offset|_1)"},
         {"transform", SettingType::word, "none", "t, of the offsets: none, exponential or absolute"}},
        {{"offsets", "[heads, prod(2 n - 1)]", "exp(-decay |offset|_1), or its logarithm for exponential"}}},
       make_toeplitz},
      {{"forest",
        "ForestMask",
        "M_ij = exp(a dist(i, j) + b) within a tree, 0 between trees: a dynamic programme",
        "O(N)",
        "structured",
        true,
        true,
        {{"weighted", SettingType::flag, "false",
          "distances are sums of the edges' weights instead of hops"}},
        {{"a", "[heads]", "-1"}, {"b", "[heads]", "0"}}},
       make_forest},
      {{"hypercube-heat",
        "HypercubeHeatMask",
        "M = exp(-beta L) on the hypercube of 2^d nodes, as d products of 2 x 2 factors",
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
          "farther nodes share one entry with those out of reach; at most 254"},
         {"decay", SettingType::real, "1", "the table starts as exp(-decay k), and 0 for farther nodes"},
         {"max_bytes", SettingType::integer, "1073741824", "the most that the distances may take, N^2"}},
        {{"table", "[heads, max_distance + 2]", "exp(-decay k), and 0 for farther nodes"}}},
       make_shortest_path},
      {{"learned-features",
        "LearnedFeaturesMask",
        "M = F F^T with features that are learned freely (an ablation of the paper)",
        "O(N R)",
        "low rank",
        false,
        true,
        {{"rank", SettingType::integer, "16", "R, columns of F"}, kSeed},
        {{"features", "[heads, N, rank]", "normal with mean and deviation 1, over sqrt(rank)"}}},
       make_learned_features},
      {{"spe-sine",
        "SineSPEMask",
        "Stochastic position encoding of sequences (sineSPE): random factors whose product has the "
        "expectation P(i - j), P(t) = sum_k gains_k^2 cos(2 pi frequencies_k t + phases_k)",
        "O(N R)",
        "low rank",
        false,
        true,
        {{"realisations", SettingType::integer, "64", "R, rank of the random factors"},
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
        {{"realisations", SettingType::integer, "64", "R, rank of the random factors"},
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
        "Tokens in front of the nodes (CLS) that see and are seen by all: [[1, 1], [1, M]]",
        "as the part",
        "as the part",
        false,
        false,
        {},
        {}}},
      {{"block-diagonal",
        "BlockDiagonalMask",
        "A batch of graphs, each with a mask of its own, one after the other on the diagonal",
        "sum of the parts",
        "as the parts",
        false,
        false,
        {},
        {}}},
  };
  return kEntries;
}

const Entry& find_entry(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Entry& entry : entries()) {
    if (entry.info.name == name) return entry;
    names.push_back(entry.info.name);
  }
  fail_unknown_word("mask", name, names);
}

}  // namespace

const std::vector<MaskInfo>& mask_catalogue() {
  static const std::vector<MaskInfo> kCatalogue = [] {
    std::vector<MaskInfo> infos;
    for (const Entry& entry : entries()) infos.push_back(entry.info);
    return infos;
  }();
  return kCatalogue;
}

const MaskInfo& mask_info(std::string_view name) {
  return find_entry(name).info;
}

std::string mask_advice(const MaskRequest& request) {
  constexpr std::int64_t kFewNodes = 4096;  // whose masks are never large
  const Entry& entry = find_entry(request.mask);
  if (entry.make != make_grf) return "";
  const Order order(entry.info, request);
  const FeatureOptions options = feature_options(order);
  if (options.ensembles == Ensembles::asymmetric || order.num_nodes() <= kFewNodes) return "";
  MaskSizeOptions limits;
  limits.heads = order.heads();
  return predict_mask_size(order.normalised(), options, limits).advice;
}

WalkMaskPlan plan_walk_mask(MaskRequest request) {
  const Entry& entry = find_entry(request.mask);
  check(entry.make == make_grf,
        "mask '{}': is not made of walks; over ranks there are grf, grf-asymmetric and ad-hoc", request.mask);
  if (!request.graph) request.graph = Graph();
  const Order order(entry.info, request);
  return plan_grf(order);
}

MaskPtr make_mask(const MaskRequest& request) {
  const Entry& entry = find_entry(request.mask);
  check(entry.info.by_name, "mask '{}': is made of tensors or of other masks ({}), not by its name",
        entry.info.name, entry.info.python_name);
  MaskPtr mask = entry.make(Order(entry.info, request));
  if (request.blocks.empty()) return mask;
  // Only the one who made it knows of it yet.
  std::const_pointer_cast<Mask>(mask)->set_blocks(request.blocks);
  return mask;
}

}  // namespace topomask
