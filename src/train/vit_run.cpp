#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/check.h"
#include "io/files.h"
#include "topomask/distributed.h"
#include "topomask/safetensors.h"
#include "train/checkpoint_file.h"
#include "train/finished_runs.h"
#include "train/initialise_from.h"
#include "train/json_number.h"
#include "train/shared_run.h"

namespace topomask {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kExamples = 24;

// Names of classes need not be UTF-8.
std::string dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

Json to_rows(const at::Tensor& matrix) {
  const at::Tensor values = matrix.to(at::kDouble).contiguous();
  Json rows = Json::array();
  for (std::int64_t row = 0; row < values.size(0); ++row) {
    const double* first = values.const_data_ptr<double>() + row * values.size(1);
    rows.push_back(std::vector<double>(first, first + values.size(1)));
  }
  return rows;
}

// Median over the epochs of a run: the first has warm-up in it, and a machine may be disturbed.
template <class Value>
double median_of_epochs(const RunFolder& folder, const Value& value) {
  std::ifstream file(folder.file(kMetricsFile));
  std::vector<double> values;
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_object() && json.value("kind", "") == "epoch") values.push_back(value(json));
  }
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void write_masks(const RunFolder& folder, const std::vector<MaskSnapshot>& masks) {
  SafetensorsFile file;
  for (const MaskSnapshot& mask : masks) {
    if (!mask.used.defined()) continue;
    const std::string layer = fmt::format("layer.{}.", mask.layer);
    // Half precision is more than a picture shows.
    file.tensors[layer + "used"] = mask.used.to(at::kHalf);
    file.metadata[layer + "grid"] = Json(mask.grid).dump();
    if (mask.exact.defined()) file.tensors[layer + "exact"] = mask.exact.to(at::kHalf);
  }
  if (file.tensors.empty()) return;
  write_safetensors(folder.file(kMasksFile), file);
}

void write_examples(const RunFolder& folder, ImageClassification& task) {
  const Predictions examples = task.predict_examples(kExamples);
  SafetensorsFile file;
  file.tensors = {{"indices", examples.indices},
                  {"images", examples.images},
                  {"labels", examples.labels},
                  {"probabilities", examples.probabilities}};
  write_safetensors(folder.file(kExamplesFile), file);
}

Json result_json(const RunFolder& folder, const VitSettings& settings, const ImageData& data,
                 const DataFingerprint& fingerprint, const ImageTaskOptions& options,
                 const ImageClassification& task, const TrainResult& result,
                 const std::vector<MaskSnapshot>& masks) {
  const auto number = [](const char* key) {
    return [key](const Json& epoch) { return epoch.value(key, 0.0); };
  };
  const auto data_share = [](const Json& epoch) {
    return epoch.value("data_seconds", 0.0) / std::max(epoch.value("train_seconds", 0.0), 1e-9);
  };
  Json f = Json::array(), key_f = Json::array(), f_layers = Json::array();
  for (const MaskSnapshot& mask : masks) {
    if (!mask.f.defined()) continue;
    f.push_back(to_rows(mask.f));
    if (mask.key_f.defined()) key_f.push_back(to_rows(mask.key_f));
    f_layers.push_back(mask.layer);
  }
  Json json = {{"attention", attention_variant_name(options.model.attention)},
               {"seed", settings.seed},
               {"data", settings.data},
               {"data_fingerprint", to_json(fingerprint)},
               {"accuracy", result.last.accuracy},
               {"loss", result.last.loss},
               {"best_accuracy", result.best.accuracy},
               {"best_epoch", result.best_epoch},
               {"validation_images", result.last.count},
               {"training_images", data.train.size()},
               {"skipped_images", task.skipped_images() + data.train.skipped + data.validation.skipped},
               {"epochs", result.epoch},
               {"steps", result.step},
               {"parameters", task.num_parameters()},
               {"seconds", result.seconds},
               {"epoch_seconds", median_of_epochs(folder, number("train_seconds"))},
               {"images_per_second", median_of_epochs(folder, number("samples_per_second"))},
               {"data_share", median_of_epochs(folder, data_share)},
               {"device", settings.device},
               {"grid", {options.model.grid_height(), options.model.grid_width()}},
               {"patch", options.model.patch},
               {"layers", options.model.layers},
               {"heads", options.model.heads},
               {"classes", data.class_names}};
  if (!f.empty()) {
    json["f"] = f;                // [layers][heads][k]
    json["f_layers"] = f_layers;  // which of the layers these are
  }
  if (!key_f.empty()) json["key_f"] = key_f;
  if (settings.is_video()) {
    json["encoder"] = word_of(options.model.encoder);
    json["frames"] = options.model.frames;
    json["tubelet"] = options.model.tubelet;
    json["temporal_layers"] = options.model.total_layers() - options.model.layers;
    json["temporal_attention"] = attention_variant_name(options.model.temporal_attention);
    json["frame_order"] = word_of(settings.frame_order);
  }
  return json;
}

TrainResult training_of(const Json& result) {
  TrainResult training;
  training.step = training.steps = result["steps"];
  training.epoch = result["epochs"];
  training.last = {number_or_nan(result["loss"]), result["accuracy"], result["validation_images"]};
  training.best.accuracy = result["best_accuracy"];
  training.best_epoch = result["best_epoch"];
  training.seconds = result["seconds"];
  return training;
}

// What a checkpoint says about its run.
RunMetadata describe_run(const VitSettings& settings, const ImageData& data,
                         const DataFingerprint& fingerprint, const VitOptions& model) {
  const Json normalisation = {{"mean", data.mean}, {"stddev", data.stddev}};
  Json images = {
      {"channels", data.channels}, {"height", data.height}, {"width", data.width}, {"patch", model.patch}};
  if (settings.is_video()) images["frames"] = data.frames;
  return {{kModelKey, settings.kind()},
          {kSettingsKey, settings.to_toml()},
          {kNormalisationKey, normalisation.dump()},
          {kImagesKey, images.dump()},
          {kClassesKey, dump(Json(data.class_names))},
          {kDataKey, to_json(fingerprint).dump()}};
}

void check_same_data(const RunMetadata& saved, const std::string& path, const RunMetadata& now,
                     const DataFingerprint& fingerprint) {
  // Checkpoints of earlier versions have no fingerprint.
  if (const auto data = saved.find(kDataKey); data != saved.end()) {
    const std::string changed = changed_data(Json::parse(data->second, nullptr, false), fingerprint);
    check(
        changed.empty(),
        "{}: the run was trained on other data ({} differ); resume it with its own, or choose another folder "
        "for a new run",
        path, changed);
  }
  for (const char* key : {kModelKey, kImagesKey, kNormalisationKey}) {
    const auto before = saved.find(key);
    check(before == saved.end() || before->second == now.at(key),
          "{}: the run was trained on other data, its {} is {} there and {} here; resume it with its own, or "
          "choose another folder for a new run",
          path, key, before == saved.end() ? "" : before->second, now.at(key));
  }
}

// A run that has a checkpoint of its own resumes from that alone.
bool begins_elsewhere(const RunFolder& folder, const VitSettings& settings) {
  return !settings.initialise_from.empty() && !std::filesystem::exists(folder.file(kLastCheckpoint));
}

// Result of a finished run; nothing where there is work to do. Throws where the settings are not the run's.
std::optional<RunResult> check_run(const RunFolder& folder, const VitSettings& settings) {
  settings.train_options();
  if (const std::optional<VitSettings> saved = folder.settings())
    check_same_settings(folder, *saved, settings);
  const std::optional<std::string> text = folder.result();
  // Before the data are read, which may take long.
  if (!text && begins_elsewhere(folder, settings)) read_checkpoint_metadata(settings.initialise_from);
  if (!text) return std::nullopt;
  const Json result = parse_result(*text, folder.file(kResultFile));
  return RunResult{training_of(result), dump(result)};
}

// Every rank reads the images itself, and all must have read the same.
struct OpenData {
  ImageData images;
  DataFingerprint hashes;
};

OpenData open_data(const Ranks& ranks, const VitSettings& settings) {
  OpenData data;
  ranks.together_patiently("the data", [&] {
    data.images = settings.open_data();
    data.hashes = fingerprint(data.images);
  });
  const Json first = Json::parse(ranks.from_first(to_json(data.hashes).dump(), "hashes of the data"));
  ranks.together("hashes of the data", [&] {
    const std::string changed = changed_data(first, data.hashes);
    check(changed.empty(), "--data {}: rank {} reads other data than rank 0 ({} differ)", settings.data,
          ranks.rank(), changed);
  });
  return data;
}

RunResult train(const RanksPtr& ranks, RunFolder* folder, const VitSettings& settings, const ImageData& data,
                const DataFingerprint& fingerprint, const TrainCallbacks& callbacks) {
  const VitSettings own = on_own_device(settings, *ranks);
  ImageTaskOptions options = own.task_options(data);
  options.ranks = ranks;
  ImageClassification task(data, options);
  // The first rank hands its weights to the others.
  ranks->together("the weights to start from", [&] {
    if (folder != nullptr && begins_elsewhere(*folder, settings))
      initialise_from(settings.initialise_from, options.model, data.class_names, task.parameters());
  });
  const RunMetadata description = describe_run(settings, data, fingerprint, options.model);
  const auto same_data = [&](const RunMetadata& saved, const std::string& path) {
    check_same_data(saved, path, description, fingerprint);
  };
  const auto trainer = open_trainer(folder, task, own.train_options(), description, same_data);
  RunResult run{trainer->run(callbacks), ""};
  if (run.training.outcome != TrainOutcome::finished || folder == nullptr) return run;
  const std::vector<MaskSnapshot> masks = task.masks();
  write_masks(*folder, masks);
  write_examples(*folder, task);
  const Json json = result_json(*folder, settings, data, fingerprint, options, task, run.training, masks);
  write_file(folder->file(kResultFile), dump(json, 1) + "\n");  // last: it says that all is there
  run.json = dump(json);
  return run;
}

}  // namespace

RunResult train_vit(RunFolder& folder, const VitSettings& settings, const TrainCallbacks& callbacks) {
  return train_vit(Ranks::alone(), &folder, settings, callbacks);
}

RunResult train_vit(const RanksPtr& ranks, RunFolder* folder, const VitSettings& given,
                    const TrainCallbacks& callbacks) {
  return run_on_ranks("train_vit", *ranks, folder, given, check_run, [&](const VitSettings& settings) {
    const OpenData data = open_data(*ranks, settings);
    return train(ranks, folder, settings, data.images, data.hashes, callbacks);
  });
}

RunResult train_vit(RunFolder& folder, const VitSettings& settings, const ImageData& data,
                    const DataFingerprint& fingerprint, const TrainCallbacks& callbacks) {
  if (auto finished = check_run(folder, settings)) return *finished;
  return train(Ranks::alone(), &folder, settings, data, fingerprint, callbacks);
}

}  // namespace topomask
