// Models that start from the weights of another run.
#include "train/initialise_from.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "data/records.h"
#include "masks/gradcheck.h"
#include "support/expect_error.h"
#include "support/gradients.h"
#include "support/temporary_folder.h"
#include "support/tiny_run.h"
#include "topomask/models.h"
#include "topomask/safetensors.h"
#include "train/module_parameters.h"

namespace topomask::testing {
namespace {

namespace fs = std::filesystem;

class FineTuning : public ::testing::Test {
 protected:
  oracle::OneThread one_thread;
  TemporaryFolder folder;

  static VitSettings tiny_settings(SettingValues changes = {},
                                   const std::string& data = "strokes:16,train=48,val=16") {
    changes.insert(changes.begin(),
                   {{"data", data}, {"epochs", "1"}, {"patch", "4"}, {"learning-rate", "0.05"}});
    return tiny_run(changes);
  }

  std::string pretrained(SettingValues changes = {}) const {
    RunFolder run(folder / "first", RunStart::fresh);
    train_vit(run, tiny_settings(std::move(changes)));
    return folder / "first/last.safetensors";
  }

  // A fresh model for these settings, started from the checkpoint.
  std::map<std::string, at::Tensor> started(const VitSettings& settings,
                                            const std::string& checkpoint) const {
    const ImageData data = settings.open_data();
    const ImageTaskOptions options = settings.task_options(data);
    ImageClassification task(data, options);
    initialise_from(checkpoint, options.model, data.class_names, task.parameters());
    std::map<std::string, at::Tensor> weights;
    for (const NamedParameter& parameter : task.parameters())
      weights[parameter.name] = parameter.tensor.detach();
    return weights;
  }
};

TEST_F(FineTuning, StartsWhereTheCheckpointEnded) {
  const std::string checkpoint = pretrained();
  const Evaluation expected = evaluate_vit(checkpoint).result;
  // Steps too small to change a float: the run evaluates what it began with.
  const VitSettings settings = tiny_settings(
      {{"initialise-from", checkpoint}, {"learning-rate", "1e-30"}, {"final-learning-rate", "1e-31"}});
  RunFolder run(folder / "second", RunStart::fresh);
  const TrainResult result = train_vit(run, settings).training;
  EXPECT_EQ(result.last.accuracy, expected.accuracy);
  EXPECT_EQ(result.last.loss, expected.loss);
  const auto before = read_safetensors(checkpoint).tensors,
             after = read_safetensors(folder / "second/last.safetensors").tensors;
  for (const auto& item : read_vit_checkpoint(checkpoint).weights)
    EXPECT_TRUE(before.at(item.first).equal(after.at(item.first))) << item.first;
}

TEST_F(FineTuning, ResumesWithoutStartingAnew) {
  const std::string checkpoint = pretrained();
  const VitSettings settings =
      tiny_settings({{"initialise-from", checkpoint}, {"seed", "4"}, {"epochs", "2"}, {"ema", "0.9"}});
  {
    RunFolder whole(folder / "whole", RunStart::fresh);
    train_vit(whole, settings);
    RunFolder cut(folder / "cut", RunStart::fresh);
    TrainCallbacks callbacks;
    int steps = 0;
    callbacks.should_stop = [&] { return ++steps >= 3; };
    EXPECT_EQ(train_vit(cut, settings, callbacks).training.outcome, TrainOutcome::stopped);
  }
  fs::remove(checkpoint);  // it is not needed any more
  RunFolder again(folder / "cut", RunStart::resume);
  train_vit(again, *again.settings());
  const SafetensorsFile one = read_safetensors(folder / "whole/last.safetensors"),
                        other = read_safetensors(folder / "cut/last.safetensors");
  for (const auto& [name, tensor] : one.tensors) EXPECT_TRUE(tensor.equal(other.tensors.at(name))) << name;
  RunFolder late(folder / "late", RunStart::fresh);
  expect_error([&] { train_vit(late, settings); }, "cannot open");
}

TEST_F(FineTuning, InterpolatesPositionsAsTorchDoes) {
  const auto check_grids = [](const std::vector<std::int64_t>& from, const std::vector<std::int64_t>& to,
                              std::int64_t first) {
    std::int64_t tokens = 1;
    std::vector<std::int64_t> shape = {1, 5};
    for (const std::int64_t extent : from) tokens *= extent, shape.push_back(extent);
    const at::Tensor positions = oracle::test_values({1, first + tokens, 5});
    const at::Tensor image = positions.slice(1, first).transpose(1, 2).reshape(shape);
    const at::Tensor expected = from.size() == 1   ? at::upsample_linear1d(image, to, false)
                                : from.size() == 2 ? at::upsample_bilinear2d(image, to, false)
                                                   : at::upsample_trilinear3d(image, to, false);
    const at::Tensor got = interpolate_positions(positions, first, from, to);
    EXPECT_LE(oracle::max_difference(got.slice(1, first), expected.flatten(2).transpose(1, 2)), 1e-14);
    EXPECT_TRUE(at::equal(got.slice(1, 0, first), positions.slice(1, 0, first)));
  };
  for (const std::int64_t first : {0, 1}) {
    check_grids({4, 4}, {6, 7}, first);
    check_grids({8, 3}, {3, 8}, first);
    check_grids({1, 5}, {4, 1}, first);
    check_grids({6}, {4}, first);
    check_grids({2, 4, 4}, {5, 2, 6}, first);
  }
}

TEST_F(FineTuning, RefusesPositionsOfAnotherGrid) {
  const at::Tensor positions = oracle::test_values({1, 1 + 8, 5});
  expect_error(
      [&] {
        interpolate_positions(positions, 1, {3, 3}, {4, 4});
      },
      "positions: expected [1, 1 + 9, C] for a grid of 3x3, got [1, 9, 5]");
  expect_error([&] { interpolate_positions(positions[0], 1, {2, 4}, {4, 4}); }, "got [9, 5]");
  expect_error(
      [&] {
        interpolate_positions(positions, 1, {2, 4}, {2, 2, 4});
      },
      "a grid of 2x4 cannot be interpolated to one of 2x2x4");
  expect_error([&] { interpolate_positions(positions, 1, {2, 4}, {4, 0}); }, "to one of 4x0");
}

// 16 patches in 4 rows and in 2: learned features of the one mean nothing on the other.
TEST_F(FineTuning, AsManyPatchesInAnotherShapeAreAnotherGrid) {
  const SettingValues features = {{"attention", "learned-features"}};
  const std::string checkpoint = pretrained(features);
  const auto known = read_vit_checkpoint(checkpoint).weights;
  const ImageData data = tiny_settings(features).open_data();
  const auto start = [&](std::int64_t height, std::int64_t width) {
    VitOptions model = tiny_settings(features).task_options(data).model;
    model.height = height;
    model.width = width;
    VisionTransformer fresh(model), tuned(model);
    initialise_from(checkpoint, model, data.class_names, module_parameters(tuned));
    const std::string mask = "blocks.0.attention.mask.features";
    const at::Tensor got = tuned->named_parameters()[mask];
    EXPECT_EQ(got.equal(known.at(mask)), height == 16);
    EXPECT_EQ(got.equal(fresh->named_parameters()[mask]), height != 16);
    return tuned->named_parameters()["position_embedding"].detach();
  };
  EXPECT_TRUE(start(16, 16).equal(known.at("position_embedding")));
  const at::Tensor old = known.at("position_embedding").transpose(1, 2).reshape({1, 8, 4, 4});
  const at::Tensor expected =
      at::upsample_bilinear2d(old.to(at::kDouble), {2, 8}, false).flatten(2).transpose(1, 2);
  EXPECT_LE(oracle::max_difference(start(8, 32), expected), 1e-7);
}

TEST_F(FineTuning, FitsAnotherGridOtherClassesAndOtherWalks) {
  const std::string checkpoint = pretrained({{"pooling", "cls"}});
  const auto known = read_vit_checkpoint(checkpoint).weights;
  fs::create_directories(folder / "digits");
  folder.write("digits/train-images-idx3-ubyte", idx_images(60, 24));
  folder.write("digits/train-labels-idx1-ubyte", idx_labels(60, 5));
  const VitSettings settings =
      tiny_settings({{"pooling", "cls"}, {"max-hops", "5"}, {"walks", "7"}, {"initial-weights", "fan-in"}},
                    "idx:" + (folder / "digits"));
  const auto got = started(settings, checkpoint);
  const at::Tensor grid = known.at("position_embedding").slice(1, 1).transpose(1, 2).reshape({1, 8, 4, 4});
  const at::Tensor expected =
      at::upsample_bilinear2d(grid.to(at::kDouble), {6, 6}, false).flatten(2).transpose(1, 2);
  EXPECT_LE(oracle::max_difference(got.at("position_embedding").slice(1, 1), expected), 1e-7);
  EXPECT_TRUE(got.at("position_embedding").select(1, 0).equal(known.at("position_embedding").select(1, 0)));
  for (const char* name :
       {"cls_token", "blocks.1.attention.qkv.weight", "norm.bias", "patch_embedding.projection.weight"})
    EXPECT_TRUE(got.at(name).equal(known.at(name))) << name;
  const at::Tensor f = got.at("blocks.0.attention.mask.f"), old = known.at("blocks.0.attention.mask.f");
  EXPECT_TRUE(f.slice(1, 0, 4).equal(old));
  EXPECT_EQ(f.slice(1, 4).abs().max().item<double>(), 0);
  // The head is that of a fresh model.
  const ImageData data = settings.open_data();
  ImageClassification fresh(data, settings.task_options(data));
  for (const NamedParameter& parameter : fresh.parameters()) {
    if (!parameter.name.starts_with("head.")) continue;
    EXPECT_TRUE(got.at(parameter.name).equal(parameter.tensor)) << parameter.name;
  }
  // Fewer hops are fewer numbers.
  VitSettings shorter = settings;
  shorter.model.mask.max_hops = 1;
  EXPECT_TRUE(started(shorter, checkpoint).at("blocks.0.attention.mask.f").equal(old.slice(1, 0, 2)));
  // The keys' f starts as the queries'.
  shorter.model.mask.key_f = true;
  const at::Tensor both = started(shorter, checkpoint).at("blocks.0.attention.mask.f");
  EXPECT_TRUE(both.select(1, 0).equal(old.slice(1, 0, 2)) && both.select(1, 1).equal(old.slice(1, 0, 2)));
  // A mask of another kind starts as itself.
  shorter.model.mask = {};
  shorter.model.attention = AttentionVariant::grf_asymmetric;
  EXPECT_EQ(started(shorter, checkpoint).at("blocks.0.attention.mask.f")[0][0].item<double>(), 1);
}

TEST_F(FineTuning, ToeplitzOffsetsKeepTheirDisplacement) {
  const std::string checkpoint = pretrained({{"attention", "toeplitz"}});
  const at::Tensor old =
      read_vit_checkpoint(checkpoint).weights.at("blocks.0.attention.mask.offsets").view({2, 7, 7});
  const at::Tensor wide =
      started(tiny_settings({{"attention", "toeplitz"}}, "strokes:24,train=48,val=16"), checkpoint)
          .at("blocks.0.attention.mask.offsets")
          .view({2, 11, 11});
  EXPECT_TRUE(wide.slice(1, 2, 9).slice(2, 2, 9).equal(old));
  EXPECT_TRUE(wide.select(1, 0).slice(1, 2, 9).equal(old.select(1, 0)));
  const at::Tensor narrow =
      started(tiny_settings({{"attention", "toeplitz"}}, "strokes:8,train=48,val=16"), checkpoint)
          .at("blocks.0.attention.mask.offsets")
          .view({2, 3, 3});
  EXPECT_TRUE(narrow.equal(old.slice(1, 2, 5).slice(2, 2, 5)));
}

TEST_F(FineTuning, WorksForClips) {
  const SettingValues values = {{"data", "motion:16,train=24,val=8,frames=4"},
                                {"layers", "1"},
                                {"embedding", "8"},
                                {"mlp", "8"},
                                {"batch", "8"},
                                {"epochs", "1"},
                                {"walks", "3"},
                                {"max-hops", "2"},
                                {"warmup-epochs", "0"}};
  {
    RunFolder run(folder / "clips", RunStart::fresh);
    train_vit(run, VitSettings::from(values, "", VitSettings::video()));
  }
  SettingValues longer = values;
  longer[0].second = "motion:24,train=24,val=8,frames=6";
  const std::string checkpoint = folder / "clips/last.safetensors";
  const auto got = started(VitSettings::from(longer, "", VitSettings::video()), checkpoint);
  const auto known = read_vit_checkpoint(checkpoint).weights;
  for (const auto& [name, size, grid] :
       {std::tuple{"position_embedding", 36, std::vector<std::int64_t>{4, 4}}}) {
    EXPECT_EQ(got.at(name).size(1), 1 + size);
    const at::Tensor old =
        known.at(name).slice(1, 1).transpose(1, 2).reshape({1, 8, grid[0], grid[1]}).to(at::kDouble);
    EXPECT_LE(oracle::max_difference(got.at(name).slice(1, 1),
                                     at::upsample_bilinear2d(old, {6, 6}, false).flatten(2).transpose(1, 2)),
              1e-7);
  }
  const at::Tensor moments =
      known.at("temporal.position_embedding").slice(1, 1).transpose(1, 2).to(at::kDouble);
  EXPECT_LE(oracle::max_difference(got.at("temporal.position_embedding").slice(1, 1),
                                   at::upsample_linear1d(moments, {3}, false).transpose(1, 2)),
            1e-7);
  expect_error([&] { started(tiny_settings(), checkpoint); },
               "the encoder is factorised there and image here");
}

TEST_F(FineTuning, RefusesWeightsThatAreNotFinite) {
  const std::string checkpoint = pretrained();
  SafetensorsFile file = read_safetensors(checkpoint);
  file.tensors.at("norm.weight")[3].fill_(std::numeric_limits<double>::quiet_NaN());
  write_safetensors(checkpoint, file);
  expect_error([&] { started(tiny_settings(), checkpoint); },
               {"tensor 'norm.weight' holds a NaN or an infinity, its run has diverged"});
}

TEST_F(FineTuning, SaysWhatDoesNotFit) {
  const std::string checkpoint = pretrained({{"key-f", "true"}});
  const auto start = [&](SettingValues changes) {
    return [this, checkpoint, changes] { started(tiny_settings(changes), checkpoint); };
  };
  expect_error(start({{"embedding", "16"}}),
               {"embedding is 8 there and 16 here", "only images, classes and masks may differ"});
  expect_error(start({{"layers", "3"}}), "layers is 2 there and 3 here");
  expect_error(start({{"patch", "2"}}), "patch is 4 there and 2 here");
  expect_error(start({{"pooling", "cls"}}), "pooling is mean there and cls here");
  expect_error(start({}), "its keys have an f of their own; expected --key-f here");
  folder.write("no.safetensors", "nonsense");
  RunFolder run(folder / "second", RunStart::fresh);
  expect_error(
      [&] {
        train_vit(run, tiny_settings({{"initialise-from", folder / "no.safetensors"}}));
      },
      "no.safetensors");
}

}  // namespace
}  // namespace topomask::testing
