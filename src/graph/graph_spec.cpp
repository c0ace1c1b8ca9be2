#include "topomask/graph_spec.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/meshgrid.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <new>
#include <span>
#include <string_view>

#include "core/check.h"
#include "core/numbers.h"
#include "core/suggest.h"
#include "graph/cpu/rows.h"
#include "graph/tensors.h"
#include "topomask/graph_builders.h"
#include "topomask/graph_io.h"
#include "topomask/partition.h"

namespace topomask {
namespace {

// The arguments after the colon, taken one after the other.
class Arguments {
 public:
  Arguments(std::string_view spec, std::string_view form, const LoadOptions& options)
      : read(options.read), want_points(options.points), form_(form) {
    const std::size_t colon = spec.find(':');
    if (colon == std::string_view::npos) return;
    std::string_view rest = all_ = spec.substr(colon + 1);
    for (std::size_t comma; (comma = rest.find(',')) != std::string_view::npos;
         rest.remove_prefix(comma + 1)) {
      parts_.push_back(rest.substr(0, comma));
    }
    parts_.push_back(rest);
  }

  template <class T>
  T number(std::string_view what) {
    return parse<T>(text(what), what);
  }
  template <class T>
  T number_or(std::string_view what, T otherwise) {
    return next_ < parts_.size() ? number<T>(what) : otherwise;
  }
  // The library can make a graph without nodes or neighbours, but a description of one is a mistake.
  std::int64_t size(std::string_view what) {
    const auto value = number<std::int64_t>(what);
    if (value < 1) complain(fmt::format("expected at least 1 for {}, got {}", what, value));
    return value;
  }
  std::int64_t size_or(std::string_view what, std::int64_t otherwise) {
    return next_ < parts_.size() ? size(what) : otherwise;
  }
  std::string_view text(std::string_view what) {
    if (next_ >= parts_.size() || parts_[next_].empty())
      complain(fmt::format("expected {}, got nothing", what));
    return parts_[next_++];
  }
  // Everything, commas included.
  std::string_view whole(std::string_view what) {
    if (all_.empty()) complain(fmt::format("expected {}, got nothing", what));
    next_ = parts_.size();
    return all_;
  }
  // Takes `word` if it is one of the parts that are left.
  bool flag(std::string_view word) {
    for (std::size_t i = next_; i < parts_.size(); ++i) {
      if (parts_[i] != word) continue;
      parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
    return false;
  }
  void finish(std::span<const std::string_view> flags = {}) const {
    if (next_ < parts_.size()) {
      complain(
          fmt::format("'{}' is one argument too many{}", parts_[next_], did_you_mean(parts_[next_], flags)));
    }
  }

  template <class T>
  T parse(std::string_view part, std::string_view what) const {
    T value{};
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error == std::errc::result_out_of_range) complain(fmt::format("{} '{}' is out of range", what, part));
    if (part.empty() || error != std::errc() || end != part.data() + part.size()) {
      complain(fmt::format("expected a number for {}, got '{}'", what, part));
    }
    return value;
  }
  [[noreturn]] void complain(const std::string& problem) const {
    fail("{} (the form is {})", problem, form_);
  }

  const ReadOptions& read;
  const bool want_points;
  // Besides the graph, as in LoadedGraph.
  std::vector<std::string> names;
  at::Tensor points;

 private:
  std::string_view form_, all_;
  std::vector<std::string_view> parts_;
  std::size_t next_ = 0;
};

// The cells of a grid, by their coordinates.
at::Tensor cells_of(const std::vector<std::int64_t>& extent) {
  std::vector<at::Tensor> axes;
  for (const std::int64_t size : extent) axes.push_back(at::arange(size, at::kLong).to(at::kFloat));
  return at::stack(at::meshgrid(axes, "ij"), -1).flatten(0, -2);
}

template <Graph (*build_line)(std::int64_t)>
Graph make_line(Arguments& arguments) {
  const auto num_nodes = arguments.size("the number of nodes");
  arguments.finish();
  Graph graph = build_line(num_nodes);
  if (arguments.want_points) arguments.points = cells_of({num_nodes});
  return graph;
}

Graph make_grid(Arguments& arguments) {
  constexpr std::array<std::string_view, 2> kFlags = {"diagonals", "wrap"};
  const std::string_view sizes = arguments.text("its extent");
  const std::vector<std::int64_t> extent = parse_extent(sizes);
  if (extent.empty())
    arguments.complain(fmt::format("expected an extent of 1 to 3 sizes of at least 1, got '{}'", sizes));
  GridOptions options;
  options.diagonals = arguments.flag("diagonals");
  options.wrap = arguments.flag("wrap");
  arguments.finish(kFlags);
  Graph graph = grid_graph(extent, options);  // checks the extents
  if (arguments.want_points) arguments.points = cells_of(extent);
  return graph;
}

Graph make_hypercube(Arguments& arguments) {
  const int dimension = arguments.number<int>("the dimension");
  arguments.finish();
  return hypercube_graph(dimension);
}

Graph make_tree(Arguments& arguments) {
  const int depth = arguments.number<int>("the depth");
  const int branching = arguments.number_or<int>("the branching", 2);
  arguments.finish();
  return complete_tree(depth, branching);
}

Graph make_erdos_renyi(Arguments& arguments) {
  const auto num_nodes = arguments.size("the number of nodes");
  const auto probability = arguments.number<double>("the probability");
  const auto seed = arguments.number_or<std::uint64_t>("the seed", 0);
  arguments.finish();
  return erdos_renyi(num_nodes, probability, seed);
}

Graph make_barabasi_albert(Arguments& arguments) {
  const auto num_nodes = arguments.size("the number of nodes");
  const auto edges_per_node = arguments.size("the edges per node");
  const auto seed = arguments.number_or<std::uint64_t>("the seed", 0);
  arguments.finish();
  return barabasi_albert(num_nodes, edges_per_node, seed);
}

Graph make_random_regular(Arguments& arguments) {
  const auto num_nodes = arguments.size("the number of nodes");
  const auto degree = arguments.size("the degree");
  const auto seed = arguments.number_or<std::uint64_t>("the seed", 0);
  arguments.finish();
  return random_regular(num_nodes, degree, seed);
}

// Floats where they hold every coordinate as it is: neighbours are found faster among them.
at::Tensor tensor_of(const Points& points) {
  const at::Tensor wide = at::from_blob(const_cast<double*>(points.coordinate.data()),
                                        {points.count, points.dimension}, at::kDouble);
  const bool narrow = std::all_of(points.coordinate.begin(), points.coordinate.end(),
                                  [](double x) { return static_cast<double>(static_cast<float>(x)) == x; });
  return narrow ? wide.to(at::kFloat) : wide.clone();
}

Graph make_knn(Arguments& arguments) {
  constexpr std::array<std::string_view, 1> kFlags = {"symmetric"};
  const std::string file(arguments.text("a file of points"));
  KnnOptions options;
  options.symmetric |= arguments.flag("symmetric");
  options.k = arguments.size_or("the number of neighbours", options.k);
  arguments.finish(kFlags);
  const at::Tensor points = tensor_of(read_points_file(file, arguments.read));
  if (arguments.want_points) arguments.points = points.to(at::kFloat);
  return knn_graph(points, options);
}

Graph make_torus(Arguments& arguments) {
  const auto num_points = arguments.size("the number of points");
  KnnOptions options;
  options.k = arguments.size("the number of neighbours");
  options.symmetric = true;
  const auto seed = arguments.number_or<std::uint64_t>("the seed", 0);
  arguments.finish();
  const at::Tensor points = torus_points(num_points, seed);
  if (arguments.want_points) arguments.points = points;
  return knn_graph(points, options);
}

Graph make_karate(Arguments& arguments) {
  arguments.finish();
  return karate_club();
}

Graph make_from_shards(Arguments& arguments) {
  ShardedGraph whole = read_shards(std::string(arguments.whole("a folder of shards")));
  arguments.names = std::move(whole.names);
  return std::move(whole.graph);
}

struct Generator {
  std::string_view name, form, description, example;
  Graph (*make)(Arguments&);
};

constexpr std::array kGenerators = {
    Generator{"karate", "karate", "Zachary's karate club: 34 nodes, 78 edges", "karate", make_karate},
    Generator{"path", "path:N", "N nodes in a row", "path:100", make_line<path_graph>},
    Generator{"cycle", "cycle:N", "N nodes in a ring", "cycle:100", make_line<cycle_graph>},
    Generator{"grid", "grid:H[xW[xD]][,diagonals][,wrap]",
              "A grid; optionally with diagonals, or wrapped to a torus", "grid:32x32", make_grid},
    Generator{"hypercube", "hypercube:D", "2^D nodes that differ in one bit from their neighbours",
              "hypercube:10", make_hypercube},
    Generator{"tree", "tree:DEPTH[,BRANCHING]", "A complete tree; BRANCHING is 2 by default", "tree:8",
              make_tree},
    Generator{"er", "er:N,P[,SEED]", "Erdos-Renyi: each pair is joined with probability P", "er:1000,0.01",
              make_erdos_renyi},
    Generator{"ba", "ba:N,M[,SEED]", "Barabasi-Albert: each new node is joined to M others by their degree",
              "ba:10000,4", make_barabasi_albert},
    Generator{"regular", "regular:N,D[,SEED]", "A random graph where all nodes have degree D",
              "regular:1000,4", make_random_regular},
    Generator{"knn", "knn:FILE[,K][,symmetric]",
              "Points joined to their K nearest (K is 3 by default), directed or symmetric",
              "knn:points.ply,8,symmetric", make_knn},
    Generator{"torus", "torus:N,K[,SEED]",
              "K nearest neighbours of N random points on a torus in space, symmetric", "torus:32768,8",
              make_torus},
    Generator{"shards", "shards:DIR", "The graph that `topomask partition` wrote to a folder", "shards:parts",
              make_from_shards},
};

const Generator* find_generator(std::string_view name) {
  for (const Generator& generator : kGenerators) {
    if (generator.name == name) return &generator;
  }
  return nullptr;
}

// A word that is neither a generator nor a file is most likely a misspelt generator, unless it looks like a
// path.
void check_is_file(const std::string& spec, std::string_view name) {
  const bool looks_like_path =
      spec.find('/') != std::string::npos || name.find('.') != std::string_view::npos;
  std::error_code ignored;
  if (looks_like_path || std::filesystem::exists(spec, ignored)) return;
  std::vector<std::string> names;
  for (const Generator& generator : kGenerators) names.emplace_back(generator.name);
  const std::string near = did_you_mean(name, names);
  fail("graph '{}': '{}' is neither a file nor the name of a generator ({}){}", spec, name,
       fmt::join(names, ", "), near);
}

LoadedGraph generate(const Generator& generator, const std::string& spec, const LoadOptions& options) {
  try {
    Arguments arguments(spec, generator.form, options);
    LoadedGraph loaded;
    loaded.graph = generator.make(arguments);
    loaded.names = std::move(arguments.names);
    loaded.points = std::move(arguments.points);
    return loaded;
  } catch (const Error& error) {
    fail("graph '{}': {}", spec, error.what());
  }
}

// Names of the nodes that are left; empty where each keeps its number.
std::vector<std::string> names_of_kept(const BuiltRows& built, std::vector<std::string> names) {
  if (built.all_kept) return names;
  std::vector<std::string> kept;
  kept.reserve(built.kept.size());
  for (const std::int32_t old : built.kept) {
    kept.push_back(names.empty() ? std::to_string(old) : std::move(names[static_cast<std::size_t>(old)]));
  }
  return kept;
}

LoadedGraph build(EdgeList edges, const std::string& spec, const GraphPolicy& policy,
                  const at::Tensor& points = {}) {
  BuiltRows built = build_rows(edges, policy);
  LoadedGraph result;
  if (points.defined()) {
    result.points = built.all_kept ? points : points.index_select(0, order_tensor(built.kept));
  }
  result.graph = Graph::from_csr(std::move(built.rows), built.directed);
  result.names = names_of_kept(built, std::move(edges.names));
  result.warnings = std::move(edges.warnings);
  if (edges.num_nodes > 0 && result.graph.num_nodes() == 0) {
    result.warnings.push_back(
        fmt::format("{}: no node is left of {} without those that are isolated", spec, edges.num_nodes));
  }
  return result;
}

// Generated graphs have no parallel edges and no self-loops; the rest of the policy can matter. Shards were
// written under a policy, and stay as they are unless another one than the default is asked for.
LoadedGraph apply_policy(LoadedGraph loaded, bool generated, const std::string& spec,
                         const GraphPolicy& policy) {
  const Graph& graph = loaded.graph;
  const bool simple =
      generated || (policy.duplicates != Duplicates::sum && policy.self_loops == SelfLoops::keep);
  const bool unchanged =
      simple && policy.isolated == Isolated::keep && policy.components == Components::keep &&
      (policy.direction == Direction::as_read || (policy.direction == Direction::directed) == graph.directed);
  if (unchanged) return loaded;
  EdgeList edges = edges_of(graph.view(), graph.directed || policy.direction == Direction::directed);
  edges.names = std::move(loaded.names);
  return build(std::move(edges), spec, policy, loaded.points);
}

}  // namespace

LoadedGraph load_graph(const std::string& spec, const LoadOptions& options) {
  const std::string_view name = std::string_view(spec).substr(0, spec.find(':'));
  check(!spec.empty(), "graph '': expected a file or a generator such as grid:32x32, got nothing");
  try {
    if (const Generator* generator = find_generator(name))
      return apply_policy(generate(*generator, spec, options), generator->make != make_from_shards, spec,
                          options.policy);
    check_is_file(spec, name);
    return build(read_graph_file(spec, options.read), spec, options.policy);
  } catch (const std::bad_alloc&) {
    fail("graph '{}': it does not fit into memory", spec);
  }
}

const std::vector<GraphForm>& graph_forms() {
  static const std::vector<GraphForm> forms = [] {
    std::vector<GraphForm> all;
    for (const Generator& g : kGenerators) {
      all.push_back(
          {std::string(g.name), std::string(g.form), std::string(g.description), std::string(g.example)});
    }
    return all;
  }();
  return forms;
}

std::string graph_forms_text() {
  std::string text =
      fmt::format("  {:<34}{} (also .gz .xz)\n", "FILE", fmt::join(graph_file_extensions(), " "));
  for (const GraphForm& form : graph_forms()) {
    text += fmt::format("  {:<34}{}\n", form.form, form.description);
  }
  return text;
}

}  // namespace topomask
