// A step of training on a GPU against the CPU: loss and every gradient, for every variant of attention.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>

#include "gpu.h"
#include "topomask/image_training.h"
#include "topomask/nn.h"
#include "train/autocast.h"

namespace topomask {
namespace {

class TrainingOnGpu : public testing::OnGpu<std::string> {};
INSTANTIATE_TEST_SUITE_P(Variants, TrainingOnGpu, ::testing::ValuesIn(attention_variant_names()),
                         [](const auto& variant) { return testing::case_name(variant.param); });

struct Step {
  double loss = 0;
  std::vector<std::string> names;
  std::vector<at::Tensor> gradients;  // on the CPU
};

ImageTaskOptions task_options(const ImageData& data, const std::string& variant, Pooling pooling,
                              c10::Device device) {
  ImageTaskOptions options;
  options.model = fit_to_data(vit_preset("tiny"), data);
  options.model.patch = data.patch_size;
  options.model.attention = parse_attention_variant(variant);
  options.model.pooling = pooling;
  options.batch_size = 32;
  options.device = device;
  return options;
}

Step first_step(const ImageData& data, const ImageTaskOptions& options, bool bf16) {
  ImageClassification task(data, options);
  // The head starts at zero, behind which nothing has a gradient.
  for (const NamedParameter& parameter : task.parameters()) {
    if (parameter.name != "head.weight") continue;
    const at::Tensor values =
        at::arange(parameter.tensor.numel(), at::kFloat).sin().view(parameter.tensor.sizes());
    parameter.tensor.detach().copy_(values);
  }
  task.start_epoch(0, 0);
  Task::Loss out;
  {
    const AutocastScope scope(bf16);
    out = task.loss();
  }
  out.loss.backward();
  Step step;
  step.loss = out.loss.item<double>();
  for (const NamedParameter& parameter : task.parameters()) {
    step.names.push_back(parameter.name);
    step.gradients.push_back(parameter.tensor.grad().to(at::kCPU, at::kDouble));
  }
  return step;
}

// In float32 and under autocast, with mean pooling and with a class token. `change`: of the model.
void expect_gradients_of_the_cpu(const std::string& variant,
                                 const std::function<void(VitOptions&)>& change = {}) {
  const ImageData data = open_image_data("strokes:32,train=64,val=16");
  const auto step = [&](Pooling pooling, c10::Device device, bool bf16) {
    ImageTaskOptions options = task_options(data, variant, pooling, device);
    if (change) change(options.model);
    return first_step(data, options, bf16);
  };
  for (const Pooling pooling : {Pooling::mean, Pooling::cls}) {
    const Step cpu = step(pooling, c10::Device(c10::kCPU), false);
    for (const bool bf16 : {false, true}) {
      SCOPED_TRACE(std::string(word_of(pooling)) + (bf16 ? ", bfloat16" : ", float32"));
      const Step gpu = step(pooling, c10::Device(c10::kCUDA, 0), bf16);
      EXPECT_NEAR(gpu.loss, cpu.loss, (bf16 ? 2e-2 : 1e-5) * cpu.loss);
      double whole = 0;
      for (const at::Tensor& gradient : cpu.gradients) whole += gradient.square().sum().item<double>();
      for (std::size_t i = 0; i < cpu.gradients.size(); ++i) {
        const double error = (gpu.gradients[i] - cpu.gradients[i]).norm().item<double>();
        // Sums that nearly cancel (the bias of keys under softmax) are judged by the whole gradient.
        const double scale = cpu.gradients[i].norm().item<double>() + 1e-3 * std::sqrt(whole);
        EXPECT_LE(error, (bf16 ? 0.1 : 1e-3) * scale) << cpu.names[i];
      }
    }
  }
}

TEST_P(TrainingOnGpu, HasTheGradientsOfTheCpu) {
  expect_gradients_of_the_cpu(GetParam());
}

// Few short walks among many patches: the mask stays sparse, as tests/models/sparse_vit_test.cpp has it.
TEST(SparseMasksOnGpu, HaveTheGradientsOfTheCpu) {
  TOPOMASK_NEEDS_GPU();
  for (const char* variant : {"grf", "softmax+grf", "grf-asymmetric"}) {
    SCOPED_TRACE(variant);
    expect_gradients_of_the_cpu(variant, [&](VitOptions& model) {
      model.patch = 2;  // 16 x 16 patches
      model.mask.num_walks = 1;
      model.mask.max_hops = 2;
      const auto mask =
          make_mask_module(model.attention, model.mask, {.grid = {16, 16}, .heads = model.heads});
      EXPECT_TRUE(mask->mask()->profile().sparse());
    });
  }
}

TEST(DataTimeOnGpu, IsAPartOfTheWhole) {
  TOPOMASK_NEEDS_GPU();
  const ImageData data = open_image_data("strokes:32,train=64,val=16");
  ImageClassification task(data, task_options(data, "linear", Pooling::mean, c10::Device(c10::kCUDA, 0)));
  task.loss();
  EXPECT_GT(task.take_data_seconds(), 0);
  // More steps than there are events, so that some are used again.
  const auto start = std::chrono::steady_clock::now();
  for (int epoch = 0; epoch < 300; ++epoch) {
    task.start_epoch(epoch, 0);
    for (int batch = 0; batch < 2; ++batch) task.loss();
  }
  const double seconds = task.take_data_seconds();
  const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GT(seconds, 0);
  EXPECT_LT(seconds, all);
  EXPECT_EQ(task.take_data_seconds(), 0);
}

}  // namespace
}  // namespace topomask
