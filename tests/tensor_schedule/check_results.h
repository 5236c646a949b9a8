// Whether a function that was changed by schedules still does what it did: the interpreter's results, and the verifier's view.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tensor/schedule/weight_order.h"
#include "workloads.h"

namespace mcc::tensor::test {

using Bytes = std::vector<std::byte>;

// Runs f on random inputs of the workload, always the same, weights in the orders that f expects: the buffers, or the
// interpreter's complaint.
std::string run(const Workload& w, const Func& f, std::vector<Bytes>* buffers, const std::vector<WeightOrder>& orders = {});

// What is wrong with the scheduled function, or after lowering too; empty if nothing is. `expected` is from run() on the
// workload's own function.
std::string check_results(const Workload& w, const Func& scheduled, const std::vector<Bytes>& expected,
                          bool lowers, const std::vector<WeightOrder>& orders = {});

}  // namespace mcc::tensor::test
