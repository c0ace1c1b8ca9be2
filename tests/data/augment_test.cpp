// Batched augmentation against slow versions that treat one pixel at a time.
#include "topomask/augment.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "core/random.h"
#include "data/pixel_ops.h"
#include "support/expect_edges.h"

namespace topomask::testing {
namespace {

using Levels = std::vector<int>;  // one image, [C, H, W]

at::Tensor random_images(std::int64_t batch, std::int64_t channels, std::int64_t height, std::int64_t width,
                         std::uint64_t seed = 1) {
  at::Tensor images = at::empty({batch, channels, height, width}, at::kByte);
  RandomStream random(seed, 0);
  auto* pixel = images.data_ptr<std::uint8_t>();
  // Not all levels, so that stretching and equalising have something to do.
  for (std::int64_t i = 0; i < images.numel(); ++i) {
    pixel[i] = static_cast<std::uint8_t>(40 + random.next_below(60) + random.next_below(90));
  }
  return images;
}

Levels levels_of(const at::Tensor& images, std::int64_t index) {
  const at::Tensor image = images[index].contiguous();
  const auto* pixel = image.const_data_ptr<std::uint8_t>();
  return {pixel, pixel + image.numel()};
}

int to_byte(double level) {
  return static_cast<int>(std::lround(std::clamp(level, 0.0, 255.0)));
}

// --- the fourteen operations, one image at a time --------------------------------------------------------

struct Slow {
  int channels, height, width;

  std::size_t at(int c, int y, int x) const { return static_cast<std::size_t>((c * height + y) * width + x); }

  template <class Source>
  Levels moved(const Levels& image, const Levels& fill, Source&& source) const {
    Levels result(image.size());
    for (int c = 0; c < channels; ++c) {
      for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) {
          const auto [sx, sy] = source(x - (width - 1) / 2.0, y - (height - 1) / 2.0);
          const int u = static_cast<int>(std::floor(sx + (width - 1) / 2.0 + 0.5));
          const int v = static_cast<int>(std::floor(sy + (height - 1) / 2.0 + 0.5));
          const bool inside = u >= 0 && v >= 0 && u < width && v < height;
          result[at(c, y, x)] = inside ? image[at(c, v, u)] : fill[static_cast<std::size_t>(c)];
        }
      }
    }
    return result;
  }

  double grey(const Levels& image, int y, int x) const {
    if (channels == 1) return image[at(0, y, x)];
    return 0.299 * image[at(0, y, x)] + 0.587 * image[at(1, y, x)] + 0.114 * image[at(2, y, x)];
  }

  template <class Map>
  Levels mapped(const Levels& image, Map&& map) const {
    Levels result;
    for (const int level : image) result.push_back(map(level));
    return result;
  }

  Levels contrast(const Levels& image, double factor) const {
    double mean = 0;
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < width; ++x) mean += grey(image, y, x) / (height * width);
    }
    return mapped(image, [&](int level) { return to_byte(factor * level + (1 - factor) * mean); });
  }

  Levels colour(const Levels& image, double factor) const {
    Levels result(image);
    for (int c = 0; c < channels; ++c) {
      for (int y = 0; y < height; ++y) {
        for (int x = 0; x < width; ++x) {
          result[at(c, y, x)] = to_byte(factor * image[at(c, y, x)] + (1 - factor) * grey(image, y, x));
        }
      }
    }
    return result;
  }

  Levels sharpness(const Levels& image, double factor) const {
    Levels result(image);
    for (int c = 0; c < channels; ++c) {
      for (int y = 1; y + 1 < height; ++y) {
        for (int x = 1; x + 1 < width; ++x) {
          double smooth = 4.0 * image[at(c, y, x)] / 13;
          for (int dy = -1; dy <= 1; ++dy) {
            for (int dx = -1; dx <= 1; ++dx) smooth += image[at(c, y + dy, x + dx)] / 13.0;
          }
          result[at(c, y, x)] = to_byte(factor * image[at(c, y, x)] + (1 - factor) * smooth);
        }
      }
    }
    return result;
  }

  Levels auto_contrast(const Levels& image) const {
    Levels result(image);
    const int plane = height * width;
    for (int c = 0; c < channels; ++c) {
      const auto [low, high] =
          std::minmax_element(image.begin() + c * plane, image.begin() + (c + 1) * plane);
      for (int i = c * plane; *low < *high && i < (c + 1) * plane; ++i) {
        result[static_cast<std::size_t>(i)] =
            to_byte(255.0 * (image[static_cast<std::size_t>(i)] - *low) / (*high - *low));
      }
    }
    return result;
  }

  Levels equalize(const Levels& image) const {
    Levels result(image);
    const int plane = height * width;
    for (int c = 0; c < channels; ++c) {
      Levels histogram(256, 0);
      for (int i = 0; i < plane; ++i)
        ++histogram[static_cast<std::size_t>(image[static_cast<std::size_t>(c * plane + i)])];
      int last = 255;
      while (histogram[static_cast<std::size_t>(last)] == 0) --last;
      const int step = (plane - histogram[static_cast<std::size_t>(last)]) / 255;
      if (step == 0) continue;
      Levels table;
      for (int level = 0, n = step / 2; level < 256; n += histogram[static_cast<std::size_t>(level++)]) {
        table.push_back(std::min(255, n / step));
      }
      for (int i = c * plane; i < (c + 1) * plane; ++i) {
        result[static_cast<std::size_t>(i)] =
            table[static_cast<std::size_t>(image[static_cast<std::size_t>(i)])];
      }
    }
    return result;
  }

  Levels apply(AugmentOp op, double magnitude, bool negative, const Levels& image, const Levels& fill) const {
    using std::pair;
    const double m = magnitude / 30 * (negative ? -1 : 1), factor = 1 + 0.9 * m,
                 angle = std::numbers::pi / 6 * m;
    switch (op) {
      case AugmentOp::identity:
        return image;
      case AugmentOp::shear_x:
        return moved(image, fill, [&](double x, double y) { return pair{x + 0.3 * m * y, y}; });
      case AugmentOp::shear_y:
        return moved(image, fill, [&](double x, double y) { return pair{x, y + 0.3 * m * x}; });
      case AugmentOp::translate_x:
        return moved(image, fill, [&](double x, double y) {
          return pair{x + std::round(150.0 / 331 * m * width), y};
        });
      case AugmentOp::translate_y:
        return moved(image, fill, [&](double x, double y) {
          return pair{x, y + std::round(150.0 / 331 * m * height)};
        });
      case AugmentOp::rotate:
        return moved(image, fill, [&](double x, double y) {
          return pair{std::cos(angle) * x + std::sin(angle) * y, std::cos(angle) * y - std::sin(angle) * x};
        });
      case AugmentOp::brightness:
        return mapped(image, [&](int level) { return to_byte(factor * level); });
      case AugmentOp::colour:
        return colour(image, factor);
      case AugmentOp::contrast:
        return contrast(image, factor);
      case AugmentOp::sharpness:
        return sharpness(image, factor);
      case AugmentOp::posterize: {
        const int block = 1 << std::lround(4 * std::abs(m));
        return mapped(image, [&](int level) { return level / block * block; });
      }
      case AugmentOp::solarize:
        return mapped(image,
                      [&](int level) { return level >= 255 * (1 - std::abs(m)) ? 255 - level : level; });
      case AugmentOp::auto_contrast:
        return auto_contrast(image);
      case AugmentOp::equalize:
        return equalize(image);
    }
    return image;
  }
};

// How a layer is described when every image undergoes the operation given for it.
struct LayerOf {
  at::Tensor parameter;
  AugmentTable::Layer layer{true, true, true, 0};

  LayerOf(const std::vector<AugmentOp>& ops, double magnitude, bool negative, int height, int width) {
    const auto batch = static_cast<std::int64_t>(ops.size());
    parameter = at::zeros({batch, column::kLayerSize}, at::kFloat);
    auto* row = parameter.data_ptr<float>();
    for (std::int64_t i = 0; i < batch; ++i) {
      const AugmentOp op = ops[static_cast<std::size_t>(i)];
      set_operation(op, magnitude, negative, height, width, row + i * column::kLayerSize);
      if (op == AugmentOp::equalize) {
        row[layer.equalized++ * column::kLayerSize + column::kEqualized] = static_cast<float>(i);
      }
    }
  }
};

TEST(RandAugment, EveryOperationAgreesWithItsDefinition) {
  std::vector<AugmentOp> ops;
  for (int op = 0; op < kAugmentOps; ++op) ops.push_back(static_cast<AugmentOp>(op));
  for (const auto& [channels, height, width] :
       {std::tuple{3, 24, 32}, std::tuple{1, 17, 17}, std::tuple{3, 2, 5}}) {
    const at::Tensor images = random_images(kAugmentOps, channels, height, width);
    const Levels fill_levels = {100, 150, 50};
    const at::Tensor fill = at::tensor(fill_levels).narrow(0, 0, channels).to(at::kByte).view({-1, 1, 1});
    for (const double magnitude : {0.0, 9.0, 17.3, 30.0}) {
      for (const bool negative : {false, true}) {
        const LayerOf layer(ops, magnitude, negative, height, width);
        const at::Tensor result = apply_layer(images, layer.parameter, layer.layer, fill);
        const Slow slow{channels, height, width};
        for (int op = 0; op < kAugmentOps; ++op) {
          const Levels expected =
              slow.apply(static_cast<AugmentOp>(op), magnitude, negative, levels_of(images, op), fill_levels);
          const Levels actual = levels_of(result, op);
          const bool moves =
              op >= static_cast<int>(AugmentOp::shear_x) && op <= static_cast<int>(AugmentOp::rotate);
          int different = 0;
          for (std::size_t i = 0; i < expected.size(); ++i) {
            different += std::abs(actual[i] - expected[i]) > (moves ? 0 : 1);
          }
          // float32 may round a position that lies halfway between two pixels to the other one.
          EXPECT_LE(different, moves ? static_cast<int>(expected.size()) / 50 : 0)
              << "operation " << op << " at " << magnitude << (negative ? " negative" : "");
        }
      }
    }
  }
}

TEST(RandAugment, OneLevelImagesSurvive) {
  const at::Tensor images = at::full({2, 3, 8, 8}, 77, at::kByte), fill = at::zeros({3, 1, 1}, at::kByte);
  const LayerOf layer({AugmentOp::equalize, AugmentOp::auto_contrast}, 9, false, 8, 8);
  EXPECT_TRUE(at::equal(apply_layer(images, layer.parameter, layer.layer, fill), images));
}

// --- moving pixels ---------------------------------------------------------------------------------------

TEST(PixelOps, AWholeBoxIsTheImageItself) {
  const at::Tensor images = random_images(3, 3, 12, 16);
  const at::Tensor box = at::tensor({0.0f, 0.0f, 16.0f, 12.0f}).expand({3, 4});
  EXPECT_TRUE(at::equal(enlarge_boxes(images, box), images));
}

TEST(PixelOps, EnlargedBoxesAreBilinear) {
  const at::Tensor images = random_images(2, 1, 10, 14);
  const at::Tensor box = at::tensor({3.0f, 2.0f, 7.0f, 5.0f, 0.0f, 4.0f, 9.0f, 6.0f}).view({2, 4});
  const at::Tensor result = enlarge_boxes(images, box);
  for (int b = 0; b < 2; ++b) {
    const Levels image = levels_of(images, b), actual = levels_of(result, b);
    const auto* corner = box.const_data_ptr<float>() + 4 * b;
    const auto level = [&](int y, int x) {
      return image[static_cast<std::size_t>(std::clamp(y, 0, 9) * 14 + std::clamp(x, 0, 13))];
    };
    for (int y = 0; y < 10; ++y) {
      for (int x = 0; x < 14; ++x) {
        const double sx = corner[0] + (x + 0.5) * corner[2] / 14 - 0.5,
                     sy = corner[1] + (y + 0.5) * corner[3] / 10 - 0.5;
        const int u = static_cast<int>(std::floor(sx)), v = static_cast<int>(std::floor(sy));
        const double fx = sx - u, fy = sy - v;
        const double expected = (1 - fy) * ((1 - fx) * level(v, u) + fx * level(v, u + 1)) +
                                fy * ((1 - fx) * level(v + 1, u) + fx * level(v + 1, u + 1));
        EXPECT_NEAR(actual[static_cast<std::size_t>(y * 14 + x)], expected, 0.51);
      }
    }
  }
}

// --- whole batches ---------------------------------------------------------------------------------------

class Augment : public ::testing::Test {
 protected:
  void SetUp() override {
    data.class_names = {"a", "b", "c", "d"};
    data.channels = 3, data.height = data.width = 16;
    data.mean = {0.4, 0.5, 0.25}, data.stddev = {0.2, 0.25, 0.3};
    data.train.images = random_images(4, 3, 16, 16);  // in memory
  }
  Batch batch_of(std::int64_t size, std::int64_t epoch = 2, std::int64_t step = 5) const {
    Batch batch;
    batch.images = random_images(size, 3, 16, 16, 8);
    batch.labels = at::empty({size}, at::kLong);
    for (std::int64_t i = 0; i < size; ++i) batch.labels[i] = i % 4;
    batch.epoch = epoch, batch.step = step;
    return batch;
  }
  at::Tensor bytes(const at::Tensor& normalised) const {
    const at::Tensor mean = at::tensor(data.mean).view({3, 1, 1}),
                     stddev = at::tensor(data.stddev).view({3, 1, 1});
    return ((normalised * stddev + mean) * 255).round().to(at::kByte);
  }
  ImageData data;
  AugmentOptions options;
};

AugmentOptions everything() {
  AugmentOptions options;
  options.min_crop_area = 0.4;
  options.pad = 2;
  options.flip = true;
  options.rand_augment_ops = 2;
  options.cutout = 6;
  options.mixup = 0.8;
  options.cutmix = 1;
  options.label_smoothing = 0.1;
  return options;
}

TEST_F(Augment, NothingAskedForIsNormalisationAlone) {
  const Augmenter augmenter(data, options, 1);
  const Batch batch = batch_of(6);
  const AugmentedBatch result = augmenter.augment(batch);
  const at::Tensor mean = at::tensor(data.mean).view({3, 1, 1}),
                   stddev = at::tensor(data.stddev).view({3, 1, 1});
  const at::Tensor expected = ((batch.images.to(at::kDouble) / 255 - mean) / stddev).to(at::kFloat);
  EXPECT_TRUE(at::allclose(result.images, expected, 1e-5, 1e-5));
  EXPECT_TRUE(at::equal(result.images, augmenter.normalise(batch.images)));
  EXPECT_EQ(result.targets.sizes(), (at::IntArrayRef{6, 4}));
  for (std::int64_t i = 0; i < 6; ++i) {
    for (std::int64_t c = 0; c < 4; ++c)
      EXPECT_EQ(result.targets[i][c].item<float>(), c == i % 4 ? 1.0f : 0.0f);
  }
}

TEST_F(Augment, IsAFunctionOfSeedEpochStepAndPlace) {
  const Augmenter augmenter(data, everything(), 11), same(data, everything(), 11),
      other(data, everything(), 12);
  const Batch batch = batch_of(32);
  const AugmentedBatch first = augmenter.augment(batch);
  augmenter.augment(batch_of(7, 1, 1));  // what came before does not matter
  EXPECT_TRUE(at::equal(augmenter.augment(batch).images, first.images));
  EXPECT_TRUE(at::equal(same.augment(batch).images, first.images));
  EXPECT_TRUE(at::equal(same.augment(batch).targets, first.targets));
  EXPECT_FALSE(at::equal(other.augment(batch).images, first.images));
  EXPECT_FALSE(at::equal(augmenter.augment(batch_of(32, 2, 6)).images, first.images));
  EXPECT_FALSE(at::equal(augmenter.augment(batch_of(32, 3, 5)).images, first.images));
}

// Ranks that share a batch see what one alone would see: each image with its own choices and its own partner.
TEST_F(Augment, PartsOfABatchAreThoseOfTheWhole) {
  const Augmenter augmenter(data, everything(), 3);
  for (std::int64_t step = 0; step < 6; ++step) {  // mixup in some batches, cutmix in others
    const Batch batch = batch_of(13, 1, step);
    const AugmentedBatch whole = augmenter.augment(batch);
    for (const int parts : {2, 3, 13}) {
      std::int64_t done = 0;
      for (int p = 0; p < parts; ++p) {
        Batch part = batch;
        part.part = BatchPart{p, parts, true}.places(13);
        part.images = batch.images.index_select(0, part.part.places);
        part.labels = batch.labels.index_select(0, part.part.places);
        const AugmentedBatch found = augmenter.augment(part);
        const std::int64_t count = found.images.size(0);
        EXPECT_TRUE(at::equal(found.images, whole.images.narrow(0, done, count))) << step << ' ' << p;
        EXPECT_TRUE(at::equal(found.targets, whole.targets.narrow(0, done, count))) << step << ' ' << p;
        done += count;
      }
      EXPECT_EQ(done, 13);
    }
  }
}

TEST_F(Augment, ImagesDoNotInfluenceEachOther) {
  AugmentOptions alone = everything();
  alone.mixup = alone.cutmix = 0;
  const Augmenter augmenter(data, alone, 3);
  Batch whole = batch_of(64), part = whole;
  part.images = whole.images.narrow(0, 0, 20), part.labels = whole.labels.narrow(0, 0, 20);
  EXPECT_TRUE(at::equal(augmenter.augment(whole).images.narrow(0, 0, 20), augmenter.augment(part).images));
}

TEST_F(Augment, PadCropAndFlipShiftByWholePixels) {
  options.pad = 2;
  options.flip = true;
  const Batch batch = batch_of(400);
  const at::Tensor result = bytes(Augmenter(data, options, 4).augment(batch).images);
  std::set<std::tuple<int, int, bool>> seen;
  const Levels fill = {102, 128, 64};
  for (std::int64_t i = 0; i < 400; ++i) {
    const Levels image = levels_of(batch.images, i), actual = levels_of(result, i);
    bool found = false;
    for (int dy = -2; dy <= 2 && !found; ++dy) {
      for (int dx = -2; dx <= 2 && !found; ++dx) {
        for (const bool flip : {false, true}) {
          bool same = true;
          for (int p = 0; p < 3 * 256 && same; ++p) {
            const int c = p / 256, y = p / 16 % 16 + dy, x = (flip ? 15 - p % 16 : p % 16) + dx;
            const bool inside = x >= 0 && y >= 0 && x < 16 && y < 16;
            same = actual[static_cast<std::size_t>(p)] ==
                   (inside ? image[static_cast<std::size_t>(c * 256 + y * 16 + x)]
                           : fill[static_cast<std::size_t>(c)]);
          }
          if (same) seen.emplace(dx, dy, flip), found = true;
          if (found) break;
        }
      }
    }
    EXPECT_TRUE(found) << i;
  }
  EXPECT_EQ(seen.size(), 50u);  // every shift, both ways round
}

TEST_F(Augment, CutoutBlanksASquare) {
  options.cutout = 6;
  const Batch batch = batch_of(200);
  const at::Tensor result = Augmenter(data, options, 5).augment(batch).images;
  const at::Tensor plain = Augmenter(data, {}, 5).normalise(batch.images);
  const at::Tensor blank = (result == 0).all(1);  // [B, H, W]
  EXPECT_TRUE(at::equal(result, plain.masked_fill(blank.unsqueeze(1), 0)));
  const at::Tensor width = blank.any(1).sum(1), height = blank.any(2).sum(1), area = blank.sum({1, 2});
  EXPECT_TRUE(at::equal(area, width * height));
  EXPECT_EQ(width.max().item<int>(), 6);
  EXPECT_EQ(width.min().item<int>(), 3);  // centred on the edge: half of it
  EXPECT_EQ(height.min().item<int>(), 3);
}

TEST_F(Augment, MixupMixesImagesAndTargetsAlike) {
  options.mixup = 0.4;
  const Batch batch = batch_of(402);  // labels of partners differ: i + (401 - i) is odd
  const Augmenter augmenter(data, options, 6);
  const AugmentedBatch result = augmenter.augment(batch);
  EXPECT_TRUE(at::allclose(result.targets.sum(1), at::full({402}, 1.0f), 1e-5, 1e-5));
  const at::Tensor own = result.targets.gather(1, batch.labels.unsqueeze(1)).view({-1, 1, 1, 1});
  const at::Tensor plain = augmenter.normalise(batch.images);
  EXPECT_TRUE(at::allclose(result.images, plain * own + plain.flip(0) * (1 - own), 1e-4, 1e-4));
  // Beta(a, a) has mean 1/2 and variance 1 / (4 (2 a + 1)).
  const double variance = 1 / (4 * (2 * 0.4 + 1)), mean = own.mean().item<double>();
  EXPECT_NEAR(mean, 0.5, 4 * std::sqrt(variance / 402));
  const at::Tensor squares = (own.to(at::kDouble) - 0.5).square();
  EXPECT_NEAR(squares.mean().item<double>(), variance, 4 * squares.std().item<double>() / std::sqrt(402.0));
}

TEST_F(Augment, CutmixCountsThePixelsThatStay) {
  options.cutmix = 1;
  const Batch batch = batch_of(100);
  const Augmenter augmenter(data, options, 7);
  const AugmentedBatch result = augmenter.augment(batch);
  const at::Tensor plain = augmenter.normalise(batch.images), partner = plain.flip(0);
  const at::Tensor own = (result.images == plain).all(1),
                   other = (result.images == partner).all(1);  // [B, H, W]
  EXPECT_TRUE(own.logical_or(other).all().item<bool>());
  const at::Tensor share = other.logical_and(own.logical_not()).sum({1, 2}).to(at::kFloat) / 256;
  const at::Tensor target = result.targets.gather(1, batch.labels.unsqueeze(1)).squeeze(1);
  EXPECT_TRUE(at::allclose(target, 1 - share, 0, 0.02));  // a random pixel may equal its partner's
}

TEST_F(Augment, MixingHappensWithItsProbability) {
  options.mixup = options.cutmix = 1;
  options.mix_probability = 0.6;
  const Augmenter augmenter(data, options, 8);
  constexpr int kBatches = 400;
  int mixed = 0, boxes = 0;
  for (int step = 0; step < kBatches; ++step) {
    const Batch batch = batch_of(2, 0, step);
    const AugmentedBatch result = augmenter.augment(batch);
    const at::Tensor plain = augmenter.normalise(batch.images);
    const bool changed = result.targets.max().item<float>() < 1;
    mixed += changed;
    boxes +=
        changed && (result.images == plain).logical_or(result.images == plain.flip(0)).all().item<bool>();
  }
  // A box can miss nearly everything, so a mixed batch is at times not seen as one.
  EXPECT_NEAR(mixed / double{kBatches}, 0.6, 4 * std::sqrt(0.24 / kBatches) + 0.02);
  EXPECT_NEAR(boxes / double(mixed), 0.5, 4 * std::sqrt(0.25 / mixed) + 0.03);
}

TEST_F(Augment, LabelSmoothingSpreadsOverAllClasses) {
  options.label_smoothing = 0.1;
  const AugmentedBatch result = Augmenter(data, options, 9).augment(batch_of(4));
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t c = 0; c < 4; ++c)
      EXPECT_FLOAT_EQ(result.targets[i][c].item<float>(), i == c ? 0.925f : 0.025f);
  }
}

TEST_F(Augment, TheCropOfADescriptionHoldsForSetsInMemory) {
  data.train.min_crop_area = 0.3;
  EXPECT_EQ(Augmenter(data, {}, 1).options().min_crop_area, 0.3);
  EXPECT_FALSE(at::equal(Augmenter(data, {}, 1).augment(batch_of(4)).images,
                         Augmenter(data, {}, 1).normalise(batch_of(4).images)));
  data.train.images = at::Tensor();  // streamed: the loader crops
  EXPECT_EQ(Augmenter(data, {}, 1).options().min_crop_area, 1);
}

TEST_F(Augment, AllOperationsComeUpEquallyOften) {
  options.rand_augment_ops = 1;
  constexpr std::int64_t kImages = 14000;
  std::vector<float> table(static_cast<std::size_t>(kImages * augment_columns(options)));
  const AugmentTable drawn = draw_augment_table(options, {5, 0, 0}, kImages, 32, 32, table.data());
  const double bound = 4 * std::sqrt(13.0 / 196 / kImages);
  EXPECT_NEAR(static_cast<double>(drawn.layers.at(0).equalized) / kImages, 1.0 / 14, bound);
  const auto rows_with = [&](std::int64_t at, float value) {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < kImages; ++i) {
      count += table[static_cast<std::size_t>(i * drawn.columns + column::kLayers + at)] != value;
    }
    return static_cast<double>(count) / kImages;
  };
  EXPECT_NEAR(rows_with(column::kStretch, 0), 1.0 / 14, bound);
  EXPECT_NEAR(rows_with(column::kColour, 1), 1.0 / 14, bound);
  EXPECT_NEAR(rows_with(column::kSharpness, 1), 1.0 / 14, bound);
  EXPECT_NEAR(rows_with(column::kKeptBits, 255), 1.0 / 14, bound);
  EXPECT_NEAR(rows_with(column::kGreyGain, 0), 1.0 / 14, bound);
  EXPECT_NEAR(rows_with(column::kGain, 1), 2.0 / 14, 2 * bound);  // brightness and contrast
}

TEST_F(Augment, WrongOptionsAndBatchesAreErrors) {
  const auto wrong = [&](auto&& change, std::initializer_list<const char*> parts) {
    AugmentOptions bad;
    change(bad);
    expect_error([&] { Augmenter(data, bad, 0); }, parts);
  };
  wrong([](AugmentOptions& o) { o.pad = -1; }, {"pad", "got -1"});
  wrong([](AugmentOptions& o) { o.rand_augment_magnitude = 31; }, {"magnitude", "0 to 30", "got 31"});
  wrong([](AugmentOptions& o) { o.mixup = std::nan(""); }, {"mixup", "nan"});
  wrong([](AugmentOptions& o) { o.label_smoothing = 1.5; }, {"label_smoothing", "1.5"});
  wrong([](AugmentOptions& o) { o.min_crop_area = 0; }, {"min_crop_area"});
  const Augmenter augmenter(data, {}, 0);
  expect_error([&] { augmenter.normalise(at::zeros({2, 1, 4, 4}, at::kByte)); }, {"uint8 [B, 3, H, W]"});
  expect_error([&] { augmenter.normalise(at::zeros({2, 3, 4, 4})); }, {"uint8", "Float"});
  Batch batch = batch_of(4);
  batch.labels = batch.labels.narrow(0, 0, 3);
  expect_error([&] { augmenter.augment(batch); }, {"labels [B]"});
}

}  // namespace
}  // namespace topomask::testing
