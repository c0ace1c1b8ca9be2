#include "topomask/graph_spec.h"

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <filesystem>
#include <new>
#include <span>
#include <string_view>

#include "core/check.h"
#include "core/suggest.h"
#include "graph/cpu/rows.h"
#include "topomask/graph_builders.h"
#include "topomask/graph_io.h"

namespace topomask {
namespace {

// The arguments after the colon, taken one after the other. Every complaint names the whole specification.
class Arguments {
 public:
  Arguments(const std::string& spec, std::string_view form) : spec_(spec), form_(form) {
    const std::size_t colon = spec.find(':');
    if (colon == std::string::npos) return;
    std::string_view rest = std::string_view(spec).substr(colon + 1);
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
  std::string_view text(std::string_view what) {
    if (next_ >= parts_.size() || parts_[next_].empty())
      complain(fmt::format("expected {}, got nothing", what));
    return parts_[next_++];
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
    fail("--graph {}: {} (the form is {})", spec_, problem, form_);
  }

 private:
  const std::string& spec_;
  std::string_view form_;
  std::vector<std::string_view> parts_;
  std::size_t next_ = 0;
};

Graph make_path(Arguments& arguments) {
  const auto num_nodes = arguments.number<std::int64_t>("the number of nodes");
  arguments.finish();
  return path_graph(num_nodes);
}

Graph make_cycle(Arguments& arguments) {
  const auto num_nodes = arguments.number<std::int64_t>("the number of nodes");
  arguments.finish();
  return cycle_graph(num_nodes);
}

Graph make_grid(Arguments& arguments) {
  constexpr std::array<std::string_view, 2> kFlags = {"diagonals", "wrap"};
  std::vector<std::int64_t> extent;
  std::string_view sizes = arguments.text("its extents");
  for (bool more = true; more;) {
    const std::size_t cross = sizes.find('x');
    more = cross != std::string_view::npos;
    extent.push_back(arguments.parse<std::int64_t>(sizes.substr(0, cross), "an extent"));
    if (more) sizes.remove_prefix(cross + 1);
  }
  if (extent.size() > 3) arguments.complain(fmt::format("expected 1 to 3 extents, got {}", extent.size()));
  GridOptions options;
  options.diagonals = arguments.flag("diagonals");
  options.wrap = arguments.flag("wrap");
  arguments.finish(kFlags);
  return grid_graph(extent, options);
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
  const auto num_nodes = arguments.number<std::int64_t>("the number of nodes");
  const auto probability = arguments.number<double>("the probability");
  const auto seed = arguments.number_or<std::uint64_t>("the seed", 0);
  arguments.finish();
  return erdos_renyi(num_nodes, probability, seed);
}

Graph make_barabasi_albert(Arguments& arguments) {
  const auto num_nodes = arguments.number<std::int64_t>("the number of nodes");
  const auto edges_per_node = arguments.number<std::int64_t>("the edges per node");
  const auto seed = arguments.number_or<std::uint64_t>("the seed", 0);
  arguments.finish();
  return barabasi_albert(num_nodes, edges_per_node, seed);
}

Graph make_random_regular(Arguments& arguments) {
  const auto num_nodes = arguments.number<std::int64_t>("the number of nodes");
  const auto degree = arguments.number<std::int64_t>("the degree");
  const auto seed = arguments.number_or<std::uint64_t>("the seed", 0);
  arguments.finish();
  return random_regular(num_nodes, degree, seed);
}

Graph make_knn(Arguments& arguments) {
  constexpr std::array<std::string_view, 1> kFlags = {"symmetric"};
  const std::string file(arguments.text("a file of points"));
  KnnOptions options;
  options.k = arguments.number<std::int64_t>("the number of neighbours");
  options.symmetric = arguments.flag("symmetric");
  arguments.finish(kFlags);
  Points points = read_points_file(file);
  return knn_graph(at::from_blob(points.coordinate.data(), {points.count, points.dimension}, at::kFloat),
                   options);
}

Graph make_torus(Arguments& arguments) {
  const auto num_points = arguments.number<std::int64_t>("the number of points");
  KnnOptions options;
  options.k = arguments.number<std::int64_t>("the number of neighbours");
  options.symmetric = true;
  const auto seed = arguments.number_or<std::uint64_t>("the seed", 0);
  arguments.finish();
  return knn_graph(torus_points(num_points, seed), options);
}

Graph make_karate(Arguments& arguments) {
  arguments.finish();
  return karate_club();
}

struct Generator {
  std::string_view name, form;
  Graph (*make)(Arguments&);
};

constexpr std::array kGenerators = {
    Generator{"path", "path:N", make_path},
    Generator{"cycle", "cycle:N", make_cycle},
    Generator{"grid", "grid:HxW[xD][,diagonals][,wrap]", make_grid},
    Generator{"hypercube", "hypercube:D", make_hypercube},
    Generator{"tree", "tree:DEPTH[,BRANCHING]", make_tree},
    Generator{"er", "er:N,P[,SEED]", make_erdos_renyi},
    Generator{"ba", "ba:N,M[,SEED]", make_barabasi_albert},
    Generator{"regular", "regular:N,D[,SEED]", make_random_regular},
    Generator{"knn", "knn:FILE,K[,symmetric]", make_knn},
    Generator{"torus", "torus:N,K[,SEED]", make_torus},
    Generator{"karate", "karate", make_karate},
};

const Generator* find_generator(std::string_view name) {
  for (const Generator& generator : kGenerators) {
    if (generator.name == name) return &generator;
  }
  return nullptr;
}

// A word that is neither a generator nor a file: most likely a misspelt generator, unless it looks like a
// path.
void check_is_file(const std::string& spec, std::string_view name) {
  const bool looks_like_path =
      spec.find('/') != std::string::npos || name.find('.') != std::string_view::npos;
  std::error_code ignored;
  if (looks_like_path || std::filesystem::exists(spec, ignored)) return;
  std::vector<std::string> names;
  for (const Generator& generator : kGenerators) names.emplace_back(generator.name);
  const std::string near = did_you_mean(name, names);
  fail("--graph {}: '{}' is neither a file nor the name of a generator ({}){}", spec, name,
       fmt::join(names, ", "), near);
}

// Generated graphs have no parallel edges and no self-loops; the rest of the policy can matter.
NamedGraph apply_policy(Graph graph, const GraphPolicy& policy) {
  const bool unchanged =
      policy.isolated == Isolated::keep && policy.components == Components::keep &&
      (policy.direction == Direction::as_read || (policy.direction == Direction::directed) == graph.directed);
  if (unchanged) return {std::move(graph), {}};
  EdgeList edges = edges_of(graph.view(), graph.directed || policy.direction == Direction::directed);
  BuiltRows built = build_rows(edges, policy);
  NamedGraph result;
  result.graph = Graph::from_csr(std::move(built.rows), built.directed);
  for (const std::int32_t old : built.kept) result.names.push_back(std::to_string(old));
  return result;
}

NamedGraph load_file(const std::string& path, const GraphPolicy& policy) {
  EdgeList edges = read_graph_file(path);
  BuiltRows built = build_rows(edges, policy);
  NamedGraph result;
  result.graph = Graph::from_csr(std::move(built.rows), built.directed);
  if (built.all_kept) {
    result.names = std::move(edges.names);
    return result;
  }
  for (const std::int32_t old : built.kept) {
    result.names.push_back(edges.names.empty() ? std::to_string(old) : std::move(edges.names[old]));
  }
  return result;
}

}  // namespace

std::vector<std::string> graph_generator_forms() {
  std::vector<std::string> forms;
  for (const Generator& generator : kGenerators) forms.emplace_back(generator.form);
  return forms;
}

NamedGraph load_graph(const std::string& spec, const GraphPolicy& policy) {
  const std::size_t colon = spec.find(':');
  const std::string_view name = std::string_view(spec).substr(0, colon);
  check(!spec.empty(), "--graph: expected a file or a generator such as grid:32x32, got nothing");
  try {
    if (const Generator* generator = find_generator(name)) {
      Arguments arguments(spec, generator->form);
      return apply_policy(generator->make(arguments), policy);
    }
    check_is_file(spec, name);
    return load_file(spec, policy);
  } catch (const std::bad_alloc&) {
    fail("--graph {}: the graph does not fit into memory", spec);
  }
}

}  // namespace topomask
