#include "train/gradient_reducer.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <memory>
#include <utility>

namespace topomask {

GradientReducer::GradientReducer(std::vector<NamedParameter> parameters, RanksPtr ranks,
                                 std::int64_t bucket_bytes)
    : parameters_(std::move(parameters)), ranks_(std::move(ranks)) {
  if (!ranks_->has_group()) return;
  place_.resize(parameters_.size());
  there_.resize(parameters_.size());
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    const at::Tensor& tensor = parameters_[i].tensor;
    const bool fits = !buckets_.empty() && buckets_.back().options.dtype() == tensor.dtype() &&
                      buckets_.back().options.device() == tensor.device() &&
                      (buckets_.back().size + tensor.numel()) * tensor.element_size() <= bucket_bytes;
    if (!fits) {
      buckets_.emplace_back();
      buckets_.back().options = at::TensorOptions().dtype(tensor.dtype()).device(tensor.device());
    }
    Bucket& bucket = buckets_.back();
    place_[i] = {buckets_.size() - 1, bucket.members.size()};
    bucket.members.push_back(i);
    bucket.begin.push_back(bucket.size);
    bucket.size += tensor.numel();
  }
  for (Bucket& bucket : buckets_) {
    const std::int64_t length = bucket.size + static_cast<std::int64_t>(bucket.members.size());
    for (std::int64_t r = 0, size = ranks_->size(); r < size; ++r)
      bucket.counts.push_back(length * (r + 1) / size - length * r / size);
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    // Called after the gradient has been accumulated. remove_hooks_ keeps the node alive; the tensor does
    // not.
    const auto node = torch::autograd::impl::grad_accumulator(parameters_[i].tensor);
    using List = torch::autograd::variable_list;
    const auto key = node->add_post_hook(
        std::make_unique<torch::autograd::utils::LambdaPostHook>([this, i](const List& outputs, const List&) {
          arrive(i);
          return outputs;
        }));
    remove_hooks_.push_back([node, key] { node->del_post_hook(key); });
  }
}

GradientReducer::~GradientReducer() {
  for (const auto& remove : remove_hooks_) remove();
}

void GradientReducer::start() {
  for (Bucket& bucket : buckets_) {
    bucket.missing = bucket.members.size();
    bucket.values = at::zeros({bucket.size + static_cast<std::int64_t>(bucket.missing)}, bucket.options);
  }
  there_.assign(there_.size(), false);
  started_ = 0;
  active_ = true;
}

void GradientReducer::arrive(std::size_t parameter) {
  if (!active_ || there_[parameter]) return;
  const at::NoGradGuard no_grad;
  there_[parameter] = true;
  const auto [number, place] = place_[parameter];
  Bucket& bucket = buckets_[number];
  if (const at::Tensor& gradient = parameters_[parameter].tensor.grad(); gradient.defined()) {
    bucket.values.narrow(0, bucket.begin[place], gradient.numel()).copy_(gradient.reshape({-1}));
    bucket.values[bucket.size + static_cast<std::int64_t>(place)].fill_(1);
  }
  if (--bucket.missing == 0) start_complete();
}

// In the order of buckets, whichever are complete first: every rank must start the same exchanges.
void GradientReducer::start_complete() {
  for (; started_ < buckets_.size() && buckets_[started_].missing == 0; ++started_) {
    Bucket& bucket = buckets_[started_];
    const std::vector<std::int64_t> own(bucket.counts.size(),
                                        bucket.counts[static_cast<std::size_t>(ranks_->rank())]);
    bucket.parts = ranks_->start_exchange(bucket.values, bucket.counts, own, "gradients");
    if (started_ > 0) start_totals(buckets_[started_ - 1]);
  }
}

void GradientReducer::start_totals(Bucket& bucket) {
  const std::int64_t size = ranks_->size();
  const at::Tensor parts = bucket.parts.wait().view({size, -1});
  at::Tensor total = parts[0].clone();
  for (std::int64_t r = 1; r < size; ++r) total.add_(parts[r]);
  const std::vector<std::int64_t> own(bucket.counts.size(), total.size(0));
  bucket.totals = ranks_->start_exchange(total.repeat({size}), own, bucket.counts, "gradients");
}

void GradientReducer::finish() {
  if (buckets_.empty()) return;
  const at::NoGradGuard no_grad;
  for (std::size_t i = parameters_.size(); i-- > 0;) arrive(i);  // those that this pass did not reach
  active_ = false;
  start_totals(buckets_.back());
  for (Bucket& bucket : buckets_) {
    bucket.values = at::Tensor();
    const at::Tensor totals = bucket.totals.wait();
    const at::Tensor found = totals.narrow(0, bucket.size, totals.size(0) - bucket.size).ne(0).cpu();
    const bool* on_some_rank = found.const_data_ptr<bool>();
    const at::Tensor gradients = totals.narrow(0, 0, bucket.size);
    for (std::size_t k = 0; k < bucket.members.size(); ++k) {
      const at::Tensor& tensor = parameters_[bucket.members[k]].tensor;
      tensor.mutable_grad() = on_some_rank[k]
                                  ? gradients.narrow(0, bucket.begin[k], tensor.numel()).view(tensor.sizes())
                                  : at::Tensor();
    }
  }
}

}  // namespace topomask
