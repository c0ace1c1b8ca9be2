// Sums of gradients over ranks, exchanged while the backward pass still computes others.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "topomask/distributed.h"
#include "topomask/parameters.h"

namespace topomask {

// Parameters are put into buckets from the last to the first, about as the backward pass meets them. As soon
// as all gradients of a bucket are there, its exchange begins. Each rank sums one part of a bucket in the
// order of ranks and sends the sums to all, so that every rank has the same bits. Where nothing is sent
// (Ranks::has_group) it does nothing.
class GradientReducer {
 public:
  static constexpr std::int64_t kBucketBytes = 4 << 20;

  GradientReducer(std::vector<NamedParameter> parameters, RanksPtr ranks,
                  std::int64_t bucket_bytes = kBucketBytes);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // Before the last backward pass of a step. Gradients of earlier ones are summed with it.
  void start();
  // After it: each parameter has the sum of its gradients. Where no rank has one, there is none.
  void finish();

  std::size_t num_buckets() const { return buckets_.size(); }
  std::size_t num_started() const { return started_; }  // buckets under way in this step

 private:
  struct Bucket {
    std::vector<std::size_t> members;  // parameters
    std::vector<std::int64_t> begin;   // where the gradient of each begins
    std::int64_t size = 0;             // of all gradients
    at::TensorOptions options;         // where the parameters are
    std::vector<std::int64_t> counts;  // what each rank sums of it
    std::size_t missing = 0;           // gradients that are not there yet
    at::Tensor values;                 // [size + members]: gradients, and 1 for each that is there
    Ranks::Pending parts, totals;
  };

  void arrive(std::size_t parameter);
  void start_complete();
  void start_totals(Bucket& bucket);

  std::vector<NamedParameter> parameters_;
  RanksPtr ranks_;
  std::vector<Bucket> buckets_;
  std::vector<std::pair<std::size_t, std::size_t>> place_;  // bucket of each parameter, and its number there
  std::vector<bool> there_;
  std::vector<std::function<void()>> remove_hooks_;
  std::size_t started_ = 0;
  bool active_ = false;
};

}  // namespace topomask
