// Changes of memory layout:
//   mcc.Pack            [N, C, D...]   -> [N, ceil(C/c), D..., c], lanes past C are 0
//   mcc.Unpack          the way back
//   mcc.PackMatrix      [.., K, N] (or [.., N, K] with transposed=1) -> [.., ceil(N/c), K, c], columns past N are 0
//   mcc.PackConvWeight  [K, C, D...]   -> [ceil(K/c), ceil(C/ci), D..., ci, c], 0 past the edges
//   mcc.PackDepthwise   [C, 1, D...]   -> [ceil(C/c), D..., c]
// With the attribute word (n) the weights of products have n that follow each other along the sum side by side: PackMatrix gives
// [.., ceil(N/c), K/n, c, n], PackConvWeight [ceil(K/c), ceil(C/ci), D..., ci/n, c, n].
// Attributes: block (c), in_block (ci; 0 keeps C as one plain axis: [ceil(K/c), C, D..., c]), channels (C of Unpack).
#include "graph/ops/common.h"
#include "tensor/simplify.h"

namespace mcc::graph {
namespace {

// Element of input 0 where the index along `axis` is below its extent, else 0.
Expr padded(const ComputeContext& c, std::vector<Expr> indices, size_t axis) {
  Expr inside = indices[axis] < c.input_type(0).shape[axis];
  return select(inside, c.at(0, std::move(indices)), tensor::constant(c.input_type(0).element, 0));
}

Expr blocks_of(const Expr& extent, int64_t block) { return tensor::ceil_div(extent, Expr(block)); }

bool divides(int64_t block, const Expr& extent) {
  int64_t value = 0;
  return tensor::as_int(extent, &value) && value % block == 0;
}

// Elements of a word.
int64_t word_of(const Attributes& attributes) { return attributes.integer("word", 1); }

// Weights [.., k, c] in words along k.
Shape in_words(Shape shape, int64_t word) {
  if (word == 1) return shape;
  Expr& k = shape[shape.size() - 2];
  k = tensor::simplify(floor_div(k, Expr(word)));
  shape.push_back(Expr(word));
  return shape;
}

// The index in [.., k, c] of one in words.
std::vector<Expr> out_of_words(Axes i, int64_t word) {
  std::vector<Expr> index(i.begin(), i.end());
  if (word == 1) return index;
  const Expr part = index.back();
  index.pop_back();
  Expr& k = index[index.size() - 2];
  k = k * Expr(word) + part;
  return index;
}

int64_t block_of(const Attributes& attributes) { return attributes.integer("block", 16); }

void infer_pack(InferContext& c) {
  const TensorType& x = c.input(0);
  int64_t block = block_of(c.attributes());
  Shape shape = x.shape;
  shape[1] = blocks_of(shape[1], block);
  shape.push_back(Expr(block));
  c.set_output(0, {x.element, shape});
}

void compute_pack(ComputeContext& c) {
  const TensorType& x = c.input_type(0);
  int64_t block = block_of(c.attributes());
  bool exact = divides(block, x.shape[1]);
  c.set_output(0, c.builder.compute("pack", x.element, c.output_type(0).shape, [&](Axes i) {
    std::vector<Expr> index(i.begin(), i.end() - 1);
    index[1] = index[1] * Expr(block) + i.back();
    return exact ? c.at(0, index) : padded(c, index, 1);
  }));
}

void infer_unpack(InferContext& c) {
  Shape shape = c.input(0).shape;
  shape.pop_back();
  shape[1] = Expr(c.attributes().integer("channels", 0));
  c.set_output(0, {c.input(0).element, shape});
}

void compute_unpack(ComputeContext& c) {
  const TensorType& x = c.input_type(0);
  Expr block(block_of(c.attributes()));
  c.set_output(0, c.builder.compute("unpack", x.element, c.output_type(0).shape, [&](Axes i) {
    std::vector<Expr> index(i.begin(), i.end());
    index.push_back(floor_mod(i[1], block));
    index[1] = floor_div(i[1], block);
    return c.at(0, index);
  }));
}

void infer_pack_matrix(InferContext& c) {
  const Shape& w = c.input(0).shape;
  bool transposed = c.attributes().integer("transposed", 0) != 0;
  int64_t block = block_of(c.attributes());
  size_t batch = w.size() - 2;
  Expr k = w[transposed ? batch + 1 : batch], n = w[transposed ? batch : batch + 1];
  Shape shape(w.begin(), w.end() - 2);
  shape.insert(shape.end(), {blocks_of(n, block), k, Expr(block)});
  c.set_output(0, {c.input(0).element, in_words(shape, word_of(c.attributes()))});
}

void compute_pack_matrix(ComputeContext& c) {
  const TensorType& w = c.input_type(0);
  bool transposed = c.attributes().integer("transposed", 0) != 0;
  int64_t block = block_of(c.attributes());
  size_t batch = w.shape.size() - 2, n_axis = transposed ? batch : batch + 1;
  size_t k_axis = transposed ? batch + 1 : batch;
  bool exact = divides(block, w.shape[n_axis]);
  c.set_output(0, c.builder.compute("pack", w.element, c.output_type(0).shape, [&](Axes packed) {
    const std::vector<Expr> i = out_of_words(packed, word_of(c.attributes()));
    std::vector<Expr> index(i.begin(), i.begin() + static_cast<std::ptrdiff_t>(batch));
    index.resize(batch + 2);
    index[n_axis] = i[batch] * Expr(block) + i[batch + 2];
    index[k_axis] = i[batch + 1];
    return exact ? c.at(0, index) : padded(c, index, n_axis);
  }));
}

void infer_pack_conv(InferContext& c) {
  const Shape& w = c.input(0).shape;
  int64_t block = block_of(c.attributes()), in_block = c.attributes().integer("in_block", 0);
  Shape shape{blocks_of(w[0], block), in_block ? blocks_of(w[1], in_block) : w[1]};
  shape.insert(shape.end(), w.begin() + 2, w.end());
  if (in_block) shape.push_back(Expr(in_block));
  shape.push_back(Expr(block));
  c.set_output(0, {c.input(0).element, in_words(shape, word_of(c.attributes()))});
}

void compute_pack_conv(ComputeContext& c) {
  const TensorType& w = c.input_type(0);
  int64_t block = block_of(c.attributes()), in_block = c.attributes().integer("in_block", 0);
  size_t spatial = w.shape.size() - 2;
  bool exact = divides(block, w.shape[0]) && (in_block == 0 || divides(in_block, w.shape[1]));
  c.set_output(0, c.builder.compute("pack", w.element, c.output_type(0).shape, [&](Axes packed) {
    const std::vector<Expr> i = out_of_words(packed, word_of(c.attributes()));
    std::vector<Expr> index(i.begin(), i.begin() + 2 + static_cast<std::ptrdiff_t>(spatial));
    index[0] = index[0] * Expr(block) + i.back();
    if (in_block) index[1] = index[1] * Expr(in_block) + i[2 + spatial];
    if (exact) return c.at(0, index);
    Expr inside = index[0] < w.shape[0] && index[1] < w.shape[1];
    return select(inside, c.at(0, index), tensor::constant(w.element, 0));
  }));
}

void infer_pack_depthwise(InferContext& c) {
  const Shape& w = c.input(0).shape;
  int64_t block = block_of(c.attributes());
  Shape shape{blocks_of(w[0], block)};
  shape.insert(shape.end(), w.begin() + 2, w.end());
  shape.push_back(Expr(block));
  c.set_output(0, {c.input(0).element, shape});
}

void compute_pack_depthwise(ComputeContext& c) {
  const TensorType& w = c.input_type(0);
  int64_t block = block_of(c.attributes());
  bool exact = divides(block, w.shape[0]);
  c.set_output(0, c.builder.compute("pack", w.element, c.output_type(0).shape, [&](Axes i) {
    std::vector<Expr> index{i[0] * Expr(block) + i.back(), Expr(0)};
    index.insert(index.end(), i.begin() + 1, i.end() - 1);
    return exact ? c.at(0, index) : padded(c, index, 0);
  }));
}

}  // namespace

std::span<const OpDef> mcc_pack_ops() {
  static const OpDef ops[] = {
      own_op("Pack", FusionClass::injective, 1, infer_pack, compute_pack),
      own_op("Unpack", FusionClass::injective, 1, infer_unpack, compute_unpack),
      own_op("PackMatrix", FusionClass::injective, 1, infer_pack_matrix, compute_pack_matrix),
      own_op("PackConvWeight", FusionClass::injective, 1, infer_pack_conv, compute_pack_conv),
      own_op("PackDepthwise", FusionClass::injective, 1, infer_pack_depthwise, compute_pack_depthwise),
  };
  return ops;
}

}  // namespace mcc::graph
