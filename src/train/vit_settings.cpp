#include <fmt/format.h>

#include <algorithm>

#include "core/check.h"
#include "topomask/device.h"
#include "topomask/runs.h"
#include "train/settings.h"
#include "train/vit_settings.h"

namespace topomask {
namespace {

// What each seed is for.
enum class Stream { weights, walks, order, training };

// A description of images without the folder that they lie in: files may move, and machines keep them in
// different places. A number in its place is the size of generated images.
std::string without_folder(const std::string& data) {
  const std::size_t begin = std::min(data.find(':'), data.size() - 1) + 1;
  const std::size_t end = std::min(data.find(',', begin), data.size());
  const std::string subject = data.substr(begin, end - begin);
  const bool size = std::all_of(subject.begin(), subject.end(), [](char c) { return c >= '0' && c <= '9'; });
  return size ? data : data.substr(0, begin) + data.substr(end);
}

}  // namespace

template <>
std::span<const Word<OptimizerKind>> words<OptimizerKind>() {
  static constexpr Word<OptimizerKind> kWords[] = {
      {OptimizerKind::adamw, "adamw", "decoupled weight decay"},
      {OptimizerKind::adam, "adam", "weight decay as part of the gradient"},
      {OptimizerKind::sgd, "sgd", "momentum beta1, weight decay as part of the gradient"},
  };
  return kWords;
}

void VitSettings::apply_preset(const std::string& name) {
  model = vit_preset(name, model);
  preset = name;
}

Settings list_settings(VitSettings& s) {
  Settings list;
  list.section("data");
  list.add("data", s.data,
           fmt::format("Data set of {}; 'topomask train {} --help' lists the forms",
                       s.is_video() ? "clips" : "images", s.kind()));
  list.add("batch", s.batch, "Images or clips per batch");
  list.add("workers", s.workers, "Threads that decode images; 0: one per core");
  list.add("skip-bad", s.skip_bad, "Skip unreadable images and count them");

  list.section("model");
  list.add("preset", s.preset,
           fmt::format("{} (the paper's); sets layers, widths, heads, patch and pooling",
                       s.is_video() ? "tiny, small or b16x2" : "tiny, small or b16"));
  list.add_choice("attention", s.model.attention, "Attention variant");
  list.add("random-features", s.model.random_features, "performer: random features per head");
  list.add("patch", s.patch, "Side of a patch in pixels; 0: chosen by the preset and the data");
  list.add("layers", s.model.layers, "Transformer blocks");
  list.add("embedding", s.model.embedding, "Width of a token");
  list.add("heads", s.model.heads, "Attention heads; the number must divide the embedding");
  list.add("mlp", s.model.mlp, "Hidden width of the MLP");
  list.add_choice("pooling", s.model.pooling, "Input of the classifier");
  list.add("dropout", s.model.dropout, "Probability that an activation is dropped");
  list.add_choice("initial-weights", s.model.initial_weights, "Distribution of the initial weights");
  list.add("initial-positions", s.model.initial_positions,
           "Standard deviation of the initial position embeddings");

  list.section(kVideoSection);
  list.add_choice("encoder", s.model.encoder, "Which tokens of a clip attend to each other",
                  words<Encoder>().subspan(1));  // the first is of images
  list.add("tubelet", s.model.tubelet, "Frames per tubelet, a patch extended over time");
  list.add("temporal-layers", s.model.temporal_layers,
           "factorised encoder: transformer blocks over time steps");
  list.add_choice("temporal-attention", s.model.temporal_attention,
                  "factorised encoder: attention variant between time steps; its mask is on a path graph");
  list.add_choice("frame-order", s.frame_order, "Frames that the model sees, in training and evaluation");

  list.section("mask");
  list.add("walks", s.model.mask.num_walks, "Walks per patch");
  list.add("p-halt", s.model.mask.p_halt, "Probability that a walk halts at each patch");
  list.add("max-hops", s.model.mask.max_hops, "Maximum length of a walk in hops; f has max-hops + 1 values");
  list.add_choice("coupling", s.model.mask.coupling,
                  "Coupling of the walks from one patch, to lower the variance");
  list.add("share-walks", s.model.mask.share_walks, "Use one set of walks for all heads and layers");
  list.add_choice("ensembles", s.model.mask.ensembles, "Which walks the keys use");
  list.add("key-f", s.model.mask.key_f, "Learn a separate f for the keys");
  list.add("absolute", s.model.mask.absolute, "Use |M|",
           "Use M itself, which may be negative, instead of |M|");
  list.add("patch-graph", s.model.mask.patch_graph,
           "Graph of the patches: grid, diagonals (grid with diagonal edges), or knn:K[,jitter=0.5][,seed=0] "
           "(K nearest neighbours after moving each cell by up to jitter; weights decrease with distance)");
  list.add("neighbour-hops", s.model.mask.neighbour_hops,
           "--attention neighbours: reach of the mask in hops");
  list.add("mask-every", s.model.mask.every,
           "Blocks with the mask: the first, and every so many after it; the others are unmasked");

  list.section("training");
  list.add("seed", s.seed, "Random seed; fixes everything random");
  list.add("initialise-from", s.initialise_from,
           "Start from the weights of another run's checkpoint; position embeddings are interpolated, and a "
           "classifier for other classes is reinitialised");
  list.add("epochs", s.train.epochs, "Passes over the training images");
  list.add_choice("optimizer", s.train.optimizer, "Optimiser");
  list.add("learning-rate", s.train.learning_rate, "Peak learning rate, reached after the warm-up");
  list.add("final-learning-rate", s.train.final_learning_rate,
           "Learning rate at the end of the cosine schedule");
  list.add("mask-learning-rate", s.train.mask_learning_rate,
           "Peak learning rate of the mask's parameters; 0: same as --learning-rate");
  list.add("warmup-epochs", s.train.warmup_epochs, "Epochs of linear warm-up");
  list_training(list, s.train, s.device, /*epochs=*/true);

  list.section("augmentation");
  list.add("min-crop-area", s.augment.min_crop_area,
           "Smallest share of the image area in a random resized crop; 1: no crops");
  list.add("pad", s.augment.pad, "Pad-crop: shift images by up to this many pixels; 0: none");
  list.add("flip", s.augment.flip, "Flip half of the images horizontally");
  list.add("rand-augment", s.augment.rand_augment_ops, "RandAugment: operations per image; 0: none");
  list.add("rand-augment-magnitude", s.augment.rand_augment_magnitude, "RandAugment: strength, 0 to 30");
  list.add("cutout", s.augment.cutout, "Side of a random square that is blanked, in pixels; 0: none");
  list.add("mixup", s.augment.mixup, "alpha of mixup; 0: none");
  list.add("cutmix", s.augment.cutmix, "alpha of cutmix; 0: none");
  list.add("mix-probability", s.augment.mix_probability,
           "Probability that a batch is mixed, by mixup or cutmix");
  list.add("label-smoothing", s.augment.label_smoothing,
           "Share of each label that is spread over all classes");
  return list;
}

void check_encoder_settings(Encoder encoder, const SettingValues& given) {
  if (encoder != Encoder::joint) return;
  for (const auto& [key, value] : given)
    check(!key.starts_with("temporal-"),
          "--{}: is for the factorised encoder; the joint encoder has no blocks over time steps", key);
}

VitSettings VitSettings::video() {
  VitSettings settings;
  settings.data = "motion:32";
  settings.model.encoder = Encoder::factorised;
  settings.apply_preset("tiny");
  settings.batch = 32;
  settings.train.epochs = 10;
  settings.train.learning_rate = 1e-3;  // at 2e-3 softmax with a mask stays at chance
  settings.train.warmup_epochs = 1;
  return settings;
}

VitSettings VitSettings::from(const SettingValues& given, const std::string& config_path,
                              VitSettings settings) {
  if (!settings.is_video() && !config_path.empty()) {
    const std::string encoder = Settings::peek_toml(config_path, "encoder");
    if (!encoder.empty() && encoder != word_of(Encoder::image)) settings = video();
  }
  std::string preset_name = Settings::peek(given, "preset");
  if (preset_name.empty() && !config_path.empty()) preset_name = Settings::peek_toml(config_path, "preset");
  if (!preset_name.empty()) settings.apply_preset(preset_name);
  list_settings(settings).apply(given, config_path);
  check_encoder_settings(settings.model.encoder, given);
  return settings;
}

VitSettings VitSettings::from_toml_text(const std::string& text, const std::string& name) {
  VitSettings settings;
  list_settings(settings).read_toml_text(text, name);
  return settings;
}

std::string VitSettings::to_toml() const {
  VitSettings copy = *this;
  return list_settings(copy).to_toml(is_video() ? "" : kVideoSection);
}

ImageData VitSettings::open_data() const {
  ImageDataOptions options;
  options.skip_bad = skip_bad;
  options.workers = workers;
  return open_image_data(data, options);
}

VitOptions with_seeds(VitOptions model, std::uint64_t seed) {
  model.seed = stream_seed(seed, Stream::weights);
  model.mask.seed = stream_seed(seed, Stream::walks);
  return model;
}

ImageTaskOptions VitSettings::task_options(const ImageData& images) const {
  ImageTaskOptions options;
  check(is_video() == (images.frames > 1), "--data {}: holds {}, use 'topomask train {}' with it",
        images.spec, images.frames > 1 ? "clips" : "single images", images.frames > 1 ? "vivit" : "vit");
  options.model = with_seeds(fit_to_data(model, images), seed);
  if (patch > 0) {
    options.model.patch = patch;
  } else if (preset != "b16" && preset != "b16x2") {
    options.model.patch = images.patch_size;
  }
  options.augment = augment;
  options.frame_order = frame_order;
  options.batch_size = batch;
  options.seed = stream_seed(seed, Stream::order);
  options.device = parse_device(device);
  options.workers = workers;
  options.skip_bad = skip_bad;
  return options;
}

TrainOptions VitSettings::train_options() const {
  TrainOptions options = train;
  options.seed = stream_seed(seed, Stream::training);
  options.device = parse_device(device);
  check_train_options(options);
  return options;
}

std::string VitSettings::default_folder() const {
  return fmt::format("runs/{}-{}-seed-{}", kind(), attention_variant_name(model.attention), seed);
}

std::string difference(const VitSettings& saved, const VitSettings& now) {
  VitSettings before = saved, after = now;
  return first_difference(list_settings(before), list_settings(after),
                          [](const std::string& key, const std::string& left, const std::string& right) {
                            return key == "data" ? without_folder(left) == without_folder(right)
                                                 : left == right;
                          });
}

}  // namespace topomask
