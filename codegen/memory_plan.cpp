#include "codegen/memory_plan.h"

#include <limits>

#include "tensor/sizes.h"
#include "tensor/visit.h"

namespace mcc::codegen {

using namespace tensor;

namespace {

constexpr int64_t kAlign = 64;

// What a kernel may ask for at once: more than machines have, and far from where sums of sizes overflow.
constexpr int64_t kMostBytes = int64_t{1} << 46;

// Room for the largest sizes costs address space that is not touched; beyond this a thread has room for the sizes of the run.
constexpr int64_t kMostRoomBytes = 64 << 20;

// Whether the constant extents alone make the buffer larger than that.
bool is_too_large(const Buffer& buffer) {
  int64_t bytes = byte_size(buffer.element()), extent = 0;
  for (const Expr& e : buffer.shape()) {
    if (!as_int(e, &extent)) continue;
    if (extent == 0) return false;
    if (__builtin_mul_overflow(bytes, extent, &bytes)) bytes = std::numeric_limits<int64_t>::max();
  }
  return bytes > kMostBytes;
}

// On these alone.
bool depends_on(const Expr& e, const std::vector<Var>& dims) {
  VarMap one;
  for (const Var& d : dims)
    one[d.get()] = 1;
  int64_t value = 0;
  return as_int(substitute(e, one), &value);
}

int64_t round_up(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

class Planner : public Visitor {
 public:
  Planner(const Func& func, MemoryPlan* plan) : func_(func), facts_(size_facts(func)), plan_(plan) {}

  Diagnostics errors;

 protected:
  using Visitor::on;

  // A parallel loop becomes a function of its own, with its own stack; inner parallel loops run serially.
  void on(const For& n) override {
    bool opens_task = n.loop == LoopKind::parallel && !in_parallel_;
    if (!opens_task) return Visitor::on(n);
    int64_t outer_stack = std::exchange(stack_used_, 0);
    in_parallel_ = true;
    Visitor::on(n);
    in_parallel_ = false;
    stack_used_ = outer_stack;
  }

  void on(const Allocate& n) override {
    int64_t outer_scratch = scratch_used_;
    if (!plan_->placements.contains(n.buffer.get())) place(n.buffer);
    const Placement& p = plan_->placements.at(n.buffer.get());
    if (p.home == Home::scratch) scratch_used_ = std::max(scratch_used_, p.offset + p.bytes);
    Visitor::on(n);
    scratch_used_ = outer_scratch;
  }

 private:
  void place(const Buffer& buffer) {
    if (is_too_large(buffer)) {
      errors.push_back({ErrorKind::unsupported, func_.name,
                        text("needs more than ", kMostBytes >> 40, " TiB of memory for '", buffer.name(), "'"), ""});
      plan_->placements.emplace(buffer.get(), Placement{});
      return;
    }
    Expr count = 1;
    for (const Expr& extent : buffer.shape())
      count = count * extent;
    Expr bytes = count * Expr(byte_size(buffer.element()));
    int64_t size = 0;
    bool is_constant = as_int(bytes, &size);
    // A thread has room for the largest sizes.
    if (!is_constant && (in_parallel_ || buffer.scope() != Scope::global)) {
      const Interval range = facts_.bounds(bytes);
      is_constant =
          range.high && *range.high <= (depends_on(bytes, func_.dims) ? kMostRoomBytes : kMostBytes);
      if (is_constant) size = std::max<int64_t>(*range.high, 0);
    }

    Placement p;
    // A private buffer of unknown size outside of parallel loops has one user, who can as well use the workspace.
    if (!in_parallel_ && (buffer.scope() == Scope::global || !is_constant)) {
      p.home = Home::workspace;
      p.index = static_cast<int>(plan_->memory.workspaces.size());
      plan_->memory.workspaces.push_back(bytes);
    } else if (!is_constant && depends_on(bytes, func_.dims)) {
      p.home = Home::thread_workspace;
      p.index = static_cast<int>(plan_->memory.workspaces.size());
      p.stride = facts_.simplify(floor_div(bytes + Expr(kAlign - 1), kAlign) * kAlign);
      plan_->memory.workspaces.push_back(thread_count() * p.stride);
    } else if (!is_constant) {
      errors.push_back({ErrorKind::unsupported, func_.name,
                        text("buffer ", buffer.name(), " is private to a thread and has no constant size"),
                        ""});
    } else {
      p.bytes = round_up(size);
      bool on_stack = buffer.scope() == Scope::registers || stack_used_ + p.bytes <= kMaxStackBytes;
      p.home = on_stack ? Home::stack : Home::scratch;
      if (on_stack) {
        stack_used_ += p.bytes;
      } else {
        p.offset = scratch_used_;
        int64_t end = p.offset + p.bytes;
        plan_->memory.scratch_per_thread = std::max(plan_->memory.scratch_per_thread, end);
      }
    }
    plan_->placements.emplace(buffer.get(), p);
  }

  const Func& func_;
  const Analyzer facts_;
  MemoryPlan* plan_;
  bool in_parallel_ = false;
  int64_t stack_used_ = 0;    // by the function that is being walked
  int64_t scratch_used_ = 0;  // by the allocations around this place
};

}  // namespace

Result<MemoryPlan> plan_memory(const Func& lowered) {
  MemoryPlan plan;
  Planner planner(lowered, &plan);
  planner.visit(lowered.body);
  if (!planner.errors.empty()) return planner.errors;
  return plan;
}

int64_t evaluate_bytes(const Expr& bytes, const std::vector<Var>& dims, std::span<const int64_t> values) {
  MCC_CHECK(dims.size() == values.size(), "expected ", dims.size(), " dimensions, got ", values.size());
  VarMap map{{thread_count().get(), 1}};
  for (size_t i = 0; i < dims.size(); ++i)
    map[dims[i].get()] = values[i];
  int64_t result = 0;
  MCC_CHECK(as_int(substitute(bytes, map), &result), "a size that depends on more than dimensions");
  return result;
}

Result<KernelMemory> kernel_memory(const Func& lowered) {
  Result<MemoryPlan> plan = plan_memory(lowered);
  if (!plan) return plan.errors();
  return std::move(plan->memory);
}

}  // namespace mcc::codegen
