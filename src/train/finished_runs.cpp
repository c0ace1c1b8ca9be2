#include "train/finished_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/check.h"
#include "io/files.h"
#include "topomask/image_table.h"
#include "topomask/mask_catalogue.h"
#include "train/json_number.h"
#include "train/sample.h"

namespace topomask {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

bool is_list(const Json& json, bool (Json::*is)() const noexcept) {
  return json.is_array() && std::all_of(json.begin(), json.end(), [is](const Json& e) { return (e.*is)(); });
}

constexpr std::pair<const char*, std::uint64_t DataFingerprint::*> kDataParts[] = {
    {"train_images", &DataFingerprint::train_images},
    {"train_labels", &DataFingerprint::train_labels},
    {"validation_images", &DataFingerprint::validation_images},
    {"validation_labels", &DataFingerprint::validation_labels}};

}  // namespace

std::vector<std::string> subfolders(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Json to_json(const DataFingerprint& fingerprint) {
  Json json = Json::object();
  for (const auto& [name, part] : kDataParts) json[name] = fmt::format("{:016x}", fingerprint.*part);
  return json;
}

std::string changed_data(const Json& saved, const DataFingerprint& now) {
  const Json here = to_json(now);
  std::string changed;
  for (const auto& entry : kDataParts) {
    const char* name = entry.first;
    if (!saved.is_object() || saved.value(name, Json()) == here[name]) continue;
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    if (words.starts_with("train ")) words.replace(0, 5, "training");
    changed += (changed.empty() ? "" : ", ") + words;
  }
  return changed;
}

Json parse_result(const std::string& text, const std::string& path) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  check(json.is_object(), "{}: is not a JSON object; remove it to run again", path);
  const auto require = [&](const char* key, bool valid, const char* what) {
    check(valid, "{}: expected {} for '{}'; remove it to run again", path, what, key);
  };
  const auto value = [&](const char* key) { return json.value(key, Json()); };
  for (const char* key : {"seed", "accuracy", "best_accuracy", "best_epoch", "epochs", "steps", "parameters",
                          "seconds", "epoch_seconds", "images_per_second", "validation_images",
                          "training_images", "patch", "layers", "heads"})
    require(key, value(key).is_number(), "a number");
  require("loss", json.contains("loss") && is_number_or_null(json["loss"]), "a number");
  for (const char* key : {"attention", "data", "device"}) require(key, value(key).is_string(), "a string");
  require("grid", is_list(value("grid"), &Json::is_number) && json["grid"].size() == 2, "two numbers");
  require("classes", is_list(value("classes"), &Json::is_string), "a list of names");
  for (const char* key :
       {"data_share", "frames", "tubelet", "temporal_layers"}) {  // the last three: of clips
    if (json.contains(key)) require(key, value(key).is_number(), "a number");
  }
  for (const char* key : {"encoder", "temporal_attention", "frame_order"}) {
    if (json.contains(key)) require(key, value(key).is_string(), "a string");
  }
  if (json.contains("f_layers")) require("f_layers", is_list(value("f_layers"), &Json::is_number), "numbers");
  std::vector<std::string> names_of_f;
  for (const auto& item : json.items()) {
    if (current_parameter_name(item.key()) == "f") names_of_f.push_back(item.key());
  }
  for (const std::string& key : names_of_f) {
    bool valid = json[key].is_array();
    for (const Json& layer : json[key]) {
      valid = valid && layer.is_array();
      for (const Json& head : layer)
        valid = valid && head.is_array() && std::all_of(head.begin(), head.end(), is_number_or_null<Json>);
    }
    require(key.c_str(), valid, "numbers for each layer and head");
  }
  if (!names_of_f.empty() && !json.contains("f")) {
    json["f"] = std::move(json[names_of_f.front()]);
    json.erase(names_of_f.front());
  }
  return json;
}

std::optional<Json> read_result(const std::string& folder) {
  const std::string path = (fs::path(folder) / kResultFile).string();
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::nullopt;
  return parse_result(read_file(path), path);
}

std::vector<FinishedRun> find_finished_runs(const std::string& folder) {
  std::vector<std::string> variants = image_table_variants();
  const auto add_new = [&variants](const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      if (std::find(variants.begin(), variants.end(), name) == variants.end()) variants.push_back(name);
    }
  };
  add_new(video_table_variants());
  add_new(subfolders(folder));
  std::vector<FinishedRun> runs;
  for (const std::string& variant : variants) {
    std::vector<FinishedRun> own;
    for (const std::string& seed : subfolders((fs::path(folder) / variant).string())) {
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
      loss.values.push_back(number_or_nan(result["loss"]));
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

}  // namespace topomask
