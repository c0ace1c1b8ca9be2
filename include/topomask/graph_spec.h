// `--graph SPEC`: a file by its extension, or path:N, cycle:N, grid:HxW[xD][,diagonals][,wrap], hypercube:D,
// tree:DEPTH[,BRANCHING], er:N,P[,SEED], ba:N,M[,SEED], regular:N,D[,SEED], knn:FILE,K[,symmetric],
// torus:N,K[,SEED], karate.
#pragma once

#include <string>
#include <vector>

#include "topomask/graph.h"

namespace topomask {

struct NamedGraph {
  Graph graph;
  std::vector<std::string> names;  // [N] names in the file, or empty: node i is called i
};

NamedGraph load_graph(const std::string& spec, const GraphPolicy& policy = {});

std::vector<std::string> graph_generator_forms();  // "path:N", "cycle:N", ...

}  // namespace topomask
