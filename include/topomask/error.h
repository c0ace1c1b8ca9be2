// The one exception type for a caller's mistake.
//
// Its message is one sentence that says what was wrong, where, and what was expected; the command line prints
// it unchanged and exits with status 2.
#pragma once

#include <stdexcept>
#include <string>

namespace topomask {

class Error : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

}  // namespace topomask
