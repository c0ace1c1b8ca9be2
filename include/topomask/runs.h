// Training runs of vision transformers on images or clips: settings, folders, and trained models.
//
//   VitSettings settings = VitSettings::from({{"attention", "grf"}, {"epochs", "10"}});
//   RunFolder folder("runs/grf", RunStart::fresh);
//   train_vit(folder, settings);
//   VisionTransformer model = load_vit("runs/grf/best.safetensors");  // topomask/models.h
//
// A folder holds config.toml, metrics.jsonl, last.safetensors and best.safetensors; a finished run also has
// masks.safetensors, examples.safetensors and, written last, result.json.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "topomask/error.h"
#include "topomask/image_training.h"

namespace topomask {

// --- Settings --------------------------------------------------------------------------------------------

// Keys of config.toml with their values as text: {"epochs", "10"}, {"flip", "true"}.
using SettingValues = std::vector<std::pair<std::string, std::string>>;

// Everything that decides a run. The defaults are those of `topomask train vit`, and video() has those of
// `topomask train vivit`.
struct VitSettings {
  std::string data = "strokes:32";  // as open_image_data takes it
  std::int64_t batch = 128;
  int workers = 0;  // threads that decode images; 0: one per core
  bool skip_bad = false;
  std::string preset = "tiny";
  std::int64_t patch = 0;  // 0: as suits preset and data
  std::uint64_t seed = 0;  // everything random follows from it
  // Start from the weights of this checkpoint of another run, fitted to the images, classes and masks of this
  // one (docs/training.md); empty: from random weights.
  std::string initialise_from;
  std::string device = "cpu";
  VitOptions model;  // sizes of images, classes, patch and seeds come from the data and the fields above
  TrainOptions train;
  AugmentOptions augment;
  FrameOrder frame_order = FrameOrder::given;  // of clips

  VitSettings() { apply_preset("tiny"); }
  static VitSettings video();
  bool is_video() const { return model.encoder != Encoder::image; }
  const char* kind() const { return is_video() ? "vivit" : "vit"; }
  void apply_preset(const std::string& name);

  // Defaults, then the preset, then the TOML file (none where the path is empty), then the values given. An
  // unknown key is an error that suggests the nearest. A file that names an encoder of clips has video()'s
  // defaults.
  static VitSettings from(const SettingValues& given, const std::string& config_path = "",
                          VitSettings defaults = VitSettings());
  static VitSettings from_toml_text(const std::string& text, const std::string& name);
  std::string to_toml() const;

  ImageData open_data() const;
  // The options of the library: sizes from the data, one seed for each purpose, the device.
  ImageTaskOptions task_options(const ImageData& data) const;
  TrainOptions train_options() const;
  std::string default_folder() const;  // runs/vit-ATTENTION-seed-SEED, or runs/vivit-...
};

// The first setting that two runs differ in among those that a result depends on, as "epochs is 10 there and
// 20 here"; "" where there is none. Device, workers, the time of checkpoints and the folder of the images are
// free.
std::string difference(const VitSettings& saved, const VitSettings& now);

// What a run or a checkpoint says of itself.
struct RunConfig {
  std::string kind;  // "vit", "vivit" or "particles": topomask train KIND
  std::string toml;  // its settings
  std::string path;  // where they were found
};
// Of the run in a folder: of its checkpoint, or of config.toml before the first one.
RunConfig read_run_config(const std::string& folder);
// Of last.safetensors or best.safetensors. Throws one sentence where the file is not such a checkpoint.
RunConfig read_checkpoint_config(const std::string& path);
// Throws, with the command to use, where it is of another kind.
void check_run_kind(const RunConfig& config, const std::string& expected);

// --- Folders ---------------------------------------------------------------------------------------------

// Thrown where another process works in a folder.
class FolderInUse : public Error {
 public:
  using Error::Error;
};

enum class RunStart {
  fresh,   // the folder must not hold a run
  resume,  // the folder must hold a run
  either,
};

// The folder of a run, locked against other processes for as long as this lives.
class RunFolder {
 public:
  // Takes the lock at once or throws FolderInUse; only then looks whether the folder holds a run. Makes the
  // folder where it is missing, unless a run is to be resumed.
  RunFolder(const std::string& path, RunStart start);
  // Removes the folder again if it was made here and nothing was written into it.
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const;
  std::string file(const std::string& name) const;  // the path of a file in it
  std::optional<RunConfig> config() const;          // of the run to resume; nothing for a fresh start
  std::optional<VitSettings> settings() const;      // the same of a vision transformer
  std::optional<std::string> result() const;        // result.json of a finished run

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

// The settings of the run in a folder, which must be of a vision transformer.
VitSettings read_run_settings(const std::string& folder);

inline constexpr const char* kConfigFile = "config.toml";
inline constexpr const char* kResultFile = "result.json";
inline constexpr const char* kMasksFile = "masks.safetensors";
inline constexpr const char* kExamplesFile = "examples.safetensors";

// --- Training --------------------------------------------------------------------------------------------

struct RunResult {
  TrainResult training;
  std::string json;  // result.json; empty where training was stopped
};
using VitRunResult = RunResult;

// Trains, or resumes the run that the folder holds: with the same settings (but for those that `difference`
// leaves free) and the same data, or not at all. A finished run is only reported.
RunResult train_vit(RunFolder& folder, const VitSettings& settings, const TrainCallbacks& callbacks = {});
// The same on one of several ranks, which share every batch (docs/training.md); collective. The folder and
// the settings are rank 0's: the others give null and take its settings. They return without json.
RunResult train_vit(const RanksPtr& ranks, RunFolder* folder, const VitSettings& settings,
                    const TrainCallbacks& callbacks = {});
// The same with images that are open already, for several runs on them.
RunResult train_vit(RunFolder& folder, const VitSettings& settings, const ImageData& data,
                    const DataFingerprint& fingerprint, const TrainCallbacks& callbacks = {});

// --- Trained models --------------------------------------------------------------------------------------

// A trained model as plain data. `load_vit` (topomask/models.h) makes a module of it.
struct VitCheckpoint {
  VitSettings settings;                       // of the run
  VitOptions model;                           // complete: sizes of the images, classes, patch, seeds
  ImageFormat images;                         // normalisation and class names
  std::map<std::string, at::Tensor> weights;  // by the names of the module; averaged ones where there are any
};

// Reads last.safetensors or best.safetensors of a run. Throws one sentence where the file is not such a
// checkpoint or lacks a tensor of the model.
VitCheckpoint read_vit_checkpoint(const std::string& path);

struct VitEvaluation {
  VitSettings settings;  // as evaluated
  Evaluation result;
};
// A trained model on validation images, normalised as in training. Empty or 0: as in training.
struct EvaluateOptions {
  std::string data = {}, device = {};
  std::int64_t batch = 0;
};
VitEvaluation evaluate_vit(const std::string& checkpoint, const EvaluateOptions& options = {});

// --- For other languages ---------------------------------------------------------------------------------

// The options of a model and the format of its images as one JSON object:
//
//   image_size          height and width
//   dim, depth, classes, mask_seed
//                       embedding, layers, num_classes and mask.seed of VitOptions; all others by their names
//   mean, stddev        per channel
//   class_names         one per class, or none
std::string vit_settings_json(const VitOptions& options, const ImageFormat& images = {});
// What such an object (or a part of it) describes; what it lacks is as in VitOptions. Unknown keys are
// errors.
VitOptions vit_options_from_json(const std::string& json);
ImageFormat image_format_from_json(const std::string& json);

}  // namespace topomask
