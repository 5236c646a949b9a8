// Which groups run in branches and in loops: those that only one branch needs, and those that iterations change.
#include "graph/passes/regions.h"

#include <gtest/gtest.h>

#include "graph/op.h"
#include "graph/ops/control.h"
#include "graph/passes/plan_memory.h"

namespace mcc::graph {
namespace {

const TensorType kMatrix{ElementType::f32, make_shape(std::vector<int64_t>{4, 4})};
const TensorType kTruth{ElementType::boolean, {}};

struct Builder {
  Graph g;
  ValueId input(const std::string& name, const TensorType& type) {
    g.inputs.push_back(g.add_value(name, type));
    return g.inputs.back();
  }
  ValueId add(std::string_view op, const std::string& name, std::vector<ValueId> inputs,
              const TensorType& type, Attributes attributes = {}) {
    return g.node(g.add_node(*find_op("", op), name, std::move(inputs), std::move(attributes), {type}))
        .outputs[0];
  }
};

// The region of the group that makes the value.
ControlRegion region_of(const Graph& g, const std::vector<KernelGroup>& groups, ValueId v) {
  for (const KernelGroup& group : groups)
    for (NodeId n : group.nodes)
      if (n == g.value(v).producer) return group.region;
  ADD_FAILURE() << g.value(v).name << " is made by no group";
  return {};
}

TEST(Regions, WhatOneBranchNeedsAloneIsInIt) {
  Builder b;
  const ValueId c = b.input("c", kTruth), x = b.input("x", kMatrix);
  const ValueId both = b.add("MatMul", "both", {x, x}, kMatrix);
  const ValueId yes = b.add("MatMul", "yes", {both, x}, kMatrix),
                no = b.add("MatMul", "no", {x, both}, kMatrix);
  const NodeId choice = b.g.add_node(*find_op("mcc", "Choose"), "choice", {c, yes, no}, {}, {kMatrix});
  b.g.outputs = b.g.node(choice).outputs;
  const std::vector<KernelGroup> groups = fuse(b.g);
  EXPECT_EQ(region_of(b.g, groups, both), ControlRegion());
  EXPECT_EQ(region_of(b.g, groups, yes), (ControlRegion{choice, 0}));
  EXPECT_EQ(region_of(b.g, groups, no), (ControlRegion{choice, 1}));
  EXPECT_EQ(groups.back().kind, KernelGroup::Kind::control);
  // On a GPU both are computed, and chosen from.
  for (const KernelGroup& group : fuse(b.g, true))
    EXPECT_EQ(group.kind, KernelGroup::Kind::kernel);
}

// y = x; repeatedly: y = tanh(w w + y y)
struct Loop : Builder {
  ValueId squared, product, next;
  NodeId begin, end;
  Loop() {
    const ValueId goes_on = input("goes_on", kTruth), x = input("x", kMatrix), w = input("w", kMatrix);
    Attributes number, numbers;
    number.set("loop", int64_t{0});
    numbers.set("loop", int64_t{0});
    numbers.set("states", int64_t{1});
    begin = g.add_node(*find_op("mcc", "LoopBegin"), "begin", {goes_on, x}, number, {kTruth, kMatrix});
    const ValueId y = g.node(begin).outputs[1];
    squared = add("MatMul", "squared", {w, w}, kMatrix);
    product = add("MatMul", "product", {y, y}, kMatrix);
    next = add("Tanh", "next", {add("Add", "sum", {squared, product}, kMatrix)}, kMatrix);
    end = g.add_node(*find_op("mcc", "LoopEnd"), "end",
                     {g.add_constant("most", Constant::ints({3})), kNoValue, next}, numbers, {kMatrix});
    g.outputs = g.node(end).outputs;
  }
};

TEST(Regions, WhatIterationsDoNotChangeIsOutsideOfTheLoop) {
  const Loop loop;
  const std::vector<KernelGroup> groups = fuse(loop.g);
  EXPECT_EQ(region_of(loop.g, groups, loop.squared), ControlRegion());
  EXPECT_EQ(region_of(loop.g, groups, loop.product), (ControlRegion{loop.end, 0}));
  EXPECT_EQ(region_of(loop.g, groups, loop.next), (ControlRegion{loop.end, 0}));
}

TEST(Regions, MemoryFromOutsideIsThereForAllIterations) {
  const Loop loop;
  const std::vector<KernelGroup> groups = fuse(loop.g);
  const MemoryPlan plan = plan_memory(loop.g, groups, std::vector<std::vector<Expr>>(groups.size()));
  const auto place = [&](ValueId v) { return plan.places[static_cast<size_t>(v)].index; };
  const ValueId state = loop.g.node(loop.begin).outputs[1];
  EXPECT_NE(place(loop.squared), place(loop.next));
  EXPECT_NE(place(state), place(loop.next));
  EXPECT_NE(place(state), place(loop.squared));
}

}  // namespace
}  // namespace mcc::graph
