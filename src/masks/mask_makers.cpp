#include "masks/mask_makers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/normal.h"
#include "core/numbers.h"
#include "core/random.h"
#include "core/tensors.h"
#include "topomask/grf_mask.h"
#include "topomask/masks.h"
#include "walks/compile_plan.h"

namespace topomask {

namespace {

constexpr std::uint32_t kLearnedFeaturesPurpose =
    0x6C656172;  // keeps these draws apart from others of a seed

std::vector<std::int64_t> extent_of(const MaskOrder& order) {
  const std::vector<std::int64_t> extent = parse_extent(order.text("extent"));
  check(!extent.empty(), "ToeplitzMask: extent must hold 1 to 3 sizes of at least 1, got '{}'",
        order.text("extent"));
  std::int64_t cells = 1;
  for (const std::int64_t size : extent) {
    check(size >= 1 && size <= std::numeric_limits<std::int32_t>::max() / cells,
          "ToeplitzMask: extent must hold sizes of at least 1 whose product is below 2^31, got {}",
          fmt::join(extent, "x"));
    cells *= size;
  }
  return extent;
}

}  // namespace

MaskPtr make_power_series(const MaskOrder& order) {
  const std::int64_t last = order.integer_or_size("max_power", "alpha", -1, 1);
  check(last >= 0 && last <= kMaxHops, "{}: max_power must be between 0 and {}, got {}", order.owner(),
        kMaxHops, last);
  const bool squared = order.flag("squared");
  return std::make_shared<PowerSeriesMask>(order.normalised(), order.series("alpha", last, squared), squared);
}

MaskPtr make_none(const MaskOrder& order) {
  return std::make_shared<NoMask>(order.num_nodes(), order.device());
}

MaskPtr make_causal(const MaskOrder& order) {
  return std::make_shared<CausalMask>(order.num_nodes(), order.device());
}

MaskPtr make_neighbours(const MaskOrder& order) {
  const std::int64_t hops = order.integer("hops");
  check(hops >= 0, "NeighbourMask: hops must be at least 0, got {}", hops);
  // No path is longer than there are nodes.
  const std::int64_t farthest = std::min(hops, std::max<std::int64_t>(order.num_nodes(), 1));
  return std::make_shared<NeighbourMask>(order.graph(), static_cast<int>(farthest),
                                         order.flag("include_self"));
}

MaskPtr make_degree(const MaskOrder& order) {
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

MaskPtr make_toeplitz(const MaskOrder& order) {
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

MaskPtr make_forest(const MaskOrder& order) {
  const auto length = order.flag("weighted") ? ForestMask::Length::edge_weight : ForestMask::Length::hops;
  return std::make_shared<ForestMask>(order.graph(), order.per_head("a", -1), order.per_head("b", 0), length);
}

MaskPtr make_hypercube_heat(const MaskOrder& order) {
  return HypercubeHeatMask::for_graph(order.graph(), order.per_head("beta", 1),
                                      order.word<HypercubeHeatMask::Laplacian>("laplacian"));
}

MaskPtr make_shortest_path(const MaskOrder& order) {
  const std::int64_t last = order.integer_or_size("max_distance", "table", 1, 2);
  check(last >= 0 && last <= 254, "ShortestPathMask: max_distance must be from 0 to 254, got {}", last);
  const at::Tensor near = at::arange(last + 1, at::kDouble).mul(-order.real("decay")).exp();
  const at::Tensor table = at::cat({near, at::zeros({1}, at::kDouble)}).unsqueeze(0);
  return std::make_shared<ShortestPathMask>(order.graph(), order.parameter("table", table),
                                            order.integer("max_bytes"));
}

MaskPtr make_learned_features(const MaskOrder& order) {
  const std::int64_t rank = order.integer_or_size("rank", "features", 2, 0), n = order.num_nodes();
  check(rank >= 1, "LearnedFeaturesMask: rank must be at least 1, got {}", rank);
  // Independent columns, or all of them would learn the same; their products are 1 on average.
  at::Tensor features = at::empty({order.heads(), n, rank}, at::kDouble);
  RandomStream random(order.seed(), kLearnedFeaturesPurpose);
  fill_standard_normal(random, features.data_ptr<double>(), features.numel());
  features.add_(1).div_(std::sqrt(static_cast<double>(rank)));
  return std::make_shared<LearnedFeaturesMask>(order.parameter("features", features));
}

MaskPtr make_spe_sine(const MaskOrder& order) {
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

MaskPtr make_spe_convolutional(const MaskOrder& order) {
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

MaskPtr make_mask(const MaskRequest& request) {
  const MaskEntry& entry = find_mask_entry(request.mask);
  check(entry.info.by_name, "mask '{}': is made of tensors or of other masks ({}), not by its name",
        entry.info.name, entry.info.python_name);
  MaskPtr mask = entry.make(MaskOrder(entry.info, request));
  if (request.blocks.empty()) return mask;
  // Nothing else refers to the new mask yet.
  std::const_pointer_cast<Mask>(mask)->set_blocks(request.blocks);
  return mask;
}

}  // namespace topomask
