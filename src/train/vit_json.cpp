// The options of models as JSON, for other languages.
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "core/check.h"
#include "core/suggest.h"
#include "topomask/runs.h"

namespace topomask {
namespace {

using Json = nlohmann::ordered_json;

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
            const bool whole =
                std::is_unsigned_v<Value> ? value.is_number_unsigned() : value.is_number_integer();
            if (std::is_integral_v<Value> && !std::is_same_v<Value, bool> && !whole)
              throw std::invalid_argument("a whole number");
            *member(o) = value.get<Value>();
            if (Json(*member(o)) != value) throw std::invalid_argument("out of range");
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
         if (value.size() != 2 || !value[0].is_number_integer() || !value[1].is_number_integer())
           throw std::invalid_argument("two whole numbers");
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
      field<bool>("key_f", [](VitOptions& o) { return &o.mask.key_f; }),
      field<std::string>("patch_graph", [](VitOptions& o) { return &o.mask.patch_graph; }),
      field<int>("neighbour_hops", [](VitOptions& o) { return &o.mask.neighbour_hops; }),
      field<int>("mask_every", [](VitOptions& o) { return &o.mask.every; }),
      field<std::uint64_t>("mask_seed", [](VitOptions& o) { return &o.mask.seed; }),
      field<I>("random_features", [](VitOptions& o) { return &o.random_features; }),
      named_field<InitialWeights>("initial_weights", [](VitOptions& o) { return &o.initial_weights; }),
      field<double>("initial_positions", [](VitOptions& o) { return &o.initial_positions; }),
      field<std::uint64_t>("seed", [](VitOptions& o) { return &o.seed; }),
      named_field<Encoder>("encoder", [](VitOptions& o) { return &o.encoder; }),
      field<I>("frames", [](VitOptions& o) { return &o.frames; }),
      field<I>("tubelet", [](VitOptions& o) { return &o.tubelet; }),
      field<I>("temporal_layers", [](VitOptions& o) { return &o.temporal_layers; }),
      named_field<AttentionVariant>("temporal_attention",
                                    [](VitOptions& o) { return &o.temporal_attention; }),
  };
  return all;
}

// Of the images, not of the model.
constexpr const char* kFormat[] = {"mean", "stddev", "class_names"};

Json options_json(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  check(json.is_object(), "vit: expected a JSON object of options, got '{}'", text);
  return json;
}

// `read` throws something else than Error where the value has the wrong type.
template <class Read>
void read_value(const std::string& name, const Json& value, Read&& read) {
  try {
    read(value);
  } catch (const Error&) {
    throw;
  } catch (const std::exception&) {
    fail("vit: {} cannot be {}", name, value.dump());
  }
}

}  // namespace

std::string vit_settings_json(const VitOptions& options, const ImageFormat& images) {
  check_vit_options(options);
  Json json = Json::object();
  for (const Field& field : fields()) json[field.key] = field.get(options);
  const auto channels = static_cast<std::size_t>(options.channels);
  json["mean"] = images.mean.empty() ? std::vector<double>(channels, 0) : images.mean;
  json["stddev"] = images.stddev.empty() ? std::vector<double>(channels, 1) : images.stddev;
  json["class_names"] = images.class_names;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

VitOptions vit_options_from_json(const std::string& text) {
  const Json json = options_json(text);
  VitOptions options;
  for (const auto& [key, value] : json.items()) {
    const std::string& name = key;
    const auto known =
        std::find_if(fields().begin(), fields().end(), [&](const Field& field) { return field.key == name; });
    if (known == fields().end()) {
      if (std::find(std::begin(kFormat), std::end(kFormat), name) != std::end(kFormat)) continue;
      std::vector<std::string> names;
      for (const Field& field : fields()) names.push_back(field.key);
      fail("vit: unknown option '{}'{}", name, did_you_mean(name, names));
    }
    read_value(name, value, [&](const Json& given) { known->set(options, given); });
  }
  check_vit_options(options);
  return options;
}

ImageFormat image_format_from_json(const std::string& text) {
  const Json json = options_json(text);
  ImageFormat format;
  const auto read = [&](const char* name, auto& target) {
    if (json.contains(name))
      read_value(name, json.at(name), [&](const Json& given) { given.get_to(target); });
  };
  read(kFormat[0], format.mean);
  read(kFormat[1], format.stddev);
  read(kFormat[2], format.class_names);
  return format;
}

}  // namespace topomask
