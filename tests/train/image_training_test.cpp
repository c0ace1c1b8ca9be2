// Image classification on the built-in data: the loss falls, 16 images are learned by heart, and what is
// shown of a model is what it computes.
#include "topomask/image_training.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "support/gradients.h"

namespace topomask {
namespace {

namespace fs = std::filesystem;

// Batches are so small that a second thread would mostly be waited for.
class ImageTraining : public ::testing::Test {
  oracle::OneThread one_thread_;
};

struct Folder {
  fs::path path = fs::temp_directory_path() / ("topomask-image-" + std::to_string(getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

ImageTaskOptions small_task(const ImageData& data, AttentionVariant variant) {
  ImageTaskOptions options;
  options.model = fit_to_data(vit_preset("tiny"), data);
  options.model.patch = data.patch_size;
  options.model.layers = 2;
  options.model.embedding = 32;
  options.model.mlp = 64;
  options.model.attention = variant;
  options.batch_size = 16;
  return options;
}

TrainOptions quick(std::int64_t epochs) {
  TrainOptions options;
  options.epochs = epochs;
  options.learning_rate = 3e-3;
  options.warmup_epochs = 1;
  options.weight_decay = 0;
  options.evaluate_every = epochs;
  return options;
}

TEST_F(ImageTraining, LearnsSixteenImagesByHeart) {
  ImageData data = open_image_data("strokes:16,train=16,val=16");
  data.validation = data.train;
  for (const AttentionVariant variant : {AttentionVariant::grf, AttentionVariant::linear}) {
    const Folder folder;
    ImageClassification task(data, small_task(data, variant));
    const TrainResult result = Trainer(task, quick(80), folder.path.string(), {}).run();
    EXPECT_EQ(result.last.accuracy, 1) << attention_variant_name(variant);
    EXPECT_EQ(result.last.count, 16);
  }
}

TEST_F(ImageTraining, MeasuresTheTimeOfItsData) {
  const ImageData data = open_image_data("strokes:16,train=64,val=16");
  ImageClassification task(data, small_task(data, AttentionVariant::linear));
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 4; ++i) task.loss();
  const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double seconds = task.take_data_seconds();
  EXPECT_GT(seconds, 0);
  EXPECT_LT(seconds, all);
  EXPECT_EQ(task.take_data_seconds(), 0);
}

TEST_F(ImageTraining, LossFallsOnTheBuiltInData) {
  const ImageData data = open_image_data("strokes:16,classes=2,coupling=3,noise=0,train=1024,val=256");
  const Folder folder;
  ImageClassification task(data, small_task(data, AttentionVariant::grf));
  const Evaluation before = evaluate(task, quick(1));
  // The head starts at zero: every class is as likely.
  EXPECT_NEAR(before.loss, std::log(static_cast<double>(data.num_classes())), 1e-5);
  const TrainResult result = Trainer(task, quick(6), folder.path.string(), {}).run();
  EXPECT_LT(result.last.loss, 0.7 * before.loss);
  EXPECT_GT(result.last.accuracy, 0.8);
}

TEST_F(ImageTraining, ShowsTheMasksItUses) {
  const ImageData data = open_image_data("strokes:16,train=32,val=8");
  ImageTaskOptions options = small_task(data, AttentionVariant::grf);
  options.model.mask.num_walks = 20000;
  options.model.mask.max_hops = 3;
  ImageClassification task(data, options);
  const std::vector<MaskSnapshot> masks = task.masks();
  ASSERT_EQ(masks.size(), 2u);
  const std::int64_t patches = options.model.num_patches();
  EXPECT_EQ(masks[0].f.sizes(), (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(masks[0].used.sizes(), (std::vector<std::int64_t>{2, patches, patches}));
  // So many walks are nearly exact.
  const double error = ((masks[1].used - masks[1].exact).norm() / masks[1].exact.norm()).item<double>();
  EXPECT_GT(error, 0);
  EXPECT_LT(error, 0.03);
  EXPECT_TRUE(ImageClassification(data, small_task(data, AttentionVariant::softmax)).masks().empty());
}

// Ad-hoc walks do not estimate the power series; each kind of walks comes near to what it does estimate.
TEST_F(ImageTraining, ShowsWhatItsWalksEstimate) {
  const ImageData data = open_image_data("strokes:16,train=32,val=8");
  for (const AttentionVariant variant :
       {AttentionVariant::ad_hoc, AttentionVariant::grf_asymmetric, AttentionVariant::softmax_grf_bias}) {
    for (const bool key_f : {false, true}) {
      if (key_f && variant == AttentionVariant::grf_asymmetric) continue;  // one-hot keys have no f
      SCOPED_TRACE(attention_variant_name(variant) + (key_f ? ", key f" : ""));
      ImageTaskOptions options = small_task(data, variant);
      options.model.mask.num_walks = 20000;
      options.model.mask.max_hops = 3;
      options.model.mask.p_halt = 0.3;
      options.model.mask.key_f = key_f;
      ImageClassification task(data, options);
      for (const NamedParameter& parameter : task.parameters()) {
        if (parameter.kind != ParameterKind::mask) continue;
        at::Tensor f = parameter.tensor.detach();
        f.mul_(at::linspace(1, 0.4, f.size(-1)));
        if (key_f) f.select(1, 1).mul_(at::linspace(1, 0.7, f.size(-1)));
      }
      for (const MaskSnapshot& mask : task.masks())
        EXPECT_LT(((mask.used - mask.exact).norm() / mask.exact.norm()).item<double>(), 0.03) << mask.layer;
    }
  }
  // Nothing is sampled here.
  EXPECT_FALSE(
      ImageClassification(data, small_task(data, AttentionVariant::power_series)).masks()[0].exact.defined());
}

// Motion is learned; without the order of its frames, a clip says nothing.
TEST_F(ImageTraining, LearnsMotionFromTheOrderOfFramesAlone) {
  const ImageData data = open_image_data("motion:16,surplus=6,noise=0,train=1024,val=512");
  for (const FrameOrder order : {FrameOrder::given, FrameOrder::shuffled, FrameOrder::single}) {
    ImageTaskOptions options;
    options.model.encoder = Encoder::factorised;
    options.model = fit_to_data(vit_preset("tiny", options.model), data);
    options.model.embedding = 32;
    options.model.mlp = 64;
    options.model.attention = AttentionVariant::softmax_grf;
    options.batch_size = 16;
    options.frame_order = order;
    const Folder folder;
    ImageClassification task(data, options);
    const TrainResult result = Trainer(task, quick(3), folder.path.string(), {}).run();
    if (order == FrameOrder::given) {
      EXPECT_GT(result.last.accuracy, 0.95);
    } else {
      EXPECT_NEAR(result.last.accuracy, 0.5, 4 * std::sqrt(0.25 / 512)) << word_of(order);
    }
  }
}

TEST_F(ImageTraining, ShowsTheMasksOfPatchesAndMoments) {
  const ImageData data = open_image_data("motion:16,frames=4,train=16,val=4");
  ImageTaskOptions options;
  options.model.encoder = Encoder::factorised;
  options.model = fit_to_data(vit_preset("tiny", options.model), data);
  options.model.temporal_attention = AttentionVariant::softmax_grf;
  options.model.mask.num_walks = 20000;
  options.model.mask.max_hops = 3;
  for (const AttentionVariant variant : {AttentionVariant::grf, AttentionVariant::softmax}) {
    options.model.attention = variant;
    const std::vector<MaskSnapshot> masks = ImageClassification(data, options).masks();
    ASSERT_EQ(masks.size(), variant == AttentionVariant::grf ? 3u : 1u);
    EXPECT_EQ(masks.back().layer, 2);
    EXPECT_EQ(masks.back().grid, (std::vector<std::int64_t>{2}));
    for (const MaskSnapshot& mask : masks)  // so many walks are nearly exact
      EXPECT_LT(((mask.used - mask.exact).norm() / mask.exact.norm()).item<double>(), 0.03) << mask.layer;
  }
}

TEST_F(ImageTraining, ShowsPredictions) {
  const ImageData data = open_image_data("strokes:16,train=32,val=8");
  ImageClassification task(data, small_task(data, AttentionVariant::linear));
  const Predictions examples = task.predict_examples(5);
  EXPECT_EQ(examples.images.sizes(), (std::vector<std::int64_t>{5, data.channels, data.height, data.width}));
  EXPECT_EQ(examples.labels.size(0), 5);
  EXPECT_TRUE(at::allclose(examples.probabilities.sum(1), at::ones({5})));
}

}  // namespace
}  // namespace topomask
