// `topomask partition`: cut a graph into parts and write one shard per part.
#include "topomask/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands/commands.h"
#include "core/check.h"
#include "options/choices.h"
#include "options/options.h"
#include "progress.h"
#include "table.h"

namespace topomask::cli {
namespace {

struct PartitionCommand {
  RunOptions run;
  GraphOptions graph;
  PartitionOptions partition;
  std::int64_t buffer_bytes = StreamOptions().buffer_bytes;
  std::string out;
};

// A bar for each stage.
class StageProgress {
 public:
  explicit StageProgress(bool quiet) : quiet_(quiet) {}

  void update(std::string_view stage, std::int64_t done, std::int64_t total) {
    if (stage != stage_) {
      bar_.reset();
      bar_.emplace(std::string(stage), quiet_);
      stage_ = stage;
    }
    bar_->update(done, total);
  }

 private:
  bool quiet_;
  std::string stage_;
  std::optional<Progress> bar_;
};

struct PartitionResult {
  PartitionSummary summary;
  std::string order;  // what the method ran along, where it has a choice
};

PartitionResult partition_file(const PartitionCommand& command, const PartitionProgress& progress) {
  StreamOptions streaming;
  streaming.policy = command.graph.loading.policy;
  streaming.read = command.graph.loading.read;
  streaming.buffer_bytes = command.buffer_bytes;
  check(command.graph.out_ids.empty(),
        "--out-ids: not written while streaming; 'topomask graph --graph shards:{} --out-ids FILE' does",
        command.out);
  return {partition_edge_file(command.out, command.graph.spec, command.partition, streaming, progress),
          "nodes in the order of the file"};
}

PartitionResult partition_loaded(const PartitionCommand& command, const PartitionProgress& progress) {
  GraphOptions source = command.graph;
  PartitionOptions options = command.partition;
  source.loading.points = options.method == PartitionMethod::morton;
  const LoadedGraph loaded = source.load_all();
  options.points = loaded.points;
  PartitionResult result;
  if (options.method == PartitionMethod::morton) {
    result.order = options.points.defined() ? "Morton order of the points"
                                            : "reverse Cuthill-McKee order, as there are no points";
  }
  if (options.method == PartitionMethod::stream) result.order = "nodes in their order";
  const Partition partition = partition_graph(loaded.graph, options);
  result.summary = write_shards(command.out, loaded.graph, partition, loaded.names, progress);
  return result;
}

void print_partition_json(const PartitionCommand& command, const PartitionResult& result, double seconds) {
  const PartitionSummary& summary = result.summary;
  nlohmann::ordered_json parts = nlohmann::ordered_json::array();
  for (const PartSummary& part : summary.parts) {
    parts.push_back(
        {{"nodes", part.nodes}, {"entries", part.entries}, {"halo", part.halo}, {"sends", part.sends}});
  }
  nlohmann::ordered_json json = {{"nodes", summary.nodes},
                                 {"edges", summary.edges},
                                 {"entries", summary.entries},
                                 {"directed", summary.directed},
                                 {"method", word_of(command.partition.method)}};
  if (!result.order.empty()) json["order"] = result.order;
  json.update({{"cut", {{"edges", summary.cut_edges}, {"share", summary.cut_share}}},
               {"balance", summary.balance},
               {"halo", {{"total", summary.halo_total}, {"max", summary.halo_max}}},
               {"exchange_bytes", summary.exchange_bytes},
               {"parts", parts},
               {"seconds", seconds},
               {"out", command.out}});
  fmt::print("{}\n", json.dump());
}

void print_partition_text(const PartitionCommand& command, const PartitionResult& result, double seconds) {
  const PartitionSummary& summary = result.summary;
  const auto count = [](std::int64_t number) { return format_count(static_cast<double>(number)); };
  Listing listing;
  listing.add("graph", fmt::format("{} nodes, {} edges ({})", count(summary.nodes), count(summary.edges),
                                   summary.directed ? "directed" : "undirected"));
  listing.add("method", fmt::format("{}{}{}", word_of(command.partition.method),
                                    result.order.empty() ? "" : ": ", result.order));
  listing.add("cut",
              fmt::format("{} edges, {:.3g} % of all", count(summary.cut_edges), 100 * summary.cut_share));
  listing.add("balance", fmt::format("{:.3f} (the largest work of a part over the mean)", summary.balance));
  listing.add("halo", fmt::format("{} nodes in all, at most {} per part", count(summary.halo_total),
                                  count(summary.halo_max)));
  listing.add("exchange", fmt::format("{} for one float32 per node",
                                      format_bytes(static_cast<double>(summary.exchange_bytes))));
  listing.add("took", format_seconds(seconds));
  listing.add("shards", command.out);
  listing.print();
  constexpr std::size_t kMostRows = 64;  // index.json has all of them
  if (summary.parts.size() > kMostRows) return;
  fmt::print("\n");
  Table table({"part", "nodes", "entries", "halo", "sends"});
  for (std::size_t p = 0; p < summary.parts.size(); ++p) {
    const PartSummary& part = summary.parts[p];
    table.add_row(
        {std::to_string(p), count(part.nodes), count(part.entries), count(part.halo), count(part.sends)});
  }
  table.print();
}

// Whether the graph is a file that is read piece by piece, and not knn:points.txt, say.
bool is_streamed(const PartitionCommand& command) {
  const std::string& spec = command.graph.spec;
  if (command.partition.method != PartitionMethod::stream || !can_stream(spec)) return false;
  const std::vector<GraphForm>& forms = graph_forms();
  return std::none_of(forms.begin(), forms.end(),
                      [&](const GraphForm& form) { return spec.starts_with(form.name + ":"); });
}

void run_partition(PartitionCommand& command) {
  command.run.apply();
  command.partition.seed = command.run.seed;
  check(command.partition.parts >= 1, "--parts: expected a number from 1, got {}", command.partition.parts);
  check_shard_folder(command.out);  // before anything slow
  StageProgress bars(command.run.quiet);
  const PartitionProgress progress = [&](std::string_view stage, std::int64_t done, std::int64_t total) {
    bars.update(stage, done, total);
  };
  const auto start = std::chrono::steady_clock::now();
  const PartitionResult result =
      is_streamed(command) ? partition_file(command, progress) : partition_loaded(command, progress);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  erase_progress_line();
  if (command.run.json) {
    print_partition_json(command, result, seconds);
  } else if (!command.run.quiet) {
    print_partition_text(command, result, seconds);
  }
}

}  // namespace

void add_partition_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("partition", "Cut a graph into parts, one shard file for each");
  const auto command = std::make_shared<PartitionCommand>();
  add_raw_graph_options(*sub, command->graph);
  sub->add_option("--parts", command->partition.parts, "Number of parts, one per machine or process")
      ->required();
  add_choice(*sub, "Options", "--method", command->partition.method, "How to cut the graph");
  sub->add_option("--out", command->out, "Folder for the shards and their index.json")
      ->type_name("DIR")
      ->required();
  sub->add_option("--imbalance", command->partition.imbalance,
                  "metis, stream: allowed excess of a part's work over the mean; 0.03 is 3 %")
      ->capture_default_str();
  sub->add_option(
         "--buffer", command->buffer_bytes,
         "stream: memory for sorting edges, such as 512MB (default 128MB); does not change the results")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->type_name("SIZE");
  add_run_options(*sub, command->run);
  sub->footer(
      "Work of a node: the entries of its row plus one. Halo of a part: nodes of other parts that its rows "
      "refer "
      "to.\n"
      "stream reads text tables of edges (.txt .tsv .csv .edges, also .gz .xz) piece by piece, with "
      "temporary files\n"
      "in the folder; any other graph is held in memory. morton uses the points of knn, torus and grids, "
      "otherwise\n"
      "the reverse Cuthill-McKee order. --graph shards:DIR reads the graph back.\n"
      "Examples:\n"
      "  topomask partition --graph grid:1000x1000 --parts 4 --out parts\n"
      "  topomask partition --graph knn:points.npy,8 --parts 8 --method morton --out parts\n"
      "  topomask partition --graph edges.txt.gz --parts 16 --method stream --out parts\n"
      "  topomask graph --graph shards:parts");
  sub->callback([command] { run_partition(*command); });
}

}  // namespace topomask::cli
