// Decision trees as the attributes of ai.onnx.ml's operators describe them, and as the tables of mcc.Trees (graph/ops/mcc_trees.cpp).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/element_type.h"
#include "support/result.h"

namespace mcc::frontend {

enum class Aggregate { sum, average, min, max };

struct Forest {
  enum class Mode { leq, lt, gte, gt, eq, neq, member };
  // A node that asks, or a leaf, by its place in the list.
  struct Child {
    bool is_leaf = false;
    size_t index = 0;
  };
  struct Branch {
    Mode mode = Mode::leq;
    int64_t feature = 0;
    double value = 0;
    std::vector<double> members;  // of mode member: values for which the answer is yes
    bool missing_is_yes = false;
    Child yes, no;
  };
  struct Weight {
    int64_t target = 0;
    double value = 0;
  };
  std::vector<Branch> branches;
  std::vector<std::vector<Weight>> leaves;
  std::vector<Child> roots;
  int64_t targets = 1;
  Aggregate aggregate = Aggregate::sum;
  ElementType element = ElementType::f32;  // f32 or f64: in which values are compared and weights added
};

// What mcc.Trees takes. Every question is "at most?": others become such ones, with other thresholds, answers exchanged, or several of
// them. Trees that all have one target are sorted by it, where that leaves few gaps: a group for each target that some tree has.
struct TreeTables {
  int64_t groups = 1, trees = 0;      // roots: [groups, trees]
  std::vector<int32_t> roots, nodes;  // places, and words
  std::vector<double> thresholds;     // of each node, for f64
  int64_t width = 1;
  std::vector<double> weights;          // [rows, width]
  std::vector<int64_t> counts, depths;  // trees of each group in parts, shallow ones first
  // The result, one of groups * width, of each target; -1 of one that no tree has. Empty where they are the same.
  std::vector<int64_t> results;
  bool has_gaps =
      false;  // of the smallest or largest: some leaf says nothing of a target, and has its reducer's identity
};

// Errors name no node: a tree that runs into itself, one too deep, a table too large.
Result<TreeTables> tables_of(const Forest& forest);

}  // namespace mcc::frontend
