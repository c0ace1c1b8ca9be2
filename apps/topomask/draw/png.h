// PNG files in memory.
#pragma once

#include <cstdint>
#include <string>

namespace topomask::cli {

// pixels: [height, width, channels] bytes; channels is 1 (grey) or 3 (RGB). The file's bytes.
std::string encode_png(const std::uint8_t* pixels, int width, int height, int channels);

}  // namespace topomask::cli
