// What operators share: checks with good messages for infer(), and broadcasting, casting and constants for compute().
#pragma once

#include <functional>
#include <limits>

#include "graph/op.h"
#include "tensor/build.h"

namespace mcc::graph {

using tensor::as_int;
using tensor::Axes;
using tensor::BinaryOp;
using tensor::Buffer;
using tensor::call;
using tensor::cast;
using tensor::Intrinsic;
using tensor::Reducer;
using tensor::select;

// ---- infer(): each check reports what was expected and got, and returns whether it holds ----

template <class... Args>
bool expect(InferContext& c, bool holds, const Args&... message) {
  if (!holds) c.invalid(text(message...));
  return holds;
}

enum class TypeSet { any, number, floating, integer, boolean, index };  // index: i32 or i64
bool expect_type(InferContext& c, int i, TypeSet set);
bool expect_same_type(InferContext& c, int i, int j);
bool expect_rank(InferContext& c, int i, int low, int high);
inline bool expect_rank(InferContext& c, int i, int rank) { return expect_rank(c, i, rank, rank); }
// Whether two dimensions are equal. Two that may or may not be, depending on symbolic dimensions, are unsupported.
bool expect_same_dim(InferContext& c, const Expr& a, const Expr& b, std::string_view what);
// Whether input i has this shape; the same of its dimensions.
bool expect_shape(InferContext& c, int i, const Shape& wanted, std::string_view what);

// axis in [-rank, rank) as one in [0, rank).
std::optional<int> checked_axis(InferContext& c, int64_t axis, int rank);
// The same without a check, for compute().
inline int normal_axis(int64_t axis, int rank) { return static_cast<int>(axis < 0 ? axis + rank : axis); }

// Of positions along a dimension, between operators that look for them: 32 bits where these are enough, since vectors, and the
// threads of a GPU, exchange no others. And one behind all of them.
inline ElementType position_type(const Expr& extent) {
  int64_t n = 0;
  return tensor::as_int(extent, &n) && n < std::numeric_limits<int32_t>::max() ? ElementType::i32 : ElementType::i64;
}
inline int64_t position_beyond(ElementType type) {
  return type == ElementType::i32 ? std::numeric_limits<int32_t>::max() : std::numeric_limits<int64_t>::max();
}
std::optional<std::vector<int>> checked_axes(InferContext& c, const std::vector<int64_t>& axes, int rank);

// The values of an integer input; what names it in the message when it is not known at compile time.
std::optional<std::vector<int64_t>> constant_ints(InferContext& c, int i, std::string_view what);
// The same of elements that are known at compile time or follow from symbolic dimensions.
std::optional<Shape> known_ints(InferContext& c, int i, std::string_view what);
// "[N, 2 * S, 64]"
std::string dims_text(const Shape& dims);
// Newer versions of an operator have an input where older ones had an attribute; either is taken. Absent: empty list,
// *found = false.
std::optional<std::vector<int64_t>> ints_of(InferContext& c, int i, const std::string& attribute,
                                            bool* found);
// Without checks, for compute().
std::vector<int64_t> ints_of(const ComputeContext& c, int i, const std::string& attribute,
                             bool* found = nullptr);

// The element type that an attribute names by ONNX's number (TensorProto.DataType).
std::optional<ElementType> element_attribute(InferContext& c, const std::string& attribute);

// Multidirectional broadcasting.
std::optional<Shape> broadcast_shapes(InferContext& c, const Shape& a, const Shape& b);
// b must broadcast to a without changing it.
bool expect_broadcasts_to(InferContext& c, int b, const Shape& a);

// The static value of a dimension, if it has one.
std::optional<int64_t> static_dim(const Expr& d);
// A static dimension, else an error of kind unsupported.
std::optional<int64_t> need_static_dim(InferContext& c, const Expr& d, std::string_view what);

// ---- compute() ----

// Sums and transcendental functions of narrow floats are computed in f32.
ElementType wide_type(ElementType element);
// Whether it is such a float; tf32, of which fewer bits count than f32 has, is one. Tensor cores multiply them.
bool is_narrow_float(ElementType element);
// Whether a type has more bits than another, or as many of which more count.
bool is_wider(ElementType type, ElementType than);
Expr widen(const Expr& value);
// An attribute that passes give to contractions: the result has the type in which they sum, not that of their operands.
inline constexpr const char* kWideResult = "mcc.wide_result";
ElementType contraction_result(const InferContext& c);
// A floating constant of the type of `like`.
inline Expr number_like(const Expr& like, double value) { return tensor::constant(like.type(), value); }

// Indices into a tensor of this shape that is broadcast to the shape of the axes `out`.
std::vector<Expr> broadcast_index(const Shape& shape, Axes out);
// Element of input i, broadcast.
Expr broadcast_at(const ComputeContext& c, int i, Axes out);

// An element of an index input as i64; negative values count from the end of an axis of this extent.
// Values out of range are brought into it, so that no data makes a kernel read outside a tensor.
Expr gather_index(const Expr& index, const Expr& extent);
// The same without bringing into range, and whether it was in range.
struct CheckedIndex {
  Expr index, in_range;
};
CheckedIndex scatter_index(const Expr& index, const Expr& extent);
// Which of `count` matrices an element of a product [B..., m, n] is made with, as the index input i [B...] says (gather_index).
Expr selected_matrix(const ComputeContext& c, int i, Axes at, const Expr& count);

inline std::vector<Expr> to_vector(Axes axes) { return {axes.begin(), axes.end()}; }
Expr product(const Shape& dims);
// Row-major position of the indices in the shape, and back.
Expr linear_index(const Shape& shape, const std::vector<Expr>& indices);
std::vector<Expr> from_linear(const Shape& shape, Expr linear);

// Casts a computed buffer to the element type, with a block of its own; the buffer itself if it has it already.
Buffer cast_buffer(ComputeContext& c, const Buffer& buffer, ElementType element);

// ---- Descriptions ----

// Of one of ONNX's operators. What else there is to say of it (constant inputs, use of axes, layout) its family adds.
OpDef onnx_op(std::string_view name, FusionClass fusion, int required_inputs, void (*infer)(InferContext&),
              void (*compute)(ComputeContext&));
// Of an operator of our own (domain "mcc"), which passes make.
OpDef own_op(std::string_view name, FusionClass fusion, int required_inputs, void (*infer)(InferContext&),
             void (*compute)(ComputeContext&));

// ---- compute() of an operator that writes some elements of its result, where the others are already (OpDef::updates_first_input) ----

struct Written {
  std::vector<Expr> at;  // the element
  Expr value;
  Expr condition;  // whether there is such an element
};
// Output 0, of which an element is written for each index of the shape.
Buffer write_in_place(ComputeContext& c, const std::string& name, const Shape& shape,
                      const std::function<Written(Axes)>& write);

}  // namespace mcc::graph
