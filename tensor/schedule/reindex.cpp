// reindex(block="conv", buffer="x", scope="shared", name="patches", axes=["m", "k"])
//
//   for m, n, k: conv: acc[m, n] += select(inside, x[m // 7 + k // 3, ...], 0) * w[n, k]
// becomes
//   for m, k: patches: patches[m, k] = select(inside, x[m // 7 + k // 3, ...], 0)
//   for m, n, k: conv: acc[m, n] += patches[m, k] * w[n, k]
//
// The new buffer has a dimension for each of the axes, in their order, and holds what the block computes from the buffer: the
// largest expressions that load nothing else, but for what their indices are made of. For a buffer that the block writes it is the
// other way round:
//
//   for m, n, k: conv: y[m // 7, n, m %% 7] += ...
// becomes
//   for m, n, k: conv: acc[m, n] += ...
//   for m, n: acc: y[m // 7, n, m %% 7] = acc[m, n]
//
// What is converted to a wider type on top of it all is kept in the narrower one. Where it is one side of a select whose condition loads
// nothing, and the other side loads something else, 0 is kept instead of what the select does not take: y = select(i < 1, c, x[i - 1])
// becomes t[i] = select(i >= 1, x[i - 1], 0) and y = select(i < 1, c, t[i]).
//
// The new block has the buffer's name and loops name.axis; it stands just before (behind) the block's loops.
//
// 1. The block stands under loops of its own, one for each axis, and has no predicate; all axes begin at 0.
// 2. It reads the buffer, in one way, or in one that depends on these axes alone (x in sum over k of x[i, k] * x[j, k], with axes j and k), and
//    does not write it; or it writes it, alone, by one store.
// 3. The axes are spatial or reduce axes of the block (of a written buffer: all of its spatial axes), and what is read depends
//    on no others.
// 4. The scope is global, local, registers, shared or warp; the name is new.
#include <algorithm>

#include "tensor/schedule/move.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {
namespace {

bool same_indices(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Expr& x, const Expr& y) { return structurally_equal(x, y); });
}

// The buffers that an expression loads from.
std::set<const BufferNode*> loaded(const Expr& e) {
  std::set<const BufferNode*> out;
  for_each_expr(Evaluate::make(e), [&](const Expr& below) {
    if (const auto* load = below.as<Load>()) out.insert(load->buffer.get());
  });
  return out;
}

// The same of those that are no part of another load's index.
class FindOperands : public Visitor {
 public:
  std::set<const BufferNode*> found;

 protected:
  using Visitor::on;
  void on(const Load& n) override { found.insert(n.buffer.get()); }
};

std::set<const BufferNode*> operands(const Expr& e) {
  FindOperands find;
  find.visit(e);
  return std::move(find.found);
}

// Whether a conversion between floats, or between integers, loses nothing and gives more bits, or as many with more digits.
bool is_wider(ElementType to, ElementType from) {
  if (is_int(to) && is_int(from)) {
    return bit_width(to) > bit_width(from) && (is_signed_int(to) || is_unsigned_int(from));
  }
  if (!is_float(to) || !is_float(from)) return false;
  return bit_width(to) > bit_width(from) || (to == ElementType::f32 && from == ElementType::tf32);
}

// Replaces the largest expressions whose operands lie in one buffer by loads of a new one.
class ReplaceOperand {
 public:
  // excluded: axes of the block; what depends on one stays. Null: nothing does.
  ReplaceOperand(const Buffer& buffer, const std::vector<Var>* excluded)
      : buffer_(buffer), excluded_(excluded) {}
  Expr operand;          // what is replaced, 0 where no result depends on it; undefined: nothing
  bool is_clear = true;  // it is one expression, and nothing else uses the buffer

  // by: undefined to look only.
  Expr replace(const Expr& e, const Expr& by) {
    if (!loaded(e).contains(buffer_.get())) return e;
    const bool is_alone = operands(e) == std::set<const BufferNode*>{buffer_.get()};
    const auto* widening = e.as<Cast>();
    const bool is_excluded =
        excluded_ != nullptr &&
        std::any_of(excluded_->begin(), excluded_->end(), [&](const Var& v) { return uses_var(e, v); });
    if (is_excluded && e.as<Load>()) return e;
    if (is_alone && widening && is_wider(widening->type.element, widening->value.element())) {
      return Cast::make(widening->type, replace(widening->value, by));
    }
    if (is_alone && !is_excluded) {
      const Expr guarded = is_taken_.defined() ? select(is_taken_, e, constant(e.element(), 0)) : e;
      is_clear &= !operand.defined() || structurally_equal(operand, guarded);
      operand = guarded;
      return by.defined() ? by : e;
    }
    if (const auto* n = e.as<Binary>()) {
      Expr a = replace(n->a, by), b = replace(n->b, by);
      return Binary::make(n->op, a, b);
    }
    if (const auto* n = e.as<Cast>()) return Cast::make(n->type, replace(n->value, by));
    if (const auto* n = e.as<Call>()) {
      std::vector<Expr> args;
      for (const Expr& arg : n->args)
        args.push_back(replace(arg, by));
      return Call::make(n->type, n->function, std::move(args));
    }
    if (const auto* n = e.as<Select>(); n && loaded(n->condition).empty()) {
      Expr on_true = replace_side(n->on_true, n->condition, by);
      Expr on_false = replace_side(n->on_false, logical_not(n->condition), by);
      return Select::make(n->condition, on_true, on_false);
    }
    is_clear = false;
    return e;
  }

 private:
  Expr replace_side(const Expr& side, const Expr& condition, const Expr& by) {
    const Expr outer = is_taken_;
    is_taken_ = outer.defined() ? outer && condition : condition;
    Expr replaced = replace(side, by);
    is_taken_ = outer;
    return replaced;
  }

  const Buffer& buffer_;
  const std::vector<Var>* excluded_;
  Expr is_taken_;  // the condition of the selects around; undefined: there are none
};

struct Request {
  const BlockSite* site;
  Buffer buffer;
  Scope scope = Scope::global;
  std::vector<Axis> axes;  // of the block, in the new order
};

// A new block over the axes, under loops of its own, and the new buffer's indices in terms of its axes.
struct Copy {
  Block* block = new Block;
  VarMap axes;  // the old block's axes
  std::vector<Expr> indices;
  std::vector<LoopSpec> loops;
};

Copy make_copy(const Request& request, const std::string& name, Names& names) {
  Copy copy;
  copy.block->name = name;
  for (const Axis& axis : request.axes) {
    Var var(axis.var.name()), loop(names.unique(text(name, ".", axis.var.name())));
    copy.axes.emplace(axis.var.get(), var);
    copy.indices.push_back(var);
    copy.block->axes.push_back({var, axis.domain, AxisKind::spatial});
    copy.block->values.push_back(loop);
    copy.loops.push_back({loop, axis.domain.extent});
  }
  return copy;
}

std::vector<Expr> axis_vars(const std::vector<Axis>& axes) {
  std::vector<Expr> out;
  for (const Axis& axis : axes)
    out.push_back(axis.var);
  return out;
}

Outcome reindex_read(const Request& r, const std::string& name, Names& names, Schedule& schedule) {
  const Block& block = *r.site->block;
  const auto* store = block.body.as<Store>();
  std::vector<Var> others;
  for (const Axis& axis : block.axes) {
    const bool is_listed =
        std::any_of(r.axes.begin(), r.axes.end(), [&](const Axis& a) { return a.var.same_as(axis.var); });
    if (!is_listed) others.push_back(axis.var);
  }
  auto depends_on_others = [&](const Expr& e) {
    return std::any_of(others.begin(), others.end(), [&](const Var& v) { return uses_var(e, v); });
  };
  ReplaceOperand of_all(r.buffer, nullptr), of_listed(r.buffer, &others);
  if (store) of_all.replace(store->value, nullptr), of_listed.replace(store->value, nullptr);
  const bool is_in_other_ways =
                 !of_all.is_clear || (of_all.operand.defined() && depends_on_others(of_all.operand)),
             takes_one = is_in_other_ways && of_listed.is_clear && of_listed.operand.defined();
  const ReplaceOperand& look = takes_one ? of_listed : of_all;
  bool is_elsewhere = !store || store->predicate.defined();
  for (const Expr& index : store ? store->indices : std::vector<Expr>())
    is_elsewhere |= loaded(index).contains(r.buffer.get());
  if (is_elsewhere || !look.is_clear || !look.operand.defined()) {
    return refuse(RefusalCode::not_injective, text("expected block ", block.name, " to use ", r.buffer.name(),
                                                   " in one expression of one store"));
  }
  for (const Var& axis : others) {
    if (uses_var(look.operand, axis)) {
      return refuse(RefusalCode::bad_argument, text("expected axis ", axis.name(), ", on which ",
                                                    to_text(look.operand), " depends, in the list"));
    }
  }
  std::vector<Expr> shape;
  for (const Axis& axis : r.axes)
    shape.push_back(axis.domain.extent);
  Buffer made(name, look.operand.element(), shape, r.scope);
  Copy copy = make_copy(r, name, names);
  copy.block->body = Store::make(made, copy.indices, substitute(look.operand, copy.axes));
  Block* reader = block.copy();
  ReplaceOperand change(r.buffer, takes_one ? &others : nullptr);
  reader->body =
      Store::make(store->buffer, store->indices, change.replace(store->value, load(made, axis_vars(r.axes))));

  Func result = schedule.func();
  result.allocs.push_back(made);
  Stmt nest = make_nest(copy.loops, make_block(copy.block));
  const Stmt outer = r.site->loops.empty() ? handle(r.site->block) : handle(r.site->loops[0]);
  result.body = replace_stmt(insert_before(result.body, outer, nest), r.site->block, make_block(reader));
  return commit(schedule, std::move(result));
}

class WriteTo : public Mutator {
 public:
  WriteTo(const Store& store, const Buffer& to, const std::vector<Expr>& indices)
      : store_(store), to_(to), indices_(indices) {}
  bool is_clear = true;  // every access is at the place of the store

 protected:
  using Mutator::on;
  Expr on(const Load& n, const Expr& self) override {
    if (!n.buffer.same_as(store_.buffer)) return Mutator::on(n, self);
    is_clear &= !n.predicate.defined() && same_indices(n.indices, store_.indices);
    return load(to_, indices_);
  }
  Stmt on(const Store& n, const Stmt& self) override {
    if (!n.buffer.same_as(store_.buffer)) return Mutator::on(n, self);
    is_clear &= !n.predicate.defined() && same_indices(n.indices, store_.indices);
    return Store::make(to_, indices_, mutate(n.value));
  }

 private:
  const Store& store_;
  const Buffer& to_;
  const std::vector<Expr>& indices_;
};

Outcome reindex_write(const Request& r, const std::string& name, Names& names, Schedule& schedule) {
  const Block& block = *r.site->block;
  const auto* store = block.body.as<Store>();
  std::vector<Axis> spatial;
  for (const Axis& axis : block.axes) {
    if (axis.kind == AxisKind::spatial) spatial.push_back(axis);
  }
  bool lists_all =
      spatial.size() == r.axes.size() &&
      std::all_of(r.axes.begin(), r.axes.end(), [](const Axis& a) { return a.kind == AxisKind::spatial; });
  if (!store || !lists_all) {
    return refuse(RefusalCode::bad_argument,
                  text("expected block ", block.name, " to be one store, and all of its ", spatial.size(),
                       " spatial axes in the list"));
  }
  for (const Axis& axis : block.axes) {
    bool is_used = std::any_of(store->indices.begin(), store->indices.end(),
                               [&](const Expr& i) { return uses_var(i, axis.var); });
    if (is_used && axis.kind != AxisKind::spatial) {
      return refuse(
          RefusalCode::dependence,
          text("expected block ", block.name, " to write at its spatial axes, got axis ", axis.var.name()));
    }
  }
  for (const BlockSite& other : block_sites(schedule.func().body)) {
    if (other.block != &block && writes_buffer(*other.block, r.buffer)) {
      return refuse(RefusalCode::dependence,
                    text("expected no other block to write ", r.buffer.name(), ", got ", other.block->name));
    }
  }
  std::vector<Expr> shape;
  for (const Axis& axis : r.axes)
    shape.push_back(axis.domain.extent);
  Buffer made(name, r.buffer.element(), shape, r.scope);
  const std::vector<Expr> indices = axis_vars(r.axes);
  WriteTo change(*store, made, indices);
  Block* writer = block.copy();
  writer->body = change.mutate(block.body);
  if (block.init) writer->init = change.mutate(block.init);
  Stmt changed = make_block(writer);
  if (!change.is_clear) {
    return refuse(RefusalCode::dependence, text("expected block ", block.name, " to use ", r.buffer.name(),
                                                " at the place of its store only"));
  }
  Copy copy = make_copy(r, name, names);
  std::vector<Expr> places;
  for (const Expr& i : store->indices)
    places.push_back(substitute(i, copy.axes));
  copy.block->body = Store::make(r.buffer, places, load(made, copy.indices));

  Func result = schedule.func();
  result.allocs.push_back(made);
  Stmt nest = make_nest(copy.loops, make_block(copy.block));
  const Stmt outer = r.site->loops.empty() ? handle(r.site->block) : handle(r.site->loops[0]);
  result.body = replace_stmt(insert_after(result.body, outer, nest), r.site->block, changed);
  return commit(schedule, std::move(result));
}

}  // namespace

Outcome apply_step(const Reindex& step, Schedule& schedule) {
  const Func& f = schedule.func();
  std::vector<BlockSite> sites = block_sites(f.body);
  Request request;
  request.site = find_site(sites, step.block);
  if (request.site == nullptr) return refuse_block(step.block);
  const Block& block = *request.site->block;
  request.buffer = find_buffer(f, step.buffer);
  if (!request.buffer) return refuse_buffer(step.buffer);
  if (Outcome o = parse_scope(step.scope, &request.scope); !o) return o;
  Names names(f);
  if (Outcome o = require_new_name(names, step.name); !o) return o;
  names.unique(step.name);
  if (Outcome o = require_own_loops(*request.site); !o) return o;
  std::set<std::string> seen;
  for (const std::string& name : step.axes) {
    auto it = std::find_if(block.axes.begin(), block.axes.end(),
                           [&](const Axis& a) { return a.var.name() == name; });
    if (it == block.axes.end() || it->kind == AxisKind::scan || !seen.insert(name).second) {
      return refuse(RefusalCode::bad_argument,
                    text("expected names of different spatial or reduce axes of block ", block.name,
                         ", got \"", name, "\""));
    }
    request.axes.push_back(*it);
  }
  if (writes_buffer(block, request.buffer)) return reindex_write(request, step.name, names, schedule);
  if (!reads_buffer(block, request.buffer)) {
    return refuse(RefusalCode::bad_argument, text("expected block ", block.name, " to use ", step.buffer));
  }
  return reindex_read(request, step.name, names, schedule);
}

}  // namespace mcc::tensor
