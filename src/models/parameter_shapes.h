// The parameters of a model without the model: a checkpoint is checked before anything is built.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "topomask/model_options.h"

namespace topomask {

// Names and sizes of all parameters of VisionTransformer.
std::vector<std::pair<std::string, std::vector<std::int64_t>>> vit_parameter_shapes(
    const VitOptions& options);

}  // namespace topomask
