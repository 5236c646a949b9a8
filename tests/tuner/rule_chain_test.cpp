// Attention as one kernel: the schedule of two contractions with a softmax between them.
#include <gtest/gtest.h>

#include "check_results.h"
#include "support/text.h"
#include "tensor/build.h"
#include "tuner/default_schedule.h"
#include "tuner/tasks.h"

namespace mcc::tuner::test {
namespace {

using namespace tensor;
using tensor::test::Bytes;
using tensor::test::Workload;

constexpr ElementType f32 = ElementType::f32;

struct Form {
  int64_t batch, m, n, d, e;
  bool is_masked;
  bool is_transposed;  // keys as [n, d], copied as [d, n] first
};

void PrintTo(const Form& f, std::ostream* out) {
  *out << text("b", f.batch, "_m", f.m, "_n", f.n, "_d", f.d, "_e", f.e, f.is_masked ? "_masked" : "",
               f.is_transposed ? "_transposed" : "");
}

Func attention(const Form& f) {
  FuncBuilder b("attention");
  Buffer q = b.input("q", f32, {f.batch, f.m, f.d}), v = b.input("v", f32, {f.batch, f.n, f.e});
  Buffer k =
      f.is_transposed ? b.input("k", f32, {f.batch, f.n, f.d}) : b.input("k", f32, {f.batch, f.d, f.n});
  Buffer keys = b.compute("keys", f32, {f.batch, f.d, f.n}, [&](Axes i) {
    return f.is_transposed ? load(k, {i[0], i[2], i[1]}) : load(k, {i[0], i[1], i[2]});
  });
  Buffer scores = b.reduce("scores", f32, {f.batch, f.m, f.n}, {f.d}, Reducer::sum, [&](Axes i, Axes r) {
    return load(q, {i[0], i[1], r[0]}) * load(keys, {i[0], r[0], i[2]});
  });
  if (f.is_masked) {
    Buffer mask = b.input("mask", f32, {f.n});
    scores = b.compute("masked", f32, {f.batch, f.m, f.n}, [&](Axes i) {
      return load(scores, {i[0], i[1], i[2]}) * constant(f32, 0.25) + load(mask, {i[2]});
    });
  }
  Buffer top = b.reduce("top", f32, {f.batch, f.m}, {f.n}, Reducer::max, [&](Axes i, Axes r) {
    return load(scores, {i[0], i[1], r[0]});
  });
  Buffer power = b.compute("power", f32, {f.batch, f.m, f.n}, [&](Axes i) {
    return call(Intrinsic::exp, {load(scores, {i[0], i[1], i[2]}) - load(top, {i[0], i[1]})});
  });
  Buffer sum = b.reduce("sum", f32, {f.batch, f.m}, {f.n}, Reducer::sum, [&](Axes i, Axes r) {
    return load(power, {i[0], i[1], r[0]});
  });
  Buffer mixed = b.reduce("mixed", f32, {f.batch, f.m, f.e}, {f.n}, Reducer::sum, [&](Axes i, Axes r) {
    return load(power, {i[0], i[1], r[0]}) * load(v, {i[0], r[0], i[2]});
  });
  Buffer y = b.compute("y", f32, {f.batch, f.m, f.e}, [&](Axes i) {
    return load(mixed, {i[0], i[1], i[2]}) / load(sum, {i[0], i[1]});
  });
  return b.finish({y});
}

class RuleChain : public testing::TestWithParam<Form> {};

// Row blocks under which everything stands, and the results of the unscheduled function.
TEST_P(RuleChain, KeepsScoresOfAFewRows) {
  Workload w{"attention", attention(GetParam()), {}, false};
  Schedule s = default_schedule(w.func, small_target());
  std::string trace = to_text(s.trace());
  EXPECT_NE(trace.find("compute_at(block=\"scores\""), std::string::npos) << trace;
  EXPECT_NE(trace.find("compute_at(block=\"top\""), std::string::npos) << trace;
  std::vector<Bytes> expected;
  ASSERT_EQ(tensor::test::run(w, w.func, &expected), "");
  EXPECT_EQ(tensor::test::check_results(w, s.func(), expected, true), "");
}

// Vectors of four lanes: whole and broken ones along each axis, more rows and fewer than a tile has, and a single one.
INSTANTIATE_TEST_SUITE_P(Forms, RuleChain,
                         testing::Values(Form{2, 8, 8, 4, 8, false, false}, Form{2, 8, 8, 4, 8, true, true},
                                         Form{1, 13, 13, 5, 4, true, false}, Form{3, 7, 19, 3, 9, true, true},
                                         Form{1, 4, 33, 8, 5, false, true}, Form{2, 5, 3, 2, 12, true, false},
                                         Form{5, 17, 4, 1, 4, false, true}),
                         testing::PrintToStringParamName());

// A first product whose result is needed outside of the row blocks is no chain; it is scheduled all the same.
TEST(RuleChain, LeavesProductsThatDoNotFollowEachOther) {
  FuncBuilder b("two_products");
  Buffer x = b.input("x", f32, {6, 5}), w = b.input("w", f32, {5, 8}), z = b.input("z", f32, {8, 6});
  Buffer first = b.reduce("first", f32, {6, 8}, {5}, Reducer::sum, [&](Axes i, Axes r) {
    return load(x, {i[0], r[0]}) * load(w, {r[0], i[1]});
  });
  // Reads all rows of the first.
  Buffer second = b.reduce("second", f32, {8, 8}, {6}, Reducer::sum, [&](Axes i, Axes r) {
    return load(z, {i[0], r[0]}) * load(first, {r[0], i[1]});
  });
  Workload work{"two_products", b.finish({second}), {}, false};
  Schedule s = default_schedule(work.func, small_target());
  EXPECT_EQ(to_text(s.trace()).find("compute_at(block=\"first\""), std::string::npos);
  std::vector<Bytes> expected;
  ASSERT_EQ(tensor::test::run(work, work.func, &expected), "");
  EXPECT_EQ(tensor::test::check_results(work, s.func(), expected, true), "");
}

}  // namespace
}  // namespace mcc::tuner::test
