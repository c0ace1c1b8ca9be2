// Everything that decides a training run of a vision transformer.
#pragma once

#include <string>

#include "options/settings.h"
#include "topomask/image_training.h"

namespace topomask::cli {

inline constexpr const char* kDefaultImageData = "strokes:32";

struct VitSettings {
  std::string data = kDefaultImageData;
  std::int64_t batch = 128;
  int workers = 0;
  bool skip_bad = false;
  std::string preset = "tiny";
  std::int64_t patch = 0;  // 0: as suits preset and data
  std::uint64_t seed = 0;
  std::string device = "cpu";
  VitOptions model;
  TrainOptions train;
  AugmentOptions augment;

  VitSettings() { apply_preset("tiny"); }
  void apply_preset(const std::string& name);
  // The settings as a list; it refers to this object and must not outlive it.
  Settings list();

  // Defaults, then preset, then file, then what the command line gave. An empty path: no file.
  static VitSettings from(const GivenSettings& given, const std::string& config_path);
  static VitSettings from_toml_text(const std::string& text, const std::string& name);
  std::string to_toml() const;

  ImageData open_data() const;
  // What the library takes: sizes from the data, seeds from the one seed, the device.
  ImageTaskOptions task_options(const ImageData& data) const;
  TrainOptions train_options() const;
  std::string default_folder() const;
};

// Settings that two runs differ in, among those that a result depends on: "epochs is 10 and 20", or "".
std::string difference(const VitSettings& saved, const VitSettings& now);

}  // namespace topomask::cli
