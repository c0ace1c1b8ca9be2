// What stands in a checkpoint: the prefixes of its tensors and the keys of its metadata.
#pragma once

#include <c10/util/ArrayRef.h>

#include <map>
#include <string>

#include "topomask/safetensors.h"

namespace topomask {

inline constexpr const char* kAveragePrefix = "ema.";  // before the names of averaged weights
inline constexpr const char* kModelKey = "model";      // what kind: of 'topomask train KIND'
inline constexpr const char* kParticlesKind = "particles";
inline constexpr const char* kSettingsKey = "config";  // config.toml
inline constexpr const char* kImagesKey = "images";    // size of the images and of patches
inline constexpr const char* kNormalisationKey = "normalisation";
inline constexpr const char* kClassesKey = "classes";  // their names
inline constexpr const char* kDataKey = "data";        // fingerprint of the data
inline constexpr const char* kStateKey = "state";      // where training stands

// A checkpoint with the tensor names of today, whichever version wrote it.
SafetensorsFile read_checkpoint(const std::string& path);
// Its metadata alone.
std::map<std::string, std::string> read_checkpoint_metadata(const std::string& path);

// The prefix of the averaged weights where training kept them (they are what it evaluated), else "".
std::string weight_prefix(const SafetensorsFile& file);
// Whether a tensor is there to resume training, and is no weight.
bool is_training_state(const std::string& name);

// The tensor of this name, or one sentence that says that it is missing or of another shape.
const at::Tensor& find_tensor(const std::map<std::string, at::Tensor>& tensors, const std::string& path,
                              const std::string& name, c10::IntArrayRef sizes);

}  // namespace topomask
