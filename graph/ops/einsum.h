// Equations of Einsum, for the operator and for passes.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace mcc::graph {

// A dimension's name in an equation. Those under an ellipsis are numbered beyond the letters, counted from the last one, so that
// ellipses broadcast against each other.
using Label = int;
constexpr Label kEllipsis = 256;  // ellipsis label k stands for dimension k from the end

// The labels of each operand, and those of the output; a label that the output leaves out is summed over.
struct Equation {
  std::vector<std::vector<Label>> operands;
  std::vector<Label> output;
};

struct ParsedEquation {
  std::optional<Equation> equation;
  std::string error;  // where there is none
};

// Of operands with these ranks. Without "->" the output has the ellipsis and what occurs once.
ParsedEquation parse_equation(std::string text, const std::vector<int>& ranks);

// With a letter for each label.
std::string to_text(const Equation& equation);

}  // namespace mcc::graph
