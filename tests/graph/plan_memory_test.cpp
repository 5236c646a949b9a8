// The arena with tensors whose sizes have no bound: at every size those that live together lie apart, inside of it.
#include "graph/passes/plan_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "graph/elements.h"
#include "graph/op.h"
#include "tensor/simplify.h"
#include "tensor/sizes.h"
#include "tensor/visit.h"

namespace mcc::graph {
namespace {

struct Sized {
  int64_t offset, bytes;
  int first, last;  // groups
};

// Products of x [N, T, 8] with its transpose and with itself, so that sizes by N T and by N T T live together.
Graph growing_graph() {
  Graph g;
  const tensor::Var n = g.dim("N", {1, tensor::kLargestSize, 4}),
                    t = g.dim("@0", {1, tensor::kLargestSize, 128});
  const ValueId x = g.add_value("x", {ElementType::f32, {n, t, 8}});
  g.inputs = {x};
  const auto made = [&](const char* op, std::vector<ValueId> inputs, Shape shape,
                        Attributes attributes = {}) {
    const NodeId id = g.add_node(*find_op("", op), text("n", g.nodes.size()), std::move(inputs),
                                 std::move(attributes), {{ElementType::f32, std::move(shape)}});
    return g.node(id).outputs[0];
  };
  Attributes perm;
  perm.set("perm", std::vector<int64_t>{0, 2, 1});
  Attributes axis;
  axis.set("axis", int64_t{-1});
  ValueId rows = x;
  for (int i = 0; i < 3; ++i) {
    const ValueId turned = made("Transpose", {rows}, {n, 8, t}, perm);
    const ValueId scores = made("MatMul", {rows, turned}, {n, t, t});
    const ValueId weights = made("Softmax", {scores}, {n, t, t}, axis);
    const ValueId picked = made("MatMul", {weights, rows}, {n, t, 8});
    rows = made("Add", {picked, rows}, {n, t, 8});
  }
  const ValueId last = made("MatMul", {rows, made("Transpose", {x}, {n, 8, t}, perm)}, {n, t, t});
  g.outputs = {last};
  return g;
}

TEST(PlanMemory, TensorsWithoutABoundLieApartAtEverySize) {
  const Graph g = growing_graph();
  ASSERT_TRUE(verify(g).empty()) << verify(g)[0];
  const std::vector<KernelGroup> groups = fuse(g, false);
  std::vector<std::vector<Expr>> workspaces(groups.size());
  workspaces[1] = {tensor::thread_count() * (g.dims[1] * Expr(4)), Expr(1000)};
  const MemoryPlan plan = plan_memory(g, groups, workspaces, 2);
  for (const auto& [n, t, threads] :
       {std::array{1, 1, 1}, std::array{4, 128, 2}, std::array{1, 1000, 64}, std::array{500, 3, 8}}) {
    tensor::VarMap known{{g.dims[0].get(), n}, {g.dims[1].get(), t}, {tensor::thread_count().get(), threads}};
    const auto number = [&](const Expr& e) {
      int64_t value = -1;
      EXPECT_TRUE(tensor::as_int(tensor::simplify(tensor::substitute(e, known)), &value));
      return value;
    };
    for (const Computed& c : plan.computed)
      known[c.name.get()] = number(c.value);
    const auto offset = [&](const Place& p) { return p.index + (p.start.defined() ? number(p.start) : 0); };
    std::vector<Sized> all;
    for (size_t i = 0; i < groups.size(); ++i) {
      const int at = static_cast<int>(i);
      for (ValueId v : groups[i].outputs) {
        if (plan.places[static_cast<size_t>(v)].kind != Place::Kind::arena) continue;
        Sized s{offset(plan.places[static_cast<size_t>(v)]), number(planned_bytes(g, v)), at, at};
        for (size_t k = i; k < groups.size(); ++k)
          if (std::count(groups[k].inputs.begin(), groups[k].inputs.end(), v) > 0)
            s.last = static_cast<int>(k);
        all.push_back(s);
      }
      for (const Workspace& w : plan.workspaces[i])
        all.push_back({offset(w.place), number(w.bytes), at, at});
    }
    const int64_t arena = number(plan.arena_size);
    ASSERT_GE(all.size(), 6u);
    for (size_t a = 0; a < all.size(); ++a) {
      EXPECT_EQ(all[a].offset % 64, 0);
      EXPECT_LE(all[a].offset + all[a].bytes, arena);
      for (size_t b = a + 1; b < all.size(); ++b) {
        const bool meet = all[a].first <= all[b].last && all[b].first <= all[a].last;
        const bool is_in_place =
            all[a].last == all[b].first && all[a].offset == all[b].offset;  // read before it is written over
        const bool are_apart =
            all[a].offset + all[a].bytes <= all[b].offset || all[b].offset + all[b].bytes <= all[a].offset;
        EXPECT_TRUE(!meet || is_in_place || are_apart)
            << "N " << n << " T " << t << ": " << a << " and " << b;
      }
    }
    const bool is_typical = n == 4 && t == 128 && threads == 2;
    EXPECT_TRUE(!is_typical || arena == plan.arena_bytes) << arena;
  }
}

}  // namespace
}  // namespace mcc::graph
