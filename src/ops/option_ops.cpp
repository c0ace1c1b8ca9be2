// Options of the library for another language.
#include <torch/library.h>

#include "core/suggest.h"

namespace topomask::ops {
namespace {

std::string nearest_or_all_op(std::string_view name, const c10::List<std::string>& known) {
  return nearest_or_all(name, known.vec());
}

}  // namespace

TORCH_LIBRARY_IMPL(topomask, CompositeExplicitAutograd, m) {
  m.impl("nearest_or_all", nearest_or_all_op);
}

}  // namespace topomask::ops
