// The GPU's augmentation against the tensor operations on the CPU, which have slow oracles of their own.
#include "topomask/augment.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include "core/random.h"
#include "gpu.h"

namespace topomask::testing {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

ImageData random_data(std::int64_t count, std::int64_t channels, std::int64_t height, std::int64_t width) {
  ImageData data;
  data.class_names = {"a", "b", "c", "d", "e"};
  data.channels = data.train.channels = channels;
  data.height = data.train.height = height, data.width = data.train.width = width;
  data.mean.assign(static_cast<std::size_t>(channels), 0.45);
  data.stddev.assign(static_cast<std::size_t>(channels), 0.25);
  data.train.images = at::empty({count, channels, height, width}, at::kByte);
  data.train.labels = at::empty({count}, at::kLong);
  RandomStream random(4, 0);
  auto* pixel = data.train.images.data_ptr<std::uint8_t>();
  for (std::int64_t i = 0; i < data.train.images.numel(); ++i) {
    pixel[i] = static_cast<std::uint8_t>(30 + random.next_below(100) + random.next_below(80));
  }
  for (std::int64_t i = 0; i < count; ++i) data.train.labels[i] = i % 5;
  return data;
}

AugmentOptions everything() {
  AugmentOptions options;
  options.pad = 3;
  options.flip = true;
  options.rand_augment_ops = 3;
  options.rand_augment_magnitude = 17;
  options.cutout = 5;
  options.label_smoothing = 0.1;
  return options;
}

void compare(const ImageData& data, const AugmentOptions& options, double tolerated) {
  LoaderOptions on_cpu, on_gpu;
  on_cpu.batch_size = on_gpu.batch_size = 64;
  on_gpu.device = kGpu;
  BatchLoader cpu_loader(data.train, on_cpu), gpu_loader(data.train, on_gpu);
  const Augmenter cpu(data, options, 3), gpu(data, options, 3, kGpu);
  while (const auto batch = cpu_loader.next()) {
    const auto same = gpu_loader.next();
    ASSERT_TRUE(same.has_value());
    ASSERT_TRUE(at::equal(batch->images, same->images.cpu()));
    const AugmentedBatch expected = cpu.augment(*batch), actual = gpu.augment(*same);
    EXPECT_TRUE(at::allclose(expected.targets, actual.targets.cpu(), 1e-6, 1e-6));
    // Means are summed in another order, so a level may round the other way and later changes enlarge that.
    const at::Tensor different = (expected.images - actual.images.cpu()).abs() > 1e-4;
    EXPECT_LE(different.to(at::kDouble).mean().item<double>(), tolerated);
  }
}

TEST(AugmentOnGpu, AgreesWithTheCpu) {
  TOPOMASK_NEEDS_GPU();
  for (const auto& [channels, height, width] :
       {std::tuple{3, 32, 32}, std::tuple{1, 17, 23}, std::tuple{3, 2, 5}}) {
    const ImageData data = random_data(256, channels, height, width);
    compare(data, everything(), 0.002);
    AugmentOptions mixed = everything();
    mixed.mixup = 0.8, mixed.cutmix = 1;
    compare(data, mixed, 0.004);
    mixed.min_crop_area = 0.3;
    compare(data, mixed, 0.02);
    compare(data, {}, 0);
  }
}

TEST(AugmentOnGpu, LargeImagesTakeTheTensorOperations) {
  TOPOMASK_NEEDS_GPU();
  compare(random_data(64, 3, 160, 160), everything(), 0.002);
}

TEST(AugmentOnGpu, IsTheSameEveryTime) {
  TOPOMASK_NEEDS_GPU();
  const ImageData data = random_data(64, 3, 32, 32);
  LoaderOptions options;
  options.batch_size = 64;
  options.device = kGpu;
  BatchLoader loader(data.train, options);
  AugmentOptions mixed = everything();
  mixed.mixup = 0.8;
  const Augmenter augmenter(data, mixed, 3, kGpu);
  const Batch batch = *loader.next();
  const AugmentedBatch first = augmenter.augment(batch), second = augmenter.augment(batch);
  EXPECT_TRUE(at::equal(first.images, second.images));
  EXPECT_TRUE(at::equal(first.targets, second.targets));
}

}  // namespace
}  // namespace topomask::testing
