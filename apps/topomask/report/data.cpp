#include "report/data.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "core/check.h"
#include "program_version.h"
#include "provenance.h"
#include "report/pictures.h"
#include "topomask/runs.h"
#include "train/finished_runs.h"
#include "train/sample.h"

namespace topomask::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kMaskBytes = 16 << 20;  // of all masks of a page, before compression
constexpr const char* kCurves[] = {"accuracy", "loss", "train_accuracy", "train_loss"};

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Epochs of a run that have the value: epoch -> value.
std::map<std::int64_t, double> read_curve(const fs::path& run_folder, const char* key) {
  std::map<std::int64_t, double> curve;
  std::ifstream file(run_folder / kMetricsFile);
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) continue;
    // Lines of other kinds, and lines that a kill or an editor has spoilt, are left out.
    const auto kind = json.find("kind"), epoch = json.find("epoch"), value = json.find(key);
    if (kind == json.end() || *kind != "epoch" || epoch == json.end() || !epoch->is_number_integer() ||
        value == json.end() || !value->is_number())
      continue;
    curve[epoch->get<std::int64_t>()] = value->get<double>();
  }
  return curve;
}

// Over the epochs that all runs have.
Json mean_curve(const std::vector<fs::path>& run_folders, const char* key) {
  std::map<std::int64_t, Sample> samples;
  for (const fs::path& folder : run_folders) {
    for (const auto& [epoch, value] : read_curve(folder, key)) samples[epoch].values.push_back(value);
  }
  Json epochs = Json::array(), means = Json::array(), errors = Json::array();
  for (const auto& [epoch, sample] : samples) {
    if (sample.values.size() != run_folders.size()) continue;
    epochs.push_back(epoch);
    means.push_back(sample.mean());
    errors.push_back(sample.standard_error());
  }
  if (run_folders.size() < 2) errors = nullptr;
  return {{"epoch", std::move(epochs)}, {"mean", std::move(means)}, {"se", std::move(errors)}};
}

std::vector<FinishedRun> find_runs(const std::string& folder) {
  check(fs::is_directory(folder), "report: {} is not a folder", folder);
  if (const auto result = read_result(folder)) return {{result->at("attention"), *result, "."}};
  std::vector<FinishedRun> runs = find_finished_runs(folder);
  check(!runs.empty(),
        "report: {} holds no finished run: expected result.json in it, or in VARIANT/seed-S below it",
        folder);
  return runs;
}

// Adds to a row of the summary what its runs left in their folders.
void add_details(Json& row, const std::vector<FinishedRun>& runs, const fs::path& folder,
                 std::size_t mask_bytes, const Json& examples) {
  std::vector<fs::path> folders;
  Json modulation = Json::array();
  for (const FinishedRun& run : runs) {
    if (run.variant != row["variant"].get<std::string>()) continue;
    folders.push_back(folder / run.folder);
    if (run.result.contains("f"))
      modulation.push_back({{"seed", run.result["seed"]},
                            {"layers", run.result["f"]},
                            {"numbers", run.result.value("f_layers", Json())}});
    for (const char* key : {"encoder", "temporal_attention", "frame_order"}) {
      if (run.result.contains(key)) row[key] = run.result[key];
    }
  }
  row["curves"] = Json::object();
  for (const char* key : kCurves) row["curves"][key] = mean_curve(folders, key);
  row["modulation"] = std::move(modulation);
  row["masks"] = collect_masks(folders.front().string(), mask_bytes);
  row["predictions"] = collect_predictions(folders.front().string(), examples);
}

}  // namespace

Json collect_report(const std::string& folder) {
  const std::vector<FinishedRun> runs = find_runs(folder);
  const Json& first = runs.front().result;
  Json report = Json::object();
  for (const char* key : {"data", "device", "classes", "grid", "patch", "layers", "heads", "epochs",
                          "training_images", "validation_images"})
    report[key] = first.at(key);
  for (const char* key : {"frames", "tubelet"}) {
    if (first.contains(key)) report[key] = first[key];
  }
  const Provenance origin = provenance();
  report["version"] = program_version();
  report["command"] = origin.command;
  report["machine"] = origin.machine;
  report["config"] = read_text(fs::path(folder) / kConfigFile);
  Examples examples = collect_examples((fs::path(folder) / runs.front().folder).string());
  report["examples"] = std::move(examples.list);
  report["example_frames"] = examples.frames;
  if (!examples.cut.empty()) report["examples_cut"] = examples.cut;
  report["variants"] = summarise_runs(runs)["variants"];
  const std::size_t mask_bytes = kMaskBytes / report["variants"].size();
  for (Json& row : report["variants"]) add_details(row, runs, folder, mask_bytes, report["examples"]);
  return report;
}

}  // namespace topomask::cli
