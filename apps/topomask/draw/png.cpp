#include "draw/png.h"

#include <fmt/format.h>
#include <spng.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>

namespace topomask::cli {

std::string encode_png(const std::uint8_t* pixels, int width, int height, int channels) {
  const std::unique_ptr<spng_ctx, void (*)(spng_ctx*)> encoder(spng_ctx_new(SPNG_CTX_ENCODER), spng_ctx_free);
  spng_ihdr header{};
  header.width = static_cast<std::uint32_t>(width);
  header.height = static_cast<std::uint32_t>(height);
  header.bit_depth = 8;
  header.color_type = channels == 1 ? SPNG_COLOR_TYPE_GRAYSCALE : SPNG_COLOR_TYPE_TRUECOLOR;
  const auto num_bytes = static_cast<std::size_t>(width) * static_cast<std::size_t>(height * channels);
  int status = spng_set_option(encoder.get(), SPNG_ENCODE_TO_BUFFER, 1);
  if (status == 0) status = spng_set_ihdr(encoder.get(), &header);
  if (status == 0)
    status = spng_encode_image(encoder.get(), pixels, num_bytes, SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE);
  std::size_t size = 0;
  const std::unique_ptr<void, void (*)(void*)> bytes(spng_get_png_buffer(encoder.get(), &size, &status),
                                                     std::free);
  if (status != 0 || bytes == nullptr)
    throw std::runtime_error(fmt::format("PNG: {}", spng_strerror(status)));
  return {static_cast<const char*>(bytes.get()), size};
}

}  // namespace topomask::cli
