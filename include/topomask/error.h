// The one exception type that a caller's mistake raises.
//
// Its message is one sentence that names what was wrong, where, and what was expected; the command line
// prints it as it is and exits with status 2.
#pragma once

#include <stdexcept>
#include <string>

namespace topomask {

class Error : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

}  // namespace topomask
