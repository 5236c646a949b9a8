// A kernel's inputs, outputs and expected outputs in memory, laid out as a session lays them out.
#pragma once

#include <map>
#include <memory>

#include "runtime/base.h"
#include "runtime/thread_pool.h"
#include "tools/measure/build.h"
#include "tools/measure/check.h"

namespace mcc::tools {

class MeasuredTask {
 public:
  // Parses and checks the text; refuses functions over symbolic dimensions without samples (tensor/sizes.h), and of more memory than
  // max_bytes. Of symbolic dimensions the memory is that of the first sample; others() has tasks for the rest of them.
  static Result<std::unique_ptr<MeasuredTask>> create(const std::string& text, uint64_t seed,
                                                      int64_t max_bytes);

  const tensor::Func& func() const { return func_; }
  // The sizes of its symbolic dimensions, which kernels take as an argument.
  const std::vector<int64_t>& sizes() const { return sizes_; }
  // Where a kernel's result has to be right, too.
  std::span<const std::unique_ptr<MeasuredTask>> others() const { return others_; }
  // Of all of them.
  int64_t bytes() const { return bytes_; }
  // A size of a kernel's workspace or grid here, for so many threads; nothing if it has none.
  std::optional<int64_t> value_of(const tensor::Expr& size, int threads = 1) const;
  // The memory of the function's parameter.
  std::span<std::byte> parameter(size_t i) const { return parameters_[i].span(); }

  // Computes what the outputs should be, once, here and at the other sizes. Little work is interpreted; more is done by the unscheduled function,
  // compiled as it stands (scalar loops: no schedule step and no vector code that could be wrong takes part). Where that
  // would take seconds, by the default schedule, of which some rows are compared with the unscheduled function's.
  Status compute_reference(const BuildContext& context);

  // The `buffers` argument of a kernel that expects weights in these orders; valid until the next call.
  Result<void* const*> arguments(const codegen::KernelMemory& memory, int threads,
                                 const std::vector<tensor::WeightOrder>& orders = {});
  // Fills the outputs with bits that no result has, so that what is not written shows.
  void poison_outputs();
  // The outputs against the reference.
  OutputCheck check_outputs() const;
  // Puts all that the kernel reads and writes out of the caches.
  void flush_caches() const;

 private:
  struct Parameter {
    std::byte* data = nullptr;
    size_t bytes = 0;
    std::span<std::byte> span() const { return {data, bytes}; }
  };
  struct Output {
    Parameter parameter;
    ElementType element;
    OutputTolerance tolerance;
    std::vector<std::byte> expected;
  };

  static Result<std::unique_ptr<MeasuredTask>> make(const tensor::Func& f, std::vector<int64_t> sizes,
                                                    uint64_t seed, int64_t max_bytes);
  void fill_inputs(uint64_t seed, bool is_positive);
  Status compute(const BuildContext& context);
  Status interpret();
  Status run_once(const BuildContext& context, const tensor::Schedule& schedule);
  bool order_weights(const std::vector<tensor::WeightOrder>& orders);
  Status check_rows(const BuildContext& context, const tensor::Func& rows);
  void keep_outputs();
  bool is_mostly_not_finite() const;

  tensor::Func func_, sized_;  // with symbolic dimensions, where it has some; here
  std::vector<int64_t> sizes_;
  std::vector<std::unique_ptr<MeasuredTask>> others_;
  uint64_t seed_ = 1;
  int64_t bytes_ = 0;
  runtime::Block memory_, private_memory_;  // parameters; workspaces and scratch
  size_t private_bytes_ = 0;                // of the latest arguments
  std::vector<Parameter> parameters_;
  std::vector<Output> outputs_;
  std::map<std::string, runtime::Block> ordered_;  // weights, by parameter and what was done to them
  std::vector<Parameter> ordered_now_;             // those of the latest arguments
  std::vector<void*> arguments_;
  bool has_reference_ = false;
};

// The function restricted to some evenly spaced rows of its output (values of the outermost loop that has any), with
// what they need; nothing if the function is not of that form. Elements of other rows are not written.
std::optional<tensor::Func> rows_of(const tensor::Func& unscheduled, int64_t max_iterations);

}  // namespace mcc::tools
