#include <algorithm>

#include "core/cuda/lanes.cuh"
#include "data/augment_columns.h"
#include "data/cuda/augment.h"

namespace topomask {
namespace {

constexpr int kThreads = 256, kLevels = 256, kMostChannels = 3;
constexpr std::int64_t kSharedBytes =
    200 << 10;  // what a block may ask for on the devices we know, with some room

// One image in the hands of one block. `pixels` is what it looks like so far, `next` room for what comes of
// it.
struct Image {
  std::uint8_t* pixels;
  std::uint8_t* next;
  std::int32_t* histogram;  // [channels, 256]
  std::uint8_t* levels;     // [channels, 256]
  int channels, height, width;
  const std::uint8_t* fill;

  __device__ int plane() const { return height * width; }
  __device__ int size() const { return channels * plane(); }
  __device__ void advance() {
    __syncthreads();
    std::uint8_t* old = pixels;
    pixels = next, next = old;
  }
};

__device__ std::uint8_t to_byte(float level) {
  return static_cast<std::uint8_t>(fminf(fmaxf(rintf(level), 0.0f), 255.0f));
}

__device__ float grey_at(const Image& image, int at) {
  if (image.channels != 3) return image.pixels[at];
  const int plane = image.plane();
  return 0.299f * image.pixels[at] + 0.587f * image.pixels[plane + at] +
         0.114f * image.pixels[2 * plane + at];
}

__device__ void enlarge_box(Image& image, const float* box) {
  for (int i = threadIdx.x; i < image.plane(); i += kThreads) {
    const int y = i / image.width, x = i % image.width;
    const float across = box[0] + (x + 0.5f) / image.width * box[2] - 0.5f;
    const float down = box[1] + (y + 0.5f) / image.height * box[3] - 0.5f;
    const float sx = fminf(fmaxf(across, 0.0f), image.width - 1.0f);
    const float sy = fminf(fmaxf(down, 0.0f), image.height - 1.0f);
    const int u = static_cast<int>(sx), v = static_cast<int>(sy);
    const int u1 = min(u + 1, image.width - 1), v1 = min(v + 1, image.height - 1);
    const float fx = sx - u, fy = sy - v;
    for (int c = 0; c < image.channels; ++c) {
      const std::uint8_t* plane = image.pixels + c * image.plane();
      const float above = plane[v * image.width + u] * (1 - fx) + plane[v * image.width + u1] * fx;
      const float below = plane[v1 * image.width + u] * (1 - fx) + plane[v1 * image.width + u1] * fx;
      image.next[c * image.plane() + i] = to_byte(above * (1 - fy) + below * fy);
    }
  }
  image.advance();
}

__device__ void warp_nearest(Image& image, const float* warp) {
  const bool nothing =
      warp[0] == 1 && warp[1] == 0 && warp[2] == 0 && warp[3] == 0 && warp[4] == 1 && warp[5] == 0;
  if (nothing) return;
  for (int i = threadIdx.x; i < image.plane(); i += kThreads) {
    const float y = static_cast<float>(i / image.width), x = static_cast<float>(i % image.width);
    const int u = static_cast<int>(floorf(x * warp[0] + (y * warp[1] + warp[2]) + 0.5f));
    const int v = static_cast<int>(floorf(x * warp[3] + (y * warp[4] + warp[5]) + 0.5f));
    const bool inside = u >= 0 && v >= 0 && u < image.width && v < image.height;
    for (int c = 0; c < image.channels; ++c) {
      const int start = c * image.plane();
      image.next[start + i] = inside ? image.pixels[start + v * image.width + u] : image.fill[c];
    }
  }
  image.advance();
}

// The sum of `value` over the block, the same in every thread.
__device__ float block_sum(float value) {
  __shared__ float sums[kThreads / 32];
  value = sum_lanes(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

// The histogram of every channel, and from it what auto contrast and equalisation need.
struct ChannelLevels {
  int darkest, brightest, step;
};

__device__ void count_levels(Image& image, ChannelLevels* found) {
  for (int i = threadIdx.x; i < image.channels * kLevels; i += kThreads) image.histogram[i] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < image.size(); i += kThreads) {
    atomicAdd(&image.histogram[i / image.plane() * kLevels + image.pixels[i]], 1);
  }
  __syncthreads();
  if (threadIdx.x < image.channels) {
    std::int32_t* histogram = image.histogram + threadIdx.x * kLevels;
    ChannelLevels result{kLevels, 0, 0};
    for (int level = 0; level < kLevels; ++level) {
      if (histogram[level] == 0) continue;
      result.darkest = min(result.darkest, level);
      result.brightest = level;
    }
    result.step = (image.plane() - histogram[result.brightest]) / (kLevels - 1);
    // From here on: how many pixels are darker than a level.
    int below = 0;
    for (int level = 0; level < kLevels; ++level) {
      const int here = histogram[level];
      histogram[level] = below;
      below += here;
    }
    found[threadIdx.x] = result;
  }
  __syncthreads();
}

__device__ int mapped_level(int level, const float* layer, float grey, const ChannelLevels& found,
                            int below) {
  if (layer[column::kEqualize] > 0) {
    return found.step > 0 ? min((below + found.step / 2) / found.step, kLevels - 1) : level;
  }
  if (layer[column::kStretch] > 0) {
    const float range = static_cast<float>(found.brightest - found.darkest);
    return range > 0 ? to_byte(static_cast<float>(level - found.darkest) * (255.0f / range)) : level;
  }
  int result = to_byte(level * layer[column::kGain] + grey * layer[column::kGreyGain]);
  result &= static_cast<int>(layer[column::kKeptBits]);
  return result >= layer[column::kSolarizeFrom] ? kLevels - 1 - result : result;
}

__device__ void map_levels(Image& image, const float* layer) {
  __shared__ ChannelLevels found[kMostChannels];
  const bool counts = layer[column::kStretch] > 0 || layer[column::kEqualize] > 0;
  const bool nothing = !counts && layer[column::kGain] == 1 && layer[column::kGreyGain] == 0 &&
                       layer[column::kKeptBits] == 255 && layer[column::kSolarizeFrom] > 255;
  if (nothing) return;
  if (counts) count_levels(image, found);
  float grey = 0;
  if (layer[column::kGreyGain] != 0) {
    for (int i = threadIdx.x; i < image.plane(); i += kThreads) grey += grey_at(image, i);
    grey = block_sum(grey) / image.plane();
  }
  for (int i = threadIdx.x; i < image.channels * kLevels; i += kThreads) {
    const int c = i / kLevels;
    image.levels[i] = static_cast<std::uint8_t>(mapped_level(
        i % kLevels, layer, grey, counts ? found[c] : ChannelLevels{}, counts ? image.histogram[i] : 0));
  }
  __syncthreads();
  for (int i = threadIdx.x; i < image.size(); i += kThreads) {
    image.pixels[i] = image.levels[i / image.plane() * kLevels + image.pixels[i]];
  }
  __syncthreads();
}

__device__ void blend(Image& image, float colour, float sharpness) {
  const bool colours = colour != 1 && image.channels == 3;
  const bool sharpens = sharpness != 1 && image.height >= 3 && image.width >= 3;
  if (!colours && !sharpens) return;
  for (int i = threadIdx.x; i < image.size(); i += kThreads) {
    const int at = i % image.plane(), y = at / image.width, x = at % image.width;
    const float level = image.pixels[i];
    float result = level;
    if (colours) result += (level - grey_at(image, at)) * (colour - 1);
    if (sharpens && y > 0 && x > 0 && y + 1 < image.height && x + 1 < image.width) {
      int around = 0;
      for (int dy = -1; dy <= 1; ++dy) {
        for (int dx = -1; dx <= 1; ++dx) around += image.pixels[i + dy * image.width + dx];
      }
      const float smooth = (around + level * 4) / 13;
      result += (level - smooth) * (sharpness - 1);
    }
    image.next[i] = to_byte(result);
  }
  image.advance();
}

__device__ bool in_box(const float* box, int y, int x) {
  return x >= box[0] && x < box[1] && y >= box[2] && y < box[3];
}

__global__ void __launch_bounds__(kThreads)
    augment_kernel(DeviceAugmentation augmentation, const std::uint8_t* input, float* output) {
  extern __shared__ std::int32_t shared[];
  const DeviceAugmentation& a = augmentation;
  const int size = a.channels * a.height * a.width;
  auto* bytes = reinterpret_cast<std::uint8_t*>(shared + a.channels * kLevels);
  Image image{bytes + a.channels * kLevels,
              bytes + a.channels * kLevels + size,
              shared,
              bytes,
              a.channels,
              a.height,
              a.width,
              a.fill};
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * size;
  for (int i = threadIdx.x; i < size; i += kThreads) image.pixels[i] = input[first + i];
  __syncthreads();

  const float* row = a.table + static_cast<std::int64_t>(blockIdx.x) * a.columns;
  if (a.crops) enlarge_box(image, row + column::kCrop);
  if (a.shifts) warp_nearest(image, row + column::kShift);
  for (int l = 0; l < a.layers; ++l) {
    const float* layer = row + column::kLayers + l * column::kLayerSize;
    warp_nearest(image, layer + column::kWarp);
    map_levels(image, layer);
    blend(image, layer[column::kColour], layer[column::kSharpness]);
  }
  for (int i = threadIdx.x; i < size; i += kThreads) {
    const int c = i / image.plane(), at = i % image.plane();
    const bool cut = a.cuts && in_box(row + column::kCutout, at / a.width, at % a.width);
    output[first + i] = cut ? 0.0f : image.pixels[i] * a.scale[c] - a.shift[c];
  }
}

// As at::lerp: exact at both ends.
__device__ float mixed(float partner, float own, float weight) {
  return weight < 0.5f ? partner + weight * (own - partner) : own - (own - partner) * (1 - weight);
}

__global__ void __launch_bounds__(kThreads)
    mix_kernel(DeviceAugmentation augmentation, DeviceMixing mixing, const float* input, float* output,
               const std::int64_t* labels, int num_classes, float smoothing, float* targets) {
  const DeviceAugmentation& a = augmentation;
  const int image = blockIdx.x, partner = a.batch - 1 - image, size = a.channels * a.height * a.width;
  const float* row = a.table + static_cast<std::int64_t>(image) * a.columns;
  const float weight = mixing == DeviceMixing::none ? 1.0f : row[column::kMixOwn],
              spread = smoothing / num_classes;
  for (int k = threadIdx.x; k < num_classes; k += kThreads) {
    const float own = spread + (labels[image] == k ? 1 - smoothing : 0.0f);
    const float other = spread + (labels[partner] == k ? 1 - smoothing : 0.0f);
    targets[static_cast<std::int64_t>(image) * num_classes + k] = mixed(other, own, weight);
  }
  if (mixing == DeviceMixing::none) return;
  const float* own = input + static_cast<std::int64_t>(image) * size;
  const float* other = input + static_cast<std::int64_t>(partner) * size;
  for (int i = threadIdx.x; i < size; i += kThreads) {
    const int at = i % (a.height * a.width);
    const bool from_other =
        mixing == DeviceMixing::cutmix && in_box(row + column::kMixBox, at / a.width, at % a.width);
    output[static_cast<std::int64_t>(image) * size + i] = mixing == DeviceMixing::mixup
                                                              ? mixed(other[i], own[i], weight)
                                                          : from_other ? other[i]
                                                                       : own[i];
  }
}

std::int64_t shared_bytes(std::int64_t channels, std::int64_t height, std::int64_t width) {
  return channels * kLevels * 5 + 2 * channels * height * width;
}

}  // namespace

bool augmentation_fits(std::int64_t channels, std::int64_t height, std::int64_t width) {
  return (channels == 1 || channels == 3) && shared_bytes(channels, height, width) <= kSharedBytes;
}

cudaError_t augment_images(const DeviceAugmentation& augmentation, const std::uint8_t* input, float* output,
                           cudaStream_t stream) {
  if (augmentation.batch == 0) return cudaSuccess;
  const std::int64_t bytes = shared_bytes(augmentation.channels, augmentation.height, augmentation.width);
  const cudaError_t status = cudaFuncSetAttribute(augment_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                  static_cast<int>(bytes));
  if (status != cudaSuccess) return status;
  augment_kernel<<<augmentation.batch, kThreads, static_cast<std::size_t>(bytes), stream>>>(augmentation,
                                                                                            input, output);
  return cudaGetLastError();
}

cudaError_t mix_batch(const DeviceAugmentation& augmentation, DeviceMixing mixing, const float* input,
                      float* output, const std::int64_t* labels, std::int32_t num_classes, float smoothing,
                      float* targets, cudaStream_t stream) {
  if (augmentation.batch == 0) return cudaSuccess;
  mix_kernel<<<augmentation.batch, kThreads, 0, stream>>>(augmentation, mixing, input, output, labels,
                                                          num_classes, smoothing, targets);
  return cudaGetLastError();
}

}  // namespace topomask
