#include "run_program.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace topomask::testing {

ProgramResult run_program(const std::vector<std::string>& arguments) {
  // Output goes to files, so that no amount of it can block the program.
  const TemporaryDirectory scratch;
  const std::string out = scratch.path("out"), err = scratch.path("err"), program = TOPOMASK_PROGRAM;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT, 0600);
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  const int failed = posix_spawn(&child, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) throw std::runtime_error("cannot start " + program);
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
