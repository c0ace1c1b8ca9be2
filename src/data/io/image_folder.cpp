#include "data/io/image_folder.h"

#include <algorithm>
#include <filesystem>

#include "core/check.h"
#include "io/files.h"
#include "io/text.h"

namespace topomask {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 30;

bool is_of_kind(const fs::path& path, const FileKind& kind) {
  const std::string ending = lower_case(path.extension().string());
  return !ending.empty() && std::find(kind.endings.begin(), kind.endings.end(), ending) != kind.endings.end();
}

// The entries of a folder that a test accepts, sorted by name; hidden ones are left out.
template <class Accept>
std::vector<fs::path> sorted_entries(const fs::path& folder, Accept&& accept) {
  std::vector<fs::path> result;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with('.') && accept(*entry)) result.push_back(entry->path());
  }
  check(!error, "cannot list the folder '{}': {}", folder.string(), error.message());
  std::sort(result.begin(), result.end());
  return result;
}

std::string read_image_file(const std::string& path) {
  return read_file(path, {.max_file_size = kLargestFile});
}

// The smallest size at which a JPEG still has as many pixels in the box as are asked for.
int decoding_denominator(const Box& box, int size) {
  for (const int denominator : {8, 4, 2}) {
    if (std::min(box.width, box.height) / denominator >= size) return denominator;
  }
  return 1;
}

}  // namespace

ImageList list_image_folder(const std::string& folder,
                            const std::optional<std::vector<std::string>>& known_classes,
                            const FileKind& kind) {
  std::error_code ignored;
  check(fs::is_directory(folder, ignored), "there is no folder '{}': expected {}/CLASS/{}", folder, folder,
        kind.example);
  const std::vector<fs::path> classes =
      sorted_entries(folder, [](const fs::directory_entry& entry) { return entry.is_directory(); });
  check(!classes.empty(), "the folder '{}' holds no class folders: expected {}/CLASS/{}", folder, folder,
        kind.example);

  ImageList list;
  if (known_classes) list.class_names = *known_classes;
  for (const fs::path& path : classes) {
    const std::string name = path.filename().string();
    if (!known_classes) list.class_names.push_back(name);
    const auto found = std::lower_bound(list.class_names.begin(), list.class_names.end(), name);
    check(found != list.class_names.end() && *found == name,
          "the class '{}' of '{}' is not among the {} classes of the {}", name, folder,
          list.class_names.size(), kind.training);
    const std::vector<fs::path> files = sorted_entries(
        path, [&](const fs::directory_entry& entry) { return is_of_kind(entry.path(), kind); });
    check(!files.empty(), "the class folder '{}' holds no {}", path.string(), kind.what);
    for (const fs::path& file : files) list.files.push_back(file.string());
    list.labels.resize(list.files.size(), found - list.class_names.begin());
  }
  return list;
}

void load_image(const std::string& path, int size, const CropChoice& crop, std::uint8_t* out) {
  const std::string content = read_image_file(path);
  const ImageExtent full = read_image_extent(content, path);
  Box box = crop.seed ? random_crop(full, crop.min_area, *crop.seed) : centre_square(full);
  const RgbImage image = decode_image(content, path, decoding_denominator(box, size));
  // The decoder rounds a reduced size up, so the factor is not quite the denominator.
  const double across = static_cast<double>(image.width) / full.width;
  const double down = static_cast<double>(image.height) / full.height;
  box = {box.left * across, box.top * down, box.width * across, box.height * down};
  resize_box(image, box, size, size, out);
}

}  // namespace topomask
