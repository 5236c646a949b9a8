// Small functions of the kinds that models are made of, to be scheduled by tests.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "tensor/stmt.h"

namespace mcc::tensor::test {

struct Workload {
  std::string name;
  Func func;
  std::vector<int64_t> dims;  // values of the symbolic dimensions
  bool exact = false;         // integers only: results must agree exactly
};

inline void PrintTo(const Workload& w, std::ostream* out) { *out << w.name; }

std::vector<Workload> all_workloads();

}  // namespace mcc::tensor::test
