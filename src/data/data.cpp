#include "topomask/data.h"

#include <ATen/ops/empty.h>

#include <array>
#include <cmath>
#include <new>
#include <string_view>

#include "core/check.h"
#include "core/suggest.h"
#include "data/decode_ahead.h"
#include "data/sources.h"

namespace topomask {
namespace {

struct Source {
  std::string_view name, form;
  ImageData (*open)(DataSpec&, const ImageDataOptions&);
  bool clips = false;
};

constexpr std::array kSources = {
    Source{"cifar10", "cifar10:DIR[,train=1-4][,val=5|test]", open_cifar10},
    Source{"cifar100", "cifar100:DIR[,labels=fine|coarse]", open_cifar100},
    Source{"idx", "idx:DIR[,val=0.2]", open_idx},
    Source{"folder", "folder:DIR[,size=64][,crop=0.25][,cache=auto|yes|no]", open_folder},
    Source{"strokes", "strokes:SIZE[,classes=3][,cell=4][,coupling=1][,noise=0.1][,train=N][,val=N][,seed=S]",
           open_strokes},
    Source{"pathfinder", "pathfinder:SIZE[,dashes=D][,distractors=K][,noise=0.05][,train=N][,val=N][,seed=S]",
           open_pathfinder},
    Source{
        "motion",
        "motion:SIZE[,frames=8][,cell=4][,coupling=2][,surplus=0.5][,noise=0.05][,train=N][,val=N][,seed=S]",
        open_motion, true},
    Source{"moving-digits",
           "moving-digits:DIR[,size=40][,frames=8][,labels=both|digit|motion][,train=N][,val=N][,seed=S]",
           open_moving_digits, true},
    Source{"video-folder", "video-folder:DIR[,frames=32][,stride=2][,size=224][,crop=0.25]",
           open_video_folder, true},
};

const Source& find_source(const std::string& spec) {
  check(!spec.empty(), "--data: expected a data set such as strokes:32 or cifar10:DIR, got nothing");
  const std::string name = spec.substr(0, spec.find(':'));
  std::vector<std::string> names;
  for (const Source& source : kSources) {
    if (source.name == name) return source;
    names.emplace_back(source.name);
  }
  fail("--data {}: '{}' is no kind of data set ({}){}", spec, name, fmt::join(names, ", "),
       did_you_mean(name, names));
}

// Mean and deviation of every channel, exact: sums of bytes and of their squares are whole numbers.
void measure(const at::Tensor& images, std::vector<double>& mean, std::vector<double>& stddev) {
  const std::int64_t channels = images.size(-3), pixels = images.size(-2) * images.size(-1);
  const std::int64_t count = images.numel() / (channels * pixels);  // images, or frames of all clips
  const std::uint8_t* pixel = images.const_data_ptr<std::uint8_t>();
  std::vector<std::uint64_t> sum(static_cast<std::size_t>(channels)), squares(sum);
  for (std::int64_t plane = 0; plane < count * channels; ++plane) {
    std::uint64_t plane_sum = 0, plane_squares = 0;
    for (std::int64_t i = 0; i < pixels; ++i) {
      const std::uint32_t value = *pixel++;
      plane_sum += value, plane_squares += value * value;
    }
    const auto channel = static_cast<std::size_t>(plane % channels);
    sum[channel] += plane_sum, squares[channel] += plane_squares;
  }
  const auto number = static_cast<double>(count * pixels);
  for (std::size_t c = 0; c < sum.size(); ++c) {
    const double average = static_cast<double>(sum[c]) / number;
    const double variance = std::max(0.0, static_cast<double>(squares[c]) / number - average * average);
    mean.push_back(average / 255);
    // A channel that never changes is left as it is rather than divided by zero.
    stddev.push_back(variance > 0 ? std::sqrt(variance) / 255 : 1.0);
  }
}

// The first images of a fixed shuffle stand for a set that is not in memory.
at::Tensor some_images(const ImageSet& set, const ImageDataOptions& options) {
  const std::int64_t enough = std::max<std::int64_t>(8, 1024 / set.frames);
  if (set.resident()) return set.images;
  const at::Tensor order = epoch_order(set.size(), 0, 0).narrow(0, 0, std::min(enough, set.size()));
  DecodeOptions decode;
  decode.batch_size = order.size(0);
  decode.workers = options.workers;
  decode.skip_bad = options.skip_bad;
  at::Tensor images = DecodeAhead(set, order, decode).next().value().images;
  check(images.size(0) > 0, "none of {} images that were tried can be read, the first is '{}'", order.size(0),
        set.files.front());
  return images;
}

void check_statistics(const std::vector<double>& values, const char* what, std::int64_t channels,
                      bool positive) {
  check(values.empty() || static_cast<std::int64_t>(values.size()) == channels,
        "open_image_data: expected {} values of {}, one per channel, got {}", channels, what, values.size());
  for (const double value : values) {
    check(std::isfinite(value) && (!positive || value > 0), "open_image_data: expected a finite{} {}, got {}",
          positive ? ", positive" : "", what, value);
  }
}

}  // namespace

ImageSet empty_set(std::int64_t count, std::int64_t channels, std::int64_t height, std::int64_t width,
                   std::int64_t frames) {
  ImageSet set;
  set.channels = channels, set.height = height, set.width = width, set.frames = frames;
  std::vector<std::int64_t> sizes = set.sample_sizes();
  sizes.insert(sizes.begin(), count);
  set.images = at::empty(sizes, at::kByte);
  set.labels = at::empty({count}, at::kLong);
  return set;
}

ImageData open_image_data(const std::string& spec, const ImageDataOptions& options) {
  const Source& source = find_source(spec);
  DataSpec words(spec, source.form);
  ImageData data;
  try {
    data = source.open(words, options);
  } catch (const std::bad_alloc&) {
    fail("--data {}: the images do not fit into memory", spec);
  } catch (const Error& error) {  // of a file or a folder
    const std::string_view message = error.what();
    if (message.starts_with("--data")) throw;
    fail("--data: {}", message);
  }
  data.spec = spec;
  data.channels = data.train.channels, data.height = data.train.height, data.width = data.train.width;
  data.frames = data.train.frames;
  check(data.validation.channels == data.channels && data.validation.height == data.height &&
            data.validation.width == data.width,
        "--data {}: training images are {} x {} x {}, validation images {} x {} x {}", spec, data.channels,
        data.height, data.width, data.validation.channels, data.validation.height, data.validation.width);
  check_statistics(options.mean, "mean", data.channels, false);
  check_statistics(options.stddev, "stddev", data.channels, true);
  if (options.mean.empty() || options.stddev.empty()) {
    measure(some_images(data.train, options).contiguous(), data.mean, data.stddev);
  }
  if (!options.mean.empty()) data.mean = options.mean;
  if (!options.stddev.empty()) data.stddev = options.stddev;
  return data;
}

std::string image_data_forms(bool clips) {
  std::string text;
  for (const Source& source : kSources) {
    if (source.clips == clips) text += fmt::format("{}{}", text.empty() ? "" : "\n", source.form);
  }
  return text;
}

}  // namespace topomask
