// PNG files: colour, 16-bit grey, and animations (APNG, which every browser shows). Free of torch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace topomask {

// pixels: [height, width, 3].
std::string encode_png_rgb(const std::uint8_t* pixels, int width, int height);
// pixels: [height, width].
std::string encode_png_grey16(const std::uint16_t* pixels, int width, int height);
// frames: each [height, width, 3]; shown for `seconds` each, over and over. Programs that know no APNG show
// the first.
std::string encode_png_animation(const std::vector<std::vector<std::uint8_t>>& frames, int width, int height,
                                 double seconds);

}  // namespace topomask
