// `topomask attend`: masked attention on arrays from .npy files.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "core/check.h"
#include "options/arrays.h"
#include "options/attention_options.h"
#include "table.h"
#include "topomask/device.h"

namespace topomask::cli {
namespace {

struct AttendCommand : AttentionFlags {
  std::string q, k, v, out;
  bool print_plan = false;
};

// Checked against the mask, so that a message can name the file.
at::Tensor checked_operand(const char* flag, const std::string& path, const at::Tensor& array,
                           std::int64_t num_nodes, const MaskFlags& flags) {
  check(array.dim() >= 2 && array.dim() <= 4,
        "{} {}: expected an array [B, H, N, d], [N, H, d] or [N, d], got {} dimensions", flag, path,
        array.dim());
  const std::int64_t rows = array.size(array.dim() == 4 ? 2 : 0);
  const std::string tokens =
      flags.global_tokens == 0 ? "" : fmt::format(" and {} global tokens", flags.global_tokens);
  check(rows == num_nodes, "{} {}: expected {} rows for {} nodes{}, got {} in an array of shape [{}]", flag,
        path, num_nodes, num_nodes - flags.global_tokens, tokens, rows, fmt::join(array.sizes(), ", "));
  return array;
}

at::Tensor read_operand(const char* flag, const std::string& path, std::int64_t num_nodes,
                        const MaskFlags& flags, c10::Device device) {
  return checked_operand(flag, path, read_array(path), num_nodes, flags).to(device);
}

// [N, d] is one head, packed.
at::Tensor with_heads(const at::Tensor& array) {
  return array.dim() == 2 ? array.unsqueeze(1) : array;
}

void run_attend(const AttendCommand& command) {
  command.run.apply();
  check(!command.out.empty() || command.print_plan, "--out: expected a file for the result, or --print-plan");
  check_another_file("--out-parameters", command.mask.out_parameters, "--out", command.out);
  check_another_file("--out-ids", command.mask.graph.out_ids, "--out", command.out);
  check_another_file("--out-ids", command.mask.graph.out_ids, "--out-parameters",
                     command.mask.out_parameters);
  AttentionOptions options = command.attention;
  options.feature_map.seed = command.run.seed;
  const c10::Device device = parse_device(command.device);
  const MaskPtr mask = command.mask.make(command.run.seed, device);
  const std::int64_t nodes = mask->num_nodes();
  const at::Tensor q = with_heads(read_operand("--q", command.q, nodes, command.mask, device));
  const at::Tensor k = with_heads(read_operand("--k", command.k, nodes, command.mask, device));
  const at::Tensor plain_v = read_operand("--v", command.v, nodes, command.mask, device),
                   v = with_heads(plain_v);
  const AttentionShape shape = AttentionShape::of(q, v);
  const AttentionPlan plan = plan_attention(*mask, shape, options);
  double seconds = 0;
  if (!command.out.empty()) {
    const auto start = std::chrono::steady_clock::now();
    const at::Tensor result = attention(q, k, v, mask, options);
    synchronise(device);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    write_array(command.out, (plain_v.dim() == 2 ? result.squeeze(1) : result).cpu());
  }

  if (command.run.json) {
    nlohmann::ordered_json json = {{"mask", mask->name()},
                                   {"rows", shape.num_nodes},
                                   {"batch", shape.batch},
                                   {"heads", shape.heads},
                                   {"engine", word_of(plan.engine)}};
    if (!command.out.empty()) {
      json["seconds"] = seconds;
      json["out"] = command.out;
    }
    if (command.print_plan) json["plan"] = plan_json(plan);
    fmt::print("{}\n", json.dump());
  } else if (!command.run.quiet) {
    if (command.print_plan) fmt::print("{}", plan.to_string());
    if (command.out.empty()) return;
    Listing listing;
    listing.add("mask", mask->name());
    listing.add("rows", format_count(static_cast<double>(shape.num_nodes)));
    listing.add("engine", std::string(word_of(plan.engine)));
    listing.add("computed in", format_seconds(seconds));
    listing.add("result", command.out);
    listing.print();
  }
}

// The same on one of several ranks: each reads its own rows of the arrays; rank 0 writes the result.
void run_attend_on_ranks(const AttendCommand& command, const RanksPtr& ranks) {
  check(!command.out.empty(), "attend: over ranks, --out must name a file for the result");
  check(!command.print_plan, "attend: --print-plan is for one process; see 'topomask plan --ranks'");
  const c10::Device device = ranks->compute_on(command.device);
  AttentionOptions options = command.attention;
  options.feature_map.seed = command.run.seed;
  const DistributedGraph graph = command.ranks.load(command.mask.graph, ranks);
  const auto mask = command.mask.make(command.run.seed, graph, command.ranks.route, device);
  at::Tensor q, k, v;
  bool one_head = false;
  ranks->together("q, k and v", [&] {
    const auto own = [&](const char* flag, const std::string& path) {
      const at::Tensor whole =
          checked_operand(flag, path, map_array(path), graph.total_nodes(), command.mask);
      one_head = whole.dim() == 2;
      return with_heads(whole).index_select(whole.dim() == 4 ? 2 : 0, graph.nodes()).to(device);
    };
    q = own("--q", command.q);
    k = own("--k", command.k);
    v = own("--v", command.v);
  });
  const auto start = std::chrono::steady_clock::now();
  const Engine engine = choose_engine(*mask, options, q.size(-1), v.size(-1));
  const at::Tensor found = attention(q, k, v, *mask, options);
  synchronise(device);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const bool batched = found.dim() == 4;
  at::Tensor all = gather_rows(graph, (batched ? found.permute({2, 0, 1, 3}) : found).cpu().contiguous());
  if (ranks->rank() != 0) return;
  if (batched) all = all.permute({1, 2, 0, 3}).contiguous();
  write_array(command.out, one_head ? all.squeeze(1) : all);
  if (command.run.json) {
    const nlohmann::ordered_json json = {{"ranks", ranks->size()},
                                         {"rows", graph.total_nodes()},
                                         {"engine", word_of(engine)},
                                         {"seconds", seconds},
                                         {"out", command.out}};
    fmt::print("{}\n", json.dump());
  } else if (!command.run.quiet) {
    Listing listing;
    listing.add("ranks", std::to_string(ranks->size()));
    listing.add("rows", format_count(static_cast<double>(graph.total_nodes())));
    listing.add("engine", std::string(word_of(engine)));
    listing.add("computed in", format_seconds(seconds));
    listing.add("result", command.out);
    listing.print();
  }
}

}  // namespace

void add_attend_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("attend", "Masked attention on q, k and v from .npy files");
  const auto command = std::make_shared<AttendCommand>();
  // The plain map, so that NumPy's maximum(x, 0) gives the same.
  const auto add_file = [&](const char* flag, std::string& path, const char* description) {
    return sub->add_option(flag, path, description)->type_name("FILE");
  };
  add_file("--q", command->q, "Queries (.npy): [B, H, N, d], [N, H, d] or [N, d]")->required();
  add_file("--k", command->k, "Keys (.npy), like the queries")->required();
  add_file("--v", command->v, "Values (.npy); the last dimension may differ")->required();
  add_file("--out", command->out, "Where to write the result (.npy); it has the layout and dtype of v");
  sub->add_flag("--print-plan", command->print_plan,
                "Print the predicted cost of each engine, and the choice");
  add_attention_options(*sub, *command);
  sub->footer(
      "All heads and batch entries share one mask, unless --parameters has one per head.\n"
      "With the same --seed, --kernel and walk options, 'topomask features' writes Phi and Psi with\n"
      "M = Phi Psi^T. In NumPy,\n"
      "  A = M * ((maximum(q, 0) + epsilon) @ (maximum(k, 0) + epsilon).T);  o = (A @ v) / A.sum(1, "
      "keepdims=True)\n"
      "Rows whose sum is zero give zeros.\n"
      "Examples:\n"
      "  topomask attend --graph grid:64x64 --q q.npy --k k.npy --v v.npy --out o.npy\n"
      "  topomask attend --graph mesh.ply --mask power-series --kernel diffusion:sigma2=4 --kind softmax \\\n"
      "      --q q.npy --k k.npy --v v.npy --out o.npy --print-plan\n"
      "  topomask attend --graph grid:64x64 --parameters mask.safetensors --q q.npy --k k.npy --v v.npy "
      "--out o.npy");
  sub->callback([command, sub] {
    check_feature_options(*sub, command->attention);
    if (!command->ranks.wanted()) return run_attend(*command);
    command->ranks.run(command->run, [&](const RanksPtr& ranks) { run_attend_on_ranks(*command, ranks); });
  });
}

}  // namespace topomask::cli
