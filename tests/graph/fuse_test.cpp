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
  static constexpr const char* kKinds[] = {"kernel", "view", "join", "host"};
  std::string out;
  for (const KernelGroup& group : groups) {
    std::vector<std::string> nodes;
    for (NodeId id : group.nodes)
      nodes.push_back(text(g.node(id).op->name, id == group.anchor ? "*" : ""));
    out += text(kKinds[static_cast<int>(group.kind)], " ", join(nodes, " "), " (", names(group.inputs),
                ") -> ", names(group.outputs), "\n");
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

// The groups one after the other on one arena, every value in its place.
std::vector<Constant> run_in_arena(const Graph& g, const std::vector<KernelGroup>& groups,
                                   const std::vector<Constant>& inputs) {
  MemoryPlan plan = plan_memory(g, groups, std::vector<std::vector<int64_t>>(groups.size()));
  std::vector<std::byte> arena(static_cast<size_t>(plan.arena_bytes), std::byte{0x7f});
  std::vector<std::vector<std::byte>> outputs;
  for (ValueId v : g.outputs)
    outputs.emplace_back(static_cast<size_t>(bytes_of(g.value(v).type)));
  auto bytes = [&](ValueId v) -> std::span<const std::byte> {
    const Place& place = plan.places[static_cast<size_t>(v)];
    const auto at = static_cast<size_t>(place.index), size = static_cast<size_t>(bytes_of(g.value(v).type));
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
      const TensorType& type = g.value(v).type;
      arguments.push_back(Constant::copy_of(type.element, static_shape(type.shape), bytes(v)));
    }
    for (ValueId v : group.outputs)
      types.push_back(g.value(v).type);
    tensor::Func kernel = build_kernel(g, group);
    Result<std::vector<Constant>> results = evaluate(kernel, arguments, types);
    EXPECT_TRUE(results.ok()) << to_text(results.errors());
    for (size_t i = 0; i < group.outputs.size(); ++i) {
      std::span<const std::byte> to = bytes(group.outputs[i]);
      std::memcpy(const_cast<std::byte*>(to.data()), (*results)[i].bytes().data(), to.size());
    }
  }
  std::vector<Constant> results;
  for (ValueId v : g.outputs) {
    const TensorType& type = g.value(v).type;
    results.push_back(Constant::copy_of(type.element, static_shape(type.shape), bytes(v)));
  }
  return results;
}

class Fuse : public ::testing::TestWithParam<Case> {};

TEST_P(Fuse, ComputesTheGraphInItsArena) {
  const Case& c = GetParam();
  Graph g = parse_graph(c.graph);
  ASSERT_TRUE(verify(g).empty()) << verify(g)[0];
  std::vector<KernelGroup> groups = fuse(g);
  expect_runnable(g, groups);
  std::vector<Constant> inputs = random_inputs(g);
  Result<std::vector<Constant>> want = run_graph(g, inputs, interpreter_evaluator());
  ASSERT_TRUE(want.ok()) << to_text(want.errors());
  expect_close(run_in_arena(g, groups, inputs), *want, 0);
  MemoryPlan plan = plan_memory(g, groups, std::vector<std::vector<int64_t>>(groups.size()));
  expect_case(c, text(describe(g, groups), "arena ", plan.arena_bytes, " bytes\n"));
}

INSTANTIATE_TEST_SUITE_P(Data, Fuse, ::testing::ValuesIn(read_cases(data_path("fuse"))), test_name);

}  // namespace
}  // namespace mcc::graph::test
