// From an ONNX file to a model library: the one function that composes the layers.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "frontend/import.h"

namespace mcc::tools {

struct CompileOptions {
  std::string model_path;
  std::string output_path;
  std::string target = "cpu";
  frontend::ImportOptions import;
  int opt_level = 2;
  bool strict = false;
  bool fast_math = false;
  std::map<std::string, std::string> emit;  // "graph", "tensor", "llvm", "asm" -> folder
  std::string tune_log;
  int jobs = 0;  // kernels compiled at once; 0: all processors
  // Called now and then with what is being done and how far it is (0..1).
  std::function<void(const std::string& what, double fraction)> progress;
};

struct CompileReport {
  double seconds = 0;
  int64_t kernels = 0;  // compiled; the plan may call one several times
  int64_t nodes = 0;    // of the plan
  int64_t weight_bytes = 0;
  int64_t arena_bytes = 0;
  int64_t file_bytes = 0;
  std::string target;  // as resolved
};

Result<CompileReport> compile_model(const CompileOptions& options);

// One line for each kernel that tuning could improve: `mcc tasks`.
struct TaskInfo {
  std::string id;        // hash of the unscheduled function's text
  std::string name;      // what it is made of, for people
  int64_t count = 0;     // how often the model runs it
  int64_t flops = 0;     // of one run
  int64_t bytes = 0;
  std::vector<std::string> nodes;  // ONNX nodes
};
Result<std::vector<TaskInfo>> list_tasks(const CompileOptions& options);

}  // namespace mcc::tools
