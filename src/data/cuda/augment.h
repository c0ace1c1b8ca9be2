// Augmentation of a batch in two kernels: what data/pixel_ops.h does with about a hundred tensor operations.
//
// At 32 x 32 pixels those operations are so short that starting them takes longer than a tenth of a training
// step. Here a block of threads holds its image in shared memory and takes it through all changes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace topomask {

struct DeviceAugmentation {
  std::int32_t batch = 0, channels = 0, height = 0, width = 0;  // 1 or 3 channels
  const float* table = nullptr;                                 // [batch, columns], data/augment_columns.h
  std::int32_t columns = 0, layers = 0;
  bool crops = false, shifts = false, cuts = false;  // cuts: cutout
  const float* scale = nullptr;                      // [channels] normalised = byte * scale - shift
  const float* shift = nullptr;                      // [channels]
  const std::uint8_t* fill = nullptr;                // [channels]
};

// Whether an image fits into the shared memory of a block.
bool augmentation_fits(std::int64_t channels, std::int64_t height, std::int64_t width);

// Everything up to and with cutout.
cudaError_t augment_images(const DeviceAugmentation& augmentation,
                           const std::uint8_t* input,  // [batch, channels, height, width]
                           float* output,              // the same
                           cudaStream_t stream);

enum class DeviceMixing { none, mixup, cutmix };

// Mixes each image with the one at the same distance from the end of the batch. Targets are made from the
// labels, mixed or not; the images are left alone where nothing is mixed.
cudaError_t mix_batch(const DeviceAugmentation& augmentation, DeviceMixing mixing,
                      const float* input,          // [batch, channels, height, width], not `output`
                      float* output,               // the same, or null where nothing is mixed
                      const std::int64_t* labels,  // [batch]
                      std::int32_t num_classes, float smoothing,
                      float* targets,  // [batch, num_classes]
                      cudaStream_t stream);

}  // namespace topomask
