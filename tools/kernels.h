// Kernels of a model: made from the fused groups, each distinct one scheduled, lowered and compiled once, in parallel.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "codegen/device.h"
#include "graph/passes/fuse.h"
#include "tensor/schedule/weight_order.h"
#include "tensor/workload.h"
#include "tools/driver.h"
#include "tools/provenance.h"
#include "tuner/decider.h"

namespace mcc::tools {

enum class ScheduleSource { rules, log_exact, log_picked, log_nearest, file };

// The code of a kernel for those GPUs of a list for which its schedule is the same.
struct DeviceVariant {
  std::string trace;
  std::vector<size_t> other_launches;  // how many for each other kind of runs (Chosen::others): the last ones
  codegen::DeviceCode code;            // its PTX is for the lowest of them
  std::string arch;                    // of the PTX
  std::vector<codegen::Cubin> cubins;  // one an architecture, or none
};

// A schedule for another GPU than the first of a list.
struct OtherSchedule {
  std::optional<tensor::Schedule> schedule;  // empty: the default rules decide
  ScheduleSource source = ScheduleSource::rules;
  std::string origin = kDefaultOrigin;
  std::vector<int64_t> sizes;
};

// Parameters of a kernel that may be in the same memory: an input of the model that nobody else reads, and the output that becomes of it.
struct InPlace {
  size_t input = 0, output = 0;
  graph::NodeId node = -1;  // that updates it
  tensor::Var flag;         // the last of the kernel's dimensions: 1 in the runs in which they are, else 0
};

struct Kernel {
  std::string symbol;
  std::string name;       // from its blocks, for people: "conv_bias_relu"
  std::string where;      // the nodes of one of its uses, for messages
  tensor::Func func;      // unscheduled
  std::vector<graph::OtherKernel> other_runs;  // the same in the runs in which conditions hold
  std::optional<InPlace> in_place;
  std::string text;       // its canonical text: the key
  std::string id;         // of the task: the text's hash, shortened
  tensor::Work work;
  int64_t uses = 0;
  // Filled in by choose_schedules; without it, the default rules decide.
  std::optional<tensor::Schedule> schedule;
  ScheduleSource source = ScheduleSource::rules;
  std::string origin = kDefaultOrigin;  // where the schedule is from, for people
  std::vector<int64_t> sizes;           // of the function's dimensions, at which it was found; of a log
  std::vector<OtherSchedule> others;  // for the GPUs of a list behind the first
  // Filled in by compile_kernels.
  std::vector<KernelSchedule> schedules;  // what was applied; those for GPUs in the order of the list, equal ones as one
  std::vector<tensor::WeightOrder> orders;  // in which it expects weights
  tuner::Point answers;  // to the questions that the default rules have for the first GPU of a list
  std::string refusal;  // why the chosen schedule was given up for the default one; empty if it was not
  codegen::KernelMemory memory;
  codegen::ObjectCode object;
  std::vector<DeviceVariant>
      device;  // of GPUs, instead of the object; the first is for the first of the list
};

// What kernels are compiled for. Of GPUs several: schedules are chosen for each, machine code is made for each.
struct KernelTargets {
  std::vector<tensor::Target> list;
  const codegen::Assembler* assembler = nullptr;  // null: no machine code
  const tensor::Target& first() const { return list.front(); }
};

struct KernelSet {
  std::vector<Kernel> kernels;
  std::vector<int> of_group;  // kernel of each group, -1 for views and host operators
};

KernelSet collect_kernels(const graph::Graph& graph, const std::vector<graph::KernelGroup>& groups);

// An output of the model that may be in the memory of an input.
struct SharedMemory {
  graph::ValueId input, output;
};
std::optional<SharedMemory> shared_memory(const Kernel& kernel, const graph::KernelGroup& group);

// How kernels are compiled: the same when they are tuned as when the model is made.
codegen::EmitOptions emit_options(const CompileOptions& options);

// Errors: those of all kernels.
Status compile_kernels(KernelSet& set, const KernelTargets& targets, const CompileOptions& options);

// Gives each group whose kernel expects weights in another order than the graph's copies in that order.
void order_weights(graph::Graph& graph, std::vector<graph::KernelGroup>& groups, const KernelSet& set);

}  // namespace mcc::tools
