// Models for GPUs whose shapes only a run knows, on a stand-in driver: grids, dimensions as arguments, memory that grows, graphs by shape.
#include "device_model.h"

namespace mcc::test {
namespace {

using ::testing::HasSubstr;

constexpr Quantity N = MCC_QUANTITY_OF_SLOT(0);

// As many elements as the grid has threads, three for each row; what is written says whether the dimension is that of the grid.
bool has_rows(const unsigned* grid, const unsigned* block, void* rows) {
  return *static_cast<int64_t*>(rows) * 3 == int64_t{grid[0]} * grid[1] * block[0];
}
void square_entry(const unsigned* grid, const unsigned* block, void** params) {
  for (unsigned i = 0; i < grid[0] * grid[1] * block[0]; ++i)
    floats_at(params, 1)[i] =
        has_rows(grid, block, params[2]) ? floats_at(params, 0)[i] * floats_at(params, 0)[i] : -1;
}
void next_entry(const unsigned* grid, const unsigned* block, void** params) {
  for (unsigned i = 0; i < grid[0] * grid[1] * block[0]; ++i)
    floats_at(params, 1)[i] = floats_at(params, 0)[i] + 1;
}

// y = x * x + 1 over [N, 3]: a block for each row; the product is in the arena, at a place that depends on N.
class DeviceShapes : public testing::Test {
 protected:
  void SetUp() override {
    fake().reset();
    fake().kernels = {{"square", {square_entry, 3}}, {"next", {next_entry, 2}}};
    model.plan.symbols = {{"N", 1, 100000}};
    model.plan.slot_count = 4;
    model.plan.graphs[0].code = {{MCC_SHAPE_mul, 1, N, 12, 0, ""},
                                 {MCC_SHAPE_ceildiv, 2, slot_quantity(1), 64, 0, ""},
                                 {MCC_SHAPE_mul, 3, slot_quantity(2), 64, 0, ""},
                                 {MCC_SHAPE_add, 4, slot_quantity(3), slot_quantity(3), 0, ""}};
    model.plan.slot_count = 5;
    model.plan.arena_size = slot_quantity(4);
    const uint32_t input = model.add_input("x", {N, 3}), output = model.add_output("y", {N, 3});
    const uint32_t product =
        model.add_value({"product", MCC_DTYPE_f32, {N, 3}, MCC_STORAGE_arena, 0, slot_quantity(3)});
    model.device = DeviceDesc{{kernel("square", {0, 1, MCC_DEVICE_DIM(0)}), kernel("next", {0, 1})}};
    add_node(0, {input, product});
    add_node(1, {product, output});
    for (DeviceKernelDesc& k : model.device->kernels)
      k.launches[0].grid = {MCC_DEVICE_DIM(1), 1, 1};
  }
  void TearDown() override { expect_nothing_held(); }

  void add_node(uint32_t target, std::vector<uint32_t> args) {
    PlanNode node;
    node.kind = MCC_NODE_device;
    node.target = target;
    node.args = std::move(args);
    node.output_count = 1;
    node.dims = {N, N};  // of the kernel's function; blocks
    node.name = target == 0 ? "square" : "next";
    model.plan.graphs[0].nodes.push_back(node);
  }

  // Of x = 1, 2, 3, ..: whether y is x * x + 1.
  void run(Session& session, int64_t n) {
    SCOPED_TRACE(n);
    x.resize(static_cast<size_t>(n * 3));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i % 100);
    session.set_input("x", x.data(), {n, 3});
    session.run();
    EXPECT_EQ(session.output(0).dims, (std::vector<int64_t>{n, 3}));
    EXPECT_EQ(floats(session.output(0)), expected());
  }
  std::vector<float> expected() const {
    std::vector<float> y;
    for (float value : x)
      y.push_back(value * value + 1);
    return y;
  }

  TestModel model;
  std::vector<float> x;
};

TEST_F(DeviceShapes, GridsAndMemoryFollowTheShapes) {
  const Model of(model.image());
  EXPECT_EQ(of.sizes().arena_bytes, -1);
  Session session(of);
  for (int64_t n : {1, 5, 1000, 3, 3, 8})
    run(session, n);
  EXPECT_EQ(fake().count("cuLaunchKernel square 1000x1x1 3x1x1 0"), 1);
  EXPECT_EQ(fake().count("cuLaunchKernel next 5x1x1 3x1x1 0"), 1);
}

TEST_F(DeviceShapes, ShapesThatComeAgainHaveGraphs) {
  Session session{Model(model.image())};
  run(session, 64);
  for (int i = 0; i < 3; ++i)
    for (int64_t n : {7, 9})
      run(session, n);
  EXPECT_EQ(fake().count("cuGraphInstantiateWithFlags"), 2);
  fake().calls.clear();
  for (int64_t n : {9, 7, 9})
    run(session, n);
  EXPECT_EQ(fake().count("cuGraphLaunch"), 3);
  EXPECT_EQ(fake().count("cuLaunchKernel"), 0);
  EXPECT_EQ(fake().count("cuMemAlloc"), 0);
}

// The arena of the graph is gone.
TEST_F(DeviceShapes, GraphsGoWithTheMemoryTheyWorkOn) {
  Session session{Model(model.image())};
  for (int i = 0; i < 3; ++i)
    run(session, 4);
  run(session, 5000);
  EXPECT_EQ(fake().graphs, 0);
  for (int i = 0; i < 3; ++i)
    run(session, 4);
  EXPECT_EQ(fake().graphs, 1);
}

TEST_F(DeviceShapes, MemoryOfTheGpuIsUsedInPlace) {
  Caller caller;
  SessionOptions options;
  options.cuda_stream = caller.stream;
  Session session{Model(model.image()), options};
  DeviceMemory in(session, 240), out(session, 240);
  for (int64_t n : {2, 20, 2, 2}) {
    x.assign(static_cast<size_t>(n * 3), static_cast<float>(n));
    in.copy(in.data, x.data(), x.size() * 4);
    session.set_input("x", static_cast<const float*>(in.data), {n, 3});
    session.set_output(0, Tensor{out.data, 240, MCC_DTYPE_f32, {}});
    session.run();
    EXPECT_EQ(session.output(0).data, out.data);
    std::vector<float> y(x.size());
    out.copy(y.data(), out.data, y.size() * 4);
    EXPECT_EQ(y, expected());
  }
  session.set_input("x", static_cast<const float*>(in.data), {2, 3});
  session.set_output(0, Tensor{out.data, 12, MCC_DTYPE_f32, {}});
  EXPECT_EQ(error_of([&] { session.run(); }), "output \"y\": needs 24 bytes, got memory of 12 bytes");
}

TEST_F(DeviceShapes, ACaptureHasShapesThatRanBefore) {
  Caller caller;
  SessionOptions options;
  options.cuda_stream = caller.stream;
  Session session{Model(model.image()), options};
  DeviceMemory in(session, 2400), out(session, 2400);
  auto set = [&](int64_t n) {
    session.set_input("x", static_cast<const float*>(in.data), {n, 3});
    session.set_output(0, Tensor{out.data, 2400, MCC_DTYPE_f32, {}});
  };
  set(20);
  session.run();
  runtime::CurrentContext current(caller.cuda, caller.context);
  ASSERT_EQ(caller.cuda.stream_synchronize(caller.stream), MCC_CU_SUCCESS);
  ASSERT_EQ(caller.cuda.capture_begin(caller.stream, MCC_CU_CAPTURE_THREAD_LOCAL), MCC_CU_SUCCESS);
  set(200);
  EXPECT_THAT(error_of([&] { session.run(); }), HasSubstr("run them once outside of the capture"));
  set(10);
  session.run();
  mcc_cu_graph graph = nullptr;
  ASSERT_EQ(caller.cuda.capture_end(caller.stream, &graph), MCC_CU_SUCCESS);
  caller.cuda.graph_destroy(graph);
  EXPECT_EQ(fake().count("cuLaunchKernel square 10x1x1"), 1);
}

TEST_F(DeviceShapes, SaysWhatIsTooLarge) {
  fake().memory = 100000;
  Session session{Model(model.image())};
  run(session, 5);
  x.assign(3 * 50000, 1);
  EXPECT_EQ(error_of([&] { session.set_input("x", x.data(), {50000, 3}); }),
            "out of memory on the GPU: 600000 bytes for an input");
  run(session, 6);
  x.assign(3 * 4000, 1);
  session.set_input("x", x.data(), {4000, 3});
  EXPECT_EQ(error_of([&] { session.run(); }),
            "out of memory on the GPU: 96000 bytes for the arena of intermediate tensors");
  run(session, 7);
}

TEST_F(DeviceShapes, GridsEndWhereAGpuEnds) {
  for (DeviceKernelDesc& k : model.device->kernels)
    k.launches[0].grid = {1, MCC_DEVICE_DIM(1), 1};
  Session session{Model(model.image())};
  run(session, 65535);
  x.assign(3 * 65536, 1);
  session.set_input("x", x.data(), {65536, 3});
  EXPECT_EQ(error_of([&] { session.run(); }),
            "node \"square\": with these shapes it has 65536 blocks along y, a GPU takes 65535");
  run(session, 3);
}

TEST_F(DeviceShapes, DimensionsHaveToBeThere) {
  const auto failure = [&] { return error_of([&] { Model of(model.image()); }); };
  EXPECT_EQ(failure(), "");
  std::vector<uint32_t>& arguments = model.device->kernels[0].launches[0].arguments;
  arguments[2] = MCC_DEVICE_DIM(2);
  EXPECT_EQ(failure(), "the model's code for GPUs is damaged: an argument of a launch");
  arguments[2] = MCC_DEVICE_DIM(0);
  model.device->kernels[1].launches[0].grid[2] = MCC_DEVICE_DIM(7);
  EXPECT_EQ(failure(), "the model's code for GPUs is damaged: the grid of a launch");
}

// As many steps as rows.
void count_entry(const unsigned*, const unsigned*, void** params) {
  floats_at(params, 0)[*static_cast<int64_t*>(params[1])] += 100;
}

TEST_F(DeviceShapes, LoopsHaveAsManyIterationsAsShapesSay) {
  fake().kernels["count"] = {count_entry, 2};
  DeviceKernelDesc& k = model.device->kernels[1];
  k.launches.push_back(kernel("count", {1, MCC_DEVICE_TURN}).launches[0]);
  k.launches[1].loop_launches = 1;
  k.launches[1].loop_turns = MCC_DEVICE_DIM(0);
  k.images[0].bytes = ptx("next") + ".visible .entry count(\n";
  Session session{Model(model.image())};
  for (int64_t n : {3, 1, 5, 5, 5, 3, 3}) {
    x.assign(static_cast<size_t>(n * 3), 2);
    session.set_input("x", x.data(), {n, 3});
    session.run();
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(static_cast<const float*>(session.output(0).data)[i], static_cast<int64_t>(i) < n ? 105 : 5)
          << n << " " << i;
  }
  mcc_launch_info info = {};
  info.struct_size = sizeof info;
  const Model of(model.image());
  ASSERT_EQ(mcc_model_node_launch(of.handle(), 1, 1, &info), MCC_OK);
  EXPECT_EQ(info.times, 0U);
}

TEST_F(DeviceShapes, TellsThatShapesDecideGrids) {
  const Model of(model.image());
  mcc_launch_info info = {};
  info.struct_size = sizeof info;
  ASSERT_EQ(mcc_model_node_launch(of.handle(), 0, 0, &info), MCC_OK);
  EXPECT_EQ(info.grid[0], MCC_BLOCKS_OF_RUN);
  EXPECT_EQ(info.grid[1], 1U);
}

}  // namespace
}  // namespace mcc::test
