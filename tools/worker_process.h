// A child process that is spoken to in lines. It ends when this one does, however that ends: its input closes.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "support/result.h"

namespace mcc::tools {

class WorkerProcess {
 public:
  // The program's path and its arguments.
  static Result<WorkerProcess> start(const std::vector<std::string>& command);

  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&&) = delete;
  ~WorkerProcess();  // ends the process

  pid_t pid() const { return pid_; }

  // False when the process does not take it.
  bool send(const std::string& line);

  enum class Received { line, timeout, closed };
  Received receive(std::string& line, double seconds);

  // Waits for the process and says how it ended: "killed by SIGSEGV", "ended with exit code 3".
  std::string end_text();
  void kill();  // and what it has started
  // The last of what it wrote to stderr.
  const std::string& complaints() const { return complaints_; }

 private:
  WorkerProcess() = default;
  void read_complaints();

  pid_t pid_ = -1;
  int to_ = -1, from_ = -1, errors_ = -1;
  std::string received_, complaints_;
  std::optional<int> status_;
};

}  // namespace mcc::tools
