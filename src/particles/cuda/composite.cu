// With tau_s = sigma_s spacing, A_s = sum_{u < s} tau_u and w_s = exp(-A_s) (1 - exp(-tau_s)), a ray shows
// sum_s w_s c_s + exp(-A), where A is the sum of all. For L = sum_s w_s v_s + exp(-A) b,
//
//   dL/dtau_s = exp(-A_s - tau_s) v_s - sum_{u > s} w_u v_u - exp(-A) b.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "core/cuda/grid.h"
#include "particles/cuda/composite.h"

namespace topomask::cuda {

namespace {

constexpr int kThreads = 128;

template <class In>
struct WideOf {
  using type = float;
};
template <>
struct WideOf<double> {
  using type = double;
};
template <class In>
using Wide = typename WideOf<In>::type;

template <class T>
__device__ T sigmoid(T x) {
  return 1 / (1 + exp(-x));
}
// As ATen has it: beyond 20 it is x.
template <class T>
__device__ T softplus(T x) {
  return x > 20 ? x : log1p(exp(x));
}

// One ray as its thread sees it.
template <class In>
struct Ray {
  using T = Wide<In>;
  const In *density, *colour;
  const T* distance;
  T* in_front;
  int count;

  __device__ Ray(const Composite& c, std::int64_t ray)
      : density(static_cast<const In*>(c.density) + ray * c.places),
        colour(static_cast<const In*>(c.colour) + 3 * ray * c.places),
        distance(static_cast<const T*>(c.distance) + ray * c.places),
        in_front(static_cast<T*>(c.in_front) + ray * c.places),
        count(c.count[ray]) {}

  __device__ T logit(int s) const { return static_cast<T>(density[s]) - 1; }
  __device__ T shade(int s, int channel) const { return sigmoid(static_cast<T>(colour[3 * s + channel])); }
};

// One thread a ray: they are short.
template <class In>
__global__ void __launch_bounds__(kThreads)
    composite_rays(const __grid_constant__ Composite c, const __grid_constant__ CompositeOut out) {
  using T = Wide<In>;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= c.rays) return;
  const Ray<In> ray(c, i);
  const T scale = static_cast<T>(c.density_scale * c.spacing);
  T total = 0, red = 0, green = 0, blue = 0, depth = 0;
  for (int s = 0; s < ray.count; ++s) {
    ray.in_front[s] = total;
    const T tau = scale * softplus(ray.logit(s));
    const T weight = exp(-total) * -expm1(-tau);
    total += tau;
    red += weight * ray.shade(s, 0);
    green += weight * ray.shade(s, 1);
    blue += weight * ray.shade(s, 2);
    depth += weight * ray.distance[s];
  }
  const T through = exp(-total);
  T* const colour = static_cast<T*>(out.colour) + 3 * i;
  colour[0] = red + through;
  colour[1] = green + through;
  colour[2] = blue + through;
  static_cast<T*>(out.opacity)[i] = -expm1(-total);
  static_cast<T*>(out.depth)[i] = depth + through * static_cast<T>(c.farthest);
}

template <class In>
__global__ void __launch_bounds__(kThreads)
    composite_rays_backward(const __grid_constant__ Composite c,
                            const __grid_constant__ CompositeGradients g) {
  using T = Wide<In>;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= c.rays) return;
  const Ray<In> ray(c, i);
  const T scale = static_cast<T>(c.density_scale * c.spacing);
  T of_colour[3] = {};
  if (g.colour != nullptr) {
    for (int a = 0; a < 3; ++a) of_colour[a] = static_cast<const T*>(g.colour)[3 * i + a];
  }
  const T of_opacity = g.opacity == nullptr ? 0 : static_cast<const T*>(g.opacity)[i],
          of_depth = g.depth == nullptr ? 0 : static_cast<const T*>(g.depth)[i];
  In* const to_density = static_cast<In*>(g.of_density) + i * c.places;
  In* const to_colour = static_cast<In*>(g.of_colour) + 3 * i * c.places;
  for (int s = ray.count; s < c.places; ++s) {
    to_density[s] = static_cast<In>(T{0});
    for (int a = 0; a < 3; ++a) to_colour[3 * s + a] = static_cast<In>(T{0});
  }
  if (ray.count == 0) return;
  const int last = ray.count - 1;
  const T total = ray.in_front[last] + scale * softplus(ray.logit(last));
  // What is behind sample s: the background, and the samples that come after it.
  T behind = exp(-total) * (of_colour[0] + of_colour[1] + of_colour[2] +
                            of_depth * static_cast<T>(c.farthest) - of_opacity);
  for (int s = last; s >= 0; --s) {
    const T x = ray.logit(s), tau = scale * softplus(x), reaches = exp(-ray.in_front[s]);
    const T weight = reaches * -expm1(-tau);
    T value = of_depth * ray.distance[s];
    for (int a = 0; a < 3; ++a) {
      const T shade = ray.shade(s, a);
      value += of_colour[a] * shade;
      to_colour[3 * s + a] = static_cast<In>(weight * of_colour[a] * shade * (1 - shade));
    }
    to_density[s] = static_cast<In>((reaches * exp(-tau) * value - behind) * scale * sigmoid(x));
    behind += weight * value;
  }
}

template <class Run>
cudaError_t with_sample_type(SampleType type, const Run& run) {
  switch (type) {
    case SampleType::bfloat16:
      return run(__nv_bfloat16{});
    case SampleType::float16:
      return run(__half{});
    case SampleType::float64:
      return run(double{});
    default:
      return run(float{});
  }
}

}  // namespace

cudaError_t composite_forward(const Composite& c, const CompositeOut& out, cudaStream_t stream) {
  if (c.rays == 0) return cudaSuccess;
  return with_sample_type(c.type, [&](auto in) {
    composite_rays<decltype(in)><<<blocks_for(c.rays, kThreads), kThreads, 0, stream>>>(c, out);
    return cudaGetLastError();
  });
}

cudaError_t composite_backward(const Composite& c, const CompositeGradients& gradients, cudaStream_t stream) {
  if (c.rays == 0) return cudaSuccess;
  return with_sample_type(c.type, [&](auto in) {
    composite_rays_backward<decltype(in)>
        <<<blocks_for(c.rays, kThreads), kThreads, 0, stream>>>(c, gradients);
    return cudaGetLastError();
  });
}

}  // namespace topomask::cuda
