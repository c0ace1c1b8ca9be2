#include "report/experiment_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "bench/sample.h"
#include "commands/training_run.h"
#include "table.h"

namespace topomask::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::vector<std::string> subfolders(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string percent(const Json& part) {
  return part.is_null() ? "" : fmt::format("{:.2f}", 100 * part.get<double>());
}

}  // namespace

const std::vector<std::string>& table_variants() {
  static const std::vector<std::string> names = {
      "softmax", "softmax+grf",      "linear",      "toeplitz",     "power-series",  "grf",
      "ad-hoc",  "learned-features", "grf-walks-1", "grf-walks-10", "grf-walks-100", "grf-walks-1000"};
  return names;
}

std::vector<FinishedRun> find_finished_runs(const std::string& folder) {
  const std::vector<std::string>& known = table_variants();
  std::vector<std::string> variants = known;
  for (const std::string& name : subfolders(folder)) {
    if (std::find(known.begin(), known.end(), name) == known.end()) variants.push_back(name);
  }
  std::vector<FinishedRun> runs;
  for (const std::string& variant : variants) {
    std::vector<FinishedRun> own;
    for (const std::string& seed : subfolders(fs::path(folder) / variant)) {
      const std::string below = variant + "/" + seed;
      if (const auto result = read_result((fs::path(folder) / below).string()))
        own.push_back({variant, *result, below});
    }
    std::sort(own.begin(), own.end(), [](const FinishedRun& a, const FinishedRun& b) {
      return a.result["seed"].get<std::uint64_t>() < b.result["seed"].get<std::uint64_t>();
    });
    runs.insert(runs.end(), own.begin(), own.end());
  }
  return runs;
}

Json summarise_runs(const std::vector<FinishedRun>& runs) {
  Json all = Json::array(), variants = Json::array();
  for (std::size_t first = 0; first < runs.size();) {
    std::size_t end = first;
    Sample accuracy, best, loss, epoch_seconds, rate, data_share;
    Json seeds = Json::array();
    for (; end < runs.size() && runs[end].variant == runs[first].variant; ++end) {
      const Json& result = runs[end].result;
      accuracy.values.push_back(result["accuracy"]);
      best.values.push_back(result["best_accuracy"]);
      loss.values.push_back(result["loss"]);
      epoch_seconds.values.push_back(result["epoch_seconds"]);
      rate.values.push_back(result["images_per_second"]);
      if (result.contains("data_share")) data_share.values.push_back(result["data_share"]);
      seeds.push_back(result["seed"]);
      Json run = {{"variant", runs[end].variant}, {"folder", runs[end].folder}};
      for (const char* key : {"seed", "accuracy", "loss", "best_accuracy", "best_epoch", "epochs", "seconds",
                              "epoch_seconds", "images_per_second", "data_share"})
        run[key] = result.value(key, Json());
      all.push_back(std::move(run));
    }
    variants.push_back({{"variant", runs[first].variant},
                        {"attention", runs[first].result["attention"]},
                        {"seeds", std::move(seeds)},
                        {"accuracy_mean", accuracy.mean()},
                        {"accuracy_se", accuracy.standard_error()},
                        {"best_accuracy_mean", best.mean()},
                        {"loss_mean", loss.mean()},
                        {"loss_se", loss.standard_error()},
                        {"epoch_seconds", epoch_seconds.mean()},
                        {"images_per_second", rate.mean()},
                        {"data_share", data_share.values.empty() ? Json() : Json(data_share.mean())},
                        {"parameters", runs[first].result["parameters"]}});
    first = end;
  }
  return {{"variants", std::move(variants)}, {"runs", std::move(all)}};
}

std::string format_summary(const Json& summary) {
  Table table(
      {"variant", "seeds", "accuracy %", "+-", "loss", "s/epoch", "images/s", "data %", "parameters"});
  for (const Json& row : summary["variants"]) {
    table.add_row({row["variant"], std::to_string(row["seeds"].size()), percent(row["accuracy_mean"]),
                   percent(row["accuracy_se"]), fmt::format("{:.4f}", row["loss_mean"].get<double>()),
                   fmt::format("{:.2f}", row["epoch_seconds"].get<double>()),
                   format_count(std::round(row["images_per_second"].get<double>())),
                   percent(row["data_share"]), format_count(row["parameters"].get<double>())});
  }
  return table.to_string();
}

}  // namespace topomask::cli
