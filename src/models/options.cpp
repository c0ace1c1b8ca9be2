#include <utility>

#include "core/check.h"
#include "core/suggest.h"
#include "topomask/model_options.h"

namespace topomask {

namespace {

constexpr std::pair<AttentionVariant, const char*> kVariants[] = {
    {AttentionVariant::softmax, "softmax"},
    {AttentionVariant::softmax_grf, "softmax+grf"},
    {AttentionVariant::linear, "linear"},
    {AttentionVariant::toeplitz, "toeplitz"},
    {AttentionVariant::power_series, "power-series"},
    {AttentionVariant::grf, "grf"},
    {AttentionVariant::grf_asymmetric, "grf-asymmetric"},
    {AttentionVariant::ad_hoc, "ad-hoc"},
    {AttentionVariant::learned_features, "learned-features"},
    {AttentionVariant::neighbours, "neighbours"}};

[[noreturn]] void fail_unknown(const char* what, const std::string& name,
                               const std::vector<std::string>& known) {
  const std::string suggestion = did_you_mean(name, known);
  if (!suggestion.empty()) fail("{}: unknown value '{}'{}", what, name, suggestion);
  fail("{}: unknown value '{}', expected {}", what, name, fmt::join(known, ", "));
}

}  // namespace

std::string attention_variant_name(AttentionVariant variant) {
  for (const auto& [value, name] : kVariants) {
    if (value == variant) return name;
  }
  return "?";
}

const std::vector<std::string>& attention_variant_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const auto& entry : kVariants) all.emplace_back(entry.second);
    return all;
  }();
  return names;
}

AttentionVariant parse_attention_variant(const std::string& name) {
  for (const auto& [value, known] : kVariants) {
    if (name == known) return value;
  }
  fail_unknown("attention", name, attention_variant_names());
}

std::string pooling_name(Pooling pooling) {
  return pooling == Pooling::cls ? "cls" : "mean";
}

Pooling parse_pooling(const std::string& name) {
  if (name == "mean") return Pooling::mean;
  if (name == "cls") return Pooling::cls;
  fail_unknown("pooling", name, {"mean", "cls"});
}

std::string initial_weights_name(InitialWeights initial) {
  switch (initial) {
    case InitialWeights::xavier:
      return "xavier";
    case InitialWeights::fan_in:
      return "fan-in";
    case InitialWeights::normal:
      break;
  }
  return "normal";
}

InitialWeights parse_initial_weights(const std::string& name) {
  if (name == "xavier") return InitialWeights::xavier;
  if (name == "fan-in") return InitialWeights::fan_in;
  if (name == "normal") return InitialWeights::normal;
  fail_unknown("initial-weights", name, {"xavier", "fan-in", "normal"});
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
  check(o.mask.num_walks >= 1, "mask: walks must be 1 or more, got {}", o.mask.num_walks);
  check(o.mask.max_hops >= 0, "mask: max-hops must be 0 or more, got {}", o.mask.max_hops);
}

const std::vector<std::string>& vit_preset_names() {
  static const std::vector<std::string> names = {"tiny", "small", "b16"};
  return names;
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
  if (name == "tiny") return sizes(4, 3, 64, 2, 128, Pooling::mean);
  if (name == "small") return sizes(2, 6, 256, 4, 1024, Pooling::mean);
  if (name == "b16") return sizes(16, 12, 768, 12, 3072, Pooling::cls);
  fail_unknown("preset", name, vit_preset_names());
}

}  // namespace topomask
