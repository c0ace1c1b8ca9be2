#include "run_program.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>

#include "program.h"

namespace topomask::testing {

namespace {

// Loading torch takes half a second, and these tests run the program hundreds of times. So a copy of this
// process, which has torch already, becomes the program. A thread does not live on in a copy, and OpenMP
// would wait for it for ever: once there is one, the program is started from its file.
bool has_one_thread() {
  namespace fs = std::filesystem;
  return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator()) == 1;
}

void redirect(const char* path, int flags, int descriptor) {
  const int file = open(path, flags, 0600);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(127);
  close(file);
}

}  // namespace

ProgramResult run_program(const std::vector<std::string>& arguments) {
  // Output goes to files, so that no amount of it can block the program.
  const TemporaryDirectory scratch;
  const std::string out = scratch.path("out"), err = scratch.path("err"), program = TOPOMASK_PROGRAM;
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const bool becomes_program = has_one_thread();
  std::cout.flush();
  std::fflush(nullptr);  // or the copy would print it too
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("cannot start " + program);
  if (child == 0) {
    redirect("/dev/null", O_RDONLY, STDIN_FILENO);
    redirect(out.c_str(), O_WRONLY | O_CREAT, STDOUT_FILENO);
    redirect(err.c_str(), O_WRONLY | O_CREAT, STDERR_FILENO);
    if (becomes_program) std::exit(cli::run_program(static_cast<int>(argv.size()) - 1, argv.data()));
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_whole_file(out),
          read_whole_file(err)};
}

nlohmann::json run_json(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const ProgramResult result = run_program(arguments);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  return result.json();
}

void expect_rejected(const std::vector<std::string>& arguments, const std::string& message_part) {
  const ProgramResult result = run_program(arguments);
  const std::string command = ::testing::PrintToString(arguments);
  EXPECT_EQ(result.status, 2) << command << result.err;
  EXPECT_EQ(result.out, "") << command;
  EXPECT_TRUE(result.err.starts_with("topomask: ")) << command << result.err;
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << command << result.err;
  EXPECT_TRUE(result.err.ends_with("\n")) << command;
  EXPECT_GT(result.err.size(), 20u) << command << result.err;
  EXPECT_THAT(result.err, ::testing::HasSubstr(message_part)) << command;
}

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "topomask-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot create " + name);
  directory_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;  // a leftover file must not fail a test
  std::filesystem::remove_all(directory_, ignored);
}

std::string TemporaryDirectory::write(const std::string& name, const std::string& content) const {
  std::ofstream(path(name), std::ios::binary) << content;
  return path(name);
}

std::string read_whole_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace topomask::testing
