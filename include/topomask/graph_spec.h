// A graph from one line: a file, or the name of a generator with its sizes. `--graph` on the command line and
// Graph.load in Python take the same lines and the same options.
#pragma once

#include <string>
#include <vector>

#include "topomask/graph.h"
#include "topomask/read_options.h"

namespace topomask {

struct LoadOptions {
  GraphPolicy policy;   // irregular edges, direction
  ReadOptions read;     // of files
  bool points = false;  // also give the positions of the nodes, where there are some
};

struct LoadedGraph {
  Graph graph;
  std::vector<std::string> names;     // [N] names in the file, or empty: node i is called i
  std::vector<std::string> warnings;  // a sentence each: what can be read but is hardly meant
  // [N, D] float where it was asked for: the points of knn and torus, the cells of grid, path and cycle; else
  // undefined.
  at::Tensor points = {};
};

// A word that is neither a generator nor a file suggests the nearest; sizes of zero are errors.
LoadedGraph load_graph(const std::string& spec, const LoadOptions& options = {});

// What load_graph understands besides files.
struct GraphForm {
  std::string name;         // "grid"
  std::string form;         // "grid:H[xW[xD]][,diagonals][,wrap]"
  std::string description;  // a few words
  std::string example;      // "grid:32x32"
};
const std::vector<GraphForm>& graph_forms();

// All of it for --help and docstrings: a line for files, a line for each generator.
std::string graph_forms_text();

}  // namespace topomask
