#include "topomask/features.h"

namespace topomask {

template <>
std::span<const Word<LengthLaw>> words<LengthLaw>() {
  static constexpr Word<LengthLaw> kWords[] = {
      {LengthLaw::geometric, "geometric", "halt with probability p_halt at every node"},
      {LengthLaw::fixed, "fixed", "always max_hops"},
      {LengthLaw::survival, "survival", "any distribution, given as S(k) = Pr(length >= k)"},
  };
  return kWords;
}

template <>
std::span<const Word<StepLaw>> words<StepLaw>() {
  static constexpr Word<StepLaw> kWords[] = {
      {StepLaw::uniform, "uniform", "all neighbours equally likely"},
      {StepLaw::weighted, "weighted", "in proportion to |W|"},
  };
  return kWords;
}

template <>
std::span<const Word<Coupling>> words<Coupling>() {
  static constexpr Word<Coupling> kWords[] = {
      {Coupling::independent, "independent", "walkers do not interact"},
      {Coupling::antithetic, "antithetic", "pairs of walkers halt at opposite times"},
      {Coupling::repelling, "repelling", "walkers on one node spread over its neighbours"},
      {Coupling::both, "both", "antithetic and repelling"},
  };
  return kWords;
}

template <>
std::span<const Word<Ensembles>> words<Ensembles>() {
  static constexpr Word<Ensembles> kWords[] = {
      {Ensembles::shared, "shared", "keys use the walks of the queries: symmetric, diagonal biased upwards"},
      {Ensembles::independent, "independent", "keys have their own walks: unbiased"},
      {Ensembles::asymmetric, "asymmetric", "keys are one-hot: unbiased, M estimates sum_k f_k W^k"},
  };
  return kWords;
}

}  // namespace topomask
