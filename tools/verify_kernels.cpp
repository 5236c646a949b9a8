#include <cmath>
#include <memory>

#include "codegen/codegen.h"
#include "graph/passes/fuse.h"
#include "graph/passes/passes.h"
#include "tensor/schedule/weight_order.h"
#include "tools/evaluator.h"
#include "tools/kernels.h"
#include "tools/verify.h"
#include "tuner/default_schedule.h"

namespace mcc::tools {

namespace {

using graph::Constant;

Result<KernelSet> kernels_of(const std::string& path, const tensor::Target& target,
                             const VerifyOptions& options) {
  Result<graph::Evaluator> evaluate = jit_evaluator();
  if (!evaluate.ok()) return evaluate.errors();
  Result<frontend::ImportedModel> model = frontend::import_onnx(path, options.import, *evaluate);
  if (!model.ok()) return model.errors();
  graph::OptimizeOptions optimize;
  optimize.target = target;
  optimize.evaluate = *evaluate;
  Status status = graph::optimize(model->graph, optimize);
  if (!status.ok()) return status.errors();
  return collect_kernels(model->graph, graph::fuse(model->graph));
}

std::vector<int64_t> shape_of(const tensor::Buffer& buffer) { return graph::static_shape(buffer.shape()); }

// What the compiled kernel computes, with outputs that start out as NaN bits: an element that is not written shows.
Result<std::vector<Constant>> run_compiled(const tensor::Func& f, const tensor::Target& target,
                                           const std::vector<Constant>& inputs) {
  Result<std::unique_ptr<codegen::Jit>> jit = codegen::Jit::create(target);
  if (!jit.ok()) return jit.errors();
  std::vector<Constant> outputs;
  std::vector<void*> buffers;
  for (const Constant& input : inputs)
    buffers.push_back(const_cast<std::byte*>(input.bytes().data()));
  for (size_t i = inputs.size(); i < f.params.size(); ++i) {
    const std::vector<int64_t> shape = shape_of(f.params[i]);
    const auto size =
        static_cast<size_t>(graph::static_count(f.params[i].shape()) * byte_size(f.params[i].element()));
    auto memory = std::make_shared<std::vector<std::byte>>(size, std::byte{0xff});
    buffers.push_back(memory->data());
    outputs.emplace_back(f.params[i].element(), shape, std::span<const std::byte>(*memory), memory);
  }
  const tensor::Schedule schedule = tuner::default_schedule(f, target);
  std::vector<std::vector<std::byte>> ordered;
  for (const tensor::WeightOrder& order : tensor::weight_orders(f, schedule.trace())) {
    const auto* weights = static_cast<const std::byte*>(buffers[order.parameter]);
    ordered.push_back(tensor::reordered(order, {weights, static_cast<size_t>(order.bytes())}));
    buffers[order.parameter] = ordered.back().data();
  }
  Status status = (*jit)->run(schedule.func(), buffers);
  if (!status.ok()) return status.errors();
  return outputs;
}

CaseResult verify_kernel(const Kernel& kernel, const tensor::Target& target, const VerifyOptions& options) {
  CaseResult result;
  const tensor::Func& f = kernel.func;
  std::vector<Constant> inputs;
  std::vector<graph::TensorType> output_types;
  for (size_t i = 0; i < f.params.size(); ++i) {
    const tensor::Buffer& b = f.params[i];
    if (static_cast<int>(i) < f.num_inputs())
      inputs.push_back(random_tensor(text(b.name(), i), b.element(), shape_of(b), 1));
    else
      output_types.push_back({b.element(), b.shape()});
  }
  result.status = CaseStatus::fail;
  Result<std::vector<Constant>> want = graph::interpreter_evaluator()(f, inputs, output_types);
  if (!want.ok()) {
    result.reason = "the interpreter: " + to_text(want.errors());
    return result;
  }
  Result<std::vector<Constant>> got = run_compiled(f, target, inputs);
  if (!got.ok()) {
    result.reason = to_text(got.errors());
    return result;
  }
  for (size_t i = 0; i < got->size(); ++i) {
    // Sums are long and their order is free: what counts is the error against the output's range.
    Tolerance tolerance{options.rtol.value_or(1e-3),
                        options.atol.value_or(1e-4) * std::max(1.0, largest_finite((*want)[i]))};
    const Comparison comparison = compare((*got)[i], (*want)[i], tolerance_for((*want)[i], tolerance));
    if (comparison.same) continue;
    result.reason = text("output ", i, ": ", comparison.reason);
    return result;
  }
  result.status = CaseStatus::pass;
  return result;
}

}  // namespace

Result<std::vector<CaseResult>> verify_kernels(const std::string& model, const VerifyOptions& options,
                                               const CaseProgress& progress) {
  Result<tensor::Target> target = codegen::make_target(options.target);
  if (!target.ok()) return target.errors();
  // Says so where a GPU's kernels cannot be run.
  if (target->kind == tensor::TargetKind::cuda) return codegen::Jit::create(*target).errors();
  if (!codegen::runs_here(*target)) {
    return Diagnostic{ErrorKind::environment, "", text("this machine cannot run code for ", options.target),
                      ""};
  }
  Result<KernelSet> set = kernels_of(model, *target, options);
  if (!set.ok()) return set.errors();
  std::vector<std::string> names;
  for (const Kernel& kernel : set->kernels)
    names.push_back(kernel.symbol);
  return run_isolated(
      names, [&](size_t i) { return verify_kernel(set->kernels[i], *target, options); }, options, progress);
}

}  // namespace mcc::tools
