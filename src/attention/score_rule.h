// How the mask and the dense engine score a pair of nodes, on either device. Framework-free.
#pragma once

namespace topomask {

enum class ScoreKind {
  features,  // e_ij = <q_i, k_j>
  relu,      // the same of max(x, 0) + epsilon, which the kernels form as they load rows
  softmax,   // e_ij = exp(scale <q_i, k_j>)
};

// R: the type that a kernel computes in. Host code passes a ScoreRule, and as<R>() converts it once.
template <class R>
struct ScoreRuleOf {
  ScoreKind kind = ScoreKind::features;
  R scale = 1;    // softmax
  R epsilon = 0;  // relu
  R guard = 0;    // rows with |D_i| <= guard, D_i = sum_j M_ij e_ij, give 0 and pass no gradient

  constexpr bool is_softmax() const { return kind == ScoreKind::softmax; }
  constexpr bool is_relu() const { return kind == ScoreKind::relu; }
  template <class Other>
  constexpr ScoreRuleOf<Other> as() const {
    return {kind, static_cast<Other>(scale), static_cast<Other>(epsilon), static_cast<Other>(guard)};
  }
};
using ScoreRule = ScoreRuleOf<double>;

}  // namespace topomask
