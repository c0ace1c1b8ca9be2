// Random points and options for searches of neighbours, between them every case there is.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/random.h"
#include "topomask/neighbours.h"

namespace topomask::testing {

class Chance {
 public:
  explicit Chance(std::uint64_t seed) : random_(seed, 77) {}

  double real(double low = 0, double high = 1) { return low + (high - low) * random_.next_double(); }
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_.next_double() * static_cast<double>(high - low + 1));
  }
  bool flip(double probability = 0.5) { return random_.next_double() < probability; }

  // Point sets that break one or the other way of searching.
  at::Tensor cloud(std::int64_t count, std::int64_t dimension, int kind, double offset) {
    at::Tensor points = at::empty({count, dimension}, at::kDouble);
    double* x = points.data_ptr<double>();
    for (std::int64_t i = 0; i < count; ++i) {
      const double along = real();
      const bool far = flip(0.02);
      for (std::int64_t a = 0; a < dimension; ++a) {
        double value = real();
        if (kind == 1) value = static_cast<double>(integer(0, 4));                  // ties
        if (kind == 2) value = along * static_cast<double>(a + 1);                  // collinear
        if (kind == 3) value *= std::pow(10.0, -3.0 * static_cast<double>(a % 4));  // flat
        if (kind == 4) value = far ? value * 1e6 : value * 1e-3;                    // outliers
        if (kind == 5) value = 0.25;                                                // equal
        *x++ = value + offset;
      }
    }
    return points;
  }

  // [graphs+1], some of them empty.
  at::Tensor offsets(std::int64_t count, std::int64_t graphs) {
    std::vector<std::int64_t> ptr = {0, count};
    for (std::int64_t g = 1; g < graphs; ++g) ptr.push_back(flip(0.2) ? ptr.back() : integer(0, count));
    std::sort(ptr.begin(), ptr.end());
    return at::tensor(ptr);
  }

 private:
  RandomStream random_;
};

struct RandomSearch {
  at::Tensor points;
  NeighbourOptions options;
  std::int64_t k = 0;
  double r = 0;
};

inline RandomSearch random_search(std::uint64_t seed) {
  Chance chance(seed);
  RandomSearch search;
  const std::int64_t count = chance.flip(0.1) ? chance.integer(0, 3) : chance.integer(4, 400);
  const std::int64_t dimension = chance.flip(0.7) ? chance.integer(1, 3) : chance.integer(0, 16);
  const at::ScalarType dtypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
  const at::ScalarType dtype = dtypes[chance.flip(0.8) ? chance.integer(0, 1) : chance.integer(2, 3)];
  const bool narrow = dtype == at::kHalf || dtype == at::kBFloat16;  // holds neither outliers nor offsets
  const double offset = !narrow && chance.flip(0.3) ? chance.real(-1e7, 1e7) : 0;
  const auto cloud = [&](std::int64_t size) {
    return chance.cloud(size, dimension, static_cast<int>(chance.integer(0, narrow ? 3 : 5)), offset)
        .to(dtype);
  };
  search.points = cloud(count);
  NeighbourOptions& options = search.options;
  if (chance.flip(0.4)) options.queries = cloud(chance.integer(0, 200));
  if (chance.flip(0.4)) {
    const std::int64_t graphs = chance.integer(1, 12);
    options.ptr = chance.offsets(count, graphs);
    if (options.queries.defined()) options.query_ptr = chance.offsets(options.queries.size(0), graphs);
  }
  if (chance.flip(0.4)) {
    options.box = at::empty({dimension}, at::kDouble);
    for (std::int64_t a = 0; a < dimension; ++a) {
      options.box.data_ptr<double>()[a] = chance.flip(0.25) ? 0 : std::pow(10.0, chance.real(-1.5, 1));
    }
  }
  if (chance.flip(0.3)) options.include_self = chance.flip();
  search.k = chance.flip(0.2) ? chance.integer(0, count + 2) : chance.integer(1, 20);
  search.r = chance.flip(0.1)   ? 0
             : chance.flip(0.1) ? std::numeric_limits<double>::infinity()
                                : std::pow(10.0, chance.real(-2.5, 0.5));
  return search;
}

}  // namespace topomask::testing
