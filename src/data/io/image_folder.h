// A folder of images in ImageNet's layout, part/class/file, and single images of it as pixels; free of torch.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/io/image.h"

namespace topomask {

struct ImageList {
  std::vector<std::string> class_names;  // the names of the class folders, sorted
  std::vector<std::string> files;        // sorted by class, then by name
  std::vector<std::int64_t> labels;      // [files]
};

// Which files of a class folder count, by the ends of their names.
struct FileKind {
  const char* what;      // "image"
  const char* example;   // "*.jpg or *.png"
  const char* training;  // what the training part holds: "training images"
  std::array<std::string_view, 6> endings;
};
inline constexpr FileKind kImageFiles = {
    "image (.jpg, .jpeg or .png)", "*.jpg or *.png", "training images", {".jpg", ".jpeg", ".png"}};
inline constexpr FileKind kVideoFiles = {"video (.mp4, .m4v, .mkv, .webm, .avi or .mov)",
                                         "*.mp4",
                                         "training videos",
                                         {".mp4", ".m4v", ".mkv", ".webm", ".avi", ".mov"}};

// Lists folder/class/*.jpg|jpeg|png, or files of another kind. With `known_classes` (those of the training
// part) labels refer to them, and a class that is not among them is an error, as is a class without images.
ImageList list_image_folder(const std::string& folder,
                            const std::optional<std::vector<std::string>>& known_classes = std::nullopt,
                            const FileKind& kind = kImageFiles);

// Reads one image and brings a part of it to `size` x `size`: `out` is [3, size, size]. The part is
// random_crop with the given least area where there is a crop seed, else the centre square.
struct CropChoice {
  double min_area = 1;
  std::optional<std::uint64_t> seed;
};
void load_image(const std::string& path, int size, const CropChoice& crop, std::uint8_t* out);

}  // namespace topomask
