// Memory for large arrays.
//
// The system clears a page when it is first touched. With pages of 4 kB that takes as long as the arithmetic
// on a graph of millions of nodes. Large arrays therefore ask for large pages, where the system hands them
// out on request, and are not filled when they are made: the threads that compute the values touch them
// first.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace topomask {

// A wish, for memory that is not touched yet; arrays of a few megabytes are left as they are.
void prefer_large_pages(void* data, std::size_t bytes);

// Leaves new elements without a value unless one is given.
template <class T>
struct LargeAllocator {
  using value_type = T;
  LargeAllocator() = default;
  template <class Other>
  LargeAllocator(const LargeAllocator<Other>&) noexcept {}  // NOLINT: allocators convert

  T* allocate(std::size_t count) {
    T* data = std::allocator<T>().allocate(count);
    prefer_large_pages(data, count * sizeof(T));
    return data;
  }
  void deallocate(T* data, std::size_t count) noexcept { std::allocator<T>().deallocate(data, count); }
  template <class Element, class... Arguments>
  void construct(Element* place, Arguments&&... arguments) {
    if constexpr (sizeof...(Arguments) == 0) {
      ::new (static_cast<void*>(place)) Element;
    } else {
      ::new (static_cast<void*>(place)) Element(std::forward<Arguments>(arguments)...);
    }
  }
  template <class Other>
  bool operator==(const LargeAllocator<Other>&) const noexcept {
    return true;
  }
};

// A vector whose elements have no value until they are written: resize() does not touch them.
template <class T>
using LargeVector = std::vector<T, LargeAllocator<T>>;

}  // namespace topomask
