// Products that pack an operand into panels inside of the kernel, and those that stream it.
#include "tuner/packing.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "check_results.h"
#include "support/text.h"
#include "tensor/build.h"
#include "tensor/schedule/weight_order.h"
#include "tuner/default_schedule.h"
#include "tuner/rules.h"
#include "tuner/tasks.h"

namespace mcc::tuner::test {
namespace {

using namespace tensor;
using tensor::test::Bytes;
using tensor::test::Workload;

constexpr ElementType f32 = ElementType::f32;

struct Form {
  int64_t batch, m, k, n;
  bool transposed_a, transposed_b, has_bias;
  int64_t block;  // panels packed at a time; 0: all of them first
};

void PrintTo(const Form& f, std::ostream* out) {
  *out << text("b", f.batch, "_", f.m, "x", f.k, "x", f.n, f.transposed_a ? "_ta" : "",
               f.transposed_b ? "_tb" : "", f.has_bias ? "_bias" : "", "_block", f.block);
}

Func product(const Form& f) {
  FuncBuilder b("product");
  using Shape = std::vector<Expr>;
  Buffer x = b.input("x", f32, f.transposed_a ? Shape{f.batch, f.k, f.m} : Shape{f.batch, f.m, f.k});
  Buffer w = b.input("w", f32, f.transposed_b ? Shape{f.batch, f.n, f.k} : Shape{f.batch, f.k, f.n});
  Buffer y = b.reduce("product", f32, {f.batch, f.m, f.n}, {f.k}, Reducer::sum, [&](Axes i, Axes r) {
    Expr left = f.transposed_a ? load(x, {i[0], r[0], i[1]}) : load(x, {i[0], i[1], r[0]});
    Expr right = f.transposed_b ? load(w, {i[0], i[2], r[0]}) : load(w, {i[0], r[0], i[2]});
    return left * right;
  });
  if (f.has_bias) {
    Buffer bias = b.input("bias", f32, {f.n});
    y = b.compute("biased", f32, {f.batch, f.m, f.n}, [&](Axes i) {
      return load(y, {i[0], i[1], i[2]}) + load(bias, {i[2]});
    });
  }
  return b.finish({y});
}

// Analysis, but for what is packed.
class Packs : public PreferredDecider {
 public:
  explicit Packs(int64_t block) : block_(block) {}
  Answer answer(const Choice& choice, const Answer& preferred) override {
    if (choice.name == "product.pack") return {1};
    if (choice.name == "product.block" && choice.allows({block_})) return {block_};
    return preferred;
  }

 private:
  int64_t block_;
};

class Packing : public testing::TestWithParam<Form> {};

TEST_P(Packing, KeepsTheProduct) {
  Workload w{"product", product(GetParam()), {}, false};
  Packs decide(GetParam().block);
  Target target = small_target();
  Draft draft{Schedule(w.func), decide, target};
  apply_rules(draft);
  ASSERT_TRUE(draft.refusal) << draft.refusal.detail;
  std::string trace = to_text(draft.schedule.trace());
  EXPECT_NE(trace.find("cache_read(block=\"product\", buffer=\"w\""), std::string::npos) << trace;
  EXPECT_EQ(trace.find("compute_at(block=\"product.packed\"") != std::string::npos, GetParam().block != 0)
      << trace;
  std::vector<Bytes> expected;
  ASSERT_EQ(tensor::test::run(w, w.func, &expected), "");
  EXPECT_EQ(tensor::test::check_results(w, draft.schedule.func(), expected, true), "");
}

// Whole and broken vectors, panels, blocks and row tiles.
INSTANTIATE_TEST_SUITE_P(
    Forms, Packing,
    testing::Values(Form{1, 16, 8, 32, false, false, false, 2}, Form{1, 16, 8, 32, false, true, false, 2},
                    Form{1, 13, 7, 19, false, false, true, 1}, Form{1, 13, 7, 19, false, true, true, 1},
                    Form{1, 9, 5, 30, true, true, false, 0}, Form{1, 9, 5, 30, true, false, true, 0},
                    Form{3, 7, 9, 11, false, true, false, 1}, Form{3, 7, 9, 11, false, false, true, 2},
                    Form{1, 2, 3, 3, false, true, false, 1}, Form{5, 6, 4, 2, false, true, false, 0}),
    testing::PrintToStringParamName());

// Groups whose channels stand side by side: [groups * rows, columns] of [groups * depth, columns].
struct InGroups {
  int64_t groups, rows, depth, columns;
  bool has_bias, is_packed;
};

void PrintTo(const InGroups& f, std::ostream* out) {
  *out << text(f.groups, "_", f.rows, "x", f.depth, "x", f.columns, f.has_bias ? "_bias" : "",
               f.is_packed ? "_packed" : "");
}

class GroupedProduct : public testing::TestWithParam<InGroups> {};

TEST_P(GroupedProduct, HasTilesOfOneGroup) {
  const InGroups& form = GetParam();
  FuncBuilder b("product");
  const Expr channels = form.groups * form.rows;
  const Buffer x = b.input("x", f32, {form.groups * form.depth, form.columns}),
               w = b.input("w", f32, {channels, form.depth});
  Buffer y =
      b.reduce("product", f32, {channels, form.columns}, {form.depth}, Reducer::sum, [&](Axes i, Axes r) {
        return load(x, {floor_div(i[0], Expr(form.rows)) * Expr(form.depth) + r[0], i[1]}) *
               load(w, {i[0], r[0]});
      });
  if (form.has_bias) {
    const Buffer bias = b.input("bias", f32, {channels});
    y = b.compute("biased", f32, {channels, form.columns},
                  [&](Axes i) { return load(y, {i[0], i[1]}) + load(bias, {i[0]}); });
  }
  const Workload workload{"product", b.finish({y}), {}, false};
  class Decides : public PreferredDecider {
   public:
    explicit Decides(bool packs) : packs_(packs) {}
    Answer answer(const Choice& choice, const Answer& preferred) override {
      return choice.name == "product.pack" ? Answer{packs_ ? 1 : 0} : preferred;
    }

   private:
    bool packs_;
  } decide(form.is_packed);
  const Target target = small_target();
  Draft draft{Schedule(workload.func), decide, target};
  apply_rules(draft);
  ASSERT_TRUE(draft.refusal) << draft.refusal.detail;
  const std::string trace = to_text(draft.schedule.trace());
  EXPECT_NE(trace.find(text("split_axis(block=\"product\", axis=\"i0\", width=", form.rows)),
            std::string::npos)
      << trace;
  EXPECT_EQ(trace.find(text("(d0 // ", form.depth)) != std::string::npos, form.is_packed) << trace;
  std::vector<Bytes> expected;
  ASSERT_EQ(tensor::test::run(workload, workload.func, &expected), "");
  EXPECT_EQ(tensor::test::check_results(workload, draft.schedule.func(), expected, true), "");
}

INSTANTIATE_TEST_SUITE_P(
    Forms, GroupedProduct,
    testing::Values(InGroups{4, 17, 17, 49, true, true}, InGroups{4, 17, 17, 49, true, false},
                    InGroups{3, 10, 5, 40, false, true}, InGroups{3, 10, 5, 40, false, false},
                    InGroups{2, 6, 12, 19, true, true}, InGroups{5, 3, 2, 7, true, false}),
    testing::PrintToStringParamName());

// Tiles narrower and wider than the panels of the weights, which are stored to fit them.
class OrderedWeights : public testing::TestWithParam<int64_t> {};

TEST_P(OrderedWeights, KeepTheProduct) {
  class Orders : public PreferredDecider {
   public:
    explicit Orders(int64_t vectors) : vectors_(vectors) {}
    Answer answer(const Choice& choice, const Answer& preferred) override {
      if (choice.name == "y.vectors") return choice.allows({vectors_}) ? Answer{vectors_} : preferred;
      return choice.name == "y.weights" ? Answer{1} : preferred;
    }

   private:
    int64_t vectors_;
  } decide(GetParam());
  const std::vector<Workload> all = tensor::test::all_workloads();
  auto w = std::find_if(all.begin(), all.end(), [](const Workload& x) { return x.name == "matmul_panels"; });
  ASSERT_NE(w, all.end());
  Target target = small_target();
  Draft draft{Schedule(w->func), decide, target};
  apply_rules(draft);
  ASSERT_TRUE(draft.refusal) << draft.refusal.detail;
  const std::vector<WeightOrder> orders = weight_orders(w->func, draft.schedule.trace());
  EXPECT_EQ(orders.empty(), GetParam() == 2) << to_text(draft.schedule.trace());  // as wide as the panels
  std::vector<Bytes> expected;
  ASSERT_EQ(tensor::test::run(*w, w->func, &expected), "");
  EXPECT_EQ(tensor::test::check_results(*w, draft.schedule.func(), expected, true, orders), "");
}

INSTANTIATE_TEST_SUITE_P(Vectors, OrderedWeights, testing::Values(1, 2, 4), testing::PrintToStringParamName());

// x [m, k] times weights in panels of a vector, plus a bias.
Workload panels(int64_t m, int64_t k, int64_t count, const Target& target) {
  FuncBuilder b("panels");
  const int64_t lanes = target.lanes(32);
  const Buffer x = b.input("x", f32, {m, k}), w = b.input("w", f32, {count, k, lanes}), bias = b.input("bias", f32, {count, lanes});
  const Buffer sum = b.reduce("sum", f32, {m, count, lanes}, {k}, Reducer::sum,
                              [&](Axes i, Axes r) { return load(x, {i[0], r[0]}) * load(w, {i[1], r[0], i[2]}); });
  const Buffer y = b.compute("y", f32, {m, count, lanes},
                             [&](Axes i) { return load(sum, {i[0], i[1], i[2]}) + load(bias, {i[1], i[2]}); });
  Func f = b.finish({y});
  mark_weights(f, {"w"});
  return {"panels", f, {}, false};
}

// Weights in an odd number of panels: tiles of one panel would load almost as much as they multiply. Where no width divides the
// panels, the last tile is narrower.
TEST(RegisterTiles, AreWideOfOddNumbersOfPanels) {
  class Remembers : public PreferredDecider {
   public:
    Answer answer(const Choice& choice, const Answer& preferred) override {
      if (choice.name == "sum.vectors") vectors = preferred[0];
      return preferred;
    }
    int64_t vectors = 0;
  };
  struct Case {
    int64_t panels, registers, expected;
  };
  for (const auto& [count, registers, expected] :
       {Case{5, 16, 5}, Case{25, 16, 5}, Case{7, 16, 2}, Case{11, 16, 3}, Case{13, 16, 2}, Case{91, 16, 2}, Case{5, 32, 5},
        Case{7, 32, 7}, Case{11, 32, 3}, Case{13, 32, 5}}) {
    SCOPED_TRACE(text(count, " panels, ", registers, " registers"));
    Target target = small_target();
    target.vector_registers = static_cast<int>(registers);
    const Workload w = panels(23, 64, count, target);
    Remembers decide;
    Draft draft{Schedule(w.func), decide, target};
    apply_rules(draft);
    ASSERT_TRUE(draft.refusal) << draft.refusal.detail;
    EXPECT_EQ(decide.vectors, expected) << to_text(draft.schedule.trace());
    std::vector<Bytes> want;
    ASSERT_EQ(tensor::test::run(w, w.func, &want), "");
    EXPECT_EQ(tensor::test::check_results(w, draft.schedule.func(), want, true), "");
  }
}

// Rows that do not stay in a small second-level cache as a whole, but part by part.
class LongSums : public testing::TestWithParam<std::tuple<int64_t, int64_t>> {};

TEST_P(LongSums, AreDividedAndStayWhatTheyAre) {
  const auto [rows, steps] = GetParam();
  Target target = small_target();
  target.l1 = {4 << 10, 8, 64, 400};
  target.l2 = {16 << 10, 8, 64, 150};
  const Workload w = panels(rows, steps, 3, target);
  PreferredDecider decide;
  Draft draft{Schedule(w.func), decide, target};
  apply_rules(draft);
  ASSERT_TRUE(draft.refusal) << draft.refusal.detail;
  const std::string trace = to_text(draft.schedule.trace());
  EXPECT_NE(trace.find("rfactor(block=\"sum\""), std::string::npos) << trace;
  EXPECT_NE(trace.find("set_scope(buffer=\"sum.part.out\", scope=\"registers\")"), std::string::npos) << trace;
  EXPECT_NE(trace.find("reverse_compute_at(block=\"y\""), std::string::npos) << "the bias goes with the last sum\n" << trace;
  std::vector<Bytes> expected;
  ASSERT_EQ(tensor::test::run(w, w.func, &expected), "");
  EXPECT_EQ(tensor::test::check_results(w, draft.schedule.func(), expected, true), "");
}

INSTANTIATE_TEST_SUITE_P(Forms, LongSums, testing::Values(std::tuple(16, 1024), std::tuple(13, 768), std::tuple(7, 1280)));

TEST(LongSums, StayWholeWhereRowsStayInTheCacheOrSumsAreShort) {
  Target target = small_target();
  auto is_divided = [&](int64_t rows, int64_t steps, int64_t l2) {
    target.l2 = {l2, 8, 64, 150};
    return to_text(default_schedule(panels(rows, steps, 3, target).func, target).trace()).find("sum.part") != std::string::npos;
  };
  EXPECT_TRUE(is_divided(16, 1024, 16 << 10));
  EXPECT_FALSE(is_divided(16, 1024, 256 << 10));
  EXPECT_FALSE(is_divided(128, 128, 16 << 10));
}

// What parts sum up is written and read again: there are no more of them than the last cache holds.
TEST(LongSums, AreInAsManyPartsAsTheLastCacheHolds) {
  constexpr int64_t kRows = 512, kPanels = 100;
  Target target = small_target();
  target.l2 = {512 << 10, 8, 64, 150};
  target.l3.bytes = 6 << 20;
  const DefaultSchedule made = explained_default_schedule(panels(kRows, 4096, kPanels, target).func, target);
  int64_t parts = 0;
  for (const auto& [name, answer] : made.chosen)
    if (name == "sum.parts") parts = answer[0];
  EXPECT_GT(parts, 1);
  EXPECT_LE(parts * kRows * kPanels * target.lanes(32) * 4, target.l3.bytes) << parts << " parts";
}

std::string default_trace(const Form& form, const Target& target) {
  return to_text(default_schedule(product(form), target).trace());
}

class Streamed : public testing::TestWithParam<Form> {};

// Few rows: no tile of registers, whatever else the group holds.
TEST_P(Streamed, KeepsTheProduct) {
  class Streams : public PreferredDecider {
   public:
    Answer answer(const Choice& choice, const Answer& preferred) override {
      return choice.name == "product.streamed" ? Answer{1} : preferred;
    }
  } decide;
  Workload w{"product", product(GetParam()), {}, false};
  Target target = small_target();
  Draft draft{Schedule(w.func), decide, target};
  apply_rules(draft);
  ASSERT_TRUE(draft.refusal) << draft.refusal.detail;
  std::string trace = to_text(draft.schedule.trace());
  EXPECT_EQ(trace.find("reverse_compute_at(block=\"product.out\""), std::string::npos) << trace;
  EXPECT_EQ(trace.find("rfactor(block=\"product\"") != std::string::npos, GetParam().transposed_b) << trace;
  std::vector<Bytes> expected;
  ASSERT_EQ(tensor::test::run(w, w.func, &expected), "");
  EXPECT_EQ(tensor::test::check_results(w, draft.schedule.func(), expected, true), "");
}

INSTANTIATE_TEST_SUITE_P(
    Forms, Streamed,
    testing::Values(Form{1, 1, 32, 16, false, false, false, 0}, Form{1, 1, 13, 19, false, false, true, 0},
                    Form{1, 3, 21, 33, false, false, false, 0}, Form{1, 4, 5, 6, false, false, true, 0},
                    Form{1, 1, 32, 16, false, true, false, 0}, Form{1, 1, 13, 19, false, true, true, 0},
                    Form{1, 3, 21, 5, false, true, true, 0}, Form{1, 2, 3, 40, true, false, true, 0}),
    testing::PrintToStringParamName());

// Caches decide: the same product, next to a large cache and to a small one.
TEST(Packing, PacksWhatManyRowsReadFromFarApart) {
  Target t;
  t.l1 = {32 << 10, 8, 64, 400}, t.l2 = {1 << 20, 16, 64, 150};
  EXPECT_NE(default_trace({1, 512, 512, 512, false, false, false, 0}, t).find("product.packed"),
            std::string::npos);
  EXPECT_NE(default_trace({1, 64, 64, 64, false, true, false, 0}, t).find("product.packed"),
            std::string::npos);
  // One row tile reads everything once; a small operand stays where it is near.
  EXPECT_EQ(default_trace({1, 8, 512, 512, false, false, false, 0}, t).find("product.packed"),
            std::string::npos);
  EXPECT_EQ(default_trace({1, 512, 64, 64, false, false, false, 0}, t).find("product.packed"),
            std::string::npos);
  EXPECT_EQ(default_trace({1, 512, 512, 32, false, false, false, 0}, t).find("product.packed"),
            std::string::npos);
  t.l1 = {2 << 10, 2, 64, 400}, t.l2 = {8 << 10, 2, 64, 150};
  EXPECT_NE(default_trace({1, 512, 64, 64, false, false, false, 0}, t).find("product.packed"),
            std::string::npos);
}

// Queries times keys, which are read where they are: so many columns and rows behind the first, every so many of them.
struct KeysView {
  const char* name;
  int64_t first, first_row, step;
  bool is_plain;  // all of a tensor's columns, head by head
};
void PrintTo(const KeysView& v, std::ostream* out) { *out << v.name; }
class ViewedKeys : public testing::TestWithParam<KeysView> {};

TEST_P(ViewedKeys, ArePacked) {
  constexpr int64_t heads = 2, rows = 24, keys = 20, depth = 6;
  const KeysView& v = GetParam();
  FuncBuilder b("product");
  const Buffer x = b.input("x", f32, {heads, rows, depth}),
               joint = b.input("joint", f32, {v.first_row + v.step * keys, v.first + 2 * heads * depth});
  const Buffer y = b.reduce("product", f32, {heads, rows, keys}, {depth}, Reducer::sum, [&](Axes i, Axes r) {
    return load(x, {i[0], i[1], r[0]}) *
           load(joint, {Expr(v.first_row) + i[2] * Expr(v.step), Expr(v.first) + i[0] * Expr(depth) + r[0]});
  });
  const Workload w{"product", b.finish({y}), {}, false};
  const Schedule made = default_schedule(w.func, small_target());
  const std::string trace = to_text(made.trace());
  EXPECT_EQ(trace.find("(d1 // 6") != std::string::npos, v.is_plain) << trace;
  EXPECT_EQ(trace.find("reindex(block=\"product\", buffer=\"joint\"") == std::string::npos, v.is_plain)
      << trace;
  EXPECT_NE(trace.find("transform_layout(buffer=\"product.packed\""), std::string::npos) << trace;
  std::vector<Bytes> expected;
  ASSERT_EQ(tensor::test::run(w, w.func, &expected), "");
  EXPECT_EQ(tensor::test::check_results(w, made.func(), expected, true), "");
}

INSTANTIATE_TEST_SUITE_P(Views, ViewedKeys,
                         testing::Values(KeysView{"first", 0, 0, 1, true},
                                         KeysView{"behind_others", 12, 0, 1, false},
                                         KeysView{"within_a_head", 7, 0, 1, false},
                                         KeysView{"rows_behind", 0, 3, 1, false},
                                         KeysView{"every_second", 12, 0, 2, false}),
                         testing::PrintToStringParamName());

// Of products of a tensor with itself one side is copied.
TEST(Packing, CopiesOneSideOfATensorTimesItself) {
  FuncBuilder b("product");
  const Buffer x = b.input("x", f32, {24, 2, 6});
  const Buffer y = b.reduce("product", f32, {2, 24, 24}, {6}, Reducer::sum, [&](Axes i, Axes r) {
    return load(x, {i[1], i[0], r[0]}) * load(x, {i[2], i[0], r[0]});
  });
  const Workload w{"product", b.finish({y}), {}, false};
  const Schedule made = default_schedule(w.func, small_target());
  EXPECT_NE(to_text(made.trace()).find("reindex(block=\"product\", buffer=\"x\""), std::string::npos);
  std::vector<Bytes> expected;
  ASSERT_EQ(tensor::test::run(w, w.func, &expected), "");
  EXPECT_EQ(tensor::test::check_results(w, made.func(), expected, true), "");
}

// Weights are stored as they are read, once.
TEST(Packing, LeavesViewsOfWeights) {
  FuncBuilder b("product");
  const Buffer x = b.input("x", f32, {24, 6}), u = b.input("u", f32, {43, 6});
  const Buffer y = b.reduce("product", f32, {24, 20}, {6}, Reducer::sum, [&](Axes i, Axes r) {
    return load(x, {i[0], r[0]}) * load(u, {i[1] * Expr(2) + Expr(3), r[0]});
  });
  Func f = b.finish({y});
  EXPECT_NE(to_text(default_schedule(f, small_target()).trace()).find("reindex"), std::string::npos);
  mark_weights(f, {"u"});
  EXPECT_EQ(to_text(default_schedule(f, small_target()).trace()).find("reindex"), std::string::npos);
}

// Windows overlap: a copy that has the axes of the product would be larger than what it reads.
TEST(Packing, LeavesWindows) {
  FuncBuilder b("product");
  const Buffer x = b.input("x", f32, {4, 40}), u = b.input("u", f32, {24, 4, 3});
  const Buffer y = b.reduce("product", f32, {24, 38}, {4, 3}, Reducer::sum, [&](Axes i, Axes r) {
    return load(u, {i[0], r[0], r[1]}) * load(x, {r[0], i[1] + r[1]});
  });
  EXPECT_EQ(to_text(default_schedule(b.finish({y}), small_target()).trace()).find("packed"),
            std::string::npos);
}

}  // namespace
}  // namespace mcc::tuner::test
