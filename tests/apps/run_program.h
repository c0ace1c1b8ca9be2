// Runs the built topomask program as a user would and collects what it says.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace topomask::testing {

struct ProgramResult {
  int status = -1;  // exit status, or 128 + the signal that ended it
  std::string out, err;

  nlohmann::json json() const { return nlohmann::json::parse(out); }  // throws unless `out` is one JSON value
};

ProgramResult run_program(const std::vector<std::string>& arguments);
// With --json; expects success and nothing on stderr.
nlohmann::json run_json(std::vector<std::string> arguments);
// Expects exit status 2, nothing on stdout, and one sentence on stderr that contains `message_part`.
void expect_rejected(const std::vector<std::string>& arguments, const std::string& message_part = "");

// A directory that disappears with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  std::string path(const std::string& name) const { return (directory_ / name).string(); }
  std::string write(const std::string& name, const std::string& content) const;  // the path

 private:
  std::filesystem::path directory_;
};

std::string read_whole_file(const std::string& path);

}  // namespace topomask::testing
