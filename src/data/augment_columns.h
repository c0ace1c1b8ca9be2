// Where the random choices for an image stand in its row of the table; shared by the CPU and the GPU.
#pragma once

#include <cstdint>

namespace topomask {

// Columns of a table. An operation that an image does not undergo has the parameters that change nothing.
namespace column {
constexpr std::int64_t kShift =
    0;                             // 6: output pixel to input pixel, (x, y) -> (a x + b y + c, d x + e y + f)
constexpr std::int64_t kCrop = 6;  // 4: left, top, width, height
constexpr std::int64_t kCutout = 10;              // 4: first and one past the last x, the same of y
constexpr std::int64_t kMixBox = 14;              // 4: as of cutout, what comes from the partner
constexpr std::int64_t kMixOwn = 18;              // 1: how much of the target stays the image's own
constexpr std::int64_t kLayers = 19;              // kLayerSize for every operation of RandAugment:
constexpr std::int64_t kWarp = 0;                 // 6: as of kShift
constexpr std::int64_t kGain = 6, kGreyGain = 7;  // level * gain + mean grey * grey gain
constexpr std::int64_t kKeptBits = 8;             // of a byte
constexpr std::int64_t kSolarizeFrom = 9;         // levels from here on are inverted
constexpr std::int64_t kStretch = 10;             // 1: auto contrast
constexpr std::int64_t kColour = 11, kSharpness = 12;
constexpr std::int64_t kEqualize = 13;   // 1: histogram equalisation
constexpr std::int64_t kEqualized = 14;  // the numbers of the images to be equalised, in the first rows
constexpr std::int64_t kLayerSize = 15;
}  // namespace column

}  // namespace topomask
