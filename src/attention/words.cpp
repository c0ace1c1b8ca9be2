#include "topomask/attention.h"

namespace topomask {

template <>
std::span<const Word<AttentionKind>> words<AttentionKind>() {
  static constexpr Word<AttentionKind> kWords[] = {
      {AttentionKind::linear, "linear", "(M . phi(Q) phi(K)^T) V over its row sums"},
      {AttentionKind::softmax, "softmax", "(M . exp(Q K^T / sqrt(d))) V over its row sums"},
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
      {Engine::automatic, "auto", "the one with the least predicted time"},
      {Engine::mask, "mask", "one fused pass over the entries of M"},
      {Engine::feature, "feature", "M times columns, the paper's form"},
      {Engine::dense, "dense", "with M written out"},
  };
  return kWords;
}

}  // namespace topomask
