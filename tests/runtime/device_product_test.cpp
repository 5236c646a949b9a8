// Models that leave products to cuBLASLt, on the stand-ins for it and for the driver.
#include <gmock/gmock.h>

#include <cstdlib>

#include "device_model.h"

namespace mcc::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kWorkspace = 1024;

mcc_device_matrix matrix(uint64_t rows, uint64_t columns, bool is_transposed = false) {
  return {MCC_DTYPE_f32, is_transposed ? 1u : 0u, rows, columns, rows, 0};
}

// y [2, 3] = 0.5 * x [2, 2] * w [3, 2]^T + r + b, and w, b among the weights.
void make_product(TestModel& model) {
  const uint32_t x = model.add_input("x", {2, 2}), r = model.add_input("r", {2, 3}),
                 y = model.add_output("y", {2, 3});
  const uint32_t w = model.add_value({"w", MCC_DTYPE_f32, {3, 2}, MCC_STORAGE_weights, 0, 0});
  const uint32_t b = model.add_value({"b", MCC_DTYPE_f32, {3}, MCC_STORAGE_weights, 0, 64});
  const uint32_t workspace =
      model.add_value({"", MCC_DTYPE_u8, {kWorkspace + 256}, MCC_STORAGE_arena, 0, 64});
  model.plan.arena_size = 64 + kWorkspace + 256;
  model.weights = {1, 2, 3, 4, 5, 6};
  model.weights.resize(16);
  model.weights.insert(model.weights.end(), {10, 20, 30});
  PlanNode node;
  node.kind = MCC_NODE_device;
  node.args = {w, x, r, b, y, workspace};
  node.output_count = 2;
  node.name = "product";
  node.sources = {"product_onnx"};
  model.plan.graphs[0].nodes.push_back(node);
  codegen::DeviceLaunchDesc call;
  call.arguments = {0, 1, 4, 2, 3, 5};
  mcc_device_product product = {};
  product.algorithm = 1;
  product.has_addend = product.has_bias = 1;
  product.batches = 1;
  product.scale = 0.5;
  product.first = matrix(2, 3, true);
  product.second = matrix(2, 2);
  product.addend = product.result = matrix(3, 2);
  product.workspace_bytes = kWorkspace;
  call.product = product;
  codegen::DeviceKernelDesc kernel;
  kernel.launches = {call};
  kernel.images = {{MCC_IMAGE_ptx, "sm_80", ".version 7.0\n.target sm_80\n"}};
  model.device = codegen::DeviceDesc{{kernel}};
}

class DeviceProduct : public testing::Test {
 protected:
  void SetUp() override {
    fake().reset();
    make_product(model);
  }
  void TearDown() override {
    unsetenv("FAKE_CUBLASLT");
    expect_nothing_held();
  }
  void give(Session& session) {
    session.set_input("x", x.data(), {2, 2});
    session.set_input("r", r.data(), {2, 3});
  }
  std::string failure() {
    return error_of([&] {
      Session session{Model(model.image())};
      give(session);
      session.run();
    });
  }

  TestModel model;
  std::vector<float> x = {2, 4, 6, 8}, r = {1, 2, 3, 4, 5, 6};
};

constexpr auto kSums = [] { return ElementsAre(16, 33, 50, 25, 50, 75); };

TEST_F(DeviceProduct, RunsAloneAndInAGraph) {
  Session session{Model(model.image())};
  give(session);
  for (int run = 0; run < 4; ++run) {
    session.run();
    EXPECT_THAT(floats(session.output(0)), kSums()) << run;
  }
  EXPECT_EQ(fake().count("cuLaunchKernel"), 0);
  // Another step beside it makes a graph worth while: the call is recorded in it.
  PlanNode again = model.plan.graphs[0].nodes[0];
  model.plan.graphs[0].nodes.push_back(again);
  Session twice{Model(model.image())};
  give(twice);
  twice.run();
  twice.run();
  fake().calls.clear();
  x[0] = 4;
  twice.run();
  EXPECT_THAT(floats(twice.output(0)), ElementsAre(17, 36, 55, 25, 50, 75));
  EXPECT_EQ(fake().count("cuGraphLaunch"), 1);
  EXPECT_EQ(fake().count("library call"), 0);
}

TEST_F(DeviceProduct, SessionsHaveTheirOwnAddresses) {
  Model shared(model.image());
  Session first(shared), second(shared);
  give(first);
  give(second);
  first.run();
  std::vector<float> y(6);
  second.set_output(0, y.data(), {2, 3});
  second.run();
  EXPECT_THAT(y, kSums());
  EXPECT_THAT(floats(first.output(0)), kSums());
}

TEST_F(DeviceProduct, TellsWhatItCalls) {
  Model m(model.image());
  mcc_launch_info info = {};
  info.struct_size = sizeof info;
  ASSERT_EQ(mcc_model_node_launch(m.handle(), 0, 0, &info), MCC_OK);
  EXPECT_STREQ(info.library, "cublasLt");
  EXPECT_THAT(info.product, ElementsAre(1, 2, 3, 2));
  // Who knows only the first fields gets those.
  mcc_launch_info old = {};
  old.struct_size = offsetof(mcc_launch_info, library);
  ASSERT_EQ(mcc_model_node_launch(m.handle(), 0, 0, &old), MCC_OK);
  EXPECT_EQ(old.library, nullptr);
}

TEST_F(DeviceProduct, WhatTheLibraryDoesNotDoIsAnError) {
  setenv("FAKE_CUBLASLT", "absent", 1);
  EXPECT_EQ(failure(),
            "cuBLASLt: it does not work with this GPU and its driver (CUBLAS_STATUS_NOT_INITIALIZED, 1)");
  setenv("FAKE_CUBLASLT", "refuses", 1);
  EXPECT_EQ(failure(),
            "node \"product\" (product_onnx): cuBLASLt: it does not compute this product on this GPU "
            "(CUBLAS_STATUS_NOT_SUPPORTED, 15)");
  setenv("FAKE_CUBLASLT", "fails", 1);
  EXPECT_EQ(failure(),
            "node \"product\" (product_onnx): cuBLASLt: a product failed (CUBLAS_STATUS_OTHER, 13)");
}

TEST_F(DeviceProduct, ALostContextIsNotTheProducts) {
  Caller caller;
  SessionOptions options;
  options.cuda_stream = caller.stream;
  Session session{Model(model.image()), options};
  DeviceMemory first(session, 16), addend(session, 24), out(session, 24);
  session.set_input("x", static_cast<const float*>(first.data), {2, 2});
  session.set_input("r", static_cast<const float*>(addend.data), {2, 3});
  session.set_output(0, static_cast<float*>(out.data), {2, 3});
  setenv("FAKE_CUBLASLT", "fails", 1);
  fake().lost = MCC_CU_ILLEGAL_ADDRESS;
  const std::string error = error_of([&] { session.run(); });
  EXPECT_THAT(error, HasSubstr("the GPU's context is lost to what it was given before this call"));
  EXPECT_EQ(error.find("product"), std::string::npos) << error;
  fake().lost = 0;
}

TEST_F(DeviceProduct, DamagedProductsAreRefused) {
  auto broken = [&](auto change) {
    TestModel bad;
    make_product(bad);
    change(bad.device->kernels[0].launches[0]);
    return error_of([&] { Model{bad.image()}; });
  };
  const std::string damaged = "the model's code for GPUs is damaged: a launch";
  EXPECT_EQ(broken([](auto&) {}), "");
  EXPECT_EQ(broken([](auto& call) { call.product->first.rows = 3; }), damaged);
  EXPECT_EQ(broken([](auto& call) { call.product->second.columns = 1; }), damaged);
  EXPECT_EQ(broken([](auto& call) { call.product->result.leading = 2; }), damaged);
  EXPECT_EQ(broken([](auto& call) { call.product->addend.columns = 3; }), damaged);
  EXPECT_EQ(broken([](auto& call) { call.product->algorithm = MCC_MOST_ALGORITHMS; }), damaged);
  EXPECT_EQ(broken([](auto& call) { call.product->batches = 0; }), damaged);
  EXPECT_EQ(broken([](auto& call) { call.product->compute = MCC_COMPUTE_COUNT; }), damaged);
  EXPECT_EQ(broken([](auto& call) { call.product->first.dtype = MCC_DTYPE_f64; }), damaged);
  EXPECT_EQ(broken([](auto& call) { call.product->has_bias = 0; }), damaged);
  EXPECT_EQ(broken([](auto& call) { call.arguments.pop_back(); }), damaged);
}

}  // namespace
}  // namespace mcc::test
