#include "tuner/boosted_trees.h"

#include <xgboost/c_api.h>

#include <limits>

#include "support/check.h"

namespace mcc::tuner {

namespace {

void must(int status) { MCC_CHECK(status == 0, "XGBoost: ", XGBGetLastError()); }

class Matrix {
 public:
  Matrix(const std::vector<float>& data, size_t columns) {
    must(XGDMatrixCreateFromMat(data.data(), data.size() / columns, columns,
                                std::numeric_limits<float>::quiet_NaN(), &handle));
  }
  ~Matrix() { XGDMatrixFree(handle); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  DMatrixHandle handle = nullptr;
};

// Prediction of each row, without the transformation of an objective.
std::span<const float> margins(BoosterHandle booster, const Matrix& matrix, bool is_training) {
  std::string config = std::string(R"({"type": 1, "training": )") + (is_training ? "true" : "false") +
                       R"(, "iteration_begin": 0, "iteration_end": 0, "strict_shape": false})";
  const bst_ulong* shape = nullptr;
  bst_ulong dimensions = 0;
  const float* values = nullptr;
  must(XGBoosterPredictFromDMatrix(booster, matrix.handle, config.c_str(), &shape, &dimensions, &values));
  size_t count = 1;
  for (bst_ulong d = 0; d < dimensions; ++d)
    count *= shape[d];
  return {values, count};
}

}  // namespace

struct BoostedTrees::Impl {
  size_t columns = 0;
  BoosterHandle booster = nullptr;
  ~Impl() { XGBoosterFree(booster); }

  void configure() {
    must(XGBoosterSetParam(booster, "num_feature", std::to_string(columns).c_str()));
    // Ansor's settings; a coarse histogram and shallower trees, since there are few samples.
    const std::pair<const char*, const char*> kSettings[] = {{"booster", "gbtree"},
                                                             {"tree_method", "hist"},
                                                             {"max_bin", "64"},
                                                             {"max_depth", "6"},
                                                             {"eta", "0.2"},
                                                             {"gamma", "0.003"},
                                                             {"min_child_weight", "1"},
                                                             {"lambda", "1"},
                                                             {"base_score", "0"},
                                                             {"nthread", "1"},
                                                             {"seed", "0"},
                                                             {"verbosity", "0"},
                                                             {"objective", "reg:squarederror"},
                                                             {"disable_default_eval_metric", "1"}};
    for (const auto& [name, value] : kSettings)
      must(XGBoosterSetParam(booster, name, value));
  }
};

BoostedTrees::BoostedTrees(size_t columns) : impl_(std::make_unique<Impl>()) {
  impl_->columns = columns;
  must(XGBoosterCreate(nullptr, 0, &impl_->booster));
  impl_->configure();
}

BoostedTrees::~BoostedTrees() = default;

void BoostedTrees::load(std::span<const char> bytes) {
  must(XGBoosterLoadModelFromBuffer(impl_->booster, bytes.data(), bytes.size()));
  bst_ulong features = 0;
  must(XGBoosterGetNumFeature(impl_->booster, &features));
  MCC_CHECK(features == impl_->columns, "trees over ", features, " features, expected ", impl_->columns);
  impl_->configure();
}

std::string BoostedTrees::save() const {
  bst_ulong size = 0;
  const char* bytes = nullptr;
  must(XGBoosterSaveModelToBuffer(impl_->booster, R"({"format": "ubj"})", &size, &bytes));
  return {bytes, size};
}

void BoostedTrees::fit(std::span<const Sample> samples, int trees) {
  std::vector<float> data;
  for (const Sample& s : samples)
    data.insert(data.end(), s.rows.begin(), s.rows.end());
  if (data.empty()) return;
  Matrix matrix(data, impl_->columns);
  size_t rows = data.size() / impl_->columns;
  std::vector<float> gradient(rows), hessian(rows);
  for (int t = 0; t < trees; ++t) {
    std::span<const float> predicted = margins(impl_->booster, matrix, true);
    MCC_CHECK(predicted.size() == rows, "XGBoost gave ", predicted.size(), " predictions for ", rows,
              " rows");
    size_t at = 0;
    for (const Sample& s : samples) {
      size_t count = s.rows.size() / impl_->columns;
      double sum = 0;
      for (size_t r = 0; r < count; ++r)
        sum += predicted[at + r];
      for (size_t r = 0; r < count; ++r, ++at) {
        // All rows of a program move at once: each by its share of the step.
        gradient[at] = static_cast<float>((sum - s.label) * s.weight);
        hessian[at] = static_cast<float>(static_cast<double>(count) * s.weight);
      }
    }
    must(XGBoosterBoostOneIter(impl_->booster, matrix.handle, gradient.data(), hessian.data(), rows));
  }
}

std::vector<double> BoostedTrees::predict(std::span<const std::span<const float>> programs) const {
  std::vector<double> sums(programs.size(), 0);
  int rounds = 0;
  std::vector<float> data;
  for (const auto& p : programs)
    data.insert(data.end(), p.begin(), p.end());
  must(XGBoosterBoostedRounds(impl_->booster, &rounds));
  if (data.empty() || rounds == 0) return sums;
  Matrix matrix(data, impl_->columns);
  std::span<const float> predicted = margins(impl_->booster, matrix, false);
  size_t at = 0;
  for (size_t p = 0; p < programs.size(); ++p) {
    for (size_t r = 0; r < programs[p].size() / impl_->columns; ++r)
      sums[p] += predicted[at++];
  }
  return sums;
}

}  // namespace mcc::tuner
