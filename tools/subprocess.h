// This program once more, as a process of its own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "support/result.h"

namespace mcc::tools {

struct ProcessResult {
  int exit_code = -1;      // -1: ended by a signal
  int signal = 0;
  bool timed_out = false;  // and was killed
  std::string output;      // of stdout
};

// Runs mcc with these arguments; its stderr goes nowhere. An error: it could not be started.
Result<ProcessResult> run_self(const std::vector<std::string>& arguments, double timeout_seconds);

// A new empty folder, removed with what is in it when this goes.
class TemporaryFolder {
 public:
  static Result<TemporaryFolder> create();
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&& other) noexcept;
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace mcc::tools
