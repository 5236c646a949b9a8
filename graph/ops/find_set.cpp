#include "graph/ops/find_set.h"

#include "tensor/simplify.h"

namespace mcc::graph {
namespace {

using tensor::For;
using tensor::If;
using tensor::Seq;
using tensor::Stmt;
using tensor::Store;
using tensor::Var;

// Elements of a part, one after the other a thread's; parts of a group. What is in front of a part is added up over the parts of its
// group and over the groups in front, so that both are short.
constexpr int64_t kPart = 32, kGroup = 128;

const Expr& no_elements() {
  static const Expr zero = tensor::constant_int({ElementType::i32, 1}, 0);
  return zero;
}

std::vector<Expr> on(Axes i, size_t lines, std::initializer_list<Expr> inner) {
  std::vector<Expr> out(i.begin(), i.begin() + static_cast<std::ptrdiff_t>(lines));
  out.insert(out.end(), inner);
  return out;
}

Shape with(const Shape& outer, const Expr& inner) {
  Shape out = outer;
  out.push_back(inner);
  return out;
}

// In front of each part, and of all; in each line.
struct Begins {
  std::function<Expr(Axes i, const Expr& part)> before;
  Buffer total;
};

// Sums over some of counts [outer, number], a result for each of `extent`.
Buffer sums(ComputeContext& c, const std::string& name, const Shape& outer, const Expr& extent,
            const Expr& terms, const Buffer& counts,
            const std::function<Expr(const Expr& i, const Expr& r)>& place,
            const std::function<Expr(const Expr& i, const Expr& r)>& is_term) {
  const size_t d = outer.size();
  return c.builder.reduce(name, ElementType::i32, with(outer, extent), {terms}, Reducer::sum,
                          [&](Axes i, Axes r) {
                            const Expr at = place(i[d], r[0]);
                            return select(is_term(i[d], at), load(counts, on(i, d, {at})), no_elements());
                          });
}

Begins add_up_parts(ComputeContext& c, const std::string& name, const Shape& outer, const Expr& parts,
                    const Buffer& counts) {
  const size_t d = outer.size();
  const auto as_it_is = [](const Expr&, const Expr& r) { return r; };
  const auto is_before = [](const Expr& i, const Expr& at) { return at < i; };
  const auto any = [](const Expr&, const Expr&) { return tensor::true_value(); };
  const std::optional<int64_t> known = static_dim(parts);
  if (known && *known <= 2 * kGroup) {
    const Buffer before = sums(c, name + "_begin", outer, parts, parts, counts, as_it_is, is_before);
    return {[=](Axes i, const Expr& part) { return load(before, on(i, d, {part})); },
            sums(c, name + "_total", outer, 1, parts, counts, as_it_is, any)};
  }
  const Expr groups = tensor::simplify(ceil_div(parts, kGroup));
  const Buffer in_group = sums(
      c, name + "_in_group", outer, groups, kGroup, counts,
      [](const Expr& i, const Expr& r) { return i * kGroup + r; },
      [&](const Expr&, const Expr& at) { return at < parts; });
  const Buffer group = sums(c, name + "_group", outer, groups, groups, in_group, as_it_is, is_before);
  const Buffer before = sums(
      c, name + "_begin", outer, parts, kGroup, counts,
      [](const Expr& i, const Expr& r) { return floor_div(i, kGroup) * kGroup + r; }, is_before);
  return {[=](Axes i, const Expr& part) {
            return load(group, on(i, d, {floor_div(part, kGroup)})) + load(before, on(i, d, {part}));
          },
          sums(c, name + "_total", outer, 1, groups, in_group, as_it_is, any)};
}

}  // namespace

Buffer visit_set(ComputeContext& c, const char* name, const FoundSet& set, bool all) {
  const size_t d = set.outer.size();
  const Expr parts = tensor::simplify(ceil_div(set.n, kPart));
  const std::string prefix = name;
  const Buffer counts = c.builder.reduce(
      prefix + "_count", ElementType::i32, with(set.outer, parts), {kPart}, Reducer::sum,
      [&](Axes i, Axes r) {
        const Expr k = i[d] * kPart + r[0];
        return select(k < set.n, cast(ElementType::i32, set.holds(i.first(d), k)), no_elements());
      });
  const Begins begins = add_up_parts(c, prefix, set.outer, parts, counts);
  const Buffer next = c.builder.new_buffer(prefix + "_next", ElementType::i64, with(set.outer, parts));
  std::vector<tensor::FuncBuilder::AxisSpec> axes;
  for (size_t k = 0; k < d; ++k)
    axes.push_back({text("i", k), set.outer[k]});
  axes.push_back({"p", parts});
  c.builder.block(prefix + "_visit", axes, [&](Axes i) {
    const Var r(c.builder.unique_name(prefix + ".k"));
    const Expr k = i[d] * kPart + r, before = load(next, to_vector(i));
    const Expr holds = set.holds(i.first(d), k);
    Stmt step = set.visit(i.first(d), k, before, holds);
    const Stmt count = Store::make(next, to_vector(i), before + 1);
    step = all ? Seq::make({step, If::make(holds, count)}) : If::make(holds, Seq::make({step, count}));
    const Stmt search = Seq::make(
        {Store::make(next, to_vector(i), cast(ElementType::i64, begins.before(i, i[d]))),
         For::make(r, 0, tensor::min(set.n - i[d] * kPart, kPart), tensor::LoopKind::serial, step)});
    return all ? search : If::make(load(counts, to_vector(i)) > 0, search);
  });
  return begins.total;
}

}  // namespace mcc::graph
