#include "tensor/passes/pipeline_copies.h"

#include <algorithm>
#include <map>
#include <set>

#include "tensor/passes/async_copies.h"
#include "tensor/passes/bulk_copies.h"
#include "tensor/passes/fence_products.h"
#include "tensor/passes/scope.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

using Stages = std::unordered_map<const BufferNode*, int64_t>;  // of the buffers that have several

int64_t stages_of(const For& loop) {
  auto it = loop.annotations.find(kStages);
  const auto* n = it == loop.annotations.end() ? nullptr : std::get_if<int64_t>(&it->second);
  constexpr int64_t kMost = 8;
  return loop.loop == LoopKind::serial && n && *n >= 2 && *n <= kMost ? *n : 0;
}

// A barrier, or the fence before it.
bool is_barrier(const Stmt& s) {
  return is_call(s, Intrinsic::barrier) || is_call(s, Intrinsic::fence_async);
}

bool is_shared(const Buffer& b) { return b.scope() == Scope::shared; }

// What a statement does to shared memory.
class FindShared : public Visitor {
 public:
  explicit FindShared(const Stmt& s) { visit(s); }
  std::set<const BufferNode*> read, written;
  bool has_barrier = false;

 protected:
  using Visitor::on;
  void on(const Load& n) override {
    if (is_shared(n.buffer)) read.insert(n.buffer.get());
    Visitor::on(n);
  }
  void on(const Store& n) override {
    if (is_shared(n.buffer)) written.insert(n.buffer.get());
    Visitor::on(n);
  }
  void on(const Call& n) override {
    has_barrier |= n.function == Intrinsic::barrier;
    Visitor::on(n);
  }
};

// The two halves of a loop's body, without the barriers around them and between.
struct Halves {
  std::vector<Stmt> copies, uses;
  std::set<const BufferNode*> buffers;
  std::vector<Buffer> own;  // of each thread in an iteration, for the uses
};

bool uses_any(const Stmt& s, const std::vector<Buffer>& buffers) {
  bool found = false;
  auto look = [&](const Buffer& b) {
    found |= std::any_of(buffers.begin(), buffers.end(), [&](const Buffer& own) { return own.same_as(b); });
  };
  for_each_expr(s, [&](const Expr& e) {
    if (const auto* load = e.as<Load>()) look(load->buffer);
  });
  for_each_stmt(s, [&](const Stmt& below) {
    if (const auto* store = below.as<Store>()) look(store->buffer);
  });
  return found;
}

std::optional<Halves> halves_of(const For& loop) {
  Halves halves;
  Stmt body = loop.body;
  while (const auto* allocate = body.as<Allocate>()) {
    if (is_shared(allocate->buffer)) return std::nullopt;
    halves.own.push_back(allocate->buffer);
    body = allocate->body;
  }
  const auto* seq = body.as<Seq>();
  if (!seq) return std::nullopt;
  std::set<const BufferNode*> used;  // shared buffers, by what stands before
  for (const Stmt& s : seq->stmts) {
    if (is_barrier(s)) continue;
    FindShared shared(s);
    if (shared.has_barrier) return std::nullopt;
    if (!shared.written.empty()) {
      // Ahead of what stands before, too, if that has nothing to do with it.
      const bool is_used = std::any_of(shared.written.begin(), shared.written.end(),
                                       [&](const BufferNode* b) { return used.contains(b); });
      if (is_used || !shared.read.empty() || uses_any(s, halves.own)) return std::nullopt;
      halves.buffers.insert(shared.written.begin(), shared.written.end());
      halves.copies.push_back(s);
    } else {
      used.insert(shared.read.begin(), shared.read.end());
      halves.uses.push_back(s);
    }
  }
  if (halves.copies.empty() || halves.uses.empty()) return std::nullopt;
  return halves;
}

Stmt statement(Intrinsic function, std::vector<Expr> args) {
  return Evaluate::make(Call::make(function, std::move(args)));
}

// Accesses of some buffers, in a stage of them.
class InStage : public Mutator {
 public:
  InStage(const std::set<const BufferNode*>& buffers,
          const std::unordered_map<const BufferNode*, int64_t>& sizes, Expr stage)
      : buffers_(buffers), sizes_(sizes), stage_(std::move(stage)) {}

 protected:
  using Mutator::on;
  Expr on(const Load& n, const Expr& self) override {
    if (!buffers_.contains(n.buffer.get())) return Mutator::on(n, self);
    return Load::make(n.buffer, {moved(n.buffer, n.indices[0])}, n.predicate);
  }
  Stmt on(const Store& n, const Stmt& self) override {
    if (!buffers_.contains(n.buffer.get())) return Mutator::on(n, self);
    return Store::make(n.buffer, {moved(n.buffer, n.indices[0])}, mutate(n.value), n.predicate);
  }

 private:
  Expr moved(const Buffer& b, const Expr& index) const {
    const Expr by = stage_ * Expr(sizes_.at(b.get()));
    return index.lanes() > 1 ? index + Broadcast::make(by, index.lanes()) : index + by;
  }

  const std::set<const BufferNode*>& buffers_;
  const std::unordered_map<const BufferNode*, int64_t>& sizes_;
  const Expr stage_;
};

class Pipeline : public ScopedMutator {
 public:
  explicit Pipeline(bool has_async) : has_async_(has_async) {}
  std::unordered_map<const BufferNode*, int64_t> sizes;  // elements of a stage
  std::vector<std::pair<std::set<const BufferNode*>, Buffer>> phases;  // of the copies into these
  Stages stages;

 protected:
  using ScopedMutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    const int64_t count = has_async_ ? stages_of(n) : std::min<int64_t>(stages_of(n), 2);
    std::optional<Halves> halves = count > 0 ? halves_of(n) : std::nullopt;
    // Without asynchronous copies the next part waits in registers.
    if (!has_async_ && halves && !stage_in_registers(Seq::make(halves->copies))) halves.reset();
    if (!halves || !enlarge(halves->buffers, count)) {
      const bool is_repeated = is_repeated_;
      is_repeated_ |= n.loop != LoopKind::bound;
      Stmt out = ScopedMutator::on(n, self);
      is_repeated_ = is_repeated;
      return out;
    }
    // One stage is still read by products of the iteration before.
    const std::vector<Stmt> waits = count > 2 ? take_waits(halves->uses) : std::vector<Stmt>();
    if (Stmt bulk = in_bulk(n, *halves, waits, count)) return bulk;
    const int64_t distance = count - (waits.empty() ? 1 : 2);
    const Expr ahead = n.var + Expr(distance), place = n.var - n.min;
    Var s("stage");
    Stmt first = fetch(*halves, {{n.var.get(), n.min + s}}, s);
    first = For::make(s, 0, distance, LoopKind::unrolled, If::make(Expr(s) < n.extent, first));
    first = Seq::make({first_barrier(), has_async_ ? commit_each(first) : first});
    const Expr has_next = place + Expr(distance) < n.extent;
    const Stmt next = fetch(*halves, {{n.var.get(), ahead}}, floor_mod(place + Expr(distance), count));
    std::optional<StagedCopies> staged = stage_in_registers(next);
    InStage now(halves->buffers, sizes, floor_mod(place, count));
    const Stmt use = now.mutate(Seq::make(halves->uses));
    std::vector<Stmt> parts;
    if (has_async_) parts.push_back(statement(Intrinsic::async_wait, {Expr(distance - 1)}));
    parts.push_back(first_barrier());
    if (!waits.empty()) parts.push_back(use);
    parts.push_back(If::make(has_next, staged ? staged->loads : next));
    if (has_async_) parts.push_back(statement(Intrinsic::async_commit, {}));
    if (waits.empty()) parts.push_back(use);
    for (const Stmt& wait : waits)
      parts.push_back(wait_for(wait, 1));
    if (staged) parts.push_back(If::make(has_next, renamed(staged->stores)));
    Stmt body = with_own(*halves, Seq::make(std::move(parts)));
    if (staged) {
      for (const Buffer& r : staged->registers)
        body = Allocate::make(r, body);
    }
    return between(first, n, body, waits);
  }

  // Copies for the only step that there is.
  Stmt on(const Seq& n, const Stmt& self) override {
    auto is_copy = [](const Stmt& s) {
      const auto* loop = s.as<For>();
      return loop && is_bulk(*loop);
    };
    const auto begin = std::find_if(n.stmts.begin(), n.stmts.end(), is_copy),
               end = std::find_if_not(begin, n.stmts.end(), is_copy);
    Stmt bulk = begin == end || is_repeated_ ? Stmt() : bulk_once({begin, end});
    if (!bulk) return ScopedMutator::on(n, self);
    std::vector<Stmt> out(n.stmts.begin(), begin);
    out.push_back(bulk);
    out.insert(out.end(), end, n.stmts.end());
    return Seq::make(std::move(out));
  }

 private:
  const bool has_async_;
  bool is_repeated_ = false;  // by a loop around

  // Buffers that get so many stages; false where one has no constant size.
  bool enlarge(const std::set<const BufferNode*>& buffers, int64_t count) {
    for (const BufferNode* b : buffers) {
      int64_t elements = 0;
      if (!as_int(b->shape[0], &elements)) return false;
      // Each stage is aligned as the buffer is.
      const int64_t unit = std::max<int64_t>(1, std::max(64, b->alignment) / byte_size(b->element));
      sizes[b] = (elements + unit - 1) / unit * unit;
      stages[b] = std::max(stages[b], count);
    }
    return true;
  }

  static Stmt with_own(const Halves& halves, Stmt body) {
    for (size_t k = halves.own.size(); k-- > 0;)
      body = Allocate::make(halves.own[k], body);
    return body;
  }

  static Stmt first_barrier() { return statement(Intrinsic::barrier, {}); }

  // The loop in its new form, with what comes before, and behind it the waits for all products.
  static Stmt between(const Stmt& first, const For& n, const Stmt& body, const std::vector<Stmt>& waits) {
    Annotations annotations = n.annotations;
    annotations.erase(kStages);
    std::vector<Stmt> out = {first, For::make(n.var, n.min, n.extent, n.loop, body, std::move(annotations))};
    out.insert(out.end(), waits.begin(), waits.end());
    return Seq::make(std::move(out));
  }

  // By the copy engine, once; undefined where that cannot make all of the copies.
  Stmt bulk_once(const std::vector<Stmt>& copies) {
    std::set<const BufferNode*> buffers;
    for (const Stmt& s : copies)
      buffers.merge(FindShared(s).written);
    Buffer full("copies.full", ElementType::i64, {Expr(1)}, Scope::shared);
    const Expr bar = Load::make(full, {Expr(0)});
    std::optional<BulkCopies> bulk = as_bulk_copies(copies, analyzer_, bar);
    if (!bulk || !enlarge(buffers, 1)) return nullptr;
    phases.emplace_back(buffers, full);
    return Seq::make({If::make(bulk->condition, statement(Intrinsic::bulk_init, {bar})),
                      statement(Intrinsic::fence_async, {}), first_barrier(),
                      If::make(bulk->condition, Seq::make({statement(Intrinsic::bulk_expect, {bar, Expr(bulk->bytes)}),
                                                           bulk->copies})),
                      statement(Intrinsic::bulk_wait, {bar, Expr(0)})});
  }

  // By the copy engine; undefined where that cannot make all of the copies.
  Stmt in_bulk(const For& n, const Halves& halves, const std::vector<Stmt>& waits, int64_t count) {
    Buffer full(text(n.var.name(), ".full"), ElementType::i64, {Expr(count)}, Scope::shared);
    Analyzer inside = analyzer_;
    inside.bind(n.var, n.min, n.extent);
    std::optional<BulkCopies> bulk = as_bulk_copies(halves.copies, inside, Load::make(full, {Expr(0)}));
    if (!bulk) return nullptr;
    sizes[full.get()] = 1;
    std::set<const BufferNode*> buffers = halves.buffers;
    buffers.insert(full.get());
    phases.emplace_back(halves.buffers, full);

    const int64_t distance = count - 1;
    const Expr place = n.var - n.min;
    auto at = [&](const Expr& stage, const Stmt& s) {
      return simplify(InStage(buffers, sizes, stage).mutate(s));
    };
    auto own = [&](Intrinsic function, std::vector<Expr> more) {
      more.insert(more.begin(), Load::make(full, {Expr(0)}));
      return statement(function, std::move(more));
    };
    auto fetch_to = [&](const Expr& stage, const VarMap& iteration) {
      const Stmt all = Seq::make({own(Intrinsic::bulk_expect, {Expr(bulk->bytes)}), bulk->copies});
      return If::make(bulk->condition, at(stage, substitute(all, iteration)));
    };
    Var s("stage"), i("stage");
    const Stmt begin = For::make(i, 0, count, LoopKind::unrolled, at(i, own(Intrinsic::bulk_init, {})));
    const Stmt ahead = For::make(s, 0, distance, LoopKind::unrolled,
                                 If::make(Expr(s) < n.extent, fetch_to(s, {{n.var.get(), n.min + s}})));
    const Stmt first = Seq::make(
        {If::make(bulk->condition, begin), statement(Intrinsic::fence_async, {}), first_barrier(), ahead});
    const Expr now = floor_mod(place, count);
    std::vector<Stmt> parts = {at(now, own(Intrinsic::bulk_wait, {floor_mod(floor_div(place, count), 2)})),
                               at(now, Seq::make(halves.uses))};
    for (const Stmt& wait : waits)
      parts.push_back(wait_for(wait, 1));
    // All have done with the stage before this one, which is the next to be filled.
    parts.push_back(first_barrier());
    parts.push_back(If::make(
        place + Expr(distance) < n.extent,
        fetch_to(floor_mod(place + Expr(distance), count), {{n.var.get(), n.var + Expr(distance)}})));
    return between(first, n, with_own(halves, Seq::make(std::move(parts))), waits);
  }

  // The waits for products at the end of the statements, which lose them.
  static std::vector<Stmt> take_waits(std::vector<Stmt>& stmts) {
    std::vector<Stmt> waits;
    while (!stmts.empty()) {
      if (const auto* seq = stmts.back().as<Seq>()) {
        const std::vector<Stmt> inner = seq->stmts;
        stmts.pop_back();
        stmts.insert(stmts.end(), inner.begin(), inner.end());
        continue;
      }
      const auto* n = stmts.back().as<Evaluate>();
      const auto* call = n ? n->value.as<Call>() : nullptr;
      if (!call || call->function != Intrinsic::wgmma_wait) break;
      waits.insert(waits.begin(), stmts.back());
      stmts.pop_back();
    }
    return waits;
  }
  static Stmt wait_for(const Stmt& wait, int64_t left) {
    const auto* call = wait.as<Evaluate>()->value.as<Call>();
    return statement(Intrinsic::wgmma_wait, {call->args[0], Expr(left)});
  }

  // A group for each stage of the unrolled loop, also where there is nothing to fetch.
  static Stmt commit_each(const Stmt& loop) {
    const auto* n = loop.as<For>();
    return For::make(n->var, n->min, n->extent, n->loop,
                     Seq::make({n->body, statement(Intrinsic::async_commit, {})}));
  }

  Stmt fetch(const Halves& halves, const VarMap& at, const Expr& stage) const {
    InStage there(halves.buffers, sizes, stage);
    Stmt copies = simplify(there.mutate(substitute(Seq::make(halves.copies), at)));
    return renamed(has_async_ ? make_async(copies) : copies);
  }

  // A variable is bound in one place.
  static Stmt renamed(const Stmt& s) {
    class Rename : public Mutator {
      using Mutator::on;
      Stmt on(const For& n, const Stmt&) override {
        Var copy(n.var.name());
        return For::make(copy, n.min, n.extent, n.loop, mutate(substitute(n.body, {{n.var.get(), copy}})),
                         n.annotations);
      }
      Stmt on(const Let& n, const Stmt&) override {
        Var copy(n.var.name(), n.var.type());
        return Let::make(copy, n.value, mutate(substitute(n.body, {{n.var.get(), copy}})));
      }
    };
    return Rename().mutate(s);
  }
};

// The buffers with all of their stages.
class Enlarge : public Mutator {
 public:
  explicit Enlarge(const Pipeline& pipeline) {
    phases_ = pipeline.phases;
    for (const auto& [buffers, phases] : phases_)
      all_[phases.get()] = buffers.size();
    for (const auto& [buffer, count] : pipeline.stages) {
      Buffer made(buffer->name, buffer->element, {Expr(count * pipeline.sizes.at(buffer))}, buffer->scope,
                  buffer->alignment);
      buffers_.emplace(buffer, made);
    }
  }

 protected:
  using Mutator::on;
  Buffer on_buffer(const Buffer& b) override {
    auto it = buffers_.find(b.get());
    return it == buffers_.end() ? b : it->second;
  }
  Stmt on(const Allocate& n, const Stmt& self) override {
    auto it = buffers_.find(n.buffer.get());
    if (it == buffers_.end()) return Mutator::on(n, self);
    Stmt body = mutate(n.body);
    // Behind the last of the buffers.
    for (auto& [buffers, phases] : phases_) {
      const bool is_first = buffers.size() == all_.at(phases.get());
      if (buffers.erase(n.buffer.get()) > 0 && is_first) body = Allocate::make(phases, body);
    }
    return Allocate::make(it->second, body);
  }

 private:
  BufferMap buffers_;
  std::vector<std::pair<std::set<const BufferNode*>, Buffer>> phases_;
  std::map<const BufferNode*, size_t> all_;  // how many buffers there were; looked up only
};

}  // namespace

Func pipeline_copies(const Func& f, const Target& target) {
  Func out = f;
  Pipeline pipeline(target.gpu.has_async_copies());
  out.body = pipeline.mutate(f.body);
  if (pipeline.stages.empty()) return f;
  out.body = Enlarge(pipeline).mutate(out.body);
  return fence_products(out);
}

}  // namespace mcc::tensor
