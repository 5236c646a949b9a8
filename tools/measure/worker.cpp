#include "tools/measure/worker.h"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <list>
#include <map>
#include <mutex>
#include <queue>
#include <thread>

#include "codegen/hash.h"
#include "tensor/library_product.h"
#include "tools/cuda_tools.h"
#include "tools/measure/batch.h"
#include "tools/measure/device_runner.h"
#include "tools/measure/protocol.h"

namespace mcc::tools {

namespace {

constexpr int kEndedByReader = 0;
constexpr int kBadInput = 3;
// Of generated code, reference and inputs; a request that needs more is refused.
constexpr int64_t kMaxTaskBytes = int64_t{4} << 30;
// Tasks that are kept for later requests.
constexpr int64_t kMaxKeptBytes = int64_t{1} << 30;

// Lines from a descriptor, read on a thread of its own. When the other side of `out` is gone the process ends: a kernel
// that hangs must not keep it alive.
class LineReader {
 public:
  LineReader(int in, int out) : in_(in), out_(out), thread_([this] { read_all(); }) { thread_.detach(); }

  // False at the end of the requests.
  bool next(std::string& line) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !lines_.empty() || is_done_; });
    if (lines_.empty()) return false;
    line = std::move(lines_.front());
    lines_.pop();
    return true;
  }
  bool was_too_long() const { return was_too_long_; }

 private:
  void read_all() {
    std::string pending;
    char buffer[1 << 16];
    while (!was_too_long_) {
      pollfd ends[2] = {{in_, POLLIN, 0}, {out_, 0, 0}};
      if (::poll(ends, 2, -1) < 0) continue;
      if ((ends[1].revents & (POLLERR | POLLHUP)) != 0) ::_exit(kEndedByReader);
      if (ends[0].revents == 0) continue;
      const ssize_t n = ::read(in_, buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      pending.append(buffer, static_cast<size_t>(n));
      was_too_long_ = pending.size() > kMaxRequestBytes;
      split(pending);
    }
    if (!pending.empty() && !was_too_long_) push(std::move(pending));
    pollfd end = {out_, 0, 0};
    {
      // Who has seen the end may end the reader's life: it is not touched from here on.
      std::lock_guard lock(mutex_);
      is_done_ = true;
      changed_.notify_all();
    }
    while (true) {
      if (::poll(&end, 1, -1) > 0) ::_exit(kEndedByReader);
    }
  }

  void split(std::string& pending) {
    size_t begin = 0;
    for (size_t end; (end = pending.find('\n', begin)) != std::string::npos; begin = end + 1)
      push(pending.substr(begin, end - begin));
    pending.erase(0, begin);
  }

  void push(std::string line) {
    {
      std::lock_guard lock(mutex_);
      lines_.push(std::move(line));
    }
    changed_.notify_all();
  }

  int in_, out_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::queue<std::string> lines_;
  bool is_done_ = false;
  std::atomic<bool> was_too_long_ = false;
  std::thread thread_;
};

// A line is written whole, whichever thread it comes from.
class LineWriter {
 public:
  explicit LineWriter(int out) : out_(out) {}

  void write(const WorkerMessage& message) {
    const std::string line = encode(message) + "\n";
    std::lock_guard lock(mutex_);
    for (size_t sent = 0; sent < line.size();) {
      const ssize_t n = ::write(out_, line.data() + sent, line.size() - sent);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) ::_exit(kEndedByReader);
      sent += static_cast<size_t>(n);
    }
  }

 private:
  int out_;
  std::mutex mutex_;
};

// Sanitizers reserve terabytes of address space, which no limit can be set around.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimitMemory = false;
#else
constexpr bool kLimitMemory = true;
#endif

// Can be taken back: of what the process itself may do nothing is given up.
void limit_memory(rlim_t bytes) {
  if (!kLimitMemory) return;
  rlimit limit = {};
  ::getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = std::min(bytes, limit.rlim_max);
  ::setrlimit(RLIMIT_DATA, &limit);
}

// Whether the trace may call a library; what it says is looked at when it is built.
bool names_library(const std::string& trace) { return trace.find(tensor::kLibrary) != std::string::npos; }

// What one process keeps between requests.
class Worker {
 public:
  explicit Worker(LineWriter& out) : out_(out) {}

  void serve(const std::string& line) {
    Result<WorkerRequest> request = decode_request(line);
    if (!request.ok()) return report(0, request.errors());
    Status status = done();
    try {
      status = measure(*request);
    } catch (const std::exception& error) {
      status = Diagnostic{ErrorKind::environment, "", text("internal error: ", error.what()), ""};
    }
    if (!status.ok()) return report(request->id, status.errors());
    WorkerMessage message;
    message.id = request->id;
    out_.write(message);
  }

  void report(int64_t id, const Diagnostics& errors) {
    WorkerMessage message;
    message.id = id;
    message.event = WorkerEvent::error;
    message.errors = errors;
    out_.write(message);
  }

 private:
  struct Machine {
    tensor::Target target;
    std::unique_ptr<codegen::Jit> jit;              // of a CPU
    std::unique_ptr<codegen::Assembler> assembler;  // of a GPU, where there is one
  };
  struct KeptTask {
    std::string key;
    std::unique_ptr<MeasuredTask> task;
    std::vector<std::unique_ptr<DeviceTask>> on_device;  // at all its sizes, once it has been measured there
  };

  Result<Machine*> machine_for(const std::string& name) {
    auto it = machines_.find(name);
    if (it != machines_.end()) return &it->second;
    Result<tensor::Target> target = codegen::make_target(name);
    if (!target.ok()) return target.errors();
    Machine machine{*target, nullptr, nullptr};
    if (target->kind == tensor::TargetKind::cuda) {
      machine.assembler = find_assembler_for(*target).assembler;  // who asks has been told of a problem
      if (!device_) {
        // A driver reserves addresses for all memory that there is, of the host and of GPUs.
        limit_memory(RLIM_INFINITY);
        Result<std::unique_ptr<DeviceContext>> device = DeviceContext::open();
        if (!device.ok()) return device.errors();
        device_ = std::move(*device);
      }
    } else {
      Result<std::unique_ptr<codegen::Jit>> jit = codegen::Jit::create(*target);
      if (!jit.ok()) return jit.errors();
      machine.jit = std::move(*jit);
    }
    return &machines_.emplace(name, std::move(machine)).first->second;
  }

  // The latest tasks stay: a task scheduler comes back to them.
  Result<KeptTask*> task_for(const WorkerRequest& request) {
    const std::string key = text(request.options.seed, " ", request.task);
    auto it = std::find_if(tasks_.begin(), tasks_.end(), [&](const KeptTask& t) { return t.key == key; });
    if (it != tasks_.end()) {
      tasks_.splice(tasks_.begin(), tasks_, it);
      return &tasks_.front();
    }
    Result<std::unique_ptr<MeasuredTask>> task =
        MeasuredTask::create(request.task, request.options.seed, kMaxTaskBytes);
    if (!task.ok()) return task.errors();
    tasks_.push_front({key, std::move(*task), {}});
    int64_t kept = 0;
    for (auto t = tasks_.begin(); t != tasks_.end();) {
      kept += t->task->bytes();
      t = t != tasks_.begin() && kept > kMaxKeptBytes ? tasks_.erase(t) : std::next(t);
    }
    return &tasks_.front();
  }

  Status measure(const WorkerRequest& request) {
    Result<Machine*> machine = machine_for(request.target);
    if (!machine.ok()) return machine.errors();
    Result<KeptTask*> task = task_for(request);
    if (!task.ok()) return task.errors();
    const bool is_gpu = (*machine)->target.kind == tensor::TargetKind::cuda;
    // What a GPU computes is compared with what this machine's processor does.
    Result<Machine*> processor = is_gpu ? machine_for("cpu") : machine;
    if (!processor.ok()) return processor.errors();
    const MeasuredTask& measured = *(*task)->task;
    const BuildContext context{measured.func(), (*processor)->target, request.emit, *(*processor)->jit};
    const std::string results_key = codegen::sha256(text(
        request.target, " ", request.options.threads, request.options.is_cold, " ", request.emit.optimization,
        request.emit.strict, request.emit.fast_math, " ", request.options.seed, " ", request.task));
    const auto send = [&](const WorkerMessage& message) { out_.write(message); };
    std::vector<OtherSizes> others;
    if (!is_gpu) {
      std::unique_ptr<KernelRunner> runner = make_cpu_runner(request.options, context, *(*task)->task);
      for (const std::unique_ptr<MeasuredTask>& other : measured.others())
        others.push_back({*other, make_cpu_runner(request.options, context, *other)});
      return measure_batch(request, context, *(*task)->task, *runner, others, results_[results_key], send);
    }
    if (Status status = put_on_device(**task); !status.ok())
      return reject_all(request, status.errors()[0].message);
    // Loading a library takes longer than a run may.
    mcc_error ignored = {};
    if (std::any_of(request.candidates.begin(), request.candidates.end(), names_library)) device_->library(&ignored);
    const DeviceBuildContext build{measured.func(), (*machine)->target, request.emit,
                                   (*machine)->assembler.get()};
    std::vector<std::unique_ptr<DeviceTask>>& on_device = (*task)->on_device;
    std::unique_ptr<KernelRunner> runner =
        make_device_runner(request.options, build, *device_, *on_device[0]);
    for (size_t i = 0; i < measured.others().size(); ++i)
      others.push_back(
          {*measured.others()[i], make_device_runner(request.options, build, *device_, *on_device[i + 1])});
    Status status =
        measure_batch(request, context, *(*task)->task, *runner, others, results_[results_key], send);
    if (device_->is_lost()) restart(request.id);
    return status;
  }

  // Its parameters, at all sizes.
  Status put_on_device(KeptTask& task) {
    if (!task.on_device.empty()) return done();
    std::vector<MeasuredTask*> all{task.task.get()};
    for (const std::unique_ptr<MeasuredTask>& other : task.task->others())
      all.push_back(other.get());
    for (MeasuredTask* at : all) {
      mcc_cu_result code = MCC_CU_SUCCESS;
      task.on_device.push_back(DeviceTask::create(*device_, *at, &code));
      if (task.on_device.back()) continue;
      task.on_device.clear();
      return Diagnostic{
          ErrorKind::environment, "",
          device_->problem(code, text("no memory for the task's ", task.task->bytes(), " bytes")), ""};
    }
    return done();
  }

  Status reject_all(const WorkerRequest& request, const std::string& reason) {
    for (size_t i = 0; i < request.candidates.size(); ++i) {
      WorkerMessage message;
      message.id = request.id;
      message.event = WorkerEvent::result;
      message.candidate = static_cast<int64_t>(i);
      message.measurement.error = tuner::TrialError::rejected;
      message.measurement.message = reason;
      out_.write(message);
    }
    return done();
  }

  // A context is lost for the whole process.
  [[noreturn]] void restart(int64_t id) {
    WorkerMessage message;
    message.id = id;
    message.event = WorkerEvent::restart;
    out_.write(message);
    ::_exit(kEndedByReader);
  }

  LineWriter& out_;
  std::map<std::string, Machine> machines_;
  std::unique_ptr<DeviceContext> device_;  // since a GPU was asked for
  std::list<KeptTask> tasks_;
  std::map<std::string, MeasuredByKey> results_;
};

// A candidate that takes all memory is its own misfortune, not the machine's.
void limit_resources() {
  const rlimit none = {0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  const auto pages = static_cast<rlim_t>(::sysconf(_SC_PHYS_PAGES));
  limit_memory(std::max<rlim_t>(pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) / 2, rlim_t{4} << 30));
}

}  // namespace

int run_worker(int in, int out) {
  limit_resources();
  LineReader reader(in, out);
  LineWriter writer(out);
  Worker worker(writer);
  for (std::string line; reader.next(line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) worker.serve(line);
  }
  if (!reader.was_too_long()) return 0;
  worker.report(
      0, {{ErrorKind::bad_input, "request", text("is longer than ", kMaxRequestBytes >> 20, " MiB"), ""}});
  return kBadInput;
}

}  // namespace mcc::tools
