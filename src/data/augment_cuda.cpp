#include "data/gpu.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "core/cuda_launch.h"
#include "data/cuda/augment.h"

namespace topomask {
namespace {

DeviceMixing on_device(Mixing mixing) {
  switch (mixing) {
    case Mixing::none:
      return DeviceMixing::none;
    case Mixing::mixup:
      return DeviceMixing::mixup;
    case Mixing::cutmix:
      break;
  }
  return DeviceMixing::cutmix;
}

}  // namespace

bool augment_runs_on_cuda(const at::Tensor& images) {
  return images.is_cuda() && augmentation_fits(images.size(1), images.size(2), images.size(3));
}

AugmentedBatch augment_cuda(const Batch& batch, const AugmentOptions& options,
                            const AugmentConstants& constants, const AugmentTable& table,
                            const at::Tensor& drawn) {
  const at::Tensor input = batch.images.contiguous(), labels = batch.labels.contiguous();
  const CudaLaunch launch(input);
  DeviceAugmentation augmentation;
  augmentation.batch = static_cast<std::int32_t>(input.size(0));
  augmentation.channels = static_cast<std::int32_t>(input.size(1));
  augmentation.height = static_cast<std::int32_t>(input.size(2));
  augmentation.width = static_cast<std::int32_t>(input.size(3));
  augmentation.table = drawn.const_data_ptr<float>();
  augmentation.columns = static_cast<std::int32_t>(table.columns);
  augmentation.layers = static_cast<std::int32_t>(table.layers.size());
  augmentation.crops = options.min_crop_area < 1;
  augmentation.shifts = options.pad > 0 || options.flip;
  augmentation.cuts = options.cutout > 0;
  augmentation.scale = constants.scale.const_data_ptr<float>();
  augmentation.shift = constants.shift.const_data_ptr<float>();
  augmentation.fill = constants.fill.const_data_ptr<std::uint8_t>();

  AugmentedBatch result{at::empty(input.sizes(), input.options().dtype(at::kFloat)),
                        at::empty({input.size(0), constants.num_classes}, input.options().dtype(at::kFloat))};
  check_cuda(augment_images(augmentation, input.const_data_ptr<std::uint8_t>(),
                            result.images.data_ptr<float>(), launch.stream),
             "augment_images");
  const at::Tensor plain = result.images;
  const bool mixes = table.mixing != Mixing::none;
  if (mixes) result.images = at::empty_like(plain);
  check_cuda(
      mix_batch(augmentation, on_device(table.mixing), plain.const_data_ptr<float>(),
                mixes ? result.images.data_ptr<float>() : nullptr, labels.const_data_ptr<std::int64_t>(),
                static_cast<std::int32_t>(constants.num_classes), static_cast<float>(options.label_smoothing),
                result.targets.data_ptr<float>(), launch.stream),
      "mix_batch");
  return result;
}

}  // namespace topomask
