#include "report/encoding.h"

#include <zlib.h>

#include <cstdint>
#include <stdexcept>

namespace topomask::cli {

std::string encode_base64(const std::string& bytes) {
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t first = 0; first < bytes.size(); first += 3) {
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i)
      group = group << 8 | (first + i < bytes.size() ? static_cast<std::uint8_t>(bytes[first + i]) : 0u);
    for (std::size_t i = 0; i < 4; ++i)
      text += first + i <= bytes.size() ? kDigits[group >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

std::string deflate_bytes(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string packed(size, '\0');
  const int status = compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                               reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), 9);
  if (status != Z_OK) throw std::runtime_error("zlib could not compress a mask");
  packed.resize(size);
  return packed;
}

}  // namespace topomask::cli
