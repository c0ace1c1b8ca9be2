#include "particles/cuda/ray_slots.h"

#include <bit>

#include "core/cuda/grid.h"
#include "core/cuda/lanes.cuh"

namespace topomask::cuda {

namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kFree = -1;
constexpr std::int64_t kAlongY = std::int64_t{1} << kCellBits, kAlongZ = std::int64_t{1} << (2 * kCellBits);

// As cell_key() of the CPU, operation by operation: this file is compiled without fused multiply-adds.
__device__ std::int64_t device_cell_key(double x, double y, double z, double per_cell) {
  constexpr auto kFarthest = static_cast<double>(kFarthestCell);
  const auto cell = [&](double along) {
    const double number = fmin(fmax(floor(along * per_cell), -kFarthest), kFarthest);
    return static_cast<std::int64_t>(number) + kFarthestCell + 1;
  };
  return cell(x) + cell(y) * kAlongY + cell(z) * kAlongZ;
}

__device__ std::uint64_t first_slot(std::int64_t key, std::uint64_t mask) {
  return (static_cast<std::uint64_t>(key) * 0x9E3779B97F4A7C15ull >> 20) & mask;
}

// Which slot a key gets is up to chance; which keys are there is not. There are at least twice as many slots
// as particles, so that every search ends.
__device__ void insert(std::int64_t* table, std::uint64_t mask, std::int64_t key) {
  for (std::uint64_t slot = first_slot(key, mask);; slot = (slot + 1) & mask) {
    std::int64_t there = table[slot];
    if (there == kFree) {
      there = static_cast<std::int64_t>(atomicCAS(reinterpret_cast<unsigned long long*>(table + slot),
                                                  static_cast<unsigned long long>(kFree),
                                                  static_cast<unsigned long long>(key)));
    }
    if (there == kFree || there == key) return;
  }
}

__device__ bool holds(const std::int64_t* table, std::uint64_t mask, std::int64_t key) {
  for (std::uint64_t slot = first_slot(key, mask);; slot = (slot + 1) & mask) {
    const std::int64_t there = __ldg(reinterpret_cast<const long long*>(table + slot));
    if (there == kFree) return false;
    if (there == key) return true;
  }
}

// One thread a particle.
template <class T>
__global__ void __launch_bounds__(kThreads)
    fill_tables(const RaySlots s, std::int64_t table_size, double per_cell) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= s.clouds * s.particles) return;
  const T* at = static_cast<const T*>(s.position) + 3 * i;
  const double x = static_cast<double>(at[0]), y = static_cast<double>(at[1]), z = static_cast<double>(at[2]);
  if (!isfinite(x) || !isfinite(y) || !isfinite(z)) return;
  insert(s.table + i / s.particles * table_size, static_cast<std::uint64_t>(table_size - 1),
         device_cell_key(x, y, z, per_cell));
}

// One warp a ray, 32 steps at once. A cell and those that touch it are looked up by 27 lanes together, once
// for all steps in a row that fall into it.
template <class T>
__global__ void __launch_bounds__(kThreads)
    march(const RaySlots s, std::int64_t table_size, double per_cell) {
  const std::int64_t ray = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarpSize;
  if (ray >= s.clouds * s.rays) return;  // whole warps
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const std::int64_t* table = s.table + ray / s.rays * table_size;
  const auto mask = static_cast<std::uint64_t>(table_size - 1);
  const std::int64_t beside = (lane % 3 - 1) + (lane / 3 % 3 - 1) * kAlongY + (lane / 9 % 3 - 1) * kAlongZ;
  const double *origin = s.origin + 3 * ray, *direction = s.direction + 3 * ray;
  T *query = static_cast<T*>(s.query) + 3 * ray * s.steps.limit,
    *distance = static_cast<T*>(s.distance) + ray * s.steps.limit;
  std::int64_t found = 0;
  for (std::int64_t first = 0; first < s.steps.steps && found < s.steps.limit; first += kWarpSize) {
    const std::int64_t step = first + lane;
    const bool is_there = step < s.steps.steps;
    const double t = s.steps.nearest + (static_cast<double>(step) + 0.5) * s.steps.spacing;
    const double x = origin[0] + t * direction[0], y = origin[1] + t * direction[1],
                 z = origin[2] + t * direction[2];
    const std::int64_t key = device_cell_key(x, y, z, per_cell);
    const std::int64_t before = __shfl_up_sync(~0u, key, 1);
    unsigned heads = __ballot_sync(~0u, is_there && (lane == 0 || key != before)), occupied = 0;
    while (heads != 0) {
      const int head = __ffs(static_cast<int>(heads)) - 1;
      heads &= heads - 1;
      const std::int64_t cell = __shfl_sync(~0u, key, head);
      if (__any_sync(~0u, lane < 27 && holds(table, mask, cell + beside))) {
        const int next = heads == 0 ? kWarpSize : __ffs(static_cast<int>(heads)) - 1;
        occupied |= (next == kWarpSize ? ~0u : (1u << next) - 1) & ~((1u << head) - 1);
      }
    }
    occupied &= __ballot_sync(~0u, is_there);
    const std::int64_t place = found + __popc(occupied & ((1u << lane) - 1));
    if ((occupied >> lane & 1) != 0 && place < s.steps.limit) {
      query[3 * place] = static_cast<T>(x);
      query[3 * place + 1] = static_cast<T>(y);
      query[3 * place + 2] = static_cast<T>(z);
      distance[place] = static_cast<T>(t);
    }
    found += __popc(occupied);
  }
  found = min(found, s.steps.limit);
  const T nothing = static_cast<T>(__longlong_as_double(0x7FF8000000000000));
  for (std::int64_t place = found + lane; place < s.steps.limit; place += kWarpSize) {
    query[3 * place] = query[3 * place + 1] = query[3 * place + 2] = nothing;
    distance[place] = 0;
  }
  if (lane == 0) s.count[ray] = static_cast<std::int32_t>(found);
}

template <class T>
cudaError_t take_slots(const RaySlots& s, cudaStream_t stream) {
  const std::int64_t size = cell_table_size(s.particles);
  // All bits set is kFree.
  const auto bytes = static_cast<std::size_t>(s.clouds * size) * sizeof(std::int64_t);
  if (const cudaError_t status = cudaMemsetAsync(s.table, 0xFF, bytes, stream)) return status;
  const double per_cell = s.steps.per_cell();
  if (s.particles > 0)
    fill_tables<T><<<blocks_for(s.clouds * s.particles, kThreads), kThreads, 0, stream>>>(s, size, per_cell);
  march<T><<<blocks_for(s.clouds * s.rays * kWarpSize, kThreads), kThreads, 0, stream>>>(s, size, per_cell);
  return cudaGetLastError();
}

}  // namespace

std::int64_t cell_table_size(std::int64_t particles) {
  return static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(particles < 8 ? 16 : 2 * particles)));
}

cudaError_t take_ray_slots(const RaySlots& slots, cudaStream_t stream) {
  if (slots.clouds * slots.rays == 0) return cudaSuccess;
  return slots.is_double ? take_slots<double>(slots, stream) : take_slots<float>(slots, stream);
}

}  // namespace topomask::cuda
