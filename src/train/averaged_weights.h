// An exponential moving average of the weights, and evaluation with it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "topomask/parameters.h"

namespace topomask {

struct SafetensorsFile;

class AveragedWeights {
 public:
  // decay 0: there is no average, and all below does nothing.
  AveragedWeights(std::vector<NamedParameter> parameters, double decay);

  bool enabled() const { return decay_ > 0; }
  // After step `step` (from 0). Early averages forget faster: they would still be made of initial weights.
  void update(std::int64_t step);
  void save(std::map<std::string, at::Tensor>& tensors) const;  // "ema.NAME"
  void load(const SafetensorsFile& file, const std::string& path);
  void hand_over() const;  // the model gets the average, for good

  // The model has the averaged weights for as long as this lives.
  class Scope {
   public:
    explicit Scope(AveragedWeights& weights) : weights_(weights) { weights_.swap(); }
    ~Scope() { weights_.swap(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    AveragedWeights& weights_;
  };

 private:
  void swap();

  std::vector<NamedParameter> parameters_;
  double decay_;
  std::vector<at::Tensor> average_;
};

}  // namespace topomask
