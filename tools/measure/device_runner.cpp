#include "tools/measure/device_runner.h"

#include <chrono>
#include <cstring>

#include "codegen/hash.h"
#include "tensor/text.h"
#include "tools/measure/build_device.h"
#include "tools/plan_device.h"

namespace mcc::tools {

using tuner::TrialError;

// A candidate on the device. Launches have their arguments once it is bound to memory.
struct DeviceKernel {
  struct Launch {
    mcc_cu_function function = nullptr;
    unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, dynamic_shared = 0;
    std::vector<mcc_cu_pointer> addresses;
    std::vector<int64_t> sizes;  // of symbolic dimensions; then the iteration of a loop, and numbers
    int64_t turns = 1;           // of the loop that begins here
    struct alignas(64) Map : mcc_cu_tensor_map {};
    std::vector<Map> maps;
    std::vector<void*> arguments;
    std::optional<mcc_device_product> call;  // of cuBLASLt, instead of the function
    runtime::LibraryProduct product;
  };

  explicit DeviceKernel(BuiltDevice from) : built(std::move(from)) {}
  DeviceKernel(const DeviceKernel&) = delete;
  DeviceKernel& operator=(const DeviceKernel&) = delete;
  ~DeviceKernel() {
    mcc_error ignored;
    for (Launch& launch : launches)
      if (launch.call) runtime::close_product(*device->library(&ignored), &launch.product);
    if (module != nullptr && !device->is_lost()) device->cuda().module_unload(module);
  }

  BuiltDevice built;
  DeviceContext* device = nullptr;  // that it is loaded on
  mcc_cu_module module = nullptr;
  std::vector<size_t> workspaces;  // their bytes; the device has the memory
  int64_t workspace_version = -1;  // of the addresses in the launches; -1: they have none yet
  const DeviceTask* task = nullptr;  // that the launches have the addresses and sizes of
  std::vector<Launch> launches;
};

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

BuiltKernel failed(BuiltKernel built, TrialError error, std::string message) {
  built.error = error;
  built.message = std::move(message);
  return built;
}

// ---- Building ----

BuiltKernel build_scheduled(const DeviceBuildContext& context, const std::string& trace,
                            const std::function<bool(const std::string& key)>& is_known) {
  const Clock::time_point start = Clock::now();
  BuiltKernel out;
  Result<tensor::Trace> steps = tensor::parse_trace(trace);
  if (!steps.ok()) return failed(std::move(out), TrialError::refused, to_text(steps.errors()));
  tensor::Schedule schedule(context.unscheduled);
  if (tensor::Outcome outcome = schedule.replay(*steps); !outcome)
    return failed(std::move(out), TrialError::refused, outcome.detail);
  if (!tensor::weight_orders(context.unscheduled, schedule.trace()).empty())
    return failed(std::move(out), TrialError::refused, "weights in another order are not measured on GPUs");
  out.replay = seconds_since(start);
  BuiltDevice built =
      build_device(schedule.func(), context.target, context.emit, context.assembler, is_known);
  out.emit = built.seconds;
  out.key = built.key;
  if (built.error != TrialError::none) return failed(std::move(out), built.error, built.message);
  out.memory = built.code.memory;
  out.on_device = std::make_shared<DeviceKernel>(std::move(built));
  return out;
}

}  // namespace

BuiltKernel build_device_candidate(const DeviceBuildContext& context, const std::string& trace,
                                   const std::function<bool(const std::string& key)>& is_known) {
  try {
    return build_scheduled(context, trace, is_known);
  } catch (const std::exception& error) {
    return failed({}, TrialError::build, text("internal error: ", error.what()));
  }
}

// ---- Running ----

namespace {

class DeviceRunner : public KernelRunner {
 public:
  DeviceRunner(const tuner::MeasureOptions& options, DeviceContext& device, DeviceTask& task)
      : options_(options), device_(device), cuda_(device.cuda()), task_(task), measured_(task.measured()) {}

  Status start() override { return done(); }
  bool needs_one_processor() const override { return true; }
  bool needs_all_built() const override { return true; }
  bool is_lost() const override { return device_.is_lost(); }

  bool is_loaded(const BuiltKernel& built) const override { return built.on_device->module != nullptr; }
  RunOutcome load(BuiltKernel& built) override {
    if (RunOutcome loaded = load(*built.on_device); loaded.error != TrialError::none) return loaded;
    if (mcc_cu_result code = task_.upload()) return died(code, "copying the inputs");
    // A library loads the kernels of a product when it is called first, which takes longer than a run may.
    DeviceKernel& kernel = *built.on_device;
    const bool calls = std::any_of(kernel.launches.begin(), kernel.launches.end(),
                                   [](const auto& l) { return l.call.has_value(); });
    if (!calls) return {};
    if (RunOutcome launched = launch(kernel); launched.error != TrialError::none) return launched;
    if (mcc_cu_result code = device_.synchronize()) return died(code, "the kernel");
    return {};
  }

  bool has_cooled() const override { return !is_lost() && device_.has_cooled(); }
  void warm_up() override { device_.warm_up(); }

  RunOutcome run(BuiltKernel& built) override {
    DeviceKernel& kernel = *built.on_device;
    if (mcc_cu_result code = task_.upload()) return died(code, "copying the inputs");
    if (mcc_cu_result code = task_.poison_outputs()) return died(code, "filling the outputs");
    if (RunOutcome poisoned = poison_workspaces(kernel); poisoned.error != TrialError::none) return poisoned;
    cuda_.event_record(device_.event(0, false), device_.stream());
    if (RunOutcome launched = launch(kernel); launched.error != TrialError::none) return launched;
    cuda_.event_record(device_.event(0, true), device_.stream());
    if (mcc_cu_result code = device_.synchronize()) return died(code, "the kernel");
    RunOutcome outcome;
    if (mcc_cu_result code = add_elapsed(0, outcome.us)) return died(code, "timing the kernel");
    return outcome;
  }

  RunOutcome fetch_outputs() override {
    if (mcc_cu_result code = task_.fetch_outputs()) return died(code, "copying the outputs");
    return {};
  }

  RunOutcome time(BuiltKernel& built, int64_t runs, bool is_next, RunBlock& block) override {
    const Clock::time_point begin = Clock::now();
    DeviceKernel& kernel = *built.on_device;
    double us = 0;
    RunOutcome outcome = bind(kernel);
    if (outcome.error != TrialError::none) return outcome;
    if (options_.is_cold) {
      // Each run by itself, with the cache emptied before it; the events of several are waited for at once.
      for (int64_t done = 0; done < runs && outcome.error == TrialError::none;) {
        const auto pairs = static_cast<size_t>(std::min<int64_t>(runs - done, DeviceContext::kPairs));
        for (size_t pair = 0; pair < pairs && outcome.error == TrialError::none; ++pair) {
          if (mcc_cu_result code = device_.flush_cache()) outcome = died(code, "emptying the cache");
          cuda_.event_record(device_.event(pair, false), device_.stream());
          if (outcome.error == TrialError::none) outcome = launch(kernel);
          cuda_.event_record(device_.event(pair, true), device_.stream());
        }
        if (outcome.error != TrialError::none) break;
        if (mcc_cu_result code = device_.synchronize()) {
          outcome = died(code, "the kernel");
          break;
        }
        for (size_t pair = 0; pair < pairs; ++pair)
          if (mcc_cu_result code = add_elapsed(pair, us)) outcome = died(code, "timing the kernel");
        done += static_cast<int64_t>(pairs);
      }
    } else {
      if (!is_next) outcome = launch(kernel);
      cuda_.event_record(device_.event(0, false), device_.stream());
      for (int64_t run = 0; run < runs && outcome.error == TrialError::none; ++run)
        outcome = launch(kernel);
      cuda_.event_record(device_.event(0, true), device_.stream());
      if (outcome.error == TrialError::none) {
        if (mcc_cu_result code = device_.synchronize()) outcome = died(code, "the kernel");
      }
      if (outcome.error == TrialError::none) {
        if (mcc_cu_result code = add_elapsed(0, us)) outcome = died(code, "timing the kernel");
      }
    }
    block.us = us / static_cast<double>(runs);
    block.wall_us = seconds_since(begin) * 1e6;
    return outcome;
  }

  // Copies on the device: its memory's speed moves with the clocks and with what else runs there.
  Calibration calibrate() override {
    constexpr size_t kBytes = 4 << 20;
    constexpr int kRuns = 8;
    Calibration out;
    if (is_lost()) return out;
    mcc_cu_result code = MCC_CU_SUCCESS;
    const mcc_cu_pointer memory = device_.allocate(2 * kBytes, &code);
    if (memory == 0) return out;
    for (int run = 0; run < kRuns; ++run) {
      cuda_.event_record(device_.event(static_cast<size_t>(run), false), device_.stream());
      cuda_.copy_on_device(memory + kBytes, memory, kBytes, device_.stream());
      cuda_.event_record(device_.event(static_cast<size_t>(run), true), device_.stream());
    }
    if (device_.synchronize() == MCC_CU_SUCCESS) {
      std::vector<double> times;
      for (size_t run = 0; run < kRuns; ++run)
        if (double us = 0; add_elapsed(run, us) == MCC_CU_SUCCESS) times.push_back(us);
      std::sort(times.begin(), times.end());
      if (!times.empty()) {
        out.best_us = times.front();
        out.noise = times[times.size() / 2] / times.front() - 1;
      }
    }
    device_.release(memory);
    return out;
  }

 private:
  // An error of work on the device, which its context does not survive.
  RunOutcome died(mcc_cu_result code, const char* what) {
    device_.lose();
    return {0, TrialError::crash, device_.problem(code, what)};
  }

  // Events may be closer together than they can tell.
  mcc_cu_result add_elapsed(size_t pair, double& us) const {
    float ms = 0;
    const mcc_cu_result code = cuda_.event_milliseconds(&ms, device_.event(pair, false), device_.event(pair, true));
    us += std::max(static_cast<double>(ms) * 1e3, 0.01);
    return code;
  }

  RunOutcome load(DeviceKernel& kernel) {
    kernel.device = &device_;
    char log[2048] = "";
    int options[] = {MCC_CU_JIT_ERROR_LOG_BUFFER, MCC_CU_JIT_ERROR_LOG_BUFFER_SIZE};
    void* values[] = {log, reinterpret_cast<void*>(sizeof log - 1)};
    const BuiltDevice& built = kernel.built;
    mcc_cu_result code = MCC_CU_NO_BINARY_FOR_GPU;
    if (built.cubin && !built.cubin->bytes.empty())
      code = cuda_.module_load(&kernel.module, built.cubin->bytes.data(), 2, options, values);
    // Another architecture than the GPU's, or an assembler newer than the driver.
    if (code != MCC_CU_SUCCESS)
      code = cuda_.module_load(&kernel.module, built.code.ptx.c_str(), 2, options, values);
    if (code != MCC_CU_SUCCESS) {
      kernel.module = nullptr;
      return {0, TrialError::build,
              device_.problem(code, "loading the kernel") + (*log ? text(": ", log) : "")};
    }
    for (const codegen::DeviceLaunch& from : built.code.launches) {
      DeviceKernel::Launch& launch = kernel.launches.emplace_back();
      launch.addresses.resize(from.buffers.size());
      if (from.product) {
        if (RunOutcome opened = open_call(from, launch); opened.error != TrialError::none) return opened;
        continue;
      }
      if (mcc_cu_result found = cuda_.module_function(&launch.function, kernel.module, from.entry.c_str()))
        return {0, TrialError::build, device_.problem(found, from.entry)};
      if (from.is_shared_dynamic) {
        launch.dynamic_shared = static_cast<unsigned>(from.shared_bytes);
        if (mcc_cu_result set = cuda_.function_set_attribute(
                launch.function, MCC_CU_FUNCTION_MAX_DYNAMIC_SHARED, static_cast<int>(from.shared_bytes)))
          return {0, TrialError::rejected, device_.problem(set, from.entry)};
      }
      launch.maps.resize(from.maps.size());
      launch.sizes.resize(from.dims.size() + (from.takes_turn ? 1 : 0));
      launch.sizes.insert(launch.sizes.end(), from.numbers.begin(), from.numbers.end());
    }
    for (DeviceKernel::Launch& launch : kernel.launches) {
      for (mcc_cu_pointer& address : launch.addresses)
        launch.arguments.push_back(&address);
      for (int64_t& size : launch.sizes)
        launch.arguments.push_back(&size);
      for (DeviceKernel::Launch::Map& map : launch.maps)
        launch.arguments.push_back(static_cast<mcc_cu_tensor_map*>(&map));
    }
    return bind(kernel);
  }

  unsigned extent_of(const tensor::Expr& e) const {
    const std::optional<int64_t> value = measured_.value_of(e);
    MCC_CHECK(value && *value >= 0 && *value <= UINT32_MAX, "a size of a kernel is not known");
    return static_cast<unsigned>(*value);
  }

  // What follows from the sizes of symbolic dimensions.
  void set_sizes(DeviceKernel& kernel) const {
    kernel.workspaces.clear();
    for (const tensor::Expr& workspace : kernel.built.code.memory.workspaces) {
      const std::optional<int64_t> bytes = measured_.value_of(workspace);
      MCC_CHECK(bytes && *bytes >= 0, "a size of a workspace is not known");
      kernel.workspaces.push_back(static_cast<size_t>(*bytes));
    }
    for (size_t l = 0; l < kernel.launches.size(); ++l) {
      const codegen::DeviceLaunch& from = kernel.built.code.launches[l];
      DeviceKernel::Launch& launch = kernel.launches[l];
      for (size_t i = 0; i < from.dims.size(); ++i)
        launch.sizes[i] = measured_.sizes()[static_cast<size_t>(from.dims[i])];
      if (from.loop_launches > 0) launch.turns = extent_of(from.loop_turns);
      for (size_t i = 0; i < 3 && !launch.call; ++i) {
        launch.grid[i] = extent_of(from.grid[i]);
        launch.block[i] = extent_of(from.block[i]);
      }
    }
  }

  // The addresses of parameters and workspaces; those of workspaces move when another candidate needs more.
  RunOutcome bind(DeviceKernel& kernel) {
    const bool is_elsewhere = kernel.task != &task_;
    if (is_elsewhere) set_sizes(kernel);
    if (const mcc_cu_result code = device_.reserve_workspaces(kernel.workspaces)) {
      size_t bytes = 0;
      for (size_t workspace : kernel.workspaces)
        bytes += workspace;
      return {0, TrialError::rejected, device_.problem(code, text("no workspaces of ", bytes, " bytes"))};
    }
    if (!is_elsewhere && kernel.workspace_version == device_.workspace_version()) return {};
    kernel.task = &task_;
    const size_t parameters = measured_.func().params.size();
    auto address_of = [&](int buffer) {
      const auto i = static_cast<size_t>(buffer);
      return i < parameters ? task_.parameter(i) : device_.workspace(i - parameters);
    };
    for (size_t l = 0; l < kernel.launches.size(); ++l) {
      const codegen::DeviceLaunch& from = kernel.built.code.launches[l];
      DeviceKernel::Launch& launch = kernel.launches[l];
      for (size_t i = 0; i < from.buffers.size(); ++i)
        launch.addresses[i] = address_of(from.buffers[i]);
      for (size_t i = 0; i < launch.maps.size(); ++i) {
        mcc_error problem = {};
        if (runtime::encode_map(cuda_, map_of(from.maps[i]), address_of(from.maps[i].buffer), &launch.maps[i],
                                &problem) != MCC_OK)
          return {0, TrialError::build, problem.message};
      }
    }
    kernel.workspace_version = device_.workspace_version();
    return {};
  }

  // In a model the arena holds what other kernels have left there: who reads what it has not written is found out.
  RunOutcome poison_workspaces(DeviceKernel& kernel) {
    if (RunOutcome bound = bind(kernel); bound.error != TrialError::none) return bound;
    for (size_t i = 0; i < kernel.workspaces.size(); ++i) {
      if (kernel.workspaces[i] == 0) continue;
      if (mcc_cu_result code = cuda_.fill(device_.workspace(i), 0xff, kernel.workspaces[i], device_.stream()))
        return died(code, "filling the workspaces");
    }
    return {};
  }

  // What the library does not compute, or not in so many ways, is no candidate.
  RunOutcome open_call(const codegen::DeviceLaunch& from, DeviceKernel::Launch& launch) {
    mcc_error problem = {};
    const mcc_cublaslt* library = device_.library(&problem);
    if (library == nullptr) return {0, TrialError::rejected, problem.message};
    launch.call = product_of(from);
    if (runtime::open_product(*library, device_.library_handle(), *launch.call, &launch.product, &problem) != MCC_OK)
      return {0, TrialError::rejected, problem.message};
    if (launch.product.algorithms > launch.call->algorithm) return {};
    return {0, TrialError::rejected, text("cuBLASLt names ", launch.product.algorithms, " algorithms for this product")};
  }

  RunOutcome start(DeviceKernel::Launch& l) {
    if (l.call) {
      mcc_error problem = {};
      const mcc_cublaslt* library = device_.library(&problem);
      if (runtime::start_product(*library, device_.library_handle(), *l.call, l.product, l.addresses.data(),
                                 device_.stream(), &problem) != MCC_OK)
        return {0, TrialError::rejected, problem.message};
      return {};
    }
    if (l.grid[0] == 0 || l.grid[1] == 0 || l.grid[2] == 0) return {};
    const mcc_cu_result code =
        cuda_.launch(l.function, l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2],
                     l.dynamic_shared, device_.stream(), l.arguments.data(), nullptr);
    if (code == MCC_CU_SUCCESS) return {};
    // An error of an earlier launch, or one that says that this one is more than the GPU can do.
    if (runtime::is_context_lost(code)) return died(code, "the kernel");
    return {0, TrialError::rejected, device_.problem(code, "launching the kernel")};
  }

  RunOutcome launch(DeviceKernel& kernel) {
    const std::vector<codegen::DeviceLaunch>& all = kernel.built.code.launches;
    for (size_t first = 0; first < all.size();) {
      const size_t end = first + std::max<size_t>(all[first].loop_launches, 1);
      for (int64_t turn = 0; turn < kernel.launches[first].turns; ++turn) {
        for (size_t l = first; l < end; ++l) {
          DeviceKernel::Launch& launch = kernel.launches[l];
          if (all[l].takes_turn) launch.sizes[all[l].dims.size()] = all[first].loop_first + turn;
          if (RunOutcome started = start(launch); started.error != TrialError::none) return started;
        }
      }
      first = end;
    }
    return {};
  }

  const tuner::MeasureOptions& options_;
  DeviceContext& device_;
  const mcc_cuda_driver& cuda_;
  DeviceTask& task_;
  const MeasuredTask& measured_;
};

}  // namespace

std::unique_ptr<KernelRunner> make_device_runner(const tuner::MeasureOptions& options, DeviceContext& device,
                                                 DeviceTask& task) {
  return std::make_unique<DeviceRunner>(options, device, task);
}

}  // namespace mcc::tools
