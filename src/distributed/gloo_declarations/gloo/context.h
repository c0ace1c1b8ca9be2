// Torch's wheels hold Gloo, but not Gloo's headers. These files declare as much of it as torch's own
// ProcessGroupGloo.hpp names. Nothing here is defined, constructed or called: the layout of ProcessGroupGloo
// comes from torch's header, and pointers to these types are all that it keeps.
#pragma once

#include <chrono>
#include <memory>

namespace gloo {
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};
}  // namespace gloo
