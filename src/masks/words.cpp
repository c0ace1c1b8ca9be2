#include "topomask/masks.h"

namespace topomask {

template <>
std::span<const Word<OffsetTransform>> words<OffsetTransform>() {
  static constexpr Word<OffsetTransform> kWords[] = {
      {OffsetTransform::none, "none", "M_ij = b_{j-i}"},
      {OffsetTransform::exponential, "exponential", "M_ij = exp(b_{j-i})"},
      {OffsetTransform::absolute, "absolute", "M_ij = |b_{j-i}|"},
  };
  return kWords;
}

template <>
std::span<const Word<HypercubeHeatMask::Laplacian>> words<HypercubeHeatMask::Laplacian>() {
  static constexpr Word<HypercubeHeatMask::Laplacian> kWords[] = {
      {HypercubeHeatMask::Laplacian::combinatorial, "combinatorial", "L = D - A"},
      {HypercubeHeatMask::Laplacian::normalised, "normalised", "L = I - A / d"},
  };
  return kWords;
}

}  // namespace topomask
