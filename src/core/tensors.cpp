#include "core/tensors.h"

#include "core/check.h"
#include "core/large_pages.h"

namespace topomask {

at::Tensor large_empty(at::IntArrayRef sizes, const at::TensorOptions& options) {
  at::Tensor tensor = at::empty(sizes, options);
  if (tensor.is_cpu()) prefer_large_pages(tensor.mutable_data_ptr(), tensor.nbytes());
  return tensor;
}

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  return fmt::format("{} [{}] on {}", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "),
                     tensor.device().str());
}

bool is_index(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kInt || tensor.scalar_type() == at::kLong;
}

}  // namespace topomask
