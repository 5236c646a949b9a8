// The kernels of a small graph, as compiling a model makes them.
#pragma once

#include <string>
#include <vector>

#include "graph/graph_text.h"
#include "graph/passes/fuse.h"
#include "graph/passes/passes.h"
#include "schedules/run_func.h"
#include "tensor/passes/merge_axes.h"

namespace mcc::test {

inline graph::Graph optimized(const std::string& source, const tensor::Target& target,
                              ElementType precision) {
  graph::Graph g = graph::test::parse_graph(source);
  graph::OptimizeOptions options;
  options.target = target;
  options.precision = precision;
  options.evaluate = graph::interpreter_evaluator();
  Status status = graph::optimize(g, options);
  EXPECT_TRUE(status.ok()) << to_text(status.errors());
  return g;
}

// Unscheduled, in the order in which they run.
inline std::vector<tensor::Func> kernels_of(const std::string& source, const tensor::Target& target,
                                            ElementType precision = ElementType::f32) {
  const graph::Graph g = optimized(source, target, precision);
  std::vector<tensor::Func> kernels;
  for (const graph::KernelGroup& group : graph::fuse(g, target.kind == tensor::TargetKind::cuda)) {
    if (group.kind == graph::KernelGroup::Kind::kernel)
      kernels.push_back(tensor::merge_axes(graph::build_kernel(g, group)));
  }
  return kernels;
}

}  // namespace mcc::test
