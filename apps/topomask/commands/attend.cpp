// `topomask attend`: masked attention on arrays from .npy files.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands/commands.h"
#include "core/check.h"
#include "options/arrays.h"
#include "options/attention_options.h"
#include "options/mask_options.h"
#include "table.h"
#include "topomask/device.h"

namespace topomask::cli {
namespace {

struct AttendCommand {
  RunOptions run;
  MaskFlags mask;
  AttentionOptions attention;
  std::string q, k, v, out;
  std::string device = "cpu";
  bool print_plan = false;
};

// Checked against the mask, so that a message can name the file.
at::Tensor read_operand(const char* flag, const std::string& path, const Mask& mask, const MaskFlags& flags,
                        c10::Device device) {
  const at::Tensor array = read_array(path);
  check(array.dim() >= 2 && array.dim() <= 4,
        "{} {}: expected an array [B, H, N, d], [N, H, d] or [N, d], got {} dimensions", flag, path,
        array.dim());
  const std::int64_t rows = array.size(array.dim() == 4 ? 2 : 0);
  const std::string tokens =
      flags.global_tokens == 0 ? "" : fmt::format(" and {} global tokens", flags.global_tokens);
  check(rows == mask.num_nodes(), "{} {}: expected {} rows for {} nodes{}, got {} in an array of shape [{}]",
        flag, path, mask.num_nodes(), mask.num_nodes() - flags.global_tokens, tokens, rows,
        fmt::join(array.sizes(), ", "));
  return array.to(device);
}

// [N, d] is one head, packed.
at::Tensor with_heads(const at::Tensor& array) {
  return array.dim() == 2 ? array.unsqueeze(1) : array;
}

AttentionShape shape_of(const at::Tensor& q, const at::Tensor& v) {
  const bool packed = q.dim() == 3;
  AttentionShape shape;
  shape.batch = packed ? 1 : q.size(0);
  shape.heads = q.size(1);
  shape.num_nodes = q.size(packed ? 0 : 2);
  shape.d = q.size(-1);
  shape.d_v = v.size(-1);
  shape.dtype = q.scalar_type();
  shape.device = q.device().type();
  return shape;
}

void run_attend(const AttendCommand& command) {
  command.run.apply();
  check(!command.out.empty() || command.print_plan, "--out: expected a file for the result, or --print-plan");
  AttentionOptions options = command.attention;
  options.feature_map.seed = command.run.seed;
  const c10::Device device = parse_device(command.device);
  const MaskPtr mask = command.mask.make(command.run.seed, device);
  const at::Tensor q = with_heads(read_operand("--q", command.q, *mask, command.mask, device));
  const at::Tensor k = with_heads(read_operand("--k", command.k, *mask, command.mask, device));
  const at::Tensor plain_v = read_operand("--v", command.v, *mask, command.mask, device),
                   v = with_heads(plain_v);
  const AttentionShape shape = shape_of(q, v);
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
  add_file("--v", command->v, "Values (.npy), the last dimension may differ")->required();
  add_file("--out", command->out, "Where to write the result (.npy); it has the layout and dtype of v");
  sub->add_flag("--print-plan", command->print_plan, "Print what each engine would cost, and the choice");
  add_mask_options(*sub, command->mask);
  add_attention_options(*sub, command->attention);
  add_device_option(*sub, command->device);
  add_run_options(*sub, command->run);
  sub->footer(
      "One mask serves all heads and batch entries, unless --parameters has one per head.\n"
      "With the same --seed, --kernel and walk options, 'topomask features' writes Phi and Psi with\n"
      "M = Phi Psi^T. In NumPy,\n"
      "  A = M * ((maximum(q, 0) + epsilon) @ (maximum(k, 0) + epsilon).T);  o = (A @ v) / A.sum(1, "
      "keepdims=True)\n"
      "Rows whose sum vanishes are zero.\n"
      "Examples:\n"
      "  topomask attend --graph grid:64x64 --q q.npy --k k.npy --v v.npy --out o.npy\n"
      "  topomask attend --graph mesh.ply --mask power-series --kernel diffusion:sigma2=4 --kind softmax \\\n"
      "      --q q.npy --k k.npy --v v.npy --out o.npy --print-plan\n"
      "  topomask attend --graph grid:64x64 --parameters mask.safetensors --q q.npy --k k.npy --v v.npy "
      "--out o.npy");
  sub->callback([command] { run_attend(*command); });
}

}  // namespace topomask::cli
