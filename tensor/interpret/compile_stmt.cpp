#include <algorithm>
#include <cstring>

#include "tensor/interpret/compile.h"
#include "tensor/intrinsics.h"
#include "tensor/numeric.h"
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
void write_element(std::byte* data, int64_t index, Value value) {
  const auto write = [&]<class T>(T x) {
    std::memcpy(data + index * static_cast<int64_t>(sizeof(T)), &x, sizeof(T));
  };
  if constexpr (element == ElementType::f64) {
    write(value.f);
  } else if constexpr (element == ElementType::f32 || element == ElementType::tf32) {
    write(static_cast<float>(value.f));
  } else if constexpr (element == ElementType::f16 || element == ElementType::bf16) {
    write(static_cast<uint16_t>(float_to_bits(element, value.f)));
  } else if constexpr (element == ElementType::f8e4m3 || element == ElementType::f8e5m2) {
    write(static_cast<uint8_t>(float_to_bits(element, value.f)));
  } else if constexpr (element == ElementType::i64 || element == ElementType::u64) {
    write(value.i);
  } else if constexpr (element == ElementType::i32 || element == ElementType::u32) {
    write(static_cast<int32_t>(value.i));
  } else if constexpr (element == ElementType::i16 || element == ElementType::u16) {
    write(static_cast<int16_t>(value.i));
  } else if constexpr (element == ElementType::string) {
    MCC_UNREACHABLE("strings are not computed with");
  } else {
    write(static_cast<int8_t>(value.i));
  }
}

void write_any(const Memory& memory, int64_t index, Value value) {
  switch (memory.buffer.element()) {
#define X(name, text, cls, bits) \
  case ElementType::name:        \
    return write_element<ElementType::name>(memory.data, index, value);
    MCC_ELEMENT_TYPES(X)
#undef X
  }
}

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

struct BarrierCode final : StmtCode {
  void run(Value*) const override { throw Fault{"a barrier for one thread"}; }
  void run_threads(Team& team, const Threads& threads) const override {
    if (static_cast<int>(threads.size()) == team.size()) {
      ++team.clock.epoch;
      return;
    }
    int missing = 0;
    while (missing < static_cast<int>(threads.size()) && threads[static_cast<size_t>(missing)] == missing)
      ++missing;
    throw Fault{
        text("a barrier in divergent control flow: ", team.thread_text(static_cast<uint32_t>(threads[0])),
             " comes to it and ", team.thread_text(static_cast<uint32_t>(missing)), " does not, in ",
             place_text(*place, team.frames[static_cast<size_t>(threads[0])].data()))};
  }
  const Place* place;
};

// The elements count as never written until the thread has waited for them.
struct AsyncCopyCode final : StmtCode {
  void run(Value* frame) const override {
    const Lanes values = from.get_lanes(frame);
    std::vector<int64_t> elements(static_cast<size_t>(to.lanes));
    to.elements(frame, elements.data());
    AsyncGroup& group = team->copies[team->clock.thread].open;
    for (int k = 0; k < to.lanes; ++k) {
      to.note_write(frame, elements[static_cast<size_t>(k)], false);
      group.push_back({&to, elements[static_cast<size_t>(k)], values[k]});
    }
  }
  Operand from;
  Access to;
  Team* team;
};

struct AsyncGroupCode final : StmtCode {
  void run(Value* frame) const override {
    AsyncCopies& copies = team->copies[team->clock.thread];
    if (!is_wait) {
      copies.groups.push_back(std::exchange(copies.open, {}));
      return;
    }
    while (copies.groups.size() > left) {
      for (const AsyncElement& e : copies.groups.front()) {
        e.to->note_write(frame, e.element, true);
        write_any(*e.to->memory, e.element, e.value);
      }
      copies.groups.pop_front();
    }
  }
  bool is_wait = false;
  size_t left = 0;
  Team* team;
};

// Blocks one after the other; the threads of each one after the other, or in step where they wait for each other.
struct LaunchCode final : StmtCode {
  void run(Value* frame) const override {
    Team& team = program->team;
    team.clock.first_block = team.clock.block + 1;
    std::vector<int64_t> counts;
    int64_t blocks = 1, threads = 1;
    for (const Loop& loop : block_loops) {
      counts.push_back(std::max<int64_t>(loop.extent.get(frame).i, 0));
      blocks *= counts.back();
    }
    team.extents.clear();
    for (const Loop& loop : thread_loops) {
      team.extents.push_back(std::max<int64_t>(loop.extent.get(frame).i, 0));
      threads *= team.extents.back();
    }
    if (blocks == 0 || threads == 0) return;
    if (threads > kMaxThreads)
      throw Fault{text("a block of ", threads, " threads, ", kMaxThreads, " is the limit")};
    program->count_steps(blocks * threads);
    // Each has its own frame where they are in step; else one serves them all.
    team.frames.assign(body->is_in_step ? static_cast<size_t>(threads) : 1, program->frame);
    for (Memory* memory : privates)
      memory->allocate_for_threads(memory->shape, static_cast<int>(threads));
    team.privates = privates;
    Threads all(static_cast<size_t>(threads));
    for (size_t t = 0; t < all.size(); ++t)
      all[t] = static_cast<int>(t);
    for (int64_t block = 0; block < blocks; ++block) {
      ++team.clock.block;
      ++team.clock.epoch;
      team.copies.assign(static_cast<size_t>(threads), {});
      team.products.assign(static_cast<size_t>(threads), {});
      team.phases.clear();
      team.clock.fences.assign(static_cast<size_t>(threads), 0);
      set(block_loops, counts, block, frame);
      for (const auto& [memory, shape] : shared)
        memory->allocate(shape_values(memory->buffer, shape, frame));
      for (std::vector<Value>& f : team.frames)
        set(block_loops, counts, block, f.data());
      if (body->is_in_step) {
        for (int t : all)
          set(thread_loops, team.extents, t, team.frames[static_cast<size_t>(t)].data());
        body->run_threads(team, all);
      } else {
        for (int t : all) {
          team.clock.thread = static_cast<uint32_t>(t);
          for (Memory* memory : privates)
            memory->select(t);
          set(thread_loops, team.extents, t, team.frames[0].data());
          body->run(team.frames[0].data());
        }
      }
    }
  }
  struct Loop {
    int slot;
    Operand extent;
  };
  static void set(const std::vector<Loop>& loops, const std::vector<int64_t>& counts, int64_t place,
                  Value* frame) {
    for (size_t k = loops.size(); k-- > 0;) {
      frame[loops[k].slot] = int_value(place % counts[k]);
      place /= counts[k];
    }
  }
  struct Shared {
    Memory* memory;
    std::vector<Operand> shape;
  };
  std::vector<Loop> block_loops, thread_loops;
  std::vector<Shared> shared;
  std::vector<Memory*> privates;
  const StmtCode* body;
  Program* program;
};

}  // namespace

const StmtCode* Compiler::asynchronous(const Call& n) {
  if (!in_launch_) throw Fault{text(to_text(n.function), " is for the threads of a launch")};
  if (n.function == Intrinsic::async_copy) {
    const auto* to = n.args[0].as<Load>();
    if (!to) throw Fault{"async_copy without a place to copy to"};
    auto code = std::make_unique<AsyncCopyCode>();
    code->from = expr(n.args[1]);
    code->to = access(to->buffer, to->indices, nullptr, to->type.lanes);
    code->team = &program_.team;
    expect_no_exchanges("a store or a let only");
    return add_stmt(std::move(code));
  }
  auto code = std::make_unique<AsyncGroupCode>();
  int64_t left = 0;
  if (n.function == Intrinsic::async_wait && (!as_int(n.args[0], &left) || left < 0)) {
    throw Fault{"async_wait for other than a constant number of groups"};
  }
  code->is_wait = n.function == Intrinsic::async_wait;
  code->left = static_cast<size_t>(left);
  code->team = &program_.team;
  return add_stmt(std::move(code));
}

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
  if (may_be_launch && !in_launch_ && loops_.empty()) {
    if (std::optional<LaunchForm> launch = as_launch(s)) return compile_launch(*launch);
  }
  return dispatch(s, [this](const auto& n) { return compile(n); });
}

const StmtCode* Compiler::compile_launch(const LaunchForm& launch) {
  auto code = std::make_unique<LaunchCode>();
  code->program = &program_;
  in_launch_ = true;
  launch_has_barriers_ = false;
  for_each_stmt(launch.body, [&](const Stmt& s) {
    const auto* n = s.as<Evaluate>();
    const auto* call = n ? n->value.as<Call>() : nullptr;
    launch_has_barriers_ |= call && call->function == Intrinsic::barrier;
  });
  std::vector<const For*> loops = launch.blocks;
  loops.insert(loops.end(), launch.threads.begin(), launch.threads.end());
  const auto within = [&](const auto& self, size_t k) -> void {
    if (k == launch.blocks.size()) {
      for (const Buffer& b : launch.shared) {
        LaunchCode::Shared shared{add_memory(b), {}};
        for (const Expr& extent : b.shape())
          shared.shape.push_back(expr(extent));
        code->shared.push_back(std::move(shared));
      }
    }
    if (k == loops.size()) {
      code->body = stmt(launch.body);
      return;
    }
    const For& loop = *loops[k];
    if (!is_int(loop.min, 0)) throw Fault{text("bound loop ", loop.var.name(), " does not start at 0")};
    LaunchCode::Loop out{new_slots(1), expr(loop.extent)};
    (k < launch.blocks.size() ? code->block_loops : code->thread_loops).push_back(out);
    in_scope(loop.var, out.slot, [&] { self(self, k + 1); });
  };
  within(within, 0);
  expect_no_exchanges("a store or a let only");
  std::sort(launch_privates_.begin(), launch_privates_.end());
  launch_privates_.erase(std::unique(launch_privates_.begin(), launch_privates_.end()),
                         launch_privates_.end());
  code->privates = std::exchange(launch_privates_, {});
  for (const Buffer& b : launch.shared)
    memories_.erase(b.get());
  in_launch_ = false;
  return add_stmt(std::move(code));
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
    out.is_reduce = axis.kind == AxisKind::reduce;
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
  if (hint && hint->function == Intrinsic::barrier) {
    if (!in_launch_) throw Fault{"barrier is for the threads of a launch"};
    auto code = std::make_unique<BarrierCode>();
    code->is_in_step = true;
    code->place = place();
    return add_stmt(std::move(code));
  }
  if (hint && class_of(hint->function) == IntrinsicClass::async) return asynchronous(*hint);
  if (hint && class_of(hint->function) == IntrinsicClass::wgmma) return warpgroup(*hint);
  if (hint && class_of(hint->function) == IntrinsicClass::bulk) return bulk(*hint);
  if (hint && hint->function == Intrinsic::prefetch) return add_stmt(std::make_unique<SeqCode>());
  auto code = std::make_unique<EvaluateCode>();
  code->value = expr(n.value);
  expect_no_exchanges("a store or a let only");
  return add_stmt(std::move(code));
}

}  // namespace mcc::tensor::interpreter
