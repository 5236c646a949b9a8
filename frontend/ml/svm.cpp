// SVMClassifier, SVMRegressor.
#include <numeric>

#include "frontend/ml/ml_ops.h"

namespace mcc::frontend {

namespace {

constexpr ElementType kElement = ElementType::f32;

// The kernel of each row with each vector: [N, vectors].
std::optional<Operand> kernels(Expansion& e, const Rows& rows, const std::vector<double>& vectors,
                               int64_t count, const std::string& type) {
  if (!expect_count(e, "support_vectors", vectors.size(), static_cast<size_t>(count * rows.features)))
    return std::nullopt;
  std::vector<double> parameters = e.numbers("kernel_params");
  if (!parameters.empty() && !expect_count(e, "kernel_params", parameters.size(), 3)) return std::nullopt;
  parameters.resize(3);
  const Operand v = e.reals(kElement, {count, rows.features}, vectors);
  auto number = [&](double value) { return e.scalar(kElement, value); };
  if (type == "RBF") {
    const Operand difference = e.op("Sub", {e.reshaped(rows.x, {rows.count, 1, rows.features}), v});
    const Operand distance = e.op("ReduceSumSquare", {difference, e.ints({-1})}, {{"keepdims", int64_t{0}}});
    return e.op("Exp", {e.op("Mul", {distance, number(-parameters[0])})});
  }
  const Operand product = e.op("Gemm", {rows.x, v}, {{"transB", int64_t{1}}});
  if (type == "LINEAR") return product;
  if (!e.expect(type == "POLY" || type == "SIGMOID",
                "attribute 'kernel_type': expected LINEAR, POLY, RBF or SIGMOID, got ", type))
    return std::nullopt;
  const Operand inner = e.op("Add", {e.op("Mul", {product, number(parameters[0])}), number(parameters[1])});
  return type == "SIGMOID" ? e.op("Tanh", {inner}) : e.op("Pow", {inner, number(parameters[2])});
}

void regressor(Expansion& e) {
  const std::optional<Transform> transform = transform_of(e);
  if (!transform) return;
  const std::optional<Rows> rows = rows_of(e, kElement);
  const int64_t supports = e.integer("n_supports");
  if (!rows || !e.expect(supports >= 0, "attribute 'n_supports': expected at least 0, got ", supports))
    return;
  const std::vector<double> coefficients = e.numbers("coefficients"), rho = e.numbers("rho");
  const int64_t width = supports > 0 ? supports : rows->features;
  if (!expect_count(e, "coefficients", coefficients.size(), static_cast<size_t>(width)) ||
      !e.expect(!rho.empty(), "attribute 'rho': expected one value"))
    return;
  std::optional<Operand> terms = rows->x;
  if (supports > 0) terms = kernels(e, *rows, e.numbers("support_vectors"), supports, e.word("kernel_type"));
  if (!terms) return;
  Operand y =
      e.op("Gemm", {*terms, e.reals(kElement, {width, 1}, coefficients), e.reals(kElement, {1}, {rho[0]})});
  if (e.integer("one_class") != 0)
    return e.result(0, e.op("Where", {e.op("Greater", {y, e.scalar(kElement, 0)}), e.scalar(kElement, 1),
                                      e.scalar(kElement, -1)}));
  give_targets(e, y, kElement, 1, *transform, kElement);
}

// ---- SVMClassifier ----

// Every two classes have a score of their own: positive ones speak for the first.
struct Pairs {
  Operand scores;  // [N, pairs]
  Operand votes;   // [N, classes]
};

std::optional<Pairs> pairs_of(Expansion& e, const Rows& rows, const std::vector<int64_t>& vectors,
                              int64_t classes) {
  const int64_t count = std::accumulate(vectors.begin(), vectors.end(), int64_t{0}),
                pairs = classes * (classes - 1) / 2;
  const std::vector<double> coefficients = e.numbers("coefficients");
  std::vector<double> rho = e.numbers("rho");
  if (!expect_count(e, "vectors_per_class", vectors.size(), static_cast<size_t>(classes)) ||
      !expect_count(e, "coefficients", coefficients.size(), static_cast<size_t>((classes - 1) * count)) ||
      !expect_count(e, "rho", rho.size(), static_cast<size_t>(pairs))) {
    return std::nullopt;
  }
  const std::optional<Operand> k =
      kernels(e, rows, e.numbers("support_vectors"), count, e.word("kernel_type"));
  if (!k) return std::nullopt;
  // Coefficients are [classes - 1, vectors]: of a vector of class i those against the other classes, in order.
  std::vector<double> weights(static_cast<size_t>(count * pairs)),
      ballots(static_cast<size_t>(pairs * classes)), seconds(static_cast<size_t>(classes));
  std::vector<int64_t> begin{0};
  for (int64_t n : vectors)
    begin.push_back(begin.back() + n);
  int64_t pair = 0;
  for (int64_t i = 0; i < classes; ++i) {
    for (int64_t j = i + 1; j < classes; ++j, ++pair) {
      for (const auto& [own, row] : {std::pair{i, j - 1}, std::pair{j, i}}) {
        for (int64_t v = begin[static_cast<size_t>(own)]; v < begin[static_cast<size_t>(own) + 1]; ++v)
          weights[static_cast<size_t>(v * pairs + pair)] = coefficients[static_cast<size_t>(row * count + v)];
      }
      ballots[static_cast<size_t>(pair * classes + i)] = 1;
      ballots[static_cast<size_t>(pair * classes + j)] = -1;
      seconds[static_cast<size_t>(j)] += 1;
    }
  }
  Pairs p;
  p.scores = e.op("Gemm", {*k, e.reals(kElement, {count, pairs}, weights), e.reals(kElement, {pairs}, rho)});
  const Operand is_first = e.converted(e.op("Greater", {p.scores, e.scalar(kElement, 0)}), kElement);
  p.votes = e.op("Gemm", {is_first, e.reals(kElement, {pairs, classes}, ballots),
                          e.reals(kElement, {classes}, seconds)});
  return p;
}

// Probabilities of classes [N, classes] from the pairs' scores.
std::optional<Operand> probabilities(Expansion& e, const Pairs& p, int64_t classes) {
  const int64_t pairs = classes * (classes - 1) / 2;
  const std::vector<double> a = e.numbers("prob_a"), b = e.numbers("prob_b");
  if (!expect_count(e, "prob_a", a.size(), static_cast<size_t>(pairs)) ||
      !expect_count(e, "prob_b", b.size(), static_cast<size_t>(pairs)))
    return std::nullopt;
  const Operand line =
      e.op("Add", {e.op("Mul", {p.scores, e.reals(kElement, {pairs}, a)}), e.reals(kElement, {pairs}, b)});
  const Operand first = e.op("Clip", {e.op("Sigmoid", {e.op("Neg", {line})}), e.scalar(kElement, 1e-7),
                                      e.scalar(kElement, 1 - 1e-7)});
  return e.own("CouplePairs", {first}, {{"classes", classes}});
}

void classifier(Expansion& e) {
  const std::optional<Transform> transform = transform_of(e);
  if (!transform) return;
  const std::optional<Rows> rows = rows_of(e, kElement);
  if (!rows) return;
  const ClassLabels labels = class_labels(e, "classlabels_ints");
  const std::vector<int64_t> vectors = e.integers("vectors_per_class");
  const auto classes = static_cast<int64_t>(labels.numbers.size());
  if (!e.expect(classes >= 2, "attribute 'classlabels_ints': expected at least 2 classes, got ", classes))
    return;
  if (vectors.empty()) {  // as liblinear has it: a line of coefficients for each class
    const std::vector<double> coefficients = e.numbers("coefficients"), rho = e.numbers("rho");
    if (!expect_count(e, "coefficients", coefficients.size(),
                      static_cast<size_t>(classes * rows->features)) ||
        !e.expect(!rho.empty(), "attribute 'rho': expected one value")) {
      return;
    }
    const Operand weights = e.reals(kElement, {classes, rows->features}, coefficients);
    const Operand scores =
        e.op("Gemm", {rows->x, weights, e.reals(kElement, {1}, {rho[0]})}, {{"transB", int64_t{1}}});
    return give_classes(e, labels, best_label(e, scores, labels.numbers), transformed(e, scores, kElement, *transform),
                        kElement);
  }
  const std::optional<Pairs> pairs = pairs_of(e, *rows, vectors, classes);
  if (!pairs) return;
  const Operand label = best_label(e, pairs->votes, labels.numbers);
  if (!e.numbers("prob_a").empty()) {
    const std::optional<Operand> scores = probabilities(e, *pairs, classes);
    if (scores) give_classes(e, labels, label, transformed(e, *scores, kElement, *transform), kElement);
    return;
  }
  if (classes > 2)
    return give_classes(e, labels, label, transformed(e, pairs->scores, kElement, *transform), kElement);
  give_classes(e, labels, label, both_scores(e, pairs->scores, kElement, *transform != Transform::none, *transform),
               kElement);
}

}  // namespace

std::span<const MlOp> svm_ops() {
  static constexpr MlOp kOps[] = {{"SVMClassifier", classifier}, {"SVMRegressor", regressor}};
  return kOps;
}

}  // namespace mcc::frontend
