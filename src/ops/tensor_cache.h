// What kernels derive from tensors that an operator is called with again and again: the long rows of a
// pattern on a GPU, the pairs of a product. Kept for as long as those tensors live and are not written to.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace topomask::ops {

template <class Value>
class TensorCache {
 public:
  // The value that belongs to these tensors, in this order; made where there is none yet.
  template <class Make>
  std::shared_ptr<Value> get(const std::vector<at::Tensor>& tensors, Make&& make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(entries_, [](const Entry& entry) { return entry.is_stale(); });
    for (const Entry& entry : entries_) {
      if (entry.is_of(tensors)) return entry.value;
    }
    Entry entry;
    for (const at::Tensor& tensor : tensors) {
      entry.keys.push_back({Weak(tensor.getIntrusivePtr()), version_of(tensor)});
    }
    entry.value = make();
    entries_.push_back(std::move(entry));
    return entries_.back().value;
  }

 private:
  using Weak = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Key {
    Weak tensor;
    std::int64_t version = 0;
  };
  struct Entry {
    std::vector<Key> keys;
    std::shared_ptr<Value> value;

    bool is_stale() const {
      for (const Key& key : keys) {
        if (key.tensor.expired()) return true;
      }
      return false;
    }
    bool is_of(const std::vector<at::Tensor>& tensors) const {
      if (tensors.size() != keys.size()) return false;
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (keys[i].tensor._unsafe_get_target() != tensors[i].unsafeGetTensorImpl() ||
            keys[i].version != version_of(tensors[i]))
          return false;
      }
      return true;
    }
  };

  static std::int64_t version_of(const at::Tensor& tensor) {
    return tensor.is_inference() ? 0 : static_cast<std::int64_t>(tensor._version());
  }

  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace topomask::ops
