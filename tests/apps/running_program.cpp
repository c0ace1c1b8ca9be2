#include "running_program.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

namespace topomask::testing {

using namespace std::chrono_literals;

RunningProgram::RunningProgram(const std::vector<std::string>& arguments, const std::string& err_path,
                               const std::string& out_path) {
  std::vector<std::string> words = {TOPOMASK_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    dup2(open(out_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDOUT_FILENO);
    dup2(open(err_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
}

RunningProgram::~RunningProgram() {
  if (running()) {
    send(SIGKILL);
    wait();
  }
}

std::vector<pid_t> RunningProgram::children() const {
  const std::string process = std::to_string(pid_);
  std::ifstream file("/proc/" + process + "/task/" + process + "/children");
  return {std::istream_iterator<pid_t>(file), {}};
}

bool RunningProgram::running() {
  if (!ended_ && waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
  return !ended_;
}

void RunningProgram::send(int signal) const {
  if (!ended_) kill(pid_, signal);
}

int RunningProgram::wait() {
  if (!ended_) waitpid(pid_, &status_, 0);
  ended_ = true;
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

bool RunningProgram::wait_until(const std::function<bool()>& condition) {
  while (running()) {
    if (condition()) return true;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

bool RunningProgram::wait_for(std::chrono::milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  return wait_until([&] { return std::chrono::steady_clock::now() >= end; });
}

}  // namespace topomask::testing
