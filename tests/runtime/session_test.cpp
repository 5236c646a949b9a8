// Straight plans: results, memory of inputs and outputs, errors, profile.
#include "runtime/test_model.h"

namespace mcc::test {
namespace {

const std::vector<float> x_data = {1, -1, 2, -2, 3, -3};
const std::vector<float> affine_result = {2, -1, 7, -7, 16, -17};

struct Affine : testing::Test {
  Affine() { make_affine(description); }
  TestModel description;
};

TEST_F(Affine, RunsWithItsOwnOutput) {
  const Model model(description.image());
  Session session(model, {.threads = 1});
  session.set_input("x", x_data.data(), {2, 3});
  session.run();
  const Tensor y = session.output("y");
  EXPECT_EQ(floats(y), affine_result);
  EXPECT_EQ(y.dims, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(y.size_bytes, 24u);
}

TEST_F(Affine, WritesToTheCallersOutputAndFollowsNewPointers) {
  const Model model(description.image());
  Session session(model, {.threads = 1});
  const std::vector<float> other_x = {1, 1, 1, 1, 1, 1};
  std::vector<float> y(6), other_y(6);
  session.set_input(0, x_data.data(), {2, 3});
  session.set_output(0, y.data(), {2, 3});
  session.run();
  EXPECT_EQ(y, affine_result);
  EXPECT_EQ(session.output(0).data, y.data());
  session.set_input(0, other_x.data(), {2, 3});
  session.set_output(0, other_y.data(), {2, 3});
  session.run();
  EXPECT_EQ(other_y, (std::vector<float>{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(y, affine_result);
  ASSERT_EQ(mcc_session_set_output(session.handle(), 0, nullptr, nullptr), MCC_OK);
  session.run();
  EXPECT_NE(session.output(0).data, other_y.data());
  EXPECT_EQ(floats(session.output(0)), other_y);
}

TEST_F(Affine, UsesTheCallersArena) {
  const Model model(description.image());
  alignas(64) unsigned char arena[128];
  Session session(model, {.threads = 1, .arena = arena, .arena_size = sizeof arena});
  session.set_input(0, x_data.data(), {2, 3});
  session.run();
  EXPECT_EQ(floats(session.output(0)), affine_result);
  float product = 0;
  std::memcpy(&product, arena + 64 + 4 * sizeof(float), sizeof product);
  EXPECT_EQ(product, 15);

  EXPECT_EQ(error_of([&] { Session(model, {.arena = arena, .arena_size = 64}); }),
            "the arena needs 128 bytes, got 64");
  EXPECT_EQ(error_of([&] { Session(model, {.arena = arena + 8, .arena_size = 120}); }),
            "the arena must be aligned to 64 bytes");
}

TEST_F(Affine, SaysWhatIsWrongWithInputs) {
  const Model model(description.image());
  Session session(model, {.threads = 1});
  const std::vector<int64_t> wrong_type(6);
  const mcc_tensor two[2] = {};
  const auto error_with = [&](const auto* data, const std::vector<int64_t>& dims) {
    return error_of([&] { session.set_input(0, data, dims); });
  };
  EXPECT_EQ(error_with(wrong_type.data(), {2, 3}), "input \"x\": expected element type f32, got i64");
  EXPECT_EQ(error_with(x_data.data(), {6}), "input \"x\": expected rank 2 (2x3), got rank 1");
  EXPECT_EQ(error_with(x_data.data(), {}), "input \"x\": expected rank 2 (2x3), got rank 0 without dims");
  EXPECT_EQ(error_with(x_data.data(), {3, 2}), "input \"x\": expected shape 2x3, got 3x2");
  EXPECT_EQ(error_with(x_data.data(), {2, -3}), "input \"x\": expected shape 2x3, got 2x?");
  EXPECT_EQ(error_with(static_cast<const float*>(nullptr), {2, 3}), "input \"x\": data is null");
  EXPECT_EQ(
      error_with(reinterpret_cast<const float*>(reinterpret_cast<const char*>(x_data.data()) + 1), {2, 3}),
      "input \"x\": data is not aligned to its elements (4 bytes)");
  EXPECT_EQ(error_of([&] { session.set_input("z", x_data.data(), {2, 3}); }), "the model has no input \"z\"");
  EXPECT_EQ(error_of([&] { session.set_input(1, x_data.data(), {2, 3}); }),
            "there is no input 1: the model has 1");
  EXPECT_EQ(error_of([&] { session.run(); }), "input \"x\" is not set");
  EXPECT_EQ(error_of([&] { session.output(0); }), "the session has not run since it was changed");
  const Tensor tensor = {const_cast<float*>(x_data.data()), 23, MCC_DTYPE_f32, {2, 3}};
  EXPECT_EQ(error_of([&] { session.set_input(0, tensor); }),
            "input \"x\": expected at least 24 bytes, got 23");
  mcc_error error;
  EXPECT_EQ(mcc_session_set_inputs(session.handle(), two, 2, &error), MCC_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "expected 1 input (\"x\"), got 2");
  EXPECT_EQ(mcc_session_set_inputs(session.handle(), nullptr, 1, &error), MCC_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "input \"x\": tensor is null");
  const int64_t dims[] = {2, 3};
  const mcc_tensor no_type = {const_cast<float*>(x_data.data()), 0, 99, 2, dims};
  EXPECT_EQ(mcc_session_set_input(session.handle(), 0, &no_type, &error), MCC_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "input \"x\": expected element type f32, got unknown");
  EXPECT_EQ(mcc_session_run(nullptr, &error), MCC_INVALID_ARGUMENT);
  EXPECT_EQ(mcc_session_run(nullptr, nullptr), MCC_INVALID_ARGUMENT);
  EXPECT_EQ(mcc_session_create(nullptr, nullptr, nullptr, &error), MCC_INVALID_ARGUMENT);
  EXPECT_EQ(mcc_model_open(nullptr, nullptr, &error), MCC_INVALID_ARGUMENT);
}

TEST_F(Affine, SaysWhatIsWrongWithOutputs) {
  const Model model(description.image());
  Session session(model, {.threads = 1});
  std::vector<float> y(6);
  EXPECT_EQ(error_of([&] { session.set_output(0, y.data(), {6}); }),
            "output \"y\": expected rank 2 (2x3), got rank 1");
  EXPECT_EQ(error_of([&] { session.set_output(7, y.data(), {2, 3}); }),
            "there is no output 7: the model has 1");
  const Tensor small = {y.data(), 20, MCC_DTYPE_f32, {2, 3}};
  EXPECT_EQ(error_of([&] { session.set_output(0, small); }),
            "output \"y\": expected at least 24 bytes, got 20");
}

TEST_F(Affine, SaysWhatIsWrongWithOptions) {
  const Model model(description.image());
  EXPECT_EQ(error_of([&] { Session(model, {.threads = -1}); }),
            "the number of threads must be between 0 and 1024, got -1");
  EXPECT_EQ(error_of([&] { Session(model, {.threads = 5000}); }),
            "the number of threads must be between 0 and 1024, got 5000");
  mcc_executor executor = {};
  EXPECT_EQ(error_of([&] { Session(model, {.executor = &executor}); }),
            "the executor needs parallel_for and 1 to 1024 threads");
  mcc_session_options options = {};
  mcc_session* session = nullptr;
  mcc_error error;
  EXPECT_EQ(mcc_session_create(model.handle(), &options, &session, &error), MCC_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "mcc_session_options: struct_size is not set");
}

TEST_F(Affine, DescribesItself) {
  description.plan.metadata = {{"target", "cpu:x86-64-v3"}, {"model.hash", "abc"}};
  const Model model(description.image());
  ASSERT_EQ(model.input_count(), 1u);
  ASSERT_EQ(model.output_count(), 1u);
  EXPECT_EQ(model.input(0).name, "x");
  EXPECT_EQ(model.input(0).dtype, MCC_DTYPE_f32);
  EXPECT_EQ(model.input(0).dims, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(model.output(0).name, "y");
  EXPECT_EQ(model.output_index("y"), 0u);
  EXPECT_EQ(model.metadata("target"), "cpu:x86-64-v3");
  EXPECT_EQ(model.metadata("nothing"), "");
  EXPECT_STREQ(mcc_model_metadata_key(model.handle(), 0), "model.hash");
  EXPECT_EQ(mcc_model_metadata_count(model.handle()), 2u);
  EXPECT_EQ(model.sizes().arena_bytes, 128);
  EXPECT_EQ(model.sizes().weights_bytes, 24u);
  EXPECT_EQ(model.sizes().node_count, 2u);
}

TEST_F(Affine, ProfilesEachNode) {
  const Model model(description.image());
  Session session(model, {.threads = 1, .profile = true});
  session.set_input(0, x_data.data(), {2, 3});
  for (int i = 0; i < 3; ++i)
    session.run();
  const auto profile = session.profile();
  ASSERT_EQ(profile.size(), 2u);
  EXPECT_EQ(profile[0].name, "multiply");
  EXPECT_EQ(profile[0].kind, "kernel");
  EXPECT_EQ(profile[0].sources, (std::vector<std::string>{"multiply_onnx"}));
  EXPECT_EQ(profile[0].times.executions, 3u);
  EXPECT_EQ(profile[0].times.flops, 6);
  EXPECT_LE(profile[0].times.min_ns * 3, profile[0].times.total_ns);
  session.reset_profile();
  session.set_profiling(false);
  session.run();
  EXPECT_EQ(session.profile()[0].times.executions, 0u);
  EXPECT_EQ(floats(session.output(0)), affine_result);
}

TEST_F(Affine, SessionsShareAModelAndKeepIt) {
  auto model = std::make_unique<Model>(description.image());
  Session first(*model, {.threads = 1}), second(*model, {.threads = 1});
  model.reset();
  const std::vector<float> ones(6, 1);
  first.set_input(0, x_data.data(), {2, 3});
  second.set_input(0, ones.data(), {2, 3});
  first.run();
  second.run();
  EXPECT_EQ(floats(first.output(0)), affine_result);
  EXPECT_EQ(floats(second.output(0)), (std::vector<float>{2, 3, 4, 5, 6, 7}));
}

int32_t fail_with_7(void* const*, const int64_t*, mcc_executor*) { return 7; }

TEST(Session, ReportsAFailingKernelOnce) {
  static int calls;
  calls = 0;
  TestModel description;
  const uint32_t y = description.add_output("y", {1});
  PlanNode& node =
      description.add_kernel("bad",
                             [](void* const* buffers, const int64_t* dims, mcc_executor* executor) {
                               ++calls;
                               return fail_with_7(buffers, dims, executor);
                             },
                             {y}, {});
  node.sources = {"a", "b"};
  const Model model(description.image());
  Session session(model, {.threads = 1});
  EXPECT_EQ(error_of([&] { session.run(); }), "node \"bad\" (a, b): it failed with code 7");
  EXPECT_EQ(calls, 1);
}

// Outputs that no kernel writes: an input, a weight, an intermediate tensor, and another output once more.
struct Aliases : testing::Test {
  Aliases() {
    const uint32_t x = description.add_input("x", {3});
    const uint32_t w = description.add_value({"w", MCC_DTYPE_f32, {3}, MCC_STORAGE_weights, 0, 0});
    const uint32_t t = description.add_value({"t", MCC_DTYPE_f32, {3}, MCC_STORAGE_arena, 0, 0});
    const uint32_t y = description.add_output("y", {3});
    description.plan.arena_size = 64;
    description.weights = {7, 8, 9};
    description.plan.graphs[0].outputs = {y, x, w, t, y};
    description.add_kernel("increment", increment, {x, y}, {3});
    description.add_kernel("increment", increment, {y, t}, {3});
  }
  TestModel description;
  const std::vector<float> x = {1, 2, 3};
};

TEST_F(Aliases, AreCopiedOrShown) {
  const Model model(description.image());
  Session session(model, {.threads = 1});
  session.set_input(0, x.data(), {3});
  session.run();
  EXPECT_EQ(floats(session.output(0)), (std::vector<float>{2, 3, 4}));
  EXPECT_EQ(floats(session.output(1)), x);
  EXPECT_NE(session.output(1).data, x.data());
  EXPECT_EQ(floats(session.output(2)), (std::vector<float>{7, 8, 9}));
  EXPECT_EQ(floats(session.output(3)), (std::vector<float>{3, 4, 5}));
  EXPECT_EQ(floats(session.output(4)), (std::vector<float>{2, 3, 4}));
  EXPECT_NE(session.output(4).data, session.output(0).data);
}

TEST_F(Aliases, AreCopiedToTheCallersMemory) {
  const Model model(description.image());
  Session session(model, {.threads = 1});
  std::vector<std::vector<float>> outputs(5, std::vector<float>(3));
  session.set_input(0, x.data(), {3});
  for (size_t i = 0; i < 5; ++i)
    session.set_output(i, outputs[i].data(), {3});
  session.run();
  EXPECT_EQ(outputs[1], x);
  EXPECT_EQ(outputs[2], (std::vector<float>{7, 8, 9}));
  EXPECT_EQ(outputs[3], (std::vector<float>{3, 4, 5}));
  EXPECT_EQ(outputs[4], outputs[0]);
}

// Views of inputs and outputs at an offset, an absent optional argument, an empty tensor, a scalar.
int32_t copy_scalar(void* const* buffers, const int64_t*, mcc_executor*) {
  EXPECT_EQ(buffers[1], nullptr);
  *static_cast<float*>(buffers[2]) = *static_cast<float*>(buffers[0]);
  return 0;
}

TEST(Session, HandsOutViewsAndAbsentArguments) {
  TestModel description;
  description.add_input("x", {4});
  const uint32_t empty = description.add_input("empty", {0, 5});
  description.add_output("y", {2});
  const uint32_t none = description.add_output("none", {0});
  const uint32_t s = description.add_output("s", {});
  const uint32_t x2 = description.add_value({"", MCC_DTYPE_f32, {2}, MCC_STORAGE_input, 0, 8});
  const uint32_t y0 = description.add_value({"", MCC_DTYPE_f32, {1}, MCC_STORAGE_output, 0, 0});
  const uint32_t y1 = description.add_value({"", MCC_DTYPE_f32, {1}, MCC_STORAGE_output, 0, 4});
  description.add_kernel("first", copy_scalar, {x2, MCC_PLAN_NONE, y1}, {});
  description.add_kernel("second", copy_scalar, {y1, MCC_PLAN_NONE, y0}, {});
  description.add_kernel("scalar", copy_scalar, {x2, MCC_PLAN_NONE, s}, {});
  description.add_kernel("nothing", increment, {empty, none}, {0});
  const Model model(description.image());
  Session session(model, {.threads = 1});
  const std::vector<float> x = {1, 2, 3, 4};
  session.set_input(0, x.data(), {4});
  session.set_input(1, static_cast<const float*>(nullptr), {0, 5});
  session.run();
  EXPECT_EQ(floats(session.output(0)), (std::vector<float>{3, 3}));
  EXPECT_EQ(session.output(1).size_bytes, 0u);
  EXPECT_EQ(floats(session.output(2)), (std::vector<float>{3}));
  EXPECT_TRUE(session.output(2).dims.empty());
}

}  // namespace
}  // namespace mcc::test
