// Readers of the two binary formats that small labelled images come in, free of torch.
//
// Each reads the whole content of a (decompressed) file; `name` is used in error messages only. Sizes are
// checked against the bytes that are there before anything is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace topomask {

// Images as bytes, channel planes one after the other, each with a label.
struct ImageRecords {
  std::int64_t count = 0, channels = 0, height = 0, width = 0;
  std::vector<std::uint8_t> pixels;  // [count, channels, height, width]
  std::vector<std::uint8_t> labels;  // [count]
};

// CIFAR binary: records of one label byte (CIFAR-100: a coarse and a fine one) and 3 planes of 32 x 32.
enum class CifarLayout { cifar10, cifar100_coarse, cifar100_fine };
ImageRecords read_cifar(std::string_view content, const std::string& name,
                        CifarLayout layout = CifarLayout::cifar10);

// IDX: two zero bytes, a type code, the number of dimensions, the extents as big-endian 32-bit numbers, then
// the elements. Only unsigned bytes (type 8) are read.
struct IdxArray {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> bytes;  // in C order
};
IdxArray read_idx(std::string_view content, const std::string& name);

// Images [N, H, W] and their labels [N] as records.
ImageRecords pair_idx(IdxArray images, IdxArray labels, const std::string& images_name,
                      const std::string& labels_name);

}  // namespace topomask
