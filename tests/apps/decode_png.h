// A PNG as its pixels.
#pragma once

#include <gtest/gtest.h>
#include <spng.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace topomask::cli {

struct Pixels {
  std::size_t width = 0, height = 0;
  std::vector<unsigned char> bytes;  // [height, width, 3]
  std::array<int, 3> at(std::size_t x, std::size_t y) const {
    const std::size_t first = (y * width + x) * 3;
    return {bytes[first], bytes[first + 1], bytes[first + 2]};
  }
};

inline Pixels decode_png(const std::string& png) {
  const std::unique_ptr<spng_ctx, void (*)(spng_ctx*)> decoder(spng_ctx_new(0), spng_ctx_free);
  EXPECT_EQ(spng_set_png_buffer(decoder.get(), png.data(), png.size()), 0);
  spng_ihdr header{};
  EXPECT_EQ(spng_get_ihdr(decoder.get(), &header), 0);
  std::size_t size = 0;
  EXPECT_EQ(spng_decoded_image_size(decoder.get(), SPNG_FMT_RGB8, &size), 0);
  Pixels pixels{header.width, header.height, std::vector<unsigned char>(size)};
  EXPECT_EQ(spng_decode_image(decoder.get(), pixels.bytes.data(), size, SPNG_FMT_RGB8, 0), 0);
  return pixels;
}

}  // namespace topomask::cli
