#include <cmath>
#include <numeric>

#include "core/check.h"
#include "models/token_stacks.h"
#include "nn/batch_dropout.h"
#include "nn/rules.h"
#include "topomask/distributed.h"
#include "topomask/image_training.h"
#include "topomask/kernels.h"
#include "topomask/models.h"
#include "topomask/theory.h"
#include "train/data_clock.h"
#include "train/module_parameters.h"

namespace topomask {

VitOptions fit_to_data(VitOptions options, const ImageData& data) {
  options.channels = data.channels;
  options.height = data.height;
  options.width = data.width;
  options.frames = data.frames;
  options.num_classes = data.num_classes();
  return options;
}

namespace {

constexpr std::int64_t kLargestMasks = std::int64_t{1} << 26;  // entries of all layers and heads

ImageTaskOptions with_ranks(ImageTaskOptions options) {
  if (options.ranks == nullptr) options.ranks = Ranks::alone();
  return options;
}

LoaderOptions loader_options(const ImageTaskOptions& options, LoaderMode mode) {
  LoaderOptions loader;
  loader.mode = mode;
  loader.batch_size = options.batch_size;
  loader.seed = options.seed;
  loader.device = options.device;
  loader.workers = options.workers;
  loader.skip_bad = options.skip_bad;
  return loader;
}

std::string describe_frames(std::int64_t frames) {
  return frames == 1 ? "single images" : fmt::format("clips of {} frames", frames);
}

// The same for what a rank takes of its batches.
LoaderOptions part_options(const ImageTaskOptions& options, LoaderMode mode) {
  LoaderOptions loader = loader_options(options, mode);
  const bool mixes = options.augment.mixup > 0 || options.augment.cutmix > 0;
  loader.part = {options.ranks->rank(), options.ranks->size(), mixes};
  return loader;
}

// Targets are distributions: smoothed or mixed labels.
at::Tensor soft_cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  return -(targets * at::log_softmax(logits.to(at::kFloat), -1)).sum(-1).mean();
}

std::vector<double> terms_of(const at::Tensor& f) {
  const at::Tensor values = f.to(at::kDouble).contiguous();
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
}

// What infinitely many of these walks would give every head, or its magnitude.
at::Tensor exact_masks(const MaskSnapshot& mask, const FeatureOptions& walks, bool absolute,
                       const Graph& graph) {
  std::vector<at::Tensor> heads;
  for (std::int64_t head = 0; head < mask.f.size(0); ++head) {
    const std::vector<double> f = terms_of(mask.f[head]);
    const std::vector<double> key_f = mask.key_f.defined() ? terms_of(mask.key_f[head]) : f;
    const at::Tensor matrix = estimated_target(graph, f, key_f, walks);
    heads.push_back((absolute ? matrix.abs() : matrix).to(at::kFloat));
  }
  return at::stack(heads);
}

}  // namespace

struct ImageClassification::Implementation {
  Implementation(const ImageData& given, const ImageTaskOptions& given_options)
      : options(with_ranks(given_options)),
        validation(given.validation),
        model(options.model),
        data_clock(options.device),
        augmenter(given, options.augment, options.seed, options.device),
        training_batches(given.train, part_options(options, LoaderMode::training)),
        validation_batches(given.validation, part_options(options, LoaderMode::evaluation)) {
    model->to(options.device);
  }

  ImageTaskOptions options;
  ImageSet validation;  // tensors are shared, not copied
  VisionTransformer model;
  DataClock data_clock;
  Augmenter augmenter;
  BatchLoader training_batches, validation_batches;
  std::int64_t validation_skipped = 0;  // by all ranks

  void reorder(Batch& batch) const {
    batch.images = reorder_frames(batch, options.frame_order, options.seed);
  }
};

ImageClassification::ImageClassification(const ImageData& data, const ImageTaskOptions& options) {
  check(options.batch_size >= 1, "training: batch must be 1 or more, got {}", options.batch_size);
  const VitOptions& model = options.model;
  check(model.channels == data.channels && model.height == data.height && model.width == data.width &&
            model.num_classes == data.num_classes(),
        "the model is for {} classes of {}x{}x{} images, the data are {} classes of {}x{}x{}",
        model.num_classes, model.channels, model.height, model.width, data.num_classes(), data.channels,
        data.height, data.width);
  check(model.frames == data.frames, "the model is for {}, the data are {}", describe_frames(model.frames),
        describe_frames(data.frames));
  check(options.frame_order == FrameOrder::given || data.frames > 1,
        "training: frame-order {} is for clips, the data are single images", word_of(options.frame_order));
  check_vit_options(model);
  implementation_ = std::make_unique<Implementation>(data, options);
}

ImageClassification::~ImageClassification() = default;

std::vector<NamedParameter> ImageClassification::parameters() {
  return module_parameters(implementation_->model);
}

std::int64_t ImageClassification::batches_per_epoch() const {
  return implementation_->training_batches.batches_per_epoch();
}

std::int64_t ImageClassification::batch_size() const {
  return implementation_->options.batch_size;
}

std::string ImageClassification::sample_name() const {
  return implementation_->options.model.frames == 1 ? "images" : "clips";
}

RanksPtr ImageClassification::ranks() const {
  return implementation_->options.ranks;
}

void ImageClassification::start_epoch(std::int64_t epoch, std::int64_t batch) {
  implementation_->data_clock.start();
  implementation_->training_batches.start_epoch(epoch, batch);
  implementation_->data_clock.stop();
}

Task::Loss ImageClassification::loss() {
  Implementation& self = *implementation_;
  self.data_clock.start();
  std::optional<Batch> batch = self.training_batches.next();
  check(batch.has_value(), "training: the epoch has no batch left");
  self.reorder(*batch);
  const AugmentedBatch input = self.augmenter.augment(*batch);
  self.data_clock.stop();
  SampleRange own = {0, input.images.size(0), input.images.size(0)};
  if (const BatchPlaces& part = batch->part; part.places.defined()) {
    own.first = part.places[part.own_begin].item<std::int64_t>();
    own.whole = part.whole;
  }
  const SampleRangeScope scope(own);
  const at::Tensor logits = self.model->forward(input.images);
  const at::Tensor hits = logits.detach().argmax(-1) == input.targets.argmax(-1);
  return {.loss = soft_cross_entropy(logits, input.targets),
          .accuracy = hits.to(at::kFloat).mean(),
          .share = static_cast<double>(own.count) / static_cast<double>(own.whole)};
}

double ImageClassification::take_data_seconds() {
  return implementation_->data_clock.take_seconds();
}

at::Tensor ImageClassification::logits(const at::Tensor& images) {
  return implementation_->model->forward(implementation_->augmenter.normalise(images));
}

// Each rank takes some of the batches; all add up the same numbers in the order of batches, as one alone
// would.
Evaluation ImageClassification::evaluate() {
  Implementation& self = *implementation_;
  enum { kLoss, kHits, kCount, kSkipped, kRows };
  at::Tensor sums = at::zeros({kRows, self.validation_batches.batches_per_epoch()},
                              at::TensorOptions().dtype(at::kDouble).device(self.options.device));
  self.validation_batches.start_epoch(0);
  while (std::optional<Batch> batch = self.validation_batches.next()) {
    self.reorder(*batch);
    const at::Tensor scores = logits(batch->images).to(at::kFloat);
    sums[kLoss][batch->step].copy_(-at::log_softmax(scores, -1).gather(1, batch->labels.unsqueeze(1)).sum());
    sums[kHits][batch->step].copy_((scores.argmax(-1) == batch->labels).sum());
    sums[kCount][batch->step].fill_(batch->labels.size(0));
  }
  sums[kSkipped][0].fill_(self.validation_batches.skipped());
  sums = self.options.ranks->sum(sums.cpu(), "the evaluation").contiguous();
  const auto total = [&](int row) {
    const double* values = sums.const_data_ptr<double>() + row * sums.size(1);
    return std::accumulate(values, values + sums.size(1), 0.0);
  };
  self.validation_skipped = std::llround(total(kSkipped));
  Evaluation result;
  result.count = std::llround(total(kCount));
  check(result.count > 0, "evaluation: none of the {} validation images can be read", self.validation.size());
  result.loss = total(kLoss) / static_cast<double>(result.count);
  result.accuracy = total(kHits) / static_cast<double>(result.count);
  return result;
}

void ImageClassification::set_training(bool training) {
  implementation_->model->train(training);
}

std::int64_t ImageClassification::num_parameters() const {
  return implementation_->model->num_parameters();
}

std::int64_t ImageClassification::skipped_images() const {
  return implementation_->training_batches.skipped() + implementation_->validation_skipped;
}

std::vector<MaskSnapshot> ImageClassification::masks() const {
  const at::NoGradGuard no_grad;
  const VitOptions& options = implementation_->options.model;
  const std::vector<TokenStack> stacks = token_stacks(options);
  std::int64_t entries = 0;
  for (const TokenStack& stack : stacks)
    for (std::int64_t layer = stack.first_layer; layer < stack.first_layer + stack.layers; ++layer)
      if (implementation_->model->mask(layer) != nullptr)
        entries += options.heads * stack.num_tokens() * stack.num_tokens();
  std::vector<MaskSnapshot> result;
  for (const TokenStack& stack : stacks) {
    const Graph graph = patch_graph(stack.grid, options.mask.patch_graph);
    for (std::int64_t layer = stack.first_layer; layer < stack.first_layer + stack.layers; ++layer) {
      const std::shared_ptr<MaskModule> module = implementation_->model->mask(layer);
      if (module == nullptr) continue;
      MaskSnapshot snapshot;
      snapshot.layer = layer;
      snapshot.grid = stack.grid;
      const bool written_out = entries <= kLargestMasks;
      if (written_out) snapshot.used = module->mask()->dense(at::kFloat).to(at::kCPU);
      if (const at::Tensor* f = module->named_parameters(false).find("f")) {
        snapshot.f = f->detach().to(at::kCPU, at::kFloat);
        if (snapshot.f.dim() == 3) {
          snapshot.key_f = snapshot.f.select(1, 1);
          snapshot.f = snapshot.f.select(1, 0);
        }
        if (written_out && has_walks(stack.attention) && graph.num_nodes() <= kMaxDenseNodes)
          snapshot.exact = exact_masks(snapshot, layer_walks(stack.attention, options.mask, layer),
                                       options.mask.absolute, graph);
      }
      result.push_back(std::move(snapshot));
    }
  }
  return result;
}

Predictions ImageClassification::predict_examples(std::int64_t count) {
  const at::NoGradGuard no_grad;
  Implementation& self = *implementation_;
  set_training(false);
  // Spread over the whole set: files often come class by class.
  const std::int64_t size = self.validation.size(), taken = std::min(count, size);
  check(taken > 0, "predictions: the validation set is empty");
  ImageSet chosen = self.validation;
  const at::Tensor indices = at::arange(taken).mul(size).floor_divide(taken);
  chosen.labels = self.validation.labels.index_select(0, indices);
  if (chosen.resident()) chosen.images = self.validation.images.index_select(0, indices);
  chosen.files.clear();
  for (std::int64_t i = 0; i < taken && !chosen.resident(); ++i)
    chosen.files.push_back(self.validation.files[static_cast<std::size_t>(i * size / taken)]);
  LoaderOptions loader = loader_options(self.options, LoaderMode::evaluation);
  loader.batch_size = taken;
  BatchLoader batches(chosen, loader);
  std::optional<Batch> batch = batches.next();
  check(batch.has_value(), "predictions: none of the chosen images can be read");
  self.reorder(*batch);
  return {indices.index_select(0, batch->indices), batch->images.to(at::kCPU), batch->labels.to(at::kCPU),
          at::softmax(logits(batch->images).to(at::kFloat), -1).to(at::kCPU)};
}

}  // namespace topomask
