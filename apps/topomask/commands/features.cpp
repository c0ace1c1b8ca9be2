// `topomask features`: sample graph random features and write them as SciPy CSR archives.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "commands/commands.h"
#include "core/check.h"
#include "options/options.h"
#include "options/rank_options.h"
#include "table.h"
#include "topomask/device.h"
#include "topomask/npy.h"
#include "topomask/theory.h"

namespace topomask::cli {
namespace {

struct FeaturesCommand {
  RunOptions run;
  GraphOptions graph;
  WalkFlags walks;
  std::int64_t num_walks = WalkOptions().num_walks;
  std::string kernel;
  std::string out, out_keys;
  std::string device = "cpu";
  RankFlags ranks;
};

template <class Element>
std::span<const Element> elements(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<Element>(), static_cast<std::size_t>(tensor.numel())};
}

// `modulation` has the kernel's prefactor in it, so that Phi Psi^T estimates the kernel itself.
void write_features(const WalkFeatures& features, const std::vector<double>& modulation,
                    const std::string& path) {
  const at::Tensor values = features.values(at::tensor(modulation, at::kDouble)).to(at::kFloat);
  write_scipy_csr(path, features.num_nodes(), features.num_columns, elements<std::int64_t>(features.row_ptr),
                  elements<std::int32_t>(features.col), elements<float>(values));
}

// All rows on rank 0, in the order of the nodes: what one process would have sampled.
WalkFeatures gather_features(const DistributedGraph& graph, const WalkFeatures& own) {
  const Ranks& ranks = *graph.ranks();
  const at::Tensor entries = own.row_ptr.diff(), deposits = own.deposit_ptr.diff();
  // Rows of different lengths: each goes as one row of its longest, which for features is short.
  const auto longest = [&](const at::Tensor& counts) {
    return ranks
        .largest(counts.numel() == 0 ? at::zeros({1}, at::kLong) : counts.max().unsqueeze(0), "results")
        .item<std::int64_t>();
  };
  at::Tensor row_deposits = own.deposit_ptr.index_select(0, own.row_ptr).diff();
  const auto padded = [](const at::Tensor& values, const at::Tensor& counts, std::int64_t width) {
    at::Tensor rows = at::zeros({counts.size(0), width}, values.options());
    return rows.masked_scatter_(at::arange(width).unsqueeze(0) < counts.unsqueeze(1), values);
  };
  const auto packed = [&](const at::Tensor& values, const at::Tensor& counts, const at::Tensor& all_counts) {
    const at::Tensor rows = gather_rows(graph, padded(values, counts, longest(counts)));
    return rows.masked_select(at::arange(rows.size(1)).unsqueeze(0) < all_counts.unsqueeze(1));
  };
  const auto starts = [](const at::Tensor& counts) {
    return at::cat({at::zeros({1}, at::kLong), counts.cumsum(0)});
  };
  const at::Tensor all_entries = gather_rows(graph, entries), all_deposits = gather_rows(graph, row_deposits);
  WalkFeatures all = own;
  all.row_ptr = starts(all_entries);
  all.col = packed(own.col, entries, all_entries);
  all.deposit_ptr = starts(packed(deposits, entries, all_entries));
  all.hop = packed(own.hop, row_deposits, all_deposits);
  all.load = packed(own.load, row_deposits, all_deposits);
  return all;
}

GraphFeatures sample_on_ranks(const FeaturesCommand& command, const FeatureOptions& options,
                              const RanksPtr& ranks) {
  const DistributedGraph graph =
      command.ranks.load(command.graph, ranks).normalised(command.graph.normalisation);
  const DistributedFeatures found = sample_features(graph, options, command.ranks.route);
  GraphFeatures all;
  all.ensembles = options.ensembles;
  all.query = gather_features(graph, found.query.features);
  if (options.ensembles == Ensembles::asymmetric) {
    all.key = one_hot_features(graph.total_nodes());
  } else {
    all.key = gather_features(graph, found.key.features);
  }
  return all;
}

// On one rank of several, or in the only process.
void run_features(const FeaturesCommand& command, const RanksPtr& ranks) {
  check_another_file("--out-keys", command.out_keys, "--out", command.out);
  check_another_file("--out-ids", command.graph.out_ids, "--out", command.out);
  check_another_file("--out-ids", command.graph.out_ids, "--out-keys", command.out_keys);
  const NodeKernel kernel = NodeKernel::parse(command.kernel);
  const FeatureOptions options = command.walks.to_feature_options(command.num_walks, command.run.seed);
  // Ranks walk on the CPU wherever they compute: to the same features, bit for bit.
  const c10::Device device = ranks ? ranks->compute_on(command.device) : parse_device(command.device);
  const Graph graph = ranks ? Graph() : command.graph.load().to(device);

  const auto start = std::chrono::steady_clock::now();
  GraphFeatures features = ranks ? sample_on_ranks(command, options, ranks) : sample_features(graph, options);
  if (ranks && ranks->rank() != 0) return;
  synchronise(device);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  features.query = features.query.to(c10::kCPU);
  features.key = features.key.to(c10::kCPU);
  write_features(features.query, feature_modulation(kernel, options), command.out);
  if (!command.out_keys.empty())
    write_features(features.key, key_modulation(kernel, options), command.out_keys);

  const std::int64_t nodes = features.query.num_nodes(), nnz = features.query.nnz();
  const double per_row = nodes == 0 ? 0 : static_cast<double>(nnz) / static_cast<double>(nodes);
  if (command.run.json) {
    nlohmann::ordered_json json = {{"nodes", nodes},
                                   {"kernel", kernel.to_string()},
                                   {"walks", command.num_walks},
                                   {"nonzeros", nnz},
                                   {"nonzeros_per_row", per_row},
                                   {"deposits", features.query.num_deposits()},
                                   {"exact", features.query.exact},
                                   {"seconds", seconds},
                                   {"out", command.out}};
    if (!command.out_keys.empty()) json["out_keys"] = command.out_keys;
    fmt::print("{}\n", json.dump());
  } else if (!command.run.quiet) {
    Listing listing;
    listing.add("kernel", kernel.to_string());
    listing.add("nodes", format_count(static_cast<double>(nodes)));
    listing.add("nonzeros",
                fmt::format("{} ({:.4g} per row)", format_count(static_cast<double>(nnz)), per_row));
    listing.add("sampled in", format_seconds(seconds));
    if (features.query.exact) listing.add("exact", "computed exactly: the expectation over all walks");
    listing.add("queries", command.out);
    if (!command.out_keys.empty()) listing.add("keys", command.out_keys);
    listing.print();
  }
}

}  // namespace

void add_features_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("features", "Sample graph random features into SciPy CSR files");
  const auto command = std::make_shared<FeaturesCommand>();
  add_graph_options(*sub, command->graph);
  add_kernel_option(*sub, command->kernel);
  sub->add_option("--walks", command->num_walks, "Walks per node")->capture_default_str()->group("Walks");
  add_walk_options(*sub, command->walks);
  sub->add_option("--out", command->out, "Where to write Phi, the features of the queries (.npz)")
      ->type_name("FILE")
      ->required();
  sub->add_option("--out-keys", command->out_keys, "Where to write Psi, the features of the keys (.npz)")
      ->type_name("FILE");
  add_device_option(*sub, command->device);
  add_rank_options(*sub, command->ranks);
  add_run_options(*sub, command->run);
  sub->footer(
      "Phi Psi^T estimates the kernel itself; both load with scipy.sparse.load_npz. Psi equals Phi for "
      "shared\n"
      "ensembles on a symmetric W and is the identity for asymmetric ones.\n"
      "Examples:\n"
      "  topomask features --graph grid:64x64 --walks 16 --out phi.npz\n"
      "  topomask features --graph mesh.ply --kernel diffusion:sigma2=4 --ensembles independent \\\n"
      "      --out phi.npz --out-keys psi.npz");
  sub->callback([command] {
    if (!command->ranks.wanted()) {
      command->run.apply();
      run_features(*command, nullptr);
      return;
    }
    command->ranks.run(command->run, [&](const RanksPtr& ranks) { run_features(*command, ranks); });
  });
}

}  // namespace topomask::cli
