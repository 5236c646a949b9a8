#include "tensor/passes/merge_axes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "tensor/simplify.h"
#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::tensor {
namespace {

// A block with exactly its own loops around it.
struct Nest {
  std::vector<const For*> loops;
  const Block* block = nullptr;
};

// The function as a list of nests, if it is one.
std::optional<std::vector<Nest>> nests_of(const Func& f) {
  std::vector<Stmt> parts;
  if (const auto* seq = f.body.as<Seq>()) {
    parts = seq->stmts;
  } else {
    parts = {f.body};
  }
  std::vector<Nest> nests;
  for (const Stmt& part : parts) {
    Nest nest;
    Stmt s = part;
    while (const auto* loop = s.as<For>()) {
      if (loop->loop != LoopKind::serial || !is_int(loop->min, 0)) return std::nullopt;
      nest.loops.push_back(loop);
      s = loop->body;
    }
    nest.block = s.as<Block>();
    if (!nest.block || nest.block->axes.size() != nest.loops.size()) return std::nullopt;
    for (size_t i = 0; i < nest.loops.size(); ++i) {
      const Axis& axis = nest.block->axes[i];
      bool is_plain = nest.block->values[i].same_as(nest.loops[i]->var) && axis.kind != AxisKind::scan &&
                      is_int(axis.domain.min, 0) && is_true(nest.block->predicate);
      if (!is_plain || !structurally_equal(axis.domain.extent, nest.loops[i]->extent)) return std::nullopt;
    }
    nests.push_back(std::move(nest));
  }
  return nests;
}

// Dimension `dim` of the buffer, and the next one.
using Boundary = std::pair<const BufferNode*, int>;
using AxisPair = std::pair<const ExprNode*, const ExprNode*>;

// What one block says about boundaries.
struct BlockUse {
  std::map<const ExprNode*, const Axis*> axes;
  // Pairs of axes that index a boundary together, with the boundaries where they do.
  std::map<AxisPair, std::set<Boundary>> pairs;
  std::set<const ExprNode*> loose;  // axes used in any other way
  std::set<Boundary> broken;        // boundaries accessed in any other way
  // Axes whose left / right neighbour in index lists is not always the same.
  std::set<const ExprNode*> bad_left, bad_right;
};

class ReadUses : public Visitor {
 public:
  explicit ReadUses(const Block& block) {
    for (const Axis& axis : block.axes)
      use_.axes[axis.var.get()] = &axis;
    visit(block.init);
    visit(block.body);
  }
  BlockUse take() { return std::move(use_); }

 protected:
  using Visitor::on;
  void on(const VarNode& n) override {
    if (use_.axes.count(&n)) use_.loose.insert(&n);
  }
  void on(const Load& n) override {
    access(n.buffer, n.indices);
    visit(n.predicate);
  }
  void on(const Store& n) override {
    access(n.buffer, n.indices);
    visit(n.value);
    visit(n.predicate);
  }

 private:
  // The axis that walks the whole dimension, or null.
  const Axis* full_axis(const Buffer& buffer, size_t dim, const Expr& index) const {
    auto it = use_.axes.find(index.get());
    if (it == use_.axes.end()) return nullptr;
    return structurally_equal(it->second->domain.extent, buffer.shape()[dim]) ? it->second : nullptr;
  }

  void access(const Buffer& buffer, const std::vector<Expr>& indices) {
    size_t rank = indices.size();
    std::vector<const Axis*> axes(rank);
    for (size_t d = 0; d < rank; ++d) {
      axes[d] = full_axis(buffer, d, indices[d]);
      if (!axes[d]) visit(indices[d]);
    }
    for (size_t d = 0; d + 1 < rank; ++d) {
      Boundary boundary{buffer.get(), static_cast<int>(d)};
      if (axes[d] && axes[d + 1] && axes[d] != axes[d + 1] && axes[d]->kind == axes[d + 1]->kind) {
        use_.pairs[{axes[d]->var.get(), axes[d + 1]->var.get()}].insert(boundary);
      } else {
        use_.broken.insert(boundary);
      }
    }
    for (size_t d = 0; d < rank; ++d) {
      if (!axes[d]) continue;
      const ExprNode* left = d > 0 && axes[d - 1] ? axes[d - 1]->var.get() : nullptr;
      const ExprNode* right = d + 1 < rank && axes[d + 1] ? axes[d + 1]->var.get() : nullptr;
      neighbours(axes[d]->var.get(), left, right);
    }
  }

  // Pairs in which an axis stands in one access but not in another are no pairs.
  void neighbours(const ExprNode* axis, const ExprNode* left, const ExprNode* right) {
    auto [entry, is_new] = around_.try_emplace(axis, left, right);
    if (is_new) return;
    if (entry->second.first != left) {
      use_.bad_left.insert(axis);
    }
    if (entry->second.second != right) {
      use_.bad_right.insert(axis);
    }
  }

  std::map<const ExprNode*, std::pair<const ExprNode*, const ExprNode*>> around_;
  BlockUse use_;
};

// Boundaries that may go, over all blocks.
std::set<Boundary> mergeable(const std::vector<BlockUse>& uses) {
  std::set<Boundary> valid, broken;
  for (const auto& use : uses) {
    for (const auto& [pair, boundaries] : use.pairs)
      valid.insert(boundaries.begin(), boundaries.end());
    broken.insert(use.broken.begin(), use.broken.end());
  }
  bool changed = true;
  while (changed) {
    changed = false;
    for (const auto& use : uses) {
      for (const auto& [pair, boundaries] : use.pairs) {
        bool bad = use.loose.count(pair.first) || use.loose.count(pair.second) ||
                   use.bad_right.count(pair.first) || use.bad_left.count(pair.second);
        for (const Boundary& b : boundaries)
          bad |= broken.count(b) != 0;
        if (!bad) continue;
        for (const Boundary& b : boundaries)
          changed |= broken.insert(b).second;
      }
    }
  }
  for (const Boundary& b : broken)
    valid.erase(b);
  return valid;
}

class MergeAxes {
 public:
  MergeAxes(const Func& f, std::vector<Nest> nests) : f_(f), nests_(std::move(nests)) {}

  Func run() {
    std::vector<BlockUse> uses;
    for (const Nest& nest : nests_)
      uses.push_back(ReadUses(*nest.block).take());
    valid_ = mergeable(uses);
    if (valid_.empty()) return f_;
    Func out = f_;
    for (Buffer& b : out.params)
      b = merged(b);
    for (Buffer& b : out.allocs)
      b = merged(b);
    std::vector<Stmt> parts;
    for (size_t i = 0; i < nests_.size(); ++i)
      parts.push_back(rebuild(nests_[i], uses[i]));
    out.body = Seq::make(std::move(parts));
    return out;
  }

 private:
  Buffer merged(const Buffer& old) {
    if (auto it = buffers_.find(old.get()); it != buffers_.end()) return it->second;
    std::vector<Expr> shape;
    for (int d = 0; d < old.rank(); ++d) {
      const Expr& extent = old.shape()[static_cast<size_t>(d)];
      if (d > 0 && valid_.count({old.get(), d - 1})) {
        shape.back() = simplify(shape.back() * extent);
      } else {
        shape.push_back(extent);
      }
    }
    Buffer result = shape.size() == old.shape().size()
                        ? old
                        : Buffer(old.name(), old.element(), shape, old.scope(), old->alignment);
    buffers_.emplace(old.get(), result);
    return result;
  }

  // Replaces accesses: of merged dimensions, the index is the axis that walks them all.
  class Rewrite : public Mutator {
   public:
    Rewrite(MergeAxes& owner, const std::map<const ExprNode*, Expr>& first) : owner_(owner), first_(first) {}

   protected:
    using Mutator::on;
    Expr on(const Load& n, const Expr&) override {
      return Load::make(owner_.merged(n.buffer), indices(n.buffer, n.indices), mutate(n.predicate));
    }
    Stmt on(const Store& n, const Stmt&) override {
      return Store::make(owner_.merged(n.buffer), indices(n.buffer, n.indices), mutate(n.value),
                         mutate(n.predicate));
    }
    Expr on(const VarNode& n, const Expr& self) override {
      auto it = first_.find(&n);
      return it == first_.end() ? self : it->second;
    }

   private:
    std::vector<Expr> indices(const Buffer& buffer, const std::vector<Expr>& old) {
      std::vector<Expr> out;
      for (size_t d = 0; d < old.size(); ++d) {
        bool follows = d > 0 && owner_.valid_.count({buffer.get(), static_cast<int>(d) - 1});
        if (!follows) out.push_back(mutate(old[d]));
      }
      return out;
    }
    MergeAxes& owner_;
    const std::map<const ExprNode*, Expr>& first_;
  };

  Stmt rebuild(const Nest& nest, const BlockUse& use) {
    // Axes that follow another one in a merged pair disappear into the first of their chain.
    std::map<const ExprNode*, const ExprNode*> next;
    std::set<const ExprNode*> follows;
    for (const auto& [pair, boundaries] : use.pairs) {
      if (!std::all_of(boundaries.begin(), boundaries.end(),
                       [&](const Boundary& b) { return valid_.count(b); }))
        continue;
      next[pair.first] = pair.second;
      follows.insert(pair.second);
    }
    auto* block = nest.block->copy();
    Stmt owner(block);
    block->axes.clear();
    block->values.clear();
    std::vector<Var> vars;
    std::vector<Expr> extents;
    std::map<const ExprNode*, Expr> replacement;
    for (size_t i = 0; i < nest.loops.size(); ++i) {
      const Axis& axis = nest.block->axes[i];
      if (follows.count(axis.var.get())) continue;
      Expr extent = axis.domain.extent;
      for (const ExprNode* at = axis.var.get(); next.count(at); at = next[at]) {
        extent = simplify(extent * use.axes.at(next[at])->domain.extent);
      }
      Var var(axis.var.name());
      replacement[axis.var.get()] = var;
      block->axes.push_back({var, {0, extent}, axis.kind});
      vars.push_back(nest.loops[i]->var);
      block->values.push_back(vars.back());
      extents.push_back(extent);
    }
    Rewrite rewrite(*this, replacement);
    block->init = rewrite.mutate(nest.block->init);
    block->body = rewrite.mutate(nest.block->body);
    block->reads.clear();
    block->writes.clear();
    Stmt s = Block::make(block);
    for (size_t i = vars.size(); i-- > 0;)
      s = For::make(vars[i], 0, extents[i], LoopKind::serial, s);
    return s;
  }

  const Func& f_;
  std::vector<Nest> nests_;
  std::set<Boundary> valid_;
  std::map<const BufferNode*, Buffer> buffers_;
};

// ---- Extent 1 ----

class Squeeze : public Mutator {
 public:
  Buffer squeezed(const Buffer& old) {
    if (auto it = buffers_.find(old.get()); it != buffers_.end()) return it->second;
    std::vector<Expr> shape;
    for (const Expr& d : old.shape()) {
      if (!is_int(d, 1)) shape.push_back(d);
    }
    Buffer result = shape.size() == old.shape().size()
                        ? old
                        : Buffer(old.name(), old.element(), shape, old.scope(), old->alignment);
    buffers_.emplace(old.get(), result);
    return result;
  }

 protected:
  using Mutator::on;
  Expr on(const VarNode& n, const Expr& self) override { return zero_.count(&n) ? Expr(0) : self; }
  Expr on(const Load& n, const Expr&) override {
    return Load::make(squeezed(n.buffer), indices(n.buffer, n.indices), mutate(n.predicate));
  }
  Stmt on(const Store& n, const Stmt&) override {
    return Store::make(squeezed(n.buffer), indices(n.buffer, n.indices), mutate(n.value),
                       mutate(n.predicate));
  }
  Stmt on(const For& n, const Stmt& self) override {
    if (!is_int(n.extent, 1)) return Mutator::on(n, self);
    return mutate(substitute(n.body, {{n.var.get(), n.min}}));
  }
  Stmt on(const Block& n, const Stmt&) override {
    auto* block = n.copy();
    Stmt owner(block);
    block->axes.clear();
    block->values.clear();
    bool reduces = false;
    for (size_t i = 0; i < n.axes.size(); ++i) {
      bool goes = is_int(n.axes[i].domain.extent, 1);
      if (goes) zero_.insert(n.axes[i].var.get());
      if (goes) continue;
      block->axes.push_back(n.axes[i]);
      block->values.push_back(n.values[i]);
      reduces |= n.axes[i].kind == AxisKind::reduce;
    }
    block->init = mutate(n.init);
    block->body = mutate(n.body);
    if (!reduces && block->init) {
      // One reduction step: init and update follow each other.
      block->body = single_step(block->init, block->body);
      block->init = nullptr;
    }
    block->reads.clear();
    block->writes.clear();
    return Block::make(block);
  }

 private:
  std::vector<Expr> indices(const Buffer& buffer, const std::vector<Expr>& old) {
    std::vector<Expr> out;
    for (size_t d = 0; d < old.size(); ++d) {
      if (!is_int(buffer.shape()[d], 1)) out.push_back(mutate(old[d]));
    }
    return out;
  }

  // b[i] = b[i] op x after b[i] = c becomes b[i] = c op x.
  static Stmt single_step(const Stmt& init, const Stmt& body) {
    const auto* first = init.as<Store>();
    const auto* update = body.as<Store>();
    if (!first || !update) return Seq::make({init, body});
    class ReplaceOwn : public Mutator {
     public:
      ReplaceOwn(const Buffer& buffer, const Expr& value) : buffer_(buffer), value_(value) {}

     protected:
      using Mutator::on;
      Expr on(const Load& n, const Expr& self) override {
        return n.buffer.same_as(buffer_) ? value_ : Mutator::on(n, self);
      }

     private:
      Buffer buffer_;
      Expr value_;
    };
    Expr value = ReplaceOwn(first->buffer, first->value).mutate(update->value);
    return Store::make(update->buffer, update->indices, value, update->predicate);
  }

  std::set<const ExprNode*> zero_;
  std::map<const BufferNode*, Buffer> buffers_;
};

}  // namespace

Func merge_axes(const Func& f) {
  if (!nests_of(f)) return f;
  Squeeze squeeze;
  Func out = f;
  for (Buffer& b : out.params)
    b = squeeze.squeezed(b);
  for (Buffer& b : out.allocs)
    b = squeeze.squeezed(b);
  out.body = squeeze.mutate(f.body);
  std::optional<std::vector<Nest>> nests = nests_of(out);
  MCC_CHECK(nests.has_value(), "squeezing kept the form of ", f.name);
  return MergeAxes(out, std::move(*nests)).run();
}

}  // namespace mcc::tensor
