#include "report/particles.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
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
#include "topomask/neighbours.h"
#include "topomask/particle_training.h"
#include "topomask/robot.h"
#include "topomask/runs.h"
#include "topomask/safetensors.h"

namespace topomask::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kShownParticles = 8192;
constexpr std::int64_t kMostSteps = 64, kMostNeighbours = 16, kMostHops = 6;

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
  // 3 where it is not given; at most as many as a page shows.
  std::int64_t number(const char* key, std::int64_t most) const {
    const auto found = content.metadata.find(key);
    if (found == content.metadata.end()) return 3;
    char* end = nullptr;
    const std::int64_t value = std::strtoll(found->second.c_str(), &end, 10);
    check(end != found->second.c_str() && *end == '\0' && value >= 1,
          "{}: expected a number from 1 for '{}' in the metadata, got '{}'", path, key, found->second);
    return std::min(value, most);
  }
};

ParticleRollout read_rollout(const std::string& path, const std::string& variant, std::uint64_t seed) {
  const RolloutFile file{path, read_safetensors(path)};
  ParticleRollout rollout;
  rollout.variant = variant;
  rollout.seed = seed;
  const auto episode = file.content.metadata.find("episode");
  rollout.episode = episode == file.content.metadata.end() ? "" : episode->second;
  const at::Tensor truth = file.tensor("truth", 5, 3, at::kByte),
                   predicted = file.tensor("predicted", 5, 3, at::kByte);
  check(truth.sizes() == predicted.sizes() && truth.numel() > 0 && truth.size(0) <= kMostSteps,
        "{}: expected 'truth' and 'predicted' of one size and 1 to {} steps, got {} and {}", path, kMostSteps,
        describe(truth), describe(predicted));
  rollout.frames = rollout_frames(truth, predicted);
  rollout.neighbours = file.number("neighbours", kMostNeighbours);
  rollout.hops = file.number("hops", kMostHops);
  if (!file.content.tensors.contains("points")) return rollout;
  rollout.points = file.tensor("points", 3, 3, at::kFloat).contiguous();
  rollout.colours = file.tensor("colours", 2, 3, at::kByte).contiguous();
  check(rollout.points.size(0) <= kMostSteps && rollout.colours.size(0) == rollout.points.size(1),
        "{}: expected 'points' of up to {} steps and a colour for each of them, got {} and {}", path,
        kMostSteps, describe(rollout.points), describe(rollout.colours));
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

// Null where there is nothing to show. A particle that is not finite in every step is left out.
Json cloud_of(const ParticleRollout& rollout) {
  if (!rollout.points.defined() || rollout.points.size(0) == 0) return nullptr;
  at::Tensor which = rollout.points.isfinite().all(-1).all(0).nonzero().squeeze(1);
  const std::int64_t all = which.size(0), steps = rollout.points.size(0);
  which = which.narrow(0, 0, std::min(all, kShownParticles));  // they come in random order
  const std::int64_t count = which.size(0);
  if (count == 0) return nullptr;
  const at::Tensor points = rollout.points.index_select(1, which);  // [T, n, 3]
  const at::Tensor low = points.amin({0, 1}), high = points.amax({0, 1});
  const at::Tensor words = ((points - low) / (high - low).clamp_min(1e-9) * 65535).round().clamp(0, 65535);
  NeighbourOptions options;
  options.ptr = at::arange(steps + 1, at::kLong) * count;
  const at::Tensor found = knn(points.reshape({steps * count, 3}), rollout.neighbours, options).index;
  const at::Tensor first = at::arange(steps, at::kInt).view({steps, 1, 1}) * count;
  const at::Tensor links = found.view({steps, count, rollout.neighbours});
  const at::Tensor colours = rollout.colours.index_select(0, which).contiguous();
  const auto corner = [](const at::Tensor& x) {
    return Json{x[0].item<double>(), x[1].item<double>(), x[2].item<double>()};
  };
  return {{"count", count},
          {"all", rollout.points.size(1)},
          {"steps", steps},
          {"neighbours", rollout.neighbours},
          {"hops", rollout.hops},
          {"low", corner(low)},
          {"high", corner(high)},
          {"positions", packed_words(words)},
          {"colours", packed(colours.const_data_ptr(), colours.nbytes())},
          {"links", packed_words(at::where(links.ge(0), links - first, -1))}};
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
