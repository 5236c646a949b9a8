// Models for GPUs whose sizes or course data decides, on a stand-in driver: what the host reads of tensors, memory that grows, outputs whose
// shapes are known in the end.
#include "device_model.h"

namespace mcc::test {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kCount = 0, kDouble = 1;

// count[0] = how many of the elements at the beginning of x[8] are not 0.
void count_entry(const unsigned* /*grid*/, const unsigned* /*block*/, void** params) {
  int64_t n = 0;
  while (n < 8 && floats_at(params, 0)[n] != 0)
    ++n;
  **static_cast<int64_t**>(params[1]) = n;
}
void double_entry(const unsigned* grid, const unsigned* block, void** params) {
  for (unsigned i = 0; i < grid[0] * block[0]; ++i)
    floats_at(params, 1)[i] = floats_at(params, 0)[i] * 2;
}

// y[n] = x[0..n] * 2 for as many elements as there are in front of the first 0; y lies in a block.
class DeviceWalk : public testing::Test {
 protected:
  void SetUp() override {
    fake().reset();
    fake().kernels = {{"count", {count_entry, 2}}, {"double", {double_entry, 2}}};
    model.plan.slot_count = 2;
    model.plan.heap_count = 1;
    model.plan.arena_size = 64;
    const uint32_t x = model.add_input("x", {8});
    const uint32_t count = model.add_value({"count", MCC_DTYPE_i64, {}, MCC_STORAGE_arena, 0, 0});
    y = model.add_value({"y", MCC_DTYPE_f32, {slot_quantity(0)}, MCC_STORAGE_heap, 0, 0});
    const uint32_t part = model.add_value({"x", MCC_DTYPE_f32, {slot_quantity(0)}, MCC_STORAGE_input, 0, 0});
    model.plan.graphs[0].outputs.push_back(y);
    model.device = DeviceDesc{{kernel("count", {0, 1}), kernel("double", {0, 1})}};
    model.device->is_walked = true;
    model.device->kernels[kCount].launches[0].grid = {1, 1, 1};
    model.device->kernels[kDouble].launches[0].grid = {MCC_DEVICE_DIM(0), 1, 1};
    model.device->kernels[kDouble].launches[0].block = {1, 1, 1};
    add_node(kCount, {x, count}, {});
    PlanNode sizes;
    sizes.kind = MCC_NODE_shape;
    sizes.name = "sizes";
    sizes.code = {{MCC_SHAPE_load, 0, count, 0, 0, ""},
                  {MCC_SHAPE_mul, 1, slot_quantity(0), 4, 0, ""},
                  {MCC_SHAPE_grow, MCC_PLAN_NONE, 0, slot_quantity(1), 0, "y"}};
    model.plan.graphs[0].nodes.push_back(sizes);
    add_node(kDouble, {part, y}, {slot_quantity(0)});
  }
  void TearDown() override { expect_nothing_held(); }

  void add_node(uint32_t target, std::vector<uint32_t> args, std::vector<Quantity> dims) {
    PlanNode node;
    node.kind = MCC_NODE_device;
    node.target = target;
    node.args = std::move(args);
    node.dims = std::move(dims);
    node.output_count = 1;
    node.name = target == kCount ? "count" : "double";
    model.plan.graphs[0].nodes.push_back(node);
  }

  void set(size_t n) {
    x.assign(8, 0);
    for (size_t i = 0; i < n; ++i)
      x[i] = static_cast<float>(i + 1);
  }
  std::vector<float> expected() const {
    std::vector<float> y;
    for (size_t i = 0; i < x.size() && x[i] != 0; ++i)
      y.push_back(x[i] * 2);
    return y;
  }
  void run(Session& session, size_t n) {
    SCOPED_TRACE(n);
    set(n);
    session.set_input("x", x.data(), {8});
    session.run();
    EXPECT_EQ(session.output(0).dims, (std::vector<int64_t>{static_cast<int64_t>(n)}));
    EXPECT_EQ(floats(session.output(0)), expected());
  }

  TestModel model;
  uint32_t y = 0;
  std::vector<float> x;
};

TEST_F(DeviceWalk, SizesAreReadInTheRun) {
  Session session{Model(model.image())};
  for (size_t n : {3, 8, 0, 1, 5})
    run(session, n);
  EXPECT_EQ(fake().count("cuLaunchKernel double 5x1x1"), 1);
  EXPECT_EQ(fake().count("cuGraphInstantiateWithFlags"), 0);
}

TEST_F(DeviceWalk, MemoryGrowsAndStays) {
  Session session{Model(model.image())};
  run(session, 8);
  fake().calls.clear();
  for (size_t n : {8, 2, 7, 0, 8})
    run(session, n);
  EXPECT_EQ(fake().count("cuMemAlloc"), 0);
  EXPECT_EQ(fake().count("cuMemHostAlloc"), 0);
}

TEST_F(DeviceWalk, WhatComesFirstIsAGraph) {
  // The count is made of a copy of x.
  model.plan.arena_size = 128;
  const uint32_t copy = model.add_value({"copy", MCC_DTYPE_f32, {8}, MCC_STORAGE_arena, 0, 64});
  std::vector<PlanNode>& nodes = model.plan.graphs[0].nodes;
  PlanNode first;
  first.kind = MCC_NODE_copy;
  first.args = {nodes[0].args[0], copy};
  first.output_count = 1;
  first.name = "copy";
  nodes[0].args[0] = copy;
  nodes.insert(nodes.begin(), first);
  Session session{Model(model.image())};
  for (size_t n : {3, 5})
    run(session, n);
  fake().calls.clear();
  for (size_t n : {0, 8, 4})
    run(session, n);
  EXPECT_EQ(fake().count("cuGraphLaunch"), 3);
  EXPECT_EQ(fake().count("cuLaunchKernel count"), 0);
  EXPECT_EQ(fake().count("cuLaunchKernel double"), 2);
}

TEST_F(DeviceWalk, ProfilesNodes) {
  Session session{Model(model.image())};
  mcc_session_set_profiling(session.handle(), 1);
  run(session, 3);
  run(session, 4);
  for (size_t n = 0; n < 3; ++n) {
    mcc_node_profile profile = {};
    profile.struct_size = sizeof profile;
    ASSERT_EQ(mcc_session_node_profile(session.handle(), n, &profile), MCC_OK);
    EXPECT_EQ(profile.executions, 2U);
  }
}

TEST_F(DeviceWalk, MemoryOfTheGpuIsUsedInPlace) {
  Caller caller;
  SessionOptions options;
  options.cuda_stream = caller.stream;
  Session session{Model(model.image()), options};
  DeviceMemory in(session, 32), out(session, 32);
  for (size_t n : {2, 8, 0}) {
    set(n);
    in.copy(in.data, x.data(), 32);
    session.set_input("x", static_cast<const float*>(in.data), {8});
    session.set_output(0, Tensor{out.data, 32, MCC_DTYPE_f32, {}});
    session.run();
    EXPECT_EQ(session.output(0).data, out.data);
    EXPECT_EQ(session.output(0).dims, (std::vector<int64_t>{static_cast<int64_t>(n)}));
    std::vector<float> y(n);
    out.copy(y.data(), out.data, n * 4);
    EXPECT_EQ(y, expected());
  }
  set(5);
  in.copy(in.data, x.data(), 32);
  session.set_output(0, Tensor{out.data, 12, MCC_DTYPE_f32, {}});
  EXPECT_EQ(error_of([&] { session.run(); }), "output \"y\": needs 20 bytes, got memory of 12 bytes");
}

TEST_F(DeviceWalk, IsNoPartOfACapture) {
  Caller caller;
  SessionOptions options;
  options.cuda_stream = caller.stream;
  Session session{Model(model.image()), options};
  DeviceMemory in(session, 32), out(session, 32);
  session.set_input("x", static_cast<const float*>(in.data), {8});
  session.set_output(0, Tensor{out.data, 32, MCC_DTYPE_f32, {}});
  runtime::CurrentContext current(caller.cuda, caller.context);
  ASSERT_EQ(caller.cuda.capture_begin(caller.stream, MCC_CU_CAPTURE_THREAD_LOCAL), MCC_CU_SUCCESS);
  EXPECT_THAT(error_of([&] { session.run(); }), HasSubstr("the stream is being captured: data decides"));
  mcc_cu_graph graph = nullptr;
  ASSERT_EQ(caller.cuda.capture_end(caller.stream, &graph), MCC_CU_SUCCESS);
  caller.cuda.graph_destroy(graph);
}

TEST_F(DeviceWalk, SaysWhatIsTooLarge) {
  model.plan.graphs[0].nodes[1].code[1].b = int64_t{1} << 40;
  Session session{Model(model.image())};
  set(3);
  session.set_input("x", x.data(), {8});
  EXPECT_EQ(error_of([&] { session.run(); }), "out of memory on the GPU: 3298534883328 bytes for y");
}

TEST_F(DeviceWalk, BranchesAndLoopsFollowTheData) {
  // y doubles in place as often as the count says, if the condition, which is the count's first byte, holds.
  const uint32_t condition = model.add_value({"go", MCC_DTYPE_bool, {}, MCC_STORAGE_arena, 0, 0});
  model.plan.graphs.resize(3);
  PlanNode loop;
  loop.kind = MCC_NODE_loop;
  loop.target = 1;
  loop.other = MCC_PLAN_NONE;
  loop.dims = {slot_quantity(0)};
  loop.name = "loop";
  model.plan.graphs[0].nodes.push_back(loop);
  PlanNode choice;
  choice.kind = MCC_NODE_if;
  choice.target = 2;
  choice.other = MCC_PLAN_NONE;
  choice.args = {condition};
  choice.name = "if";
  model.plan.graphs[1].nodes.push_back(choice);
  PlanNode twice = model.plan.graphs[0].nodes[2];
  twice.args = {y, y};
  model.plan.graphs[2].nodes.push_back(twice);
  Session session{Model(model.image())};
  for (size_t n : {2, 0, 3}) {
    set(n);
    session.set_input("x", x.data(), {8});
    session.run();
    std::vector<float> want = expected();
    for (float& value : want)
      value *= static_cast<float>(1 << n);
    EXPECT_EQ(floats(session.output(0)), want);
  }
}

TEST_F(DeviceWalk, PlansAreChecked) {
  const auto failure = [&] { return error_of([&] { Model of(model.image()); }); };
  EXPECT_EQ(failure(), "");
  model.device->is_walked = false;
  EXPECT_EQ(failure(), "the model's code for GPUs is damaged: it is for runs that no data decides");
  model.device->is_walked = true;
  model.plan.graphs[0].nodes[1].code[0].b = slot_quantity(1);
  EXPECT_EQ(failure(), "the model's plan is damaged: its shape code for a GPU");
  model.plan.graphs[0].nodes[1].code[0].b = 0;
  model.plan.graphs[0].code = {{MCC_SHAPE_load, 0, 1, 0, 0, ""}};
  EXPECT_EQ(failure(), "the model's plan is damaged: its shape code for a GPU");
}

}  // namespace
}  // namespace mcc::test
