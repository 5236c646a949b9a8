// The machine on which kernels are measured: this one, or another one where a worker runs.
#pragma once

#include <string>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "tensor/target.h"

namespace mcc::tools {

struct Machine {
  std::string version;                  // of mcc there
  std::vector<tensor::Target> targets;  // what --target stands for there
  size_t measured = 0;                  // the one of them whose code is run: what suits its GPU best
  std::string gpu;                      // its name, for people; empty: kernels are for processors
  bool is_exclusive = false;            // the GPU serves one process at a time
  std::string assembler_problem;        // of a GPU: why there is none that suits it; empty if there is
  std::string cublaslt;                 // its version; empty: it is not there, or was not looked for
  double peak_gflops = 0;               // of one core of a processor, by a loop of multiply-adds

  const tensor::Target& target() const { return targets[measured]; }
};

// This machine; cuBLASLt is loaded to know whether it is there, and only if `looks_for_library`. An error (kind environment) where code for `target` cannot be run here.
Result<Machine> describe_machine(const std::string& target, bool looks_for_library);

nlohmann::json to_json(const Machine& machine);
// Nothing where it is no description, or one of no machine that there could be.
std::optional<Machine> parse_machine(const nlohmann::json& document);

}  // namespace mcc::tools
