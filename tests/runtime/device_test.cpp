// Models for GPUs on a stand-in driver: where data is, graphs of launches, images, streams of the caller.
#include "device_model.h"
#include "runtime/cuda.h"
#include "runtime/device_code.h"

namespace mcc::test {
namespace {

using ::testing::ElementsAre;

TEST_F(Device, RunsWithHostMemory) {
  Session session{Model(model.image())};
  session.set_input("x", x.data(), {2, 3});
  session.run();
  EXPECT_THAT(floats(session.output(0)), kExpected());
  EXPECT_EQ(fake().count("cuLaunchKernel multiply 2x1x1 3x1x1 0"), 1);
  EXPECT_EQ(fake().count("cuLaunchKernel increment"), 1);
  EXPECT_EQ(fake().count("cuMemcpyHtoDAsync_v2"), 2);  // the weights and x
  // Inputs are read anew in each run, outputs may go to the caller's memory.
  x[0] = 5;
  std::vector<float> y(6);
  session.set_output(0, y.data(), {2, 3});
  session.run();
  EXPECT_THAT(y, ElementsAre(6, 3, 4, 9, 11, 13));
}

TEST_F(Device, SteadyRunsAreOneGraphAndAllocateNothing) {
  Session session{Model(model.image())};
  session.set_input("x", x.data(), {2, 3});
  session.run();
  session.run();
  fake().calls.clear();
  session.run();
  EXPECT_THAT(floats(session.output(0)), kExpected());
  EXPECT_THAT(fake().calls, ElementsAre("cuMemcpyHtoDAsync_v2", "cuGraphLaunch", "cuMemcpyDtoHAsync_v2",
                                        "cuStreamSynchronize"));
}

TEST_F(Device, WhereThereAreNoGraphsLaunchesGoOnOneByOne) {
  fake().failures["cuGraphInstantiateWithFlags"] = 801;
  Session session{Model(model.image())};
  session.set_input("x", x.data(), {2, 3});
  for (int i = 0; i < 3; ++i)
    session.run();
  EXPECT_THAT(floats(session.output(0)), kExpected());
  EXPECT_EQ(fake().count("cuGraphInstantiateWithFlags"), 1);
}

TEST_F(Device, DevicePointersAreUsedInPlace) {
  Caller caller;
  SessionOptions options;
  options.cuda_stream = caller.stream;
  Session session{Model(model.image()), options};
  DeviceMemory in(session, 24), out(session, 24);
  in.copy(in.data, x.data(), 24);
  session.set_input("x", static_cast<const float*>(in.data), {2, 3});
  session.set_output(0, static_cast<float*>(out.data), {2, 3});
  fake().calls.clear();
  session.run();
  // Nothing is copied, and the caller waits for the stream itself.
  EXPECT_THAT(fake().calls,
              ElementsAre("cuLaunchKernel multiply 2x1x1 3x1x1 0", "cuLaunchKernel increment 2x1x1 3x1x1 0"));
  EXPECT_EQ(session.output(0).data, out.data);
  std::vector<float> y(6);
  out.copy(y.data(), out.data, 24);
  EXPECT_THAT(y, kExpected());
  // Other memory is used from the next run on, also after a graph has been made.
  session.run();
  session.run();
  DeviceMemory other(session, 24);
  session.set_output(0, static_cast<float*>(other.data), {2, 3});
  session.run();
  std::memset(y.data(), 0, 24);
  other.copy(y.data(), other.data, 24);
  EXPECT_THAT(y, kExpected());
}

TEST_F(Device, DevicePointersThatAreNotAlignedAreCopied) {
  Session session{Model(model.image())};
  DeviceMemory in(session, 28), out(session, 28);
  auto* from = static_cast<float*>(in.data) + 1;
  auto* to = static_cast<float*>(out.data) + 1;
  in.copy(from, x.data(), 24);
  session.set_input("x", static_cast<const float*>(from), {2, 3});
  session.set_output(0, to, {2, 3});
  session.run();
  std::vector<float> y(6);
  out.copy(y.data(), to, 24);
  EXPECT_THAT(y, kExpected());
  EXPECT_EQ(fake().count("cuMemcpyDtoDAsync_v2"), 2);
}

// A graph of the caller's own gets a run's launches, also when the session has made a graph, which cannot be launched there.
TEST_F(Device, CallersCaptureRuns) {
  Caller caller;
  SessionOptions options;
  options.cuda_stream = caller.stream;
  Session session{Model(model.image()), options};
  DeviceMemory in(session, 24), out(session, 24), other(session, 24);
  in.copy(in.data, x.data(), 24);
  session.set_input("x", static_cast<const float*>(in.data), {2, 3});
  session.set_output(0, static_cast<float*>(out.data), {2, 3});
  for (int i = 0; i < 3; ++i)
    session.run();
  session.set_output(0, static_cast<float*>(other.data), {2, 3});
  runtime::CurrentContext current(caller.cuda, caller.context);
  ASSERT_EQ(caller.cuda.stream_synchronize(caller.stream), MCC_CU_SUCCESS);
  ASSERT_EQ(caller.cuda.capture_begin(caller.stream, MCC_CU_CAPTURE_THREAD_LOCAL), MCC_CU_SUCCESS);
  session.run();
  mcc_cu_graph graph = nullptr;
  ASSERT_EQ(caller.cuda.capture_end(caller.stream, &graph), MCC_CU_SUCCESS);
  mcc_cu_graph_exec exec = nullptr;
  ASSERT_EQ(caller.cuda.graph_instantiate(&exec, graph, 0), MCC_CU_SUCCESS);
  // Nothing has been computed yet.
  std::vector<float> y(6);
  other.copy(y.data(), other.data, 24);
  EXPECT_NE(y[0], 2);
  EXPECT_EQ(caller.cuda.graph_launch(exec, caller.stream), MCC_CU_SUCCESS);
  other.copy(y.data(), other.data, 24);
  EXPECT_THAT(y, kExpected());
  caller.cuda.graph_exec_destroy(exec);
  caller.cuda.graph_destroy(graph);
  // Runs of the session's own go on.
  std::vector<float> seven(6, 7);
  in.copy(in.data, seven.data(), 24);
  session.run();
  other.copy(y.data(), other.data, 24);
  EXPECT_THAT(y, ElementsAre(8, 15, 22, 29, 36, 43));
}

TEST_F(Device, WhatWaitsIsNotCaptured) {
  Caller caller;
  SessionOptions options;
  options.cuda_stream = caller.stream;
  Session session{Model(model.image()), options};
  session.set_input("x", x.data(), {2, 3});
  runtime::CurrentContext current(caller.cuda, caller.context);
  ASSERT_EQ(caller.cuda.capture_begin(caller.stream, MCC_CU_CAPTURE_THREAD_LOCAL), MCC_CU_SUCCESS);
  EXPECT_EQ(error_of([&] { session.run(); }),
            "the stream is being captured: inputs and outputs have to be in the GPU's memory");
  // The capture is as good as before.
  mcc_cu_graph graph = nullptr;
  EXPECT_EQ(caller.cuda.capture_end(caller.stream, &graph), MCC_CU_SUCCESS);
  caller.cuda.graph_destroy(graph);
}

TEST_F(Device, PointersOfAnotherGpuAreCopied) {
  fake().devices = 2;
  Caller other(1);
  mcc_cu_pointer from = 0;
  {
    runtime::CurrentContext current(other.cuda, other.context);
    ASSERT_EQ(other.cuda.allocate(&from, 24), MCC_CU_SUCCESS);
    ASSERT_EQ(other.cuda.copy_to_device(from, x.data(), 24, other.stream), MCC_CU_SUCCESS);
    ASSERT_EQ(other.cuda.stream_synchronize(other.stream), MCC_CU_SUCCESS);
  }
  {
    Session session{Model(model.image())};
    session.set_input("x", reinterpret_cast<const float*>(from), {2, 3});
    session.run();
    EXPECT_THAT(floats(session.output(0)), kExpected());
    session.set_output(0, reinterpret_cast<float*>(from), {2, 3});
    session.run();
    EXPECT_EQ(fake().count("cuMemcpyPeerAsync"), 3);
    EXPECT_EQ(fake().contexts, 4) << "the caller's, the session's, and two that the tensors hold";
    std::vector<float> y(6);
    session.set_input("x", x.data(), {2, 3});
    session.set_output(0, y.data(), {2, 3});
    EXPECT_EQ(fake().contexts, 2);
    session.run();
    EXPECT_THAT(y, kExpected());
  }
  runtime::CurrentContext current(other.cuda, other.context);
  other.cuda.release(from);
}

// Two buffers in turns, as a pipeline has them: each gets its graph, as many as are kept.
TEST_F(Device, CallersThatTakeTurnsBetweenBuffersHaveGraphs) {
  Caller caller;
  SessionOptions options;
  options.cuda_stream = caller.stream;
  Session session{Model(model.image()), options};
  DeviceMemory in(session, 24);
  in.copy(in.data, x.data(), 24);
  session.set_input("x", static_cast<const float*>(in.data), {2, 3});
  std::vector<std::unique_ptr<DeviceMemory>> outputs;
  for (int i = 0; i < 6; ++i)
    outputs.push_back(std::make_unique<DeviceMemory>(session, 24));
  auto run_to = [&](size_t i) {
    const std::vector<float> before(6, -1);
    outputs[i]->copy(outputs[i]->data, before.data(), 24);
    session.set_output(0, static_cast<float*>(outputs[i]->data), {2, 3});
    session.run();
    std::vector<float> y(6);
    outputs[i]->copy(y.data(), outputs[i]->data, 24);
    EXPECT_THAT(y, kExpected()) << "buffer " << i;
  };
  for (int turn = 0; turn < 2; ++turn) {
    run_to(0);
    run_to(1);
  }
  EXPECT_EQ(fake().count("cuGraphInstantiateWithFlags"), 2);
  fake().calls.clear();
  for (int turn = 0; turn < 3; ++turn) {
    run_to(0);
    run_to(1);
  }
  EXPECT_EQ(fake().count("cuGraphLaunch"), 6);
  EXPECT_EQ(fake().count("cuLaunchKernel"), 0);
  // More than are kept: results stay right, and graphs do not pile up.
  for (int turn = 0; turn < 3; ++turn)
    for (size_t i = 0; i < outputs.size(); ++i)
      run_to(i);
  EXPECT_LE(fake().graphs, 4);
  // The two that had graphs began; the others ran one by one until one of them came twice in a row, and was captured.
  run_to(5);
  EXPECT_EQ(fake().count("cuLaunchKernel multiply"), 4 + 6 + 6 + 1);
}

TEST_F(Device, SessionsShareWeightsAndModules) {
  Model shared(model.image());
  Session first(shared), second(shared);
  EXPECT_EQ(fake().modules, 2);
  first.set_input("x", x.data(), {2, 3});
  second.set_input("x", x.data(), {2, 3});
  first.run();
  second.run();
  EXPECT_THAT(floats(second.output(0)), kExpected());
}

// y[i] = 100 * y[i] + the number of the step, or another one.
void append_entry(const unsigned* grid, const unsigned* block, void** params) {
  for (unsigned i = 0; i < grid[0] * block[0]; ++i)
    floats_at(params, 0)[i] =
        100 * floats_at(params, 0)[i] + static_cast<float>(*static_cast<int64_t*>(params[1]));
}

// Behind y = x * w + 1: two launches for each of the steps 3 and 4.
DeviceKernelDesc kernel_of_steps() {
  DeviceKernelDesc k = kernel("increment", {0, 1});
  for (uint32_t argument : {MCC_DEVICE_TURN, MCC_DEVICE_NUMBER(7)})
    k.launches.push_back(kernel("append", {1, argument}).launches[0]);
  k.launches[1].loop_launches = 2;
  k.launches[1].loop_first = 3;
  k.launches[1].loop_turns = 2;
  k.images[0].bytes = ptx("increment") + ".visible .entry append(\n";
  return k;
}

TEST_F(Device, LoopsOfLaunchesAreTheHosts) {
  fake().kernels["append"] = {append_entry, 2};
  model.device->kernels[1] = kernel_of_steps();
  model.device->kernels[1].launches[1].loop_turns = 1;
  Session session{Model(model.image())};
  session.set_input("x", x.data(), {2, 3});
  for (int run = 0; run < 3; ++run) {
    session.run();
    EXPECT_THAT(floats(session.output(0)), ElementsAre(20307, 30307, 40307, 90307, 110307, 130307));
  }
  EXPECT_EQ(fake().count("cuLaunchKernel append"), 2 * 2);  // by themselves, and into a graph
  model.device->kernels[1].launches[1].loop_turns = 2;
  fake().calls.clear();
  EXPECT_EQ(failure(), "");
  EXPECT_EQ(fake().count("cuLaunchKernel append"), 4);
  model.device->kernels[1].launches[1].loop_turns = 0;
  fake().calls.clear();
  EXPECT_EQ(failure(), "");
  EXPECT_EQ(fake().count("cuLaunchKernel append"), 0);
}

TEST_F(Device, LoopsOfLaunchesAreChecked) {
  fake().kernels["append"] = {append_entry, 2};
  std::vector<codegen::DeviceLaunchDesc>& launches = (model.device->kernels[1] = kernel_of_steps()).launches;
  {
    const Model of(model.image());
    mcc_launch_info info = {};
    info.struct_size = sizeof info;
    ASSERT_EQ(mcc_model_node_launch(of.handle(), 1, 2, &info), MCC_OK);
    EXPECT_EQ(info.times, 2U);
    ASSERT_EQ(mcc_model_node_launch(of.handle(), 1, 0, &info), MCC_OK);
    EXPECT_EQ(info.times, 1U);
  }
  launches[1].loop_launches = 3;
  EXPECT_EQ(failure(), "the model's code for GPUs is damaged: the launches of an image");
  launches[1].loop_launches = 2;
  launches[2].loop_launches = 1;
  EXPECT_EQ(failure(), "the model's code for GPUs is damaged: the launches of an image");
  launches[2].loop_launches = 0;
  launches[1].loop_turns = MCC_DEVICE_DIM(0);
  EXPECT_EQ(failure(), "the model's code for GPUs is damaged: the loop around a launch");
  launches[1].loop_turns = 2;
  launches[0].arguments[0] = MCC_DEVICE_TURN;
  EXPECT_EQ(failure(), "the model's code for GPUs is damaged: an argument of a launch");
}

TEST_F(Device, ProfilesByEvents) {
  SessionOptions options;
  options.profile = true;
  Session session{Model(model.image()), options};
  session.set_input("x", x.data(), {2, 3});
  session.run();
  session.run();
  const std::vector<runtime::NodeProfile> profile = session.profile();
  ASSERT_EQ(profile.size(), 2U);
  EXPECT_EQ(profile[0].kind, "device");
  EXPECT_EQ(profile[0].times.executions, 2U);
  EXPECT_EQ(profile[0].times.min_ns, 250000U);
  EXPECT_THAT(floats(session.output(0)), kExpected());
}

TEST_F(Device, MachineCodeOfTheGpuIsPreferred) {
  for (DeviceKernelDesc& k : model.device->kernels) {
    k.images.push_back({MCC_IMAGE_cubin, "sm_90",
                        "\x7f"
                        "ELF90"});
    k.images.push_back({MCC_IMAGE_cubin, "sm_80",
                        "\x7f"
                        "ELF80"});
  }
  EXPECT_EQ(failure(), "");
  EXPECT_EQ(fake().count("cuModuleLoadDataEx cubin"), 2);
  EXPECT_EQ(fake().count("cuModuleLoadDataEx ptx"), 0);
  // A driver that is older than the assembler compiles the PTX.
  fake().calls.clear();
  fake().refuses_cubins = true;
  EXPECT_EQ(failure(), "");
  EXPECT_EQ(fake().count("cuModuleLoadDataEx ptx"), 2);
}

// Other architectures have other schedules: other grids, of other entries.
TEST_F(Device, EachImageHasItsLaunches) {
  fake().kernels["multiply_sm_90"] = fake().kernels["multiply"];
  DeviceKernelDesc& k = model.device->kernels[0];
  k.launches.push_back(k.launches[0]);
  k.launches[1].entry = "multiply_sm_90";
  k.launches[1].grid = {1, 1, 1};
  k.launches[1].block = {6, 1, 1};
  k.images = {{MCC_IMAGE_ptx, "sm_80", ptx("multiply"), 0, 1},
              {MCC_IMAGE_ptx, "sm_90", ptx("multiply_sm_90"), 1, 1}};
  EXPECT_EQ(failure(), "");
  EXPECT_EQ(fake().count("cuLaunchKernel multiply 2x1x1 3x1x1"), 1);
  EXPECT_EQ(fake().count("cuLaunchKernel multiply_sm_90"), 0);
  fake().calls.clear();
  fake().sm = 90;
  EXPECT_EQ(failure(), "");
  EXPECT_EQ(fake().count("cuLaunchKernel multiply_sm_90 1x1x1 6x1x1"), 1);
  EXPECT_EQ(fake().count("cuLaunchKernel multiply 2x1x1"), 0);
  k.images[1].launch_count = 2;
  EXPECT_NE(failure().find("damaged: the launches of an image"), std::string::npos) << failure();
}

TEST_F(Device, ImagesSuitArchitectures) {
  using runtime::image_rank;
  mcc_device_image ptx80 = {}, cubin80 = {}, cubin86 = {}, ptx90a = {};
  ptx80.sm = cubin80.sm = 80;
  cubin80.kind = cubin86.kind = MCC_IMAGE_cubin;
  cubin86.sm = 86;
  ptx90a.sm = 90;
  ptx90a.is_specific = 1;
  EXPECT_EQ(image_rank(ptx80, 75), 0U);
  EXPECT_GT(image_rank(ptx80, 120), 0U);
  EXPECT_GT(image_rank(cubin80, 86), image_rank(ptx80, 86));
  EXPECT_GT(image_rank(cubin86, 89), image_rank(cubin80, 89));
  EXPECT_EQ(image_rank(cubin86, 80), 0U);
  EXPECT_EQ(image_rank(cubin86, 90), 0U);
  EXPECT_GT(image_rank(ptx90a, 90), image_rank(ptx80, 90));
  EXPECT_EQ(image_rank(ptx90a, 100), 0U);
}

TEST_F(Device, TellsOfItsImagesAndLaunches) {
  for (DeviceKernelDesc& k : model.device->kernels)
    k.images.push_back({MCC_IMAGE_cubin, "sm_90a",
                        "\x7f"
                        "ELF"});
  Model m(model.image());
  ASSERT_EQ(mcc_model_image_count(m.handle()), 2U);
  mcc_image_info image = {};
  image.struct_size = sizeof image;
  ASSERT_EQ(mcc_model_image(m.handle(), 1, &image), MCC_OK);
  EXPECT_STREQ(image.kind, "cubin");
  EXPECT_STREQ(image.arch, "sm_90a");
  EXPECT_EQ(image.kernels, 2U);
  EXPECT_EQ(image.bytes, 8U);
  ASSERT_EQ(mcc_model_node_launch_count(m.handle(), 0), 1U);
  mcc_launch_info launch = {};
  launch.struct_size = sizeof launch;
  ASSERT_EQ(mcc_model_node_launch(m.handle(), 0, 0, &launch), MCC_OK);
  EXPECT_STREQ(launch.entry, "multiply");
  EXPECT_EQ(launch.grid[0], 2U);
  mcc_launch_figures figures = {};
  figures.struct_size = sizeof figures;
  ASSERT_EQ(mcc_model_node_figures(m.handle(), 0, 0, 0, &figures), MCC_OK);
  EXPECT_EQ(figures.registers, 24U);
  EXPECT_EQ(figures.spill_loads, 8U);
  EXPECT_EQ(mcc_model_node_figures(m.handle(), 0, 0, 1, &figures), MCC_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace mcc::test
