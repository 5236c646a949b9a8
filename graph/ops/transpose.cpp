// Transpose, DepthToSpace, SpaceToDepth, mcc.Interleave: permutations of axes.
#include <algorithm>

#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

// ---- Transpose: output axis k is input axis perm[k]; by default the axes are reversed ----

std::vector<int64_t> permutation(const Attributes& attributes, int rank) {
  std::vector<int64_t> reversed;
  for (int k = rank; k-- > 0;)
    reversed.push_back(k);
  return attributes.integers("perm", reversed);
}

void infer_transpose(InferContext& c) {
  std::vector<int64_t> perm = permutation(c.attributes(), c.rank(0));
  // Other operators' axes may count from the end; ONNX's permutations may not.
  if (!expect(c, std::none_of(perm.begin(), perm.end(), [](int64_t axis) { return axis < 0; }),
              "perm: expected a permutation of the axes 0 to ", c.rank(0) - 1, ", got ", list_text(perm)))
    return;
  auto axes = checked_axes(c, perm, c.rank(0));
  if (!axes || !expect_type(c, 0, TypeSet::any) ||
      !expect(c, static_cast<int>(axes->size()) == c.rank(0), "perm: expected ", c.rank(0), " axes, got ",
              list_text(perm))) {
    return;
  }
  Shape out;
  for (int axis : *axes)
    out.push_back(c.input(0).shape[static_cast<size_t>(axis)]);
  c.set_output(0, {c.input(0).element, out});
}

void compute_transpose(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  std::vector<int64_t> perm = permutation(c.attributes(), static_cast<int>(out.shape.size()));
  c.set_output(0, c.builder.compute("transpose", out.element, out.shape, [&](Axes i) {
    std::vector<Expr> index(i.size());
    for (size_t k = 0; k < i.size(); ++k)
      index[static_cast<size_t>(perm[k])] = i[k];
    return c.at(0, index);
  }));
}

// ---- DepthToSpace and SpaceToDepth: blocks of b*b pixels against channels ----

// DCR: the place in the block is the outer part of the channel; CRD: the inner part.
bool check_blocks(InferContext& c) {
  int64_t b = c.attributes().integer("blocksize", 0);
  std::string mode = c.attributes().text("mode", "DCR");
  return expect_rank(c, 0, 4) && expect_type(c, 0, TypeSet::any) &&
         expect(c, b > 0 && b < (1 << 20), "blocksize: expected a positive number, got ", b) &&
         expect(c, mode == "DCR" || mode == "CRD", "mode: expected DCR or CRD, got ", mode);
}

void infer_depth_to_space(InferContext& c) {
  if (!check_blocks(c)) return;
  int64_t b = c.attributes().integer("blocksize", 0);
  const Shape& in = c.input(0).shape;
  auto channels = need_static_dim(c, in[1], "the number of channels");
  if (!channels || !expect(c, *channels % (b * b) == 0, *channels, " channels are no multiple of ", b * b))
    return;
  c.set_output(0, {c.input(0).element, {in[0], *channels / (b * b), in[2] * b, in[3] * b}});
}

void compute_depth_to_space(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  int64_t b = c.attributes().integer("blocksize", 0);
  bool depth_first = c.attributes().text("mode", "DCR") == "DCR";
  c.set_output(0, c.builder.compute("depth_to_space", out.element, out.shape, [&](Axes i) {
    Expr phase = tensor::floor_mod(i[2], b) * b + tensor::floor_mod(i[3], b);
    Expr channel = depth_first ? phase * out.shape[1] + i[1] : i[1] * (b * b) + phase;
    return c.at(0, {i[0], channel, tensor::floor_div(i[2], b), tensor::floor_div(i[3], b)});
  }));
}

// ---- mcc.Interleave [N, s... K, D...] -> [N, K, D s...]: DepthToSpace (DCR) of blocks with extents of their own along each axis ----
// Attribute: blocks (s)

void infer_interleave(InferContext& c) {
  Shape shape = c.input(0).shape;
  const std::vector<int64_t> blocks = c.attributes().integers("blocks");
  for (size_t d = 0; d < blocks.size(); ++d) {
    shape[1] = floor_div(shape[1], Expr(blocks[d]));
    shape[2 + d] = shape[2 + d] * Expr(blocks[d]);
  }
  c.set_output(0, {c.input(0).element, shape});
}

void compute_interleave(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const std::vector<int64_t> blocks = c.attributes().integers("blocks");
  c.set_output(0, c.builder.compute("interleave", out.element, out.shape, [&](Axes i) {
    std::vector<Expr> index = to_vector(i);
    Expr phase = 0;
    for (size_t d = 0; d < blocks.size(); ++d) {
      phase = phase * Expr(blocks[d]) + tensor::floor_mod(i[2 + d], blocks[d]);
      index[2 + d] = tensor::floor_div(i[2 + d], blocks[d]);
    }
    index[1] = phase * out.shape[1] + i[1];
    return c.at(0, index);
  }));
}

// How many blocks an extent has.
std::optional<Expr> whole_blocks(InferContext& c, const Expr& extent, int64_t block) {
  const Expr blocks = tensor::floor_div(extent, block);
  if (const std::optional<int64_t> known = static_dim(extent)) {
    if (!expect(c, *known % block == 0, to_text(c.input(0)), " does not divide into blocks of ", block)) return std::nullopt;
  } else if (!expect_same_dim(c, extent, blocks * block, "whole blocks")) {
    return std::nullopt;
  }
  return blocks;
}

void infer_space_to_depth(InferContext& c) {
  if (!check_blocks(c)) return;
  int64_t b = c.attributes().integer("blocksize", 0);
  const Shape& in = c.input(0).shape;
  const std::optional<Expr> height = whole_blocks(c, in[2], b);
  const std::optional<Expr> width = height ? whole_blocks(c, in[3], b) : std::nullopt;
  if (width) c.set_output(0, {c.input(0).element, {in[0], in[1] * (b * b), *height, *width}});
}

void compute_space_to_depth(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  int64_t b = c.attributes().integer("blocksize", 0);
  const Expr& channels = c.input_type(0).shape[1];
  bool depth_first = c.attributes().text("mode", "DCR") == "DCR";
  c.set_output(0, c.builder.compute("space_to_depth", out.element, out.shape, [&](Axes i) {
    const Expr inner = depth_first ? channels : Expr(b * b);
    Expr high = tensor::floor_div(i[1], inner), low = tensor::floor_mod(i[1], inner);
    Expr phase = depth_first ? high : low, channel = depth_first ? low : high;
    return c.at(
        0, {i[0], channel, i[2] * b + tensor::floor_div(phase, b), i[3] * b + tensor::floor_mod(phase, b)});
  }));
}

OpDef injective(std::string_view name, void (*infer)(InferContext&), void (*compute)(ComputeContext&)) {
  return onnx_op(name, FusionClass::injective, 1, infer, compute);
}

}  // namespace

std::span<const OpDef> transpose_ops() {
  static const OpDef ops[] = {
      injective("Transpose", infer_transpose, compute_transpose),
      laid_out(injective("DepthToSpace", infer_depth_to_space, compute_depth_to_space), LayoutRole::to_space),
      injective("SpaceToDepth", infer_space_to_depth, compute_space_to_depth),
      laid_out(own_op("Interleave", FusionClass::injective, 1, infer_interleave, compute_interleave), LayoutRole::to_space),
  };
  return ops;
}

}  // namespace mcc::graph
