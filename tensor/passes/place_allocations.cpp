#include "tensor/passes/place_allocations.h"

#include <algorithm>
#include <map>
#include <set>

#include "tensor/grid.h"
#include "tensor/passes/scope.h"
#include "tensor/sizes.h"

namespace mcc::tensor {
namespace {

// Buffers of one thread that are not larger than this are local without being asked to.
constexpr int64_t kSmallBytes = 16 << 10;

using Path = std::vector<const For*>;

struct Access {
  Path path;  // the loops around, outermost first
  std::vector<Expr> indices;
  bool is_write = false;
};

// The accesses of each buffer in program order.
class CollectUses : public Visitor {
 public:
  explicit CollectUses(const std::vector<Buffer>& buffers) {
    for (const Buffer& b : buffers)
      uses[b.get()];
  }
  std::unordered_map<const BufferNode*, std::vector<Access>> uses;

 protected:
  using Visitor::on;
  void on(const For& n) override {
    visit(n.min);
    visit(n.extent);
    path_.push_back(&n);
    visit(n.body);
    path_.pop_back();
  }
  void on(const Load& n) override {
    Visitor::on(n);
    add(n.buffer, n.indices, false);
  }
  void on(const Store& n) override {
    Visitor::on(n);
    add(n.buffer, n.indices, true);
  }

 private:
  void add(const Buffer& buffer, const std::vector<Expr>& indices, bool is_write) {
    auto it = uses.find(buffer.get());
    if (it != uses.end()) it->second.push_back({path_, indices, is_write});
  }
  Path path_;
};

size_t common_depth(const std::vector<Access>& accesses) {
  size_t depth = accesses[0].path.size();
  for (const Access& a : accesses) {
    size_t same = 0;
    while (same < depth && same < a.path.size() && a.path[same] == accesses[0].path[same])
      ++same;
    depth = same;
  }
  return depth;
}

bool indexed_by(const std::vector<Access>& accesses, const Var& var) {
  for (const Access& a : accesses) {
    for (const Expr& i : a.indices) {
      if (uses_var(i, var)) return true;
    }
  }
  return false;
}

// Whether each iteration uses elements of its own: those at its variable in some dimension.
bool is_own(const std::vector<Access>& accesses, const Var& var) {
  for (size_t d = 0; d < accesses[0].indices.size(); ++d) {
    if (std::all_of(accesses.begin(), accesses.end(),
                    [&](const Access& a) { return a.indices[d].same_as(var); }))
      return true;
  }
  return false;
}

// The number of loops around the place of a buffer, whose contents are of one iteration of these.
size_t place_of(const std::vector<Access>& accesses) {
  if (!accesses[0].is_write) return 0;
  size_t depth = common_depth(accesses);
  const Path& path = accesses[0].path;
  for (size_t d = 0; d < depth; ++d) {
    bool carried = path[d]->annotations.contains("scan") && indexed_by(accesses, path[d]->var) &&
                   !is_own(accesses, path[d]->var);
    if (carried || path[d]->loop == LoopKind::vectorized) return d;
  }
  return depth;
}

bool has_parallel(const Path& path, size_t from, size_t to) {
  for (size_t d = from; d < to; ++d) {
    if (path[d]->loop == LoopKind::parallel || path[d]->loop == LoopKind::bound) return true;
  }
  return false;
}

// In a launch: the loops over blocks are the first of the path, but for serial ones around launches; those over threads come next.
size_t count_block_loops(const Path& path) {
  size_t around = 0;
  while (around < path.size() && path[around]->loop == LoopKind::serial)
    ++around;
  size_t count = around;
  while (count < path.size() && is_block_loop(*path[count]))
    ++count;
  return count == around ? 0 : count;
}
bool is_in_launch(const Path& path) {
  size_t blocks = count_block_loops(path);
  return blocks < path.size() && is_thread_loop(*path[blocks]);
}

size_t depth_in_launch(const Buffer& buffer, const Path& path, size_t depth) {
  if (buffer.scope() == Scope::global) return 0;
  size_t owned = count_block_loops(path);
  if (buffer.scope() == Scope::shared) return std::max(depth, owned);
  while (owned < path.size() && is_thread_loop(*path[owned]))
    ++owned;
  return std::max(depth, owned);
}

// The part of one dimension that is used at a place: extent elements from base.
struct Side {
  Expr base, extent;
};

// Knows all loops around the accesses of a buffer.
class BoxFinder {
 public:
  BoxFinder(const Func& f, const Buffer& buffer, const std::vector<Access>& accesses, size_t depth)
      : accesses_(accesses),
        depth_(depth),
        of_all_threads_(buffer.scope() == Scope::shared),
        sized_(size_facts(f)) {
    for (const Var& dim : f.dims) {
      outer_.insert(dim.node());
      dims_.insert(dim.node());
    }
    std::set<const For*> seen;
    for (const Access& a : accesses) {
      for (size_t d = 0; d < a.path.size(); ++d) {
        const For* loop = a.path[d];
        if (!seen.insert(loop).second) continue;
        loops_.bind(loop->var, loop->min, loop->extent);
        sized_.bind(loop->var, loop->min, loop->extent);
        if (d < depth && !is_shared_by(*loop)) outer_.insert(loop->var.node());
      }
    }
  }

  // The part of dimension dim of the given extent; the whole where nothing smaller can be shown. Registers are also
  // there for what guards keep from being used: so rows start at whole vectors, and relax_guards can do without the guards.
  Side side(size_t dim, const Expr& whole, bool is_registers) const {
    Side all{0, whole};
    Expr origin;
    std::optional<int64_t> low, high;
    std::vector<Expr> open_ends;  // where a loop's length depends on the run
    for (const Access& a : accesses_) {
      Expr start = at_first_iteration(a, a.indices[dim]);
      if (!is_fixed(start)) return all;
      if (!origin.defined()) origin = start;
      Interval width = loops_.bounds(a.indices[dim] - start), shift = loops_.bounds(start - origin);
      if (!width.low || !shift.low || !shift.high) return all;
      const int64_t first = *shift.low + *width.low;
      low = low ? std::min(*low, first) : first;
      if (width.high) {
        const int64_t last = *shift.high + *width.high;
        high = high ? std::max(*high, last) : last;
        continue;
      }
      const Expr last = at_last_iteration(a, a.indices[dim] - start);
      if (!last.defined()) return all;
      open_ends.push_back(last + Expr(*shift.high));
    }
    const Expr base = loops_.simplify(origin + Expr(*low));
    // What all of the function uses has its own size.
    if (!open_ends.empty()) return depth_ == 0 ? all : open_side(base, *low, high, open_ends, all);
    int64_t count = *high - *low + 1, size = 0;
    if (as_int(whole, &size) && (is_registers ? count == size : count >= size)) return all;
    return {base, count};
  }

 private:
  Expr at_first_iteration(const Access& a, Expr index) const {
    for (size_t d = a.path.size(); d-- > 0;) {
      if (d >= depth_ || is_shared_by(*a.path[d])) {
        index = substitute(index, {{a.path[d]->var.get(), a.path[d]->min}});
      }
    }
    return index;
  }
  // Of an index that grows or falls evenly with each loop inside of the place, its largest value; undefined for others.
  Expr at_last_iteration(const Access& a, const Expr& index) const {
    Expr last = sized_.simplify(index);
    for (size_t d = a.path.size(); d-- > depth_;) {
      const For& loop = *a.path[d];
      if (!uses_var(last, loop.var)) continue;
      const Expr next = substitute(last, {{loop.var.get(), loop.var + 1}});
      const Expr growth = sized_.simplify(next - last);
      if (uses_var(growth, loop.var)) return nullptr;
      const bool grows = sized_.can_prove(growth >= 0);
      if (!grows && !sized_.can_prove(growth <= 0)) return nullptr;
      last = sized_.simplify(
          substitute(last, {{loop.var.get(), grows ? loop.min + loop.extent - 1 : loop.min}}));
    }
    return is_fixed(last) ? last : nullptr;
  }
  Side open_side(const Expr& base, int64_t low, std::optional<int64_t> high, const std::vector<Expr>& ends,
                 const Side& all) const {
    Expr end = ends[0];
    for (const Expr& other : ends)
      end = sized_.can_prove(other <= end)   ? end
            : sized_.can_prove(end <= other) ? other
                                             : tensor::max(end, other);
    if (high && !sized_.can_prove(end >= Expr(*high))) end = tensor::max(end, Expr(*high));
    const Expr count = sized_.simplify(end - Expr(low) + 1);
    if (!is_of_dims(count) || sized_.can_prove(count >= all.extent)) return all;
    return {base, count};
  }
  // Whether it is the same number in all of a run.
  bool is_of_dims(const Expr& e) const {
    return !uses_any_var(e, [&](const VarNode* v) { return !dims_.contains(v); });
  }
  // Whether the iterations of a loop around the place use one buffer.
  bool is_shared_by(const For& loop) const { return of_all_threads_ && is_thread_loop(loop); }
  // Whether e has one value during the place.
  bool is_fixed(const Expr& e) const {
    return !has_load(e) && !uses_any_var(e, [&](const VarNode* v) { return !outer_.contains(v); });
  }

  const std::vector<Access>& accesses_;
  size_t depth_;
  bool of_all_threads_;
  Analyzer loops_;  // without the sizes of a dimension: their largest is no size to keep memory for
  Analyzer sized_;  // with them
  std::set<const VarNode*> outer_;  // what has one value during the place
  std::set<const VarNode*> dims_;
};

struct Placement {
  Buffer buffer;           // in its new shape and scope
  std::vector<Expr> base;  // subtracted from the indices
};

bool is_constant_shape(const std::vector<Expr>& shape) {
  for (const Expr& e : shape) {
    if (!e.as<IntImm>()) return false;
  }
  return true;
}

Scope scope_at(const Buffer& buffer, const std::vector<Access>& accesses, size_t depth,
               const std::vector<Expr>& shape) {
  if (buffer.scope() == Scope::shared) return Scope::shared;
  // A launch's workspace.
  if (depth == 0 && is_in_launch(accesses[0].path)) return Scope::global;
  bool shared_by_threads = false;
  for (const Access& a : accesses)
    shared_by_threads |= has_parallel(a.path, depth, a.path.size());
  if (shared_by_threads) return Scope::global;
  bool is_constant = is_constant_shape(shape);
  if (buffer.scope() == Scope::registers) return is_constant ? Scope::registers : Scope::local;
  if (buffer.scope() == Scope::local || has_parallel(accesses[0].path, 0, depth)) return Scope::local;
  Buffer shrunk(buffer.name(), buffer.element(), shape);
  auto bytes = constant_bytes(shrunk);
  return bytes && *bytes <= kSmallBytes ? Scope::local : Scope::global;
}

class Rewriter : public ScopedMutator {
 public:
  std::unordered_map<const BufferNode*, Placement> placements;
  std::map<const For*, std::vector<Buffer>> at;  // keyed access only: the order of addresses is not used

  static Stmt allocate(const std::vector<Buffer>& buffers, Stmt body) {
    for (size_t i = buffers.size(); body && i-- > 0;)
      body = Allocate::make(buffers[i], body);
    return body;
  }

 protected:
  using ScopedMutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    Stmt loop = ScopedMutator::on(n, self);
    auto it = at.find(&n);
    if (!loop || it == at.end()) return loop;
    const For& made = *loop.as<For>();
    return with_body(made, allocate(it->second, made.body));
  }
  Expr on(const Load& n, const Expr& self) override {
    auto it = placements.find(n.buffer.get());
    if (it == placements.end()) return Mutator::on(n, self);
    return Load::make(it->second.buffer, relative(n.indices, it->second), mutate(n.predicate));
  }
  Stmt on(const Store& n, const Stmt& self) override {
    auto it = placements.find(n.buffer.get());
    if (it == placements.end()) return Mutator::on(n, self);
    return Store::make(it->second.buffer, relative(n.indices, it->second), mutate(n.value),
                       mutate(n.predicate));
  }

 private:
  std::vector<Expr> relative(const std::vector<Expr>& indices, const Placement& p) {
    std::vector<Expr> out;
    for (size_t i = 0; i < indices.size(); ++i) {
      out.push_back(analyzer_.simplify(mutate(indices[i]) - p.base[i]));
    }
    return out;
  }
};

}  // namespace

Func place_allocations(const Func& f) {
  CollectUses collect(f.allocs);
  collect.visit(f.body);
  Rewriter rewriter;
  std::vector<Buffer> at_root;
  for (const Buffer& buffer : f.allocs) {
    const std::vector<Access>& accesses = collect.uses.at(buffer.get());
    if (accesses.empty()) continue;
    const Path& path = accesses[0].path;
    size_t depth = place_of(accesses);
    if (is_in_launch(path)) depth = depth_in_launch(buffer, path, depth);
    Placement placement;
    std::vector<Expr> shape;
    auto measure = [&] {
      BoxFinder finder(f, buffer, accesses, depth);
      shape.clear();
      placement.base.clear();
      for (size_t i = 0; i < buffer.shape().size(); ++i) {
        Side side = finder.side(i, buffer.shape()[i], buffer.scope() == Scope::registers);
        placement.base.push_back(side.base);
        shape.push_back(side.extent);
      }
    };
    measure();
    if (is_in_launch(path) && has_parallel(path, 0, depth) && !is_constant_shape(shape) &&
        buffer.scope() != Scope::shared) {
      // What a thread of a launch keeps to itself has a constant size; the whole buffer outside serves as well.
      depth = 0;
      measure();
    }
    int64_t row = 0;
    if (buffer.scope() == Scope::shared && !shape.empty() && as_int(shape.back(), &row)) {
      shape.back() = aligned_row(f, buffer, row);
    }
    Scope scope = scope_at(buffer, accesses, depth, shape);
    placement.buffer = Buffer(buffer.name(), buffer.element(), shape, scope, buffer->alignment);
    size_t place = buffer.scope() == Scope::shared && is_in_launch(path) ? count_block_loops(path) : depth;
    (place == 0 ? at_root : rewriter.at[path[place - 1]]).push_back(placement.buffer);
    rewriter.placements.emplace(buffer.get(), std::move(placement));
  }
  Func out = f;
  std::erase_if(out.annotations, [](const auto& fact) { return fact.first.starts_with(kStorageAlign); });
  out.allocs.clear();
  out.body = Rewriter::allocate(at_root, rewriter.mutate(f.body));
  return out;
}

}  // namespace mcc::tensor
