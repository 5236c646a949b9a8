#include <algorithm>

#include "tensor/interpret/compile.h"
#include "tensor/interpret/element.h"
#include "tensor/intrinsics.h"
#include "tensor/text.h"

namespace mcc::tensor::interpreter {
namespace {

struct ForCode final : StmtCode {
  void run(Value* frame) const override {
    const int64_t first = min.get(frame).i, count = extent.get(frame).i;
    if (count <= 0) return;
    program->count_steps(count);
    for (int64_t i = 0; i < count; ++i) {
      frame[slot] = int_value(first + i);
      body->run(frame);
    }
  }
  // In step; a thread whose iterations are over waits behind the loop.
  void run_threads(Team& team, const Threads& threads) const override {
    if (!is_in_step) return StmtCode::run_threads(team, threads);
    std::vector<int64_t> first, count;
    int64_t most = 0;
    for (int t : threads) {
      Value* frame = team.select(t);
      first.push_back(min.get(frame).i);
      count.push_back(extent.get(frame).i);
      most = std::max(most, count.back());
    }
    program->count_steps(most * static_cast<int64_t>(threads.size()));
    for (int64_t i = 0; i < most; ++i) {
      Threads running;
      for (size_t k = 0; k < threads.size(); ++k) {
        if (i >= count[k]) continue;
        running.push_back(threads[k]);
        team.frames[static_cast<size_t>(threads[k])][static_cast<size_t>(slot)] = int_value(first[k] + i);
      }
      body->run_threads(team, running);
    }
  }
  int slot;
  Operand min, extent;
  const StmtCode* body;
  Program* program;
};

// A parallel loop under the race detector.
struct ParallelForCode final : StmtCode {
  void run(Value* frame) const override {
    const int64_t first = min.get(frame).i, count = extent.get(frame).i;
    if (count <= 0) return;
    program->count_steps(count);
    RaceClock& clock = program->clock;
    clock.running.push_back({loop, ++clock.now, 0});
    for (int64_t i = 0; i < count; ++i) {
      clock.running.back().current = ++clock.now;
      frame[slot] = int_value(first + i);
      body->run(frame);
    }
    clock.running.pop_back();
  }
  const For* loop;
  int slot;
  Operand min, extent;
  const StmtCode* body;
  Program* program;
};

struct BlockCode final : StmtCode {
  struct AxisCode {
    Operand value, min, extent;
    bool is_reduce;
    bool in_domain;  // known when compiling
    std::string name;
  };
  void run(Value* frame) const override {
    if (has_predicate && !predicate.get(frame).i) return;
    bool first = true;
    for (const AxisCode& axis : axes) {
      const int64_t value = axis.value.get_lanes(frame)[0].i;
      if (axis.is_reduce) first &= value == axis.min.get(frame).i;
      if (!axis.in_domain) check_domain(axis, value, frame);
    }
    if (init && first) init->run(frame);
    body->run(frame);
  }
  void check_domain(const AxisCode& axis, int64_t value, Value* frame) const {
    const int64_t low = axis.min.get(frame).i, extent = axis.extent.get(frame).i;
    if (low <= value && value - low < extent) return;
    throw Fault{text("axis ", axis.name, " = ", value, " is outside of its domain ", low, " .. ",
                     low + extent, ", in ", place_text(*place, frame))};
  }
  bool has_predicate = false;
  Operand predicate;
  std::vector<AxisCode> axes;
  const StmtCode* init = nullptr;
  const StmtCode* body = nullptr;
  const Place* place = nullptr;
};

template <ElementType element>
struct StoreCode final : StmtCode {
  StoreCode(Access a, Operand v, const LoadBase* c, Program* p)
      : access(std::move(a)), value(v), copied(c), program(p), elements(static_cast<size_t>(access.lanes)) {}
  void run(Value* frame) const override {
    program->count_steps(1);
    if (access.lanes > 1) return run_vector(frame);
    const Value x = value.get(frame);
    if (!access.is_active(frame)) return;
    const int64_t index = access.element(frame);
    access.note_write(frame, index, is_defined(0));
    write_element<element>(access.memory->data, index, x);
  }
  void run_vector(Value* frame) const {
    const Lanes x = value.get_lanes(frame);
    access.elements(frame, elements.data());
    access.check_distinct(frame, elements.data());
    for (int k = 0; k < access.lanes; ++k) {
      const int64_t index = elements[static_cast<size_t>(k)];
      if (index < 0) continue;
      access.note_write(frame, index, is_defined(k));
      write_element<element>(access.memory->data, index, x[k]);
    }
  }
  void run_threads(Team& team, const Threads& threads) const override {
    for (const Exchange* e : exchanges)
      e->run(team, threads);
    StmtCode::run_threads(team, threads);
  }
  bool is_defined(int lane) const {
    if (!copied) return true;
    const int64_t source = copied->elements[static_cast<size_t>(lane)];
    return source < 0 || copied->access.is_written(source);
  }
  Access access;
  Operand value;
  const LoadBase* copied;  // the value, if it is a mere load
  Program* program;
  mutable std::vector<int64_t> elements;
  std::vector<const Exchange*> exchanges;
};

struct SeqCode final : StmtCode {
  void run(Value* frame) const override {
    for (const StmtCode* s : stmts)
      s->run(frame);
  }
  void run_threads(Team& team, const Threads& threads) const override {
    if (!is_in_step) return StmtCode::run_threads(team, threads);
    for (const StmtCode* s : stmts)
      s->run_threads(team, threads);
  }
  std::vector<const StmtCode*> stmts;
};

struct IfCode final : StmtCode {
  void run(Value* frame) const override {
    if (condition.get(frame).i) {
      then_body->run(frame);
    } else if (else_body) {
      else_body->run(frame);
    }
  }
  void run_threads(Team& team, const Threads& threads) const override {
    if (!is_in_step) return StmtCode::run_threads(team, threads);
    Threads taken, others;
    for (int t : threads)
      (condition.get(team.select(t)).i ? taken : others).push_back(t);
    if (!taken.empty()) then_body->run_threads(team, taken);
    if (!others.empty() && else_body) else_body->run_threads(team, others);
  }
  Operand condition;
  const StmtCode* then_body;
  const StmtCode* else_body = nullptr;
};

// The variable's slot is the value's own.
struct LetCode final : StmtCode {
  void run(Value* frame) const override {
    value.get_lanes(frame);
    body->run(frame);
  }
  void run_threads(Team& team, const Threads& threads) const override {
    if (!is_in_step) return StmtCode::run_threads(team, threads);
    for (const Exchange* e : exchanges)
      e->run(team, threads);
    for (int t : threads)
      value.get_lanes(team.select(t));
    body->run_threads(team, threads);
  }
  Operand value;
  const StmtCode* body;
  std::vector<const Exchange*> exchanges;
};

struct AllocateCode final : StmtCode {
  void run(Value* frame) const override {
    memory->allocate(shape_values(memory->buffer, shape, frame));
    body->run(frame);
  }
  // One for each thread, for as long as they are in step.
  void run_threads(Team& team, const Threads& threads) const override {
    if (!is_in_step) return StmtCode::run_threads(team, threads);
    memory->allocate_for_threads(shape_values(memory->buffer, shape, team.select(threads[0])), team.size());
    team.privates.push_back(memory);
    body->run_threads(team, threads);
    team.privates.pop_back();
  }
  Memory* memory;
  std::vector<Operand> shape;
  const StmtCode* body;
};

struct EvaluateCode final : StmtCode {
  void run(Value* frame) const override { value.get_lanes(frame); }
  Operand value;
};

}  // namespace

void Compiler::expect_no_exchanges(std::string_view where) {
  if (!take_exchanges().empty()) throw Fault{text("threads exchange values in ", where)};
}

std::vector<int64_t> shape_values(const Buffer& buffer, const std::vector<Operand>& shape, Value* frame) {
  std::vector<int64_t> out;
  int64_t bytes = byte_size(buffer.element());
  for (const Operand& extent : shape) {
    out.push_back(extent.get(frame).i);
    if (out.back() < 0 || __builtin_mul_overflow(bytes, std::max<int64_t>(out.back(), 1), &bytes)) {
      throw Fault{text("buffer ", buffer.name(), " has the shape ", list_text(out))};
    }
  }
  return out;
}

int Compiler::bind(const Var& var) {
  const int slot = new_slots(var.lanes());
  slots_[var.get()] = slot;
  return slot;
}

Memory* Compiler::add_memory(const Buffer& buffer) {
  auto [it, inserted] = memories_.emplace(buffer.get(), nullptr);
  if (!inserted) throw Fault{text("buffer ", buffer.name(), " exists twice")};
  program_.memories.emplace_back();
  it->second = &program_.memories.back();
  it->second->buffer = buffer;
  return it->second;
}

Memory* Compiler::find_memory(const Buffer& buffer) {
  auto it = memories_.find(buffer.get());
  if (it == memories_.end()) {
    throw Fault{text("buffer ", buffer.name(), " is neither a parameter nor allocated here")};
  }
  return it->second;
}

const Place* Compiler::place() {
  if (!scope_.place) {
    program_.places.push_back({scope_.block, scope_.vars});
    scope_.place = &program_.places.back();
  }
  return scope_.place;
}

Access Compiler::access(const Buffer& buffer, const std::vector<Expr>& indices, const Expr& predicate,
                        int lanes) {
  Access out;
  out.memory = find_memory(buffer);
  for (const Expr& index : indices)
    out.indices.push_back(expr(index));
  out.has_predicate = predicate.defined();
  if (out.has_predicate) out.predicate = expr(predicate);
  out.lanes = lanes;
  out.place = place();
  if (program_.detect_races && !parallel_.empty()) out.clock = &program_.clock;
  bool is_own = buffer.scope() == tensor::Scope::local || buffer.scope() == tensor::Scope::registers;
  if (in_launch_ && out.memory->is_of_threads) launch_privates_.push_back(out.memory);
  is_own |= out.memory->is_unplaced && !launch_has_barriers_;
  if (program_.detect_races && in_launch_ && !is_own) out.team = &program_.team;

  std::vector<const For*>& common = out.memory->private_to;
  if (!out.memory->accessed) {
    common = parallel_;
    out.memory->accessed = true;
  }
  size_t shared = 0;
  while (shared < common.size() && shared < parallel_.size() && common[shared] == parallel_[shared])
    ++shared;
  common.resize(shared);
  return out;
}

const StmtCode* Compiler::stmt(const Stmt& s) {
  const auto* loop = s.as<For>();
  const auto* allocate = s.as<Allocate>();
  bool may_be_launch = (loop && loop->loop == LoopKind::bound) ||
                       (allocate && allocate->buffer.scope() == tensor::Scope::shared);
  const bool is_at_top =
      std::all_of(loops_.begin(), loops_.end(), [](const For* l) { return l->loop == LoopKind::serial; });
  if (may_be_launch && !in_launch_ && is_at_top) {
    if (std::optional<LaunchForm> launch = as_launch(s)) return compile_launch(*launch);
  }
  return dispatch(s, [this](const auto& n) { return compile(n); });
}

const StmtCode* Compiler::compile(const For& n) {
  const Operand min = expr(n.min), extent = expr(n.extent);
  expect_no_exchanges("a store or a let only, not in a loop's bounds");
  const int slot = new_slots(1);
  const bool is_parallel = n.loop == LoopKind::parallel || (n.loop == LoopKind::bound && !is_cross_loop(n));
  const StmtCode* body = nullptr;
  loops_.push_back(&n);
  if (is_parallel) parallel_.push_back(&n);
  in_scope(n.var, slot, [&] { body = stmt(n.body); });
  if (is_parallel) parallel_.pop_back();
  loops_.pop_back();

  const auto fill = [&](auto code) {
    code->slot = slot;
    code->min = min;
    code->extent = extent;
    code->body = body;
    code->program = &program_;
    code->is_in_step = body->is_in_step;
    return code;
  };
  if (!is_parallel || !program_.detect_races) return add_stmt(fill(std::make_unique<ForCode>()));
  auto code = fill(std::make_unique<ParallelForCode>());
  code->loop = &n;
  return add_stmt(std::move(code));
}

const StmtCode* Compiler::compile(const Block& n) {
  auto code = std::make_unique<BlockCode>();
  code->has_predicate = !is_true(n.predicate);
  if (code->has_predicate) code->predicate = expr(n.predicate);

  const auto is_whole_loop = [&](const Axis& axis, const Expr& value) {
    for (const For* loop : loops_) {
      if (!value.same_as(loop->var)) continue;
      return structurally_equal(loop->min, axis.domain.min) &&
             structurally_equal(loop->extent, axis.domain.extent);
    }
    return false;
  };
  for (size_t k = 0; k < n.axes.size(); ++k) {
    const Axis& axis = n.axes[k];
    BlockCode::AxisCode out;
    out.value = expr(n.values[k]);
    out.min = expr(axis.domain.min);
    out.extent = expr(axis.domain.extent);
    out.is_reduce = axis.kind == n.kind_of_steps();
    out.in_domain = is_whole_loop(axis, n.values[k]);
    out.name = axis.var.name();
    code->axes.push_back(std::move(out));
  }

  Scope saved = std::exchange(scope_, {n.name, {}, nullptr});
  const auto within_axes = [&](const auto& self, size_t k) -> void {
    if (k < n.axes.size())
      return in_scope(n.axes[k].var, code->axes[k].value.slot, [&] { self(self, k + 1); });
    code->place = place();
    if (n.init) code->init = stmt(n.init);
    code->body = stmt(n.body);
  };
  within_axes(within_axes, 0);
  scope_ = std::move(saved);
  return add_stmt(std::move(code));
}

const StmtCode* Compiler::compile(const Store& n) {
  const Operand value = expr(n.value);
  LoadBase* copied = nullptr;
  if (n.value.kind() == ExprKind::Load && !find_memory(n.buffer)->is_output) {
    copied = static_cast<LoadBase*>(program_.exprs.back().get());  // the code of value
    copied->is_copied = true;
  }
  Access a = access(n.buffer, n.indices, n.predicate, n.value.lanes());
  const auto finish = [&](auto code) {
    code->exchanges = take_exchanges();
    code->is_in_step = !code->exchanges.empty();
    return add_stmt(std::move(code));
  };
  switch (n.buffer.element()) {
#define X(name, text, cls, bits) \
  case ElementType::name:        \
    return finish(std::make_unique<StoreCode<ElementType::name>>(std::move(a), value, copied, &program_));
    MCC_ELEMENT_TYPES(X)
#undef X
  }
  MCC_UNREACHABLE("unknown element type");
}

const StmtCode* Compiler::compile(const Seq& n) {
  auto code = std::make_unique<SeqCode>();
  for (const Stmt& s : n.stmts) {
    code->stmts.push_back(stmt(s));
    code->is_in_step |= code->stmts.back()->is_in_step;
  }
  return add_stmt(std::move(code));
}

const StmtCode* Compiler::compile(const If& n) {
  auto code = std::make_unique<IfCode>();
  code->condition = expr(n.condition);
  expect_no_exchanges("a store or a let only, not in a condition");
  code->then_body = stmt(n.then_body);
  if (n.else_body) code->else_body = stmt(n.else_body);
  code->is_in_step = code->then_body->is_in_step || (code->else_body && code->else_body->is_in_step);
  return add_stmt(std::move(code));
}

const StmtCode* Compiler::compile(const Let& n) {
  auto code = std::make_unique<LetCode>();
  code->value = expr(n.value);
  code->exchanges = take_exchanges();
  in_scope(n.var, code->value.slot, [&] { code->body = stmt(n.body); });
  code->is_in_step = !code->exchanges.empty() || code->body->is_in_step;
  return add_stmt(std::move(code));
}

const StmtCode* Compiler::compile(const Allocate& n) {
  auto code = std::make_unique<AllocateCode>();
  for (const Expr& extent : n.buffer.shape())
    code->shape.push_back(expr(extent));
  code->memory = add_memory(n.buffer);
  code->body = stmt(n.body);
  code->is_in_step = code->body->is_in_step;
  memories_.erase(n.buffer.get());
  return add_stmt(std::move(code));
}

const StmtCode* Compiler::compile(const Evaluate& n) {
  const auto* hint = n.value.as<Call>();
  if (hint && hint->function == Intrinsic::barrier) return barrier();
  if (hint && class_of(hint->function) == IntrinsicClass::async) return asynchronous(*hint);
  if (hint && class_of(hint->function) == IntrinsicClass::wgmma) return warpgroup(*hint);
  if (hint && class_of(hint->function) == IntrinsicClass::bulk) return bulk(*hint);
  if (hint && class_of(hint->function) == IntrinsicClass::tile) return tile(*hint);
  if (hint && hint->function == Intrinsic::prefetch) return add_stmt(std::make_unique<SeqCode>());
  auto code = std::make_unique<EvaluateCode>();
  code->value = expr(n.value);
  expect_no_exchanges("a store or a let only");
  return add_stmt(std::move(code));
}

}  // namespace mcc::tensor::interpreter
