#include "tools/measure/measured_task.h"

#include <immintrin.h>

#include <cstring>

#include "tensor/interpret.h"
#include "tensor/sizes.h"
#include "tensor/text.h"
#include "tensor/verify.h"
#include "tensor/visit.h"
#include "tensor/workload.h"
#include "tools/measure/inputs.h"
#include "tuner/default_schedule.h"

namespace mcc::tools {

using namespace tensor;

namespace {

// Iterations of blocks up to which a function is interpreted, and up to which it runs as scalar code.
constexpr int64_t kInterpreted = 100'000;
constexpr int64_t kCompiled = int64_t{1} << 27;

// Orders of weights that are kept for the candidates of a task.
constexpr size_t kMaxOrdered = 8;

// Buffers of equal sizes must not lie a multiple of 4 KB apart: loads would wait for unrelated stores.
constexpr size_t kSkew = 17 * MCC_BUFFER_ALIGNMENT;

size_t aligned(size_t bytes) {
  return (bytes + MCC_BUFFER_ALIGNMENT - 1) / MCC_BUFFER_ALIGNMENT * MCC_BUFFER_ALIGNMENT;
}

Diagnostic refuse(std::string message) { return {ErrorKind::bad_input, "task", std::move(message), ""}; }

// Bytes of a buffer; nothing if its shape is not constant or too large.
std::optional<int64_t> static_bytes(const Buffer& buffer, int64_t most) {
  int64_t bytes = byte_size(buffer.element());
  for (const Expr& dim : buffer.shape()) {
    int64_t extent = 0;
    if (!as_int(dim, &extent) || extent < 0) return std::nullopt;
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > most) return std::nullopt;
  }
  return bytes;
}

__attribute__((target("clflushopt"))) void flush_lines_fast(const std::byte* data, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 64)
    _mm_clflushopt(const_cast<std::byte*>(data + at));
}

void flush_lines(const std::byte* data, size_t bytes) {
  static const bool is_fast = [] {
    unsigned eax = 7, ebx = 0, ecx = 0, edx = 0;
    __asm__("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
    return (ebx >> 23 & 1) != 0;  // CLFLUSHOPT
  }();
  if (is_fast) return flush_lines_fast(data, bytes);
  for (size_t at = 0; at < bytes; at += 64)
    _mm_clflush(data + at);
}

// Replaces a loop by one over `count` of its iterations: offset + step * i.
class TakeRows : public Mutator {
 public:
  TakeRows(const For* loop, int64_t offset, int64_t step, int64_t count)
      : loop_(loop), offset_(offset), step_(step), count_(count) {}

 protected:
  using Mutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    if (&n != loop_) return Mutator::on(n, self);
    Var row(n.var.name());
    VarMap map;
    map[n.var.get()] = n.min + Expr(offset_) + row * Expr(step_);
    return For::make(row, 0, Expr(count_), LoopKind::serial, substitute(n.body, map), {});
  }

 private:
  const For* loop_;
  int64_t offset_, step_, count_;
};

}  // namespace

std::optional<Func> rows_of(const Func& f, int64_t max_iterations) {
  if (f.num_outputs != 1) return std::nullopt;
  Schedule schedule(f);
  const std::vector<std::string> blocks = schedule.block_names();
  if (blocks.empty()) return std::nullopt;
  const std::string& last = blocks.back();
  // The outermost loop of more than one iteration that moves along the result.
  std::string name;
  int64_t extent = 0;
  const std::vector<const For*> around = schedule.loops_of(last);
  const Block* block = schedule.find_block(last);
  for (const For* loop : around) {
    if (!as_int(loop->extent, &extent)) return std::nullopt;
    if (extent == 1) continue;
    for (size_t a = 0; a < block->axes.size(); ++a) {
      const bool is_bound = block->values[a].get() == loop->var.get();
      if (is_bound && block->axes[a].kind == AxisKind::spatial) name = loop->var.name();
    }
    break;
  }
  if (name.empty()) return std::nullopt;
  for (size_t i = blocks.size() - 1; i-- > 0;) {
    if (!schedule.apply(ComputeAt{blocks[i], name})) return std::nullopt;
  }
  const For* loop = schedule.find_loop(name);
  if (!loop) return std::nullopt;
  const int64_t iterations = std::max<int64_t>(1, tensor::work_of(f).iterations);
  const double share = static_cast<double>(max_iterations) / static_cast<double>(iterations);
  const int64_t count = std::clamp<int64_t>(static_cast<int64_t>(share * static_cast<double>(extent)), 1,
                                            std::min<int64_t>(extent, 16));
  const int64_t step = count > 1 ? (extent - 1) / (count - 1) : 1;
  const int64_t offset = extent - 1 - step * (count - 1);
  Func rows = schedule.func();
  rows.body = TakeRows(loop, offset, step, count).mutate(rows.body);
  return rows;
}

Result<std::unique_ptr<MeasuredTask>> MeasuredTask::create(const std::string& text, uint64_t seed,
                                                           int64_t max_bytes) {
  Result<Func> func = parse_func(text, "task");
  if (!func.ok()) return func.errors();
  std::vector<std::vector<int64_t>> samples = samples_of(*func);
  if (!func->dims.empty() && samples.empty())
    return refuse("expected constant shapes, got symbolic dimensions without samples of their sizes");
  const std::vector<std::string> violations = verify(*func, Stage::blocks);
  if (!violations.empty()) return refuse("not a valid function: " + violations.front());
  if (func->dims.empty()) samples = {{}};
  // What is private to a thread is as large as the largest size needs it.
  const std::optional<std::vector<SizeRange>> ranges = sizes_of(*func);
  for (const std::vector<int64_t>& sizes : samples) {
    for (size_t i = 0; ranges && i < sizes.size(); ++i) {
      if (sizes[i] >= (*ranges)[i].min && sizes[i] <= (*ranges)[i].max) continue;
      return refuse(mcc::text("expected sizes from ", (*ranges)[i].min, " to ", (*ranges)[i].max, ", got ", sizes[i]));
    }
  }
  std::unique_ptr<MeasuredTask> first;
  for (std::vector<int64_t>& sizes : samples) {
    Result<std::unique_ptr<MeasuredTask>> task =
        make(*func, std::move(sizes), seed, max_bytes - (first ? first->bytes_ : 0));
    if (!task.ok()) return task.errors();
    if (!first) {
      first = std::move(*task);
      continue;
    }
    first->bytes_ += (*task)->bytes_;
    first->others_.push_back(std::move(*task));
  }
  return first;
}

Result<std::unique_ptr<MeasuredTask>> MeasuredTask::make(const Func& func, std::vector<int64_t> sizes,
                                                         uint64_t seed, int64_t max_bytes) {
  auto task = std::make_unique<MeasuredTask>();
  task->func_ = func;
  task->sized_ = func.dims.empty() ? func : with_sizes(func, sizes);
  task->sizes_ = std::move(sizes);
  task->seed_ = seed;
  const Func& f = task->sized_;
  std::vector<Buffer> buffers = f.params;
  buffers.insert(buffers.end(), f.allocs.begin(), f.allocs.end());
  for (const Buffer& b : buffers) {
    std::optional<int64_t> bytes = static_bytes(b, max_bytes);
    if (bytes) task->bytes_ += *bytes;
    if (!bytes || task->bytes_ > max_bytes) {
      const std::string where = task->sizes_.empty() ? "" : mcc::text(" at sizes ", join(task->sizes_, ", "));
      return Diagnostic{ErrorKind::unsupported, "task",
                        mcc::text("its buffers", where, " need more than the ", max_bytes >> 20,
                                  " MiB that measuring may take"),
                        ""};
    }
  }
  size_t total = 0;
  for (const Buffer& b : f.params)
    total += aligned(static_cast<size_t>(*static_bytes(b, max_bytes))) + kSkew;
  if (!task->memory_.reserve(std::max<size_t>(total, MCC_BUFFER_ALIGNMENT)))
    return Diagnostic{ErrorKind::environment, "task", "there is not enough memory for its buffers", ""};
  auto* at = reinterpret_cast<std::byte*>(task->memory_.data());
  for (const Buffer& b : f.params) {
    task->parameters_.push_back({at, static_cast<size_t>(*static_bytes(b, max_bytes))});
    at += aligned(task->parameters_.back().bytes) + kSkew;
  }
  for (size_t i = static_cast<size_t>(f.num_inputs()); i < f.params.size(); ++i) {
    const Buffer& b = f.params[i];
    task->outputs_.push_back({task->parameters_[i], b.element(), tolerance_of(f, b), {}});
  }
  task->fill_inputs(seed, false);
  return task;
}

std::optional<int64_t> MeasuredTask::value_of(const Expr& size, int threads) const {
  VarMap values{{thread_count().get(), threads}};
  for (size_t i = 0; i < sizes_.size(); ++i)
    values[func_.dims[i].get()] = sizes_[i];
  int64_t value = 0;
  if (!as_int(simplify(substitute(size, values)), &value)) return std::nullopt;
  return value;
}

void MeasuredTask::fill_inputs(uint64_t seed, bool is_positive) {
  ordered_.clear();
  const std::vector<int64_t> limits = index_limits(sized_);
  for (size_t i = 0; i < limits.size(); ++i) {
    InputOptions options;
    options.seed = seed * 1000003 + i;
    options.limit = limits[i];
    options.is_positive = is_positive;
    const ElementType element = sized_.params[i].element();
    fill_random(element, static_cast<int64_t>(parameters_[i].bytes) / byte_size(element), options,
                parameters_[i].data);
  }
}

// Puts reordered copies in the place of parameters; copies of the latest orders are kept.
bool MeasuredTask::order_weights(const std::vector<WeightOrder>& orders) {
  ordered_now_.clear();
  if (ordered_.size() > kMaxOrdered) ordered_.clear();
  std::map<size_t, std::string> done;
  for (const WeightOrder& order : orders) {
    std::string& key = done[order.parameter];
    key += text(order.parameter, order.map);
    const auto bytes = static_cast<size_t>(order.bytes());
    auto [entry, is_new] = ordered_.try_emplace(key);
    if (is_new) {
      if (!entry->second.reserve(bytes)) {
        ordered_.erase(entry);
        return false;
      }
      reorder(order, static_cast<const std::byte*>(arguments_[order.parameter]),
              reinterpret_cast<std::byte*>(entry->second.data()));
    }
    arguments_[order.parameter] = entry->second.data();
    ordered_now_.push_back({reinterpret_cast<std::byte*>(entry->second.data()), bytes});
  }
  return true;
}

Result<void* const*> MeasuredTask::arguments(const codegen::KernelMemory& memory, int threads,
                                             const std::vector<WeightOrder>& orders) {
  std::vector<size_t> sizes;
  for (const Expr& workspace : memory.workspaces) {
    const std::optional<int64_t> bytes = value_of(workspace, threads);
    if (!bytes || *bytes < 0) return refuse("a workspace of unknown size");
    sizes.push_back(static_cast<size_t>(*bytes));
  }
  if (memory.scratch_per_thread > 0)
    sizes.push_back(static_cast<size_t>(memory.scratch_per_thread * threads));
  size_t total = 0;
  for (size_t bytes : sizes)
    total += aligned(bytes) + kSkew;
  if (!private_memory_.reserve(total))
    return Diagnostic{ErrorKind::environment, "task",
                      text("there is no memory for a workspace of ", total, " bytes"), ""};
  private_bytes_ = total;
  arguments_.clear();
  for (const Parameter& p : parameters_)
    arguments_.push_back(p.data);
  if (!order_weights(orders))
    return Diagnostic{ErrorKind::environment, "task", "there is no memory for its weights in another order", ""};
  uint8_t* at = private_memory_.data();
  for (size_t bytes : sizes) {
    arguments_.push_back(at);
    at += aligned(bytes) + kSkew;
  }
  return arguments_.data();
}

void MeasuredTask::poison_outputs() {
  for (const Output& output : outputs_)
    std::memset(output.parameter.data, 0xff, output.parameter.bytes);
}

OutputCheck MeasuredTask::check_outputs() const {
  MCC_CHECK(has_reference_, "there is no reference yet");
  OutputCheck all;
  all.ok = true;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Output& output = outputs_[i];
    OutputCheck check =
        check_output(output.element, output.parameter.span(), output.expected, output.tolerance);
    all.max_error = std::max(all.max_error, check.max_error);
    if (check.ok || !all.ok) continue;
    all.ok = false;
    all.message = text("output ", i, ": ", check.message);
  }
  return all;
}

void MeasuredTask::flush_caches() const {
  for (const Parameter& p : parameters_)
    flush_lines(p.data, p.bytes);
  for (const Parameter& p : ordered_now_)
    flush_lines(p.data, p.bytes);
  flush_lines(reinterpret_cast<const std::byte*>(private_memory_.data()), private_bytes_);
  _mm_mfence();
}

// ---- The reference ----

Status MeasuredTask::run_once(const BuildContext& context, const Schedule& schedule) {
  BuiltKernel built = build_function(context, schedule.func());
  if (built.error != tuner::TrialError::none)
    return Diagnostic{ErrorKind::unsupported, "task", "the reference cannot be built: " + built.message, ""};
  Result<void* const*> buffers = arguments(built.memory, 1, weight_orders(sized_, schedule.trace()));
  if (!buffers.ok()) return buffers.errors();
  poison_outputs();
  mcc_executor executor = runtime::make_inline_executor();
  const int32_t status = built.kernel->function(*buffers, nullptr, &executor);
  if (status != 0) return refuse(text("the reference ended with status ", status));
  return done();
}

Status MeasuredTask::interpret() {
  poison_outputs();  // a part of rows leaves the others as they are
  std::vector<std::byte*> buffers;
  for (const Parameter& p : parameters_)
    buffers.push_back(p.data);
  return tensor::interpret(sized_, buffers);
}

// The outputs hold what the default schedule computed; the reference is compared with them where `rows` writes.
Status MeasuredTask::check_rows(const BuildContext& context, const Func& rows) {
  keep_outputs();
  Status status = run_once(context, Schedule(rows));
  if (!status.ok()) return status;
  for (Output& output : outputs_) {
    const auto width = static_cast<size_t>(byte_size(output.element));
    const size_t count = output.expected.size() / width;
    const std::vector<std::byte> poison(width, std::byte{0xff});
    std::vector<char> is_written(count);
    size_t written = 0;
    for (size_t i = 0; i < count; ++i) {
      is_written[i] = std::memcmp(output.parameter.data + i * width, poison.data(), width) != 0;
      written += is_written[i] != 0 ? 1 : 0;
    }
    OutputCheck check =
        check_output(output.element, output.expected, output.parameter.span(), output.tolerance, is_written);
    if (written == 0) return refuse("no element of the reference could be checked");
    if (!check.ok) return refuse("the default schedule is wrong, which is a bug of mcc: " + check.message);
  }
  return done();
}

void MeasuredTask::keep_outputs() {
  for (Output& output : outputs_)
    output.expected.assign(output.parameter.data, output.parameter.data + output.parameter.bytes);
}

bool MeasuredTask::is_mostly_not_finite() const {
  return std::any_of(outputs_.begin(), outputs_.end(), [](const Output& output) {
    return share_not_finite(output.element, output.expected) > 0.5;
  });
}

Status MeasuredTask::compute(const BuildContext& context) {
  const int64_t iterations = tensor::work_of(sized_).iterations;
  std::optional<Func> rows;
  if (iterations > kCompiled) rows = rows_of(sized_, kCompiled / 4);
  Status status = iterations <= kInterpreted ? interpret()
                  : rows ? run_once(context, tuner::default_schedule(sized_, context.target))
                         : run_once(context, Schedule(sized_));
  if (!status.ok()) return status;
  if (rows) return check_rows(context, *rows);
  keep_outputs();
  return done();
}

Status MeasuredTask::compute_reference(const BuildContext& context) {
  for (const std::unique_ptr<MeasuredTask>& other : others_) {
    Status status = other->compute_reference(context);
    if (!status.ok()) return status;
  }
  if (has_reference_) return done();
  Status status = compute(context);
  if (!status.ok()) return status;
  // Roots and logarithms of negative numbers would make any result look right.
  if (is_mostly_not_finite()) {
    fill_inputs(seed_, true);
    status = compute(context);
    if (!status.ok()) return status;
  }
  has_reference_ = true;
  return done();
}

}  // namespace mcc::tools
