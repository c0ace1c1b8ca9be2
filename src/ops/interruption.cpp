// Ctrl-C in Python ends a long operator: it asks Python for signals every now and then (core/interruption.h).
//
// The operators are not linked against Python, so its functions are looked up where there is one.
#include "core/interruption.h"

#include <dlfcn.h>

#include <stdexcept>

// As pybind11 has it, by which torch calls operators: an exception that knows how to set Python's error.
// Where a caller does not know it, it is a RuntimeError like any other.
namespace pybind11 {
class [[gnu::visibility("default")]] builtin_exception : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  virtual void set_error() const = 0;
};
}  // namespace pybind11

namespace topomask::ops {
namespace {

// Python has set its own error already: a KeyboardInterrupt, or whatever the handler of the signal raised.
class PythonSignal final : public pybind11::builtin_exception {
 public:
  PythonSignal() : builtin_exception("topomask: interrupted") {}
  void set_error() const override {}
};

template <class Function>
Function* python_function(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

void raise_signals() {
  static auto* const ensure = python_function<int()>("PyGILState_Ensure");
  static auto* const release = python_function<void(int)>("PyGILState_Release");
  static auto* const check_signals = python_function<int()>("PyErr_CheckSignals");
  const int state = ensure();
  const int raised = check_signals();
  release(state);
  if (raised != 0) throw PythonSignal();
}

[[maybe_unused]] const bool hook_is_set = [] {
  const bool has_python = python_function<int()>("PyGILState_Ensure") != nullptr &&
                          python_function<void(int)>("PyGILState_Release") != nullptr &&
                          python_function<int()>("PyErr_CheckSignals") != nullptr;
  if (has_python) set_interruption_hook(raise_signals);
  return has_python;
}();

}  // namespace
}  // namespace topomask::ops
