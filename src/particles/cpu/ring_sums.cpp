#include "particles/cpu/ring_sums.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/parallel.h"

namespace topomask {

namespace {

constexpr std::int64_t kSamplesPerRun = 512, kParticlesPerRun = 256;

template <class T>
struct Rings {
  std::int64_t count;
  T radius[kMaxRings], per_bandwidth[kMaxRings];

  explicit Rings(const RingSums<T>& sums) : count(sums.rings) {
    for (std::int64_t r = 0; r < count; ++r) {
      radius[r] = static_cast<T>(sums.radius[r]);
      per_bandwidth[r] = static_cast<T>(1 / sums.bandwidth[r]);
    }
  }
};

template <class T>
T distance(const T* a, const T* b) {
  const T x = a[0] - b[0], y = a[1] - b[1], z = a[2] - b[2];
  return std::sqrt(x * x + y * y + z * z);
}

// What the gradient of a sample's output means for the sums: d(sum_k w_kr f_k) and d(m_r), [R, F + 1].
template <class T>
void sum_gradients(const T* out, const T* grad, std::int64_t rings, std::int64_t features, T* result) {
  for (std::int64_t r = 0; r < rings; ++r) {
    const T *mean = out + r * (features + 1), *own = grad + r * (features + 1);
    T* to = result + r * (features + 1);
    const T scale = 1 / (std::expm1(mean[features]) + static_cast<T>(kRingMargin));
    T dot = 0;
    for (std::int64_t f = 0; f < features; ++f) {
      to[f] = own[f] * scale;
      dot += to[f] * mean[f];
    }
    to[features] = own[features] * std::exp(-mean[features]) - dot;
  }
}

// The entries of `index` by particle, in the order of the samples: sample of entry e of particle j for e from
// ptr[j] to ptr[j+1].
struct EntriesByParticle {
  std::vector<std::int64_t> ptr;
  std::vector<std::int32_t> sample;

  template <class T>
  explicit EntriesByParticle(const RingSums<T>& sums) : ptr(static_cast<std::size_t>(sums.particles) + 1) {
    const std::int64_t entries = sums.samples * sums.neighbours;
    for (std::int64_t e = 0; e < entries; ++e) {
      if (sums.index[e] >= 0) ++ptr[static_cast<std::size_t>(sums.index[e]) + 1];
    }
    for (std::size_t j = 1; j < ptr.size(); ++j) ptr[j] += ptr[j - 1];
    std::vector<std::int64_t> next(ptr.begin(), ptr.end() - 1);
    sample.resize(static_cast<std::size_t>(ptr.back()));
    for (std::int64_t p = 0; p < sums.samples; ++p) {
      for (std::int64_t e = p * sums.neighbours; e < (p + 1) * sums.neighbours; ++e) {
        if (sums.index[e] < 0) continue;
        std::int64_t& place = next[static_cast<std::size_t>(sums.index[e])];
        sample[static_cast<std::size_t>(place++)] = static_cast<std::int32_t>(p);
      }
    }
  }
};

}  // namespace

template <class T>
void ring_sums(const RingSums<T>& sums, T* out) {
  const Rings<T> rings(sums);
  const std::int64_t features = sums.features, row = rings.count * (features + 1);
  for_runs(sums.samples, kSamplesPerRun, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      T* const own = out + p * row;
      std::fill_n(own, row, T{0});
      for (std::int64_t k = 0; k < sums.neighbours; ++k) {
        const std::int64_t j = sums.index[p * sums.neighbours + k];
        if (j < 0) continue;
        const T d = distance(sums.position + 3 * j, sums.query + 3 * p);
        const T* const feature = sums.feature + j * features;
        for (std::int64_t r = 0; r < rings.count; ++r) {
          const T z = (d - rings.radius[r]) * rings.per_bandwidth[r], w = std::exp(-z * z);
          T* const to = own + r * (features + 1);
          for (std::int64_t f = 0; f < features; ++f) to[f] += w * feature[f];
          to[features] += w;
        }
      }
      for (std::int64_t r = 0; r < rings.count; ++r) {
        T* const to = own + r * (features + 1);
        const T scale = 1 / (to[features] + static_cast<T>(kRingMargin));
        for (std::int64_t f = 0; f < features; ++f) to[f] *= scale;
        to[features] = std::log1p(to[features]);
      }
    }
  });
}

template <class T>
void ring_sums_backward(const RingSums<T>& sums, const T* out, const T* grad, T* grad_position,
                        T* grad_feature) {
  const Rings<T> rings(sums);
  const std::int64_t features = sums.features, row = rings.count * (features + 1);
  std::vector<T> of_sums(static_cast<std::size_t>(sums.samples * row));
  for_runs(sums.samples, kSamplesPerRun, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p)
      sum_gradients(out + p * row, grad + p * row, rings.count, features, of_sums.data() + p * row);
  });
  const EntriesByParticle entries(sums);
  for_runs(sums.particles, kParticlesPerRun, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t j = begin; j < end; ++j) {
      const T *const x = sums.position + 3 * j, *const feature = sums.feature + j * features;
      T* const to_feature = grad_feature + j * features;
      T to_x[3] = {0, 0, 0};
      std::fill_n(to_feature, features, T{0});
      for (std::int64_t e = entries.ptr[static_cast<std::size_t>(j)];
           e < entries.ptr[static_cast<std::size_t>(j) + 1]; ++e) {
        const std::int64_t p = entries.sample[static_cast<std::size_t>(e)];
        const T *const query = sums.query + 3 * p, *const own = of_sums.data() + p * row;
        const T d = distance(x, query);
        T slope = 0;  // of the loss in d
        for (std::int64_t r = 0; r < rings.count; ++r) {
          const T z = (d - rings.radius[r]) * rings.per_bandwidth[r], w = std::exp(-z * z);
          if (w == 0) continue;  // far away, perhaps so far that z is infinite
          const T* const of_ring = own + r * (features + 1);
          T dot = of_ring[features];
          for (std::int64_t f = 0; f < features; ++f) {
            dot += of_ring[f] * feature[f];
            to_feature[f] += w * of_ring[f];
          }
          slope -= 2 * dot * w * z * rings.per_bandwidth[r];
        }
        if (d > 0) {
          for (int a = 0; a < 3; ++a) to_x[a] += slope / d * (x[a] - query[a]);
        }
      }
      std::copy_n(to_x, 3, grad_position + 3 * j);
    }
  });
}

template void ring_sums(const RingSums<float>&, float*);
template void ring_sums(const RingSums<double>&, double*);
template void ring_sums_backward(const RingSums<float>&, const float*, const float*, float*, float*);
template void ring_sums_backward(const RingSums<double>&, const double*, const double*, double*, double*);

}  // namespace topomask
