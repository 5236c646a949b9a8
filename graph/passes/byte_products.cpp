#include "graph/passes/byte_products.h"

#include <algorithm>

#include "graph/ops/common.h"
#include "graph/passes/merge_groups.h"
#include "graph/passes/pack_products.h"

namespace mcc::graph {

std::optional<int64_t> ByteProducts::whole_zero(ValueId zero) const {
  if (zero == kNoValue) return 0;
  std::optional<double> value = uniform_value(g_, zero);
  return value ? std::optional(static_cast<int64_t>(*value)) : std::nullopt;
}

ValueId ByteProducts::as_bytes(ValueId v) {
  const Constant* values = constant(v);
  if (!values || !is_int(values->element()) || bit_width(values->element()) >= 8) return v;
  std::vector<uint8_t> bytes(static_cast<size_t>(values->count()));
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<uint8_t>(values->int_at(static_cast<int64_t>(i)));
  const ElementType element = is_signed_int(values->element()) ? ElementType::i8 : ElementType::u8;
  const std::string name = g_.value(v).name;
  return g_.add_constant(name, Constant::of(element, values->shape(), bytes));
}

std::optional<ByteProducts::Quantized> ByteProducts::dequantized(ValueId v, int64_t lines) {
  NodeId id = v == kNoValue ? -1 : g_.value(v).producer;
  if (id < 0 || !is_op(g_.node(id), "DequantizeLinear")) return std::nullopt;
  const Node& n = g_.node(id);
  const Constant* scale = constant(n.inputs[1]);
  if (!scale || scale->element() != ElementType::f32 || type(v).element != ElementType::f32 ||
      n.attributes.integer("block_size", 0) != 0)
    return std::nullopt;
  if (scale->count() != 1) {
    int64_t axis = n.attributes.integer("axis", 1);
    if (axis < 0) axis += static_cast<int64_t>(rank(v));
    if (axis != lines || scale->shape().size() != 1) return std::nullopt;
  }
  const Quantized q{as_bytes(n.inputs[0]), n.inputs[1], as_bytes(input(n, 2))};
  return is_byte(q.value) ? std::optional(q) : std::nullopt;
}

ValueId ByteProducts::activations(ValueId x, const std::vector<int64_t>& perm, int64_t* zero) {
  const bool is_signed = type(x).element == ElementType::i8 && left_ != ElementType::i16 && !on_gpu_;
  if (is_signed) *zero += 128;
  auto [it, is_new] = activations_.emplace(std::pair(x, perm), kNoValue);
  if (!is_new) return it->second;
  ValueId v = as_left(x);
  if (!perm.empty()) v = transposed(v, perm);
  return it->second = is_signed ? make_own("ToUnsigned", {v}) : v;
}

ValueId ByteProducts::as_left(ValueId x) {
  if (left_ != ElementType::i16) return x;
  auto [it, is_new] = widened_.emplace(x, kNoValue);
  if (is_new) it->second = converted(x, kOnnxI16);
  return it->second;
}

void ByteProducts::share_widened() {
  const std::vector<std::vector<NodeId>> users = g_.users();
  // What is computed of bytes alone may be looked up (graph/passes/tabulate_bytes.cpp), as long as they are bytes.
  auto meet_others = [&](ValueId v) {
    return std::all_of(
        users[static_cast<size_t>(v)].begin(), users[static_cast<size_t>(v)].end(), [&](NodeId user) {
          const std::vector<ValueId>& inputs = g_.node(user).inputs;
          return std::any_of(inputs.begin(), inputs.end(),
                             [&](ValueId i) { return i != v && i != kNoValue && !constant(i); });
        });
  };
  for (const auto& [x, wide] : widened_) {
    if (g_.value(x).producer < 0 || g_.is_output(x)) continue;
    const NodeId cast = g_.value(wide).producer;
    std::vector<NodeId> others;
    for (NodeId user : users[static_cast<size_t>(x)]) {
      if (user != cast && !g_.node(user).dead) others.push_back(user);
    }
    const bool are_dequantized = std::all_of(others.begin(), others.end(), [&](NodeId id) {
      const Node& n = g_.node(id);
      return is_op(n, "DequantizeLinear") && n.inputs[0] == x && input(n, 2) != x &&
             (input(n, 2) == kNoValue || constant(n.inputs[2])) && meet_others(n.outputs[0]);
    });
    if (!are_dequantized) continue;
    for (NodeId id : others) {
      name_ = g_.node(id).name;
      const ValueId zero = input(g_.node(id), 2),
                    wide_zero = zero == kNoValue ? kNoValue : converted(zero, kOnnxI16);
      Node& node = g_.node(id);
      node.inputs[0] = wide;
      if (zero != kNoValue) node.inputs[2] = wide_zero;
    }
  }
}

std::optional<ByteProducts::Weights> ByteProducts::weights(ValueId w, const std::vector<int64_t>& perm,
                                                           ValueId zero, int64_t rows, Groups groups,
                                                           int64_t words) {
  const Constant* values = constant(w);
  if (!values || !is_byte(w)) return std::nullopt;
  auto extent = [&](size_t d) { return values->shape()[perm.empty() ? d : static_cast<size_t>(perm[d])]; };
  Weights out;
  out.columns = extent(rank(w) - 1);
  out.depth = extent(rank(w) - 2);
  // Products of fewer columns than lanes are left to what runs along another axis.
  if (out.columns < lanes_ || values->count() == 0) return std::nullopt;
  const bool is_unsigned = type(w).element == ElementType::u8;
  if (zero != kNoValue) {
    const Constant* z = constant(zero);
    if (!z || (z->count() != 1 && (z->count() != out.columns || z->shape().size() != 1))) return std::nullopt;
    if (uniform_value(g_, zero) != (is_unsigned ? 128.0 : 0.0)) {
      const int64_t count = z->count();  // new values move what constants there are
      out.zero = reshaped(converted(zero, kOnnxI32), {count});
      if (is_unsigned) out.zero = make("Sub", {out.zero, number(ElementType::i32, 128)});
    }
  } else if (is_unsigned) {
    out.zero = reshaped(number(ElementType::i32, -128), {1});
  }
  const bool in_groups = groups.count > 1;
  if (in_groups && out.zero != kNoValue) return std::nullopt;
  ValueId v = w;
  if (is_unsigned)
    v = converted(make("Sub", {converted(v, kOnnxI32), number(ElementType::i32, 128)}), kOnnxI8);
  const int64_t columns = out.columns;
  if (groups.merged > 1) {
    v = merge_groups(g_, name_, v, groups.count, groups.merged);
    out.columns = groups.after() * groups.columns(columns);
  }
  if (!perm.empty()) v = transposed(v, perm);
  ValueId wide = converted(v, kOnnxI32);
  if (out.zero != kNoValue) wide = make("Sub", {wide, out.zero});
  std::vector<int64_t> all_but_last;
  for (size_t d = 0; d + 1 < rank(w); ++d)
    all_but_last.push_back(static_cast<int64_t>(d));
  out.sums = sum_over(wide, all_but_last, false);
  if (out.columns != columns) out.sums = first_columns(g_, name_, out.sums, columns);
  const int64_t block = panel_width(groups.columns(columns), out.depth, rows, in_groups);
  out.group = on_gpu_ ? block : lanes_;
  if (words > 0) v = filled_up(v, rank(v) - 2, words * word_ - out.depth);
  Attributes a;
  a.set("block", block);
  if (left_ == ElementType::i16) a.set("word", word_);
  out.packed = make_own("PackBytes", {v}, a);
  return out;
}

// Columns of a panel. A GPU fetches each column along the depth; for a few rows words of four
// columns, which one thread takes, where the threads of half a warp have equal shares of them.
int64_t ByteProducts::panel_width(int64_t columns, int64_t depth, int64_t rows, bool in_groups) const {
  constexpr int64_t kFewRows = 8, kWords = 4, kShare = 64;
  if (on_gpu_) return rows > 0 && rows <= kFewRows && depth % kShare == 0 ? kWords : 1;
  const int64_t width = word_panel_width(columns, left_, t_);
  return in_groups && columns % width != 0 ? lanes_ : width;  // of one group's columns
}

int64_t ByteProducts::rows_of(const Node& product, int64_t columns) const {
  const Shape& shape = type(product.outputs[0]).shape;
  return is_static(shape) ? static_count(shape) / std::max<int64_t>(columns, 1) : 0;
}

int64_t ByteProducts::last_dim(ValueId v) const { return static_dim(type(v).shape.back()).value_or(0); }

ValueId ByteProducts::product(std::string_view op, ValueId x, const Weights& w, Attributes a) {
  const int64_t whole = (w.columns + w.group - 1) / w.group * w.group;
  a.set("columns", whole);
  ValueId sums = make_own(op, {x, w.packed}, a);
  if (whole == w.columns) return sums;
  return first_columns(g_, name_, sums, w.columns);
}

ValueId ByteProducts::matrix_product(ValueId a, const Weights& w) {
  ValueId sums = product("MatMulBytes", a, w, {});
  return w.zero == kNoValue ? sums : less_zero(sums, row_sums(a), w);
}

ValueId ByteProducts::integer_product(ValueId x, ValueId zero, const Weights& w) {
  int64_t moved = 0;
  const ValueId a = activations(x, {}, &moved);
  ValueId less = number(ElementType::i32, static_cast<double>(moved));
  if (zero != kNoValue) less = make("Add", {reshaped(converted(zero, kOnnxI32), {1}), less});
  // Before the product: what follows it can then be computed tile by tile.
  const ValueId correction = make("Mul", {less, w.sums});
  return make("Sub", {matrix_product(a, w), correction});
}

}  // namespace mcc::graph
