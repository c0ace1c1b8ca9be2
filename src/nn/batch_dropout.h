// Dropout of a part of a batch as the whole batch would have it: for ranks that share batches.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace topomask {

// Samples `first` to `first + count` of a batch of `whole`.
struct SampleRange {
  std::int64_t first = 0, count = 0, whole = 0;
};

// On this thread, while it lives, the model sees this part of a batch.
class SampleRangeScope {
 public:
  explicit SampleRangeScope(const SampleRange& range);
  ~SampleRangeScope();
  SampleRangeScope(const SampleRangeScope&) = delete;
  SampleRangeScope& operator=(const SampleRangeScope&) = delete;

 private:
  SampleRange before_;
};

// at::dropout, which draws one number after the other. Of a part of a batch those of the whole batch are
// drawn and the part's are taken. x: [samples * k, ...], sample by sample
at::Tensor batch_dropout(const at::Tensor& x, double share, bool training);

}  // namespace topomask
