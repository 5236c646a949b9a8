// Launches: blocks of threads, their barriers, and the copies that run beside them.
#include <algorithm>
#include <functional>
#include <numeric>

#include "tensor/interpret/compile.h"
#include "tensor/interpret/element.h"
#include "tensor/intrinsics.h"

namespace mcc::tensor::interpreter {
namespace {

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
    for (const Loop& loop : block_loops)
      counts.push_back(std::max<int64_t>(loop.extent.get(frame).i, 0));
    team.extents.clear();
    for (const Loop& loop : thread_loops)
      team.extents.push_back(std::max<int64_t>(loop.extent.get(frame).i, 0));
    const int64_t blocks = size_of(counts), threads = size_of(team.extents);
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
      begin_block(block, counts, frame);
      run_block(all);
    }
  }
  struct Loop {
    int slot;
    Operand extent;
  };
  struct Shared {
    Memory* memory;
    std::vector<Operand> shape;
  };
  std::vector<Loop> block_loops, thread_loops;
  std::vector<Shared> shared;
  std::vector<Memory*> privates;
  const StmtCode* body;
  Program* program;

 private:
  // Nothing of the block before is left.
  void begin_block(int64_t block, const std::vector<int64_t>& counts, Value* frame) const {
    Team& team = program->team;
    const auto threads = static_cast<size_t>(size_of(team.extents));
    ++team.clock.block;
    ++team.clock.epoch;
    team.copies.assign(threads, {});
    team.products.assign(threads, {});
    team.phases.clear();
    team.clock.fences.assign(threads, 0);
    set(block_loops, counts, block, frame);
    for (const auto& [memory, shape] : shared)
      memory->allocate(shape_values(memory->buffer, shape, frame));
    for (std::vector<Value>& f : team.frames)
      set(block_loops, counts, block, f.data());
  }
  void run_block(const Threads& all) const {
    Team& team = program->team;
    if (body->is_in_step) {
      for (int t : all)
        set(thread_loops, team.extents, t, team.frames[static_cast<size_t>(t)].data());
      body->run_threads(team, all);
      return;
    }
    for (int t : all) {
      team.clock.thread = static_cast<uint32_t>(t);
      for (Memory* memory : privates)
        memory->select(t);
      set(thread_loops, team.extents, t, team.frames[0].data());
      body->run(team.frames[0].data());
    }
  }
  static int64_t size_of(const std::vector<int64_t>& extents) {
    return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
  }
  static void set(const std::vector<Loop>& loops, const std::vector<int64_t>& counts, int64_t place,
                  Value* frame) {
    for (size_t k = loops.size(); k-- > 0;) {
      frame[loops[k].slot] = int_value(place % counts[k]);
      place /= counts[k];
    }
  }
};

}  // namespace

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

const StmtCode* Compiler::barrier() {
  if (!in_launch_) throw Fault{"barrier is for the threads of a launch"};
  auto code = std::make_unique<BarrierCode>();
  code->is_in_step = true;
  code->place = place();
  return add_stmt(std::move(code));
}

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

}  // namespace mcc::tensor::interpreter
