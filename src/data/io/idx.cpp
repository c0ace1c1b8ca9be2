#include "core/check.h"
#include "data/io/records.h"

namespace topomask {
namespace {

constexpr int kUnsignedByte = 8;
constexpr std::size_t kMostDimensions = 8;

std::uint8_t byte_at(std::string_view content, std::size_t i) {
  return static_cast<std::uint8_t>(content[i]);
}

std::string shape_text(const IdxArray& array) {
  return fmt::format("[{}]", fmt::join(array.shape, ", "));
}

}  // namespace

IdxArray read_idx(std::string_view content, const std::string& name) {
  check(content.size() >= 4, "'{}' is no IDX file: it has {} bytes", name, content.size());
  check(byte_at(content, 0) == 0 && byte_at(content, 1) == 0,
        "'{}' is no IDX file: expected it to begin with two zero bytes, got {:02x} {:02x}", name,
        byte_at(content, 0), byte_at(content, 1));
  check(byte_at(content, 2) == kUnsignedByte,
        "'{}': expected unsigned bytes (IDX type 08), got elements of type {:02x}", name,
        byte_at(content, 2));
  const std::size_t dimensions = byte_at(content, 3), header = 4 + 4 * dimensions;
  check(dimensions >= 1 && dimensions <= kMostDimensions, "'{}': expected 1 to {} dimensions, got {}", name,
        kMostDimensions, dimensions);
  check(content.size() >= header, "'{}' is truncated: {} bytes, its header alone takes {}", name,
        content.size(), header);

  IdxArray array;
  const auto there = static_cast<std::int64_t>(content.size() - header);
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < dimensions; ++d) {
    std::int64_t extent = 0;
    for (std::size_t b = 0; b < 4; ++b) extent = extent << 8 | byte_at(content, 4 + 4 * d + b);
    array.shape.push_back(extent);
    // Saturates one above what is there: forged extents must not overflow.
    elements = extent > 0 && elements > there / extent ? there + 1 : elements * extent;
  }
  check(elements == there, "'{}': its header says {}, but {} bytes follow", name, shape_text(array), there);
  array.bytes.assign(content.begin() + static_cast<std::ptrdiff_t>(header), content.end());
  return array;
}

ImageRecords pair_idx(IdxArray images, IdxArray labels, const std::string& images_name,
                      const std::string& labels_name) {
  check(images.shape.size() == 3, "'{}': expected images [N, height, width], got {}", images_name,
        shape_text(images));
  check(labels.shape.size() == 1, "'{}': expected labels [N], got {}", labels_name, shape_text(labels));
  check(images.shape[0] == labels.shape[0], "'{}' holds {} images, but '{}' holds {} labels", images_name,
        images.shape[0], labels_name, labels.shape[0]);
  check(!images.bytes.empty(), "'{}' holds no images: its header says {}", images_name, shape_text(images));
  return {images.shape[0],        1, images.shape[1], images.shape[2], std::move(images.bytes),
          std::move(labels.bytes)};
}

}  // namespace topomask
