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

// A NaN or an infinity where numbers must be finite: in a caller's data, or in a model that has diverged.
class NotFinite : public Error {
 public:
  using Error::Error;
};

}  // namespace topomask
