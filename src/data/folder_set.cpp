#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <filesystem>

#include "core/check.h"
#include "data/decode_ahead.h"
#include "data/io/image_folder.h"
#include "data/io/video.h"
#include "data/sources.h"
#include "topomask/graph_io.h"

namespace topomask {
namespace {

constexpr int kDefaultSize = 64;
constexpr double kDefaultCrop = 0.25;
constexpr int kDefaultFrames = 32, kDefaultStride = 2, kDefaultVideoSize = 224;  // the paper's clips

ImageSet streamed_set(ImageList list, int size, double crop, int frames = 1, int stride = 1) {
  ImageSet set;
  set.frames = frames, set.stride = stride;
  set.channels = 3, set.height = set.width = size;
  set.labels = at::tensor(list.labels, at::kLong);
  set.files = std::move(list.files);
  set.min_crop_area = crop;
  return set;
}

// Decodes all images once, centre squares at the set's size. Random crops are then up to the augmentation.
void cache(ImageSet& set, const ImageDataOptions& options) {
  DecodeOptions decode;
  decode.workers = options.workers;
  decode.skip_bad = options.skip_bad;
  const at::Tensor order = at::arange(set.size(), at::kLong);
  DecodeAhead decoder(set, order, decode);
  const std::int64_t total = set.size();
  at::Tensor images = at::empty({total, set.channels, set.height, set.width}, at::kByte);
  std::vector<at::Tensor> indices;
  std::int64_t filled = 0;
  while (const auto batch = decoder.next()) {
    const std::int64_t count = batch->images.size(0);
    images.narrow(0, filled, count).copy_(batch->images);
    filled += count;
    indices.push_back(batch->indices);
  }
  check(filled > 0, "none of the {} images can be read, the first is '{}'", total, set.files.front());
  set.skipped = total - filled;
  set.images = images.narrow(0, 0, filled);
  set.labels = set.labels.index_select(0, at::cat(indices));
  set.files.clear();
}

bool shall_cache(const DataSpec& spec, const std::string& word, const ImageData& data,
                 const ImageDataOptions& options) {
  if (word == "yes" || word == "no") return word == "yes";
  if (word != "auto") spec.complain(fmt::format("expected cache=auto, yes or no, got '{}'", word));
  const std::int64_t bytes =
      (data.train.size() + data.validation.size()) * 3 * data.train.height * data.train.width;
  return bytes <= options.max_cached_bytes;
}

// About 16 patches along a side, as in the paper's models: 16 pixels for 224, 4 for 64.
int folder_patch_size(int size) {
  int result = 1;
  for (const int patch : {2, 4, 8, 14, 16}) {
    if (size % patch == 0 && size / patch >= 14) result = patch;
  }
  return result;
}

}  // namespace

ImageData open_folder(DataSpec& spec, const ImageDataOptions& options) {
  const int size = spec.number<int>("size", kDefaultSize, 1, 4096);
  const double crop = spec.number<double>("crop", kDefaultCrop, 0.01, 1);
  const std::string caching = spec.text("cache", "auto");
  spec.finish();
  const std::filesystem::path folder(spec.subject());
  ImageList train = list_image_folder((folder / "train").string());
  ImageList validation = list_image_folder((folder / "val").string(), train.class_names);

  ImageData data;
  data.class_names = train.class_names;
  data.train = streamed_set(std::move(train), size, crop);
  data.validation = streamed_set(std::move(validation), size, 1);
  if (shall_cache(spec, caching, data, options)) {
    cache(data.train, options);
    cache(data.validation, options);
  }
  data.patch_size = folder_patch_size(size);
  return data;
}

// Clips are never kept: where one begins is random in training, as its crop is.
ImageData open_video_folder(DataSpec& spec, const ImageDataOptions&) {
  const int frames = spec.number<int>("frames", kDefaultFrames, 2, kMostClipFrames);
  const int stride = spec.number<int>("stride", kDefaultStride, 1, 1000);
  const int size = spec.number<int>("size", kDefaultVideoSize, 1, 4096);
  const double crop = spec.number<double>("crop", kDefaultCrop, 0.01, 1);
  spec.finish();
  require_video_decoder();
  const std::filesystem::path folder(spec.subject());
  ImageList train = list_image_folder((folder / "train").string(), std::nullopt, kVideoFiles);
  ImageList validation = list_image_folder((folder / "val").string(), train.class_names, kVideoFiles);

  ImageData data;
  data.class_names = train.class_names;
  data.train = streamed_set(std::move(train), size, crop, frames, stride);
  data.validation = streamed_set(std::move(validation), size, 1, frames, stride);
  data.patch_size = folder_patch_size(size);
  return data;
}

}  // namespace topomask
