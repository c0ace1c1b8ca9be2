#include <nlohmann/json.hpp>

#include "core/check.h"
#include "models/parameter_shapes.h"
#include "topomask/runs.h"
#include "train/checkpoint_file.h"
#include "train/vit_settings.h"

namespace topomask {
namespace {

using PlainJson = nlohmann::json;

const std::string& metadata(const SafetensorsFile& file, const std::string& path, const char* key) {
  const auto found = file.metadata.find(key);
  check(found != file.metadata.end(), "{}: not a checkpoint of 'topomask train' (its metadata has no '{}')",
        path, key);
  return found->second;
}

// A value of the metadata that is JSON.
template <class Read>
auto read_json(const SafetensorsFile& file, const std::string& path, const char* key, Read&& read) {
  const std::string& text = metadata(file, path, key);
  try {
    return read(PlainJson::parse(text));
  } catch (const PlainJson::exception&) {
    fail("{}: the '{}' of its metadata cannot be understood: {}", path, key, text);
  }
}

}  // namespace

VitCheckpoint read_vit_checkpoint(const std::string& path) {
  const RunConfig config = read_checkpoint_config(path);
  check_run_kind(config, config.kind == "vivit" ? "vivit" : "vit");
  const SafetensorsFile file = read_checkpoint(path);
  VitCheckpoint checkpoint;
  checkpoint.settings = VitSettings::from_toml_text(config.toml, path);
  VitOptions& model = checkpoint.model;
  model = with_seeds(checkpoint.settings.model, checkpoint.settings.seed);
  read_json(file, path, kNormalisationKey, [&](const PlainJson& json) {
    json.at("mean").get_to(checkpoint.images.mean);
    json.at("stddev").get_to(checkpoint.images.stddev);
    return 0;
  });
  read_json(file, path, kImagesKey, [&](const PlainJson& json) {
    json.at("channels").get_to(model.channels);
    json.at("height").get_to(model.height);
    json.at("width").get_to(model.width);
    json.at("patch").get_to(model.patch);
    model.frames = json.value("frames", std::int64_t{1});
    return 0;
  });
  const std::string prefix = weight_prefix(file);
  const auto head = file.tensors.find(prefix + "head.bias");
  check(head != file.tensors.end() && head->second.dim() == 1,
        "{}: there is no tensor '{}head.bias' (is it of another model?)", path, prefix);
  model.num_classes = head->second.size(0);
  check_vit_options(model);
  const auto channels = static_cast<std::size_t>(model.channels);
  check(checkpoint.images.mean.size() == channels && checkpoint.images.stddev.size() == channels,
        "{}: the 'normalisation' of its metadata is not for {} channels", path, channels);
  if (file.metadata.contains(kClassesKey)) {  // since version 0.1
    checkpoint.images.class_names = read_json(
        file, path, kClassesKey, [](const PlainJson& json) { return json.get<std::vector<std::string>>(); });
    check(static_cast<std::int64_t>(checkpoint.images.class_names.size()) == model.num_classes,
          "{}: the 'classes' of its metadata are {}, the model has {}", path,
          checkpoint.images.class_names.size(), model.num_classes);
  }
  for (const auto& [name, sizes] : vit_parameter_shapes(model))
    checkpoint.weights.emplace(name, find_tensor(file.tensors, path, prefix + name, sizes));
  return checkpoint;
}

VitEvaluation evaluate_vit(const std::string& path, const EvaluateOptions& options) {
  const VitCheckpoint checkpoint = read_vit_checkpoint(path);
  VitEvaluation evaluation{checkpoint.settings, {}};
  VitSettings& settings = evaluation.settings;
  if (!options.data.empty()) settings.data = options.data;
  if (!options.device.empty()) settings.device = options.device;
  if (options.batch > 0) settings.batch = options.batch;
  ImageDataOptions data_options;
  data_options.mean = checkpoint.images.mean;
  data_options.stddev = checkpoint.images.stddev;
  data_options.skip_bad = settings.skip_bad;
  data_options.workers = settings.workers;
  const ImageData data = open_image_data(settings.data, data_options);
  ImageTaskOptions task_options = settings.task_options(data);
  task_options.model = checkpoint.model;
  task_options.augment = {};  // evaluation has none, and other data may not allow that of training
  ImageClassification task(data, task_options);
  load_parameters(checkpoint.weights, path, "", task.parameters());
  evaluation.result = evaluate(task, settings.train_options());
  return evaluation;
}

}  // namespace topomask
