// What the stand-in driver queues: copies, launches, events, graphs. As a GPU does, it works on none of it before somebody waits.
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "fake_cuda/fake_driver.h"
#include "fake_cuda/ptx_counts.h"

namespace mcc::test {

int enqueue(mcc_cu_stream stream, Work work) {
  if (!driver().streams.contains(stream)) return MCC_CU_INVALID_VALUE;
  stream->is_behind_kernel = false;
  if (stream->is_capturing) {
    stream->captured.push_back(std::move(work));
  } else {
    stream->queue.push_back(std::move(work));
  }
  return MCC_CU_SUCCESS;
}

void finish(mcc_cu_stream stream) {
  while (!stream->queue.empty()) {
    const Work work = std::move(stream->queue.front());
    stream->queue.pop_front();
    work();
  }
}

void finish_all() {
  for (mcc_cu_stream stream : driver().streams)
    finish(stream);
}

int refuse_in_capture() {
  const int mode = this_thread().capture_mode;
  if (mode == MCC_CU_CAPTURE_RELAXED) return MCC_CU_SUCCESS;
  int code = MCC_CU_SUCCESS;
  for (mcc_cu_stream stream : driver().streams) {
    if (!stream->is_capturing) continue;
    const bool is_own = stream->capturer == std::this_thread::get_id();
    const bool is_forbidden =
        is_own ? stream->capture_mode != MCC_CU_CAPTURE_RELAXED
               : stream->capture_mode == MCC_CU_CAPTURE_GLOBAL && mode == MCC_CU_CAPTURE_GLOBAL;
    if (!is_forbidden) continue;
    stream->is_capture_broken = true;
    code = MCC_CU_CAPTURE_UNSUPPORTED;
  }
  return code;
}

}  // namespace mcc::test

using namespace mcc::test;

extern "C" __attribute__((visibility("default"))) const FakeCudaHooks fake_cuda_hooks = {
    [](mcc_cu_stream stream, std::function<void()> work, float milliseconds) {
      driver().state.calls.push_back("library call");
      return enqueue(stream, [work = std::move(work), milliseconds] {
        work();
        driver().clock += milliseconds;
      });
    },
    is_device};

namespace {

// What a stream's capture refuses of calls on it.
int refuse_on_captured(mcc_cu_stream stream) {
  if (!driver().streams.contains(stream)) return MCC_CU_INVALID_VALUE;
  if (!stream->is_capturing) return MCC_CU_SUCCESS;
  stream->is_capture_broken = true;
  return MCC_CU_CAPTURE_UNSUPPORTED;
}

void* to_memory(mcc_cu_pointer address) { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); }

int enqueue_kernel(mcc_cu_stream stream, Work work) {
  const int code = enqueue(stream, std::move(work));
  if (code == MCC_CU_SUCCESS) stream->is_behind_kernel = true;
  return code;
}

int launch(const char* name, mcc_cu_function function, const PtxGrid& sizes, mcc_cu_stream stream, void** params) {
  const auto [gx, gy, gz] = sizes.grid;
  const auto [bx, by, bz] = sizes.block;
  const unsigned shared = sizes.dynamic_shared;
  std::ostringstream what;
  what << function->entry << ' ' << gx << 'x' << gy << 'x' << gz << ' ' << bx << 'x' << by << 'x' << bz << ' '
       << shared;
  if (int code = called(name, what.str())) return code;
  // "SIZES=ACTION": of launches of that grid and block.
  const std::string& action = driver().launch_action;
  if (const size_t at = action.find('=');
      at != std::string::npos && what.str().find(action.substr(0, at)) != std::string::npos) {
    if (action.ends_with("=hang")) {
      for (;;)
        pause();
    }
    if (action.ends_with("=skip")) return MCC_CU_SUCCESS;
    const int code = std::atoi(action.c_str() + at + 1);
    if (code == MCC_CU_LAUNCH_OUT_OF_RESOURCES) return code;
    return enqueue_kernel(stream, [code] { driver().state.lost = code; });
  }
  NEEDS_CONTEXT;
  if (!driver().streams.contains(stream) || function->context != stream->context)
    return MCC_CU_INVALID_HANDLE;
  constexpr unsigned kMostBlocks = 0x7fffffff, kMostBlocksYz = 0xffff, kMostThreads = 1024,
                     kMostThreadsZ = 64;
  const bool is_grid = gx - 1 < kMostBlocks && gy - 1 < kMostBlocksYz && gz - 1 < kMostBlocksYz;
  const bool is_block = bx - 1 < kMostThreads && by - 1 < kMostThreads && bz - 1 < kMostThreadsZ &&
                        bx * by * bz <= kMostThreads;
  if (!is_grid || !is_block || shared > function->dynamic_shared) return MCC_CU_INVALID_VALUE;
  if (function->ptx != nullptr && !ptx_takes_block(*function->ptx, function->entry, {bx, by, bz}))
    return MCC_CU_INVALID_VALUE;
  FakeEntry entry;
  if (auto it = driver().state.kernels.find(function->entry); it != driver().state.kernels.end())
    entry = it->second;
  if (entry.function == nullptr && driver().kernels != nullptr) {
    entry.function = reinterpret_cast<FakeKernel>(dlsym(driver().kernels, function->entry.c_str()));
    const void* count = dlsym(driver().kernels, (function->entry + "_arguments").c_str());
    if (count != nullptr) entry.arguments = *static_cast<const int*>(count);
  }
  if (function->ptx != nullptr) entry.arguments = ptx_arguments(*function->ptx, function->entry);
  if (entry.function == nullptr && function->ptx == nullptr) return 500;
  // As a driver does, the values of the arguments are taken now.
  std::vector<uint64_t> values;
  auto maps = std::make_shared<std::vector<std::unique_ptr<PtxTensorMap>>>();
  for (int i = 0; i < entry.arguments; ++i) {
    const size_t bytes =
        function->ptx != nullptr ? ptx_argument_bytes(*function->ptx, function->entry, i) : 8;
    if (bytes == sizeof(PtxTensorMap)) {
      maps->push_back(std::make_unique<PtxTensorMap>());
      std::memcpy(maps->back().get(), params[i], bytes);
      values.push_back(reinterpret_cast<uint64_t>(maps->back().get()));
    } else {
      values.push_back(*static_cast<uint64_t*>(params[i]));
    }
  }
  if (function->ptx != nullptr) {
    return enqueue_kernel(stream, [=, kept = maps] {
      if (const std::string& file = driver().count_file; !file.empty()) {
        std::ofstream(file, std::ios::app) << counts_line(
            function->entry, sizes, count_ptx(*function->ptx, function->entry, sizes, values, is_device));
        return;
      }
      const auto start = std::chrono::steady_clock::now();
      const std::string problem = run_ptx(*function->ptx, function->entry, sizes, values, is_device);
      driver().clock +=
          std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - start).count();
      if (problem.empty()) return;
      // As on a GPU, later calls report it; here with the reason.
      std::fprintf(stderr, "stand-in GPU: %s: %s\n", function->entry.c_str(), problem.c_str());
      driver().state.lost = MCC_CU_ILLEGAL_ADDRESS;
    });
  }
  return enqueue_kernel(stream, [=]() mutable {
    std::vector<void*> list;
    for (uint64_t& value : values)
      list.push_back(&value);
    entry.function(sizes.grid, sizes.block, list.data());
    driver().clock += 0.25F;
  });
}

}  // namespace

FAKE(cuMemcpyHtoDAsync_v2)(mcc_cu_pointer to, const void* from, size_t bytes, mcc_cu_stream stream) {
  CALLED(cuMemcpyHtoDAsync_v2);
  NEEDS_CONTEXT;
  if (!is_device(to, bytes)) return MCC_CU_INVALID_VALUE;
  const auto address = reinterpret_cast<uintptr_t>(from);
  // The driver has its own copy of pageable memory when it returns; what is pinned is read later.
  if (driver().block_of(address) != nullptr)
    return enqueue(stream, [=] { std::memcpy(to_memory(to), from, bytes); });
  const std::string staged(static_cast<const char*>(from), bytes);
  return enqueue(stream, [=] { std::memcpy(to_memory(to), staged.data(), bytes); });
}
FAKE(cuMemcpyDtoHAsync_v2)(void* to, mcc_cu_pointer from, size_t bytes, mcc_cu_stream stream) {
  CALLED(cuMemcpyDtoHAsync_v2);
  NEEDS_CONTEXT;
  if (!is_device(from, bytes)) return MCC_CU_INVALID_VALUE;
  return enqueue(stream, [=] { std::memcpy(to, to_memory(from), bytes); });
}
// From one GPU to another it works for some memory, not for that of pools.
FAKE(cuMemcpyDtoDAsync_v2)(mcc_cu_pointer to, mcc_cu_pointer from, size_t bytes, mcc_cu_stream stream) {
  CALLED(cuMemcpyDtoDAsync_v2);
  NEEDS_CONTEXT;
  if (!is_device(to, bytes) || !is_device(from, bytes)) return MCC_CU_INVALID_VALUE;
  if (driver().block_of(to)->device != driver().block_of(from)->device) return MCC_CU_INVALID_VALUE;
  return enqueue(stream, [=] { std::memcpy(to_memory(to), to_memory(from), bytes); });
}
FAKE(cuMemcpyPeerAsync)
(mcc_cu_pointer to, mcc_cu_context to_context, mcc_cu_pointer from, mcc_cu_context from_context, size_t bytes,
 mcc_cu_stream stream) {
  CALLED(cuMemcpyPeerAsync);
  NEEDS_CONTEXT;
  if (!is_device(to, bytes) || !is_device(from, bytes)) return MCC_CU_INVALID_VALUE;
  if (driver().block_of(to)->device != to_context->device || driver().block_of(from)->device != from_context->device)
    return MCC_CU_INVALID_VALUE;
  return enqueue(stream, [=] { std::memcpy(to_memory(to), to_memory(from), bytes); });
}
FAKE(cuMemsetD8Async)(mcc_cu_pointer to, unsigned char value, size_t bytes, mcc_cu_stream stream) {
  CALLED(cuMemsetD8Async);
  NEEDS_CONTEXT;
  if (!is_device(to, bytes)) return MCC_CU_INVALID_VALUE;
  return enqueue(stream, [=] {
    std::memset(to_memory(to), value, bytes);
    int& slow = driver().state.slow_fills;
    driver().clock += slow > 0 ? 0.08F : 0.01F;
    slow -= slow > 0 ? 1 : 0;
  });
}
FAKE(cuStreamCreate)(mcc_cu_stream* stream, unsigned) {
  CALLED(cuStreamCreate);
  NEEDS_CONTEXT;
  *stream = new mcc_cu_stream_s;
  (*stream)->context = this_thread().contexts.back();
  driver().streams.insert(*stream);
  ++driver().state.streams;
  return MCC_CU_SUCCESS;
}
FAKE(cuStreamDestroy_v2)(mcc_cu_stream stream) {
  NEEDS_CONTEXT;
  if (!driver().streams.contains(stream)) return MCC_CU_INVALID_HANDLE;
  finish(stream);
  --driver().state.streams;
  driver().streams.erase(stream);
  delete stream;
  return MCC_CU_SUCCESS;
}
FAKE(cuStreamSynchronize)(mcc_cu_stream stream) {
  CALLED(cuStreamSynchronize);
  NEEDS_CONTEXT;
  if (int code = refuse_on_captured(stream)) return code;
  IS_UNSAFE_IN_CAPTURES;
  finish(stream);
  // What the work of before has come to.
  return driver().state.lost;
}
FAKE(cuStreamGetCtx)(mcc_cu_stream stream, mcc_cu_context* context) {
  CALLED(cuStreamGetCtx);
  // The default streams are those of the current context.
  if (reinterpret_cast<uintptr_t>(stream) <= 2) {
    NEEDS_CONTEXT;
    *context = this_thread().contexts.back();
    return MCC_CU_SUCCESS;
  }
  if (!driver().streams.contains(stream)) return MCC_CU_INVALID_HANDLE;
  *context = stream->context;
  return MCC_CU_SUCCESS;
}
FAKE(cuThreadExchangeStreamCaptureMode)(int* mode) {
  NEEDS_DRIVER;
  if (*mode < MCC_CU_CAPTURE_GLOBAL || *mode > MCC_CU_CAPTURE_RELAXED) return MCC_CU_INVALID_VALUE;
  std::swap(*mode, this_thread().capture_mode);
  return MCC_CU_SUCCESS;
}
FAKE(cuLaunchKernel)
(mcc_cu_function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
 unsigned shared, mcc_cu_stream stream, void** params, void**) {
  return launch("cuLaunchKernel", function, {{gx, gy, gz}, {bx, by, bz}, shared}, stream, params);
}
// With the one attribute that lets a kernel begin before the one ahead of it has ended: which has to be a kernel, and this one has
// to wait for it.
FAKE(cuLaunchKernelEx)(const mcc_cu_launch_config* c, mcc_cu_function function, void** params, void**) {
  if (c->attributes_count != 1 || c->attributes->id != MCC_CU_LAUNCH_BEFORE_PREVIOUS_ENDS || c->attributes->value.flag != 1)
    return MCC_CU_INVALID_VALUE;
  if (!driver().streams.contains(c->stream) || !c->stream->is_behind_kernel) return MCC_CU_INVALID_VALUE;
  if (function->ptx != nullptr && !ptx_waits(*function->ptx, function->entry)) return MCC_CU_INVALID_VALUE;
  return launch("cuLaunchKernelEx", function,
                {{c->grid_x, c->grid_y, c->grid_z}, {c->block_x, c->block_y, c->block_z}, c->shared_bytes}, c->stream, params);
}
FAKE(cuTensorMapEncodeTiled)
(mcc_cu_tensor_map* map, int type, uint32_t rank, void* address, const uint64_t* extents,
 const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave, int swizzle,
 int promotion, int fill) {
  CALLED(cuTensorMapEncodeTiled);
  PtxTensorMap made;
  const uint32_t element_bytes = type == MCC_CU_TENSOR_UINT8    ? 1
                                 : type == MCC_CU_TENSOR_UINT16 ? 2
                                 : type == MCC_CU_TENSOR_UINT32 ? 4
                                                                : 0;
  const bool is_good =
      reinterpret_cast<uintptr_t>(map) % 64 == 0 && element_bytes != 0 && rank == 2 && interleave == 0 &&
      fill == 0 && promotion >= 0 && promotion <= 3 && steps[0] == 1 && steps[1] == 1 &&
      make_map(reinterpret_cast<uintptr_t>(address), extents, strides, box, swizzle, element_bytes, &made);
  if (is_good) std::memcpy(map, &made, sizeof made);
  return is_good ? MCC_CU_SUCCESS : MCC_CU_INVALID_VALUE;
}
FAKE(cuEventCreate)(mcc_cu_event* event, unsigned) {
  CALLED(cuEventCreate);
  NEEDS_CONTEXT;
  ++driver().state.events;
  *event = give(new mcc_cu_event_s);
  (*event)->context = this_thread().contexts.back();
  return MCC_CU_SUCCESS;
}
FAKE(cuEventDestroy_v2)(mcc_cu_event event) {
  NEEDS_CONTEXT;
  --driver().state.events;
  return take_back(event);
}
FAKE(cuEventRecord)(mcc_cu_event event, mcc_cu_stream stream) {
  CALLED(cuEventRecord);
  NEEDS_CONTEXT;
  if (!driver().streams.contains(stream) || event->context != stream->context) return MCC_CU_INVALID_HANDLE;
  event->last = std::make_shared<mcc_cu_event_s::Record>();
  return enqueue(stream, [record = event->last] { *record = {true, driver().clock}; });
}
FAKE(cuEventElapsedTime)(float* ms, mcc_cu_event begin, mcc_cu_event end) {
  CALLED(cuEventElapsedTime);
  constexpr int kNotReady = 600;
  if (begin->last == nullptr || end->last == nullptr) return MCC_CU_INVALID_HANDLE;
  if (!begin->last->is_there || !end->last->is_there) return kNotReady;
  *ms = end->last->at - begin->last->at;
  return MCC_CU_SUCCESS;
}
FAKE(cuStreamIsCapturing)(mcc_cu_stream stream, int* status) {
  NEEDS_CONTEXT;
  if (!driver().streams.contains(stream)) return MCC_CU_INVALID_VALUE;
  *status = !stream->is_capturing ? 0 : stream->is_capture_broken ? 2 : 1;
  return MCC_CU_SUCCESS;
}
FAKE(cuStreamBeginCapture_v2)(mcc_cu_stream stream, int mode) {
  CALLED(cuStreamBeginCapture_v2);
  NEEDS_CONTEXT;
  if (int code = refuse_on_captured(stream)) return code;
  stream->is_capturing = true;
  stream->capture_mode = mode;
  stream->capturer = std::this_thread::get_id();
  stream->is_capture_broken = stream->is_behind_kernel = false;
  stream->captured.clear();
  return MCC_CU_SUCCESS;
}
FAKE(cuStreamEndCapture)(mcc_cu_stream stream, mcc_cu_graph* graph) {
  CALLED(cuStreamEndCapture);
  NEEDS_CONTEXT;
  if (!driver().streams.contains(stream) || !stream->is_capturing) return MCC_CU_INVALID_VALUE;
  constexpr int kWrongThread = 908;
  if (stream->capture_mode != MCC_CU_CAPTURE_RELAXED && stream->capturer != std::this_thread::get_id())
    return kWrongThread;
  stream->is_capturing = false;
  if (stream->is_capture_broken) return MCC_CU_CAPTURE_INVALIDATED;
  ++driver().state.graphs;
  *graph = give(new mcc_cu_graph_s{stream->captured});
  return MCC_CU_SUCCESS;
}
FAKE(cuGraphInstantiateWithFlags)(mcc_cu_graph_exec* exec, mcc_cu_graph graph, unsigned long long) {
  CALLED(cuGraphInstantiateWithFlags);
  NEEDS_CONTEXT;
  ++driver().state.graphs;
  *exec = give(new mcc_cu_graph_exec_s{graph->work});
  return MCC_CU_SUCCESS;
}
// A stream that is being captured takes no graph, and no graph is given back meanwhile.
FAKE(cuGraphLaunch)(mcc_cu_graph_exec exec, mcc_cu_stream stream) {
  CALLED(cuGraphLaunch);
  NEEDS_CONTEXT;
  if (int code = refuse_on_captured(stream)) return code;
  for (const Work& work : exec->work)
    enqueue(stream, work);
  return MCC_CU_SUCCESS;
}
FAKE(cuGraphDestroy)(mcc_cu_graph graph) {
  NEEDS_DRIVER;
  --driver().state.graphs;
  return take_back(graph);
}
FAKE(cuGraphExecDestroy)(mcc_cu_graph_exec exec) {
  NEEDS_DRIVER;
  IS_UNSAFE_IN_CAPTURES;
  --driver().state.graphs;
  return take_back(exec);
}
