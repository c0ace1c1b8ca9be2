// Models as JSON, for languages that build them anew.
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "core/check.h"
#include "core/suggest.h"
#include "nn/rules.h"
#include "topomask/mask_catalogue.h"
#include "topomask/masks.h"
#include "topomask/runs.h"

namespace topomask {
namespace {

using Json = nlohmann::ordered_json;

// The variant's mask, or null: its class in Python, whether on the grid's graph, its arguments in each layer,
// its parameter at the start (the same for every head), and whether |M| is taken.
Json mask_json(const VitOptions& o) {
  const auto floats = [](const at::Tensor& values) {
    return std::vector<double>(values.const_data_ptr<float>(),
                               values.const_data_ptr<float>() + values.numel());
  };
  const std::int64_t nodes = o.grid_height() * o.grid_width();
  const char* name = nullptr;
  Json arguments = {{"heads", o.heads}}, init = nullptr;
  switch (o.attention) {
    case AttentionVariant::softmax:
    case AttentionVariant::linear:
    case AttentionVariant::performer:
      return nullptr;
    case AttentionVariant::toeplitz:
      name = "toeplitz";
      arguments["extent"] = {o.grid_height(), o.grid_width()};
      arguments["transform"] = word_of(o.mask.absolute ? OffsetTransform::absolute : OffsetTransform::none);
      break;
    case AttentionVariant::power_series:
      name = "power-series";
      arguments.update({{"max_power", o.mask.max_hops}, {"squared", true}});
      break;
    case AttentionVariant::learned_features:
      name = "learned-features";
      arguments.update({{"num_nodes", nodes}, {"rank", nodes}});
      break;
    case AttentionVariant::neighbours:
      name = "neighbours";
      arguments = {{"hops", o.mask.neighbour_hops}};
      break;
    case AttentionVariant::softmax_grf:
    case AttentionVariant::softmax_grf_bias:
    case AttentionVariant::performer_grf:
    case AttentionVariant::grf:
    case AttentionVariant::grf_asymmetric:
    case AttentionVariant::ad_hoc:
      name = "grf";
      arguments.update({{"num_walks", o.mask.num_walks},
                        {"p_halt", o.mask.p_halt},
                        {"max_hops", o.mask.max_hops},
                        {"ensembles", word_of(mask_ensembles(o.attention, o.mask))},
                        {"coupling", word_of(o.mask.coupling)},
                        {"shared_walks", o.mask.share_walks},
                        {"importance_weights", has_importance_weights(o.attention)}});
      break;
  }
  const std::optional<VariantParameter> parameter =
      mask_parameter(o.attention, o.mask, o.heads, {o.grid_height(), o.grid_width()});
  if (parameter && parameter->name == "f") init = floats(initial_f(o.mask.max_hops));
  if (parameter && parameter->name == "offsets")
    init = std::vector<double>(static_cast<std::size_t>(parameter->sizes[1]), 1.0);
  Json layers = Json::array();
  for (std::int64_t layer = 0; layer < o.layers; ++layer) {
    layers.push_back(arguments);
    if (std::string_view(name) == "grf") layers.back()["seed"] = layer_walk_seed(o.mask, layer);
  }
  const MaskInfo& info = mask_info(name);
  // The offsets of a Toeplitz mask have their magnitude taken already.
  const bool absolute = o.mask.absolute && o.attention != AttentionVariant::neighbours &&
                        o.attention != AttentionVariant::toeplitz;
  return {{"class", info.python_name},
          {"on_graph", info.on_graph},
          {"layers", std::move(layers)},
          {"init", std::move(init)},
          {"absolute", absolute}};
}

// What vit_options_from_json reads: a key, how it is written, how it is read.
struct Field {
  std::string key;
  std::function<Json(const VitOptions&)> get;
  std::function<void(VitOptions&, const Json&)> set;
};

template <class Value, class Member>
Field field(const char* key, Member member) {
  return {key, [member](const VitOptions& o) { return Json(*member(const_cast<VitOptions&>(o))); },
          [member](VitOptions& o, const Json& value) {
            if (std::is_integral_v<Value> && !std::is_same_v<Value, bool> && !value.is_number_integer())
              throw std::invalid_argument("a whole number");
            *member(o) = value.get<Value>();
          }};
}

template <class Value, class Member>
Field named_field(const char* key, Member member) {
  return {key,
          [member](const VitOptions& o) {
            return Json(std::string(word_of<Value>(*member(const_cast<VitOptions&>(o)))));
          },
          [key, member](VitOptions& o, const Json& value) {
            *member(o) = parse_word<Value>(key, value.get<std::string>());
          }};
}

const std::vector<Field>& fields() {
  using I = std::int64_t;
  static const std::vector<Field> all = {
      {"image_size",
       [](const VitOptions& o) {
         return Json{o.height, o.width};
       },
       [](VitOptions& o, const Json& value) {
         o.height = value.at(0).get<I>();
         o.width = value.at(1).get<I>();
       }},
      field<I>("channels", [](VitOptions& o) { return &o.channels; }),
      field<I>("classes", [](VitOptions& o) { return &o.num_classes; }),
      field<I>("patch", [](VitOptions& o) { return &o.patch; }),
      field<I>("dim", [](VitOptions& o) { return &o.embedding; }),
      field<I>("depth", [](VitOptions& o) { return &o.layers; }),
      field<I>("heads", [](VitOptions& o) { return &o.heads; }),
      field<I>("mlp", [](VitOptions& o) { return &o.mlp; }),
      named_field<AttentionVariant>("attention", [](VitOptions& o) { return &o.attention; }),
      named_field<Pooling>("pooling", [](VitOptions& o) { return &o.pooling; }),
      field<double>("dropout", [](VitOptions& o) { return &o.dropout; }),
      field<I>("num_walks", [](VitOptions& o) { return &o.mask.num_walks; }),
      field<double>("p_halt", [](VitOptions& o) { return &o.mask.p_halt; }),
      field<int>("max_hops", [](VitOptions& o) { return &o.mask.max_hops; }),
      named_field<Coupling>("coupling", [](VitOptions& o) { return &o.mask.coupling; }),
      field<bool>("share_walks", [](VitOptions& o) { return &o.mask.share_walks; }),
      named_field<Ensembles>("ensembles", [](VitOptions& o) { return &o.mask.ensembles; }),
      field<bool>("absolute", [](VitOptions& o) { return &o.mask.absolute; }),
      field<int>("neighbour_hops", [](VitOptions& o) { return &o.mask.neighbour_hops; }),
      field<std::uint64_t>("mask_seed", [](VitOptions& o) { return &o.mask.seed; }),
  };
  return all;
}

constexpr const char* kDerived[] = {"mean",          "stddev", "class_names", "grid",
                                    "global_tokens", "kind",   "epsilon",     "mask"};

// What of a model other languages cannot build; empty: nothing.
std::string known_here_alone(const VitOptions& o) {
  const bool bias = o.attention == AttentionVariant::softmax_grf_bias;
  if (o.encoder != Encoder::image) return "of clips";
  if (bias || has_random_features(o.attention))
    return fmt::format("with attention {}", attention_variant_name(o.attention));
  if (!has_f(o.attention) && o.attention != AttentionVariant::neighbours) return "";
  if (o.mask.patch_graph != MaskOptions().patch_graph)
    return fmt::format("on the patch graph {}", o.mask.patch_graph);
  return o.mask.key_f ? "whose keys have an f of their own" : "";
}

}  // namespace

std::string vit_settings_json(const VitOptions& options, const ImageFormat& images) {
  check_vit_options(options);
  const std::string obstacle = known_here_alone(options);
  check(obstacle.empty(), "vit: a model {} is known in C++ and on the command line alone", obstacle);
  Json json = Json::object();
  for (const Field& field : fields()) json[field.key] = field.get(options);
  const auto channels = static_cast<std::size_t>(options.channels);
  json["mean"] = images.mean.empty() ? std::vector<double>(channels, 0) : images.mean;
  json["stddev"] = images.stddev.empty() ? std::vector<double>(channels, 1) : images.stddev;
  json["class_names"] = images.class_names;
  json["grid"] = {options.grid_height(), options.grid_width()};
  json["global_tokens"] = options.pooling == Pooling::cls ? 1 : 0;
  const bool softmax =
      options.attention == AttentionVariant::softmax || options.attention == AttentionVariant::softmax_grf;
  json["kind"] = softmax ? "softmax" : "linear";
  json["epsilon"] = feature_epsilon(options.embedding / options.heads);
  json["mask"] = mask_json(options);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

VitOptions vit_options_from_json(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  check(json.is_object(), "vit: expected a JSON object of options, got '{}'", text);
  VitOptions options;
  for (const auto& [key, value] : json.items()) {
    const std::string& name = key;
    const auto known =
        std::find_if(fields().begin(), fields().end(), [&](const Field& field) { return field.key == name; });
    if (known == fields().end()) {
      if (std::find(std::begin(kDerived), std::end(kDerived), name) != std::end(kDerived)) continue;
      std::vector<std::string> names;
      for (const Field& field : fields()) names.push_back(field.key);
      fail("vit: unknown option '{}'{}", name, did_you_mean(name, names));
    }
    try {
      known->set(options, value);
    } catch (const Error&) {
      throw;
    } catch (const std::exception&) {  // of the wrong type
      fail("vit: {} cannot be {}", name, value.dump());
    }
  }
  check_vit_options(options);
  return options;
}

}  // namespace topomask
