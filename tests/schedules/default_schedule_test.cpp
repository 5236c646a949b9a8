// Every kind of kernel under the default schedules of three machines: results, vectors, registers, threads.
#include "tuner/default_schedule.h"
#include "tuner/space.h"

#include <gtest/gtest.h>

#include "schedules/kernel_facts.h"
#include "schedules/optimized_kernels.h"
#include "tensor/grid.h"
#include "tensor/visit.h"

namespace mcc::test {
namespace {

using graph::test::Case;
using tensor::Func;
using tensor::Stmt;
using tensor::Target;

constexpr int kCores = 2;
constexpr int64_t kMany = int64_t{1} << 40;

struct Machine {
  const char* name;
  int vector_bits, vector_registers;
  bool has_fma;
};
constexpr Machine kMachines[] = {{"sse", 128, 16, false}, {"avx2", 256, 16, true}, {"avx512", 512, 32, true}};

Target target_of(const Machine& machine, int cores, double fork_us) {
  Target t;
  t.vector_bits = machine.vector_bits;
  t.vector_registers = machine.vector_registers;
  t.has_fma = machine.has_fma;
  t.cores = cores;
  t.fork_us = fork_us;
  return t;
}

struct Expectation {
  double vectors = 0.9;
  int64_t registers = 0;  // 0: the machine's
  bool serial = false;
};

Expectation expectation_of(const Case& c) {
  Expectation e;
  for (const std::string& option : c.options) {
    std::istringstream in(option);
    std::string key;
    in >> key;
    if (key == "vectors") {
      in >> e.vectors;
    } else if (key == "registers") {
      in >> e.registers;
    } else if (key == "serial") {
      e.serial = true;
    } else {
      ADD_FAILURE() << "unknown option " << option;
    }
  }
  return e;
}

// Turns of the parallel loop, where there is one.
void expect_threads(const Func& f, const Machine& machine, int cores, double fork_us, int64_t at_least,
                    int64_t at_most) {
  Target t = target_of(machine, cores, fork_us);
  tensor::Schedule schedule = tuner::default_schedule(f, t);
  int64_t turns = facts_of(tensor::lower(schedule.func(), t), t.lanes(32)).parallel;
  EXPECT_TRUE(at_least <= turns && turns <= at_most)
      << turns << " turns of parallel loops with " << cores << " cores, forking in " << fork_us << " us\n"
      << to_text(schedule.trace());
}

// ---- On grids ----

// A GPU of the size of a test: two multiprocessors are busy with little.
Target grid_target() {
  Target t;
  t.kind = tensor::TargetKind::cuda;
  t.vector_bits = 128;
  t.gpu = *tensor::find_gpu("sm_80");
  t.gpu.multiprocessors = 2;
  return t;
}

// How often a thread of this statement comes by what it stores.
int64_t turns_of_thread(const Stmt& body) {
  int64_t most = 1;
  tensor::for_each_stmt(body, [&](const Stmt& s) {
    const auto* loop = s.as<tensor::For>();
    int64_t extent = 0;
    if (loop && tensor::as_int(loop->extent, &extent)) most = std::max(most, extent * turns_of_thread(loop->body));
  });
  return most;
}

// Nobody works for long while the others have nothing to do.
void expect_company(const Stmt& s) {
  if (const auto* allocate = s.as<tensor::Allocate>(); allocate && allocate->buffer.scope() == tensor::Scope::global)
    return expect_company(allocate->body);
  if (const auto* seq = s.as<tensor::Seq>()) {
    for (const Stmt& part : seq->stmts)
      expect_company(part);
    return;
  }
  const std::optional<tensor::LaunchForm> launch = tensor::as_launch(s);
  ASSERT_TRUE(launch) << to_text(s);
  int64_t threads = 1;
  for (const auto* loops : {&launch->blocks, &launch->threads}) {
    for (const tensor::For* loop : *loops) {
      int64_t extent = 1;
      tensor::as_int(loop->extent, &extent);
      threads *= extent;
    }
  }
  constexpr int64_t kAlone = 128;
  EXPECT_TRUE(threads >= 32 || turns_of_thread(launch->body) < kAlone) << threads << " threads:\n" << to_text(s);
}

class DefaultGrid : public ::testing::TestWithParam<Case> {};

TEST_P(DefaultGrid, IsRightAndWithinTheLimits) {
  const Target target = grid_target();
  for (const Func& f : kernels_of(GetParam().graph, target)) {
    SCOPED_TRACE(to_text(f));
    tensor::Schedule schedule = tuner::default_schedule(f, target);
    SCOPED_TRACE(to_text(schedule.trace()));
    Func lowered;
    ASSERT_NO_FATAL_FAILURE(lower_and_compare(f, schedule, target, lowered));
    expect_company(lowered.body);
  }
}

class DefaultSchedule : public ::testing::TestWithParam<std::tuple<Case, Machine>> {};

TEST_P(DefaultSchedule, IsRightAndUsesTheMachine) {
  const auto& [c, machine] = GetParam();
  const Expectation expected = expectation_of(c);
  const Target target = target_of(machine, kCores, 2);
  for (const Func& f : kernels_of(c.graph, target)) {
    SCOPED_TRACE(to_text(f));
    tensor::Schedule schedule = tuner::default_schedule(f, target);
    SCOPED_TRACE(to_text(schedule.trace()));
    Func lowered;
    ASSERT_NO_FATAL_FAILURE(lower_and_compare(f, schedule, target, lowered));
    KernelFacts facts = facts_of(lowered, target.lanes(32));
    EXPECT_GE(facts.vector_work, expected.vectors * (facts.vector_work + facts.scalar_work))
        << "work in vectors: " << facts.vector_work << ", other: " << facts.scalar_work;
    EXPECT_LE(facts.registers, expected.registers ? expected.registers : target.vector_registers);
    expect_threads(f, machine, kCores, 0, expected.serial ? 0 : kCores, kMany);
    expect_threads(f, machine, kCores, 1e9, 0, 0);
    expect_threads(f, machine, 1, 0, 0, 0);
    if (HasFailure()) return;
  }
}

TEST_P(DefaultGrid, IsRightAtAnyPointOfTheSpace) {
  const Target target = grid_target();
  const tuner::Sketch& rules = tuner::all_sketches()[0];
  for (const Func& f : kernels_of(GetParam().graph, target)) {
    tuner::Space space(f, target, tuner::all_sketches());
    ASSERT_EQ(space.sketches().size(), 1U) << "sketches for CPUs are not for GPUs";
    std::vector<graph::Constant> want;
    for (uint64_t seed = 0; seed < 5; ++seed) {
      tuner::Planned planned = space.sample(rules, tuner::Random(seed));
      if (planned.choices.empty()) break;
      SCOPED_TRACE(text(to_text(f), to_text(planned.candidate.trace)));
      ASSERT_TRUE(planned.ok()) << planned.outcome.detail;
      Func lowered = tensor::lower(planned.func, target);
      std::vector<std::string> broken = verify_launches(lowered, target.gpu);
      ASSERT_TRUE(broken.empty()) << broken[0] << to_text(lowered);
      if (want.empty()) want = run(f, f);
      graph::test::expect_close(run(lowered, f), want, 1e-4);
      if (HasFailure()) return;
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Case, Machine>>& info) {
  std::string name = std::get<0>(info.param).name + "_" + std::get<1>(info.param).name;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char ch) { return !std::isalnum(ch); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, DefaultGrid,
    ::testing::ValuesIn(graph::test::read_cases(test_data("schedules/data/kernels.txt"))), [](const auto& info) {
      std::string name = info.param.name;
      std::replace_if(
          name.begin(), name.end(), [](unsigned char ch) { return !std::isalnum(ch); }, '_');
      return name;
    });

void PrintTo(const Machine& m, std::ostream* out) { *out << m.name; }

INSTANTIATE_TEST_SUITE_P(
    Kernels, DefaultSchedule,
    ::testing::Combine(::testing::ValuesIn(graph::test::read_cases(test_data("schedules/data/kernels.txt"))),
                       ::testing::ValuesIn(kMachines)),
    name_of);

}  // namespace
}  // namespace mcc::test
