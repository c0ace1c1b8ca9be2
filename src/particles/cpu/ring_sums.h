// What a point in space sees of the particles around it: with d_k the distance to neighbour k and rings of
// radius r and bandwidth b,
//
//   w_kr = exp(-((d_k - r) / b)^2),   m_r = sum_k w_kr,   mean_r = sum_k w_kr f_k / (m_r + 1e-3).
//
// The last keeps the mean of far particles small, and its gradient finite.
#pragma once

#include <cstdint>

namespace topomask {

inline constexpr std::int64_t kMaxRings = 16;
inline constexpr double kRingMargin = 1e-3;

// P samples with up to K neighbours among M particles of F features; R rings.
template <class T>
struct RingSums {
  std::int64_t samples = 0, neighbours = 0, particles = 0, features = 0, rings = 0;
  const T* position = nullptr;                           // [M, 3]
  const T* feature = nullptr;                            // [M, F]
  const T* query = nullptr;                              // [P, 3]
  const std::int32_t* index = nullptr;                   // [P, K] particles; -1: none
  const double *radius = nullptr, *bandwidth = nullptr;  // [R]
};

// out: [P, R, F + 1], mean_r and log(1 + m_r).
template <class T>
void ring_sums(const RingSums<T>& sums, T* out);

// `out` is the forward pass's, `grad` its gradient. grad_position: [M, 3] and grad_feature: [M, F] are
// written. Sums run in the order of the samples, whatever the threads. A distance of 0 has gradient 0.
template <class T>
void ring_sums_backward(const RingSums<T>& sums, const T* out, const T* grad, T* grad_position,
                        T* grad_feature);

}  // namespace topomask
