// Dot products of bytes (graph/ops/mcc_bytes.cpp) as a pass makes them: what they read, and the products themselves.
#pragma once

#include <map>

#include "graph/passes/rewrite.h"
#include "tensor/instructions.h"
#include "tensor/intrinsics.h"
#include "tensor/target.h"

namespace mcc::graph {

// ONNX's numbers of element types, for Cast.
constexpr int64_t kOnnxF32 = 1, kOnnxI8 = 3, kOnnxI16 = 5, kOnnxI32 = 6;

class ByteProducts {
 protected:
  // A tensor of bytes and what it stands for: (value - zero) * scale.
  struct Quantized {
    ValueId value = kNoValue;
    ValueId scale = kNoValue;  // a constant of one element, or one for each line of a constant
    ValueId zero = kNoValue;   // as many; kNoValue for 0
  };

  // Constant weights, [D..., K, N] of i8 less their zero point's distance from i8.
  struct Weights {
    ValueId packed = kNoValue;
    ValueId sums = kNoValue;  // i32 [N]: of each column, without its zero point
    ValueId zero = kNoValue;  // i32 [N] or [1]; kNoValue for 0
    int64_t columns = 0, depth = 0;
    int64_t group = 1;  // columns that the product has together
  };

  // Channels of a convolution in groups: each of these multiplies its own part of the channels. `merged` groups of the model are one
  // here, with zeros between them.
  struct Groups {
    int64_t count = 1, merged = 1;
    int64_t after() const { return (count + merged - 1) / merged; }      // the last one may be filled up
    int64_t columns(int64_t all) const { return all / count * merged; }  // of one of these
  };

  ByteProducts(Graph& g, const tensor::Target& t)
      : g_(g),
        t_(t),
        on_gpu_(t.kind == tensor::TargetKind::cuda),
        lanes_(on_gpu_ ? 1 : t.lanes(32)),
        left_(tensor::left_of_bytes(t)),
        word_(tensor::word_elements(left_)) {}

  const TensorType& type(ValueId v) const { return g_.value(v).type; }
  size_t rank(ValueId v) const { return type(v).shape.size(); }
  static ValueId input(const Node& n, size_t i) { return i < n.inputs.size() ? n.inputs[i] : kNoValue; }
  const Constant* constant(ValueId v) const {
    return v != kNoValue && g_.value(v).constant ? &*g_.value(v).constant : nullptr;
  }
  bool is_byte(ValueId v) const { return type(v).element == ElementType::u8 || type(v).element == ElementType::i8; }

  ValueId make(std::string_view op, std::vector<ValueId> inputs, Attributes a = {}) {
    return emit(g_, "", op, name_, std::move(inputs), std::move(a));
  }
  ValueId make_own(std::string_view op, std::vector<ValueId> inputs, Attributes a = {}) {
    return emit(g_, "mcc", op, name_, std::move(inputs), std::move(a));
  }
  ValueId number(ElementType element, double value) {
    return g_.add_constant(name_ + ".number", Constant::scalar(element, value));
  }
  ValueId converted(ValueId v, int64_t to) {
    Attributes a;
    a.set("to", to);
    return make("Cast", {v}, a);
  }
  ValueId transposed(ValueId v, std::vector<int64_t> perm) {
    Attributes a;
    a.set("perm", std::move(perm));
    return make("Transpose", {v}, a);
  }
  ValueId sum_over(ValueId v, std::vector<int64_t> axes, bool keeps_rank) {
    Attributes a;
    a.set("keepdims", int64_t{keeps_rank});
    return make("ReduceSum", {v, g_.add_constant(name_ + ".axes", Constant::ints(axes))}, a);
  }
  ValueId reshaped(ValueId v, const std::vector<int64_t>& dims) {
    return graph::reshaped(g_, name_, v, dims);
  }

  // With so many zeros behind the axis.
  ValueId filled_up(ValueId v, size_t axis, int64_t zeros) {
    std::vector<int64_t> pads(2 * rank(v), 0);
    pads[rank(v) + axis] = zeros;
    return make("Pad", {v, g_.add_constant(name_ + ".missing", Constant::ints(pads))});
  }

  // ---- What a product reads ----

  // The zero point of a tensor as a whole.
  std::optional<int64_t> whole_zero(ValueId zero) const;
  // A constant of integers of fewer bits, one to a byte; else the value.
  ValueId as_bytes(ValueId v);
  // What the value is dequantised from. lines: the axis along which scales may differ; -1 for none.
  std::optional<Quantized> dequantized(ValueId v, int64_t lines);
  // Activations as the target takes them, bytes moved with their zero point; perm: their axes, empty where they stay.
  ValueId activations(ValueId x, const std::vector<int64_t>& perm, int64_t* zero);
  // Where bytes that were widened are else dequantised alone, what they are dequantised from is the wide numbers: whoever makes them writes
  // one result.
  void share_widened();
  // w: a constant [D..., K, N] after `perm`. zero: i8 or u8, of one element or [N]; kNoValue for 0. rows: of the product; 0 where
  // that is not known. groups: of [N, K, D...] before `perm`; those of several have no zero point once they are i8. words: along
  // K, if zeros fill them up to more than there are; else 0.
  std::optional<Weights> weights(ValueId w, const std::vector<int64_t>& perm, ValueId zero, int64_t rows,
                                 Groups groups, int64_t words = 0);
  std::optional<Weights> weights(ValueId w, const std::vector<int64_t>& perm, ValueId zero, int64_t rows) {
    return weights(w, perm, zero, rows, {});
  }
  // Results of a product for each column.
  int64_t rows_of(const Node& product, int64_t columns) const;
  int64_t last_dim(ValueId v) const;  // 0 where it is not known

  // ---- Products ----

  // The sums as the instruction makes them, [..., N].
  ValueId product(std::string_view op, ValueId x, const Weights& w, Attributes a);
  // Those of (a, b - bz): without bz * sum a. rows: sums of what the product reads, one for each row of the result.
  ValueId less_zero(ValueId sums, ValueId rows, const Weights& w) {
    return make("Sub", {sums, make("Mul", {rows, w.zero})});
  }
  ValueId row_sums(ValueId a) { return sum_over(converted(a, kOnnxI32), {-1}, true); }
  // [..., N] of activations a as the instruction takes them.
  ValueId matrix_product(ValueId a, const Weights& w);
  // The same of (x - zero), [..., K]; zero: of one element, which a run may know; kNoValue for 0.
  ValueId integer_product(ValueId x, ValueId zero, const Weights& w);
  // What the zero points add to the sums: -az * sum (b - bz), [N] of i32.
  ValueId offset(const Weights& w, int64_t zero) {
    return make("Mul", {w.sums, number(ElementType::i32, static_cast<double>(-zero))});
  }

  Graph& g_;
  const tensor::Target& t_;
  const bool on_gpu_;
  const int64_t lanes_;  // columns that a dot product has at once
  const ElementType left_;  // what activations are to it
  const int64_t word_;      // how many of them it takes along the sum
  std::string name_;     // of the node that is being rewritten

 private:
  int64_t panel_width(int64_t columns, int64_t depth, int64_t rows, bool in_groups) const;

  // Of so many bits as the target takes.
  ValueId as_left(ValueId x);

  std::map<std::pair<ValueId, std::vector<int64_t>>, ValueId> activations_;
  std::map<ValueId, ValueId> widened_;
};

}  // namespace mcc::graph
