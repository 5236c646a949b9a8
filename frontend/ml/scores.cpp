// Scores of classifiers and regressors, and the labels that follow from them.
#include <cmath>
#include <numeric>

#include "frontend/ml/ml_ops.h"

namespace mcc::frontend {

std::optional<Rows> rows_of(Expansion& e, ElementType element) {
  const int64_t rank = e.rank(0);
  if (!e.expect(rank == 1 || rank == 2, "input 'X': expected 1 or 2 dimensions, got shape ",
                shape_text(e.sizes(0))))
    return std::nullopt;
  Rows rows{e.in(0), rank == 1 ? 1 : e.sizes(0)[0], e.last_size(0)};
  if (Expansion::is_open(rows.features)) return std::nullopt;
  if (e.element(0) != element) rows.x = e.converted(rows.x, element);
  if (rank == 1) rows.x = e.reshaped(rows.x, {1, rows.features});
  return rows;
}

bool expect_count(Expansion& e, const std::string& name, size_t got, size_t wanted) {
  return e.expect(got == wanted, "attribute '", name, "': expected ", wanted,
                  wanted == 1 ? " value, got " : " values, got ", got);
}

std::optional<Transform> transform_of(Expansion& e) {
  const std::string name = e.word("post_transform");
  if (name == "NONE") return Transform::none;
  if (name == "SOFTMAX") return Transform::softmax;
  if (name == "LOGISTIC") return Transform::logistic;
  if (name == "SOFTMAX_ZERO") return Transform::softmax_zero;
  if (name == "PROBIT") return Transform::probit;
  e.expect(false,
           "attribute 'post_transform': expected NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO or PROBIT, got ",
           name);
  return std::nullopt;
}

namespace {

// Softmax of those numbers that are not 0, which stay 0.
Operand softmax_zero(Expansion& e, const Operand& scores, ElementType element) {
  auto number = [&](double value) { return e.scalar(element, value); };
  const Operand axis = e.ints({-1});
  const Operand largest = e.op("ReduceMax", {scores, axis});
  const Operand is_there = e.op("Greater", {e.op("Abs", {scores}), number(1e-7)});
  const Operand powers = e.op("Where", {is_there, e.op("Exp", {e.op("Sub", {scores, largest})}), number(0)});
  const Operand total = e.op("ReduceSum", {powers, axis});
  const Operand none = e.op("Equal", {total, number(0)});
  return e.op("Div", {powers, e.op("Where", {none, number(1), total})});
}

// sqrt(2) * erf^-1(2 v - 1), by the approximation of S. Winitzki ("A handy approximation for the error function and its inverse",
// 2008) that onnxruntime uses, too.
Operand probit(Expansion& e, const Operand& scores, ElementType element) {
  constexpr double kA = 0.147, kPi = 3.14159;
  auto number = [&](double value) { return e.scalar(element, value); };
  const Operand x = e.op("Sub", {e.op("Mul", {scores, number(2)}), number(1)});
  const Operand log = e.op("Log", {e.op("Mul", {e.op("Sub", {number(1), x}), e.op("Add", {number(1), x})})});
  const Operand v = e.op("Add", {e.op("Mul", {log, number(0.5)}), number(2 / (kPi * kA))});
  const Operand root = e.op("Sqrt", {e.op("Sub", {e.op("Mul", {v, v}), e.op("Mul", {log, number(1 / kA)})})});
  const Operand y = e.op("Mul", {e.op("Sqrt", {e.op("Sub", {root, v})}), number(std::sqrt(2.0))});
  return e.op("Where", {e.op("Less", {x, number(0)}), e.op("Neg", {y}), y});
}

}  // namespace

Operand transformed(Expansion& e, const Operand& scores, ElementType element, Transform transform) {
  switch (transform) {
    case Transform::none:
      return scores;
    case Transform::softmax:
      return e.op("Softmax", {scores}, {{"axis", int64_t{-1}}});
    case Transform::logistic:
      return e.op("Sigmoid", {scores});
    case Transform::softmax_zero:
      return softmax_zero(e, scores, element);
    case Transform::probit:
      return probit(e, scores, element);
  }
  MCC_UNREACHABLE("unknown transform of scores");
}

Operand both_scores(Expansion& e, const Operand& score, ElementType element, bool is_probability,
                    Transform transform) {
  const bool has_transform = transform == Transform::logistic || transform == Transform::probit;
  const bool is_opposite = !is_probability || transform == Transform::logistic;
  const Operand other = is_opposite && transform != Transform::probit
                            ? e.op("Neg", {score})
                            : e.op("Sub", {e.scalar(element, 1), score});
  const Operand both = e.op("Concat", {other, score}, {{"axis", int64_t{1}}});
  return has_transform ? transformed(e, both, element, transform) : both;
}

Operand best_label(Expansion& e, const Operand& scores, const std::vector<int64_t>& labels) {
  const Operand best = e.op("ArgMax", {scores}, {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}});
  return e.op("Gather", {e.ints(labels), best});
}

Operand label_by_threshold(Expansion& e, const Operand& score, ElementType element, double threshold,
                           int64_t yes, int64_t no) {
  const Operand is_more = e.op("Greater", {e.reshaped(score, {-1}), e.scalar(element, threshold)});
  return e.op("Where", {is_more, e.ints({yes}), e.ints({no})});
}

void give_targets(Expansion& e, const Operand& scores, ElementType element, int64_t targets,
                  Transform transform, ElementType result) {
  const bool is_left = targets == 1 && transform != Transform::probit;
  const Operand y = is_left ? scores : transformed(e, scores, element, transform);
  e.result(0, result == element ? y : e.converted(y, result));
}

ClassLabels class_labels(Expansion& e, const char* numbers) {
  ClassLabels classes{e.integers(numbers), e.words("classlabels_strings")};
  if (!classes.words.empty()) {
    classes.numbers.resize(classes.words.size());
    std::iota(classes.numbers.begin(), classes.numbers.end(), 0);
  }
  return classes;
}

void give_classes(Expansion& e, const ClassLabels& classes, const Operand& labels, const Operand& scores,
                  ElementType element) {
  e.result(0, classes.words.empty() ? labels : e.op("Gather", {e.strings(classes.words), labels}));
  e.result(1, element == ElementType::f32 ? scores : e.converted(scores, ElementType::f32));
}

}  // namespace mcc::frontend
