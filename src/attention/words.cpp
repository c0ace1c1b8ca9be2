#include "topomask/attention.h"

namespace topomask {

template <>
std::span<const Word<AttentionKind>> words<AttentionKind>() {
  static constexpr Word<AttentionKind> kWords[] = {
      {AttentionKind::linear, "linear", "(M . phi(Q) phi(K)^T) V, divided by the row sums"},
      {AttentionKind::softmax, "softmax", "(M . exp(Q K^T / sqrt(d))) V, divided by the row sums"},
  };
  return kWords;
}

template <>
std::span<const Word<FeatureMapKind>> words<FeatureMapKind>() {
  static constexpr Word<FeatureMapKind> kWords[] = {
      {FeatureMapKind::relu, "relu", "max(x, 0) + epsilon"},
      {FeatureMapKind::elu1, "elu1", "elu(x) + 1"},
      {FeatureMapKind::squared_relu, "squared-relu", "max(x, 0)^2 + epsilon"},
      {FeatureMapKind::identity, "identity", "x, for q and k that are features already"},
      {FeatureMapKind::favor, "favor", "positive random features of the softmax kernel (FAVOR+)"},
  };
  return kWords;
}

template <>
std::span<const Word<Engine>> words<Engine>() {
  static constexpr Word<Engine> kWords[] = {
      {Engine::automatic, "auto", "the engine with the least predicted time"},
      {Engine::mask, "mask", "one fused pass over the entries of M"},
      {Engine::feature, "feature", "products of M with columns, as in the paper"},
      {Engine::dense, "dense", "with M as a dense matrix"},
  };
  return kWords;
}

}  // namespace topomask
