// Runs on clips: their settings, resuming to the same bits, checkpoints, the variants of the video table.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "support/expect_error.h"
#include "support/gradients.h"
#include "support/temporary_folder.h"
#include "support/tiny_run.h"
#include "topomask/image_table.h"
#include "topomask/models.h"
#include "topomask/safetensors.h"

namespace topomask::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ClipRuns : public ::testing::Test {
 protected:
  oracle::OneThread one_thread;
  TemporaryFolder folder;
};

VitSettings tiny_clips(SettingValues more = {}) {
  const bool joint = std::find(more.begin(), more.end(),
                               std::pair<std::string, std::string>("encoder", "joint")) != more.end();
  if (!joint) more.insert(more.begin(), {"temporal-attention", "grf"});
  return tiny_run(more, VitSettings::video());
}

TEST_F(ClipRuns, SettingsSurviveTheirFile) {
  const VitSettings settings =
      tiny_clips({{"encoder", "joint"}, {"tubelet", "4"}, {"frame-order", "shuffled"}});
  const std::string path = folder.write("config.toml", settings.to_toml());
  const VitSettings again = VitSettings::from({}, path);
  EXPECT_EQ(again.to_toml(), settings.to_toml());
  EXPECT_EQ(difference(again, settings), "");
  EXPECT_EQ(again.model.encoder, Encoder::joint);
  EXPECT_EQ(again.frame_order, FrameOrder::shuffled);
  EXPECT_EQ(VitSettings::from_toml_text(settings.to_toml(), "text").to_toml(), settings.to_toml());
  EXPECT_THAT(settings.to_toml(), HasSubstr("\n[video]\n"));
  EXPECT_THAT(VitSettings().to_toml(), Not(HasSubstr("[video]")));  // images have no use for it
  // Presets of clips are others than those of images.
  const VitSettings paper = VitSettings::from({{"preset", "b16x2"}}, "", VitSettings::video());
  EXPECT_EQ(paper.model.layers, 12);
  EXPECT_EQ(paper.model.temporal_layers, 4);
  expect_error([] { VitSettings::from({{"preset", "b16x2"}}); }, {"'b16x2', expected tiny, small, b16"});
  EXPECT_EQ(settings.default_folder(), "runs/vivit-grf-seed-0");
}

TEST_F(ClipRuns, AJointEncoderHasNoBlocksOverTime) {
  for (const char* key : {"temporal-layers", "temporal-attention"}) {
    const std::string value = key == std::string("temporal-layers") ? "2" : "grf";
    expect_error(
        [&] {
          tiny_clips({{"encoder", "joint"}, {key, value}});
        },
        {key, "is for the factorised encoder; the joint encoder has no blocks over time steps"});
    expect_error(
        [&] { image_table_settings(VitSettings::video(), fmt::format("joint-grf@{}={}", key, value), 0); },
        {key, "is for the factorised encoder"});
    EXPECT_NO_THROW(tiny_clips({{"encoder", "factorised"}, {key, value}}));
  }
}

TEST_F(ClipRuns, ResumeToTheSameBits) {
  for (const char* encoder : {"factorised", "joint"}) {
    const VitSettings settings =
        tiny_clips({{"encoder", encoder}, {"dropout", "0.1"}, {"mixup", "0.2"}, {"pad", "1"}});
    const std::string straight_path = folder / (std::string("straight-") + encoder),
                      stopped_path = folder / (std::string("stopped-") + encoder);
    {
      RunFolder straight(straight_path, RunStart::fresh);
      EXPECT_EQ(train_vit(straight, settings).training.step, 6);
    }
    {
      RunFolder stopped(stopped_path, RunStart::fresh);
      TrainCallbacks callbacks;
      int steps = 0;
      callbacks.should_stop = [&steps] { return ++steps >= 2; };
      EXPECT_EQ(train_vit(stopped, settings, callbacks).training.outcome, TrainOutcome::stopped);
    }
    RunFolder resumed(stopped_path, RunStart::resume);
    EXPECT_EQ(train_vit(resumed, settings).training.outcome, TrainOutcome::finished);
    for (const char* name : {"/last.safetensors", "/best.safetensors", "/masks.safetensors"}) {
      const SafetensorsFile a = read_safetensors(straight_path + name),
                            b = read_safetensors(stopped_path + name);
      ASSERT_EQ(a.tensors.size(), b.tensors.size());
      for (const auto& [key, tensor] : a.tensors) EXPECT_TRUE(tensor.equal(b.tensors.at(key))) << name << key;
    }
  }
}

TEST_F(ClipRuns, LeaveAModelAndWhatAReportNeeds) {
  RunFolder run(folder / "run", RunStart::fresh);
  const VitSettings settings = tiny_clips();
  const VitRunResult result = train_vit(run, settings);
  const auto json = nlohmann::json::parse(result.json);
  EXPECT_EQ(json["frames"], 4);
  EXPECT_EQ(json["encoder"], "factorised");
  EXPECT_EQ(json["f_layers"], (std::vector<int>{0, 1, 2}));  // two over patches, one over moments
  EXPECT_EQ(json["f"].size(), 3u);
  const SafetensorsFile masks = read_safetensors(run.file(kMasksFile));
  EXPECT_EQ(masks.tensors.at("layer.1.used").sizes(), (std::vector<std::int64_t>{2, 9, 9}));
  EXPECT_EQ(masks.tensors.at("layer.2.used").sizes(), (std::vector<std::int64_t>{2, 2, 2}));
  EXPECT_EQ(masks.metadata.at("layer.0.grid"), "[3,3]");
  EXPECT_EQ(masks.metadata.at("layer.2.grid"), "[2]");

  VisionTransformer model = load_vit(run.file(kLastCheckpoint));
  const auto examples = read_safetensors(run.file(kExamplesFile)).tensors;
  const at::NoGradGuard no_grad;
  EXPECT_EQ(examples.at("images").dim(), 5);
  EXPECT_TRUE(at::softmax(model->forward(model->normalise(examples.at("images"))), -1)
                  .equal(examples.at("probabilities")));
  const VitEvaluation evaluation = evaluate_vit(run.file(kLastCheckpoint));
  EXPECT_EQ(evaluation.result.accuracy, result.training.last.accuracy);
  EXPECT_EQ(evaluation.result.loss, result.training.last.loss);
  expect_error([&] { evaluate_vit(run.file(kLastCheckpoint), {.data = "motion:12,frames=8,train=8,val=8"}); },
               {"clips of 4 frames", "clips of 8 frames"});
  expect_error([&] { evaluate_vit(run.file(kLastCheckpoint), {.data = "strokes:12,train=8,val=8"}); },
               {"holds single images"});
  const VitOptions options = read_vit_checkpoint(run.file(kLastCheckpoint)).model;
  const VitOptions again = vit_options_from_json(vit_settings_json(options));
  EXPECT_EQ(again.encoder, options.encoder);
  EXPECT_EQ(again.frames, options.frames);
  EXPECT_EQ(again.tubelet, options.tubelet);
  EXPECT_EQ(again.temporal_layers, options.temporal_layers);
  EXPECT_EQ(again.temporal_attention, options.temporal_attention);
}

TEST_F(ClipRuns, ImagesAndClipsDoNotMix) {
  RunFolder run(folder / "run", RunStart::fresh);
  expect_error(
      [&] {
        train_vit(run, tiny_clips({{"data", "strokes:12,train=8,val=8"}}));
      },
      {"holds single images", "topomask train vit'"});
  expect_error(
      [&] {
        train_vit(run, VitSettings::from({{"data", "motion:12,train=8,val=8"}}));
      },
      {"holds clips", "topomask train vivit'"});
  expect_error(
      [&] {
        train_vit(run, tiny_clips({{"rand-augment", "2"}}));
      },
      {"RandAugment is for single images"});
}

TEST_F(ClipRuns, VariantsOfTheVideoTable) {
  const VitSettings base = tiny_clips({{"temporal-attention", "softmax"}});
  for (const std::string& variant : video_table_variants())
    EXPECT_NO_THROW(image_table_settings(base, variant, 1));
  const auto made = [&](const char* variant) { return image_table_settings(base, variant, 3); };
  EXPECT_EQ(made("softmax+grf").model.attention, AttentionVariant::softmax_grf);
  EXPECT_EQ(made("softmax+grf").model.temporal_attention, AttentionVariant::softmax);
  EXPECT_EQ(made("softmax+grf+time").model.temporal_attention, AttentionVariant::softmax_grf);
  EXPECT_EQ(made("softmax+grf+time").model.attention, AttentionVariant::softmax_grf);
  EXPECT_EQ(made("joint-linear").model.encoder, Encoder::joint);
  EXPECT_EQ(made("joint-linear").model.attention, AttentionVariant::linear);
  EXPECT_EQ(made("shuffled-frames").frame_order, FrameOrder::shuffled);
  EXPECT_EQ(made("single-frame").frame_order, FrameOrder::single);
  EXPECT_EQ(made("single-frame").model.attention, AttentionVariant::softmax_grf);
  EXPECT_EQ(made("grf-walks-7+time").model.mask.num_walks, 7);
  EXPECT_EQ(made("grf-walks-7+time").model.temporal_attention, AttentionVariant::grf);
  EXPECT_EQ(made("grf").seed, 3u);
  expect_error([&] { made("joint-gfr"); }, {"unknown value 'joint-gfr'", "did you mean 'joint-grf'?"});
  expect_error([&] { image_table_settings(VitSettings(), "joint-grf", 0); }, {"unknown value 'joint-grf'"});
}

TEST_F(ClipRuns, VariantsMayChangeSettings) {
  const VitSettings settings =
      image_table_settings(VitSettings(), "ad-hoc@p-halt=0.5@walks=7@share-walks=true", 2);
  EXPECT_EQ(settings.model.attention, AttentionVariant::ad_hoc);
  EXPECT_EQ(settings.model.mask.p_halt, 0.5);
  EXPECT_EQ(settings.model.mask.num_walks, 7);
  EXPECT_TRUE(settings.model.mask.share_walks);
  EXPECT_EQ(settings.seed, 2u);
  EXPECT_EQ(image_table_settings(VitSettings::video(), "joint-grf@tubelet=4", 0).model.tubelet, 4);
  const auto refused = [](const char* variant) {
    return [variant] { image_table_settings(VitSettings(), variant, 0); };
  };
  expect_error(refused("grf@walk=3"), {"unknown key 'walk'", "did you mean 'walks'?"});
  expect_error(refused("grf@walks=many"), {"--walks: expected a whole number"});
  expect_error(refused("grf@walks"), {"expected NAME@key=value", "'grf@walks'"});
  expect_error(refused("grf@seed=3"), {"cannot change seed"});
  expect_error(refused("grf@device=../x"), {"expected NAME@key=value"});
  expect_error(refused("gfr@walks=3"), {"unknown value 'gfr'"});
}

}  // namespace
}  // namespace topomask::testing
