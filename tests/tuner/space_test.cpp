#include "tuner/space.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "check_results.h"
#include "tasks.h"
#include "tensor/build.h"
#include "tensor/sizes.h"

namespace mcc::tuner::test {
namespace {

using namespace tensor;
using tensor::test::all_workloads;
using tensor::test::Workload;

Choice tile_choice(int64_t extent, int64_t levels, int64_t max_inner) {
  Choice choice;
  choice.name = "t";
  choice.kind = Choice::Kind::tile;
  choice.extent = extent;
  choice.levels = levels;
  choice.max_inner = max_inner;
  return choice;
}

TEST(Answers, CountsOrderedFactorizations) {
  // Ansor's spaces of a matmul of 1024: 5 levels, 3 levels; 4 levels, 2 levels.
  EXPECT_EQ(count_tiles(1024, 5), 1001);
  EXPECT_EQ(count_tiles(1024, 3), 66);
  EXPECT_EQ(count_tiles(1024, 4), 286);
  EXPECT_EQ(count_tiles(1024, 2), 11);
  EXPECT_EQ(count_tiles(12, 2), 6);
  EXPECT_EQ(count_tiles(1, 4), 1);
  EXPECT_EQ(count_tiles(49, 3), 6);
}

TEST(Answers, ListsWhatTheFormulaCounts) {
  AnswerTable table;
  for (int64_t extent : {1, 2, 7, 12, 49, 60, 197, 1024}) {
    for (int64_t levels : {1, 2, 3, 4}) {
      Choice choice = tile_choice(extent, levels, extent);
      ASSERT_EQ(table.count(choice), count_tiles(extent, levels)) << extent << " in " << levels;
      for (int64_t i = 0; i < table.count(choice); ++i) {
        ASSERT_TRUE(choice.allows(table.at(choice, i)));
        ASSERT_EQ(table.index_of(choice, table.at(choice, i)), i);
      }
    }
  }
}

TEST(Answers, InnermostFactorIsBounded) {
  AnswerTable table;
  Choice choice = tile_choice(64, 3, 4);
  int64_t expected = 0;
  Choice all = tile_choice(64, 3, 64);
  for (int64_t i = 0; i < table.count(all); ++i)
    expected += table.at(all, i).back() <= 4 ? 1 : 0;
  EXPECT_EQ(table.count(choice), expected);
}

TEST(RandomNumbers, DependOnKeyOnly) {
  Random a(1, 2, 3), b(1, 2, 3), c(1, 2, 4), d(2, 2, 3);
  uint64_t first = a.next();
  EXPECT_EQ(first, b.next());
  EXPECT_NE(first, c.next());
  EXPECT_NE(first, d.next());
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i)
    seen.insert(a.next());
  EXPECT_EQ(seen.size(), 1000u);
}

constexpr ElementType f32 = ElementType::f32;

// A product with one vector: few results of many terms.
Func matrix_vector() {
  FuncBuilder b("matrix_vector");
  Buffer x = b.input("x", f32, {144}), w = b.input("w", f32, {5, 144});
  Buffer y = b.reduce("y", f32, {5}, {144}, Reducer::sum, [&](Axes s, Axes r) {
    return load(x, {r[0]}) * load(w, {s[0], r[0]});
  });
  Buffer relu = b.compute("relu", f32, {5}, [&](Axes s) { return max(load(y, {s[0]}), constant(f32, 0)); });
  return b.finish({relu});
}

Func sum_of_all() {
  FuncBuilder b("sum_of_all");
  Buffer x = b.input("x", f32, {9, 5, 16});
  Buffer y = b.reduce("y", f32, {1}, {9, 5, 16}, Reducer::sum, [&](Axes, Axes r) {
    return load(x, {r[0], r[1], r[2]});
  });
  return b.finish({y});
}

// Extents without good divisors.
Func odd_matmul() {
  FuncBuilder b("odd_matmul");
  Buffer x = b.input("x", f32, {23, 11}), w = b.input("w", f32, {11, 31});
  Buffer y = b.reduce("y", f32, {23, 31}, {11}, Reducer::sum, [&](Axes s, Axes r) {
    return load(x, {s[0], r[0]}) * load(w, {r[0], s[1]});
  });
  return b.finish({y});
}

std::vector<Workload> workloads() {
  std::vector<Workload> all = all_workloads();
  all.push_back({"matrix_vector", matrix_vector(), {}, false});
  all.push_back({"sum_of_all", sum_of_all(), {}, false});
  all.push_back({"odd_matmul", odd_matmul(), {}, false});
  return all;
}

class Spaces : public testing::TestWithParam<Workload> {
 protected:
  Target target = small_target();
};

std::string text_of(const Planned& planned) { return to_text(planned.candidate.trace); }

// The fuzzer of the tuner's own spaces.
TEST_P(Spaces, EveryPointKeepsTheResults) {
  const Workload& w = GetParam();
  std::vector<tensor::test::Bytes> expected;
  ASSERT_EQ(run(w, w.func, &expected), "");
  Space space(w.func, target, all_sketches());
  for (const Sketch* sketch : space.sketches()) {
    std::set<std::string> seen;
    for (uint64_t i = 0; i < 24; ++i) {
      Planned planned = i == 0 ? space.preferred(*sketch) : space.sample(*sketch, Random(7, 0, i));
      if (!planned.ok() || !seen.insert(text_of(planned)).second) continue;
      const auto orders = tensor::weight_orders(w.func, planned.candidate.trace);
      Schedule scheduled(w.func);  // the plan of symbolic dimensions is for one size of each
      ASSERT_TRUE(scheduled.replay(planned.candidate.trace));
      ASSERT_EQ(check_results(w, scheduled.func(), expected, i % 4 == 0, orders), "")
          << sketch->name << "\n"
          << text_of(planned) << to_text(scheduled.func());
    }
    ASSERT_FALSE(seen.empty()) << sketch->name;
  }
}

TEST_P(Spaces, PointsAndTracesReplay) {
  const Workload& w = GetParam();
  Space space(w.func, target, all_sketches());
  for (const Sketch* sketch : space.sketches()) {
    for (uint64_t i = 0; i < 6; ++i) {
      Planned planned = space.sample(*sketch, Random(3, 0, i));
      Planned again = space.at(*sketch, planned.candidate.point),
              same = space.sample(*sketch, Random(3, 0, i));
      EXPECT_EQ(text_of(again), text_of(planned));
      EXPECT_EQ(text_of(same), text_of(planned));
      if (!planned.ok()) continue;
      EXPECT_EQ(to_text(again.func), to_text(planned.func));
      Result<Trace> read = parse_trace(text_of(planned));
      ASSERT_TRUE(read.ok());
      Schedule schedule(w.func);
      ASSERT_TRUE(schedule.replay(*read));
      EXPECT_EQ(to_text(at_first_sample(schedule.func())), to_text(planned.func));
    }
  }
}

TEST_P(Spaces, MutationAndCrossoverStayInTheSpace) {
  const Workload& w = GetParam();
  Space space(w.func, target, all_sketches());
  for (const Sketch* sketch : space.sketches()) {
    Planned parent = space.preferred(*sketch);
    int changed = 0;
    for (uint64_t i = 0; i < 12; ++i) {
      Planned child = space.mutate(*sketch, parent, Random(5, 0, i));
      for (const Choice& choice : child.choices) {
        EXPECT_TRUE(choice.allows(child.candidate.point.at(choice.name))) << choice.name;
      }
      changed += child.candidate.point != parent.candidate.point ? 1 : 0;
      Planned other = space.sample(*sketch, Random(6, 0, i));
      Planned crossed = space.cross(*sketch, child.candidate.point, other.candidate.point, Random(8, 0, i));
      for (const Choice& choice : crossed.choices) {
        EXPECT_TRUE(choice.allows(crossed.candidate.point.at(choice.name))) << choice.name;
      }
      if (child.ok()) parent = std::move(child);
    }
    bool has_choice = false;
    AnswerTable table;
    for (const Choice& choice : parent.choices)
      has_choice |= table.count(choice) > 1;
    if (has_choice) {
      EXPECT_GT(changed, 6) << sketch->name;
    }
  }
}

TEST_P(Spaces, EnumerationFindsWhatSamplingFinds) {
  const Workload& w = GetParam();
  Space space(w.func, target, all_sketches());
  for (const Sketch* sketch : space.sketches()) {
    if (space.estimate(*sketch) > 1500) continue;
    std::set<std::string> all;
    std::set<Point> points;
    int64_t visited = 0;
    Cursor cursor;
    while (!cursor.is_done) {
      // In portions, as searches do it.
      int portion = 7;
      space.enumerate(*sketch, cursor, [&](Planned&& planned) {
        ++visited;
        points.insert(planned.candidate.point);
        if (planned.ok()) all.insert(text_of(planned));
        return --portion > 0;
      });
    }
    EXPECT_EQ(static_cast<int64_t>(points.size()), visited) << "a point was visited twice";
    std::set<std::string> sampled;
    for (uint64_t i = 0; i < 300; ++i) {
      Planned planned = space.sample(*sketch, Random(11, 0, i));
      if (!planned.ok()) continue;
      EXPECT_TRUE(all.count(text_of(planned))) << sketch->name << "\n" << text_of(planned);
      sampled.insert(text_of(planned));
    }
    if (all.size() <= 12) {
      EXPECT_EQ(sampled, all) << sketch->name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Workloads, Spaces, testing::ValuesIn(workloads()),
                         [](const auto& info) { return info.param.name; });

// Which sketches are for which functions, and whether what they prefer is legal.
TEST(Sketches, FitTheFunctionsThatTheyAreFor) {
  Target target = small_target();
  std::map<std::string, std::string> fits;
  for (const Workload& w : workloads()) {
    Space space(w.func, target, all_sketches());
    for (const Sketch* sketch : space.sketches()) {
      Planned planned = space.preferred(*sketch);
      EXPECT_TRUE(planned.ok()) << w.name << ", " << sketch->name << ": " << planned.outcome.detail;
      fits[w.name] += (fits[w.name].empty() ? "" : " ") + std::string(sketch->name);
    }
  }
  EXPECT_EQ(fits["matmul"], "rules tiling template.matmul");
  EXPECT_EQ(fits["conv_blocked"], "rules tiling template.conv2d");
  EXPECT_EQ(fits["depthwise"], "rules tiling");
  EXPECT_EQ(fits["softmax"], "rules");
  EXPECT_EQ(fits["transpose_add"], "rules");
  EXPECT_EQ(fits["matrix_vector"], "rules tiling rfactor");
  EXPECT_EQ(fits["sum_of_all"], "rules rfactor");
  EXPECT_EQ(fits["recurrence"], "rules");
}

// Ansor's space of a matmul: four factors of each of two axes, two of the reduction.
TEST(Sketches, TilingHasTheSizeOfItsTiles) {
  FuncBuilder b("square");
  Buffer x = b.input("x", f32, {64, 64}), w = b.input("w", f32, {64, 64});
  Buffer y = b.reduce("y", f32, {64, 64}, {64}, Reducer::sum, [&](Axes s, Axes r) {
    return load(x, {s[0], r[0]}) * load(w, {r[0], s[1]});
  });
  Func f = b.finish({y});
  Target target = small_target();
  target.cores = 1;  // no question about threads
  Space space(f, target, all_sketches());
  const Sketch* tiling = space.find("tiling");
  ASSERT_NE(tiling, nullptr);
  double tiles = static_cast<double>(count_tiles(64, 4) * count_tiles(64, 4) * count_tiles(64, 2));
  EXPECT_EQ(space.estimate(*tiling), tiles * 2 * 4);  // cache or not, four limits of unrolling
}

int points_planned = 0;

// 1,000 points, of which one in two has a trace of its own.
bool sketch_of_three_questions(Draft& draft) {
  ++points_planned;
  int64_t number = 0;
  for (const char* name : {"a", "b", "c"})
    number = 10 * number + draft.decide.choose(name, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 0);
  must_step(draft, Annotate{"", "f.i0", "number", std::to_string(number / 2)});
  return true;
}

// A model's kernels for GPUs take some 10 ms a point: planning all of them took longer than most budgets.
TEST(SpaceSizes, AreEstimatedUntilASearchHasGoneThrough) {
  FuncBuilder b("f");
  Buffer x = b.input("x", f32, {24});
  Func f = b.finish({b.compute("f", f32, {24}, [&](Axes s) { return load(x, {s[0]}) + constant(f32, 1); })});
  const Target target = small_target();
  const Sketch sketch = {"three", sketch_of_three_questions};
  Space space(f, target, {&sketch, 1});
  ASSERT_EQ(space.sketches().size(), 1u);
  points_planned = 0;
  EXPECT_FALSE(space.size().is_exact);
  EXPECT_EQ(space.size().points, 1000);
  EXPECT_EQ(points_planned, 1);
  // Each point once, however often it is interrupted.
  std::set<std::string> traces;
  std::set<Point> points;
  for (int call = 0; call < 1000 && !space.size().is_exact; ++call) {
    int portion = 7;
    space.go_through([&](Planned&& planned) {
      EXPECT_TRUE(planned.ok()) << planned.outcome.detail;
      EXPECT_TRUE(points.insert(planned.candidate.point).second);
      traces.insert(text_of(planned));
      return --portion > 0;
    });
  }
  EXPECT_EQ(points.size(), 1000u);
  EXPECT_EQ(points_planned, 1001);
  EXPECT_TRUE(space.size().is_exact);
  EXPECT_EQ(space.size().points, static_cast<double>(traces.size()));
  EXPECT_EQ(traces.size(), 500u);
}

TEST(SpaceSizes, AreExactWhereSmall) {
  Target target = small_target();
  for (const Workload& w : all_workloads()) {
    if (w.name != "matmul") continue;
    Space space(w.func, target, all_sketches().first(1));
    std::set<std::string> all;
    Cursor cursor;
    space.enumerate(*space.sketches()[0], cursor, [&](Planned&& planned) {
      if (planned.ok()) all.insert(text_of(planned));
      return true;
    });
    space.go_through([](Planned&&) { return true; });
    EXPECT_TRUE(space.size().is_exact);
    EXPECT_EQ(space.size().points, static_cast<double>(all.size()));
    EXPECT_GT(all.size(), 4u);
  }
}

}  // namespace
}  // namespace mcc::tuner::test
