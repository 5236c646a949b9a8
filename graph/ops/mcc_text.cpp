// Operators on strings, which a session carries out on its table of texts (runtime/include/mcc/plan_format.h): in the graph a tensor of
// strings is one of ids, i64. They stand in the graph from the import on; none has a definition that a kernel could have.
#include "graph/ops/mcc_text.h"
#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

constexpr ElementType kId = ElementType::i64;

void infer_same(InferContext& c, ElementType from, ElementType to) {
  if (!expect(c, c.input(0).element == from, "input 0: expected ", to_text(from), ", got ",
              to_text(c.input(0).element)))
    return;
  c.set_output(0, {to, c.input(0).shape});
}

void infer_ids(InferContext& c) { infer_same(c, ElementType::string, kId); }
void infer_strings(InferContext& c) { infer_same(c, kId, ElementType::string); }
void infer_ids_of_ids(InferContext& c) { infer_same(c, kId, kId); }
void infer_match(InferContext& c) { infer_same(c, kId, ElementType::boolean); }

void infer_concat(InferContext& c) {
  if (expect_same_type(c, 0, 1) && expect_shape(c, 1, c.input(0).shape, "input 1")) infer_ids_of_ids(c);
}

// One more dimension, the number in input 1.
void infer_split(InferContext& c) {
  const std::optional<Shape> parts = known_ints(c, 1, "the number of parts");
  if (!parts || !expect(c, parts->size() == 1, "expected one number of parts")) return;
  Shape shape = c.input(0).shape;
  shape.push_back(parts->front());
  c.set_output(0, {kId, std::move(shape)});
}

// One place even where there is no word.
void infer_normalize(InferContext& c) {
  if (!expect_rank(c, 0, 1)) return;
  Expr words = c.input(0).shape[0];
  const std::optional<int64_t> known = static_dim(words);
  // Without stop words all words stay.
  const Attribute* stops = c.attributes().find("stopwords");
  if (stops && !std::get<std::vector<std::string>>(*stops).empty())
    words = known ? Expr(std::max<int64_t>(*known, 1)) : tensor::max(words, 1);
  c.set_output(0, {kId, {words}});
  if (c.has_output(1)) c.set_output(1, {kId, {}});
}

void infer_parse(InferContext& c) {
  if (const std::optional<ElementType> element = element_attribute(c, "to")) infer_same(c, kId, *element);
}

void infer_format(InferContext& c) { c.set_output(0, {kId, c.input(0).shape}); }

OpDef text_op(std::string_view name, int inputs, void (*infer)(InferContext&)) {
  return own_op(name, FusionClass::host, inputs, infer, nullptr);
}

OpDef split_op() {
  OpDef op = text_op("TextSplit", 2, infer_split);
  op.constant_inputs = 1u << 1;
  return op;
}

}  // namespace

std::span<const OpDef> mcc_text_ops() {
  static const OpDef ops[] = {
      text_op(kTextIds, 1, infer_ids),
      text_op(kTextStrings, 1, infer_strings),
      text_op("TextConcat", 2, infer_concat),
      text_op("TextCount", 1, infer_ids_of_ids),
      split_op(),
      text_op("TextNormalize", 1, infer_normalize),
      text_op("TextMatch", 1, infer_match),
      text_op("TextParse", 1, infer_parse),
      text_op("TextFormat", 1, infer_format),
      text_op("TextRank", 1, infer_ids_of_ids),
  };
  return ops;
}

bool is_text_op(const OpDef& op) { return op.domain == "mcc" && op.name.starts_with("Text"); }

}  // namespace mcc::graph
