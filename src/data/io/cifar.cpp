#include <cstring>

#include "core/check.h"
#include "data/io/records.h"

namespace topomask {
namespace {

constexpr std::int64_t kSide = 32, kChannels = 3, kPixels = kChannels * kSide * kSide;

struct Layout {
  const char* name;
  std::int64_t label_bytes, label_at;
  int classes;
};

constexpr Layout layout_of(CifarLayout layout) {
  switch (layout) {
    case CifarLayout::cifar10:
      return {"CIFAR-10", 1, 0, 10};
    case CifarLayout::cifar100_coarse:
      return {"CIFAR-100", 2, 0, 20};
    case CifarLayout::cifar100_fine:
      break;
  }
  return {"CIFAR-100", 2, 1, 100};
}

}  // namespace

ImageRecords read_cifar(std::string_view content, const std::string& name, CifarLayout kind) {
  const Layout layout = layout_of(kind);
  const std::int64_t record = layout.label_bytes + kPixels;
  const auto size = static_cast<std::int64_t>(content.size());
  check(size > 0, "'{}' is empty: expected {} records of {} bytes", name, layout.name, record);
  check(size % record == 0, "'{}' is no {} batch: its {} bytes are not a whole number of records of {} bytes",
        name, layout.name, size, record);

  ImageRecords result{size / record, kChannels, kSide, kSide, {}, {}};
  result.labels.reserve(static_cast<std::size_t>(result.count));
  for (std::int64_t i = 0; i < result.count; ++i) {
    const auto label = static_cast<std::uint8_t>(content[i * record + layout.label_at]);
    check(label < layout.classes, "'{}', record {}: expected a label from 0 to {}, got {}", name, i,
          layout.classes - 1, label);
    result.labels.push_back(label);
  }
  result.pixels.resize(static_cast<std::size_t>(result.count * kPixels));
  for (std::int64_t i = 0; i < result.count; ++i) {
    std::memcpy(result.pixels.data() + i * kPixels, content.data() + i * record + layout.label_bytes,
                kPixels);
  }
  return result;
}

}  // namespace topomask
