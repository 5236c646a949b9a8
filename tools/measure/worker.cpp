#include "tools/measure/worker.h"

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
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
#include "tools/measure/preparation.h"
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

// What one process keeps between requests. One thread takes them as they come, another one serves them in that order; what a GPU
// is to measure is prepared while it measures what came before.
class Worker {
 public:
  explicit Worker(LineWriter& out) : out_(out) {}

  // The next request; from one thread.
  void take(const std::string& line) {
    auto job = std::make_unique<Job>();
    Result<WorkerRequest> request = decode_request(line);
    if (request.ok()) {
      job->request = std::move(*request);
      if (!job->request.wants_machine && may_prepare_ahead(*job))
        job->status = guarded([&] { return prepare(*job); });
    } else {
      job->status = request.errors();
    }
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    changed_.notify_all();
  }
  // There are no more.
  void end() {
    std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }

  // Serves all, until the end; from one thread.
  void serve() {
    while (std::unique_ptr<Job> job = next()) {
      Status status = std::move(job->status);
      if (status.ok()) status = guarded([&] { return measure(*job); });
      if (status.ok()) {
        WorkerMessage message;
        message.id = job->request.id;
        out_.write(message);
      } else {
        report(job->request.id, status.errors());
      }
      finish(std::move(job));
    }
  }

  void report(int64_t id, const Diagnostics& errors) {
    WorkerMessage message;
    message.id = id;
    message.event = WorkerEvent::error;
    message.errors = errors;
    out_.write(message);
  }

 private:
  struct Builder {
    tensor::Target target;
    std::unique_ptr<codegen::Jit> jit;              // of a CPU
    std::unique_ptr<codegen::Assembler> assembler;  // of a GPU, where there is one

    bool is_gpu() const { return target.kind == tensor::TargetKind::cuda; }
  };
  struct KeptTask {
    std::string key;
    std::unique_ptr<MeasuredTask> task;
    std::mutex reference;                                // while it is computed
    std::vector<std::unique_ptr<DeviceTask>> on_device;  // at all its sizes, once it has been measured there
  };
  struct Job {
    WorkerRequest request;
    Status status = done();
    bool is_of_processor = false;  // one of those that are counted
    // Once it is prepared.
    Builder* builder = nullptr;
    std::shared_ptr<KeptTask> task;
    KnownKernels* known = nullptr;
    std::unique_ptr<WorkQueue> queue;  // of its own
    std::unique_ptr<Preparation> preparation;
  };

  template <class F>
  static Status guarded(const F& f) {
    try {
      return f();
    } catch (const std::exception& error) {
      return Diagnostic{ErrorKind::environment, "", text("internal error: ", error.what()), ""};
    }
  }

  // ---- The order of requests ----

  // A kernel of a processor is timed while nothing else runs but what belongs to it.
  bool may_prepare_ahead(Job& job) {
    job.is_of_processor = !job.request.target.starts_with("cuda");
    std::lock_guard lock(mutex_);
    of_processors_ += job.is_of_processor ? 1 : 0;
    return of_processors_ == 0 && bytes_under_way_ <= kMaxKeptBytes;
  }

  // Null at the end.
  std::unique_ptr<Job> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_over_ || !jobs_.empty(); });
    if (jobs_.empty()) return nullptr;
    std::unique_ptr<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    return job;
  }

  // What it has of a GPU is given back by the thread that serves.
  void finish(std::unique_ptr<Job> job) {
    job->preparation.reset();
    std::lock_guard lock(mutex_);
    if (job->task) bytes_under_way_ -= job->task->task->bytes();
    of_processors_ -= job->is_of_processor ? 1 : 0;
    job.reset();
    forget_tasks();
  }

  // The latest stay: a task scheduler comes back to them.
  void forget_tasks() {
    int64_t kept = 0;
    for (auto t = tasks_.begin(); t != tasks_.end();) {
      kept += (*t)->task->bytes();
      const bool is_needed = t == tasks_.begin() || kept <= kMaxKeptBytes || t->use_count() > 1;
      t = is_needed ? std::next(t) : tasks_.erase(t);
    }
  }

  // ---- Preparing ----

  Result<Builder*> builder_for(const std::string& name) {
    auto it = builders_.find(name);
    if (it != builders_.end()) return &it->second;
    Result<tensor::Target> target = codegen::make_target(name);
    if (!target.ok()) return target.errors();
    Builder builder{*target, nullptr, nullptr};
    if (builder.is_gpu()) {
      builder.assembler = find_assembler_for(*target).assembler;  // who asks has been told of a problem
    } else {
      Result<std::unique_ptr<codegen::Jit>> jit = codegen::Jit::create(*target);
      if (!jit.ok()) return jit.errors();
      builder.jit = std::move(*jit);
    }
    return &builders_.emplace(name, std::move(builder)).first->second;
  }

  Result<std::shared_ptr<KeptTask>> task_for(const WorkerRequest& request) {
    const std::string key = text(request.options.seed, " ", request.task);
    auto it = std::find_if(tasks_.begin(), tasks_.end(), [&](const auto& t) { return t->key == key; });
    if (it == tasks_.end()) {
      Result<std::unique_ptr<MeasuredTask>> task =
          MeasuredTask::create(request.task, request.options.seed, kMaxTaskBytes);
      if (!task.ok()) return task.errors();
      it = tasks_.insert(tasks_.begin(), std::make_shared<KeptTask>());
      (*it)->key = key;
      (*it)->task = std::move(*task);
    }
    tasks_.splice(tasks_.begin(), tasks_, it);
    return tasks_.front();
  }

  // As far as no GPU is needed.
  Status prepare(Job& job) {
    const WorkerRequest& request = job.request;
    std::unique_lock lock(mutex_);
    Result<Builder*> builder = builder_for(request.target);
    if (!builder.ok()) return builder.errors();
    Result<std::shared_ptr<KeptTask>> task = task_for(request);
    if (!task.ok()) return task.errors();
    // What a GPU computes is compared with what this machine's processor does.
    Result<Builder*> processor = (*builder)->is_gpu() ? builder_for("cpu") : builder;
    if (!processor.ok()) return processor.errors();
    job.builder = *builder;
    job.task = *task;
    bytes_under_way_ += job.task->task->bytes();
    job.known = &known_[codegen::sha256(text(
        request.target, " ", request.options.threads, request.options.is_cold, " ", request.emit.optimization,
        request.emit.strict, request.emit.fast_math, " ", request.options.seed, " ", request.task))];
    WorkQueue& queue = queue_for(job);
    lock.unlock();

    Preparation::Steps steps;
    const auto kept = job.task;
    const BuildContext context{kept->task->func(), (*processor)->target, request.emit, *(*processor)->jit};
    steps.compute_reference = [kept, context] {
      std::lock_guard only_one(kept->reference);
      return guarded([&] { return kept->task->compute_reference(context); });
    };
    if (job.builder->is_gpu()) {
      const DeviceBuildContext build{kept->task->func(), job.builder->target, request.emit,
                                     job.builder->assembler.get()};
      steps.build = [build](const std::string& trace, const Preparation::IsKnown& is_known) {
        return build_device_candidate(build, trace, is_known);
      };
    } else {
      steps.build = [context](const std::string& trace, const Preparation::IsKnown& is_known) {
        BuildContext of_trace = context;
        of_trace.is_known = is_known;
        return build_candidate(of_trace, trace);
      };
    }
    const auto send = [this](const WorkerMessage& message) { out_.write(message); };
    job.preparation = std::make_unique<Preparation>(request, std::move(steps), *job.known, send, queue);
    return done();
  }

  // A kernel of one thread, and one of a GPU, is timed on the last CPU while the others build; one of several threads needs them
  // all.
  WorkQueue& queue_for(Job& job) {
    const bool needs_one = job.builder->is_gpu() || job.request.options.threads == 1;
    const size_t threads = job.request.is_serial ? 0 : needs_one ? cpus_.size() - 1 : cpus_.size();
    std::vector<int> cpus = cpus_;
    if (needs_one && cpus.size() > 1) cpus.pop_back();
    if (job.builder->is_gpu() && threads > 0) {
      if (!queue_) queue_ = std::make_unique<WorkQueue>(threads, cpus);
      return *queue_;
    }
    job.queue = std::make_unique<WorkQueue>(std::min(threads, job.request.candidates.size()), cpus);
    return *job.queue;
  }

  // ---- Measuring ----

  Status describe(const WorkerRequest& request) {
    // As for what is measured on a GPU.
    if (request.target.starts_with("cuda")) limit_memory(RLIM_INFINITY);
    Result<Machine> machine = describe_machine(request.target, /*looks_for_library=*/true);
    if (!machine.ok()) return machine.errors();
    WorkerMessage message;
    message.id = request.id;
    message.event = WorkerEvent::machine;
    message.machine = std::move(*machine);
    out_.write(message);
    return done();
  }

  Status measure(Job& job) {
    if (job.request.wants_machine) return describe(job.request);
    if (!job.preparation) {
      if (Status status = prepare(job); !status.ok()) return status;
    }
    const WorkerRequest& request = job.request;
    MeasuredTask& measured = *job.task->task;
    const auto send = [&](const WorkerMessage& message) { out_.write(message); };
    std::vector<OtherSizes> others;
    if (!job.builder->is_gpu()) {
      std::unique_ptr<KernelRunner> runner = make_cpu_runner(request.options, measured);
      for (const std::unique_ptr<MeasuredTask>& other : measured.others())
        others.push_back({*other, make_cpu_runner(request.options, *other)});
      return measure_batch(request, *job.preparation, measured, *runner, others, *job.known, send);
    }
    if (Status status = open_device(); !status.ok()) return status;
    if (Status status = put_on_device(*job.task); !status.ok())
      return reject_all(request, status.errors()[0].message);
    // Loading a library takes longer than a run may.
    mcc_error ignored = {};
    if (std::any_of(request.candidates.begin(), request.candidates.end(), names_library)) device_->library(&ignored);
    std::vector<std::unique_ptr<DeviceTask>>& on_device = job.task->on_device;
    std::unique_ptr<KernelRunner> runner = make_device_runner(request.options, *device_, *on_device[0]);
    for (size_t i = 0; i < measured.others().size(); ++i)
      others.push_back(
          {*measured.others()[i], make_device_runner(request.options, *device_, *on_device[i + 1])});
    Status status = measure_batch(request, *job.preparation, measured, *runner, others, *job.known, send);
    if (device_->is_lost()) restart(request.id);
    return status;
  }

  Status open_device() {
    if (device_) return done();
    // A driver reserves addresses for all memory that there is, of the host and of GPUs.
    limit_memory(RLIM_INFINITY);
    Result<std::unique_ptr<DeviceContext>> device = DeviceContext::open();
    if (!device.ok()) return device.errors();
    device_ = std::move(*device);
    return done();
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
  const std::vector<int> cpus_ = allowed_cpus();
  std::unique_ptr<DeviceContext> device_;  // since a GPU was asked for; of the thread that serves
  // What both threads have to do with.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Job>> jobs_;  // taken, and not served
  bool is_over_ = false;
  int of_processors_ = 0;        // requests that are not finished
  int64_t bytes_under_way_ = 0;  // of the tasks of all that has been prepared and is not finished
  std::map<std::string, Builder> builders_;
  std::list<std::shared_ptr<KeptTask>> tasks_;
  std::map<std::string, KnownKernels> known_;
  std::unique_ptr<WorkQueue> queue_;  // for GPUs
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
  std::thread taker([&] {
    for (std::string line; reader.next(line);) {
      if (line.find_first_not_of(" \t\r") != std::string::npos) worker.take(line);
    }
    worker.end();
  });
  worker.serve();
  taker.join();
  if (!reader.was_too_long()) return 0;
  worker.report(
      0, {{ErrorKind::bad_input, "request", text("is longer than ", kMaxRequestBytes >> 20, " MiB"), ""}});
  return kBadInput;
}

}  // namespace mcc::tools
