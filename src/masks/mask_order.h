// A request for a mask, read with its entry of the catalogue: settings as values, parameters as tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "topomask/mask_catalogue.h"
#include "topomask/words.h"

namespace topomask {

// Whether a setting lists numbers, or else names something.
bool begins_with_number(std::string_view text);

// Refers to the request and the entry. Errors name the mask and the setting.
class MaskOrder {
 public:
  MaskOrder(const MaskInfo& info, const MaskRequest& request);

  const char* owner() const { return info_.python_name.data(); }
  std::string label(std::string_view name) const;  // "GRFMask: num_walks"
  std::int64_t heads() const { return request_.heads; }
  const Graph& graph() const { return *request_.graph; }
  Normalisation normalisation() const { return word<Normalisation>("normalise"); }
  Graph normalised() const { return normalise(graph(), normalisation()); }
  std::int64_t num_nodes() const { return request_.graph ? graph().num_nodes() : request_.num_nodes; }
  c10::Device device() const { return request_.graph ? graph().device() : request_.device; }

  bool is_given(std::string_view name) const { return request_.settings.contains(std::string(name)); }
  std::string text(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  std::uint64_t seed() const;
  double real(std::string_view name) const;
  bool flag(std::string_view name) const;
  template <class Value>
  Value word(std::string_view name) const {
    return parse_word<Value>(label(name), text(name));
  }
  // A setting that follows from the size of a tensor (dimension -1: the last), where that alone is given.
  std::int64_t integer_or_size(std::string_view setting_name, std::string_view parameter_name, int dimension,
                               std::int64_t less) const;

  bool has_parameter(std::string_view name) const { return given(name) != nullptr; }
  // The tensor that was given, [heads, ...] or [...] for every head, with the sizes of `start` but for one
  // dimension that may be free; else `start`, [1 or heads, ...], for every head.
  at::Tensor parameter(std::string_view name, const at::Tensor& start, int free_dimension = -1) const;
  // [heads], or one number for all of them.
  at::Tensor per_head(std::string_view name, double start) const;
  // f or alpha: terms 0 .. last of the setting `init`, which names a kernel or lists the terms themselves.
  at::Tensor series(std::string_view name, std::int64_t last, bool of_modulation) const;
  // f of walks: [heads, terms], or [heads, 2, terms] where the keys have their own.
  at::Tensor modulations(std::int64_t last, bool of_modulation) const;

 private:
  const at::Tensor* given(std::string_view parameter_name) const;  // null: it is not
  const MaskSetting& setting(std::string_view name) const;
  std::string_view shape_of(std::string_view parameter_name) const;
  at::Tensor terms_of(std::string_view setting_name, std::int64_t last, bool of_modulation) const;

  const MaskInfo& info_;
  const MaskRequest& request_;
};

}  // namespace topomask
