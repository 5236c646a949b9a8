// Graphs as text, for tests: what graph::to_text prints, without the types of nodes' outputs, which are inferred.
//
//   graph g(%x: f32[1, 4], %m: boolean[4]) {
//     %c: f32[4] = [1, 2, 3, 4]            a constant with its values
//     %w: f32[8, 4] random                 values between -1 and 1 that depend on its name alone
//     %v: f32[8] random 0.5 2              between two bounds
//     %y, _ = Op(%x, _, %c) {axis = 1, perm = [0, 1], mode = "linear", alpha = 0.5}
//     %z = mcc.Pack(%y) {block = 4}        an operator of another domain
//     return %z
//   }
//
// A node is named after its first output that is not left out, in messages and in its origins.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace mcc::graph::test {

// Throws std::runtime_error with the line on a malformed one.
Graph parse_graph(const std::string& text);

// A tensor whose elements depend on seed alone: floats between low and high, integers in [0, 3], booleans.
Constant random_constant(const TensorType& type, const std::string& seed, double low = -1, double high = 1);
// One for each input of the graph, by their names.
std::vector<Constant> random_inputs(const Graph& graph);

// One case of a file: lines "== name" and "option ...", a graph, a line "--", and what is expected.
struct Case {
  std::string file, name;
  std::vector<std::string> options;
  std::string graph, expected;
};
inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
std::vector<Case> read_cases(const std::string& path);
// The file with other expectations.
void write_cases(const std::string& path, const std::vector<Case>& cases);

}  // namespace mcc::graph::test
