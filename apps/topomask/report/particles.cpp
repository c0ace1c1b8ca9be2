#include "report/particles.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include "core/check.h"
#include "core/tensors.h"
#include "draw/picture.h"
#include "draw/rollout_tensors.h"
#include "io/files.h"
#include "program_version.h"
#include "provenance.h"
#include "report/encoding.h"
#include "topomask/interlacer.h"
#include "topomask/particle_training.h"
#include "topomask/robot.h"
#include "topomask/runs.h"
#include "topomask/safetensors.h"

namespace topomask::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostSteps = 64, kMostHops = 16;
constexpr std::int64_t kMostCloudNumbers = std::int64_t{1} << 21;  // tokens and edges of all steps of a cloud

std::string text_of(const fs::path& path) {
  return fs::exists(path) ? read_file(path.string()) : std::string();
}

// Null where the file is missing or no JSON.
Json json_of(const fs::path& path) {
  Json json = Json::parse(text_of(path), nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? Json() : json;
}

// What is there of another kind counts as missing.
std::string text_or_empty(const Json& json, const char* key) {
  const Json value = json.value(key, Json());
  return value.is_string() ? value.get<std::string>() : std::string();
}

std::uint64_t number_or_zero(const Json& json, const char* key) {
  const Json value = json.value(key, Json());
  return value.is_number_unsigned() ? value.get<std::uint64_t>() : 0;
}

bool is_experiment(const Json& json) {
  return json.is_object() && json.value("experiment", Json()) == "particle-table";
}

bool is_run(const Json& json) {
  return json.is_object() && json.contains("rollout") && json["rollout"].is_object();
}

// [mean, error or null], or null: from KEY_mean and KEY_se, or KEY alone.
Json score_of(const Json& step, const std::string& key) {
  const Json mean = step.contains(key) ? step[key] : step.value(key + "_mean", Json());
  if (!mean.is_number()) return nullptr;
  const Json error = step.value(key + "_se", Json());
  return {mean, error.is_number() ? error : Json()};
}

Json steps_of(const Json& row, const std::string& name) {
  const Json steps = row.is_object() ? row.value("steps", Json()) : Json();
  check(steps.is_array() && !steps.empty(), "report: {} has no steps in its results", name);
  Json result = Json::array();
  for (const Json& step : steps) {
    check(step.is_object() && step.value("step", Json()).is_number_integer(),
          "report: expected a number for 'step' of {} in its results", name);
    Json scores = {{"step", step["step"]}};
    for (const StepScore& score : step_scores()) scores[score.name] = score_of(step, score.name);
    result.push_back(std::move(scores));
  }
  return result;
}

// The summary of one run, in the form of results.json.
Json summary_of(const Json& result) {
  const Json& rollout = result["rollout"];
  const std::string local = text_or_empty(result, "local");
  Json row = {{"variant", local}, {"local", local}, {"seeds", {number_or_zero(result, "seed")}}};
  row["parameters"] = result.value("parameters", Json());
  row["step_seconds"] = rollout.value("step_seconds", Json());
  row["memory_bytes"] = rollout.value("memory_bytes", Json());
  row["steps"] = rollout.value("model", Json());
  Json summary = {{"experiment", "particle-table"}, {"data", text_or_empty(result, "data")}};
  summary["variants"].push_back(std::move(row));
  for (const char* name : {"copy", "oracle"}) {
    if (rollout.contains(name)) summary[name] = {{"steps", rollout[name]}};
  }
  summary["runs"].push_back({{"variant", local}, {"seed", number_or_zero(result, "seed")}, {"folder", "."}});
  return summary;
}

struct RolloutFile {
  std::string path;
  SafetensorsFile content;

  at::Tensor tensor(const char* name, std::int64_t dimensions, std::int64_t last, at::ScalarType type) const {
    const auto found = content.tensors.find(name);
    check(found != content.tensors.end(), "{}: has no tensor '{}'", path, name);
    const at::Tensor& x = found->second;
    check(x.dim() == dimensions && x.size(-1) == last && x.scalar_type() == type,
          "{}: expected '{}' with {} dimensions, {} last, of {}, got {}", path, name, dimensions, last,
          c10::toString(type), describe(x));
    return x;
  }
  const std::string& text(const char* key) const {
    const auto found = content.metadata.find(key);
    check(found != content.metadata.end(), "{}: its metadata have no '{}'", path, key);
    return found->second;
  }
  std::int64_t number(const char* key) const {
    const std::string& word = text(key);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    check(error == std::errc() && end == word.data() + word.size() && value >= 0,
          "{}: expected a number from 0 for '{}' in the metadata, got '{}'", path, key, word);
    return value;
  }
};

// At most the steps that a page shows.
at::Tensor shown_steps(const at::Tensor& x) {
  return x.narrow(0, 0, std::min(x.size(0), kMostSteps)).contiguous();
}

ParticleRollout read_rollout(const std::string& path, const std::string& variant, std::uint64_t seed) {
  const RolloutFile file{path, read_safetensors(path)};
  ParticleRollout rollout;
  rollout.variant = variant;
  rollout.seed = seed;
  const auto episode = file.content.metadata.find("episode");
  rollout.episode = episode == file.content.metadata.end() ? "" : episode->second;
  const at::Tensor truth = file.tensor("truth", 5, 3, at::kByte),
                   predicted = file.tensor("predicted", 5, 3, at::kByte);
  check(truth.sizes() == predicted.sizes() && truth.numel() > 0,
        "{}: expected 'truth' and 'predicted' of one size, got {} and {}", path, describe(truth),
        describe(predicted));
  rollout.frames = rollout_frames(shown_steps(truth), shown_steps(predicted));
  if (!file.content.tensors.contains("tokens")) return rollout;
  rollout.tokens = shown_steps(file.tensor("tokens", 3, 3, at::kFloat));
  rollout.colours = file.tensor("colours", 2, 3, at::kByte).contiguous();
  rollout.past = file.number("past_particles");
  check(rollout.colours.size(0) + rollout.past <= rollout.tokens.size(1),
        "{}: expected at least as many 'tokens' as 'colours' and past_particles, got {}, {} and {}", path,
        describe(rollout.tokens), describe(rollout.colours), rollout.past);
  InterlacerOptions& layers = rollout.interlacer;
  layers.local = parse_word<LocalLayer>(path, file.text("local"));
  layers.ensembles = parse_word<Ensembles>(path, file.text("ensembles"));
  layers.neighbours = file.number("neighbours");
  layers.hops = static_cast<int>(std::min(file.number("hops"), kMostHops));
  check_interlacer_options(layers);
  return rollout;
}

std::string packed(const void* values, std::size_t bytes) {
  return encode_base64(deflate_bytes(std::string(static_cast<const char*>(values), bytes)));
}

// int32 tensor of values from 0 to 65535 as two bytes each, the lower first; -1 becomes 65535.
std::string packed_words(const at::Tensor& values) {
  const at::Tensor words = values.to(at::kInt).contiguous();
  const auto* from = words.const_data_ptr<std::int32_t>();
  std::string bytes;
  bytes.reserve(static_cast<std::size_t>(2 * words.numel()));
  for (std::int64_t i = 0; i < words.numel(); ++i) {
    bytes += static_cast<char>(from[i] & 255);
    bytes += static_cast<char>(from[i] >> 8 & 255);
  }
  return packed(bytes.data(), bytes.size());
}

// How far the mask of a local layer reaches on its graph; 0: the layer has none.
std::int64_t reach_of(const InterlacerOptions& o) {
  switch (o.local) {
    case LocalLayer::grf:
      return std::min<std::int64_t>(o.hops, kMostHops);
    case LocalLayer::softmax:
      return 1;
    default:
      return 0;
  }
}

const char* why_no_graph(LocalLayer local) {
  switch (local) {
    case LocalLayer::message_passing:
      return "Message passing has anchors in place of a graph: each gathers from the tokens nearest to it, "
             "and sends to those that have no anchor nearer. Only the tokens are drawn.";
    case LocalLayer::none:
      return "All layers are global: there is no graph. Only the tokens are drawn.";
    default:
      return "The mask reaches no neighbours. Only the tokens are drawn.";
  }
}

// What tokens are, in their order, and those at t-2 and of the robot in colours that no particle has.
at::Tensor token_colours(const ParticleRollout& rollout) {
  const std::int64_t rest = rollout.tokens.size(1) - rollout.colours.size(0), robot = rest - rollout.past;
  const auto rows = [](std::int64_t count, int r, int g, int b) {
    return at::tensor({r, g, b}, at::kByte).expand({count, 3});
  };
  return at::cat({rollout.colours, rows(rollout.past, 150, 150, 150), rows(robot, 230, 100, 0)});
}

// Null where there is nothing to show. A token that is not finite in every step is left out: it is nobody's
// neighbour.
Json cloud_of(const ParticleRollout& rollout) {
  if (!rollout.tokens.defined()) return nullptr;
  const at::Tensor which = rollout.tokens.isfinite().all(-1).all(0).nonzero().squeeze(1);
  const std::int64_t count = which.size(0), reach = count < 2 ? 0 : reach_of(rollout.interlacer);
  const std::int64_t numbers = count * (1 + (reach > 0 ? std::min(rollout.interlacer.neighbours, count) : 0));
  const std::int64_t steps = numbers == 0 ? 0 : std::min(rollout.tokens.size(0), kMostCloudNumbers / numbers);
  if (steps == 0) return nullptr;
  const at::Tensor tokens = rollout.tokens.narrow(0, 0, steps).index_select(1, which);  // [T, m, 3]
  const at::Tensor low = tokens.amin({0, 1}), high = tokens.amax({0, 1});
  const at::Tensor words = ((tokens - low) / (high - low).clamp_min(1e-9) * 65535).round().clamp(0, 65535);
  const at::Tensor colours = token_colours(rollout).index_select(0, which).contiguous();
  const auto corner = [](const at::Tensor& x) {
    return Json{x[0].item<double>(), x[1].item<double>(), x[2].item<double>()};
  };
  const auto below = [&](std::int64_t end) { return which.lt(end).sum().item<std::int64_t>(); };
  const std::int64_t particles = below(rollout.colours.size(0)),
                     visual = below(rollout.colours.size(0) + rollout.past);
  Json cloud = {{"count", count},
                {"all", rollout.tokens.size(1)},
                {"kinds", {particles, visual - particles, count - visual}},
                {"steps", steps},
                {"low", corner(low)},
                {"high", corner(high)},
                {"positions", packed_words(words)},
                {"colours", packed(colours.const_data_ptr(), colours.nbytes())}};
  if (reach == 0) {
    cloud["note"] = why_no_graph(rollout.interlacer.local);
    return cloud;
  }
  const Graph graph = token_graph(tokens, rollout.interlacer);  // as the model makes it
  const at::Tensor links = graph.col.remainder(count).to(at::kInt).contiguous();
  cloud["neighbours"] = rollout.interlacer.neighbours;
  cloud["undirected"] = !graph.directed;
  cloud["hops"] = reach;
  cloud["degrees"] = packed_words(graph.row_ptr.diff());
  cloud["links"] = packed(links.const_data_ptr(), links.nbytes());
  return cloud;
}

Json rollout_json(const ParticleRollout& rollout) {
  const RolloutFrames& frames = rollout.frames;
  Json json = {{"episode", rollout.episode},
               {"seed", rollout.seed},
               {"steps", frames.steps},
               {"size", {frames.height, frames.width}}};
  for (const auto& [name, part] :
       {std::pair{"truth", RolloutPart::truth}, std::pair{"predicted", RolloutPart::predicted},
        std::pair{"difference", RolloutPart::difference}}) {
    Json strips = Json::array();
    for (int camera = 0; camera < frames.cameras; ++camera) {
      const std::string png = encode_png(rollout_strip(frames, camera, part).data(),
                                         frames.steps * frames.width, frames.height, 3);
      strips.push_back("data:image/png;base64," + encode_base64(png));
    }
    json[name] = std::move(strips);
  }
  json["cloud"] = cloud_of(rollout);
  return json;
}

}  // namespace

bool holds_particle_runs(const std::string& folder) {
  return is_experiment(json_of(fs::path(folder) / "results.json")) ||
         is_run(json_of(fs::path(folder) / kResultFile));
}

ParticleReport read_particle_report(const std::string& folder) {
  const fs::path path(folder);
  ParticleReport report;
  report.results = json_of(path / "results.json");
  if (!is_experiment(report.results)) {
    const Json run = json_of(path / kResultFile);
    check(is_run(run),
          "report: {} holds neither results.json of 'experiment particle-table' nor result.json of "
          "'train particles'",
          folder);
    report.results = summary_of(run);
  }
  report.config = text_of(path / kConfigFile);
  const Json runs = report.results.value("runs", Json::array());
  check(runs.is_array(), "report: {}/results.json: expected an array 'runs'", folder);
  std::set<std::string> shown;
  for (const Json& run : runs) {
    check(run.is_object() && run.value("variant", Json()).is_string() &&
              run.value("folder", Json()).is_string(),
          "report: {}/results.json: expected 'variant' and 'folder' of every run", folder);
    const std::string variant = run["variant"];
    const fs::path own = path / run["folder"].get<std::string>();
    if (report.device.empty()) {
      const Json result = json_of(own / kResultFile);
      if (is_run(result)) {
        report.device = text_or_empty(result, "device");
        report.particles = static_cast<std::int64_t>(number_or_zero(result, "particles"));
      }
    }
    if (shown.contains(variant) || !fs::exists(own / kRolloutFile)) continue;
    report.rollouts.push_back(
        read_rollout((own / kRolloutFile).string(), variant, number_or_zero(run, "seed")));
    shown.insert(variant);
  }
  return report;
}

Json particle_page_data(const ParticleReport& report) {
  const Json& results = report.results;
  const Provenance origin = provenance();
  Json page = {{"data", text_or_empty(results, "data")},
               {"device", report.device},
               {"particles", Json()},
               {"step_seconds", kRobotFrameSeconds},
               {"version", program_version()},
               {"command", origin.command},
               {"machine", origin.machine},
               {"config", report.config}};
  if (report.particles > 0) page["particles"] = report.particles;
  for (const char* name : {"copy", "oracle"})
    page[name] = results.contains(name) ? Json{{"steps", steps_of(results[name], name)}} : Json();
  page["variants"] = Json::array();
  const Json variants = results.value("variants", Json());
  check(variants.is_array() && !variants.empty(), "report: the results have no variants");
  for (const Json& row : variants) {
    check(row.is_object() && row.value("variant", Json()).is_string(),
          "report: expected a name for every variant of the results");
    const std::string name = row["variant"];
    Json entry = {{"variant", name}, {"seeds", row.value("seeds", Json::array())}};
    for (const char* key : {"local", "parameters", "step_seconds", "memory_bytes"})
      entry[key] = row.value(key, Json());
    entry["steps"] = steps_of(row, name);
    const auto found = std::find_if(report.rollouts.begin(), report.rollouts.end(),
                                    [&](const ParticleRollout& rollout) { return rollout.variant == name; });
    entry["rollout"] = found == report.rollouts.end() ? Json() : rollout_json(*found);
    page["variants"].push_back(std::move(entry));
  }
  return page;
}

}  // namespace topomask::cli
