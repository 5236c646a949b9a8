// Test cases of operators, as text. A file holds cases, each a block of lines:
//
//   case concatenation along the last axis
//   op Concat                       (or domain.Op)
//   attr axis int 1                 (kinds: int, float, text, ints, floats, texts, tensor f32[1] 5)
//   in f32[2, 2] 1 2 3 4            (an input of the kernel)
//   const i64[1] 7                  (an input known at compile time)
//   none                            (an input that is left out)
//   out f32[2, 3] 1 2 5 3 4 6       (or `skip`: an output that is left out)
//   tolerance 1e-5                  (relative and absolute; 0 when absent)
//   error invalid axis 5 is out     (instead of outputs: kind, and what the message contains; the kinds are invalid
//                                    and unsupported; the number of outputs is then 1)
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace mcc::graph {

struct OpCase {
  struct Input {
    bool present = true, is_constant = false;
    Constant value;
  };
  std::string file, name, domain, op;
  int line = 0;
  Attributes attributes;
  std::vector<Input> inputs;
  std::vector<std::optional<Constant>> outputs;
  double tolerance = 0;
  std::string error_kind, error_text;  // empty: the case succeeds
};

// All cases of all *.txt files below the folder, in the order of file names. Throws std::runtime_error with the place
// on a malformed line.
std::vector<OpCase> read_op_cases(const std::string& folder);

}  // namespace mcc::graph
