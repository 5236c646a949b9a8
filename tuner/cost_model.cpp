#include "tuner/cost_model.h"

#include "tuner/analyzer_cpu.h"
#include "tuner/analyzer_gpu.h"
#include "tuner/learned_model.h"
#include "tuner/parallel.h"

namespace mcc::tuner {

namespace {

constexpr std::string_view kNames[] = {"none", "analyzer", "xgboost", "auto"};

// Static: knows the target, learns nothing.
class Analyzer : public CostModel {
 public:
  explicit Analyzer(const tensor::Target& target) : target_(target) {}

  std::vector<double> predict(const Task&, std::span<const Planned> schedules) override {
    return parallel_map<double>(schedules.size(),
                                [&](size_t i) { return -estimate_us(nest_of(schedules[i].func), target_); });
  }
  void learn(const Task&, std::span<const Trial>) override {}

 private:
  tensor::Target target_;
};

}  // namespace

double estimate_us(const Nest& nest, const tensor::Target& target) {
  if (!is_gpu(nest)) return estimate_cpu(nest, target).us;
  return estimate_gpu_us(nest,
                         target.kind == tensor::TargetKind::cuda ? target.gpu : *tensor::find_gpu("H200"));
}

std::unique_ptr<CostModel> make_cost_model(std::string_view name, const tensor::Target& target, uint64_t) {
  if (name == "analyzer") return std::make_unique<Analyzer>(target);
  if (name == "xgboost") return std::make_unique<LearnedModel>(target, LearnedOptions{.has_base = false});
  // What is shipped has learned from CPUs.
  const bool has_trees = target.kind == tensor::TargetKind::cpu;
  if (name == "auto") {
    return std::make_unique<LearnedModel>(
        target, LearnedOptions{.pretrained = has_trees ? shipped_trees() : std::span<const char>()});
  }
  return nullptr;
}

std::vector<std::string_view> cost_model_names() { return {std::begin(kNames), std::end(kNames)}; }

}  // namespace mcc::tuner
