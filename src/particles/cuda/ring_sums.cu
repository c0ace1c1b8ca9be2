#include "particles/cuda/ring_sums.h"

#include <bit>

#include "core/cuda/grid.h"
#include "core/cuda/lanes.cuh"
#include "core/cuda/primitives.h"
#include "graph/cuda/neighbour_order.h"
#include "graph/cuda/transform.h"

namespace topomask::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kRingsAtOnce = 4;  // the paper's number

// Radii and bandwidths go with the launch.
template <class T>
struct DeviceRings {
  int count = 0;
  T radius[kMaxRings] = {}, per_bandwidth[kMaxRings] = {};

  explicit DeviceRings(const RingSums<T>& sums) : count(static_cast<int>(sums.rings)) {
    for (int r = 0; r < count; ++r) {
      radius[r] = static_cast<T>(sums.radius[r]);
      per_bandwidth[r] = static_cast<T>(1 / sums.bandwidth[r]);
    }
  }
};

__device__ inline float exp_of(float x) {
  return __expf(x);
}
__device__ inline double exp_of(double x) {
  return exp(x);
}

template <class T>
__device__ T distance_between(const T* a, const T* b) {
  const T x = a[0] - b[0], y = a[1] - b[1], z = a[2] - b[2];
  return sqrt(x * x + y * y + z * z);
}

// kLanes lanes a sample. Of kLanes neighbours at a time each lane weighs one; then each sums one feature over
// all of them.
template <class T, int kLanes>
__global__ void __launch_bounds__(kThreads)
    sum_rings(const __grid_constant__ RingSums<T> s, const __grid_constant__ DeviceRings<T> rings, T* out) {
  const std::int64_t own = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kLanes;
  const bool is_there = own < s.samples;  // all lanes of a warp stay, to exchange what they hold
  const std::int64_t p = is_there ? own : s.samples - 1;
  const int lane = static_cast<int>(threadIdx.x) % kLanes, features = static_cast<int>(s.features);
  const int first_lane = static_cast<int>(threadIdx.x) % kWarpSize - lane;
  constexpr unsigned kTeam = kLanes == kWarpSize ? ~0u : (1u << kLanes % kWarpSize) - 1;
  T* const row = out + p * rings.count * (features + 1);
  for (int ring = 0; ring < rings.count; ring += kRingsAtOnce) {
    for (int f0 = 0; f0 < features; f0 += kLanes) {
      const int f = f0 + lane;
      T sum[kRingsAtOnce] = {}, mass[kRingsAtOnce] = {};
      for (int k0 = 0; k0 < s.neighbours; k0 += kLanes) {
        const std::int32_t j = k0 + lane < s.neighbours ? s.index[p * s.neighbours + k0 + lane] : -1;
        T weight[kRingsAtOnce] = {};
        if (j >= 0) {
          const T d = distance_between(s.position + 3 * std::int64_t{j}, s.query + 3 * p);
#pragma unroll
          for (int r = 0; r < kRingsAtOnce; ++r) {
            if (ring + r >= rings.count) break;
            const T z = (d - rings.radius[ring + r]) * rings.per_bandwidth[ring + r];
            weight[r] = exp_of(-z * z);
            mass[r] += weight[r];
          }
        }
        unsigned there = __ballot_sync(~0u, j >= 0);
        // As many rounds as the fullest team of the warp needs.
        unsigned rounds = there;
#pragma unroll
        for (int shift = kLanes; shift < kWarpSize; shift *= 2) rounds |= rounds >> shift;
        rounds &= kTeam;
        there = there >> first_lane & kTeam;
        for (int k = 0; k < kLanes && rounds >> k != 0; ++k) {
          const std::int32_t near = __shfl_sync(~0u, j, k, kLanes);
          T feature = 0;
          if ((there >> k & 1) != 0 && f < features) feature = s.feature[std::int64_t{near} * features + f];
#pragma unroll
          for (int r = 0; r < kRingsAtOnce; ++r) sum[r] += __shfl_sync(~0u, weight[r], k, kLanes) * feature;
        }
      }
#pragma unroll
      for (int r = 0; r < kRingsAtOnce; ++r) {
        const T all = sum_lanes<kLanes>(mass[r]);
        if (!is_there || ring + r >= rings.count) continue;
        T* const to = row + (ring + r) * (features + 1);
        if (f < features) to[f] = sum[r] / (all + static_cast<T>(kRingMargin));
        if (f0 == 0 && lane == 0) to[features] = log1p(all);
      }
    }
  }
}

// What the gradient of a sample's output means for the sums; kLanes lanes a sample and ring.
template <class T, int kLanes>
__global__ void __launch_bounds__(kThreads)
    gradients_of_sums(std::int64_t count, int features, const T* out, const T* grad, T* of_sums) {
  const std::int64_t own = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kLanes;
  const bool is_there = own < count;
  const std::int64_t at = (is_there ? own : count - 1) * (features + 1);
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const T log_mass = out[at + features];
  const T scale = 1 / (expm1(log_mass) + static_cast<T>(kRingMargin));
  T dot = 0;
  for (int f = lane; f < features; f += kLanes) {
    const T to = grad[at + f] * scale;
    dot += to * out[at + f];
    if (is_there) of_sums[at + f] = to;
  }
  dot = sum_lanes<kLanes>(dot);
  if (is_there && lane == 0) of_sums[at + features] = grad[at + features] * exp(-log_mass) - dot;
}

// Entries by particle: missing neighbours come behind all particles.
__global__ void __launch_bounds__(kThreads)
    entry_keys(const std::int32_t* index, std::int64_t entries, std::uint32_t behind, std::uint32_t* key,
               std::int32_t* entry) {
  const std::int64_t e = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (e >= entries) return;
  key[e] = index[e] < 0 ? behind : static_cast<std::uint32_t>(index[e]);
  entry[e] = static_cast<std::int32_t>(e);
}

// kLanes lanes a particle, one feature each, over its entries in the order of the samples. Each lane sums its
// share of the gradient of the position; the shares are added up in the end.
template <class T, int kLanes>
__global__ void __launch_bounds__(kThreads)
    gradients_of_particles(const __grid_constant__ RingSums<T> s,
                           const __grid_constant__ DeviceRings<T> rings, const std::int64_t* entry_ptr,
                           const std::int32_t* entry, const T* of_sums, T* grad_position, T* grad_feature) {
  const std::int64_t own = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kLanes;
  const bool is_there = own < s.particles;
  const std::int64_t j = is_there ? own : s.particles - 1;
  const int lane = static_cast<int>(threadIdx.x) % kLanes, features = static_cast<int>(s.features);
  const auto neighbours = static_cast<std::int32_t>(s.neighbours);
  const T x[3] = {s.position[3 * j], s.position[3 * j + 1], s.position[3 * j + 2]};
  const std::int64_t begin = entry_ptr[j], end = is_there ? entry_ptr[j + 1] : begin;
  T to_x[3] = {};
  for (int f0 = 0; f0 < features; f0 += kLanes) {
    const int f = f0 + lane;
    const T feature = f < features ? s.feature[j * features + f] : 0;
    T to_feature = 0;
    for (std::int64_t e = begin; e < end; ++e) {
      const std::int64_t p = entry[e] / neighbours;
      const T* const query = s.query + 3 * p;
      const T* const of_sample = of_sums + p * rings.count * (features + 1);
      const T d = distance_between(x, query);
      T slope = 0;  // of the loss in d: this lane's share
      for (int r = 0; r < rings.count; ++r) {
        const T z = (d - rings.radius[r]) * rings.per_bandwidth[r], w = exp_of(-z * z);
        if (!(w > 0)) continue;  // far away, perhaps so far that z is infinite
        const T* const of_ring = of_sample + r * (features + 1);
        const T of_sum = f < features ? of_ring[f] : 0;
        const T of_mass = f == 0 ? of_ring[features] : 0;
        to_feature += w * of_sum;
        slope -= 2 * (of_sum * feature + of_mass) * w * z * rings.per_bandwidth[r];
      }
      if (d > 0) {
        const T along = slope / d;
#pragma unroll
        for (int a = 0; a < 3; ++a) to_x[a] += along * (x[a] - query[a]);
      }
    }
    if (is_there && f < features) grad_feature[j * features + f] = to_feature;
  }
#pragma unroll
  for (int a = 0; a < 3; ++a) {
    const T all = sum_lanes<kLanes>(to_x[a]);
    if (is_there && lane == a) grad_position[3 * j + a] = all;
  }
}

// Where a backward pass keeps what; without memory it only counts.
template <class T>
struct BackwardSpace {
  T* of_sums;                          // [P, R, F + 1]
  std::uint32_t *key, *sorted_key;     // [P K]
  std::int32_t *entry, *sorted_entry;  // [P K]
  std::int64_t* entry_ptr;             // [M + 1]
  void* sort;
  std::size_t sort_bytes;
  int bits;

  BackwardSpace(const RingSums<T>& s, Arena& arena) {
    const std::int64_t entries = s.samples * s.neighbours;
    bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(s.particles)));
    of_sums = arena.take<T>(s.samples * s.rings * (s.features + 1));
    key = arena.take<std::uint32_t>(entries);
    sorted_key = arena.take<std::uint32_t>(entries);
    entry = arena.take<std::int32_t>(entries);
    sorted_entry = arena.take<std::int32_t>(entries);
    entry_ptr = arena.take<std::int64_t>(s.particles + 1);
    sort_bytes = SortPairs<std::uint32_t>::workspace_bytes(entries, bits);
    sort = arena.take<char>(static_cast<std::int64_t>(sort_bytes));
  }
};

// Calls run(lanes of a team) for rows of so many features.
template <class Run>
cudaError_t with_lanes(std::int64_t features, const Run& run) {
  if (features <= 4) return run.template operator()<4>();
  if (features <= 8) return run.template operator()<8>();
  if (features <= 16) return run.template operator()<16>();
  return run.template operator()<32>();
}

}  // namespace

template <class T>
cudaError_t ring_sums(const RingSums<T>& s, T* out, cudaStream_t stream) {
  if (s.samples == 0) return cudaSuccess;
  const DeviceRings<T> rings(s);
  return with_lanes(s.features, [&]<int kLanes>() {
    sum_rings<T, kLanes><<<blocks_for(s.samples * kLanes, kThreads), kThreads, 0, stream>>>(s, rings, out);
    return cudaGetLastError();
  });
}

template <class T>
std::size_t ring_sums_workspace(const RingSums<T>& s) {
  Arena arena(nullptr);
  const BackwardSpace<T> space(s, arena);
  return arena.used();
}

template <class T>
cudaError_t ring_sums_backward(const RingSums<T>& s, const T* out, const T* grad, T* grad_position,
                               T* grad_feature, void* workspace, cudaStream_t stream) {
  if (s.particles == 0) return cudaSuccess;
  Arena arena(workspace);
  const BackwardSpace<T> space(s, arena);
  const DeviceRings<T> rings(s);
  const std::int64_t entries = s.samples * s.neighbours;
  if (entries > 0) {
    entry_keys<<<blocks_for(entries, kThreads), kThreads, 0, stream>>>(
        s.index, entries, static_cast<std::uint32_t>(s.particles), space.key, space.entry);
    if (const cudaError_t status = cudaGetLastError()) return status;
    const cudaError_t status =
        SortPairs<std::uint32_t>::run(space.key, space.entry, entries, space.bits, space.sorted_key,
                                      space.sorted_entry, space.sort, space.sort_bytes, stream);
    if (status != cudaSuccess) return status;
  }
  const cudaError_t status =
      offsets_of_sorted(space.sorted_key, entries, s.particles, space.entry_ptr, stream);
  if (status != cudaSuccess) return status;
  return with_lanes(s.features, [&]<int kLanes>() {
    const std::int64_t count = s.samples * s.rings;
    if (count > 0) {
      gradients_of_sums<T, kLanes><<<blocks_for(count * kLanes, kThreads), kThreads, 0, stream>>>(
          count, static_cast<int>(s.features), out, grad, space.of_sums);
    }
    gradients_of_particles<T, kLanes><<<blocks_for(s.particles * kLanes, kThreads), kThreads, 0, stream>>>(
        s, rings, space.entry_ptr, space.sorted_entry, space.of_sums, grad_position, grad_feature);
    return cudaGetLastError();
  });
}

template cudaError_t ring_sums(const RingSums<float>&, float*, cudaStream_t);
template cudaError_t ring_sums(const RingSums<double>&, double*, cudaStream_t);
template std::size_t ring_sums_workspace(const RingSums<float>&);
template std::size_t ring_sums_workspace(const RingSums<double>&);
template cudaError_t ring_sums_backward(const RingSums<float>&, const float*, const float*, float*, float*,
                                        void*, cudaStream_t);
template cudaError_t ring_sums_backward(const RingSums<double>&, const double*, const double*, double*,
                                        double*, void*, cudaStream_t);

}  // namespace topomask::cuda
