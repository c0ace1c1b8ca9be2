// `topomask flops`: operations against the number of nodes on 1-D grids (Sec. 4.1, Fig. 3), counted while the
// engines run.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/timing.h"
#include "commands/commands.h"
#include "core/check.h"
#include "draw/chart.h"
#include "options/options.h"
#include "progress.h"
#include "provenance.h"
#include "table.h"
#include "topomask/attention.h"
#include "topomask/graph_builders.h"
#include "topomask/grf_mask.h"
#include "topomask/masks.h"
#include "topomask/theory.h"

namespace topomask::cli {
namespace {

struct FlopsCommand {
  RunOptions run;
  WalkFlags walks;
  std::string kernel, out;
  std::int64_t num_walks = 4, d = 8, smallest = 16, largest = 16384;
  int seeds = 10;
};

struct Line {
  const char* name;
  const char* label;
  std::vector<double> flops = {};
};

class FlopsStudy {
 public:
  explicit FlopsStudy(const FlopsCommand& command)
      : command_(command), kernel_(NodeKernel::parse(command.kernel)) {}

  void run() {
    Progress progress("sizes", command_.run.quiet);
    for (std::int64_t nodes = command_.smallest; nodes <= command_.largest; nodes *= 2) {
      measure(nodes);
      progress.update(nodes, command_.largest);
    }
    erase_progress_line();
  }

  void print() const;
  void draw() const;

 private:
  double count(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const MaskPtr& mask,
               AttentionKind kind, Engine engine) const {
    AttentionOptions options;
    options.kind = kind;
    options.engine = engine;
    reset_attention_flops();
    attention(q, k, v, mask, options);
    return static_cast<double>(attention_flops().flops());
  }
  void measure(std::int64_t nodes);
  std::vector<double> slopes() const;  // over the upper half of the sizes

  const FlopsCommand& command_;
  NodeKernel kernel_;
  std::vector<double> nodes_;
  std::vector<Line> lines_ = {{"softmax", "softmax"},
                              {"linear", "linear"},
                              {"grf-paper", "GRF-masked (the paper's matrices)"},
                              {"grf-feature", "GRF-masked (feature engine)"},
                              {"grf-mask", "GRF-masked (mask engine)"}};
};

// Alg. 1 as it is written, by the nonzeros of Phi: rows phi_G(v_i) (x) phi(q_i) and phi_G(v_i) (x) phi(k_i)
// of nnz m numbers, their products with [V | 1] and back, and a division for each output.
double flops_of_the_paper(const GrfMask& mask, std::int64_t d) {
  const auto entries = static_cast<double>(mask.features().query.nnz() + mask.features().key.nnz());
  const auto deposits = static_cast<double>(
      mask.features().query.num_deposits() +
      (mask.features().key.col.is_same(mask.features().query.col) ? 0 : mask.features().key.num_deposits()));
  const auto m = static_cast<double>(d), columns = static_cast<double>(d + 1);
  return 2 * deposits + entries * m + 2 * entries * m * columns + static_cast<double>(mask.num_nodes() * d);
}

void FlopsStudy::measure(std::int64_t nodes) {
  const at::NoGradGuard no_grad;
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(command_.run.seed);
  const auto random = [&] { return at::randn({1, 1, nodes, command_.d}, generator, at::kFloat); };
  const at::Tensor q = random(), k = random(), v = random();
  const MaskPtr none = std::make_shared<NoMask>(nodes);
  nodes_.push_back(static_cast<double>(nodes));
  lines_[0].flops.push_back(count(q, k, v, none, AttentionKind::softmax, Engine::dense));
  lines_[1].flops.push_back(count(q, k, v, none, AttentionKind::linear, Engine::feature));
  const Graph graph = normalise(path_graph(nodes), Normalisation::symmetric);
  double paper = 0, feature = 0, mask = 0;
  for (int i = 0; i < command_.seeds; ++i) {
    const FeatureOptions options =
        command_.walks.to_feature_options(command_.num_walks, command_.run.seed + static_cast<unsigned>(i));
    const at::Tensor f = at::tensor(feature_modulation(kernel_, options), at::kFloat);
    const auto grf = std::make_shared<const GrfMask>(graph, options, f);
    paper += flops_of_the_paper(*grf, command_.d) / command_.seeds;
    feature += count(q, k, v, grf, AttentionKind::linear, Engine::feature) / command_.seeds;
    mask += count(q, k, v, grf, AttentionKind::linear, Engine::mask) / command_.seeds;
  }
  lines_[2].flops.push_back(paper);
  lines_[3].flops.push_back(feature);
  lines_[4].flops.push_back(mask);
}

std::vector<double> FlopsStudy::slopes() const {
  std::vector<double> result;
  const auto half = static_cast<std::ptrdiff_t>(nodes_.size() / 2);
  for (const Line& line : lines_) {
    result.push_back(
        log_log_slope({nodes_.begin() + half, nodes_.end()}, {line.flops.begin() + half, line.flops.end()}));
  }
  return result;
}

void FlopsStudy::print() const {
  const std::vector<double> slope = slopes();
  if (command_.run.json) {
    nlohmann::ordered_json json = {{"rows", nlohmann::ordered_json::array()}};
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      nlohmann::ordered_json row = {{"nodes", static_cast<std::int64_t>(nodes_[i])}};
      for (const Line& line : lines_) row[line.name] = line.flops[i];
      json["rows"].push_back(std::move(row));
    }
    for (std::size_t l = 0; l < lines_.size(); ++l) json["slopes"][lines_[l].name] = slope[l];
    json["setting"] = {{"graph", "path"},
                       {"walks", command_.num_walks},
                       {"p_halt", command_.walks.p_halt},
                       {"d", command_.d},
                       {"features", command_.d},
                       {"seeds", command_.seeds},
                       {"kernel", kernel_.to_string()}};
    if (!command_.out.empty()) json["files"] = {command_.out + "/flops.png", command_.out + "/flops.svg"};
    fmt::print("{}\n", json.dump());
  } else if (!command_.run.quiet) {
    std::vector<std::string> header = {"nodes"};
    for (const Line& line : lines_) header.emplace_back(line.name);
    Table table(header);
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      std::vector<std::string> cells = {format_count(nodes_[i])};
      for (const Line& line : lines_) cells.push_back(format_count(std::round(line.flops[i])));
      table.add_row(std::move(cells));
    }
    std::vector<std::string> cells = {"slope"};
    for (const double value : slope) cells.push_back(fmt::format("{:.3f}", value));
    table.add_row(std::move(cells));
    table.print();
    fmt::print("1-D grids, {} walks, p_halt {}, d = m = {}, mean of {} seeds; slopes over the upper half\n",
               command_.num_walks, command_.walks.p_halt, command_.d, command_.seeds);
    if (!command_.out.empty()) fmt::print("{0}/flops.png (also .svg)\n", command_.out);
  }
}

void FlopsStudy::draw() const {
  Chart chart{
      .title = "Operations of attention on 1-D grids",
      .x_axis = {"nodes", true},
      .y_axis = {"FLOPs", true},
      .series = {},
      .caption = fmt::format(
          "Counted while the engines run, values of the features included; of the paper's matrices by their "
          "nonzeros. A multiply-add is 2. {} walks per node, p_halt {}, d = m = {}, mean of {} sets of "
          "walks.",
          command_.num_walks, command_.walks.p_halt, command_.d, command_.seeds)};
  for (const Line& line : lines_) {
    chart.series.push_back(
        {.label = line.label, .x = nodes_, .y = line.flops, .colour = series_colour(chart.series.size())});
  }
  write_chart(chart, provenance(), command_.out + "/flops");
}

void run_flops(const FlopsCommand& command) {
  command.run.apply();
  check(command.seeds >= 1, "--seeds: expected at least 1, got {}", command.seeds);
  check(command.d >= 1 && command.d <= 1024, "--d: expected 1 to 1024, got {}", command.d);
  check(command.smallest >= 1 && command.smallest <= command.largest && command.largest <= 32768,
        "--smallest, --largest: expected 1 <= smallest <= largest <= 32768, got {} and {}", command.smallest,
        command.largest);
  if (!command.out.empty()) {
    std::error_code status;
    std::filesystem::create_directories(command.out, status);
    check(!status, "cannot create the directory '{}': {}", command.out, status.message());
  }
  FlopsStudy study(command);
  study.run();
  if (!command.out.empty()) study.draw();
  study.print();
}

}  // namespace

void add_flops_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand(
      "flops", "Count operations against the number of nodes: softmax, linear and masked attention");
  const auto command = std::make_shared<FlopsCommand>();
  add_kernel_option(*sub, command->kernel);
  sub->add_option("--smallest", command->smallest,
                  "Nodes of the smallest path graph; sizes double up to --largest")
      ->capture_default_str();
  sub->add_option("--largest", command->largest, "Nodes of the largest path graph")->capture_default_str();
  sub->add_option("--d", command->d, "Channels of q, k and v")->capture_default_str();
  sub->add_option("--seeds", command->seeds, "Sets of walks to average over")->capture_default_str();
  sub->add_option("--out", command->out, "Directory for the plot (PNG and SVG)")->type_name("DIR");
  sub->add_option("--walks", command->num_walks, "Walks per node")->capture_default_str()->group("Walks");
  add_walk_options(*sub, command->walks);
  add_run_options(*sub, command->run);
  sub->footer(
      "Every engine counts its operations while it runs, including new values of the mask; a multiply-add is "
      "2.\n"
      "grf-paper is Alg. 1 with its N x Nm matrices, by their nonzeros. grf-feature computes the same column "
      "by\n"
      "column, grf-mask on the entries of the mask.\n"
      "Example:\n  topomask flops --out flops-out");
  sub->callback([command] { run_flops(*command); });
}

}  // namespace topomask::cli
