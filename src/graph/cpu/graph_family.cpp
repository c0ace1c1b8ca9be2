#include "topomask/graph_family.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "core/numbers.h"

namespace topomask {
namespace {

// Extents do not shrink below this: walks would run into both borders at once.
constexpr std::int64_t kThinnest = 16;

struct FamilyName {
  std::string_view name;
  int dimension;
};
constexpr std::array kFamilies = {FamilyName{"path", 1}, FamilyName{"cycle", 1}, FamilyName{"torus", 2},
                                  FamilyName{"er", 0},   FamilyName{"ba", 0},    FamilyName{"regular", 0}};

// Extents in the same proportions with about `nodes` nodes; thin ones stay.
std::vector<std::int64_t> scaled_extents(const std::vector<std::int64_t>& extent, double nodes) {
  std::vector<std::int64_t> result(extent.size(), 0);  // 0: not settled
  for (bool changed = true; changed;) {
    changed = false;
    double left = nodes, product = 1;
    int open = 0;
    for (std::size_t d = 0; d < extent.size(); ++d) {
      if (result[d] > 0) left /= static_cast<double>(result[d]);
      if (result[d] > 0) continue;
      product *= static_cast<double>(extent[d]);
      ++open;
    }
    if (open == 0) break;
    const double factor = std::pow(left / product, 1.0 / open);
    for (std::size_t d = 0; d < extent.size() && !changed; ++d) {
      if (result[d] > 0 || factor * static_cast<double>(extent[d]) >= static_cast<double>(kThinnest))
        continue;
      result[d] = std::min(extent[d], kThinnest);
      changed = true;
    }
    if (changed) continue;
    for (std::size_t d = 0; d < extent.size(); ++d) {
      if (result[d] == 0)
        result[d] = std::max<std::int64_t>(1, std::llround(factor * static_cast<double>(extent[d])));
    }
  }
  return result;
}

}  // namespace

std::string GraphFamily::resized(std::int64_t wanted) const {
  std::string others = rest;
  if (name == "er") {  // ,P[,SEED]: the mean degree N P stays
    double probability = 0;
    const char* const end = rest.data() + rest.size();
    const auto found = std::from_chars(rest.data() + std::min<std::size_t>(1, rest.size()), end, probability);
    const double same = probability * static_cast<double>(nodes) / static_cast<double>(wanted);
    if (found.ec == std::errc())
      others = fmt::format(",{:.6g}{}", std::min(1.0, same), std::string_view(found.ptr, end));
  }
  return fmt::format("{}:{}{}", name, fmt::join(scaled_extents(extent, static_cast<double>(wanted)), "x"),
                     others);
}

std::optional<GraphFamily> graph_family(const std::string& spec) {
  const std::size_t colon = spec.find(':');
  if (colon == std::string::npos) return std::nullopt;
  GraphFamily family;
  family.name = spec.substr(0, colon);
  const std::size_t comma = std::min(spec.find(',', colon), spec.size());
  family.extent = parse_extent(std::string_view(spec).substr(colon + 1, comma - colon - 1));
  if (family.extent.empty()) return std::nullopt;
  family.rest = spec.substr(comma);
  double nodes = 1;
  for (const std::int64_t size : family.extent) nodes *= static_cast<double>(size);
  const bool grid = family.name == "grid";
  const auto known = std::find_if(kFamilies.begin(), kFamilies.end(),
                                  [&](const FamilyName& one) { return one.name == family.name; });
  if (!grid && (known == kFamilies.end() || family.extent.size() != 1)) return std::nullopt;
  if (nodes > 0x1p62) return std::nullopt;
  family.nodes = static_cast<std::int64_t>(nodes);
  family.dimension = grid ? static_cast<int>(family.extent.size()) : known->dimension;
  return family;
}

}  // namespace topomask
