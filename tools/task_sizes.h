// Which sizes of a model's open dimensions its kernels are listed, measured and compared at.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "support/result.h"

namespace mcc::tools {

struct TaskSizes {
  std::map<std::string, int64_t> by_name;     // those that times are of
  std::vector<tensor::Var> dims;              // of the model's inputs
  std::vector<std::vector<int64_t>> samples;  // of these: the sizes that times are of, others

  // What tensor::mark_samples takes; nothing for a function with a dimension that data decides.
  std::optional<std::vector<std::vector<int64_t>>> samples_of(const tensor::Func& f) const;
};

// What is not given gets the size that costs go by (tensor::typical_size). The others are smaller ones that no tile divides, where the model
// takes such.
// Errors (usage): a name that is no open dimension's, a size that the model does not take.
Result<TaskSizes> choose_task_sizes(const graph::Graph& graph, const std::map<std::string, int64_t>& given);

// "N=8" into sizes. Errors (usage).
Status parse_task_size(const std::string& spec, std::map<std::string, int64_t>& sizes);

// "N=8 T=128"
std::string sizes_text(const std::map<std::string, int64_t>& sizes);
// "2 kernels are left out: ..."
std::string of_data_text(int64_t kernels);

}  // namespace mcc::tools
