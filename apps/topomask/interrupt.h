// Ctrl-C as a request: long work finishes its step, saves and leaves.
#pragma once

#include <stdexcept>
#include <string>

namespace topomask::cli {

// Thrown where a command was asked to stop and has left everything in order; what() says how to go on.
class Interrupted : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// While it lives, SIGINT and SIGTERM only set a flag. A second SIGINT ends the program at once.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  static bool requested();

 private:
  void (*interrupt_before_)(int);
  void (*terminate_before_)(int);
};

}  // namespace topomask::cli
