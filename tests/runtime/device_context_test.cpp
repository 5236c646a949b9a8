// Models for GPUs in programs that use the GPU as well: contexts, streams and their captures, other threads, children, the end of
// the process, and kernels that take the context with them.
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "device_model.h"

namespace mcc::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Nothing of the thread's context says on which GPU the caller's stream is.
TEST_F(Device, ACallersStreamBringsItsContext) {
  fake().devices = 2;
  Caller first(0), second(1);
  SessionOptions options;
  options.cuda_stream = second.stream;
  const runtime::CurrentContext current(first.cuda, first.context);
  {
    Session session{Model(model.image()), options};
    session.set_input("x", x.data(), {2, 3});
    session.run();
    EXPECT_THAT(floats(session.output(0)), kExpected());
    EXPECT_EQ(fake().contexts, 2) << "the callers' two";
  }
  options.cuda_device = 1;
  EXPECT_EQ(error_of([&] { Session session{Model(model.image()), options}; }),
            "cuda_stream is a stream of GPU 1, and cuda_device asks for GPU 0");
  options.cuda_device = 2;
  EXPECT_EQ(error_of([&] { Session session{Model(model.image()), options}; }), "");
}

// Streams of parts of a GPU tell no context: the thread's is meant, or the first GPU's.
TEST_F(Device, StreamsThatTellNoContextAreOfTheThreads) {
  Caller caller;
  SessionOptions options;
  options.cuda_stream = caller.stream;
  for (int code : {MCC_CU_INVALID_CONTEXT, MCC_CU_NOT_SUPPORTED}) {
    fake().failures = {{"cuStreamGetCtx", code}};
    Session session{Model(model.image()), options};
    session.set_input("x", x.data(), {2, 3});
    session.run();
    EXPECT_THAT(floats(session.output(0)), kExpected());
  }
  fake().failures = {{"cuStreamGetCtx", MCC_CU_INVALID_HANDLE}};
  EXPECT_THAT(error_of([&] { Session session{Model(model.image()), options}; }),
              HasSubstr("the stream that the options name cannot be used"));
  fake().failures.clear();
}

// Another context may be current then: no memory is to be taken there, nothing to be given back.
TEST_F(Device, NothingIsDoneWithoutTheContext) {
  Session session{Model(model.image())};
  session.set_input("x", x.data(), {2, 3});
  session.run();
  Caller other(0);
  const runtime::CurrentContext current(other.cuda, other.context);
  fake().failures = {{"cuCtxPushCurrent_v2", MCC_CU_CONTEXT_IS_DESTROYED}};
  fake().calls.clear();
  EXPECT_THAT(error_of([&] { session.run(); }), HasSubstr("the GPU's context cannot be used"));
  EXPECT_THAT(error_of([&] { session.set_input("x", x.data(), {2, 3}); }),
              HasSubstr("the GPU's context cannot be used"));
  void* memory = nullptr;
  mcc_error error;
  EXPECT_EQ(mcc_session_device_alloc(session.handle(), 4, &memory, &error), MCC_DEVICE_FAILED);
  EXPECT_EQ(mcc_session_device_copy(session.handle(), x.data(), x.data(), 4, &error), MCC_DEVICE_FAILED);
  EXPECT_THAT(fake().calls, ElementsAre());
  fake().failures.clear();
}

// ---- Captures ----

// A thread that captures, as frameworks do: whatever another thread allocates in its own mode breaks it.
class Capturing {
 public:
  explicit Capturing(Caller& caller) : caller_(caller) {
    thread_ = std::thread([this] {
      const runtime::CurrentContext current(caller_.cuda, caller_.context);
      int mode = MCC_CU_CAPTURE_GLOBAL;
      caller_.cuda.exchange_capture_mode(&mode);
      EXPECT_EQ(caller_.cuda.capture_begin(caller_.stream, MCC_CU_CAPTURE_GLOBAL), MCC_CU_SUCCESS);
      begun_.set_value();
      end_.get_future().wait();
      mcc_cu_graph graph = nullptr;
      EXPECT_EQ(caller_.cuda.capture_end(caller_.stream, &graph), MCC_CU_SUCCESS) << "somebody has broken it";
      if (graph != nullptr) caller_.cuda.graph_destroy(graph);
      caller_.cuda.exchange_capture_mode(&mode);
    });
    begun_.get_future().wait();
  }
  ~Capturing() {
    end_.set_value();
    thread_.join();
  }

 private:
  Caller& caller_;
  std::promise<void> begun_, end_;
  std::thread thread_;
};

TEST_F(Device, CapturesOfOtherThreadsStayWhole) {
  Caller caller;
  const Capturing capturing(caller);
  {
    Session session{Model(model.image())};
    session.set_input("x", x.data(), {2, 3});
    for (int i = 0; i < 3; ++i)
      session.run();
    EXPECT_THAT(floats(session.output(0)), kExpected());
    const DeviceMemory memory(session, 24);
  }
  // The thread is as it was.
  int mode = MCC_CU_CAPTURE_THREAD_LOCAL;
  EXPECT_EQ(caller.cuda.exchange_capture_mode(&mode), MCC_CU_SUCCESS);
  EXPECT_EQ(mode, MCC_CU_CAPTURE_GLOBAL);
  caller.cuda.exchange_capture_mode(&mode);
}

TEST_F(Device, ABrokenCaptureIsTriedAgain) {
  Session session{Model(model.image())};
  session.set_input("x", x.data(), {2, 3});
  session.run();
  fake().failures = {{"cuStreamEndCapture", MCC_CU_CAPTURE_INVALIDATED}};
  session.run();
  session.run();
  fake().failures.clear();
  EXPECT_EQ(fake().count("cuGraphLaunch"), 0);
  session.run();
  EXPECT_EQ(fake().count("cuGraphLaunch"), 1);
  EXPECT_THAT(floats(session.output(0)), kExpected());
}

TEST_F(Device, CapturesThatAlwaysBreakAreGivenUp) {
  Session session{Model(model.image())};
  session.set_input("x", x.data(), {2, 3});
  fake().failures = {{"cuStreamEndCapture", MCC_CU_CAPTURE_INVALIDATED}};
  for (int i = 0; i < 8; ++i)
    session.run();
  EXPECT_EQ(fake().count("cuStreamBeginCapture_v2"), 3);
  EXPECT_EQ(fake().count("cuLaunchKernel multiply"), 8 + 3);
  EXPECT_THAT(floats(session.output(0)), kExpected());
  fake().failures.clear();
}

// ---- Lost contexts ----

// The caller's own kernel has failed: no node of the model is at fault.
TEST_F(Device, ALostContextIsNobodysFault) {
  constexpr const char* kLost =
      "the GPU's context is lost to what it was given before this call, by this model or by another part of "
      "the program; all that "
      "uses this GPU has to be started again in a new process: an illegal memory access was encountered "
      "(CUDA_ERROR_ILLEGAL_ADDRESS, 700)";
  Caller caller;
  SessionOptions options;
  options.cuda_stream = caller.stream;
  Session session{Model(model.image()), options};
  DeviceMemory in(session, 24), out(session, 24);
  session.set_input("x", static_cast<const float*>(in.data), {2, 3});
  session.set_output(0, static_cast<float*>(out.data), {2, 3});
  for (int runs = 0; runs < 2; ++runs) {
    fake().lost = MCC_CU_ILLEGAL_ADDRESS;
    EXPECT_EQ(error_of([&] { session.run(); }), kLost) << "after " << runs << " runs";
    fake().lost = 0;
    session.run();
    session.run();
  }
  // A pointer that the driver tells nothing of is not taken for the host's.
  fake().lost = MCC_CU_ILLEGAL_ADDRESS;
  EXPECT_THAT(error_of([&] { session.set_input("x", static_cast<const float*>(out.data), {2, 3}); }),
              HasSubstr("the driver does not tell where an input or output is: an illegal memory access"));
  fake().lost = 0;
}

TEST_F(Device, WhatAKernelDoesIsFoundWhenItIsWaitedFor) {
  fake().kernels["increment"] = {
      [](const unsigned*, const unsigned*, void**) { fake().lost = MCC_CU_ILLEGAL_ADDRESS; }, 2};
  EXPECT_EQ(failure(),
            "the model's kernels failed on the GPU: an illegal memory access was encountered "
            "(CUDA_ERROR_ILLEGAL_ADDRESS, 700)");
  fake().lost = 0;
  forget_what_is_held();
}

TEST_F(Device, CodesThatTakeTheContextWithThem) {
  for (int code : {214, 220, 700, 702, 710, 714, 715, 716, 717, 718, 719})
    EXPECT_TRUE(runtime::is_context_lost(code)) << code;
  for (int code : {0, 1, 2, 3, 4, 201, 209, 400, 701, 709, 801, 900, 901, 908})
    EXPECT_FALSE(runtime::is_context_lost(code)) << code;
}

// ---- Processes ----

// A child's own call of the driver is refused, and so is every use of a session of its parent's.
TEST_F(Device, AChildOfAForkIsToldSo) {
  constexpr const char* kForked =
      "this process was forked from one that had begun to use the GPU, and the driver serves no such child: "
      "fork before the first "
      "session on a GPU, or start the child by exec";
  Session session{Model(model.image())};
  session.set_input("x", x.data(), {2, 3});
  session.run();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string said = error_of([&] { session.run(); }) + "\n" + failure();
    const ssize_t written = ::write(ends[1], said.data(), said.size());
    ::_exit(written == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t n; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    said.append(buffer, static_cast<size_t>(n));
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(said, std::string(kForked) + "\n" + kForked);
  // The parent goes on.
  session.run();
  EXPECT_THAT(floats(session.output(0)), kExpected());
}

// At the end of a process the driver may be gone before the last session is.
TEST_F(Device, SessionsMayOutliveTheDriver) {
  SessionOptions options;
  options.profile = true;
  auto session = std::make_unique<Session>(Model(model.image()), options);
  session->set_input("x", x.data(), {2, 3});
  session->run();
  fake().calls.clear();
  fake().is_deinitialized = true;
  session.reset();
  EXPECT_THAT(fake().calls, ElementsAre("cuDevicePrimaryCtxRelease_v2"));
  fake().is_deinitialized = false;
  forget_what_is_held();
}

}  // namespace
}  // namespace mcc::test
