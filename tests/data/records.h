// The bytes of CIFAR and IDX files.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

namespace topomask::testing {

// `count` records; pixel p of record i is (7 i + p + offset) mod 256, its label (i + offset) mod classes.
inline std::string cifar_batch(int count, int offset = 0, int classes = 10) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += static_cast<char>((i + offset) % classes);
    for (int p = 0; p < 3072; ++p) bytes += static_cast<char>((7 * i + p + offset) % 256);
  }
  return bytes;
}

inline std::string idx_header(int type, std::initializer_list<std::uint32_t> extents) {
  std::string bytes = {'\0', '\0', static_cast<char>(type), static_cast<char>(extents.size())};
  for (const std::uint32_t extent : extents) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(extent >> shift & 255);
  }
  return bytes;
}

// Pixel p of image i is (3 i + p) mod 256.
inline std::string idx_images(std::uint32_t count, std::uint32_t side) {
  std::string bytes = idx_header(8, {count, side, side});
  for (std::uint32_t i = 0; i < count; ++i) {
    for (std::uint32_t p = 0; p < side * side; ++p) bytes += static_cast<char>((3 * i + p) % 256);
  }
  return bytes;
}

inline std::string idx_labels(std::uint32_t count, std::uint32_t classes) {
  std::string bytes = idx_header(8, {count});
  for (std::uint32_t i = 0; i < count; ++i) bytes += static_cast<char>(i % classes);
  return bytes;
}

}  // namespace topomask::testing
