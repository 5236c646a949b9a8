// LinearClassifier, LinearRegressor.
#include <algorithm>

#include "frontend/ml/ml_ops.h"

namespace mcc::frontend {

namespace {

// Rows times coefficients [results, features], and intercepts. Coefficients of more results than there are, which converters have
// written, are left out, as onnxruntime does.
std::optional<Operand> linear_scores(Expansion& e, ElementType element, int64_t results) {
  const std::optional<Rows> rows = rows_of(e, element);
  if (!rows) return std::nullopt;
  std::vector<double> coefficients = e.numbers("coefficients");
  const std::vector<double> intercepts = e.numbers("intercepts");
  const auto features = static_cast<size_t>(rows->features), used = static_cast<size_t>(results) * features;
  if (coefficients.size() > used && features > 0 && coefficients.size() % features == 0)
    coefficients.resize(used);
  if (!expect_count(e, "coefficients", coefficients.size(), used)) return std::nullopt;
  if (!intercepts.empty() && !expect_count(e, "intercepts", intercepts.size(), static_cast<size_t>(results)))
    return std::nullopt;
  const Operand weights = e.reals(element, {results, rows->features}, coefficients);
  const Operand bias = intercepts.empty() ? "" : e.reals(element, {results}, intercepts);
  return e.op("Gemm", {rows->x, weights, bias}, {{"transB", int64_t{1}}});
}

void regressor(Expansion& e) {
  const std::optional<Transform> transform = transform_of(e);
  const int64_t targets = e.integer("targets");
  if (!transform || !e.expect(targets >= 1 && targets < (1 << 24),
                              "attribute 'targets': expected at least 1, got ", targets))
    return;
  const ElementType element = real_type(e.element(0));
  if (std::optional<Operand> scores = linear_scores(e, element, targets))
    give_targets(e, *scores, element, targets, *transform, ElementType::f32);
}

void classifier(Expansion& e) {
  const std::optional<Transform> transform = transform_of(e);
  if (!transform) return;
  const ClassLabels labels = class_labels(e, "classlabels_ints");
  const auto coefficients = static_cast<int64_t>(e.numbers("coefficients").size());
  const int64_t features = e.last_size(0);
  if (!e.expect(features > 0 && coefficients > 0 && coefficients % features == 0,
                "attribute 'coefficients': expected as many for each class as the ", features,
                " features, got ", coefficients)) {
    return;
  }
  const auto intercepts = static_cast<int64_t>(e.numbers("intercepts").size());
  const int64_t classes = intercepts > 0 ? intercepts : coefficients / features;
  if (!expect_count(e, "classlabels_ints", labels.numbers.size(), static_cast<size_t>(std::max<int64_t>(2, classes))))
    return;
  const std::optional<Operand> scores = linear_scores(e, ElementType::f32, classes);
  if (!scores) return;
  constexpr ElementType kElement = ElementType::f32;
  if (classes > 1)
    return give_classes(e, labels, best_label(e, *scores, labels.numbers), transformed(e, *scores, kElement, *transform),
                        kElement);
  give_classes(e, labels, label_by_threshold(e, *scores, kElement, 0, labels.numbers[1], labels.numbers[0]),
               both_scores(e, *scores, kElement, true, *transform), kElement);
}

}  // namespace

std::span<const MlOp> linear_ops() {
  static constexpr MlOp kOps[] = {{"LinearClassifier", classifier}, {"LinearRegressor", regressor}};
  return kOps;
}

}  // namespace mcc::frontend
