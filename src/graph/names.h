// What users call the options of graphs.
#pragma once

#include "core/names.h"
#include "topomask/graph.h"

namespace topomask {

inline constexpr Named<Normalisation> kNormalisationNames[] = {{"none", Normalisation::none},
                                                               {"symmetric", Normalisation::symmetric},
                                                               {"random-walk", Normalisation::random_walk},
                                                               {"max-degree", Normalisation::max_degree}};
inline constexpr Named<Duplicates> kDuplicatesNames[] = {
    {"keep", Duplicates::keep}, {"drop", Duplicates::drop}, {"sum", Duplicates::sum}};
inline constexpr Named<SelfLoops> kSelfLoopsNames[] = {{"keep", SelfLoops::keep}, {"drop", SelfLoops::drop}};
inline constexpr Named<Isolated> kIsolatedNames[] = {{"keep", Isolated::keep}, {"drop", Isolated::drop}};
inline constexpr Named<Components> kComponentsNames[] = {{"keep", Components::keep},
                                                         {"drop", Components::drop}};
inline constexpr Named<Direction> kDirectionNames[] = {{"as-read", Direction::as_read},
                                                       {"directed", Direction::directed},
                                                       {"undirected", Direction::undirected}};

}  // namespace topomask
