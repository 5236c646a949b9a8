// Operators on labels: LabelEncoder, CategoryMapper, OneHotEncoder.
#include <algorithm>
#include <cmath>

#include "frontend/ml/ml_ops.h"

namespace mcc::frontend {

namespace {

// A list of the labels that an attribute names, by type: NAME_int64s, NAME_floats, NAME_strings, NAME_tensor.
// Nothing after an error.
std::optional<graph::Constant> list_of(Expansion& e, const std::string& name) {
  std::optional<graph::Constant> found;
  int given = 0;
  if (e.is_given(name + "_int64s")) {
    found = graph::Constant::ints(e.integers(name + "_int64s"));
    ++given;
  }
  if (e.is_given(name + "_floats")) {
    const std::vector<double> values = e.numbers(name + "_floats");
    found = graph::Constant::of(ElementType::f32, {static_cast<int64_t>(values.size())},
                                std::vector<float>(values.begin(), values.end()));
    ++given;
  }
  if (e.is_given(name + "_strings")) {
    std::vector<std::string> values = e.words(name + "_strings");
    const auto count = static_cast<int64_t>(values.size());
    found = graph::Constant::strings({count}, std::move(values));
    ++given;
  }
  if (e.is_given(name + "_tensor")) {
    found = e.constant_of(name + "_tensor");
    if (!found) return std::nullopt;
    ++given;
  }
  if (!e.expect(given == 1, "expected one of the attributes '", name, "_int64s', '", name, "_floats', '",
                name, "_strings' and '", name, "_tensor', got ", given))
    return std::nullopt;
  if (!e.expect(found->shape().size() == 1 && found->count() > 0, "attribute '", name,
                "_...': expected a list with at least one value, got shape ", shape_text(found->shape())))
    return std::nullopt;
  return found;
}

Operand default_of(Expansion& e, ElementType element) {
  if (e.is_given("default_tensor")) {
    const std::optional<graph::Constant> given = e.constant_of("default_tensor");
    if (!given || !e.expect(given->count() == 1 && given->element() == element,
                            "attribute 'default_tensor': expected one ", to_text(element)))
      return "";
    return e.reshaped(e.constant(*given), {});
  }
  if (element == ElementType::string) return e.reshaped(e.strings({e.word("default_string")}), {});
  if (element == ElementType::i64) return e.reshaped(e.ints({e.integer("default_int64")}), {});
  return e.scalar(element, is_float(element) ? e.number("default_float") : -1);
}

// The value that stands where the key does, else the default. The first of equal keys counts.
void map_labels(Expansion& e, const graph::Constant& keys, const graph::Constant& values,
                const Operand& otherwise) {
  const ElementType element = e.element(0);
  if (!e.expect(keys.count() == values.count(), "expected as many values as keys, got ", values.count(),
                " and ", keys.count()) ||
      !e.expect(keys.element() == element, "input 'X' is ", to_text(element), ", its keys are ",
                to_text(keys.element()))) {
    return;
  }
  const Operand x = e.op("Unsqueeze", {e.in(0), e.ints({-1})});
  Operand is_key = e.op("Equal", {x, e.constant(keys)});
  if (is_float(element)) {
    std::vector<int32_t> are_nan;
    for (int64_t k = 0; k < keys.count(); ++k)
      are_nan.push_back(std::isnan(keys.number_at(k)) ? 1 : 0);
    if (std::count(are_nan.begin(), are_nan.end(), 1) > 0) {
      const Operand nan =
          e.op("And", {e.op("IsNaN", {x}), e.tensor(ElementType::boolean, {keys.count()}, are_nan)});
      is_key = e.op("Or", {is_key, nan});
    }
  }
  const Operand hits = e.converted(is_key, ElementType::i32);
  const Operand place = e.op("ArgMax", {hits}, {{"axis", int64_t{-1}}, {"keepdims", int64_t{0}}});
  const Operand is_there = e.op("ReduceMax", {hits, e.ints({-1})}, {{"keepdims", int64_t{0}}});
  e.result(0, e.op("Where", {e.converted(is_there, ElementType::boolean),
                             e.op("Gather", {e.constant(values), place}), otherwise}));
}

void encoder(Expansion& e) {
  const std::optional<graph::Constant> keys = list_of(e, "keys");
  if (!keys) return;
  const std::optional<graph::Constant> values = list_of(e, "values");
  if (!values) return;
  const Operand otherwise = default_of(e, values->element());
  if (!otherwise.empty()) map_labels(e, *keys, *values, otherwise);
}

// Between words and numbers, in the direction that the input says.
void category_mapper(Expansion& e) {
  const std::vector<std::string> words = e.words("cats_strings");
  const std::vector<int64_t> numbers = e.integers("cats_int64s");
  if (!e.expect(!words.empty() && words.size() == numbers.size(),
                "expected as many strings as numbers in attributes 'cats_strings' and "
                "'cats_int64s', got ",
                words.size(), " and ", numbers.size()))
    return;
  const graph::Constant texts = graph::Constant::strings({static_cast<int64_t>(words.size())}, words),
                        integers = graph::Constant::ints(numbers);
  if (e.element(0) == ElementType::string)
    map_labels(e, texts, integers, default_of(e, ElementType::i64));
  else
    map_labels(e, integers, texts, default_of(e, ElementType::string));
}

// Along a new last axis 1 where the number is the category. One that is none of them gives 0s, also where the attribute `zeros`
// would have the run fail.
void one_hot(Expansion& e) {
  const std::vector<int64_t> categories = e.integers("cats_int64s");
  const std::vector<std::string> words = e.words("cats_strings");
  const bool is_text = e.element(0) == ElementType::string;
  if (!e.expect(is_text ? !words.empty() : !categories.empty(), "attribute '",
                is_text ? "cats_strings" : "cats_int64s", "' is missing"))
    return;
  const Operand x =
      is_text || e.element(0) == ElementType::i64 ? e.in(0) : e.converted(e.in(0), ElementType::i64);
  const Operand is_category =
      e.op("Equal", {e.op("Unsqueeze", {x, e.ints({-1})}), is_text ? e.strings(words) : e.ints(categories)});
  e.result(0, e.converted(is_category, ElementType::f32));
}

}  // namespace

std::span<const MlOp> label_ops() {
  static constexpr MlOp kOps[] = {
      {"LabelEncoder", encoder}, {"CategoryMapper", category_mapper}, {"OneHotEncoder", one_hot}};
  return kOps;
}

}  // namespace mcc::frontend
