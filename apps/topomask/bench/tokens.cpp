// `topomask bench tokens`: training steps of a vision transformer against the number of tokens, where linear
// time begins to matter (Sec. 4).
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randint.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/machine.h"
#include "bench/timing.h"
#include "commands/commands.h"
#include "core/check.h"
#include "core/parallel.h"
#include "core/suggest.h"
#include "draw/chart.h"
#include "nn/few_tokens.h"
#include "options/options.h"
#include "program_version.h"
#include "progress.h"
#include "provenance.h"
#include "table.h"
#include "topomask/device.h"
#include "topomask/image_table.h"
#include "topomask/image_training.h"
#include "train/adam.h"
#include "train/autocast.h"
#include "train/settings.h"
#include "train/table_runs.h"

namespace topomask::cli {
namespace {

using Json = nlohmann::ordered_json;

struct BenchTokensCommand {
  RunOptions run;
  std::vector<std::int64_t> tokens = {256, 1024, 4096};
  std::vector<std::string> variants = {"softmax", "linear", "grf"};
  VitOptions model;  // patches of 2
  std::int64_t batch_tokens = 16384;
  int repeats = 5;
  double max_seconds = 30;
  bool float32 = false;
  std::string device_word = "cpu", out;
};

// One variant at one size.
struct Point {
  std::int64_t tokens = 0, batch = 0;
  std::vector<double> step_seconds = {};
  std::int64_t memory = 0;
  std::string skipped = {};  // why there is no figure

  double images_per_second() const {
    return static_cast<double>(batch) / summarise_times(step_seconds).median;
  }
};

struct Curve {
  std::string variant;
  std::vector<Point> points = {};
};

// NAME@key=value changes settings of the mask: others would not change a step, or not fairly.
VitOptions variant_model(const VitOptions& base, const std::string& variant) {
  VitSettings settings;
  settings.model = base;
  const Settings known = list_settings(settings);
  std::vector<std::string> of_mask;
  for (const Setting& setting : known.all()) {
    if (setting.section == "mask") of_mask.push_back(setting.key);
  }
  for (const auto& [key, value] : split_changes(variant, {}).changes) {
    check(std::find(of_mask.begin(), of_mask.end(), key) != of_mask.end(),
          "variants: '{}' changes {}, which is not a setting of the mask{}", variant, key,
          did_you_mean(key, of_mask));
  }
  const VitOptions model = image_table_settings(settings, variant, base.seed).model;
  check_vit_options(model);
  return model;
}

// As a legend has it: grf, walks=6, share-walks.
std::string variant_label(std::string variant) {
  const auto replace = [&](std::string_view from, std::string_view to) {
    for (std::size_t at = variant.find(from); at != variant.npos; at = variant.find(from, at + to.size()))
      variant.replace(at, from.size(), to);
  };
  replace("=true", "");
  replace("@", ", ");
  return variant;
}

// The same batch of noise every time: the time depends on sizes alone.
ImageData noise(const VitOptions& model, std::int64_t images, std::uint64_t seed) {
  ImageData data;
  data.spec = "noise";
  for (std::int64_t label = 0; label < model.num_classes; ++label)
    data.class_names.push_back(fmt::format("{}", label));
  data.channels = model.channels;
  data.height = model.height;
  data.width = model.width;
  data.mean.assign(static_cast<std::size_t>(model.channels), 0.5);
  data.stddev.assign(static_cast<std::size_t>(model.channels), 0.25);
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  data.train.channels = model.channels;
  data.train.height = model.height;
  data.train.width = model.width;
  data.train.images =
      at::randint(0, 256, {images, model.channels, model.height, model.width}, generator, at::kByte);
  data.train.labels = at::randint(0, model.num_classes, {images}, generator, at::kLong);
  data.validation = data.train;
  return data;
}

class TokenStudy {
 public:
  TokenStudy(const BenchTokensCommand& command, c10::Device device) : command_(command), device_(device) {
    for (const std::string& variant : command.variants) curves_.push_back({variant});
  }

  void run() {
    Progress progress("sizes", command_.run.quiet);
    const auto total = static_cast<std::int64_t>(curves_.size() * command_.tokens.size());
    std::int64_t done = 0;
    for (const std::int64_t tokens : command_.tokens) {
      for (Curve& curve : curves_) {
        curve.points.push_back(measure(curve, tokens));
        progress.update(++done, total, fmt::format("{} tokens, {}", tokens, curve.variant));
      }
    }
    erase_progress_line();
  }
  void print() const;
  void draw() const;

 private:
  VitOptions model_for(const std::string& variant, std::int64_t tokens) const {
    VitOptions model = variant_model(command_.model, variant);
    const auto side = static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(tokens))));
    model.height = model.width = side * model.patch;
    model.seed = model.mask.seed = command_.run.seed;
    check_vit_options(model);
    return model;
  }
  Point measure(const Curve& curve, std::int64_t tokens) const;
  void time_steps(const VitOptions& model, Point& point) const;
  // Tokens from which on a variant trains faster than the first; 0: nowhere.
  double crossing(const Curve& curve) const;
  Json setting() const;

  const BenchTokensCommand& command_;
  c10::Device device_;
  std::vector<Curve> curves_;
};

Point TokenStudy::measure(const Curve& curve, std::int64_t tokens) const {
  Point point{tokens, std::max<std::int64_t>(1, command_.batch_tokens / tokens)};
  const VitOptions model = model_for(curve.variant, tokens);
  for (const Point& smaller : curve.points) {
    const double seconds = summarise_times(smaller.step_seconds).median;
    if (!smaller.skipped.empty() || seconds > command_.max_seconds) {
      point.skipped = smaller.skipped.empty() ? fmt::format("a step took {} at {} tokens",
                                                            format_seconds(seconds), smaller.tokens)
                                              : smaller.skipped;
      return point;
    }
  }
  try {
    time_steps(model, point);
  } catch (const c10::OutOfMemoryError&) {
    point.skipped = "out of memory";
    point.step_seconds.clear();
  } catch (const std::bad_alloc&) {
    point.skipped = "out of memory";
    point.step_seconds.clear();
  }
  return point;
}

void TokenStudy::time_steps(const VitOptions& model, Point& point) const {
  reset_peak_memory(device_);
  const std::int64_t held = peak_memory(device_);
  const PeakMemory resident;
  ImageTaskOptions options;
  options.model = model;
  options.batch_size = point.batch;
  options.seed = command_.run.seed;
  options.device = device_;
  ImageClassification task(noise(model, point.batch, command_.run.seed), options);
  TrainOptions training;
  training.device = device_;
  Adam optimizer(task.parameters(), training);
  task.set_training(true);
  std::int64_t epoch = 0;
  const auto step = [&] {
    task.start_epoch(epoch++, 0);
    {
      const AutocastScope mixed(device_.is_cuda() && !command_.float32);
      task.loss().loss.backward();
    }
    optimizer.clip_gradients();
    optimizer.step(1);
    optimizer.clear_gradients();
  };
  step();  // memory, and what is made once
  point.memory = device_.is_cuda() ? peak_memory(device_) - held : resident.bytes();
  std::vector<TimedWork> work = {{step, command_.repeats}};
  const double first = seconds_per_call(device_, 1, step);
  if (first * command_.repeats > command_.max_seconds) work[0].repeats = 1;
  time_in_turns(device_, work);
  point.step_seconds = work[0].seconds;
}

double TokenStudy::crossing(const Curve& curve) const {
  const auto ratio = [&](std::size_t i) {
    return std::log(curve.points[i].images_per_second() / curves_[0].points[i].images_per_second());
  };
  const auto is_measured = [&](std::size_t i) {
    return curve.points[i].skipped.empty() && curves_[0].points[i].skipped.empty();
  };
  std::size_t measured = 0;
  while (measured < curve.points.size() && is_measured(measured)) ++measured;
  std::size_t i = measured;  // faster from here on
  while (i > 0 && ratio(i - 1) > 0) --i;
  if (i == measured) return 0;
  if (i == 0) return static_cast<double>(curve.points[0].tokens);
  const auto size = [&](std::size_t at) { return std::log(static_cast<double>(curve.points[at].tokens)); };
  return std::exp(size(i) - ratio(i) * (size(i) - size(i - 1)) / (ratio(i) - ratio(i - 1)));
}

Json TokenStudy::setting() const {
  const VitOptions& model = command_.model;
  return {{"layers", model.layers},
          {"embedding", model.embedding},
          {"heads", model.heads},
          {"mlp", model.mlp},
          {"walks", model.mask.num_walks},
          {"p_halt", model.mask.p_halt},
          {"max_hops", model.mask.max_hops},
          {"share_walks", model.mask.share_walks},
          {"batch_tokens", command_.batch_tokens},
          {"numbers", device_.is_cuda() && !command_.float32 ? "bfloat16" : "float32"},
          {"device", device_.is_cuda() ? device_name(device_) : cpu_model()},
          {"threads", num_threads()},
          {"repeats", command_.repeats},
          {"version", program_version()}};
}

void TokenStudy::print() const {
  if (command_.run.json) {
    Json json = {{"results", Json::array()}, {"crossings", Json::object()}, {"setting", setting()}};
    for (const Curve& curve : curves_) {
      for (const Point& point : curve.points) {
        Json row = {{"attention", curve.variant}, {"tokens", point.tokens}, {"batch", point.batch}};
        if (point.skipped.empty()) {
          const Timing timing = summarise_times(point.step_seconds);
          row.update({{"images_per_second", point.images_per_second()},
                      {"step_seconds_median", timing.median},
                      {"step_seconds_spread", timing.spread},
                      {"peak_bytes", point.memory}});
        } else {
          row["skipped"] = point.skipped;
        }
        json["results"].push_back(std::move(row));
      }
      if (&curve != &curves_[0]) json["crossings"][curve.variant] = crossing(curve);
    }
    if (!command_.out.empty())
      json["files"] = {command_.out + "/tokens-speed.png", command_.out + "/tokens-memory.png"};
    fmt::print("{}\n", json.dump());
    return;
  }
  if (command_.run.quiet) return;
  const std::string& first = curves_[0].variant;
  Table table(
      {"tokens", "attention", "batch", "images/s", "step", "spread", "peak memory", "times " + first});
  for (std::size_t i = 0; i < command_.tokens.size(); ++i) {
    for (const Curve& curve : curves_) {
      const Point &point = curve.points[i], &reference = curves_[0].points[i];
      std::vector<std::string> cells = {fmt::format("{}", point.tokens), curve.variant,
                                        fmt::format("{}", point.batch)};
      if (point.skipped.empty()) {
        const Timing timing = summarise_times(point.step_seconds);
        const bool compared = reference.skipped.empty();
        for (std::string cell :
             {fmt::format("{:.4g}", point.images_per_second()), format_seconds(timing.median),
              format_seconds(timing.spread), format_bytes(static_cast<double>(point.memory)),
              compared ? fmt::format("{:.2f}", point.images_per_second() / reference.images_per_second())
                       : ""})
          cells.push_back(std::move(cell));
      } else {
        for (std::string cell : {"skipped", "", "", "", ""}) cells.push_back(std::move(cell));
      }
      table.add_row(std::move(cells));
    }
  }
  table.print();
  for (const Curve& curve : curves_) {
    const Point& last = curve.points.back();
    if (!last.skipped.empty()) fmt::print("{}: skipped, {}\n", curve.variant, last.skipped);
    const double from = &curve == &curves_[0] ? 0 : crossing(curve);
    if (from > 0)
      fmt::print("{} is faster than {} from about {:.0f} tokens on\n", curve.variant, first, from);
  }
  fmt::print("{}\n", in_words(setting()));
  if (!command_.out.empty())
    fmt::print("{0}/tokens-speed.png, {0}/tokens-memory.png (also .svg)\n", command_.out);
}

void TokenStudy::draw() const {
  const VitOptions& model = command_.model;
  const std::string what = fmt::format(
      "Whole training steps: forward, backward and AdamW; {} layers of width {}, {} heads, batches of {} "
      "tokens; "
      "masks of {} walks, p_halt {}, {} hops.",
      model.layers, model.embedding, model.heads, command_.batch_tokens, model.mask.num_walks,
      model.mask.p_halt, model.mask.max_hops);
  const std::vector<double> ticks(command_.tokens.begin(), command_.tokens.end());
  Chart speed{.title = "Training speed of a vision transformer",
              .x_axis = {.label = "tokens per image", .logarithmic = true, .ticks = ticks},
              .y_axis = {"images per second", true},
              .series = {},
              .caption = what + " Medians."};
  Chart memory{.title = "Memory of a training step",
               .x_axis = speed.x_axis,
               .y_axis = {.label = "peak bytes per image", .logarithmic = true, .unit = "B"},
               .series = {},
               .caption = what};
  for (const Curve& curve : curves_) {
    Series images{.label = variant_label(curve.variant),
                  .x = {},
                  .y = {},
                  .colour = series_colour(speed.series.size())};
    Series bytes = images;
    for (const Point& point : curve.points) {
      if (!point.skipped.empty()) continue;
      images.x.push_back(static_cast<double>(point.tokens));
      images.y.push_back(point.images_per_second());
      bytes.x.push_back(static_cast<double>(point.tokens));
      bytes.y.push_back(static_cast<double>(point.memory) / static_cast<double>(point.batch));
    }
    speed.series.push_back(std::move(images));
    memory.series.push_back(std::move(bytes));
  }
  write_chart(speed, provenance(device_), command_.out + "/tokens-speed");
  write_chart(memory, provenance(device_), command_.out + "/tokens-memory");
}

void run_bench_tokens(const BenchTokensCommand& command) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 20;
  command.run.apply();
  check(!command.tokens.empty() && !command.variants.empty(), "--tokens, --variants: expected at least one");
  for (const std::int64_t tokens : command.tokens) {
    const auto side = static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(tokens))));
    check(tokens >= 1 && tokens <= kMostTokens && side * side == tokens,
          "--tokens: expected squares up to {}, got {}", kMostTokens, tokens);
  }
  check(std::is_sorted(command.tokens.begin(), command.tokens.end()),
        "--tokens: expected ascending numbers, got {}", fmt::join(command.tokens, ","));
  for (const std::string& variant : command.variants) variant_model(command.model, variant);
  check(command.repeats >= 1, "--repeats: expected at least 1, got {}", command.repeats);
  check(command.batch_tokens >= 1, "--batch-tokens: expected at least 1, got {}", command.batch_tokens);
  check_vit_options(command.model);
  const c10::Device device = parse_device(command.device_word);
  if (!command.out.empty()) {
    std::error_code status;
    std::filesystem::create_directories(command.out, status);
    check(!status, "cannot create the directory '{}': {}", command.out, status.message());
  }
  TokenStudy study(command, device);
  study.run();
  if (!command.out.empty()) study.draw();
  study.print();
}

}  // namespace

void add_bench_tokens_command(CLI::App& bench) {
  CLI::App* sub = bench.add_subcommand(
      "tokens", "Training speed and memory of a vision transformer against its number of tokens");
  const auto command = std::make_shared<BenchTokensCommand>();
  const auto add = [&](const char* flag, auto& value, const char* description) {
    return sub->add_option(flag, value, description)->capture_default_str();
  };
  VitOptions& model = command->model;
  add("--tokens", command->tokens, "Tokens per image, squares in ascending order")->delimiter(',');
  add("--variants", command->variants,
      "Attention variants, as in 'train vit'; the first is the baseline; NAME@KEY=VALUE changes a setting of "
      "the mask")
      ->delimiter(',');
  add("--layers", model.layers, "Transformer blocks");
  add("--embedding", model.embedding, "Width of a token");
  add("--heads", model.heads, "Attention heads");
  add("--mlp", model.mlp, "Hidden width of the MLP");
  add("--walks", model.mask.num_walks, "Walks per patch");
  add("--p-halt", model.mask.p_halt, "Probability that a walk halts at each patch");
  add("--max-hops", model.mask.max_hops, "Maximum length of a walk in hops");
  sub->add_flag("--share-walks", model.mask.share_walks, "Use one set of walks for all heads and layers");
  add("--batch-tokens", command->batch_tokens, "Tokens per batch: as many images as fit, at least one");
  add("--repeats", command->repeats, "Timed steps per row");
  add("--max-seconds", command->max_seconds,
      "Seconds: a variant whose step took longer is not tried on larger images; one whose repeats would take "
      "longer is timed once");
  sub->add_flag("--float32", command->float32,
                "Compute matrix products on a GPU in float32 instead of bfloat16");
  sub->add_option("--out", command->out, "Directory for the plots (PNG and SVG)")->type_name("DIR");
  add_device_option(*sub, command->device_word);
  add_run_options(*sub, command->run);
  sub->footer(fmt::format(
      "A step is forward, backward and AdamW on noise. Peak memory is what the model and the first step "
      "add:\n"
      "on a GPU to the memory that torch holds, else to the process, which may also reuse memory of earlier\n"
      "rows. Up to {} tokens, or {} times the nonzeros per row if that is less, masks are dense matrices.\n"
      "Examples:\n"
      "  topomask bench tokens --tokens 64,256 --layers 2 --embedding 64 --mlp 128 --batch-tokens 2048 --out "
      "plots\n"
      "  topomask bench tokens --tokens 256,1024,4096,16384 --batch-tokens 65536 --device cuda --out plots\n"
      "  topomask bench tokens --variants softmax,grf,grf@walks=6@p-halt=0.3@max-hops=5@share-walks=true",
      kDenseNodes, kDenseNodesPerNonzero));
  sub->callback([command] { run_bench_tokens(*command); });
}

}  // namespace topomask::cli
