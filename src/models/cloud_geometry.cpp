#include <cmath>

#include "core/check.h"
#include "nn/row_copies.h"
#include "nn/rules.h"
#include "topomask/graph_builders.h"
#include "topomask/interlacer.h"
#include "topomask/masks.h"
#include "topomask/neighbours.h"

namespace topomask {
namespace {

constexpr double kOffsetScale = 20;  // 5 cm become 1

// Where each of `clouds` equal parts begins. On the CPU, so that a GPU need not wait for it.
at::Tensor cloud_ptr(std::int64_t clouds, std::int64_t each) {
  return at::arange(clouds + 1, at::kLong) * each;
}

// [.., 3] -> [.., 4]
at::Tensor scaled_offsets(const at::Tensor& d) {
  return kOffsetScale * at::cat({d, d.norm(2, {-1}, /*keepdim=*/true)}, -1);
}

// Neighbours of a token in the graph.
std::int64_t degree_of(std::int64_t tokens, const InterlacerOptions& o) {
  return std::min(o.neighbours, tokens - 1);
}

std::shared_ptr<const GrfMask> make_grf_mask(const at::Tensor& positions, const InterlacerOptions& o) {
  const bool asymmetric = o.ensembles == Ensembles::asymmetric;
  const std::int64_t k = degree_of(positions.size(1), o);
  const Graph graph = token_graph(positions, o);
  FeatureOptions options;
  options.ensembles = o.ensembles;
  options.padded = positions.is_cuda() && asymmetric;
  options.walks.num_walks = std::llround(std::pow(static_cast<double>(k), o.hops));
  options.walks.max_hops = o.hops;
  options.walks.length = LengthLaw::fixed;
  options.walks.coupling = Coupling::repelling;
  options.walks.seed = o.seed;
  // With k neighbours everywhere D^-1 A is A / k, and k^hops repelling walkers take every walk once.
  return std::make_shared<GrfMask>(
      normalise(graph, asymmetric ? Normalisation::random_walk : Normalisation::symmetric), options,
      initial_f(o.hops).to(positions.device(), /*non_blocking=*/true).unsqueeze(0));
}

}  // namespace

Graph token_graph(const at::Tensor& positions, const InterlacerOptions& o) {
  const std::int64_t clouds = positions.size(0), tokens = positions.size(1);
  const bool symmetric = o.local == LocalLayer::grf && o.ensembles != Ensembles::asymmetric;
  return knn_graph(positions.detach().reshape({clouds * tokens, 3}),
                   {.k = degree_of(tokens, o), .symmetric = symmetric, .ptr = cloud_ptr(clouds, tokens)});
}

CloudGeometry::CloudGeometry(const at::Tensor& given, const InterlacerOptions& o) {
  check(given.dim() == 3 && given.size(2) == 3 && given.size(1) >= 2,
        "Interlacer: expected positions [B, M, 3] of at least 2 tokens, got [{}]",
        fmt::join(given.sizes(), ", "));
  clouds = given.size(0);
  tokens = given.size(1);
  const at::Tensor points = given.detach().reshape({clouds * tokens, 3}), ptr = cloud_ptr(clouds, tokens);
  // Whatever the local layers are. A GPU would have to be waited for; there the loss will tell.
  if (points.is_cpu() && !points.isfinite().all().item<bool>())
    throw NotFinite("Interlacer: a position holds a NaN or an infinity, expected finite numbers");
  if (o.local == LocalLayer::grf) grf = make_grf_mask(given, o);
  if (o.local == LocalLayer::softmax) neighbours = std::make_shared<NeighbourMask>(token_graph(given, o));
  if (o.local != LocalLayer::message_passing) return;
  // Every anchor_every-th token: particles were drawn in random order.
  const at::TensorOptions integers = at::TensorOptions(at::kLong).device(points.device());
  const at::Tensor own = at::arange(0, tokens, o.anchor_every, integers);  // [A]
  const std::int64_t count = own.size(0);
  anchors = (at::arange(clouds, integers).unsqueeze(1) * tokens + own).flatten();
  const at::Tensor places = points.index_select(0, anchors), anchor_ptr = cloud_ptr(clouds, count);
  NeighbourOptions near;
  near.queries = places;
  near.ptr = ptr;
  near.query_ptr = anchor_ptr;
  // On a GPU a point that is not finite has no neighbours (-1).
  heard = knn(points, std::min(o.anchor_neighbours, tokens), near).index.to(at::kLong).clamp_min(0);
  NeighbourOptions above;
  above.queries = points;
  above.ptr = anchor_ptr;
  above.query_ptr = ptr;
  nearest = knn(places, 1, above).index.to(at::kLong).squeeze(1).clamp_min(0);
  heard_copies = std::make_shared<RowCopies>(heard, clouds * tokens);
  nearest_copies = std::make_shared<RowCopies>(nearest, clouds * count);
  // Who sends messages to whom is fixed; distances depend on the positions, with gradients.
  const at::Tensor exact = given.reshape({clouds * tokens, 3}), exact_places = exact.index_select(0, anchors);
  offsets = scaled_offsets(heard_copies->of(exact).view({-1, heard.size(1), 3}) - exact_places.unsqueeze(1));
  back = scaled_offsets(nearest_copies->of(exact_places) - exact);
}

}  // namespace topomask
