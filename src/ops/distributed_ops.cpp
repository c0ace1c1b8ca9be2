// Graphs and masks over ranks, as objects: torch.classes.topomask.*. Their methods are collective and record
// the library's own gradients; nothing here is for tracing.
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include "ops/arguments.h"
#include "topomask/distributed.h"
#include "topomask/rank_plan.h"

namespace topomask::ops {
namespace {

// `group`: a name in c10d's registry, or empty for one rank.
RanksPtr ranks_of(const std::string& group) {
  return group.empty() ? Ranks::alone() : Ranks::from_group(group);
}

struct GraphHandle : torch::CustomClassHolder {
  explicit GraphHandle(DistributedGraph of) : graph(std::move(of)) {}
  at::Tensor halo_rows(const at::Tensor& x) { return graph.halo_rows(x); }
  c10::intrusive_ptr<GraphHandle> normalised(const std::string& how) {
    return c10::make_intrusive<GraphHandle>(
        graph.normalised(parse_word<Normalisation>("normalisation", how)));
  }
  DistributedGraph graph;
};
using GraphPtr = c10::intrusive_ptr<GraphHandle>;

GraphPtr handle(DistributedGraph graph) {
  return c10::make_intrusive<GraphHandle>(std::move(graph));
}

struct MaskHandle : torch::CustomClassHolder {
  MaskHandle(const GraphPtr& graph, std::int64_t heads, const std::string& walks, const std::string& route) {
    MaskRequest request = request_of("grf", walks);
    request.heads = heads;
    for (const char* name : {"init", "normalise"})
      check(!request.settings.contains(name), "GRFMask: over ranks there is no setting '{}'", name);
    const WalkMaskPlan plan = plan_walk_mask(std::move(request));
    const auto by = parse_word<WalkRoute>("route", route);
    if (plan.per_head) {
      mask = DistributedGrfMask::per_head(graph->graph, plan.features, at::ones({heads, 1}), by);
    } else {
      mask = std::make_shared<const DistributedGrfMask>(graph->graph, plan.features, at::ones({1}), by);
    }
  }
  std::shared_ptr<const DistributedGrfMask> mask;  // its f is that of each call
};
using HandlePtr = c10::intrusive_ptr<MaskHandle>;

// A method by which a caller's mistake reaches Python as a ValueError. From operators and constructors it
// does so by itself; from methods torch passes on only its own kinds of exceptions.
template <class Owner, class Result, class... Arguments>
auto with_value_errors(Result (Owner::*method)(Arguments...)) {
  return [method](const c10::intrusive_ptr<Owner>& self, Arguments... arguments) -> Result {
    try {
      return ((*self).*method)(arguments...);
    } catch (const Error& error) {
      throw c10::ValueError({__func__, __FILE__, __LINE__}, error.what());
    }
  };
}

// A call that holds any number of collectives.
struct Calls : torch::CustomClassHolder {
  GraphPtr from_shards(const std::string& folder, const std::string& group) {
    return handle(DistributedGraph::from_shards(folder, ranks_of(group)));
  }
  // One rank writes, and all say what went wrong.
  void write_shards(const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor& weight, bool directed,
                    const at::Tensor& assignment, std::int64_t parts, const std::string& method,
                    std::int64_t seed, const std::string& folder, const std::string& group) {
    const RanksPtr ranks = ranks_of(group);
    ranks->together("the shards", [&] {
      if (ranks->rank() != 0) return;
      topomask::write_shards(folder, graph_from(row_ptr, col, weight, directed),
                             {parts, assignment, parse_word<PartitionMethod>("method", method),
                              static_cast<std::uint64_t>(seed)});
    });
  }
  std::int64_t ranks(const std::string& group) { return ranks_of(group)->size(); }
  // The plan in words.
  std::string plan(const std::string& graph, std::int64_t ranks, const std::string& device,
                   const std::string& method, const std::string& walks, std::optional<std::int64_t> heads,
                   std::optional<std::int64_t> m, std::optional<std::int64_t> d, std::optional<bool> learned,
                   std::optional<double> link_bandwidth) {
    RankPlanOptions options;
    options.ranks = ranks;
    options.device = device;
    options.method = parse_word<PartitionMethod>("partition", method);
    const WalkMaskPlan mask = plan_walk_mask(request_of("grf", walks));
    options.normalisation = mask.normalisation;
    options.features = mask.features;
    options.heads = heads.value_or(options.heads);
    options.channels = m.value_or(options.channels);
    options.values = d.value_or(options.values);
    options.learned = learned.value_or(options.learned);
    options.link_bandwidth = link_bandwidth.value_or(options.link_bandwidth);
    return plan_ranks(graph, options).to_string();
  }
  GraphPtr from_graph(const at::Tensor& row_ptr, const at::Tensor& col, const at::Tensor& weight,
                      bool directed, const at::Tensor& assignment, const std::string& group) {
    const RanksPtr ranks = ranks_of(group);
    Partition partition;
    partition.parts = ranks->size();
    partition.assignment = assignment;
    return handle(DistributedGraph::from_graph(graph_from(row_ptr, col, weight, directed), partition, ranks));
  }
  GraphPtr from_edges(std::int64_t total_nodes, const at::Tensor& nodes, const at::Tensor& edges,
                      const std::optional<at::Tensor>& weight, bool directed, const std::string& group) {
    return handle(DistributedGraph::from_edges(total_nodes, nodes, edges, weight.value_or(at::Tensor()),
                                               directed, ranks_of(group)));
  }
  at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       const std::optional<HandlePtr>& mask, const std::optional<at::Tensor>& f,
                       const std::string& group, const std::string& kind, const std::string& feature_map,
                       const std::string& engine, std::optional<double> epsilon,
                       std::optional<std::int64_t> num_features, std::int64_t feature_seed) {
    const AttentionOptions options =
        attention_options(kind, feature_map, engine, epsilon, num_features, feature_seed);
    if (!mask) return topomask::attention(q, k, v, ranks_of(group), options);
    return topomask::attention(q, k, v, *(*mask)->mask->with_f(f.value_or(at::Tensor())), options);
  }
};

TORCH_LIBRARY_FRAGMENT(topomask, m) {
  m.class_<GraphHandle>("DistributedGraph")
      .def("nodes", [](const GraphPtr& self) { return self->graph.nodes(); })
      .def("num_nodes", [](const GraphPtr& self) { return self->graph.total_nodes(); })
      .def("num_halo", [](const GraphPtr& self) { return self->graph.num_halo(); })
      .def("degrees", [](const GraphPtr& self) { return self->graph.degrees(); })
      .def("halo_rows", with_value_errors(&GraphHandle::halo_rows))
      .def("normalised", with_value_errors(&GraphHandle::normalised));
  m.class_<MaskHandle>("DistributedGrfMask")
      .def(torch::init<const GraphPtr&, std::int64_t, const std::string&, const std::string&>())
      .def("features", [](const HandlePtr& self) {
        const WalkFeatures& query = self->mask->features().query.features;
        return std::vector<at::Tensor>{query.row_ptr, query.col, query.deposit_ptr, query.hop, query.load};
      });
  m.class_<Calls>("Distributed")
      .def(torch::init<>())
      .def("from_shards", with_value_errors(&Calls::from_shards))
      .def("write_shards", with_value_errors(&Calls::write_shards))
      .def("ranks", with_value_errors(&Calls::ranks))
      .def("plan", with_value_errors(&Calls::plan))
      .def("from_graph", with_value_errors(&Calls::from_graph))
      .def("from_edges", with_value_errors(&Calls::from_edges))
      .def("attention", with_value_errors(&Calls::attention));
}

}  // namespace
}  // namespace topomask::ops
