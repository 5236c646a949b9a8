// Shapes that only a run knows: symbols, shape code, sub-graphs, host functions.
#include <cstdio>

#include "runtime/test_model.h"

namespace mcc::test {
namespace {

constexpr Quantity N = MCC_QUANTITY_OF_SLOT(0);

// y = x * x2 + 1 with both inputs [N, 3]; the product is at a symbolic place of an arena of symbolic size.
void make_symbolic(TestModel& model) {
  model.plan.symbols = {{"N", 1, 1000}};
  model.plan.slot_count = 5;
  model.plan.graphs[0].code = {{MCC_SHAPE_mul, 1, N, 12, 0, ""},
                               {MCC_SHAPE_ceildiv, 2, slot_quantity(1), 64, 0, ""},
                               {MCC_SHAPE_mul, 3, slot_quantity(2), 64, 0, ""},
                               {MCC_SHAPE_add, 4, slot_quantity(3), slot_quantity(3), 0, ""}};
  model.plan.arena_size = slot_quantity(4);
  const uint32_t x = model.add_input("x", {N, 3});
  const uint32_t x2 = model.add_input("x2", {N, 3});
  const uint32_t y = model.add_output("y", {N, 3});
  const uint32_t product =
      model.add_value({"product", MCC_DTYPE_f32, {N, 3}, MCC_STORAGE_arena, 0, slot_quantity(3)});
  model.plan.slot_count = 6;
  model.plan.graphs[0].code.push_back({MCC_SHAPE_mul, 5, N, 3, 0, ""});
  model.add_kernel("multiply", multiply, {x, x2, product}, {slot_quantity(5)}).flops = slot_quantity(5);
  model.add_kernel("increment", increment, {product, y}, {slot_quantity(5)});
}

struct Symbolic : testing::Test {
  Symbolic() { make_symbolic(description); }
  TestModel description;
};

TEST_F(Symbolic, FollowsTheShapesOfItsInputs) {
  const Model model(description.image());
  EXPECT_EQ(model.sizes().arena_bytes, -1);
  Session session(model, {.threads = 1, .profile = true});
  for (int64_t n : {1, 5, 1000, 3, 3, 8}) {
    const std::vector<float> x(static_cast<size_t>(n * 3), 2), x2(static_cast<size_t>(n * 3), 4);
    session.set_input("x", x.data(), {n, 3});
    session.set_input("x2", x2.data(), {n, 3});
    session.run();
    EXPECT_EQ(session.output(0).dims, (std::vector<int64_t>{n, 3}));
    EXPECT_EQ(floats(session.output(0)), std::vector<float>(static_cast<size_t>(n * 3), 9));
    EXPECT_EQ(session.profile()[0].times.flops, n * 3);
  }
}

TEST_F(Symbolic, FollowsNewPointersOfTheSameShape) {
  const Model model(description.image());
  Session session(model, {.threads = 1});
  const std::vector<float> a(6, 1), b(6, 2);
  std::vector<float> y(6), other_y(6);
  session.set_input(0, a.data(), {2, 3});
  session.set_input(1, b.data(), {2, 3});
  session.set_output(0, y.data(), {2, 3});
  session.run();
  EXPECT_EQ(y, std::vector<float>(6, 3));
  session.set_input(0, b.data(), {2, 3});
  session.set_output(0, other_y.data(), {2, 3});
  session.run();
  EXPECT_EQ(other_y, std::vector<float>(6, 5));
  EXPECT_EQ(y, std::vector<float>(6, 3));
}

TEST_F(Symbolic, SaysWhatIsWrong) {
  const Model model(description.image());
  Session session(model, {.threads = 1});
  const std::vector<float> x(3003, 1);
  EXPECT_EQ(error_of([&] { session.set_input(0, x.data(), {2, 4}); }),
            "input \"x\": expected shape Nx3, got 2x4");
  EXPECT_EQ(error_of([&] { session.set_input(0, x.data(), {1001, 3}); }),
            "input \"x\": dimension 0 (\"N\") must be between 1 and 1000, got 1001");
  session.set_input(0, x.data(), {2, 3});
  session.set_input(1, x.data(), {4, 3});
  EXPECT_EQ(error_of([&] { session.run(); }),
            "input \"x2\": dimension 0 is 4, but \"N\" is 2 in an input before it");
  session.set_input(1, x.data(), {2, 3});
  session.run();
  std::vector<float> y(6);
  session.set_output(0, {y.data(), 24, MCC_DTYPE_f32, {}});
  session.run();
  EXPECT_EQ(y, std::vector<float>(6, 2));
  session.set_input(0, x.data(), {3, 3});
  session.set_input(1, x.data(), {3, 3});
  EXPECT_EQ(error_of([&] { session.run(); }), "output \"y\": needs 36 bytes, got memory of 24 bytes");
}

// z is as long as it is true that y is in the memory of x; a kernel that only adds to x needs no place of its own.
struct InPlace : testing::Test {
  InPlace() {
    description.plan.symbols = {{"N", 1, 1000}};
    description.plan.slot_count = 2;
    const uint32_t x = description.add_input("x", {N});
    description.add_input("other", {N});
    const uint32_t y = description.add_output("y", {N});
    const uint32_t z = description.add_output("z", {slot_quantity(1)});
    description.plan.graphs[0].code = {{MCC_SHAPE_same, 1, 0, 0, 0, ""}};
    description.add_kernel("increment", increment, {x, y}, {N});
    description.add_kernel("increment", increment, {x, z}, {slot_quantity(1)});
    description.plan.metadata["output.y.in_place"] = "x";
  }
  TestModel description;
};

TEST_F(InPlace, IsSeenWhereverMemoryComesFrom) {
  const Model model(description.image());
  Session session(model, {.threads = 1});
  std::vector<float> a(4, 1), b(4, 5), y(4), small(4);
  auto run = [&] {
    session.run();
    return session.output(1).dims[0];
  };
  session.set_input(0, a.data(), {4});
  session.set_input(1, b.data(), {4});
  EXPECT_EQ(run(), 0);
  session.set_output(0, a.data(), {4});
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(a, std::vector<float>(4, 2));
  session.set_output(0, y.data(), {4});
  EXPECT_EQ(run(), 0);
  session.set_input(0, y.data(), {4});
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(y, std::vector<float>(4, 4));
  session.set_input(0, b.data(), {4});
  EXPECT_EQ(run(), 0);
}

TEST_F(InPlace, IsForTheInputThatIsUpdated) {
  const Model model(description.image());
  Session session(model, {.threads = 1});
  std::vector<float> a(4, 1), b(4, 5);
  session.set_input(0, a.data(), {4});
  session.set_input(1, b.data(), {4});
  session.set_output(0, b.data(), {4});
  EXPECT_EQ(error_of([&] { session.run(); }),
            "output \"y\" is in the memory of input \"other\", which the model does not update there: it "
            "needs memory of its own");
  session.set_output(0, a.data(), {4});
  session.run();
  EXPECT_EQ(a, std::vector<float>(4, 2));
}

TEST_F(Symbolic, SaysShapesBeforeTheRun) {
  const Model model(description.image());
  Session session(model, {.threads = 1});
  const std::vector<float> x(3000, 1);
  EXPECT_EQ(error_of([&] { session.next_output_shape(0); }), "input \"x\" is not set");
  EXPECT_EQ(error_of([&] { session.next_output_shape(1); }), "there is no output 1: the model has 1");
  for (int64_t n : {5, 1000, 2}) {
    session.set_input(0, x.data(), {n, 3});
    session.set_input(1, x.data(), {n, 3});
    EXPECT_EQ((session.next_output_shape(0).array<2>()), (std::array<int64_t, 2>{n, 3}));
    std::vector<float> y(static_cast<size_t>(n) * 3);
    session.set_output_memory(0, y.data(), y.size() * sizeof(float));
    session.run();
    EXPECT_EQ(y, std::vector<float>(y.size(), 2));
  }
  session.set_output_memory(0, nullptr, 0);
  session.run();
  EXPECT_EQ((session.output_shape(0).array<2>()), (std::array<int64_t, 2>{2, 3}));
  EXPECT_EQ(floats(session.output(0)), std::vector<float>(6, 2));
  session.set_input(1, x.data(), {3, 3});
  EXPECT_EQ(error_of([&] { session.next_output_shape(0); }),
            "input \"x2\": dimension 0 is 3, but \"N\" is 2 in an input before it");
}

TEST_F(Symbolic, ChecksTheCallersArena) {
  const Model model(description.image());
  alignas(64) unsigned char arena[128];
  Session session(model, {.threads = 1, .arena = arena, .arena_size = sizeof arena});
  const std::vector<float> x(30, 1);
  session.set_input(0, x.data(), {5, 3});
  session.set_input(1, x.data(), {5, 3});
  session.run();
  EXPECT_EQ(floats(session.output(0)), std::vector<float>(15, 2));
  session.set_input(0, x.data(), {10, 3});
  session.set_input(1, x.data(), {10, 3});
  EXPECT_EQ(error_of([&] { session.run(); }), "the arena needs 256 bytes with these shapes, got 128");
}

// Shape code, one instruction a row: op, a, b, c, result or error.
struct ShapeCase {
  mcc_shape_op op;
  int64_t a, b, c;
  int64_t result;
  const char* error = "";
};

TEST(ShapeCode, ComputesEveryOperation) {
  const ShapeCase cases[] = {
      {MCC_SHAPE_move, 7, 0, 0, 7},
      {MCC_SHAPE_add, 7, -9, 0, -2},
      {MCC_SHAPE_sub, 7, 9, 0, -2},
      {MCC_SHAPE_mul, 7, -9, 0, -63},
      {MCC_SHAPE_floordiv, 7, 2, 0, 3},
      {MCC_SHAPE_floordiv, -7, 2, 0, -4},
      {MCC_SHAPE_floordiv, 7, -2, 0, -4},
      {MCC_SHAPE_floordiv, -7, -2, 0, 3},
      {MCC_SHAPE_ceildiv, 7, 2, 0, 4},
      {MCC_SHAPE_ceildiv, -7, 2, 0, -3},
      {MCC_SHAPE_ceildiv, 6, 2, 0, 3},
      {MCC_SHAPE_mod, 7, 3, 0, 1},
      {MCC_SHAPE_mod, -7, 3, 0, 2},
      {MCC_SHAPE_mod, 7, -3, 0, -2},
      {MCC_SHAPE_mod, INT64_MIN, -1, 0, 0},
      {MCC_SHAPE_min, 7, -9, 0, -9},
      {MCC_SHAPE_max, 7, -9, 0, 7},
      {MCC_SHAPE_equal, 7, 7, 0, 1},
      {MCC_SHAPE_less, 7, 7, 0, 0},
      {MCC_SHAPE_less_equal, 7, 7, 0, 1},
      {MCC_SHAPE_and, 7, 0, 0, 0},
      {MCC_SHAPE_or, 7, 0, 0, 1},
      {MCC_SHAPE_not, 7, 0, 0, 0},
      {MCC_SHAPE_select, 1, 8, 9, 8},
      {MCC_SHAPE_select, 0, 8, 9, 9},
      {MCC_SHAPE_threads, 0, 0, 0, 2},
      {MCC_SHAPE_check, 1, 0, 0, 0},
      {MCC_SHAPE_add, INT64_MAX, 1, 0, 0, "a shape is too large: here"},
      {MCC_SHAPE_sub, INT64_MIN, 1, 0, 0, "a shape is too large: here"},
      {MCC_SHAPE_mul, INT64_MAX, 2, 0, 0, "a shape is too large: here"},
      {MCC_SHAPE_floordiv, INT64_MIN, -1, 0, 0, "a shape is too large: here"},
      {MCC_SHAPE_floordiv, 1, 0, 0, 0, "a shape is divided by zero: here"},
      {MCC_SHAPE_ceildiv, 1, 0, 0, 0, "a shape is divided by zero: here"},
      {MCC_SHAPE_mod, 1, 0, 0, 0, "a shape is divided by zero: here"},
      {MCC_SHAPE_check, 0, 0, 0, 0, "here"},
      {MCC_SHAPE_grow, 0, 100, 0, 0},
      {MCC_SHAPE_grow, 0, 0, 0, 0},
      {MCC_SHAPE_grow, 0, 100, INT64_MAX, 0},
      {MCC_SHAPE_grow, 0, -1, 0, 0, "a shape is too large: here"},
      {MCC_SHAPE_grow, 0, 100, -1, 0, "a shape is too large: here"},
      {MCC_SHAPE_grow, 0, INT64_MIN, 0, 0, "a shape is too large: here"},
      {MCC_SHAPE_grow, 0, INT64_MAX, 0, 0, "out of memory: here"},
      {MCC_SHAPE_grow, 0, INT64_MAX, INT64_MAX, 0, "out of memory: here"},
  };
  for (const ShapeCase& c : cases) {
    // Operands arrive as elements of an input, since quantities themselves cannot be negative numbers.
    TestModel description;
    description.plan.slot_count = 4;
    const uint32_t x = description.add_input("x", {3}, MCC_DTYPE_i64);
    const uint32_t y = description.add_output("y", {1}, MCC_DTYPE_i64);
    PlanNode shape;
    shape.kind = MCC_NODE_shape;
    for (uint32_t i = 0; i < 3; ++i)
      shape.code.push_back({MCC_SHAPE_load, i, x, i, 0, ""});
    const bool is_grow = c.op == MCC_SHAPE_grow;
    const uint32_t slot = c.op == MCC_SHAPE_check || is_grow ? MCC_PLAN_NONE : 3;
    if (is_grow) {
      // With something in it that is kept.
      description.plan.heap_count = 1;
      shape.code.push_back({c.op, slot, 0, 16, 0, ""});
    }
    shape.code.push_back({c.op, slot, is_grow ? 0 : slot_quantity(0), slot_quantity(1), slot_quantity(2), "here"});
    description.plan.graphs[0].nodes.push_back(shape);
    description.add_kernel("store",
                           [](void* const* buffers, const int64_t* dims, mcc_executor*) {
                             *static_cast<int64_t*>(buffers[0]) = dims[0];
                             return 0;
                           },
                           {y}, {slot_quantity(3)});
    const Model model(description.image());
    Session session(model, {.threads = 2});
    const int64_t operands[] = {c.a, c.b, c.c};
    session.set_input(0, operands, {3});
    EXPECT_EQ(error_of([&] { session.run(); }), c.error);
    if (c.error[0] == 0) {
      EXPECT_EQ(*session.output(0).as<int64_t>(), c.result) << "op " << c.op;
    }
  }
}

TEST(ShapeCode, LoadsEveryIntegerType) {
  const auto load = [](mcc_dtype dtype, const auto& data, int64_t index) {
    TestModel description;
    description.plan.slot_count = 1;
    const uint32_t x = description.add_input("x", {static_cast<int64_t>(data.size())}, dtype);
    description.plan.graphs[0].code = {{MCC_SHAPE_load, 0, x, index, 0, ""}};
    const uint32_t heap =
        description.add_value({"y", MCC_DTYPE_u8, {slot_quantity(0)}, MCC_STORAGE_arena, 0, 0});
    description.plan.graphs[0].outputs = {heap};
    description.plan.arena_size = 4096;
    const Model model(description.image());
    Session session(model, {.threads = 1});
    Tensor tensor = {const_cast<void*>(static_cast<const void*>(data.data())),
                     0,
                     dtype,
                     {static_cast<int64_t>(data.size())}};
    session.set_input(0, tensor);
    session.run();
    return session.output(0).dims[0];
  };
  EXPECT_EQ(load(MCC_DTYPE_u8, std::vector<uint8_t>{1, 200}, 1), 200);
  EXPECT_EQ(load(MCC_DTYPE_i8, std::vector<int8_t>{1, 100}, 1), 100);
  EXPECT_EQ(load(MCC_DTYPE_u16, std::vector<uint16_t>{1, 2, 3000}, 2), 3000);
  EXPECT_EQ(load(MCC_DTYPE_i16, std::vector<int16_t>{1, 2, 3000}, 2), 3000);
  EXPECT_EQ(load(MCC_DTYPE_u32, std::vector<uint32_t>{4}, 0), 4);
  EXPECT_EQ(load(MCC_DTYPE_i32, std::vector<int32_t>{5}, 0), 5);
  EXPECT_EQ(load(MCC_DTYPE_u64, std::vector<uint64_t>{6}, 0), 6);
  EXPECT_EQ(load(MCC_DTYPE_i64, std::vector<int64_t>{7}, 0), 7);
  EXPECT_EQ(load(MCC_DTYPE_bool, std::vector<uint8_t>{3}, 0), 1);
  EXPECT_EQ(error_of([&] { load(MCC_DTYPE_i64, std::vector<int64_t>{7}, 1); }),
            "a shape reads outside of a tensor");
  EXPECT_EQ(error_of([&] { load(MCC_DTYPE_i64, std::vector<int64_t>{5000}, 0); }),
            "output \"y\" does not fit into its memory");
  EXPECT_EQ(error_of([&] { load(MCC_DTYPE_i64, std::vector<int64_t>{-1}, 0); }),
            "output \"y\": the shape is too large");
}

// Sub-graphs. ------------------------------------------------------------------------------------

TEST(If, RunsOneBranch) {
  for (bool has_else : {true, false}) {
    TestModel description;
    description.plan.graphs.resize(3);
    const uint32_t x = description.add_input("x", {2});
    const uint32_t flag = description.add_input("flag", {1}, MCC_DTYPE_bool);
    const uint32_t y = description.add_output("y", {2});
    description.add_kernel("both", multiply, {x, x, y}, {2});
    description.add_kernel("then", increment, {y, y}, {2}, 1);
    description.add_kernel("else", multiply, {x, y, y}, {2}, 2);
    PlanNode node;
    node.kind = MCC_NODE_if;
    node.args = {flag};
    node.target = 1;
    node.other = has_else ? 2 : MCC_PLAN_NONE;
    description.plan.graphs[0].nodes.push_back(node);
    const Model model(description.image());
    Session session(model, {.threads = 1});
    const std::vector<float> data = {2, 3};
    session.set_input(0, data.data(), {2});
    bool condition = true;
    session.set_input(1, &condition, {1});
    session.run();
    EXPECT_EQ(floats(session.output(0)), (std::vector<float>{5, 10}));
    condition = false;
    session.run();
    EXPECT_EQ(floats(session.output(0)), has_else ? (std::vector<float>{8, 27}) : (std::vector<float>{4, 9}));
  }
}

// A scan over rows: state += x[i]; y[i] = state. The rows' places come from the slot of the iteration.
TEST(Loop, ScansRows) {
  TestModel description;
  PlanDesc& plan = description.plan;
  plan.symbols = {{"N", 0, 100}};
  plan.slot_count = 3;  // N, iteration, offset of the row
  plan.graphs.resize(2);
  plan.arena_size = 128;
  description.add_input("x", {N, 2});
  const uint32_t start = description.add_input("start", {2});
  description.add_output("y", {N, 2});
  const uint32_t state = description.add_value({"state", MCC_DTYPE_f32, {2}, MCC_STORAGE_arena, 0, 0});
  const uint32_t next = description.add_value({"next", MCC_DTYPE_f32, {2}, MCC_STORAGE_arena, 0, 64});
  const uint32_t x_row =
      description.add_value({"x_row", MCC_DTYPE_f32, {2}, MCC_STORAGE_input, 0, slot_quantity(2)});
  const uint32_t y_row =
      description.add_value({"y_row", MCC_DTYPE_f32, {2}, MCC_STORAGE_output, 0, slot_quantity(2)});
  plan.graphs[0].outputs.push_back(state);
  const auto copy = [](uint32_t from, uint32_t to) {
    PlanNode node;
    node.kind = MCC_NODE_copy;
    node.args = {from, to};
    node.output_count = 1;
    node.name = "copy";
    return node;
  };
  PlanNode loop;
  loop.kind = MCC_NODE_loop;
  loop.dims = {N};
  loop.target = 1;
  loop.other = 1;
  plan.graphs[0].nodes = {copy(start, state), loop};
  plan.graphs[1].code = {{MCC_SHAPE_mul, 2, slot_quantity(1), 8, 0, ""}};
  description.add_kernel(
      "add",
      [](void* const* buffers, const int64_t*, mcc_executor*) {
        for (int i = 0; i < 2; ++i) {
          static_cast<float*>(buffers[2])[i] =
              static_cast<float*>(buffers[0])[i] + static_cast<float*>(buffers[1])[i];
        }
        return 0;
      },
      {state, x_row, next}, {}, 1);
  plan.graphs[1].nodes.push_back(copy(next, state));
  plan.graphs[1].nodes.push_back(copy(next, y_row));

  const Model model(description.image());
  Session session(model, {.threads = 1});
  const std::vector<float> data = {1, 10, 2, 20, 3, 30}, zeros = {0, 100};
  for (int64_t n : {3, 0, 2}) {
    session.set_input("x", data.data(), {n, 2});
    session.set_input("start", zeros.data(), {2});
    session.run();
    const std::vector<float> all = {1, 110, 3, 130, 6, 160};
    EXPECT_EQ(floats(session.output(0)), std::vector<float>(all.begin(), all.begin() + n * 2));
    const std::vector<std::vector<float>> states = {{0, 100}, {1, 110}, {3, 130}, {6, 160}};
    EXPECT_EQ(floats(session.output(1)), states[static_cast<size_t>(n)]);
  }
}

// while (value < 50) value *= 2, inside of a loop that runs twice and adds 1 in between.
TEST(Loop, StopsOnItsConditionAndNests) {
  TestModel description;
  PlanDesc& plan = description.plan;
  plan.graphs.resize(3);
  plan.arena_size = 128;
  const uint32_t x = description.add_input("x", {1});
  const uint32_t value = description.add_value({"value", MCC_DTYPE_f32, {1}, MCC_STORAGE_arena, 0, 0});
  const uint32_t condition =
      description.add_value({"condition", MCC_DTYPE_bool, {}, MCC_STORAGE_arena, 0, 64});
  plan.graphs[0].outputs = {value};
  const auto is_small = [](void* const* buffers, const int64_t*, mcc_executor*) {
    *static_cast<bool*>(buffers[1]) = *static_cast<float*>(buffers[0]) < 50;
    return 0;
  };
  const auto twice = [](void* const* buffers, const int64_t*, mcc_executor*) {
    *static_cast<float*>(buffers[1]) = 2 * *static_cast<float*>(buffers[0]);
    return 0;
  };
  PlanNode copy;
  copy.kind = MCC_NODE_copy;
  copy.args = {x, value};
  copy.output_count = 1;
  PlanNode outer;
  outer.kind = MCC_NODE_loop;
  outer.dims = {2};
  outer.target = 1;
  PlanNode inner;
  inner.kind = MCC_NODE_loop;
  inner.dims = {1000};
  inner.args = {condition};
  inner.target = 2;
  plan.graphs[0].nodes = {copy, outer};
  description.add_kernel("increment", increment, {value, value}, {1}, 1);
  description.add_kernel("is_small", is_small, {value, condition}, {}, 1);
  plan.graphs[1].nodes.push_back(inner);
  description.add_kernel("twice", twice, {value, value}, {}, 2);
  description.add_kernel("is_small", is_small, {value, condition}, {}, 2);
  const Model model(description.image());
  Session session(model, {.threads = 1});
  const float small = 4, large = 60;
  session.set_input(0, &small, {1});
  session.run();
  EXPECT_EQ(floats(session.output(0)), std::vector<float>{81});  // 5 -> 80 -> 81
  session.set_input(0, &large, {1});
  session.run();
  EXPECT_EQ(floats(session.output(0)), std::vector<float>{62});
}

// Host functions. --------------------------------------------------------------------------------

// Indices of the elements that are not zero.
int32_t nonzero(mcc_host_call* call) {
  const mcc_host_tensor& x = call->args[0];
  const auto* data = static_cast<const float*>(x.data);
  int64_t count = 0;
  for (int64_t i = 0; i < x.dims[0]; ++i)
    count += data[i] != 0 ? 1 : 0;
  if (std::string(static_cast<const char*>(call->attributes), call->attributes_size) != "nonzero") return 1;
  if (call->resize(call, 0, 8) != nullptr) return 2;  // not an output
  auto* out = static_cast<int64_t*>(call->resize(call, 1, static_cast<uint64_t>(count) * 8));
  if (out == nullptr) {
    std::snprintf(call->message, call->message_size, "no memory");
    return 3;
  }
  for (int64_t i = 0; i < x.dims[0]; ++i) {
    if (data[i] != 0) *out++ = i;
  }
  call->args[1].dims[0] = count;
  return 0;
}

struct NonZero : testing::Test {
  NonZero() {
    PlanDesc& plan = description.plan;
    plan.symbols = {{"N", 0, 1 << 20}};
    plan.slot_count = 2;
    plan.heap_count = 1;
    const uint32_t x = description.add_input("x", {N});
    const uint32_t indices =
        description.add_value({"indices", MCC_DTYPE_i64, {slot_quantity(1)}, MCC_STORAGE_heap, 0, 0});
    const uint32_t sum = description.add_output("sum", {1}, MCC_DTYPE_i64);
    plan.graphs[0].outputs.push_back(indices);
    PlanNode node;
    node.kind = MCC_NODE_host;
    node.name = "NonZero";
    node.args = {x, indices};
    node.output_count = 1;
    node.attributes = "nonzero";
    plan.graphs[0].nodes.push_back(node);
    description.host_functions = {nonzero};
    description.add_kernel("sum",
                           [](void* const* buffers, const int64_t* dims, mcc_executor*) {
                             int64_t total = 0;
                             for (int64_t i = 0; i < dims[0]; ++i)
                               total += static_cast<int64_t*>(buffers[0])[i];
                             *static_cast<int64_t*>(buffers[1]) = total;
                             return 0;
                           },
                           {indices, sum}, {slot_quantity(1)});
  }
  TestModel description;
};

TEST_F(NonZero, SizesItsResultByData) {
  const Model model(description.image());
  EXPECT_EQ(model.output(1).dims, std::vector<int64_t>{-1});
  EXPECT_EQ(model.output(1).dim_names, std::vector<std::string>{""});
  Session session(model, {.threads = 1});
  std::vector<float> data(5000);
  for (size_t i = 0; i < data.size(); i += 5)
    data[i] = 1;
  for (int64_t n : {11, 5000, 6, 0}) {
    session.set_input(0, data.data(), {n});
    EXPECT_EQ(session.next_output_shape(1)[0], -1);
    session.run();
    EXPECT_EQ(session.output_shape(1)[0], (n + 4) / 5);
    std::vector<int64_t> expected;
    for (int64_t i = 0; i < n; i += 5)
      expected.push_back(i);
    const Tensor indices = session.output(1);
    ASSERT_EQ(indices.dims, std::vector<int64_t>{static_cast<int64_t>(expected.size())});
    EXPECT_EQ(std::vector<int64_t>(indices.as<int64_t>(), indices.as<int64_t>() + expected.size()), expected);
    int64_t sum = 0;
    for (int64_t index : expected)
      sum += index;
    EXPECT_EQ(*session.output(0).as<int64_t>(), sum);
  }
  std::vector<int64_t> small(2);
  session.set_output(1, {small.data(), 16, MCC_DTYPE_i64, {}});
  session.set_input(0, data.data(), {6});
  session.run();
  EXPECT_EQ(small, (std::vector<int64_t>{0, 5}));
  session.set_input(0, data.data(), {11});
  EXPECT_EQ(error_of([&] { session.run(); }), "output \"indices\": needs 24 bytes, got memory of 16 bytes");
}

TEST_F(NonZero, ReportsErrorsOfHostFunctions) {
  const std::vector<float> data(4, 1);
  const auto run = [&] {
    const Model model(description.image());
    Session session(model, {.threads = 1});
    session.set_input(0, data.data(), {4});
    session.run();
  };
  description.host_functions = {[](mcc_host_call* call) -> int32_t {
    std::snprintf(call->message, call->message_size, "bad axis");
    return 1;
  }};
  EXPECT_EQ(error_of(run), "node \"NonZero\": bad axis");
  description.host_functions = {[](mcc_host_call*) -> int32_t { return 1; }};
  EXPECT_EQ(error_of(run), "node \"NonZero\": it failed");
  description.host_functions = {[](mcc_host_call* call) -> int32_t {
    call->args[1].dims[0] = 1000;  // without memory for it
    return 0;
  }};
  EXPECT_EQ(error_of(run), "node \"NonZero\": its result does not fit into its memory");
  description.host_functions = {[](mcc_host_call* call) -> int32_t {
    call->args[1].dims[0] = -1;
    return 0;
  }};
  EXPECT_EQ(error_of(run), "node \"NonZero\": its result does not fit into its memory");
}

}  // namespace
}  // namespace mcc::test
