#include "commands/training_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/check.h"
#include "progress.h"
#include "topomask/safetensors.h"
#include "train/metrics.h"

namespace topomask::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kExamples = 24;
constexpr std::int64_t kLargestMasks = std::int64_t{1} << 26;  // entries of all layers and heads in a file

std::string inside(const std::string& folder, const char* name) {
  return (fs::path(folder) / name).string();
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
double median_of_epochs(const std::string& folder, const Value& value) {
  std::ifstream file(inside(folder, kMetricsFile));
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

void write_masks(const std::string& folder, const std::vector<MaskSnapshot>& masks) {
  SafetensorsFile file;
  std::int64_t entries = 0;
  for (const MaskSnapshot& mask : masks) {
    const std::string layer = fmt::format("layer.{}.", mask.layer);
    // Half precision is more than a picture shows.
    file.tensors[layer + "used"] = mask.used.to(at::kHalf);
    if (mask.exact.defined()) file.tensors[layer + "exact"] = mask.exact.to(at::kHalf);
    entries += mask.used.numel();
  }
  if (masks.empty() || entries > kLargestMasks) return;
  write_safetensors(inside(folder, kMasksFile), file);
}

void write_examples(const std::string& folder, ImageClassification& task) {
  const Predictions examples = task.predict_examples(kExamples);
  SafetensorsFile file;
  file.tensors = {{"indices", examples.indices},
                  {"images", examples.images},
                  {"labels", examples.labels},
                  {"probabilities", examples.probabilities}};
  write_safetensors(inside(folder, kExamplesFile), file);
}

Json result_json(const TrainingRun& run, const ImageData& data, const ImageTaskOptions& options,
                 const ImageClassification& task, const TrainResult& result,
                 const std::vector<MaskSnapshot>& masks) {
  const auto number = [](const char* key) {
    return [key](const Json& epoch) { return epoch.value(key, 0.0); };
  };
  const auto data_share = [](const Json& epoch) {
    return epoch.value("data_seconds", 0.0) / std::max(epoch.value("train_seconds", 0.0), 1e-9);
  };
  Json modulation = Json::array();
  for (const MaskSnapshot& mask : masks) {
    if (mask.modulation.defined()) modulation.push_back(to_rows(mask.modulation));
  }
  Json json = {{"attention", attention_variant_name(options.model.attention)},
               {"seed", run.settings.seed},
               {"data", run.settings.data},
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
               {"epoch_seconds", median_of_epochs(run.folder, number("train_seconds"))},
               {"images_per_second", median_of_epochs(run.folder, number("samples_per_second"))},
               {"data_share", median_of_epochs(run.folder, data_share)},
               {"device", run.settings.device},
               {"grid", {options.model.grid_height(), options.model.grid_width()}},
               {"patch", options.model.patch},
               {"layers", options.model.layers},
               {"heads", options.model.heads},
               {"classes", data.class_names}};
  if (!modulation.empty()) json["modulation"] = modulation;  // [layers][heads][k]
  return json;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder, bool wait) {
  std::error_code error;
  fs::create_directories(folder, error);
  check(!error, "{}: cannot be made a folder ({})", folder, error.message());
  const std::string path = inside(folder, ".lock");
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  check(descriptor_ >= 0, "{}: cannot be written ({})", path, std::strerror(errno));
  held_ = flock(descriptor_, LOCK_EX | (wait ? 0 : LOCK_NB)) == 0;
}

FolderLock::~FolderLock() {
  close(descriptor_);
}

std::optional<Json> read_result(const std::string& folder) {
  std::ifstream file(inside(folder, kResultFile));
  if (!file.good()) return std::nullopt;
  const Json json = Json::parse(file, nullptr, false);
  check(json.is_object(), "{}: is not a JSON object; remove it to run again", inside(folder, kResultFile));
  return json;
}

TrainingReport run_training(const TrainingRun& run, const ImageData& data) {
  const ImageTaskOptions options = run.settings.task_options(data);
  const TrainOptions train = run.settings.train_options();
  ImageClassification task(data, options);
  const Json normalisation = {{"mean", data.mean}, {"stddev", data.stddev}};
  const Json images = {{"channels", data.channels},
                       {"height", data.height},
                       {"width", data.width},
                       {"patch", options.model.patch}};
  Trainer trainer(task, train, run.folder,
                  {{"model", "vit"},
                   {kDescribedSettings, run.settings.to_toml()},
                   {"normalisation", normalisation.dump()},
                   {"images", images.dump()}});
  write_text_atomically(inside(run.folder, kConfigFile), run.settings.to_toml());
  if (run.resume && trainer.resume() && run.prints_text) fmt::print("going on from the last checkpoint\n");

  Progress progress(run.label, run.quiet);
  TrainCallbacks callbacks;
  callbacks.should_stop = run.should_stop;
  callbacks.progress = [&](std::int64_t step, std::int64_t steps, const std::string& status) {
    progress.update(step, steps, status);
  };
  if (run.prints_text)
    callbacks.epoch_done = [](const std::string& line) {
      erase_progress_line();
      fmt::print("{}\n", line);
      std::fflush(stdout);
    };
  TrainingReport report;
  report.result = trainer.run(callbacks);
  if (report.result.outcome != TrainOutcome::finished) return report;
  const std::vector<MaskSnapshot> masks = task.masks();
  write_masks(run.folder, masks);
  write_examples(run.folder, task);
  report.json = result_json(run, data, options, task, report.result, masks);
  write_text_atomically(inside(run.folder, kResultFile),
                        report.json.dump(1) + "\n");  // last: it says that all is there
  return report;
}

}  // namespace topomask::cli
