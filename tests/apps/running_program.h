// The built program as a process of its own that a test may send signals to.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace topomask::testing {

class RunningProgram {
 public:
  // Its errors go to the file `err_path`, its output to `out_path`.
  RunningProgram(const std::vector<std::string>& arguments, const std::string& err_path,
                 const std::string& out_path = "/dev/null");
  ~RunningProgram();  // kills it if it still runs
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  pid_t process() const { return pid_; }
  std::vector<pid_t> children() const;  // that it has started and not yet waited for
  bool running();                       // reaps it if it has ended
  void send(int signal) const;
  int wait();  // exit status, or 128 + the signal that ended it
  // Until the condition holds or the program ends; false where it ended first.
  bool wait_until(const std::function<bool()>& condition);
  bool wait_for(std::chrono::milliseconds time);  // false where it ended first

 private:
  pid_t pid_;
  int status_ = -1;
  bool ended_ = false;
};

}  // namespace topomask::testing
