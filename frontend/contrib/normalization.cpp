// Normalisations with the sums in front of them: of layers, of embeddings, of groups.
#include <algorithm>

#include "frontend/contrib/expansion.h"

namespace mcc::frontend {

namespace {

using onnx::AttributeProto;

constexpr float kSkipEpsilon = 1e-12f, kLayerEpsilon = 1e-5f;

// ---- LayerNormalization and its simplified form, without a mean and a bias ----

// The input's type may be narrower than that of scale and bias, which is the result's: f16 beside f32.
bool takes_scale_type(Expansion& e) {
  return e.supports(e.element(0) == e.element(1) || e.element(1) == ElementType::f32, "input of ", mcc::to_text(e.element(0)),
                    " with a scale of ", mcc::to_text(e.element(1)), " is not supported");
}
Operand in_scale_type(Expansion& e) { return e.element(0) == e.element(1) ? e.in(0) : e.converted(e.in(0), e.element(1)); }

// ONNX's with as many of its results, the mean and the inverse deviation behind the first, as the node asks for.
void normalize_layer(Expansion& e, const std::vector<Operand>& inputs, const std::vector<Setting>& settings) {
  const int count = e.has_output(2) ? 3 : e.has_output(1) ? 2 : 1;
  std::vector<Operand> y = e.ops("LayerNormalization", inputs, settings, count);
  for (int i = 0; i < count; ++i)
    e.result(i, y[static_cast<size_t>(i)]);
}

void layer_normalization(Expansion& e) {
  if (takes_scale_type(e)) normalize_layer(e, {in_scale_type(e), e.in(1), e.in(2)}, e.passed_on({"axis", "epsilon", "stash_type"}));
}

// 1 / sqrt(mean of squares + epsilon) over all axes from `axis` on.
Operand inverse_root_of_mean_square(Expansion& e, const Operand& x, ElementType element, int64_t axis, int64_t rank) {
  Operand wide = element == ElementType::f32 ? x : e.converted(x, ElementType::f32);
  std::vector<int64_t> axes;
  for (int64_t d = axis; d < rank; ++d)
    axes.push_back(d);
  Operand mean = e.op("ReduceMean", {e.op("Mul", {wide, wide}), e.ints(axes)});
  return e.op("Reciprocal", {e.op("Sqrt", {e.op("Add", {mean, e.scalar(ElementType::f32, e.number("epsilon"))})})});
}

void simplified_layer_normalization(Expansion& e) {
  const std::optional<int64_t> axis = e.expect_axis("axis");
  if (!axis || !takes_scale_type(e)) return;
  Operand x = in_scale_type(e);
  e.result(0, e.op("RMSNormalization", {x, e.in(1)}, e.passed_on({"axis", "epsilon", "stash_type"})));
  if (e.has_output(1)) e.result(1, inverse_root_of_mean_square(e, x, e.element(1), *axis, e.rank(0)));
}

// ---- The same of input + skip + bias, along the last axis; the sum may be a result, too ----

constexpr int kInverseDeviation = 2, kSum = 3;

// skip: of the input's shape, or without its first axis, which may also be 1.
bool expect_skip(Expansion& e) {
  const std::vector<int64_t>&x = e.sizes(0), &skip = e.sizes(1);
  const bool has_rank = e.rank(0) == 2 || e.rank(0) == 3;
  if (!e.expect(has_rank, "input 'input': expected 2 or 3 dimensions, got shape ", shape_text(x))) return false;
  std::vector<int64_t> one = x, rest(x.begin() + 1, x.end());
  one[0] = 1;
  const bool fits = skip == x || (x.size() == 3 && (skip == one || skip == rest));
  return e.expect(fits, "input 'skip': expected shape ", shape_text(x), ", ", shape_text(one), " or ", shape_text(rest), ", got ",
                  shape_text(skip));
}

Operand sum_with_skip(Expansion& e, int bias) {
  Operand sum = e.op("Add", {e.in(0), e.in(1)});
  return e.has(bias) ? e.op("Add", {sum, e.in(bias)}) : sum;
}

void skip_layer_normalization(Expansion& e) {
  if (!expect_skip(e)) return;
  Operand sum = sum_with_skip(e, 4);
  normalize_layer(e, {sum, e.in(2), e.in(3)}, e.passed_on({"epsilon"}));
  e.result(kSum, sum);
}

void skip_simplified_layer_normalization(Expansion& e) {
  if (!expect_skip(e)) return;
  Operand sum = sum_with_skip(e, 3);
  e.result(0, e.op("RMSNormalization", {sum, e.in(2)}, e.passed_on({"epsilon"})));
  if (e.has_output(kInverseDeviation))
    e.result(kInverseDeviation, inverse_root_of_mean_square(e, sum, e.element(0), e.rank(0) - 1, e.rank(0)));
  e.result(kSum, sum);
}

// ---- Sums of embeddings of words, positions and segments ----

// Rows of a table, which may be quantised: only they become real numbers then.
using Rows = Operand (*)(Expansion& e, int table, const Operand& ids);

// ids and segments are inputs 0 and 1, the mask is input 7.
void embed(Expansion& e, int position_ids, Rows rows, const Operand& gamma, const Operand& beta) {
  constexpr int kSegments = 1, kWordTable = 2, kPositionTable = 3, kSegmentTable = 4, kMask = 7;
  if (!e.expect_rank(0, 2) || !e.expect_rank(kPositionTable, 2)) return;
  const int64_t batch = e.sizes(0)[0], length = e.sizes(0)[1];
  const bool counts = !e.has(position_ids) && Expansion::is_open(length), repeats = e.has_output(1) && !e.has(kMask) && Expansion::is_open(batch);
  if ((counts || repeats) && !e.refuse_open(0)) return;
  if (!e.expect(e.has(kSegments) == e.has(kSegmentTable), "inputs 'segment_ids' and 'segment_embedding': expected both or none") ||
      (e.has(kSegments) && !e.expect_shape(kSegments, e.sizes(0))) || (e.has(kMask) && !e.expect_shape(kMask, e.sizes(0))))
    return;
  Operand position;
  if (e.has(position_ids)) {
    if (!e.expect(e.sizes(position_ids) == e.sizes(0) || e.sizes(position_ids) == std::vector<int64_t>{1, length},
                  "input 'position_ids': expected shape ", shape_text(e.sizes(0)), " or ", shape_text({1, length}), ", got ",
                  shape_text(e.sizes(position_ids))))
      return;
    position = rows(e, kPositionTable, e.in(position_ids));
  } else {
    if (!e.expect(length <= e.shape(kPositionTable)[0], "input 'position_embedding': expected at least ", length, " rows, got shape ",
                  shape_text(e.shape(kPositionTable))))
      return;
    std::vector<int64_t> places(static_cast<size_t>(length));
    for (size_t i = 0; i < places.size(); ++i)
      places[i] = static_cast<int64_t>(i);
    position = rows(e, kPositionTable, e.ints(places));
  }
  Operand sum = e.op("Add", {rows(e, kWordTable, e.in(0)), position});
  if (e.has(kSegments)) sum = e.op("Add", {sum, rows(e, kSegmentTable, e.in(kSegments))});
  e.result(0, e.op("LayerNormalization", {sum, gamma, beta}, e.passed_on({"epsilon"})));
  if (e.has_output(1)) {  // how many words there are
    Operand words = e.tensor(ElementType::i32, {batch}, std::vector<int32_t>(static_cast<size_t>(batch), 0));
    if (e.has(kMask)) {
      Operand is_word = e.converted(e.op("Equal", {e.in(kMask), e.scalar(ElementType::i32, 1)}), ElementType::i32);
      words = e.op("ReduceSum", {is_word, e.ints({1})}, {{"keepdims", int64_t{0}}});
    }
    e.result(1, words);
  }
  e.result(2, sum);
}

void embed_layer_normalization(Expansion& e) {
  if (e.has_output(1) && e.is_given("mask_index_type") && !e.supports_only("mask_index_type", 1)) return;
  auto rows = [](Expansion& x, int table, const Operand& ids) { return x.op("Gather", {x.in(table), ids}); };
  embed(e, 8, rows, e.in(5), e.in(6));
}

// Tables 2 to 6 have their scales six inputs behind them and their zero points eleven.
Operand real_rows(Expansion& e, int table, const Operand& ids) {
  Operand rows = ids.empty() ? e.in(table) : e.op("Gather", {e.in(table), ids});
  return e.op("DequantizeLinear", {rows, e.in(table + 6), e.in(table + 11)});
}

void quantized_embed_layer_normalization(Expansion& e) {
  if (e.expect_single({8, 9, 10, 11, 12, 13, 14, 15, 16, 17})) embed(e, -1, real_rows, real_rows(e, 5, ""), real_rows(e, 6, ""));
}

// ---- Groups of channels, which are last unless channels_last is 0 ----

// Of x, with gamma and beta in inputs 1 and 2; an activation of 1 is x * sigmoid(x).
void normalize_groups(Expansion& e, Operand x) {
  const int64_t activation = e.integer("activation"), rank = e.rank(0);
  if (!e.supports(activation == 0 || activation == 1, "attribute 'activation': expected 0 or 1, got ", activation)) return;
  const bool is_last = e.integer("channels_last") != 0;
  const bool is_mixed = e.element(0) != e.element(1);
  if (is_last) x = e.channels_second(x, rank);
  if (is_mixed) x = e.converted(x, e.element(1));
  Operand y = e.op("GroupNormalization", {x, e.in(1), e.in(2)},
                   {{"num_groups", e.integer("groups")}, {"epsilon", static_cast<float>(e.number("epsilon"))}});
  if (activation == 1) y = e.op("Mul", {y, e.op("Sigmoid", {y})});
  if (is_mixed) y = e.converted(y, e.element(0));
  e.result(0, is_last ? e.channels_last(y, rank) : y);
}

bool expect_image(Expansion& e) {
  return e.expect(e.rank(0) >= 3, "input 'X': expected at least 3 dimensions, got shape ", shape_text(e.sizes(0)));
}

void group_norm(Expansion& e) {
  if (expect_image(e)) normalize_groups(e, e.in(0));
}

// skip has a value for each element or for each channel of an image, bias one for each channel.
void skip_group_norm(Expansion& e) {
  constexpr int kSkip = 3, kBias = 4;
  if (!expect_image(e)) return;
  const std::vector<int64_t>& x = e.shape(0);
  const size_t channel = e.integer("channels_last") != 0 ? x.size() - 1 : 1;
  std::vector<int64_t> of_image(x.size(), 1), of_all(x.size(), 1);
  of_image[0] = x[0];
  of_image[channel] = of_all[channel] = x[channel];
  Operand skip = e.in(kSkip);
  if (e.shape(kSkip) == std::vector<int64_t>{x[0], x[channel]}) {
    skip = e.reshaped(skip, of_image);
  } else if (!e.expect(e.shape(kSkip) == x || e.shape(kSkip) == of_image, "input 'skip': expected shape ", shape_text(x), " or ",
                       shape_text(of_image), ", got ", shape_text(e.shape(kSkip)))) {
    return;
  }
  Operand sum = e.op("Add", {e.in(0), skip});
  if (e.has(kBias)) {
    if (!e.expect_shape(kBias, {x[channel]})) return;
    sum = e.op("Add", {sum, e.reshaped(e.in(kBias), of_all)});
  }
  normalize_groups(e, sum);
  e.result(1, sum);
}

}  // namespace

std::span<const ContribOp> normalization_ops() {
  const std::vector<AttributeRule> layer{{"axis", -1}, {"epsilon", kLayerEpsilon}, {"stash_type", 1}};
  const std::vector<AttributeRule> groups{{"channels_last", 1}, required("activation", AttributeProto::INT), required("groups", AttributeProto::INT), {"epsilon", kLayerEpsilon}};
  static const std::vector<ContribOp> ops{
      {"LayerNormalization", "X Scale B?", "Y Mean? InvStdDev?", layer, layer_normalization, true},
      {"SimplifiedLayerNormalization", "X scale", "Y inv_std_var?", layer, simplified_layer_normalization, true},
      {"SkipLayerNormalization", "input skip gamma beta? bias?", "output mean? inv_std_var? input_skip_bias_sum?",
       {{"epsilon", kSkipEpsilon}}, skip_layer_normalization},
      {"SkipSimplifiedLayerNormalization", "input skip gamma bias?", "output mean? inv_std_var? input_skip_bias_sum?",
       {{"epsilon", kSkipEpsilon}}, skip_simplified_layer_normalization},
      {"EmbedLayerNormalization",
       "input_ids segment_ids? word_embedding position_embedding segment_embedding? gamma beta mask? position_ids?",
       "output mask_index? embedding_sum?",
       {{"epsilon", kSkipEpsilon}, AttributeRule("mask_index_type", AttributeProto::INT, AttributeRule::optional)},
       embed_layer_normalization},
      {"QEmbedLayerNormalization",
       "input_ids segment_ids? word_embedding_quant position_embedding_quant segment_embedding? gamma_quant beta_quant mask? "
       "word_embedding_scale position_embedding_scale segment_embedding_scale? gamma_scale beta_scale "
       "word_embedding_zero_point position_embedding_zero_point segment_embedding_zero_point? gamma_zero_point beta_zero_point",
       "layernorm_out mask_index_out?", {{"epsilon", kSkipEpsilon}}, quantized_embed_layer_normalization},
      {"GroupNorm", "X gamma beta", "Y", groups, group_norm},
      {"SkipGroupNorm", "X gamma beta skip bias?", "Y S?", groups, skip_group_norm},
  };
  return ops;
}

}  // namespace mcc::frontend
