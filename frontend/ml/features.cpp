// Operators that make features: Scaler, Normalizer, Binarizer, Imputer, ArrayFeatureExtractor, FeatureVectorizer. And ZipMap, which
// gives names to them.
#include <algorithm>
#include <cmath>

#include "frontend/ml/ml_ops.h"

namespace mcc::frontend {

namespace {

// One value for all features, or one for each: along the last axis.
bool expect_features(Expansion& e, const char* name, size_t got) {
  return e.expect(e.rank(0) >= 1, "input 'X': expected at least one dimension") &&
         e.expect(got == 1 || static_cast<int64_t>(got) == e.last_size(0), "attribute '", name,
                  "': expected 1 or ", e.last_size(0), " values, got ", got);
}

// (x - offset) * scale
void scaler(Expansion& e) {
  const ElementType element = real_type(e.element(0));
  Operand y = e.element(0) == element ? e.in(0) : e.converted(e.in(0), element);
  for (const auto& [name, type] : {std::pair{"offset", "Sub"}, std::pair{"scale", "Mul"}}) {
    const std::vector<double> values = e.numbers(name);
    if (values.empty()) continue;
    if (!expect_features(e, name, values.size())) return;
    y = e.op(type, {y, e.reals(element, {static_cast<int64_t>(values.size())}, values)});
  }
  e.result(0, element == ElementType::f32 ? y : e.converted(y, ElementType::f32));
}

// By the largest number, the sum of the magnitudes, or the length of each row; rows that have 0 there stay as they are.
void normalizer(Expansion& e) {
  const std::optional<Rows> rows = rows_of(e, ElementType::f32);
  if (!rows) return;
  const std::string norm = e.word("norm");
  const char* reduction = norm == "MAX"  ? "ReduceMax"
                          : norm == "L1" ? "ReduceL1"
                          : norm == "L2" ? "ReduceL2"
                                         : nullptr;
  if (!e.expect(reduction, "attribute 'norm': expected MAX, L1 or L2, got ", norm)) return;
  const Operand size = e.op(reduction, {rows->x, e.ints({1})});
  const Operand none = e.op("Equal", {size, e.scalar(ElementType::f32, 0)});
  const Operand y = e.op("Div", {rows->x, e.op("Where", {none, e.scalar(ElementType::f32, 1), size})});
  e.result(0, e.rank(0) == 1 ? e.reshaped(y, e.shape(0)) : y);
}

void binarizer(Expansion& e) {
  const ElementType element = e.element(0), real = real_type(element);
  const Operand x = element == real ? e.in(0) : e.converted(e.in(0), real);
  const Operand is_more = e.op("Greater", {x, e.scalar(real, e.number("threshold"))});
  e.result(0, e.op("Where", {is_more, e.scalar(element, 1), e.scalar(element, 0)}));
}

// A value that means that there is none gives way to another one.
void imputer(Expansion& e) {
  const ElementType element = e.element(0);
  const bool is_real = is_float(element);
  const std::vector<double> numbers = e.numbers("imputed_value_floats");
  const std::vector<int64_t> integers = e.integers("imputed_value_int64s");
  const char* name = is_real ? "imputed_value_floats" : "imputed_value_int64s";
  const size_t count = is_real ? numbers.size() : integers.size();
  if (!e.expect(count > 0, "attribute '", name, "' is missing: input 'X' is ", to_text(element)) ||
      !expect_features(e, name, count))
    return;
  Operand values, replaced;
  bool is_nan = false;
  if (is_real) {
    values = e.reals(element, {static_cast<int64_t>(count)}, numbers);
    is_nan = std::isnan(e.number("replaced_value_float"));
    replaced = e.scalar(element, e.number("replaced_value_float"));
  } else {
    values = e.ints(integers);
    replaced = e.ints({e.integer("replaced_value_int64")});
    if (element != ElementType::i64) {
      values = e.converted(values, element);
      replaced = e.converted(replaced, element);
    }
  }
  const Operand is_missing = is_nan ? e.op("IsNaN", {e.in(0)}) : e.op("Equal", {e.in(0), replaced});
  e.result(0, e.op("Where", {is_missing, values, e.in(0)}));
}

// Places of the last axis. What has one dimension becomes one row.
void extractor(Expansion& e) {
  if (!e.expect(e.rank(0) >= 1, "input 'X': expected at least one dimension")) return;
  const bool is_open = std::any_of(e.sizes(1).begin(), e.sizes(1).end(), Expansion::is_open);
  const int64_t count = is_open ? -1 : e.count(1);
  const Operand picked = e.op("Gather", {e.in(0), e.reshaped(e.in(1), {count})}, {{"axis", int64_t{-1}}});
  e.result(0, e.rank(0) == 1 ? e.reshaped(picked, {1, count}) : picked);
}

// Rows one behind the other, each cut or filled up with 0 to the width that the attribute gives.
void vectorizer(Expansion& e) {
  const std::vector<int64_t> widths = e.integers("inputdimensions");
  if (!expect_count(e, "inputdimensions", widths.size(), static_cast<size_t>(e.num_inputs()))) return;
  std::vector<Operand> parts;
  for (int i = 0; i < e.num_inputs(); ++i) {
    const std::vector<int64_t>& shape = e.sizes(i);
    const int64_t width = widths[static_cast<size_t>(i)];
    if (!e.expect(shape.size() == 1 || shape.size() == 2, "input ", i,
                  ": expected 1 or 2 dimensions, got shape ", shape_text(shape)) ||
        !e.expect(width >= 0 && width < (1 << 30), "attribute 'inputdimensions': ", width, " is no width")) {
      return;
    }
    const int64_t rows = shape.size() == 1 ? 1 : shape[0], got = e.last_size(i);
    if (Expansion::is_open(got)) return;
    Operand x = e.element(i) == ElementType::f32 ? e.in(i) : e.converted(e.in(i), ElementType::f32);
    if (shape.size() == 1) x = e.reshaped(x, {rows, got});
    if (got > width) x = e.slice(x, 1, 0, width);
    if (got < width) x = e.op("Pad", {x, e.ints({0, 0, 0, width - got})});
    parts.push_back(x);
  }
  e.result(0, parts.size() == 1 ? parts[0] : e.op("Concat", parts, {{"axis", int64_t{1}}}));
}

// The tensor as it is, a row for each map.
void zip_map(Expansion& e) {
  const std::vector<std::string> words = e.words("classlabels_strings");
  const std::vector<int64_t> numbers = e.integers("classlabels_int64s");
  const size_t count = words.empty() ? numbers.size() : words.size();
  if (!e.expect(words.empty() || numbers.empty(), "expected one of the attributes 'classlabels_strings' and "
                                                  "'classlabels_int64s', got both") ||
      !e.expect(e.rank(0) == 1 || e.rank(0) == 2, "input 'X': expected 1 or 2 dimensions, got shape ",
                shape_text(e.sizes(0)))) {
    return;
  }
  const int64_t columns = e.last_size(0);
  if (Expansion::is_open(columns)) return;
  if (!e.expect(static_cast<int64_t>(count) == columns, "expected a key for each of ", columns, " columns, got ", count)) return;
  const Operand rows = e.rank(0) == 1 ? e.reshaped(e.in(0), {1, columns}) : e.in(0);
  e.result(0, e.with_keys(rows, words.empty() ? Setting("keys", numbers) : Setting("keys", words)));
}

}  // namespace

std::span<const MlOp> feature_ops() {
  static constexpr MlOp kOps[] = {
      {"Scaler", scaler},   {"Normalizer", normalizer},           {"Binarizer", binarizer},
      {"Imputer", imputer}, {"ArrayFeatureExtractor", extractor}, {"FeatureVectorizer", vectorizer},
      {"ZipMap", zip_map},
  };
  return kOps;
}

}  // namespace mcc::frontend
