#include "tensor/build.h"

#include <algorithm>
#include <limits>

#include "tensor/visit.h"

namespace mcc::tensor {

Expr identity(Reducer reducer, ElementType element) {
  Type type{element, 1};
  switch (reducer) {
    case Reducer::sum:
      return constant(type, 0);
    case Reducer::product:
      return constant(type, 1);
    case Reducer::any:
      return false_value();
    case Reducer::all:
      return true_value();
    case Reducer::min:
    case Reducer::max:
      break;
  }
  bool is_min = reducer == Reducer::min;
  if (is_float(element)) {
    double inf = std::numeric_limits<double>::infinity();
    return constant(type, is_min ? inf : -inf);
  }
  if (is_bool(element)) return constant_int(type, is_min);
  int bits = bit_width(element);
  if (is_unsigned_int(element)) return constant_int(type, is_min ? -1 : 0);
  auto smallest = static_cast<int64_t>(~uint64_t{0} << (bits - 1));
  return constant_int(type, is_min ? ~smallest : smallest);
}

Expr combine(Reducer reducer, const Expr& a, const Expr& b) {
  switch (reducer) {
    case Reducer::sum:
      return a + b;
    case Reducer::product:
      return a * b;
    case Reducer::min:
      return is_bool(a.element()) ? a && b : min(a, b);
    case Reducer::max:
      return is_bool(a.element()) ? a || b : max(a, b);
    case Reducer::any:
      return a || b;
    case Reducer::all:
      return a && b;
  }
  MCC_UNREACHABLE("unknown reducer");
}

Buffer FuncBuilder::input(std::string name, ElementType element, std::vector<Expr> shape) {
  Buffer buffer(unique_name(name), element, std::move(shape));
  inputs_.push_back(buffer);
  return buffer;
}

Var FuncBuilder::dim(std::string name) {
  Var var(unique_name(name));
  dims_.push_back(var);
  return var;
}

Buffer FuncBuilder::new_buffer(std::string name, ElementType element, std::vector<Expr> shape) {
  Buffer buffer(unique_name(name), element, std::move(shape));
  allocs_.push_back(buffer);
  return buffer;
}

std::string FuncBuilder::unique_name(const std::string& base) {
  int& used = names_[base];
  std::string name = used == 0 ? base : text(base, "_", used);
  ++used;
  return used == 1 ? name : unique_name(name);
}

namespace {

// The loops of a block, outermost first, around it.
Stmt wrap_loops(const std::vector<Var>& vars, const std::vector<Expr>& extents, Stmt body) {
  for (size_t i = vars.size(); i-- > 0;) {
    body = For::make(vars[i], 0, extents[i], LoopKind::serial, body);
  }
  return body;
}

bool has_zero(const std::vector<Expr>& extents) {
  return std::any_of(extents.begin(), extents.end(), [](const Expr& e) { return is_int(e, 0); });
}

}  // namespace

void FuncBuilder::add(Stmt loops) {
  if (loops) stack_.back().push_back(std::move(loops));
}

Buffer FuncBuilder::compute(std::string name, ElementType element, std::vector<Expr> shape,
                            const std::function<Expr(Axes)>& f) {
  return reduce(std::move(name), element, std::move(shape), {}, Reducer::sum,
                [&](Axes spatial, Axes) { return f(spatial); });
}

Buffer FuncBuilder::reduce(std::string name, ElementType element, std::vector<Expr> shape,
                           std::vector<Expr> reduce_extents, Reducer reducer,
                           const std::function<Expr(Axes, Axes)>& f) {
  if (has_zero(reduce_extents))
    return compute(std::move(name), element, std::move(shape),
                   [&](Axes) { return identity(reducer, element); });
  Buffer buffer = new_buffer(name, element, shape);
  if (has_zero(shape)) return buffer;
  const std::string& block_name = buffer.name();
  auto* block = new Block;
  Stmt owner(block);  // keeps the node alive should f throw
  block->name = block_name;
  std::vector<Var> loops;
  std::vector<Expr> extents = shape;
  extents.insert(extents.end(), reduce_extents.begin(), reduce_extents.end());
  for (size_t i = 0; i < extents.size(); ++i) {
    bool is_spatial = i < shape.size();
    std::string axis = is_spatial ? text("i", i) : text("r", i - shape.size());
    block->axes.push_back({Var(axis), {0, extents[i]}, is_spatial ? AxisKind::spatial : AxisKind::reduce});
    loops.emplace_back(block_name + "." + axis);
    block->values.push_back(loops.back());
  }
  std::vector<Expr> spatial, reduce;
  for (size_t i = 0; i < extents.size(); ++i) {
    (i < shape.size() ? spatial : reduce).push_back(block->axes[i].var);
  }
  Expr value = f(spatial, reduce);
  MCC_CHECK(value.element() == element, "block ", block_name, " computes ", to_text(value.type()),
            ", its buffer is ", mcc::to_text(element));
  if (!reduce.empty()) {
    block->init = Store::make(buffer, spatial, identity(reducer, element));
    value = combine(reducer, load(buffer, spatial), value);
  }
  block->body = Store::make(buffer, spatial, value);
  add(wrap_loops(loops, extents, Block::make(block)));
  return buffer;
}

void FuncBuilder::block(std::string name, std::vector<AxisSpec> axes, const std::function<Stmt(Axes)>& body,
                        const std::function<Stmt(Axes)>& init) {
  std::vector<Expr> elements, steps;
  for (const AxisSpec& spec : axes)
    (spec.kind == AxisKind::spatial ? elements : steps).push_back(spec.extent);
  if (has_zero(elements)) return;
  if (has_zero(steps)) {
    if (!init) return;
    std::vector<AxisSpec> spatial;
    for (const AxisSpec& spec : axes)
      if (spec.kind == AxisKind::spatial) spatial.push_back(spec);
    return block(std::move(name), spatial, [&](Axes i) {
      std::vector<Expr> at;
      size_t next = 0;
      for (const AxisSpec& spec : axes)
        at.push_back(spec.kind == AxisKind::spatial ? i[next++] : Expr(0));
      return init(at);
    });
  }
  auto* block = new Block;
  Stmt owner(block);
  block->name = unique_name(name);
  std::vector<Var> loops;
  std::vector<Expr> extents;
  for (const AxisSpec& spec : axes) {
    block->axes.push_back({Var(spec.name), {0, spec.extent}, spec.kind});
    loops.emplace_back(block->name + "." + spec.name);
    block->values.push_back(loops.back());
    extents.push_back(spec.extent);
  }
  std::vector<Expr> vars;
  for (const Axis& axis : block->axes)
    vars.push_back(axis.var);
  block->body = body(vars);
  if (init) block->init = init(vars);
  add(wrap_loops(loops, extents, Block::make(block)));
}

void FuncBuilder::serial_loop(std::string name, Expr extent, const std::function<void(Expr)>& body) {
  Var var(unique_name(name));
  stack_.emplace_back();
  body(var);
  const bool is_empty = stack_.back().empty();
  Stmt inner = Seq::make(std::move(stack_.back()));
  stack_.pop_back();
  if (is_empty) return;

  // Blocks see the time step through an axis of kind scan of their own, as they see every loop. Those that do not use it
  // have it, too: they run once a step.
  class BindScan : public Mutator {
   public:
    BindScan(Var var, Expr extent) : var_(std::move(var)), extent_(std::move(extent)) {}

   protected:
    using Mutator::on;
    Stmt on(const Block& n, const Stmt&) override {
      Var axis(var_.name());
      VarMap map{{var_.get(), axis}};
      Block* block = n.copy();
      block->axes.insert(block->axes.begin(), {axis, {0, extent_}, AxisKind::scan});
      block->values.insert(block->values.begin(), var_);
      block->init = substitute(n.init, map);
      block->body = substitute(n.body, map);
      block->reads.clear();
      block->writes.clear();
      return Block::make(block);
    }

   private:
    Var var_;
    Expr extent_;
  };
  // Without steps the blocks' beginnings are left, of those that go on from step to step.
  class KeepBeginnings : public Mutator {
   public:
    explicit KeepBeginnings(Var var) : var_(std::move(var)) {}

   protected:
    using Mutator::on;
    Stmt on(const Block& n, const Stmt&) override {
      const bool is_of_scan = n.init && std::all_of(n.axes.begin(), n.axes.end(), [](const Axis& a) {
                                return a.kind == AxisKind::spatial;
                              });
      if (!is_of_scan) return nullptr;
      Block* block = n.copy();
      block->body = substitute(n.init, {{var_.get(), 0}});
      block->init = nullptr;
      block->reads.clear();
      block->writes.clear();
      return Block::make(block);
    }

   private:
    Var var_;
  };
  if (is_int(extent, 0)) return add(KeepBeginnings(var).mutate(inner));
  inner = BindScan(var, extent).mutate(inner);
  add(For::make(var, 0, extent, LoopKind::serial, inner));
}

Func FuncBuilder::finish(const std::vector<Buffer>& outputs) {
  Func f;
  f.name = name_;
  std::vector<Buffer> results;
  for (const Buffer& out : outputs) {
    bool taken = false;
    for (const Buffer& b : inputs_)
      taken |= b.same_as(out);
    for (const Buffer& b : results)
      taken |= b.same_as(out);
    results.push_back(!taken ? out : compute(out.name() + "_copy", out.element(), out.shape(), [&](Axes i) {
      return load(out, {i.begin(), i.end()});
    }));
  }
  MCC_CHECK(stack_.size() == 1, "finish() inside serial_loop()");
  f.params = inputs_;
  f.params.insert(f.params.end(), results.begin(), results.end());
  f.num_outputs = static_cast<int>(results.size());
  f.dims = dims_;
  for (const Buffer& b : allocs_) {
    bool is_result = false;
    for (const Buffer& r : results)
      is_result |= r.same_as(b);
    if (!is_result) f.allocs.push_back(b);
  }
  f.body = Seq::make(stack_.back());
  return f;
}

}  // namespace mcc::tensor
