// Operators that keep the elements and their row-major order: Reshape, Flatten, Squeeze, Unsqueeze, Identity, Dropout.
#include <algorithm>
#include <numeric>

#include "graph/ops/common.h"
#include "tensor/simplify.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

// ---- The common definition ----

bool same_dim(const Expr& a, const Expr& b) { return tensor::structurally_equal(a, b); }

// A number of elements as factors: constants as one number, the others each for itself. What all terms of a sum have in common stands
// outside of it: b * f * 512 - b * 3072 is 512, b and f - 6.
struct Factors {
  int64_t number = 1;
  std::vector<Expr> others;

  explicit Factors(const Expr& e) { add(e); }
  void add(const Expr& e) {
    const auto* binary = e.as<tensor::Binary>();
    int64_t value = 0;
    if (tensor::as_int(e, &value)) {
      number *= value;
    } else if (binary && binary->op == tensor::BinaryOp::mul) {
      add(binary->a);
      add(binary->b);
    } else if (binary && (binary->op == tensor::BinaryOp::add || binary->op == tensor::BinaryOp::sub)) {
      add_sum(e);
    } else {
      others.push_back(e);
    }
  }
  void add_sum(const Expr& e) {
    std::vector<Factors> terms;
    add_terms(e, 1, terms);
    int64_t common = 0;
    std::vector<Expr> shared = terms[0].others;
    for (const Factors& term : terms) {
      common = std::gcd(common, term.number);
      std::vector<Expr> left = term.others;
      std::erase_if(shared, [&](const Expr& factor) { return !take(left, factor); });
    }
    if (common == 0) return others.push_back(e);
    Expr rest = 0;
    for (Factors& term : terms) {
      for (const Expr& factor : shared)
        take(term.others, factor);
      rest = rest + Expr(term.number / common) * product(term.others);
    }
    number *= common;
    others.insert(others.end(), shared.begin(), shared.end());
    others.push_back(tensor::simplify(rest));
  }
  static void add_terms(const Expr& e, int64_t sign, std::vector<Factors>& terms) {
    const auto* binary = e.as<tensor::Binary>();
    if (!binary || (binary->op != tensor::BinaryOp::add && binary->op != tensor::BinaryOp::sub)) {
      terms.emplace_back(e);
      terms.back().number *= sign;
      return;
    }
    add_terms(binary->a, sign, terms);
    add_terms(binary->b, binary->op == tensor::BinaryOp::add ? sign : -sign, terms);
  }
  // Whether it was there.
  static bool take(std::vector<Expr>& factors, const Expr& factor) {
    const auto same =
        std::find_if(factors.begin(), factors.end(), [&](const Expr& e) { return same_dim(e, factor); });
    if (same == factors.end()) return false;
    factors.erase(same);
    return true;
  }
  Expr whole() const { return tensor::simplify(Expr(number) * product(others)); }
};

// Takes away what both have: dimensions are not 0 where they are symbolic.
void cancel(Factors& a, Factors& b) {
  for (auto factor = a.others.begin(); factor != a.others.end();) {
    auto same = std::find_if(b.others.begin(), b.others.end(), [&](const Expr& e) { return same_dim(e, *factor); });
    if (same == b.others.end()) {
      ++factor;
      continue;
    }
    b.others.erase(same);
    factor = a.others.erase(factor);
  }
  const int64_t common = std::gcd(a.number, b.number);
  if (common <= 1) return;
  a.number /= common;
  b.number /= common;
}

bool is_same_number(const Factors& a, const Factors& b) {
  Factors x = a, y = b;
  cancel(x, y);
  return x.number == y.number && x.others.empty() && y.others.empty();
}

// Of all numbers of dimensions from the i-th on.
std::vector<Factors> products(const Shape& shape, size_t i) {
  std::vector<Factors> result{Factors(1)};
  for (; i < shape.size(); ++i) {
    result.push_back(result.back());
    result.back().add(shape[i]);
  }
  return result;
}

// Both shapes are cut into the same number of groups such that corresponding groups hold equally many elements: the
// more groups, the less index arithmetic.
struct Group {
  size_t in_end, out_end;
};

// The end of the group that starts at (i, o): the fewest dimensions of equal product, the rest if there are none.
Group next_group(const Shape& in, const Shape& out, size_t i, size_t o) {
  if (i < in.size() && o < out.size() && same_dim(in[i], out[o])) return {i + 1, o + 1};
  const std::vector<Factors> from = products(in, i), to = products(out, o);
  if (from.back().number == 0) return {in.size(), out.size()};
  for (size_t count = 1; count < from.size() + to.size() - 1; ++count)
    for (size_t n = std::min(count, from.size() - 1) + 1; n-- > 0 && count - n < to.size();)
      if (is_same_number(from[n], to[count - n])) return {i + n, o + count - n};
  return {in.size(), out.size()};
}

std::vector<Expr> reshaped_index(const Shape& in, const Shape& out, Axes axes) {
  std::vector<Expr> index;
  size_t i = 0, o = 0;
  while (i < in.size() || o < out.size()) {
    Group group = next_group(in, out, i, o);
    Shape in_part(in.begin() + static_cast<std::ptrdiff_t>(i),
                  in.begin() + static_cast<std::ptrdiff_t>(group.in_end));
    Shape out_part(out.begin() + static_cast<std::ptrdiff_t>(o),
                   out.begin() + static_cast<std::ptrdiff_t>(group.out_end));
    std::vector<Expr> out_index(axes.begin() + static_cast<std::ptrdiff_t>(o),
                                axes.begin() + static_cast<std::ptrdiff_t>(group.out_end));
    for (const Expr& e : from_linear(in_part, linear_index(out_part, out_index)))
      index.push_back(e);
    i = group.in_end;
    o = group.out_end;
  }
  return index;
}

void compute_reshape(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  c.set_output(0, c.builder.compute("reshape", out.element, out.shape, [&](Axes i) {
    return c.at(0, reshaped_index(c.input_type(0).shape, out.shape, i));
  }));
}

OpDef reshaping(std::string_view name, void (*infer)(InferContext&)) {
  OpDef op = onnx_op(name, FusionClass::injective, 1, infer, compute_reshape);
  op.constant_inputs = 0b10;
  op.is_view = true;
  return op;
}

// ---- Shapes ----

// What elements that only a run knows stand for, which may be 0 and -1 as well.
Shape without_signs(const InferContext& c, Shape wanted) {
  const Shape& in = c.input(0).shape;
  const bool allow_zero = c.attributes().integer("allowzero", 0) != 0;
  Shape sizes = wanted;
  for (size_t k = 0; k < wanted.size(); ++k)
    if (c.may_be_negative(wanted[k]) && !allow_zero && k < in.size()) sizes[k] = select(wanted[k] == 0, in[k], wanted[k]);
  for (size_t k = 0; k < wanted.size(); ++k) {
    if (!c.may_be_negative(wanted[k])) continue;
    Expr others = 1;
    for (size_t j = 0; j < wanted.size(); ++j)
      if (j != k) others = others * sizes[j];
    wanted[k] = select(wanted[k] < 0, tensor::floor_div(product(in), tensor::max(others, 1)), sizes[k]);
  }
  return wanted;
}

// Dimensions of a Reshape: 0 copies the input's (unless allowzero), -1 is what is left.
std::optional<Shape> reshape_dims(InferContext& c, const Shape& given) {
  const Shape wanted = without_signs(c, given);
  const Shape& in = c.input(0).shape;
  bool allow_zero = c.attributes().integer("allowzero", 0) != 0;
  Shape out;
  Expr known = 1;
  std::optional<size_t> open;
  for (size_t k = 0; k < wanted.size(); ++k) {
    const std::optional<int64_t> d = static_dim(wanted[k]);
    if (!expect(c, !d || *d >= -1, "dimension ", d.value_or(0), " of the new shape")) return std::nullopt;
    const bool is_copied = d == int64_t{0} && !allow_zero;
    if (d == int64_t{-1}) {
      if (!expect(c, !open, "the new shape ", dims_text(wanted), " has more than one -1"))
        return std::nullopt;
      open = k;
    } else if (is_copied) {
      if (!expect(c, k < in.size(), "the new shape ", dims_text(wanted), " copies dimension ", k, " of ",
                  to_text(c.input(0)))) {
        return std::nullopt;
      }
    }
    out.push_back(is_copied ? in[k] : wanted[k]);
    if (open != k) known = known * out.back();
  }
  Expr count = tensor::simplify(product(in));
  known = tensor::simplify(known);
  if (open) {
    auto total = static_dim(count), part = static_dim(known);
    if (part == int64_t{0} || (total && part && *total % *part != 0)) {
      c.invalid(text("cannot reshape ", to_text(c.input(0)), " to ", dims_text(wanted)));
      return std::nullopt;
    }
    Factors a(count), b(known);
    cancel(a, b);
    out[*open] = tensor::simplify(tensor::floor_div(a.whole(), b.whole()));
    return out;
  }
  if (!static_dim(count)) {
    Factors a(count), b(known);
    cancel(a, b);
    count = a.whole();
    known = b.whole();
  }
  if (!expect_same_dim(c, count, known, text("number of elements of ", dims_text(wanted))))
    return std::nullopt;
  return out;
}

void infer_reshape(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any)) return;
  if (!expect(c, c.has_input(1) || c.attributes().has("shape"), "input 1 (shape) is missing")) return;
  auto wanted = c.has_input(1) ? known_ints(c, 1, "shape") : std::optional(make_shape(c.attributes().integers("shape")));
  if (!wanted) return;
  if (auto shape = reshape_dims(c, *wanted)) c.set_output(0, {c.input(0).element, *shape});
}

void infer_flatten(InferContext& c) {
  int rank = c.rank(0);
  int64_t axis = c.attributes().integer("axis", 1);
  if (!expect_type(c, 0, TypeSet::any) ||
      !expect(c, axis >= -rank && axis <= rank, "axis ", axis, " is out of range for rank ", rank)) {
    return;
  }
  const Shape& in = c.input(0).shape;
  auto middle = in.begin() + normal_axis(axis, rank);
  c.set_output(0,
               {c.input(0).element, {product(Shape(in.begin(), middle)), product(Shape(middle, in.end()))}});
}

void infer_squeeze(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any)) return;
  bool found = false;
  auto axes = ints_of(c, 1, "axes", &found);
  auto dropped = axes ? checked_axes(c, *axes, c.rank(0)) : std::nullopt;
  if (!dropped) return;
  Shape out;
  for (int k = 0; k < c.rank(0); ++k) {
    const Expr& d = c.input(0).shape[static_cast<size_t>(k)];
    bool named = std::find(dropped->begin(), dropped->end(), k) != dropped->end();
    if (named && !expect(c, tensor::is_int(d, 1) || !static_dim(d), "axis ", k, " of ", to_text(c.input(0)),
                         " is not 1"))
      return;
    if (named && !expect_same_dim(c, d, 1, text("axis ", k))) return;
    if (found) {
      if (!named) out.push_back(d);
      continue;
    }
    // The rank of the result depends on it.
    const std::optional<bool> is_one = c.is_known_to_be(d, 1);
    if (!is_one)
      return c.unsupported(text("removes the dimensions that are 1, and whether dimension ", k, " (",
                                tensor::to_text(d),
                                ") is has to be known: give it a value, or a range that begins at 2"));
    if (!*is_one) out.push_back(d);
  }
  c.set_output(0, {c.input(0).element, out});
}

void infer_unsqueeze(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any)) return;
  bool found = false;
  auto axes = ints_of(c, 1, "axes", &found);
  if (!axes || !expect(c, found, "axes are missing")) return;
  int rank = c.rank(0) + static_cast<int>(axes->size());
  auto added = checked_axes(c, *axes, rank);
  if (!added) return;
  Shape out;
  size_t next = 0;
  for (int k = 0; k < rank; ++k) {
    bool is_new = std::find(added->begin(), added->end(), k) != added->end();
    out.push_back(is_new ? Expr(1) : c.input(0).shape[next++]);
  }
  c.set_output(0, {c.input(0).element, out});
}

// ---- Identity and Dropout ----

void compute_copy(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  c.set_output(
      0, c.builder.compute("copy", out.element, out.shape, [&](Axes i) { return c.at(0, to_vector(i)); }));
}

void infer_identity(InferContext& c) {
  if (expect_type(c, 0, TypeSet::any)) c.set_output(0, c.input(0));
}

OpDef identity_op() {
  OpDef op = reshaping("Identity", infer_identity);
  op.fusion = FusionClass::elementwise;
  op.compute = compute_copy;
  op.constant_inputs = 0;
  op.axis_use = AxisUse::any;
  op.layout_agnostic = true;
  return op;
}

// Inference only (what training needs the frontend makes of other operators): the identity, with a mask that keeps everything.
void infer_dropout(InferContext& c) {
  if (c.has_input(2)) {
    const Constant* training = c.constant(2);
    if (!training || (training->count() > 0 && training->int_at(0) != 0)) {
      c.unsupported("training mode is not supported");
      return;
    }
  }
  c.set_output(0, c.input(0));
  c.set_output(1, {ElementType::boolean, c.input(0).shape});
}

void compute_dropout(ComputeContext& c) {
  compute_copy(c);
  if (!c.has_output(1)) return;
  c.set_output(1, c.builder.compute("mask", ElementType::boolean, c.output_type(1).shape,
                                    [&](Axes) { return tensor::true_value(); }));
}

OpDef dropout_op() {
  OpDef op = identity_op();
  op.name = "Dropout";
  op.is_view = false;  // has a mask, too
  op.infer = infer_dropout;
  op.compute = compute_dropout;
  op.constant_inputs = 0b110;
  return op;
}

}  // namespace

std::span<const OpDef> reshape_ops() {
  static const OpDef ops[] = {
      reshaping("Reshape", infer_reshape),
      reshaping("Flatten", infer_flatten),
      reshaping("Squeeze", infer_squeeze),
      reshaping("Unsqueeze", infer_unsqueeze),
      identity_op(),
      dropout_op(),
  };
  return ops;
}

}  // namespace mcc::graph
