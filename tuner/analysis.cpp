#include "tuner/analysis.h"

#include <algorithm>

#include "tensor/intrinsics.h"
#include "tensor/numeric.h"
#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

std::optional<int64_t> static_value(const Expr& e) {
  int64_t value = 0;
  return as_int(e, &value) ? std::optional(value) : std::nullopt;
}

// Row-major strides of a buffer.
std::optional<std::vector<int64_t>> strides_of(const Buffer& buffer) {
  std::vector<int64_t> strides(buffer.shape().size());
  int64_t step = 1;
  for (size_t d = strides.size(); d-- > 0;) {
    strides[d] = step;
    std::optional<int64_t> extent = static_value(buffer.shape()[d]);
    if (!extent) return std::nullopt;
    step *= *extent;
  }
  return strides;
}

// Elements behind one another from the origin along an axis of this stride. Panels are a multiple of 4 wide and not wider than
// kWidestPanel.
int64_t run_along(const Axis& axis, const std::vector<Expr>& indices, const std::vector<int64_t>& dims, int64_t stride) {
  constexpr int64_t kWidestPanel = 256;
  int64_t extent = static_value(axis.domain.extent).value_or(1);
  struct Moving {
    const Expr* index;
    int64_t at0, stride;
  };
  std::vector<Moving> moving;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!uses_var(indices[d], axis.var)) continue;
    if (std::optional<int64_t> at0 = evaluate_at(indices[d], axis.var.get(), 0))
      moving.push_back({&indices[d], *at0, dims[d]});
  }
  for (int64_t i = 4; i <= std::min(extent - 1, kWidestPanel); i += 4) {
    int64_t distance = 0;
    for (const Moving& m : moving) {
      std::optional<int64_t> at = evaluate_at(*m.index, axis.var.get(), i);
      if (at) distance += (*at - m.at0) * m.stride;
    }
    if (distance != i * stride) return i;
  }
  return extent;
}

std::optional<Access> access_of(const Block& block, const Buffer& buffer, const std::vector<Expr>& indices) {
  std::optional<std::vector<int64_t>> dims = strides_of(buffer);
  if (!dims) return std::nullopt;
  Access access{buffer, {}, {}, false};
  for (const Axis& axis : block.axes) {
    if (axis.kind == AxisKind::scan) continue;
    int64_t stride = 0;
    for (size_t d = 0; d < indices.size(); ++d) {
      std::optional<int64_t> at0 = evaluate_at(indices[d], axis.var.get(), 0);
      std::optional<int64_t> at1 = evaluate_at(indices[d], axis.var.get(), 1);
      // An index that is data (a gather) or that cannot be followed counts as far away.
      if (!at0 || !at1) {
        if (!uses_var(indices[d], axis.var)) continue;
        stride += (int64_t{1} << 20);
        access.is_indirect = true;
        continue;
      }
      stride += (*at1 - *at0) * (*dims)[d];
    }
    access.strides.push_back(stride);
    access.runs.push_back(stride == 1 || stride == 2 || stride == 4 ? run_along(axis, indices, *dims, stride) : 1);
  }
  return access;
}

class ReadBody : public Visitor {
 public:
  struct Read {
    const Load* load;
    bool in_index;  // of another one
  };
  std::vector<Read> loads;
  std::vector<const Store*> stores;
  bool math_call = false, arithmetic = false;

 protected:
  using Visitor::on;
  void on(const Load& n) override {
    loads.push_back({&n, is_index_});
    // Indices are not arithmetic on values, unless they hold loads of their own.
    const bool outer = is_index_;
    is_index_ = true;
    for (const Expr& i : n.indices) collect(i);
    is_index_ = outer;
  }
  void on(const Store& n) override {
    stores.push_back(&n);
    Visitor::on(n);
  }
  void on(const Binary& n) override {
    arithmetic |= !is_comparison(n.op) && !is_logical(n.op) && !is_condition_;
    Visitor::on(n);
  }
  void on(const Select& n) override {
    bool outer = is_condition_;
    is_condition_ = true;
    visit(n.condition);
    is_condition_ = outer;
    visit(n.on_true);
    visit(n.on_false);
  }
  void on(const Call& n) override {
    math_call |= is_slow(n.function);
    arithmetic = true;
    Visitor::on(n);
  }

 private:
  void collect(const Expr& index) {
    bool outer = is_condition_;
    is_condition_ = true;
    visit(index);
    is_condition_ = outer;
  }
  bool is_condition_ = false, is_index_ = false;
};

// acc + a * b, in any order of the operands. The factors differ: a square has one operand.
bool is_sum_of_products(const Store& store) {
  const auto* sum = store.value.as<Binary>();
  if (!sum || sum->op != BinaryOp::add) return false;
  auto is_product = [](const Expr& e) {
    const auto* p = e.as<Binary>();
    return p && p->op == BinaryOp::mul && !structurally_equal(p->a, p->b);
  };
  return is_product(sum->a) || is_product(sum->b);
}

// Whether some operand is used for several results along an axis along which another one is not.
bool shares_operands(const BlockInfo& info) {
  for (size_t a = 0; a < info.axes.size(); ++a) {
    if (info.axes[a].is_reduce || info.axes[a].extent < 2) continue;
    auto moves = [&](const Access& load) { return load.strides[a] != 0; };
    if (std::any_of(info.loads.begin(), info.loads.end(), moves) && !std::all_of(info.loads.begin(), info.loads.end(), moves)) {
      return true;
    }
  }
  return false;
}

// Without those loads that stand in indices, if these move along no sum: then they only say which operands there are.
std::optional<std::vector<Access>> operands_of(const BlockInfo& info, const std::vector<bool>& in_index) {
  std::vector<Access> out;
  for (size_t i = 0; i < info.loads.size(); ++i) {
    if (!in_index[i]) {
      out.push_back(info.loads[i]);
      continue;
    }
    for (size_t a = 0; a < info.axes.size(); ++a)
      if (info.axes[a].is_reduce && info.loads[i].strides[a] != 0) return std::nullopt;
  }
  return out;
}

// outer * width + inner, of two axes of which the second has that width.
bool is_of_turns(const Expr& turns, const Expr& inner, const Block& block) {
  const auto* product = turns.as<Binary>();
  if (!product || product->op != BinaryOp::mul || product->a.kind() != ExprKind::Var || product->a.same_as(inner)) return false;
  return std::any_of(block.axes.begin(), block.axes.end(), [&](const Axis& axis) {
    return axis.var.same_as(inner) && structurally_equal(axis.domain.extent, product->b);
  });
}

// An axis, or two of which one counts the other's whole turns; from some place on (a part of each row).
bool is_of_axes(const Expr& index, const Block& block) {
  if (index.kind() == ExprKind::Var || index.kind() == ExprKind::IntImm) return true;
  const auto* sum = index.as<Binary>();
  if (!sum || sum->op != BinaryOp::add) return false;
  if (sum->b.kind() == ExprKind::IntImm) return is_of_axes(sum->a, block);
  return is_of_turns(sum->a, sum->b, block) || is_of_turns(sum->b, sum->a, block);
}

}  // namespace

std::optional<int64_t> evaluate_at(const Expr& e, const ExprNode* var, int64_t value) {
  if (const auto* imm = e.as<IntImm>()) return imm->value;
  if (e.kind() == ExprKind::Var) return e.get() == var ? value : 0;
  if (const auto* cast = e.as<Cast>()) {
    return mcc::is_int(cast->value.element()) ? evaluate_at(cast->value, var, value) : std::nullopt;
  }
  const auto* n = e.as<Binary>();
  if (!n) return std::nullopt;
  std::optional<int64_t> a = evaluate_at(n->a, var, value), b = evaluate_at(n->b, var, value);
  if (!a || !b || !mcc::is_int(n->a.element())) return std::nullopt;
  switch (n->op) {  // what indices are made of, without an expression for each step
    case BinaryOp::add: return int_op<BinaryOp::add, false>(*a, *b, 64);
    case BinaryOp::sub: return int_op<BinaryOp::sub, false>(*a, *b, 64);
    case BinaryOp::mul: return int_op<BinaryOp::mul, false>(*a, *b, 64);
    case BinaryOp::floor_div: return int_op<BinaryOp::floor_div, false>(*a, *b, 64);
    case BinaryOp::floor_mod: return int_op<BinaryOp::floor_mod, false>(*a, *b, 64);
    default: break;
  }
  Expr folded = binary(n->op, Expr(*a), Expr(*b));
  int64_t result = 0;
  return as_int(folded, &result) ? std::optional(result) : std::nullopt;
}

int64_t count_of(const Buffer& buffer) {
  int64_t count = 1;
  for (const Expr& d : buffer.shape()) {
    std::optional<int64_t> extent = static_value(d);
    if (!extent || __builtin_mul_overflow(count, *extent, &count)) return 0;
  }
  return count;
}

bool is_output(const Func& f, const Buffer& buffer) {
  for (size_t i = static_cast<size_t>(f.num_inputs()); i < f.params.size(); ++i) {
    if (f.params[i].same_as(buffer)) return true;
  }
  return false;
}

namespace {

// Whether the value is the loop's variable, or that and something that the block's own loops do not change; of a single iteration
// that alone.
bool is_bound_to(const Expr& value, const For& loop, const std::vector<const For*>& own) {
  if (value.same_as(loop.var)) return true;
  if (is_int(loop.extent, 1) && std::none_of(own.begin(), own.end(), [&](const For* other) { return uses_var(value, other->var); })) return true;
  std::optional<int64_t> at0 = evaluate_at(value, loop.var.get(), 0), at1 = evaluate_at(value, loop.var.get(), 1);
  return at0 && at1 && *at1 - *at0 == 1 && std::none_of(own.begin(), own.end(), [&](const For* other) {
           return other != &loop && uses_var(value, other->var);
         });
}

std::optional<BlockInfo> analyze_block(const Schedule& schedule, const std::string& name, bool nested) {
  const Block* block = schedule.find_block(name);
  if (!block || !is_true(block->predicate)) return std::nullopt;
  BlockInfo info;
  info.name = name;
  std::vector<const For*> loops = schedule.loops_of(name);
  if (nested ? loops.size() < block->axes.size() : loops.size() != block->axes.size()) return std::nullopt;
  info.is_nested = loops.size() > block->axes.size();
  loops.erase(loops.begin(), loops.end() - static_cast<std::ptrdiff_t>(block->axes.size()));
  // Scans are the outermost loops: within one step the block is as any other.
  size_t scans = 0;
  while (scans < block->axes.size() && block->axes[scans].kind == AxisKind::scan) ++scans;
  int64_t iterations = 1;
  for (size_t i = scans; i < block->axes.size(); ++i) {
    const Axis& axis = block->axes[i];
    std::optional<int64_t> extent = static_value(nested ? loops[i]->extent : axis.domain.extent);
    bool is_plain = nested ? is_bound_to(block->values[i], *loops[i], loops)
                           : block->values[i].same_as(loops[i]->var) && is_int(axis.domain.min, 0);
    if (!extent || !is_plain || axis.kind == AxisKind::scan) return std::nullopt;
    if (__builtin_mul_overflow(iterations, std::max<int64_t>(*extent, 1), &iterations)) return std::nullopt;
    bool is_reduce = axis.kind == AxisKind::reduce;
    info.axes.push_back({loops[i]->var.name(), *extent, is_reduce});
    (is_reduce ? info.reduce : info.spatial) *= *extent;
    info.is_reduction |= is_reduce;
  }
  ReadBody body;
  body.visit(block->body);
  if (body.stores.size() != 1) return std::nullopt;
  const Store& store = *body.stores[0];
  std::optional<Access> written = access_of(*block, store.buffer, store.indices);
  if (!written) return std::nullopt;
  info.store = *written;
  std::vector<bool> in_index;
  for (const ReadBody::Read& r : body.loads) {
    if (info.is_reduction && r.load->buffer.same_as(store.buffer)) continue;
    std::optional<Access> read = access_of(*block, r.load->buffer, r.load->indices);
    if (!read) return std::nullopt;
    info.loads.push_back(*read);
    in_index.push_back(r.in_index);
  }
  info.has_math_call = body.math_call;
  info.is_movement = !body.arithmetic;
  info.is_injective = !info.is_reduction;
  for (const Expr& index : store.indices) {
    info.is_injective &= is_of_axes(index, *block);
  }
  if (info.is_reduction && is_sum_of_products(store)) {
    const std::vector<Access> all = info.loads;
    if (std::optional<std::vector<Access>> operands = operands_of(info, in_index))
      info.loads = *std::move(operands);
    info.is_contraction = shares_operands(info);
    if (!info.is_contraction) info.loads = all;
  }
  info.element_bits = std::max(bit_width(store.buffer.element()), 8);
  return info;
}

}  // namespace

std::optional<BlockInfo> analyze(const Schedule& schedule, const std::string& block) {
  return analyze_block(schedule, block, false);
}

std::optional<BlockInfo> analyze_nested(const Schedule& schedule, const std::string& block) {
  return analyze_block(schedule, block, true);
}

bool has_scan(const Block& block) {
  return std::any_of(block.axes.begin(), block.axes.end(),
                     [](const Axis& a) { return a.kind == AxisKind::scan; });
}

}  // namespace mcc::tuner
