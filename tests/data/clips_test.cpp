// Sets of clips, their batches and augmentation, and the controls that take away the order of frames.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

#include "data/io/video.h"
#include "data/records.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "topomask/augment.h"
#include "topomask/data.h"
#ifdef TOPOMASK_FFMPEG
#include "data/encoded_video.h"
#endif

namespace topomask::testing {
namespace {

TEST(Clips, GeneratedSetsHoldFrames) {
  const ImageData data = open_image_data("motion:16,frames=6,train=10,val=4,seed=3");
  EXPECT_EQ(data.frames, 6);
  EXPECT_EQ(data.train.images.sizes(), (at::IntArrayRef{10, 6, 1, 16, 16}));
  EXPECT_EQ(data.class_names, (std::vector<std::string>{"clockwise", "counter-clockwise"}));
  EXPECT_EQ(data.train.labels.sum().item<int>(), 5);
  const at::Tensor pixels = data.train.images.to(at::kDouble) / 255;
  EXPECT_NEAR(data.mean[0], pixels.mean().item<double>(), 1e-9);
  EXPECT_NEAR(data.stddev[0], pixels.std(false).item<double>(), 1e-9);
  EXPECT_EQ(open_image_data("strokes:16,train=4,val=4").frames, 1);
  expect_error([] { open_image_data("motion:16,frames=1"); }, {"frames from 2 to 256"});
  expect_error([] { open_image_data("motion:16,cell=10"); }, {"two cells of 10"});
}

TEST(Clips, FingerprintsTellClipsApart) {
  const auto images = [](const char* spec) { return fingerprint(open_image_data(spec)).train_images; };
  EXPECT_EQ(images("motion:12,frames=4,train=4,val=2"), images("motion:12,frames=4,train=4,val=2"));
  EXPECT_NE(images("motion:12,frames=4,train=4,val=2"), images("motion:12,frames=4,train=4,val=2,seed=1"));
}

// --- moving digits ---------------------------------------------------------------------------------------

TEST(Clips, DigitsDriftRoundTheFrame) {
  const TemporaryFolder folder;
  folder.write("train-images-idx3-ubyte", idx_images(20, 8));
  folder.write("train-labels-idx1-ubyte", idx_labels(20, 3));
  const std::string spec = "moving-digits:" + folder.path().string();
  const ImageData both = open_image_data(spec + ",size=16,frames=5,train=40,val=8");
  EXPECT_EQ(both.train.images.sizes(), (at::IntArrayRef{40, 5, 1, 16, 16}));
  EXPECT_EQ(both.num_classes(), 12);
  EXPECT_EQ(both.class_names[5], "1 left");
  const ImageData motion = open_image_data(spec + ",size=16,frames=5,labels=motion,train=40,val=8");
  EXPECT_EQ(motion.class_names, (std::vector<std::string>{"right", "left", "down", "up"}));
  EXPECT_TRUE(motion.train.images.equal(both.train.images));
  EXPECT_TRUE(motion.train.labels.equal(both.train.labels.remainder(4)));
  const ImageData digit = open_image_data(spec + ",size=16,frames=5,labels=digit,train=40,val=8");
  EXPECT_TRUE(digit.train.labels.equal(both.train.labels.floor_divide(4)));
  for (std::int64_t i = 0; i < 40; ++i) {
    const auto drift = motion.train.labels[i].item<std::int64_t>();
    const std::int64_t step = drift % 2 == 0 ? 2 : -2, dimension = drift < 2 ? 2 : 1;  // of [C, H, W]
    for (std::int64_t t = 0; t + 1 < 5; ++t)
      EXPECT_TRUE(motion.train.images[i][t + 1].equal(motion.train.images[i][t].roll(step, dimension)));
  }
  expect_error([&] { open_image_data(spec + ",size=10,labels=speed"); }, {"labels=both, digit or motion"});
  expect_error([&] { open_image_data(spec + ",size=8,frames=1"); }, {"frames from 2"});
}

// --- frames in another order -----------------------------------------------------------------------------

Batch some_clips() {
  const at::Tensor images = at::arange(3 * 5 * 4).view({3, 5, 1, 2, 2}).to(at::kByte);
  return {images, at::zeros({3}, at::kLong), at::tensor({7, 2, 9}, at::kLong), 1, 0};
}

TEST(FrameOrder, IsGivenShuffledOrOneFrame) {
  const Batch batch = some_clips();
  EXPECT_TRUE(reorder_frames(batch, FrameOrder::given, 1).equal(batch.images));
  const at::Tensor shuffled = reorder_frames(batch, FrameOrder::shuffled, 1);
  EXPECT_FALSE(shuffled.equal(batch.images));
  EXPECT_TRUE(
      std::get<0>(shuffled.flatten(2).select(2, 0).sort(1)).equal(batch.images.flatten(2).select(2, 0)));
  const at::Tensor single = reorder_frames(batch, FrameOrder::single, 1);
  for (std::int64_t i = 0; i < 3; ++i) {
    int found = 0;
    for (std::int64_t t = 0; t < 5; ++t) {
      EXPECT_TRUE(single[i][t].equal(single[i][0]));
      found += single[i][0].equal(batch.images[i][t]);
    }
    EXPECT_EQ(found, 1);
  }
  Batch images = some_clips();
  images.images = images.images.select(1, 0);
  expect_error([&] { reorder_frames(images, FrameOrder::single, 1); }, {"[B, T, C, H, W]"});
}

TEST(FrameOrder, DependsOnSeedEpochAndClipAlone) {
  Batch batch = some_clips();
  const at::Tensor first = reorder_frames(batch, FrameOrder::shuffled, 1);
  EXPECT_TRUE(first.equal(reorder_frames(batch, FrameOrder::shuffled, 1)));
  EXPECT_FALSE(first.equal(reorder_frames(batch, FrameOrder::shuffled, 2)));
  batch.epoch = 2;
  EXPECT_FALSE(first.equal(reorder_frames(batch, FrameOrder::shuffled, 1)));
  batch.epoch = 1;
  batch.images = batch.images.narrow(0, 1, 1);
  batch.indices = batch.indices.narrow(0, 1, 1);
  EXPECT_TRUE(first.narrow(0, 1, 1).equal(reorder_frames(batch, FrameOrder::shuffled, 1)));
}

// Every frame comes to every place equally often: chi-squared with 16 degrees of freedom, 1 in 10^4 above 45.
TEST(FrameOrder, ShufflesUniformly) {
  constexpr std::int64_t kClips = 2000;
  Batch batch{at::arange(5).view({1, 5, 1, 1, 1}).expand({kClips, 5, 1, 1, 1}).to(at::kByte).contiguous(),
              at::zeros({kClips}, at::kLong), at::arange(kClips, at::kLong), 0, 0};
  const at::Tensor shuffled = reorder_frames(batch, FrameOrder::shuffled, 4).view({kClips, 5});
  double chi_squared = 0;
  for (int frame = 0; frame < 5; ++frame) {
    const at::Tensor count = (shuffled == frame).sum(0).to(at::kDouble);
    chi_squared += ((count - kClips / 5.0).square() / (kClips / 5.0)).sum().item<double>();
  }
  EXPECT_LT(chi_squared, 45);
}

// --- augmentation ----------------------------------------------------------------------------------------

// A clip is augmented as an image is, and all its frames alike.
TEST(Clips, FramesAreAugmentedAlike) {
  ImageData clips = open_image_data("motion:16,frames=3,train=8,val=2");
  clips.mirror_changes_class = false;  // the pixels count here, not the classes
  ImageData frames = clips;
  frames.frames = frames.train.frames = 1;
  AugmentOptions options;
  options.min_crop_area = 0.5;
  options.pad = 2;
  options.flip = true;
  options.cutout = 4;
  options.mixup = 0.3;
  options.label_smoothing = 0.1;
  const Augmenter of_clips(clips, options, 5), of_images(frames, options, 5);
  Batch batch{clips.train.images, clips.train.labels, at::arange(8, at::kLong), 2, 3};
  const AugmentedBatch got = of_clips.augment(batch);
  EXPECT_EQ(got.images.sizes(), clips.train.images.sizes());
  EXPECT_FALSE(at::allclose(got.images, of_clips.normalise(batch.images)));
  for (std::int64_t t = 0; t < 3; ++t) {
    Batch one = batch;
    one.images = clips.train.images.select(1, t);
    const AugmentedBatch expected = of_images.augment(one);
    EXPECT_TRUE(got.images.select(1, t).equal(expected.images)) << t;
    EXPECT_TRUE(got.targets.equal(expected.targets));
  }
  options.rand_augment_ops = 1;
  expect_error([&] { Augmenter(clips, options, 5); }, {"RandAugment is for single images"});
}

TEST(Clips, AreNotFlippedWhereThatChangesTheirClass) {
  const TemporaryFolder folder;
  folder.write("train-images-idx3-ubyte", idx_images(20, 8));
  folder.write("train-labels-idx1-ubyte", idx_labels(20, 3));
  const std::string digits = "moving-digits:" + folder.path().string() + ",size=16,train=4,val=4,labels=";
  AugmentOptions options;
  options.flip = true;
  for (const std::string& spec : {std::string("motion:16,train=4,val=4"), digits + "both", digits + "motion"})
    expect_error([&] { Augmenter(open_image_data(spec), options, 0); },
                 {"flip must be off for", spec.c_str(), "a mirrored clip belongs to another class"});
  EXPECT_NO_THROW(Augmenter(open_image_data(digits + "digit"), options, 0));
  EXPECT_NO_THROW(Augmenter(open_image_data("strokes:16,train=4,val=4"), options, 0));
}

// --- folders of videos -----------------------------------------------------------------------------------

#ifdef TOPOMASK_FFMPEG
class VideoFolder : public ::testing::Test {
 protected:
  void add(const std::string& name, int level) const {
    std::filesystem::create_directories((folder.path() / name).parent_path());
    write_video(folder / name, {.width = 32, .height = 32, .frames = 12}, [level](int) { return level; });
  }
  void make() const {
    for (const char* part : {"train", "val"}) {
      for (int i = 0; i < 3; ++i) {
        add(std::string(part) + "/bright/" + std::to_string(i) + ".mp4", 200);
        add(std::string(part) + "/dark/" + std::to_string(i) + ".mp4", 40);
      }
    }
  }
  std::string spec(const std::string& options) const {
    return "video-folder:" + folder.path().string() + options;
  }
  TemporaryFolder folder;
};

TEST_F(VideoFolder, StreamsClipsInThreads) {
  make();
  ImageDataOptions with_workers;
  with_workers.workers = 2;
  const ImageData data = open_image_data(spec(",frames=4,stride=2,size=16"), with_workers);
  EXPECT_EQ(data.frames, 4);
  EXPECT_FALSE(data.train.resident());
  EXPECT_EQ(data.class_names, (std::vector<std::string>{"bright", "dark"}));
  LoaderOptions options;
  options.batch_size = 4;
  options.workers = 2;
  options.mode = LoaderMode::evaluation;
  BatchLoader loader(data.validation, options);
  std::int64_t seen = 0;
  while (const auto batch = loader.next()) {
    EXPECT_EQ(batch->images.sizes(), (std::vector<std::int64_t>{batch->labels.size(0), 4, 3, 16, 16}));
    for (std::int64_t i = 0; i < batch->labels.size(0); ++i, ++seen) {
      const double level = batch->images[i].slice(2, 8).to(at::kDouble).mean().item<double>();
      EXPECT_EQ(batch->labels[i].item<int>(), level > 128 ? 0 : 1);
    }
  }
  EXPECT_EQ(seen, 6);
  // Crops and beginnings are a function of seed and epoch, whoever decodes.
  options.mode = LoaderMode::training;
  options.batch_size = 6;
  const auto first_batch = [&](int workers, std::int64_t epoch) {
    options.workers = workers;
    BatchLoader training(data.train, options);
    training.start_epoch(epoch);
    return training.next()->images;
  };
  EXPECT_TRUE(first_batch(1, 0).equal(first_batch(3, 0)));
  EXPECT_FALSE(first_batch(1, 0).equal(first_batch(1, 1)));
}

TEST_F(VideoFolder, SkipsBadFilesIfAsked) {
  make();
  folder.write("train/dark/0.mp4", "not a video");
  expect_error([&] { open_image_data(spec(",frames=4,size=16")); }, {"0.mp4", "no MP4"});
  ImageDataOptions skipping;
  skipping.skip_bad = true;
  const ImageData data = open_image_data(spec(",frames=4,size=16"), skipping);
  LoaderOptions options;
  options.batch_size = 6;
  expect_error([&] { BatchLoader(data.train, options).next(); }, {"0.mp4"});
  options.skip_bad = true;
  BatchLoader loader(data.train, options);
  EXPECT_EQ(loader.next()->labels.size(0), 5);
  EXPECT_EQ(loader.skipped(), 1);
}

TEST_F(VideoFolder, SaysWhatIsMissing) {
  expect_error([&] { open_image_data(spec("")); }, {"there is no folder", "train", "*.mp4"});
  std::filesystem::create_directories(folder.path() / "train/empty");
  expect_error([&] { open_image_data(spec("")); }, {"empty", "holds no video"});
  expect_error([&] { open_image_data(spec(",frames=1")); }, {"frames from 2"});
  make();
  add("val/grey/1.mp4", 100);
  std::filesystem::remove_all(folder.path() / "train/empty");
  expect_error([&] { open_image_data(spec(",frames=2,size=8")); },
               {"'grey'", "classes of the training videos"});
}
#endif

}  // namespace
}  // namespace topomask::testing
