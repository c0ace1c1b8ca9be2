// Large arrays that are first touched by the threads that compute them.
//
// The system clears a page when it is first touched, which at millions of nodes takes as long as the
// arithmetic. A std::vector is filled by one thread before the others write their values.
#pragma once

#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace topomask {

// Leaves new elements without a value unless one is given.
template <class T>
struct UnfilledAllocator : std::allocator<T> {
  template <class Other>
  struct rebind {
    using other = UnfilledAllocator<Other>;
  };
  template <class Element, class... Arguments>
  void construct(Element* place, Arguments&&... arguments) {
    if constexpr (sizeof...(Arguments) == 0) {
      ::new (static_cast<void*>(place)) Element;
    } else {
      ::new (static_cast<void*>(place)) Element(std::forward<Arguments>(arguments)...);
    }
  }
};

// A vector whose elements have no value until they are written: resize() does not touch them.
template <class T>
using UnfilledVector = std::vector<T, UnfilledAllocator<T>>;

}  // namespace topomask
