// A value and what users call it, on the command line and in Python alike.
#pragma once

namespace topomask {

template <class Value>
struct Named {
  const char* name;
  Value value;
};

}  // namespace topomask
