// Groups of nodes: which they are, that the kernels of the groups compute what the graph does, and that they do so from
// their places in the arena.
#include "graph/passes/fuse.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "graph/compare.h"
#include "graph/fold.h"
#include "graph/op.h"
#include "graph/passes/plan_memory.h"
#include "tensor/verify.h"

namespace mcc::graph::test {
namespace {

std::string describe(const Graph& g, const std::vector<KernelGroup>& groups) {
  auto names = [&](const std::vector<ValueId>& ids) {
    std::vector<std::string> out;
    for (ValueId v : ids)
      out.push_back(g.value(v).name);
    return join(out, ", ");
  };
  auto rows = [&](const KernelGroup& group) {
    std::string out;
    for (const auto& [v, part] : group.rows)
      out += text(", ", g.value(v).name, " in rows of ", part.pitch, " from ", part.first);
    return out;
  };
  static constexpr const char* kKinds[] = {"kernel", "view", "join", "host"};
  std::string out;
  for (const KernelGroup& group : groups) {
    std::vector<std::string> nodes;
    for (NodeId id : group.nodes)
      nodes.push_back(text(g.node(id).op->name, id == group.anchor ? "*" : ""));
    out += text(kKinds[static_cast<int>(group.kind)], " ", join(nodes, " "), " (", names(group.inputs),
                ") -> ", names(group.outputs), rows(group), "\n");
  }
  return out;
}

// Every live node is in one group, and no group reads what is not there yet.
void expect_runnable(const Graph& g, const std::vector<KernelGroup>& groups) {
  std::vector<bool> ready(g.values.size(), false);
  std::vector<int> times(g.nodes.size(), 0);
  for (ValueId v : g.inputs)
    ready[static_cast<size_t>(v)] = true;
  for (const KernelGroup& group : groups) {
    for (ValueId v : group.inputs)
      EXPECT_TRUE(ready[static_cast<size_t>(v)] || g.value(v).constant)
          << g.value(v).name << " is not there yet";
    for (ValueId v : group.outputs)
      ready[static_cast<size_t>(v)] = true;
    for (NodeId id : group.nodes)
      ++times[static_cast<size_t>(id)];
  }
  for (size_t n = 0; n < g.nodes.size(); ++n)
    EXPECT_EQ(times[n], g.nodes[n].dead ? 0 : 1) << g.nodes[n].name;
}

int64_t bytes_of(const TensorType& type) { return static_count(type.shape) * byte_size(type.element); }

// What a kernel has for the value: the wider tensor whose rows it is a part of, if it is one.
TensorType parameter(const Graph& g, const KernelGroup& group, ValueId v) {
  TensorType type = g.value(v).type;
  auto rows = group.rows.find(v);
  if (rows != group.rows.end()) type.shape.back() = Expr(rows->second.pitch);
  return type;
}

// Of a result, what the kernel writes.
void copy_written(const Graph& g, const KernelGroup& group, ValueId v, std::span<const std::byte> result, std::span<const std::byte> to) {
  const TensorType &type = g.value(v).type, whole = parameter(g, group, v);
  auto rows = group.rows.find(v);
  const int64_t size = byte_size(type.element), pitch = static_shape(whole.shape).back() * size;
  const int64_t width = static_shape(type.shape).back() * size;
  const int64_t first = rows == group.rows.end() ? 0 : rows->second.first * size;
  for (int64_t at = first; at < static_cast<int64_t>(to.size()); at += pitch)
    std::memcpy(const_cast<std::byte*>(to.data()) + at, result.data() + at, static_cast<size_t>(width));
}

// The groups one after the other on one arena, every value in its place.
std::vector<Constant> run_in_arena(const Graph& g, const std::vector<KernelGroup>& groups,
                                   const std::vector<Constant>& inputs) {
  MemoryPlan plan = plan_memory(g, groups, std::vector<std::vector<Expr>>(groups.size()));
  std::vector<std::byte> arena(static_cast<size_t>(plan.arena_bytes), std::byte{0x7f});
  std::vector<std::vector<std::byte>> outputs;
  for (ValueId v : g.outputs)
    outputs.emplace_back(static_cast<size_t>(bytes_of(g.value(v).type)));
  auto bytes = [&](ValueId v, const TensorType& type) -> std::span<const std::byte> {
    const Place& place = plan.places[static_cast<size_t>(v)];
    const auto at = static_cast<size_t>(place.index), size = static_cast<size_t>(bytes_of(type));
    auto part = [&](std::span<const std::byte> all) { return all.subspan(static_cast<size_t>(place.offset), size); };
    switch (place.kind) {
      case Place::Kind::constant:
        return part(g.value(place.index).constant->bytes());
      case Place::Kind::input:
        return part(inputs[at].bytes());
      case Place::Kind::output:
        return part(outputs[at]);
      case Place::Kind::arena:
        return std::span<const std::byte>(arena).subspan(at, size);
      case Place::Kind::none:
        break;
    }
    ADD_FAILURE() << g.value(v).name << " has no place";
    return {};
  };
  Evaluator evaluate = interpreter_evaluator();
  for (const KernelGroup& group : groups) {
    if (group.kind != KernelGroup::Kind::kernel) continue;
    std::vector<Constant> arguments;
    std::vector<TensorType> types;
    for (ValueId v : group.inputs) {
      const TensorType type = parameter(g, group, v);
      arguments.push_back(Constant::copy_of(type.element, static_shape(type.shape), bytes(v, type)));
    }
    for (ValueId v : group.outputs)
      types.push_back(parameter(g, group, v));
    tensor::Func kernel = build_kernel(g, group);
    Result<std::vector<Constant>> results = evaluate(kernel, arguments, types);
    EXPECT_TRUE(results.ok()) << to_text(results.errors());
    for (size_t i = 0; i < group.outputs.size(); ++i) {
      const ValueId v = group.outputs[i];
      copy_written(g, group, v, (*results)[i].bytes(), bytes(v, types[i]));
    }
  }
  std::vector<Constant> results;
  for (ValueId v : g.outputs) {
    const TensorType& type = g.value(v).type;
    results.push_back(Constant::copy_of(type.element, static_shape(type.shape), bytes(v, type)));
  }
  return results;
}

class Fuse : public ::testing::TestWithParam<Case> {};

TEST_P(Fuse, ComputesTheGraphInItsArena) {
  const Case& c = GetParam();
  Graph g = parse_graph(c.graph);
  ASSERT_TRUE(verify(g).empty()) << verify(g)[0];
  const bool in_rows = std::find(c.options.begin(), c.options.end(), "rows") != c.options.end();
  std::vector<KernelGroup> groups = fuse(g, in_rows);
  expect_runnable(g, groups);
  std::vector<Constant> inputs = random_inputs(g);
  Result<std::vector<Constant>> want = run_graph(g, inputs, interpreter_evaluator());
  ASSERT_TRUE(want.ok()) << to_text(want.errors());
  expect_close(run_in_arena(g, groups, inputs), *want, 0);
  MemoryPlan plan = plan_memory(g, groups, std::vector<std::vector<Expr>>(groups.size()));
  expect_case(c, text(describe(g, groups), "arena ", plan.arena_bytes, " bytes\n"));
}

INSTANTIATE_TEST_SUITE_P(Data, Fuse, ::testing::ValuesIn(read_cases(data_path("fuse"))), test_name);

// Kernels are walked recursively, and compiled in more than linear time.
TEST(Groups, OfLongChainsAreSeveral) {
  std::string source = "graph g(%x: f32[4]) {\n  %y0 = Sin(%x)\n";
  for (int i = 1; i < 1024; ++i)
    source += text("  %y", i, i % 2 == 0 ? " = Sin(%y" : " = Add(%x, %y", i - 1, ")\n");
  const Graph g = parse_graph(source + "  return %y1023\n}\n");
  const std::vector<KernelGroup> groups = fuse(g, false);
  expect_runnable(g, groups);
  EXPECT_EQ(groups.size(), 8U);
  for (const KernelGroup& group : groups)
    EXPECT_EQ(group.nodes.size(), 128U);
}

// Paths that part behind a product and meet again, each through a function of many operands: a kernel's parameters are limited.
TEST(Groups, OfManyOperandsAreSeveral) {
  std::string parameters = "%x: f32[3, 4], %w: f32[4, 5]", nodes = "  %m = MatMul(%x, %w)\n", paths;
  for (int k = 0; k < 12; ++k) {
    std::string operands;
    for (int i = 0; i < 60; ++i) {
      parameters += text(", %a", k, "_", i, ": f32[3, 5]");
      operands += text(", %a", k, "_", i);
    }
    nodes += text("  %s", k, " = Sum(%m", operands, ")\n");
    paths += text(k == 0 ? "" : ", ", "%s", k);
  }
  const Graph g =
      parse_graph(text("graph g(", parameters, ") {\n", nodes, "  %y = Max(", paths, ")\n  return %y\n}\n"));
  const std::vector<KernelGroup> groups = fuse(g, false);
  expect_runnable(g, groups);
  for (const KernelGroup& group : groups)
    EXPECT_LE(group.inputs.size(), 129U);
}

}  // namespace
}  // namespace mcc::graph::test
