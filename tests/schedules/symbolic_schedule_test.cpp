// Schedules of functions with symbolic dimensions: one trace for all sizes.
#include <gmock/gmock.h>

#include <set>

#include "schedules/grid_cases.h"
#include "schedules/run_func.h"
#include "tensor/sizes.h"
#include "tuner/default_schedule.h"
#include "tuner/replay.h"
#include "tuner/space.h"

namespace mcc::test {
namespace {

using tensor::Func;
using tensor::SizeRange;
using ::testing::ElementsAre;

tensor::Target wide_target() {
  tensor::Target t;
  t.vector_bits = 512;
  t.vector_registers = 32;
  t.has_fma = true;
  t.cores = 2;
  return t;
}

Func parse(const char* source) {
  Result<Func> f = tensor::parse_func(source);
  EXPECT_TRUE(f.ok()) << to_text(f.errors());
  return *f;
}

constexpr const char* kProduct = R"(
func product<n>(x: f32[n, 24], w: f32[24, 40], b: f32[40]) -> (y: f32[n, 40]) @{sizes="1..64"} {
  alloc matmul: f32[n, 40]
  for matmul.i in n {
    for matmul.j in 40 {
      for matmul.k in 24 {
        block matmul(i = matmul.i: spatial n, j = matmul.j: spatial 40, k = matmul.k: reduce 24) {
          init {
            matmul[i, j] = 0.0
          }
          matmul[i, j] = matmul[i, j] + x[i, k] * w[k, j]
        }
      }
    }
  }
  for y.i in n {
    for y.j in 40 {
      block y(i = y.i: spatial n, j = y.j: spatial 40) { y[i, j] = max(matmul[i, j] + b[j], 0.0) }
    }
  }
}
)";

constexpr const char* kSoftmax = R"(
func softmax<n, t>(x: f32[n, t]) -> (y: f32[n, t]) @{sizes="1..9 1..100"} {
  alloc most: f32[n]
  alloc e: f32[n, t]
  alloc total: f32[n]
  for most.i in n {
    for most.k in t {
      block most(i = most.i: spatial n, k = most.k: reduce t) {
        init {
          most[i] = -inf
        }
        most[i] = max(most[i], x[i, k])
      }
    }
  }
  for e.i in n {
    for e.k in t {
      block e(i = e.i: spatial n, k = e.k: spatial t) { e[i, k] = exp(x[i, k] - most[i]) }
    }
  }
  for total.i in n {
    for total.k in t {
      block total(i = total.i: spatial n, k = total.k: reduce t) {
        init {
          total[i] = 0.0
        }
        total[i] = total[i] + e[i, k]
      }
    }
  }
  for y.i in n {
    for y.k in t {
      block y(i = y.i: spatial n, k = y.k: spatial t) { y[i, k] = e[i, k] / total[i] }
    }
  }
}
)";

// Its one loop may become a vector as a whole, which is no step for all sizes.
constexpr const char* kLine = R"(
func line<n>(x: f32[n]) -> (y: f32[n]) @{sizes="1..40"} {
  for y.i in n {
    block y(i = y.i: spatial n) { y[i] = x[i] * 2.0 }
  }
}
)";

// Many dimensions of few sizes.
constexpr const char* kBoxes = R"(
func boxes<a, b, c, d>(x: f32[a, b, c, d, 16]) -> (y: f32[a, b, c, d, 16]) @{sizes="1..2 1..2 1..2 1..3"} {
  for y.a in a {
    for y.b in b {
      for y.c in c {
        for y.d in d {
          for y.e in 16 {
            block y(i = y.a: spatial a, j = y.b: spatial b, k = y.c: spatial c, l = y.d: spatial d, m = y.e: spatial 16) {
              y[i, j, k, l, m] = x[i, j, k, l, m] + 1.0
            }
          }
        }
      }
    }
  }
}
)";

// Windows, of which few sizes of the range have any.
constexpr const char* kWindows = R"(
func windows<n>(x: f32[16, n], w: f32[16, 16, 7]) -> (y: f32[16, n - 6]) @{sizes="7..19"} {
  for y.i in 16 {
    for y.j in n - 6 {
      for y.c in 16 {
        for y.k in 7 {
          block y(i = y.i: spatial 16, j = y.j: spatial n - 6, c = y.c: reduce 16, k = y.k: reduce 7) {
            init {
              y[i, j] = 0.0
            }
            y[i, j] = y[i, j] + w[i, c, k] * x[c, j + k]
          }
        }
      }
    }
  }
}
)";

struct SymbolicCase {
  const char* source;
  std::vector<std::vector<int64_t>> sizes;
};

class SymbolicSchedule : public ::testing::TestWithParam<SymbolicCase> {};

TEST_P(SymbolicSchedule, IsRightAtEverySize) {
  const Func f = parse(GetParam().source);
  const tensor::Target target = wide_target();
  const tuner::DefaultSchedule made = tuner::explained_default_schedule(f, target);
  EXPECT_FALSE(made.is_plain);
  EXPECT_NE(to_text(made.schedule.trace()).find("vectorize"), std::string::npos);
  tensor::Schedule again(f);
  EXPECT_TRUE(again.replay(made.schedule.trace()));
  EXPECT_EQ(to_text(again.func()), to_text(made.schedule.func()));
  const Func lowered = tensor::lower(made.schedule.func(), target);
  EXPECT_THAT(tensor::verify(lowered, tensor::Stage::lowered), testing::IsEmpty());
  for (const std::vector<int64_t>& sizes : GetParam().sizes) {
    const Func instance = tensor::with_sizes(f, sizes);
    graph::test::expect_close(run(tensor::with_sizes(made.schedule.func(), sizes), instance),
                              run(instance, instance), 1e-4);
  }
}

// Whatever a search may come upon is one schedule for all sizes.
TEST_P(SymbolicSchedule, PointsAreRightAtEverySize) {
  Func f = parse(GetParam().source);
  std::vector<std::vector<int64_t>> samples{GetParam().sizes.back()};
  tensor::mark_samples(f, samples);
  const tensor::Target target = wide_target();
  tuner::Space space(f, target, tuner::all_sketches());
  std::vector<tuner::Planned> points;
  for (const tuner::Sketch* sketch : space.sketches()) {
    points.push_back(space.preferred(*sketch));
    for (uint64_t seed = 0; seed < 24; ++seed)
      points.push_back(space.sample(*sketch, tuner::Random(seed, 0, 0)));
  }
  EXPECT_EQ(to_text(points[0].candidate.trace), to_text(tuner::default_schedule(f, target).trace()));
  std::set<std::string> seen;
  for (const tuner::Planned& point : points) {
    if (!point.ok() || !seen.insert(to_text(point.candidate.trace)).second) continue;
    EXPECT_TRUE(point.func.dims.empty());
    const Result<tensor::Schedule> replayed = tuner::replay(f, point.candidate.trace);
    ASSERT_TRUE(replayed.ok()) << to_text(replayed.errors()) << to_text(point.candidate.trace);
    const Func lowered = tensor::lower(replayed->func(), target);
    EXPECT_THAT(tensor::verify(lowered, tensor::Stage::lowered), testing::IsEmpty()) << to_text(point.candidate.trace);
    for (const std::vector<int64_t>& sizes : GetParam().sizes) {
      const Func instance = tensor::with_sizes(f, sizes);
      SCOPED_TRACE(to_text(point.candidate.trace));
      graph::test::expect_close(run(tensor::with_sizes(replayed->func(), sizes), instance), run(instance, instance), 1e-4);
    }
  }
  EXPECT_FALSE(seen.empty());
}

INSTANTIATE_TEST_SUITE_P(Functions, SymbolicSchedule,
                         ::testing::Values(SymbolicCase{kProduct, {{1}, {7}, {33}, {61}, {64}}},
                                           SymbolicCase{kSoftmax, {{1, 1}, {3, 17}, {9, 100}}},
                                           SymbolicCase{kLine, {{1}, {5}, {40}}},
                                           SymbolicCase{kBoxes, {{1, 2, 1, 3}, {2, 2, 2, 1}}}));

// Of 19 sizes the typical one is 3, which has no window.
TEST(SymbolicScheduleOfWindows, IsThatOfASizeThatHasOne) {
  const Func f = parse(kWindows);
  for (const tensor::Target& target : {wide_target(), gpu_target("sm_80")}) {
    const tuner::DefaultSchedule made = tuner::explained_default_schedule(f, target);
    EXPECT_FALSE(made.is_plain) << target.name;
    const Func lowered = tensor::lower(made.schedule.func(), target);
    EXPECT_THAT(tensor::verify(lowered, tensor::Stage::lowered), testing::IsEmpty());
    for (int64_t size : {7, 8, 19}) {
      const Func instance = tensor::with_sizes(f, {size});
      graph::test::expect_close(run(tensor::with_sizes(made.schedule.func(), {size}), instance),
                                run(instance, instance), 1e-4);
    }
  }
}

// Those of all lines of a typical image would be as many in a small one.
TEST(SymbolicWinograd, HasBandsOfOneLine) {
  const Func f = fused_kernel(R"(graph g(%x: f32[1, 2, H, W, 16], %u: f32[1, 6, 6, 32, 32]) {
  %c = mcc.Winograd(%x, %u) {tile = 4, channels = 2, pads = [1, 1, 1, 1]}
  %y = Relu(%c)
  return %y
})");
  const tuner::DefaultSchedule made = tuner::explained_default_schedule(f, wide_target());
  ASSERT_FALSE(made.is_plain);
  const std::string trace = to_text(made.schedule.trace());
  EXPECT_NE(trace.find("factors=[0, 1, 4], names=[\"unary.band\", \"unary.line\", \"unary.y\"])"),
            std::string::npos)
      << trace;
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{1, 1}, {5, 3}, {9, 17}, {16, 8}}) {
    const Func instance = tensor::with_sizes(f, sizes);
    graph::test::expect_close(run(tensor::with_sizes(made.schedule.func(), sizes), instance),
                              run(instance, instance), 1e-4);
  }
}

TEST(Sizes, ArePartOfTheFunction) {
  Func f = parse(kSoftmax);
  EXPECT_THAT(*tensor::sizes_of(f), ElementsAre(SizeRange{1, 9}, SizeRange{1, 100}));
  tensor::mark_sizes(f, {{2, 5}, {1, 7}});
  const Func again = parse(to_text(f).c_str());
  EXPECT_THAT(*tensor::sizes_of(again), ElementsAre(SizeRange{2, 5}, SizeRange{1, 7}));
  tensor::mark_sizes(f, {{1, tensor::kLargestSize, 4}, {1, 7}});
  const Func open = parse(to_text(f).c_str());
  EXPECT_THAT(*tensor::sizes_of(open), ElementsAre(SizeRange{1, tensor::kLargestSize, 4}, SizeRange{1, 7}));
  EXPECT_FALSE(tensor::size_facts(open).bounds(open.dims[0]).high);
  tensor::mark_sizes(f, {{1, 64, 32}, {0, 7, 2}});
  const Func typical = parse(to_text(f).c_str());
  EXPECT_THAT(*tensor::sizes_of(typical), ElementsAre(SizeRange{1, 64, 32}, SizeRange{0, 7, 2}));
  EXPECT_EQ(tensor::size_facts(typical).bounds(typical.dims[0]).high, 64);
  EXPECT_EQ(to_text(tensor::at_first_sample(typical)), to_text(tensor::with_sizes(typical, {32, 2})));
  f.annotations["sizes"] = std::string("2..5");
  EXPECT_FALSE(tensor::sizes_of(f));
  f.annotations["sizes"] = std::string("5..2 1..1");
  EXPECT_FALSE(tensor::sizes_of(f));
}

TEST(Sizes, SamplesStandInTheText) {
  Func f = parse(kSoftmax);
  EXPECT_THAT(tensor::samples_of(f), testing::IsEmpty());
  EXPECT_EQ(to_text(tensor::at_first_sample(f)), to_text(tensor::with_sizes(f, {3, 10})));
  tensor::mark_samples(f, {{4, 50}, {3, 31}});
  EXPECT_THAT(tensor::samples_of(parse(to_text(f).c_str())), ElementsAre(ElementsAre(4, 50), ElementsAre(3, 31)));
  EXPECT_EQ(to_text(tensor::at_first_sample(f)), to_text(tensor::with_sizes(parse(kSoftmax), {4, 50})));
  for (const char* wrong : {"4", "4 50 6", "4 x", "-1 50", "4 99999999999", ""}) {
    f.annotations["samples"] = std::string(wrong);
    EXPECT_THAT(tensor::samples_of(f), testing::IsEmpty()) << wrong;
  }
}

TEST(Sizes, AFunctionForOneSizeIsStatic) {
  const Func f = tensor::with_sizes(parse(kProduct), {5});
  EXPECT_TRUE(f.dims.empty());
  EXPECT_THAT(tensor::verify(f, tensor::Stage::blocks), testing::IsEmpty());
  EXPECT_EQ(to_text(f), to_text(parse(to_text(f).c_str())));
  EXPECT_EQ(to_text(f).find("n"), to_text(f).find("nc"));  // "func" alone has one
}

}  // namespace
}  // namespace mcc::test
