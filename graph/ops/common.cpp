#include "graph/ops/common.h"

#include <algorithm>

#include "tensor/text.h"

namespace mcc::graph {

// ---- infer() ----

namespace {

bool is_in(ElementType t, TypeSet set) {
  switch (set) {
    case TypeSet::any:
      return t != ElementType::string;
    case TypeSet::number:
      return is_float(t) || is_int(t);
    case TypeSet::floating:
      return is_float(t);
    case TypeSet::integer:
      return is_int(t);
    case TypeSet::boolean:
      return is_bool(t);
    case TypeSet::index:
      return t == ElementType::i32 || t == ElementType::i64;
  }
  MCC_UNREACHABLE("unknown type set");
}

std::string_view to_text(TypeSet set) {
  switch (set) {
    case TypeSet::any:
      return "any type";
    case TypeSet::number:
      return "a numeric type";
    case TypeSet::floating:
      return "a floating-point type";
    case TypeSet::integer:
      return "an integer type";
    case TypeSet::boolean:
      return "bool";
    case TypeSet::index:
      return "i32 or i64";
  }
  MCC_UNREACHABLE("unknown type set");
}

}  // namespace

bool expect_type(InferContext& c, int i, TypeSet set) {
  ElementType t = c.input(i).element;
  return expect(c, is_in(t, set), "input ", i, ": expected ", to_text(set), ", got ", mcc::to_text(t));
}

bool expect_same_type(InferContext& c, int i, int j) {
  return expect(c, c.input(i).element == c.input(j).element, "inputs ", i, " and ", j,
                " must have the same element type, got ", mcc::to_text(c.input(i).element), " and ",
                mcc::to_text(c.input(j).element));
}

bool expect_rank(InferContext& c, int i, int low, int high) {
  int rank = c.rank(i);
  std::string wanted = low == high ? text(low) : text(low, " to ", high);
  return expect(c, rank >= low && rank <= high, "input ", i, ": expected rank ", wanted, ", got ",
                graph::to_text(c.input(i)));
}

bool expect_same_dim(InferContext& c, const Expr& a, const Expr& b, std::string_view what) {
  int64_t x = 0, y = 0;
  if (as_int(a, &x) && as_int(b, &y)) return expect(c, x == y, what, ": expected ", x, ", got ", y);
  if (c.are_equal(a, b)) return true;
  c.unsupported(text(what, ": cannot tell whether ", tensor::to_text(a), " equals ", tensor::to_text(b),
                     "; give the dimensions a value"));
  return false;
}

bool expect_shape(InferContext& c, int i, const Shape& wanted, std::string_view what) {
  const TensorType& got = c.input(i);
  bool may_be = got.shape.size() == wanted.size();
  for (size_t d = 0; may_be && d < wanted.size(); ++d) {
    int64_t x = 0, y = 0;
    may_be = !as_int(wanted[d], &x) || !as_int(got.shape[d], &y) || x == y;
  }
  if (!expect(c, may_be, what, ": expected ", to_text(TensorType{got.element, wanted}), ", got ", to_text(got))) return false;
  for (size_t d = 0; d < wanted.size(); ++d)
    if (!expect_same_dim(c, wanted[d], got.shape[d], what)) return false;
  return true;
}

std::optional<int> checked_axis(InferContext& c, int64_t axis, int rank) {
  if (!expect(c, axis >= -rank && axis < rank, "axis ", axis, " is out of range for rank ", rank))
    return std::nullopt;
  return normal_axis(axis, rank);
}

std::optional<std::vector<int>> checked_axes(InferContext& c, const std::vector<int64_t>& axes, int rank) {
  std::vector<int> result;
  for (int64_t a : axes) {
    auto axis = checked_axis(c, a, rank);
    if (!axis) return std::nullopt;
    bool is_new = std::find(result.begin(), result.end(), *axis) == result.end();
    if (!expect(c, is_new, "axis ", a, " is given twice")) return std::nullopt;
    result.push_back(*axis);
  }
  return result;
}

std::optional<std::vector<int64_t>> constant_ints(InferContext& c, int i, std::string_view what) {
  if (!expect_type(c, i, TypeSet::integer) || !expect_rank(c, i, 0, 1)) return std::nullopt;
  if (const Constant* value = c.constant(i)) return value->to_ints();
  c.unsupported(text("input ", i, " (", what, ") needs a value known at compile time"));
  return std::nullopt;
}

std::optional<Shape> known_ints(InferContext& c, int i, std::string_view what) {
  if (!expect_type(c, i, TypeSet::integer) || !expect_rank(c, i, 0, 1)) return std::nullopt;
  if (std::optional<Shape> elements = c.elements(i)) return elements;
  c.unsupported(text("input ", i, " (", what, ") needs a value known at compile time"));
  return std::nullopt;
}

std::string dims_text(const Shape& dims) {
  std::vector<std::string> items;
  for (const Expr& d : dims)
    items.push_back(tensor::to_text(d));
  return list_text(items);
}

std::optional<std::vector<int64_t>> ints_of(InferContext& c, int i, const std::string& attribute,
                                            bool* found) {
  *found = c.has_input(i) || c.attributes().has(attribute);
  if (c.has_input(i)) return constant_ints(c, i, attribute);
  return c.attributes().integers(attribute);
}

std::vector<int64_t> ints_of(const ComputeContext& c, int i, const std::string& attribute, bool* found) {
  if (found) *found = c.has_input(i) || c.attributes().has(attribute);
  return c.has_input(i) ? c.constant(i)->to_ints() : c.attributes().integers(attribute);
}

std::optional<ElementType> element_attribute(InferContext& c, const std::string& attribute) {
  struct Row {
    int64_t number;
    ElementType element;
  };
  static constexpr Row rows[] = {
      {1, ElementType::f32},   {2, ElementType::u8},      {3, ElementType::i8},
      {4, ElementType::u16},   {5, ElementType::i16},     {6, ElementType::i32},
      {7, ElementType::i64},   {9, ElementType::boolean}, {10, ElementType::f16},
      {11, ElementType::f64},  {12, ElementType::u32},    {13, ElementType::u64},
      {16, ElementType::bf16}, {17, ElementType::f8e4m3}, {19, ElementType::f8e5m2},
      {18, ElementType::f8e4m3fnuz}, {20, ElementType::f8e5m2fnuz},
      {21, ElementType::u4},   {22, ElementType::i4},     {23, ElementType::f4e2m1},
      {24, ElementType::f8e8m0}, {25, ElementType::u2},   {26, ElementType::i2},
  };
  int64_t number = c.attributes().integer(attribute, 0);
  for (const Row& row : rows) {
    if (row.number == number) return row.element;
  }
  c.unsupported(text("attribute ", attribute, ": element type ", number, " of ONNX is not supported"));
  return std::nullopt;
}

std::optional<Shape> broadcast_shapes(InferContext& c, const Shape& a, const Shape& b) {
  size_t rank = std::max(a.size(), b.size());
  Shape result(rank);
  for (size_t k = 0; k < rank; ++k) {  // from the last dimension on
    Expr x = k < a.size() ? a[a.size() - 1 - k] : Expr(1);
    Expr y = k < b.size() ? b[b.size() - 1 - k] : Expr(1);
    Expr& out = result[rank - 1 - k];
    if (tensor::is_int(x, 1)) {
      out = y;
    } else if (tensor::is_int(y, 1)) {
      out = x;
    } else if (static_dim(x) && static_dim(y) && *static_dim(x) != *static_dim(y)) {
      c.invalid(text("shapes ", to_text(TensorType{c.input(0).element, a}), " and ",
                     to_text(TensorType{c.input(0).element, b}), " do not broadcast"));
      return std::nullopt;
    } else {
      if (!expect_same_dim(c, x, y, "broadcasting")) return std::nullopt;
      out = x;
    }
  }
  return result;
}

bool expect_broadcasts_to(InferContext& c, int b, const Shape& a) {
  const Shape& shape = c.input(b).shape;
  bool fits = shape.size() <= a.size();
  for (size_t k = 1; fits && k <= shape.size(); ++k) {
    const Expr &x = shape[shape.size() - k], &y = a[a.size() - k];
    if (tensor::is_int(x, 1) || c.are_equal(x, y)) continue;
    fits = !static_dim(x) || !static_dim(y);
    if (fits) return expect_same_dim(c, x, y, "broadcasting");
  }
  return expect(c, fits, "input ", b, ": ", to_text(c.input(b)), " does not broadcast to ",
                to_text(TensorType{c.input(b).element, a}));
}

std::optional<int64_t> static_dim(const Expr& d) {
  int64_t value = 0;
  return as_int(d, &value) ? std::optional(value) : std::nullopt;
}

std::optional<int64_t> need_static_dim(InferContext& c, const Expr& d, std::string_view what) {
  auto value = static_dim(d);
  if (!value)
    c.unsupported(text(what, " is ", tensor::to_text(d), ", it needs a value known at compile time"));
  return value;
}

// ---- compute() ----

ElementType wide_type(ElementType element) { return is_narrow_float(element) ? ElementType::f32 : element; }

bool is_narrow_float(ElementType element) {
  return is_float(element) && (bit_width(element) < 32 || element == ElementType::tf32);
}

bool is_wider(ElementType type, ElementType than) {
  return bit_width(type) > bit_width(than) || (type == ElementType::f32 && than == ElementType::tf32);
}

ElementType contraction_result(const InferContext& c) {
  const ElementType operand = c.input(0).element;
  return c.attributes().integer(kWideResult, 0) != 0 ? wide_type(operand) : operand;
}

Expr widen(const Expr& value) { return cast(wide_type(value.element()), value); }

std::vector<Expr> broadcast_index(const Shape& shape, Axes out) {
  std::vector<Expr> index;
  size_t skipped = out.size() - shape.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    index.push_back(tensor::is_int(shape[i], 1) ? Expr(0) : out[skipped + i]);
  }
  return index;
}

Expr broadcast_at(const ComputeContext& c, int i, Axes out) {
  return c.at(i, broadcast_index(c.input_type(i).shape, out));
}

Expr gather_index(const Expr& index, const Expr& extent) {
  Expr i = cast(ElementType::i64, index);
  if (auto value = static_dim(i)) return *value < 0 ? i + extent : i;
  Expr wrapped = select(i < 0, i + extent, i);
  return tensor::min(tensor::max(wrapped, 0), extent - 1);
}

Expr selected_matrix(const ComputeContext& c, int i, Axes at, const Expr& count) {
  return gather_index(c.at(i, {at.begin(), at.end() - 2}), count);
}

CheckedIndex scatter_index(const Expr& index, const Expr& extent) {
  Expr i = cast(ElementType::i64, index);
  Expr wrapped = select(i < 0, i + extent, i);
  return {wrapped, wrapped >= 0 && wrapped < extent};
}

Expr product(const Shape& dims) {
  Expr result = 1;
  for (const Expr& d : dims)
    result = result * d;
  return result;
}

Expr linear_index(const Shape& shape, const std::vector<Expr>& indices) {
  Expr linear = 0;
  for (size_t i = 0; i < shape.size(); ++i)
    linear = linear * shape[i] + indices[i];
  return linear;
}

std::vector<Expr> from_linear(const Shape& shape, Expr linear) {
  std::vector<Expr> indices(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    bool is_first = i == 0;
    indices[i] = is_first ? linear : tensor::floor_mod(linear, shape[i]);
    if (tensor::is_int(shape[i], 1)) {
      indices[i] = 0;
    } else if (!is_first) {
      linear = tensor::floor_div(linear, shape[i]);
    }
  }
  return indices;
}

Buffer cast_buffer(ComputeContext& c, const Buffer& buffer, ElementType element) {
  if (buffer.element() == element) return buffer;
  return c.builder.compute("cast", element, buffer.shape(),
                           [&](Axes i) { return cast(element, load(buffer, to_vector(i))); });
}

OpDef onnx_op(std::string_view name, FusionClass fusion, int required_inputs, void (*infer)(InferContext&),
              void (*compute)(ComputeContext&)) {
  OpDef op;
  op.name = name;
  op.fusion = fusion;
  op.required_inputs = required_inputs;
  op.infer = infer;
  op.compute = compute;
  return op;
}

OpDef own_op(std::string_view name, FusionClass fusion, int required_inputs, void (*infer)(InferContext&),
             void (*compute)(ComputeContext&)) {
  OpDef op = onnx_op(name, fusion, required_inputs, infer, compute);
  op.domain = "mcc";
  return op;
}

Buffer write_in_place(ComputeContext& c, const std::string& name, const Shape& shape,
                      const std::function<Written(Axes)>& write) {
  const TensorType& out = c.output_type(0);
  const Buffer whole = c.builder.new_buffer(name, out.element, out.shape);
  std::vector<tensor::FuncBuilder::AxisSpec> axes;
  for (size_t d = 0; d < shape.size(); ++d)
    axes.push_back({text("i", d), shape[d]});
  c.builder.block(name + ".in_place", axes, [&](Axes i) {
    const Written w = write(i);
    return tensor::If::make(w.condition, tensor::Store::make(whole, w.at, w.value));
  });
  return whole;
}

}  // namespace mcc::graph
