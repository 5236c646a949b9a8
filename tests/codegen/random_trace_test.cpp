// Functions after random legal schedules, compiled, against the interpreter running them unscheduled.
// MCC_RANDOM_TRACES=N runs N traces a workload, MCC_RANDOM_SEED=S begins with seed S.
#include <cstdlib>
#include <cstring>

#include "codegen/compiled.h"
#include "tensor/schedule/weight_order.h"
#include "tensor/simplify.h"
#include "tensor/visit.h"
#include "tensor_schedule/random_trace.h"
#include "tensor_schedule/workloads.h"

namespace mcc::codegen {
namespace {

using tensor::test::Workload;

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoll(value) : otherwise;
}

// Small numbers of few bits, so that sums are exact in every order.
Memory make_inputs(const Workload& w) {
  tensor::test::Random random(7);
  tensor::VarMap values;
  for (size_t i = 0; i < w.dims.size(); ++i)
    values[w.func.dims[i].get()] = w.dims[i];
  Memory memory;
  for (size_t p = 0; p < w.func.params.size(); ++p) {
    const tensor::Buffer& buffer = w.func.params[p];
    int64_t count = 1;
    for (const tensor::Expr& e : buffer.shape()) {
      int64_t extent = 0;
      MCC_CHECK(tensor::as_int(tensor::simplify(tensor::substitute(e, values)), &extent));
      count *= extent;
    }
    auto size = static_cast<size_t>(byte_size(buffer.element()));
    std::vector<std::byte> bytes(static_cast<size_t>(count) * size, std::byte{0xab});
    for (size_t at = 0; at < bytes.size() && static_cast<int>(p) < w.func.num_inputs(); at += size) {
      float value = static_cast<float>(random.below(33) - 16) / 8;
      int64_t integer = random.below(buffer.element() == ElementType::i32 ? 19 : 256) -
                        (is_signed_int(buffer.element()) ? 9 : 0);
      if (buffer.element() == ElementType::f32) {
        std::memcpy(&bytes[at], &value, size);
      } else {
        std::memcpy(&bytes[at], &integer, size);
      }
    }
    memory.push_back(std::move(bytes));
  }
  return memory;
}

class RandomTraces : public testing::TestWithParam<Workload> {};

TEST_P(RandomTraces, CompileToTheSameResults) {
  const Workload& w = GetParam();
  Memory inputs = make_inputs(w), expected = inputs;
  run_interpreted(w.func, &expected, w.dims);
  int64_t count = from_environment("MCC_RANDOM_TRACES", 12), seed = from_environment("MCC_RANDOM_SEED", 1);
  const std::vector<tensor::Target>& targets = test_targets();
  for (int64_t i = seed; i < seed + count; ++i) {
    tensor::test::Random random(static_cast<uint64_t>(i));
    tensor::Trace trace = tensor::test::random_trace(w.func, random, 4 + static_cast<int>(i % 16));
    tensor::Schedule schedule(w.func);
    ASSERT_TRUE(schedule.replay(trace));
    Memory actual = inputs;
    for (const tensor::WeightOrder& order : tensor::weight_orders(w.func, trace)) {
      actual[order.parameter] = tensor::reordered(order, actual[order.parameter]);
    }
    const tensor::Target& target = targets[static_cast<size_t>(i) % targets.size()];
    run_compiled(schedule.func(), target, &actual, w.dims);
    ASSERT_FALSE(HasFatalFailure()) << tensor::to_text(trace);
    ASSERT_EQ(difference(w.func, expected, actual, w.exact ? 0 : 1e-4), "")
        << w.name << ", seed " << i << ", " << target.name << "\n"
        << tensor::to_text(trace) << "\n"
        << tensor::to_text(tensor::lower(schedule.func(), target));
  }
}

INSTANTIATE_TEST_SUITE_P(Workloads, RandomTraces, testing::ValuesIn(tensor::test::all_workloads()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mcc::codegen
