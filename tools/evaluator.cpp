#include "tools/evaluator.h"

#include "tuner/default_schedule.h"
#include "tensor/workload.h"

namespace mcc::tools {
namespace {

// Below this many block instances the interpreter is done before a compiler has started.
constexpr int64_t kInterpreted = 20'000;

struct Memory {
  explicit Memory(size_t bytes) : data(static_cast<std::byte*>(::operator new(bytes + 1, std::align_val_t{64}))) {}
  ~Memory() { ::operator delete(data, std::align_val_t{64}); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data;
};

Result<std::vector<graph::Constant>> run(codegen::Jit& jit, const tensor::Target& target, const tensor::Func& f,
                                         std::span<const graph::Constant> inputs,
                                         const std::vector<graph::TensorType>& outputs) {
  std::vector<void*> buffers;
  for (const graph::Constant& c : inputs) buffers.push_back(const_cast<std::byte*>(c.bytes().data()));
  std::vector<std::shared_ptr<Memory>> results;
  for (const graph::TensorType& type : outputs) {
    auto bytes = static_cast<size_t>(graph::static_count(type.shape) * byte_size(type.element));
    results.push_back(std::make_shared<Memory>(bytes));
    buffers.push_back(results.back()->data);
  }
  tensor::Schedule schedule = tuner::default_schedule(f, target);
  Status status = jit.run(schedule.func(), buffers);
  if (!status.ok()) return status.errors();
  std::vector<graph::Constant> constants;
  for (size_t i = 0; i < outputs.size(); ++i) {
    auto bytes = static_cast<size_t>(graph::static_count(outputs[i].shape) * byte_size(outputs[i].element));
    constants.emplace_back(outputs[i].element, graph::static_shape(outputs[i].shape),
                           std::span<const std::byte>(results[i]->data, bytes), results[i]);
  }
  return constants;
}

}  // namespace

Result<graph::Evaluator> jit_evaluator() {
  Result<tensor::Target> target = codegen::make_target("cpu");
  if (!target.ok()) return target.errors();
  Result<std::unique_ptr<codegen::Jit>> jit = codegen::Jit::create(*target);
  if (!jit.ok()) return jit.errors();
  std::shared_ptr<codegen::Jit> shared = std::move(*jit);
  graph::Evaluator interpret = graph::interpreter_evaluator();
  return graph::Evaluator([shared, target = *target, interpret](
                              const tensor::Func& f, std::span<const graph::Constant> inputs,
                              const std::vector<graph::TensorType>& outputs) {
    if (tensor::work_of(f).iterations <= kInterpreted) return interpret(f, inputs, outputs);
    return run(*shared, target, f, inputs, outputs);
  });
}

}  // namespace mcc::tools
