// Classification of images or clips with a vision transformer, as a task for the training loop, and views of
// a trained model: masks, f and example predictions (paper, Sec. 4).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "topomask/augment.h"
#include "topomask/data.h"
#include "topomask/model_options.h"
#include "topomask/train.h"

namespace topomask {

// Sizes, frames and classes of the images; the rest is as in `options`.
VitOptions fit_to_data(VitOptions options, const ImageData& data);

struct ImageTaskOptions {
  VitOptions model;
  AugmentOptions augment;
  FrameOrder frame_order = FrameOrder::given;  // of clips, in training and evaluation
  std::int64_t batch_size = 256;
  std::uint64_t seed = 0;  // of the order of images and frames and of augmentation
  c10::Device device = c10::Device(c10::kCPU);
  int workers = 0;
  bool skip_bad = false;
  RanksPtr ranks = nullptr;  // that share every batch and the validation set; null: one alone
};

// The learned masks of one layer.
struct MaskSnapshot {
  std::int64_t layer = 0;
  std::vector<std::int64_t> grid;  // of the layer's tokens: rows and columns, moments, or all three
  at::Tensor f;                    // [heads, max_hops + 1] float32; undefined where the mask has none
  at::Tensor key_f;                // the same of the keys, where they have their own
  at::Tensor used;  // [heads, N, N] float32: |M| as attention multiplies with it, without global tokens;
                    // undefined where the masks of all layers are too large to write out
  // [heads, N, N] float32: what infinitely many walks would give, sum_k alpha_k W^k or, without importance
  // weights, their own expectation (estimated_target); undefined where nothing is sampled.
  at::Tensor exact;
};

// What the model says about some validation images.
struct Predictions {
  at::Tensor indices;        // [K] int64 in the validation set
  at::Tensor images;         // [K, C, H, W] or [K, T, C, H, W] uint8
  at::Tensor labels;         // [K] int64
  at::Tensor probabilities;  // [K, num_classes] float32
};

class ImageClassification final : public Task {
 public:
  ImageClassification(const ImageData& data, const ImageTaskOptions& options);
  ~ImageClassification() override;

  std::vector<NamedParameter> parameters() override;
  std::int64_t batches_per_epoch() const override;
  std::int64_t batch_size() const override;
  RanksPtr ranks() const override;
  void start_epoch(std::int64_t epoch, std::int64_t batch) override;
  Loss loss() override;
  double take_data_seconds() override;
  Evaluation evaluate() override;
  void set_training(bool training) override;
  std::string sample_name() const override;  // "images" or "clips"

  std::int64_t num_parameters() const;
  std::int64_t skipped_images() const;          // left out as unreadable
  at::Tensor logits(const at::Tensor& images);  // [B, (T,) C, H, W] uint8 -> [B, num_classes]
  std::vector<MaskSnapshot> masks() const;      // empty for unmasked attention
  Predictions predict_examples(std::int64_t count);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace topomask
