// Images made on the spot: JPEG and PNG files of every kind.
#pragma once

#include <spng.h>
#include <turbojpeg.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace topomask::testing {

using Bytes = std::vector<std::uint8_t>;

// A smooth picture with a gradient in each of `channels`, [height, width, channels].
inline Bytes gradient(int width, int height, int channels, int offset = 0) {
  Bytes pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const int ramp = c == 0   ? 255 * x / width
                         : c == 1 ? 255 * y / height
                                  : 255 * (x + y) / (width + height);
        pixels.push_back(static_cast<std::uint8_t>((ramp + offset) % 256));
      }
    }
  }
  return pixels;
}

// `format` is TJPF_RGB, TJPF_GRAY or TJPF_CMYK.
inline std::string encode_jpeg(const Bytes& pixels, int width, int height, int format = TJPF_RGB,
                               int quality = 98) {
  tjhandle handle = tjInitCompress();
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  const int subsampling = format == TJPF_GRAY ? TJSAMP_GRAY : TJSAMP_444;
  if (tjCompress2(handle, pixels.data(), width, 0, height, format, &buffer, &size, subsampling, quality, 0) !=
      0) {
    throw std::runtime_error(tjGetErrorStr2(handle));
  }
  std::string result(reinterpret_cast<char*>(buffer), size);
  tjFree(buffer);
  tjDestroy(handle);
  return result;
}

// `colour` is a spng_color_type; 16-bit samples are in host order.
inline std::string encode_png(const void* pixels, std::size_t bytes, int width, int height, int colour,
                              int bits = 8) {
  spng_ctx* context = spng_ctx_new(SPNG_CTX_ENCODER);
  spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1);
  spng_ihdr header{};
  header.width = static_cast<std::uint32_t>(width), header.height = static_cast<std::uint32_t>(height);
  header.color_type = static_cast<std::uint8_t>(colour), header.bit_depth = static_cast<std::uint8_t>(bits);
  spng_set_ihdr(context, &header);
  int status = spng_encode_image(context, pixels, bytes, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
  std::size_t size = 0;
  void* buffer = status == 0 ? spng_get_png_buffer(context, &size, &status) : nullptr;
  if (buffer == nullptr) throw std::runtime_error(spng_strerror(status));
  std::string result(static_cast<char*>(buffer), size);
  std::free(buffer);
  spng_ctx_free(context);
  return result;
}

inline std::string encode_png(const Bytes& pixels, int width, int height, int colour) {
  return encode_png(pixels.data(), pixels.size(), width, height, colour);
}

}  // namespace topomask::testing
