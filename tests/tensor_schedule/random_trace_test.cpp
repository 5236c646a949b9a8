// Every legal trace leaves a function's results as they are. MCC_RANDOM_TRACES=N runs N traces a workload, MCC_RANDOM_SEED=S
// begins with seed S.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "random_trace.h"
#include "tensor/interpret.h"
#include "tensor/passes/lower.h"
#include "tensor/simplify.h"
#include "tensor/text.h"
#include "tensor/verify.h"
#include "tensor/visit.h"
#include "workloads.h"

namespace mcc::tensor::test {
namespace {

using Bytes = std::vector<std::byte>;

int64_t elements(const Buffer& buffer, const Func& f, const std::vector<int64_t>& dims) {
  VarMap values;
  for (size_t i = 0; i < dims.size(); ++i)
    values[f.dims[i].get()] = dims[i];
  int64_t count = 1;
  for (const Expr& e : buffer.shape()) {
    int64_t extent = 0;
    EXPECT_TRUE(as_int(simplify(substitute(e, values)), &extent));
    count *= extent;
  }
  return count;
}

template <class T>
void fill(Bytes& bytes, Random& random, double scale, int64_t low, int64_t high) {
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T value = static_cast<T>(scale * static_cast<double>(low + random.below(high - low + 1)));
    std::memcpy(&bytes[i], &value, sizeof(T));
  }
}

// Inputs are random, outputs a pattern that no result has.
std::vector<Bytes> make_buffers(const Workload& w) {
  Random random(7);
  std::vector<Bytes> buffers;
  for (size_t i = 0; i < w.func.params.size(); ++i) {
    const Buffer& b = w.func.params[i];
    Bytes bytes(static_cast<size_t>(elements(b, w.func, w.dims) * byte_size(b.element())), std::byte{0xAB});
    if (i < static_cast<size_t>(w.func.num_inputs())) {
      switch (b.element()) {
        case ElementType::f32:
          fill<float>(bytes, random, 0.125, -16, 16);
          break;
        case ElementType::i32:
          fill<int32_t>(bytes, random, 1, -9, 9);
          break;
        case ElementType::i8:
          fill<int8_t>(bytes, random, 1, -128, 127);
          break;
        case ElementType::u8:
          fill<uint8_t>(bytes, random, 1, 0, 255);
          break;
        default:
          ADD_FAILURE() << "no inputs of this type";
      }
    }
    buffers.push_back(std::move(bytes));
  }
  return buffers;
}

// The outputs of the function, or the interpreter's complaint.
std::string run(const Workload& w, const Func& f, std::vector<Bytes>* buffers) {
  *buffers = make_buffers(w);
  std::vector<std::byte*> memory;
  for (Bytes& b : *buffers)
    memory.push_back(b.data());
  Status status = interpret(f, memory, w.dims);
  return status.ok() ? "" : to_text(status.errors());
}

std::string compare(const Workload& w, const std::vector<Bytes>& got, const std::vector<Bytes>& expected) {
  for (size_t i = static_cast<size_t>(w.func.num_inputs()); i < got.size(); ++i) {
    if (w.exact || w.func.params[i].element() != ElementType::f32) {
      if (got[i] != expected[i]) return text("output ", w.func.params[i].name(), " differs");
      continue;
    }
    for (size_t k = 0; k + sizeof(float) <= got[i].size(); k += sizeof(float)) {
      float a = 0, b = 0;
      std::memcpy(&a, &got[i][k], sizeof(float));
      std::memcpy(&b, &expected[i][k], sizeof(float));
      if (!(std::fabs(a - b) <= 1e-4f * (1 + std::fabs(b)))) {
        return text("output ", w.func.params[i].name(), "[", k / sizeof(float), "] is ", a, ", expected ", b);
      }
    }
  }
  return "";
}

std::string check_lowered(const Workload& w, const Func& scheduled, const std::vector<Bytes>& expected) {
  Func lowered = lower(scheduled, Target());
  std::vector<std::string> violations = verify(lowered, Stage::lowered);
  if (!violations.empty()) return "verifier, lowered: " + join(violations, "\n");
  std::vector<Bytes> got;
  if (std::string error = run(w, lowered, &got); !error.empty()) return "interpreter, lowered: " + error;
  std::string difference = compare(w, got, expected);
  return difference.empty() ? "" : "lowered: " + difference;
}

// What is wrong with the function after the trace; empty if nothing is.
std::string check(const Workload& w, const Trace& trace, const std::vector<Bytes>& expected, bool lowers) {
  Schedule schedule(w.func);
  Outcome outcome = schedule.replay(trace);
  if (!outcome) return "replay: " + outcome.detail;
  std::vector<std::string> violations = verify(schedule.func(), Stage::blocks);
  if (!violations.empty()) return "verifier: " + join(violations, "\n");
  std::vector<Bytes> got;
  if (std::string error = run(w, schedule.func(), &got); !error.empty()) return "interpreter: " + error;
  std::string difference = compare(w, got, expected);
  return difference.empty() && lowers ? check_lowered(w, schedule.func(), expected) : difference;
}

// The shortest prefix of the trace after which something is wrong, for the message.
std::string explain(const Workload& w, const Trace& trace, const std::vector<Bytes>& expected, bool lowers) {
  Trace prefix;
  Schedule schedule(w.func);
  std::string before;
  for (const Step& step : trace) {
    prefix.push_back(step);
    before = to_text(schedule.func());
    Outcome outcome = schedule.apply(step);
    std::string error = outcome ? check(w, prefix, expected, lowers) : outcome.detail;
    if (!error.empty()) {
      return text("after\n", to_text(prefix), "\n", error, "\n\nbefore the last step\n", before,
                  "\nafter it\n", to_text(schedule.func()));
    }
  }
  return "not reproduced";
}

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoll(value);
}

class RandomTraces : public testing::TestWithParam<Workload> {};

TEST_P(RandomTraces, KeepTheResults) {
  const Workload& w = GetParam();
  ASSERT_THAT(verify(w.func, Stage::blocks), testing::ElementsAre());
  std::vector<Bytes> expected;
  ASSERT_EQ(run(w, w.func, &expected), "");
  int64_t count = from_environment("MCC_RANDOM_TRACES", 24), seed = from_environment("MCC_RANDOM_SEED", 1);
  for (int64_t i = seed; i < seed + count; ++i) {
    Random random(static_cast<uint64_t>(i));
    Trace trace = random_trace(w.func, random, 4 + static_cast<int>(i % 16));
    bool lowers = i % 2 == 0;
    std::string error = check(w, trace, expected, lowers);
    ASSERT_EQ(error, "") << w.name << ", seed " << i << "\n" << explain(w, trace, expected, lowers);
  }
}

TEST_P(RandomTraces, ReplayFromTextToTheSameText) {
  const Workload& w = GetParam();
  for (uint64_t seed = 1000; seed < 1010; ++seed) {
    Random random(seed);
    Trace trace = random_trace(w.func, random, 16);
    Result<Trace> read = parse_trace(to_text(trace));
    ASSERT_TRUE(read.ok()) << to_text(read.errors());
    Schedule first(w.func), second(w.func);
    ASSERT_TRUE(first.replay(trace));
    ASSERT_TRUE(second.replay(*read));
    EXPECT_EQ(to_text(first.func()), to_text(second.func()));
    EXPECT_EQ(to_text(second.trace()), to_text(trace));
  }
}

TEST_P(RandomTraces, RefusalsChangeNothing) {
  const Workload& w = GetParam();
  Schedule schedule(w.func);
  Random random(99);
  for (int i = 0; i < 300; ++i) {
    Stmt before = schedule.func().body;
    size_t steps = schedule.trace().size();
    Outcome outcome = schedule.apply(random_step(schedule, random));
    if (outcome) {
      EXPECT_EQ(schedule.trace().size(), steps + 1);
      if (steps > 12) schedule = Schedule(w.func);
    } else {
      EXPECT_TRUE(schedule.func().body.same_as(before));
      EXPECT_EQ(schedule.trace().size(), steps);
      EXPECT_THAT(outcome.detail, testing::HasSubstr("expected"));
    }
  }
}

// Random steps do not come upon a tile that an instruction matches.
TEST(Tensorize, KeepsTheResults) {
  std::vector<Workload> all = all_workloads();
  auto w = std::find_if(all.begin(), all.end(), [](const Workload& x) { return x.name == "dot_u8i8"; });
  ASSERT_NE(w, all.end());
  Result<Trace> trace = parse_trace(R"(
    split(loop="y.i1", factors=[2, 16])
    split(loop="y.r0", factors=[4, 4])
    reorder(loops=["y.i1.0", "y.i0", "y.r0.0", "y.i1.1", "y.r0.1"])
    decompose_reduction(block="y", loop="y.r0.0")
    tensorize(loop="y.i1.1", instruction="dot4_u8i8_i32x16")
    split(loop="y.i0", factors=[3, 2])
    parallel(loop="y.i1.0"))");
  ASSERT_TRUE(trace.ok()) << to_text(trace.errors());
  std::vector<Bytes> expected;
  ASSERT_EQ(run(*w, w->func, &expected), "");
  EXPECT_EQ(check(*w, *trace, expected, true), "");
}

INSTANTIATE_TEST_SUITE_P(Workloads, RandomTraces, testing::ValuesIn(all_workloads()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mcc::tensor::test
