// A trained model from its file in one line.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "models/parameter_shapes.h"
#include "support/expect_error.h"
#include "support/gradients.h"
#include "support/temporary_folder.h"
#include "support/tiny_run.h"
#include "topomask/models.h"
#include "topomask/runs.h"
#include "topomask/safetensors.h"

namespace topomask::testing {
namespace {

class EveryVariantOfAttention : public ::testing::TestWithParam<std::string> {
  oracle::OneThread one_thread_;
};
INSTANTIATE_TEST_SUITE_P(LoadVit, EveryVariantOfAttention, ::testing::ValuesIn(attention_variant_names()),
                         [](const auto& variant) {
                           std::string name = variant.param;
                           for (char& c : name)
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
                         });

TEST_P(EveryVariantOfAttention, PredictsAsItsRunDid) {
  const TemporaryFolder folder;
  {
    RunFolder run(folder / "run", RunStart::fresh);
    train_vit(run, tiny_run({{"attention", GetParam()}, {"ema", "0.5"}}));
  }
  VisionTransformer model = load_vit(folder / "run/last.safetensors");
  EXPECT_FALSE(model->is_training());
  EXPECT_EQ(model->class_names().size(), 3u);
  EXPECT_EQ(model->options().num_classes, 3);
  const auto examples = read_safetensors(folder / "run/examples.safetensors").tensors;
  const at::NoGradGuard no_grad;
  const at::Tensor images = examples.at("images");
  const at::Tensor got = at::softmax(model->forward(model->normalise(images)), -1);
  EXPECT_TRUE(got.equal(examples.at("probabilities")));
  EXPECT_GT(got.std(0, true).max().item<double>(), 1e-3);  // images are told apart
  expect_error([&] { model->normalise(images.to(at::kFloat)); }, {"uint8"});
}

TEST_P(EveryVariantOfAttention, HasTheParametersThatAreListed) {
  for (const Pooling pooling : {Pooling::mean, Pooling::cls}) {
    VitOptions options;
    options.channels = 1;
    options.height = 8;
    options.width = 12;
    options.patch = 4;
    options.layers = 2;
    options.embedding = 8;
    options.heads = 2;
    options.mlp = 5;
    options.mask.max_hops = 3;
    options.mask.every = pooling == Pooling::cls ? 2 : 1;
    options.attention = parse_attention_variant(GetParam());
    options.pooling = pooling;
    std::map<std::string, std::vector<std::int64_t>> listed, actual;
    for (const auto& [name, sizes] : vit_parameter_shapes(options)) listed[name] = sizes;
    for (const auto& item : VisionTransformer(options)->named_parameters())
      actual[item.key()] = item.value().sizes().vec();
    EXPECT_EQ(listed, actual);
  }
}

TEST(LoadVit, SaysWhatIsWrongWithAFile) {
  const TemporaryFolder folder;
  expect_error([&] { load_vit(folder / "none.safetensors"); }, {"none.safetensors"});
  folder.write("text.safetensors", "not a checkpoint");
  expect_error([&] { load_vit(folder / "text.safetensors"); }, {"text.safetensors"});
  write_safetensors(folder / "weights.safetensors", {{{"a", at::ones({1})}}, {}});
  expect_error([&] { load_vit(folder / "weights.safetensors"); },
               {"not a checkpoint of 'topomask train' (its metadata has no 'config')"});
}

TEST(VisionTransformer, NormalisesItsImages) {
  VitOptions options;
  options.height = options.width = 4;
  options.patch = 2;
  options.layers = 1;
  options.embedding = 4;
  options.heads = 1;
  options.attention = AttentionVariant::linear;
  const at::Tensor images = at::arange(3 * 16).view({1, 3, 4, 4}).to(at::kByte);
  EXPECT_TRUE(at::allclose(VisionTransformer(options)->normalise(images), images.to(at::kFloat) / 255));
  const VisionTransformer model(options, ImageFormat{{0.1, 0.2, 0.3}, {1, 2, 4}, {}});
  const at::Tensor got = model->normalise(images);
  for (int c = 0; c < 3; ++c) {
    const double mean = 0.1 * (c + 1), stddev = 1 << c;
    EXPECT_TRUE(at::allclose(got[0][c], (images[0][c].to(at::kFloat) / 255 - mean) / stddev, 1e-5, 1e-6));
  }
  expect_error(
      [&] {
        VisionTransformer(options, ImageFormat{{0.1}, {1, 2, 4}, {}});
      },
      {"of 3 channels, got 1 and 3"});
}

}  // namespace
}  // namespace topomask::testing
