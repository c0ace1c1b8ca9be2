#include <cmath>

#include "core/check.h"
#include "core/suggest.h"
#include "models/token_stacks.h"
#include "nn/patch_graph.h"
#include "nn/rules.h"
#include "topomask/model_options.h"
#include "walks/compile_plan.h"

namespace topomask {

template <>
std::span<const Word<AttentionVariant>> words<AttentionVariant>() {
  static constexpr Word<AttentionVariant> kWords[] = {
      {AttentionVariant::softmax, "softmax", "unmasked"},
      {AttentionVariant::softmax_grf, "softmax+grf", "softmax weights times the mask of grf"},
      {AttentionVariant::softmax_grf_bias, "softmax+grf-bias", "the mask of grf added to the logits"},
      {AttentionVariant::linear, "linear", "unmasked"},
      {AttentionVariant::performer, "performer", "unmasked, positive random features of softmax (FAVOR+)"},
      {AttentionVariant::performer_grf, "performer+grf", "performer with the mask of grf"},
      {AttentionVariant::toeplitz, "toeplitz", "|b| with one parameter per offset between two patches"},
      {AttentionVariant::power_series, "power-series", "|M| exactly, grf with infinitely many walks"},
      {AttentionVariant::grf, "grf", "|Phi Phi^T|, graph random features"},
      {AttentionVariant::grf_asymmetric, "grf-asymmetric", "|Phi|, one-hot keys"},
      {AttentionVariant::ad_hoc, "ad-hoc", "grf without importance weights"},
      {AttentionVariant::learned_features, "learned-features", "|F F^T|, N learned numbers per patch"},
      {AttentionVariant::neighbours, "neighbours", "1 within a few hops on the patch graph, else 0"},
  };
  return kWords;
}

template <>
std::span<const Word<Encoder>> words<Encoder>() {
  static constexpr Word<Encoder> kWords[] = {
      {Encoder::image, "image", "single images"},
      {Encoder::factorised, "factorised", "patches of one time step, then time steps"},
      {Encoder::joint, "joint", "all tubelets at once"},
  };
  return kWords;
}

template <>
std::span<const Word<Pooling>> words<Pooling>() {
  static constexpr Word<Pooling> kWords[] = {
      {Pooling::mean, "mean", "average over all patches"},
      {Pooling::cls, "cls", "an extra token"},
  };
  return kWords;
}

template <>
std::span<const Word<InitialWeights>> words<InitialWeights>() {
  static constexpr Word<InitialWeights> kWords[] = {
      {InitialWeights::xavier, "xavier", "uniform with variance 2 / (inputs + outputs)"},
      {InitialWeights::fan_in, "fan-in", "uniform within 1 / sqrt(inputs)"},
      {InitialWeights::normal, "normal", "N(0, 0.02)"},
  };
  return kWords;
}

std::string attention_variant_name(AttentionVariant variant) {
  return std::string(word_of(variant));
}

const std::vector<std::string>& attention_variant_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& known : words<AttentionVariant>()) all.emplace_back(known.word);
    return all;
  }();
  return names;
}

AttentionVariant parse_attention_variant(const std::string& name) {
  return parse_word<AttentionVariant>("attention", name);
}

AttentionVariant unmasked(AttentionVariant variant) {
  if (has_random_features(variant)) return AttentionVariant::performer;
  const bool is_softmax = variant == AttentionVariant::softmax || variant == AttentionVariant::softmax_grf ||
                          variant == AttentionVariant::softmax_grf_bias;
  return is_softmax ? AttentionVariant::softmax : AttentionVariant::linear;
}

void check_vit_options(const VitOptions& o) {
  check(o.channels >= 1 && o.height >= 1 && o.width >= 1,
        "vit: images must have a positive size, got {} channels of {}x{}", o.channels, o.height, o.width);
  check(o.num_classes >= 1, "vit: expected at least one class, got {}", o.num_classes);
  check(o.patch >= 1, "vit: patch must be 1 or more, got {}", o.patch);
  check(o.height % o.patch == 0 && o.width % o.patch == 0,
        "vit: patch {0} does not divide images of {1}x{2}: expected a divisor of both sides", o.patch,
        o.height, o.width);
  check(o.layers >= 1, "vit: layers must be 1 or more, got {}", o.layers);
  check(o.embedding >= 1 && o.mlp >= 1, "vit: embedding and mlp must be 1 or more, got {} and {}",
        o.embedding, o.mlp);
  check(o.heads >= 1 && o.embedding % o.heads == 0, "vit: heads {} do not divide the embedding {}", o.heads,
        o.embedding);
  check(o.dropout >= 0 && o.dropout < 1, "vit: dropout must lie in [0, 1), got {}", o.dropout);
  check(o.initial_positions >= 0, "vit: initial-positions must be 0 or more, got {}", o.initial_positions);
  check(std::isfinite(o.initial_positions), "vit: initial-positions must be finite, got {}",
        o.initial_positions);
  check(o.frames >= 1 && o.tubelet >= 1, "vit: frames and tubelet must be 1 or more, got {} and {}", o.frames,
        o.tubelet);
  check(o.encoder != Encoder::image || o.frames == 1,
        "vit: a clip of {} frames needs --encoder factorised or joint", o.frames);
  check(o.frames % o.tubelet == 0, "vit: tubelets of {} frames do not divide clips of {}", o.tubelet,
        o.frames);
  check(o.encoder != Encoder::factorised || o.temporal_layers >= 1,
        "vit: temporal-layers must be 1 or more with a factorised encoder, got {}", o.temporal_layers);
  check(o.mask.num_walks >= 1, "mask: walks must be 1 or more, got {}", o.mask.num_walks);
  check(o.mask.max_hops >= 0 && o.mask.max_hops <= kMaxHops, "mask: max-hops must be 0 to {}, got {}",
        kMaxHops, o.mask.max_hops);
  check(o.mask.every >= 1, "mask: mask-every must be 1 or more, got {}", o.mask.every);
  check(o.random_features >= 1, "vit: random-features must be 1 or more, got {}", o.random_features);
  const PatchGraph graph = parse_patch_graph(o.mask.patch_graph);
  for (const TokenStack& stack : token_stacks(o)) {
    check(!o.mask.key_f || !has_f(stack.attention) ||
              mask_ensembles(stack.attention, o.mask) != Ensembles::asymmetric,
          "mask: key-f: asymmetric ensembles have one-hot keys, which have no f of their own");
    check(stack.attention != AttentionVariant::toeplitz || graph.kind == PatchGraph::Kind::grid,
          "mask: toeplitz needs --patch-graph grid, got '{}'", o.mask.patch_graph);
  }
}

const std::vector<std::string>& vit_preset_names(Encoder encoder) {
  static const std::vector<std::string> images = {"tiny", "small", "b16"}, clips = {"tiny", "small", "b16x2"};
  return encoder == Encoder::image ? images : clips;
}

VitOptions vit_preset(const std::string& name, VitOptions base) {
  const auto sizes = [&](std::int64_t patch, std::int64_t layers, std::int64_t embedding, std::int64_t heads,
                         std::int64_t mlp, Pooling pooling) {
    base.patch = patch;
    base.layers = layers;
    base.embedding = embedding;
    base.heads = heads;
    base.mlp = mlp;
    base.pooling = pooling;
    return base;
  };
  if (base.encoder != Encoder::image) {
    base.tubelet = 2;
    base.temporal_layers = name == "tiny" ? 1 : name == "small" ? 2 : 4;
    if (name == "tiny") return sizes(4, 2, 64, 2, 128, Pooling::cls);
    if (name == "small") return sizes(4, 4, 192, 3, 768, Pooling::cls);
    if (name == "b16x2") return sizes(16, 12, 768, 12, 3072, Pooling::cls);
  } else {
    if (name == "tiny") return sizes(4, 3, 64, 2, 128, Pooling::mean);
    if (name == "small") return sizes(2, 6, 256, 4, 1024, Pooling::mean);
    if (name == "b16") return sizes(16, 12, 768, 12, 3072, Pooling::cls);
  }
  const std::vector<std::string>& known = vit_preset_names(base.encoder);
  fail("preset: unknown value '{}'{}", name, nearest_or_all(name, known));
}

}  // namespace topomask
