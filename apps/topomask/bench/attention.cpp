// `topomask bench attention`: our engines and their peers in one process, measured in turns.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/attention_peers.h"
#include "bench/attention_report.h"
#include "bench/machine.h"
#include "bench/timing.h"
#include "commands/commands.h"
#include "core/check.h"
#include "core/flops.h"
#include "core/parallel.h"
#include "options/attention_options.h"
#include "options/choices.h"
#include "options/dtypes.h"
#include "options/options.h"
#include "progress.h"
#include "table.h"
#include "topomask/device.h"
#include "topomask/masks.h"
#include "topomask/memory_plan.h"
#include "topomask/theory.h"

namespace topomask::cli {
namespace {

using Json = nlohmann::ordered_json;

struct BenchAttentionCommand {
  RunOptions run;
  GraphOptions graph;
  WalkFlags walks;
  std::string kernel;
  AttentionOptions attention;
  std::int64_t num_walks = 4, batch = 1, heads = 1, d = 64;
  at::ScalarType dtype = at::kFloat;
  int repeats = 21;
  double budget = 10;
  std::vector<std::string> only;
  bool forward_only = false;
  std::string device_word = "cpu";
  c10::Device device = c10::kCPU;
};

// torch warns at the first use of a sparse matrix.
class SilentWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

std::uint64_t flops_done() {
  return 2 * flop_counters().multiply_adds + flop_counters().other;
}

// Why a peer that needs so much memory cannot run, or "".
std::string does_not_fit(double bytes) {
  if (!std::isfinite(bytes)) return "needs 2^31 entries or more";
  // A quarter is left for the inputs and for what the estimates do not know.
  const double free = 0.75 * static_cast<double>(available_memory_bytes());
  if (free < 0 || bytes <= free) return "";
  return fmt::format("needs about {}, three quarters of the free memory are {}", format_bytes(bytes),
                     format_bytes(free));
}

class AttentionBench {
 public:
  explicit AttentionBench(const BenchAttentionCommand& command);
  void run();
  void print();

 private:
  using Attend = std::function<at::Tensor(const Operands&)>;

  bool wanted(const std::string& name) const;
  void add(const std::string& name, bool has_modulation, double setup_seconds, const Attend& attend,
           const std::array<std::string, 2>& reasons);
  void add_engines();
  void add_peers();
  void foresee(const ChainCounts& counts, const AttentionShape& shape);
  double least_bytes(const BenchRow& row) const;
  at::Tensor once(std::size_t row) const;

  const BenchAttentionCommand& command_;
  Operands operands_;
  at::Tensor grad_out_;
  GraphFeatures features_;
  std::shared_ptr<const GrfMask> mask_;
  double walks_seconds_ = 0, pattern_seconds_ = 0;
  std::int64_t mask_entries_ = -1;  // -1: too many to form
  AttentionReport report_;
  std::vector<Attend> attend_;  // one for each row of the report
};

// Whether it fits is known before anything is allocated on the GPU, and of a large family of graphs before
// the graph is made.
void AttentionBench::foresee(const ChainCounts& counts, const AttentionShape& shape) {
  const AttentionPlan plan = plan_attention(counts.profile(), shape, command_.attention);
  const bool forms_mask =
      std::any_of(plan.candidates.begin(), plan.candidates.end(), [](const PlanCandidate& candidate) {
        return candidate.engine == Engine::mask && candidate.admissible;
      });
  const MemoryPlan memory =
      plan_memory(counts, shape, forms_mask ? Engine::mask : Engine::feature, !command_.forward_only);
  const auto free = static_cast<double>(free_memory(command_.device));
  check(memory.peak <= free,
        "bench attention: {} takes about {} of memory ('{}' is the highest step), but {} are free on {}; "
        "take fewer walks, a larger --p-halt or a smaller --d",
        command_.graph.spec, format_bytes(memory.peak), memory.highest().name, format_bytes(free),
        command_.device.str());
  report_.memory = memory;
  report_.memory_source = counts.source;
}

AttentionBench::AttentionBench(const BenchAttentionCommand& command) : command_(command) {
  const NodeKernel kernel = NodeKernel::parse(command.kernel);
  const FeatureOptions options = command.walks.to_feature_options(command.num_walks, command.run.seed);
  AttentionShape shape{command.batch, command.heads, 0, command.d, command.d, command.dtype, command.device};
  const auto start_with = [&](const ChainCounts& counts) {
    shape.num_nodes = static_cast<std::int64_t>(counts.nodes);
    foresee(counts, shape);
  };
  const bool on_gpu = command.device.is_cuda();
  std::optional<ChainCounts> counts;
  if (on_gpu) counts = count_chain(command.graph.spec, command.graph.normalisation, options);
  if (counts) start_with(*counts);
  Graph graph = command.graph.load_raw();
  check(graph.num_nodes() > 0, "--graph: '{}' has no nodes", command.graph.spec);
  if (on_gpu && !counts) start_with(count_chain(normalise(graph, command.graph.normalisation), options));
  graph = normalise(graph.to(command.device), command.graph.normalisation);
  shape.num_nodes = graph.num_nodes();
  at::manual_seed(command.run.seed);
  // A GPU draws in any type; the CPU rounds numbers that were drawn in float32.
  const auto random = [&] {
    return at::randn({command.batch, command.heads, graph.num_nodes(), command.d},
                     at::TensorOptions(on_gpu ? command.dtype : at::kFloat).device(command.device))
        .to(command.dtype);
  };
  // f is a parameter of the model: it keeps full precision beside half-precision q, k and v.
  const at::ScalarType parameters = command.dtype == at::kDouble ? at::kDouble : at::kFloat;
  operands_ = {random(), random(), random(),
               at::tensor(feature_modulation(kernel, options), at::kDouble).to(command.device, parameters)};
  if (!command.forward_only) grad_out_ = random();

  auto start = Clock::now();
  features_ = sample_features(graph, options);
  mask_ = std::make_shared<const GrfMask>(std::vector<GraphFeatures>{features_}, operands_.modulation);
  synchronise(command.device);
  walks_seconds_ = seconds_since(start);
  // What the mask engine could do decides whether its pattern may be formed at all.
  report_.plan = plan_attention(*mask_, shape, command.attention);
  for (const PlanCandidate& candidate : report_.plan.candidates) {
    if (candidate.engine != Engine::mask || !candidate.admissible) continue;
    const at::NoGradGuard no_grad;
    start = Clock::now();
    mask_entries_ = mask_->entries().front().pattern->nnz();
    synchronise(command.device);
    pattern_seconds_ = seconds_since(start);
    report_.plan =
        plan_attention(*mask_, shape, command.attention);  // with the count instead of the estimate
  }
  add_engines();
  add_peers();
}

bool AttentionBench::wanted(const std::string& name) const {
  const std::vector<std::string>& only = command_.only;
  return only.empty() || std::find(only.begin(), only.end(), name) != only.end();
}

void AttentionBench::add(const std::string& name, bool has_modulation, double setup_seconds,
                         const Attend& attend, const std::array<std::string, 2>& reasons) {
  if (!wanted(name)) return;
  for (const bool backward : {false, true}) {
    if (backward && command_.forward_only) continue;
    BenchRow row;
    row.name = name;
    row.backward = backward;
    row.reason = reasons[backward ? 1 : 0];
    row.has_modulation = has_modulation;
    row.setup_seconds = setup_seconds;
    report_.rows.push_back(std::move(row));
    attend_.push_back(attend);
  }
}

void AttentionBench::add_engines() {
  for (const Engine engine : {Engine::automatic, Engine::mask, Engine::feature, Engine::dense}) {
    AttentionOptions options = command_.attention;
    options.engine = engine;
    std::string reason;
    for (const PlanCandidate& candidate : report_.plan.candidates) {
      if (candidate.engine == engine && !candidate.admissible) reason = candidate.reason;
    }
    const Engine real = engine == Engine::automatic ? report_.plan.engine : engine;
    add(fmt::format("grf-{}", word_of(engine)), true,
        walks_seconds_ + (real == Engine::feature ? 0 : pattern_seconds_),
        [this, options](const Operands& x) {
          const auto mask = mask_->with_f(x.modulation);
          return attention(x.q, x.k, x.v, mask, options);
        },
        {reason, reason});
  }
  const auto none = std::make_shared<const NoMask>(operands_.q.size(2), command_.device);
  add("unmasked", false, 0,
      [this, none](const Operands& x) {
        AttentionOptions options = command_.attention;
        options.engine = Engine::feature;
        return attention(x.q, x.k, x.v, none, options);
      },
      {});
}

void AttentionBench::add_peers() {
  const FeatureMap& map = command_.attention.feature_map;
  const auto element = static_cast<std::int64_t>(c10::elementSize(command_.dtype));
  add("linear", false, 0, [&map](const Operands& x) { return unmasked_linear_attention(x, map); }, {});
  add("softmax", false, 0, [](const Operands& x) { return at::scaled_dot_product_attention(x.q, x.k, x.v); },
      {});

  std::array<std::string, 2> reasons;
  // torch multiplies its sparse matrices in float32 and float64 alone.
  const std::string no_half =
      element < 4 ? "torch has no sparse products in half precision: see --dtype float32" : "";
  for (const bool backward : {false, true}) {
    reasons[backward ? 1 : 0] = !no_half.empty() ? no_half
                                                 : does_not_fit(LiteralAttention::predicted_bytes(
                                                       features_, command_.d, command_.d, element, backward));
  }
  auto start = Clock::now();
  std::shared_ptr<const LiteralAttention> literal;
  if (reasons[0].empty() && wanted("literal"))
    literal = std::make_shared<const LiteralAttention>(features_, command_.d);
  add(
      "literal", true, walks_seconds_ + seconds_since(start),
      [literal, &map](const Operands& x) { return (*literal)(x, map); }, reasons);

  reasons = {};
  std::shared_ptr<const UnfusedAttention> unfused;
  if (!no_half.empty()) {
    reasons.fill(no_half);
  } else if (mask_entries_ < 0) {
    reasons.fill("the pattern of the mask is too large, see grf-mask");
  } else {
    for (const bool backward : {false, true}) {
      reasons[backward ? 1 : 0] = does_not_fit(
          UnfusedAttention::predicted_bytes(static_cast<double>(mask_entries_), element, backward));
    }
    const at::NoGradGuard no_grad;
    if (wanted("unfused"))
      unfused = std::make_shared<const UnfusedAttention>(*mask_->entries().front().pattern);
  }
  add(
      "unfused", true, walks_seconds_ + pattern_seconds_,
      [this, unfused, &map](const Operands& x) { return (*unfused)(x, *mask_->with_f(x.modulation), map); },
      reasons);
}

// q, k, v, the result and the mask's entries; three times that with gradients, which read it all again, the
// result's gradient with it, and write three more.
double AttentionBench::least_bytes(const BenchRow& row) const {
  constexpr double kEntryBytes = sizeof(std::int32_t) + sizeof(float);
  double bytes = 4 * static_cast<double>(operands_.v.nbytes());
  if (row.has_modulation && mask_entries_ > 0) bytes += kEntryBytes * static_cast<double>(mask_entries_);
  return row.backward ? 3 * bytes : bytes;
}

at::Tensor AttentionBench::once(std::size_t row) const {
  if (!report_.rows[row].backward) {
    const at::NoGradGuard no_grad;
    return attend_[row](operands_);
  }
  const auto leaf = [](const at::Tensor& x) { return x.detach().requires_grad_(true); };
  const Operands x{leaf(operands_.q), leaf(operands_.k), leaf(operands_.v), leaf(operands_.modulation)};
  std::vector<at::Tensor> leaves = {x.q, x.k, x.v};
  if (report_.rows[row].has_modulation) leaves.push_back(x.modulation);
  const at::Tensor out = attend_[row](x);
  torch::autograd::grad({out}, leaves, {grad_out_});
  return out.detach();
}

void AttentionBench::run() {
  std::vector<BenchRow>& rows = report_.rows;
  report_.peak_bytes = peak_memory(command_.device);  // until here
  report_.limits = measure_limits(command_.device, command_.dtype);
  Progress progress("bench", command_.run.quiet);
  const auto total = static_cast<std::int64_t>(rows.size() + 1) * (command_.repeats + 1);
  std::int64_t done = 0;
  at::Tensor reference;  // of the first masked row, grf-auto unless it is left out
  std::vector<int> repeats(rows.size(), 0);
  // The first run of each is for its memory and its result; it also tells how many runs the budget allows.
  for (std::size_t i = 0; i < rows.size(); ++i) {
    progress.update(++done, total);
    if (!rows[i].reason.empty()) continue;
    reset_peak_memory(command_.device);
    const std::int64_t held = peak_memory(command_.device);
    const PeakMemory memory;
    const std::uint64_t flops_before = flops_done();
    const auto start = Clock::now();
    const at::Tensor out = once(i);
    synchronise(command_.device);
    const double seconds = seconds_since(start);
    report_.peak_bytes = std::max(report_.peak_bytes, peak_memory(command_.device));
    rows[i].work.bytes = least_bytes(rows[i]);
    // Our kernels count what they do, torch's do not.
    if (rows[i].name.starts_with("grf-")) {
      rows[i].work.flops = static_cast<double>(flops_done() - flops_before);
    }
    rows[i].peak_bytes = command_.device.is_cuda() ? peak_memory(command_.device) - held : memory.bytes();
    if (rows[i].has_modulation) {
      rows[i].difference = reference.defined() ? (out - reference).abs().max().item<double>() /
                                                     reference.abs().max().item<double>()
                                               : 0;
      if (!reference.defined() && i + 1 < rows.size()) reference = out;
    }
    const double affordable = std::floor(command_.budget / seconds);
    repeats[i] = static_cast<int>(std::clamp(affordable, 1.0, static_cast<double>(command_.repeats)));
  }
  std::vector<TimedWork> works;
  for (std::size_t i = 0; i < rows.size(); ++i) works.push_back({[this, i] { once(i); }, repeats[i]});
  if (mask_entries_ >= 0) {
    // Another f each time: without gradients the values for one f are kept.
    const auto refresh = [this, factor = 1.0]() mutable {
      const at::NoGradGuard no_grad;
      factor *= 0.999;
      mask_->with_f(operands_.modulation * factor)->entries();
    };
    works.push_back({refresh, command_.repeats});
  }
  time_in_turns(command_.device, works, [&] { progress.update(++done, total); });
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i].seconds = works[i].seconds;
  if (works.size() > rows.size()) report_.refresh = works.back().seconds;
  erase_progress_line();
}

void AttentionBench::print() {
  const Json nonzeros = mask_entries_ < 0 ? Json() : Json(mask_entries_);
  report_.setting = {{"graph", command_.graph.spec},
                     {"nodes", mask_->num_nodes()},
                     {"walks", command_.num_walks},
                     {"p_halt", command_.walks.p_halt},
                     {"feature_nonzeros", features_.query.nnz()},
                     {"mask_nonzeros", nonzeros},
                     {"batch", command_.batch},
                     {"heads", command_.heads},
                     {"d", command_.d},
                     {"dtype", word_of(command_.dtype)},
                     {"device", command_.device.is_cuda() ? device_name(command_.device) : "cpu"},
                     {"repeats", command_.repeats}};
  if (command_.run.json) {
    fmt::print("{}\n", report_.to_json().dump());
  } else if (!command_.run.quiet) {
    report_.print();
  }
}

void run_bench_attention(BenchAttentionCommand& command) {
  set_num_threads(command.run.threads.value_or(2));
  command.device = parse_device(command.device_word);
  check(command.repeats >= 1, "--repeats: expected at least 1, got {}", command.repeats);
  check(command.budget > 0, "--budget: expected more than 0 seconds, got {}", command.budget);
  for (const auto& [flag, value] : {std::pair{"--batch", command.batch}, std::pair{"--heads", command.heads},
                                    std::pair{"--d", command.d}}) {
    check(value >= 1 && value <= 65536, "{}: expected 1 to 65536, got {}", flag, value);
  }
  static const std::vector<std::string_view> kNames = {"grf-auto",  "grf-mask", "grf-feature",
                                                       "grf-dense", "unmasked", "linear",
                                                       "softmax",   "literal",  "unfused"};
  for (const std::string& name : command.only) {
    if (std::find(kNames.begin(), kNames.end(), name) == kNames.end())
      fail_unknown_word("--only", name, kNames);
  }
  SilentWarnings silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  AttentionBench bench(command);
  bench.run();
  bench.print();
}

}  // namespace

void add_bench_attention_command(CLI::App& bench) {
  CLI::App* sub =
      bench.add_subcommand("attention", "Masked attention against its peers, forward and backward");
  const auto command = std::make_shared<BenchAttentionCommand>();
  add_graph_options(*sub, command->graph, "grid:181x181");
  add_kernel_option(*sub, command->kernel);
  const auto add = [&](const char* flag, auto& value, const char* description) {
    sub->add_option(flag, value, description)->capture_default_str();
  };
  add("--batch", command->batch, "Batch size");
  add("--heads", command->heads, "Heads; all share one mask");
  add("--d", command->d, "Channels of q, k and v per head");
  add("--repeats", command->repeats, "Timed runs per row; rows take turns");
  add("--budget", command->budget, "Seconds per row; slow rows run less often, but at least once");
  sub->add_option("--only", command->only, "Measure these rows only, such as grf-mask,linear")
      ->delimiter(',')
      ->type_name("NAME,...");
  sub->add_flag("--forward-only", command->forward_only, "Leave out the backward passes");
  add_choice(*sub, "Options", "--dtype", command->dtype, "Data type of q, k and v");
  sub->add_option("--walks", command->num_walks, "Walks per node")->capture_default_str()->group("Walks");
  add_walk_options(*sub, command->walks);
  add_max_workspace_option(*sub, command->attention);
  add_device_option(*sub, command->device_word);
  add_run_options(*sub, command->run);
  sub->get_option("--threads")->description("Number of threads (default: 2)");
  sub->footer(
      "unmasked: ours without a mask. linear: the same in plain torch. softmax: torch's "
      "scaled_dot_product_attention.\n"
      "literal: the paper's N x N m features as torch CSR matrices. unfused: torch's SDDMM and SpMM on M's "
      "pattern.\n"
      "A masked pass computes Phi and M for the current f, and the gradient of f; walks and patterns are not "
      "timed.\n"
      "Peak memory: resident memory added by the first run, set-up excluded.\n"
      "On a GPU the memory of the whole, from the graph on, is foreseen: what does not fit is refused at "
      "once.\n"
      "times NAME: median divided by that of the first row.\n"
      "of bytes/s: q, k, v, the result and the mask moved once (three times with gradients), as a share of a "
      "copy.\n"
      "of FLOP/s: the operations that our engines count, as a share of a product of matrices.\n"
      "Examples:\n"
      "  topomask bench attention --graph grid:181x181 --walks 16\n"
      "  topomask bench attention --graph ba:32768,8 --walks 16 --p-halt 0.1 --json\n"
      "  topomask bench attention --graph torus:32768,8 --heads 8 --dtype bfloat16 --device cuda");
  sub->callback([command] { run_bench_attention(*command); });
}

}  // namespace topomask::cli
