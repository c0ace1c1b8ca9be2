#include "topomask/graph.h"

namespace topomask {

template <>
std::span<const Word<Normalisation>> words<Normalisation>() {
  static constexpr Word<Normalisation> kWords[] = {
      {Normalisation::none, "none", "W = A"},
      {Normalisation::symmetric, "symmetric", "W = D^-1/2 A D^-1/2"},
      {Normalisation::random_walk, "random-walk", "W = D^-1 A"},
      {Normalisation::max_degree, "max-degree", "W = A / max_ij |A_ij| d_i"},
  };
  return kWords;
}

template <>
std::span<const Word<Duplicates>> words<Duplicates>() {
  static constexpr Word<Duplicates> kWords[] = {
      {Duplicates::keep, "keep", "keep all of them"},
      {Duplicates::drop, "drop", "keep the first"},
      {Duplicates::sum, "sum", "add their weights"},
  };
  return kWords;
}

template <>
std::span<const Word<SelfLoops>> words<SelfLoops>() {
  static constexpr Word<SelfLoops> kWords[] = {
      {SelfLoops::keep, "keep", "keep them"},
      {SelfLoops::drop, "drop", "remove them"},
  };
  return kWords;
}

template <>
std::span<const Word<Isolated>> words<Isolated>() {
  static constexpr Word<Isolated> kWords[] = {
      {Isolated::keep, "keep", "keep them"},
      {Isolated::drop, "drop", "remove them and renumber the nodes"},
  };
  return kWords;
}

template <>
std::span<const Word<Components>> words<Components>() {
  static constexpr Word<Components> kWords[] = {
      {Components::keep, "keep", "keep all"},
      {Components::drop, "drop", "keep the largest and renumber the nodes"},
  };
  return kWords;
}

template <>
std::span<const Word<Direction>> words<Direction>() {
  static constexpr Word<Direction> kWords[] = {
      {Direction::as_read, "as-read", "as in the file"},
      {Direction::directed, "directed", "every edge one way"},
      {Direction::undirected, "undirected", "every edge both ways"},
  };
  return kWords;
}

}  // namespace topomask
