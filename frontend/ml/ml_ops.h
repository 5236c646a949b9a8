// What the operators of ai.onnx.ml share, and their families.
#pragma once

#include "frontend/contrib/expansion.h"

namespace mcc::frontend {

inline constexpr const char* kMlDomain = "ai.onnx.ml";
inline constexpr const char* kTrainingDomain = "ai.onnx.preview.training";

struct MlOp {
  const char* name;
  void (*expand)(Expansion&);
  const char* domain = kMlDomain;
};

std::span<const MlOp> tree_ops();
std::span<const MlOp> linear_ops();
std::span<const MlOp> svm_ops();
std::span<const MlOp> feature_ops();
std::span<const MlOp> label_ops();
std::span<const MlOp> text_ops();
std::span<const MlOp> training_ops();

// ---- Inputs ----

// Input 0 as rows of numbers, [N, features]; one dimension is one row. There may be any number of rows (Expansion::sizes). Nothing
// after an error.
struct Rows {
  Operand x;
  int64_t count = 0, features = 0;
};
std::optional<Rows> rows_of(Expansion& e, ElementType element);
// In which numbers of this type are computed: f64 for itself, f32 for all else.
inline ElementType real_type(ElementType element) {
  return element == ElementType::f64 ? ElementType::f64 : ElementType::f32;
}
bool expect_count(Expansion& e, const std::string& name, size_t got, size_t wanted);

// ---- Scores (scores.cpp): as onnxruntime has them where ONNX's text leaves it open ----

enum class Transform { none, softmax, logistic, softmax_zero, probit };
// The attribute "post_transform"; nothing after an error.
std::optional<Transform> transform_of(Expansion& e);
// Of scores [N, classes] in f32 or f64.
Operand transformed(Expansion& e, const Operand& scores, ElementType element, Transform transform);
// The two classes' scores, of the only one that was computed [N, 1]: a probability s becomes 1 - s and s, what may be negative -s and s.
Operand both_scores(Expansion& e, const Operand& score, ElementType element, bool is_probability,
                    Transform transform);

// The result of a regressor with scores [N, targets]. Of one target onnxruntime carries out no other transform than PROBIT.
void give_targets(Expansion& e, const Operand& scores, ElementType element, int64_t targets,
                  Transform transform, ElementType result);

// ---- Labels ----

// Of a classifier: numbers, or words; the numbers are then the words' positions.
struct ClassLabels {
  std::vector<int64_t> numbers;
  std::vector<std::string> words;
};
// The attribute of that name, or "classlabels_strings".
ClassLabels class_labels(Expansion& e, const char* numbers);

// Both results of a classifier.
void give_classes(Expansion& e, const ClassLabels& classes, const Operand& labels, const Operand& scores,
                  ElementType element);

// The number for each row's largest score; the first of equal ones.
Operand best_label(Expansion& e, const Operand& scores, const std::vector<int64_t>& labels);
// yes where the score [N, 1] is more than the threshold, else no: [N].
Operand label_by_threshold(Expansion& e, const Operand& score, ElementType element, double threshold,
                           int64_t yes, int64_t no);

}  // namespace mcc::frontend
