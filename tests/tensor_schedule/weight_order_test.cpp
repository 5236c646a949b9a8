// Weights in another order, with what reads them.
#include "tensor/schedule/weight_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "tensor/build.h"
#include "tensor/interpret.h"
#include "tensor/text.h"

namespace mcc::tensor::test {
namespace {

struct OrderCase {
  ElementType element;
  std::vector<std::string> maps;  // one after the other
};

void PrintTo(const OrderCase& c, std::ostream* out) {
  *out << to_text(c.element) << " " << testing::PrintToString(c.maps);
}

// y[i] = the weights' elements one after the other, read by their indices: whatever their order, y is as it was.
Func reader(ElementType element) {
  FuncBuilder b("reader");
  Buffer w = b.input("w", element, {4, 6, 16});
  Buffer y = b.compute("y", element, {4, 6, 16}, [&](Axes s) { return load(w, {s[0], s[1], s[2]}); });
  Func f = b.finish({y});
  mark_weights(f, {"w"});
  return f;
}

class Orders : public testing::TestWithParam<OrderCase> {};

TEST_P(Orders, AreWhatTheScheduleReads) {
  const Func f = reader(GetParam().element);
  Schedule schedule(f);
  for (const std::string& map : GetParam().maps) {
    Outcome outcome = schedule.apply(TransformLayout{"w", map});
    ASSERT_TRUE(outcome) << outcome.detail;
  }
  const auto width = static_cast<size_t>(byte_size(GetParam().element));
  std::vector<std::byte> weights(4 * 6 * 16 * width), result(weights.size());
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = static_cast<std::byte>(i * 7 / 3);
  const std::vector<std::byte> given = weights;
  const std::vector<WeightOrder> orders = weight_orders(f, schedule.trace());
  ASSERT_EQ(orders.size(), GetParam().maps.size());
  for (const WeightOrder& order : orders) {
    EXPECT_EQ(order.parameter, 0u);
    ASSERT_EQ(order.bytes(), static_cast<int64_t>(weights.size()));
    std::vector<std::byte> next = reordered(order, weights);
    EXPECT_NE(next, weights);
    weights = std::move(next);
  }
  std::vector<std::byte*> memory = {weights.data(), result.data()};
  Status status = interpret(schedule.func(), memory);
  ASSERT_TRUE(status.ok()) << to_text(status.errors());
  EXPECT_EQ(result, given);
}

INSTANTIATE_TEST_SUITE_P(
    Maps, Orders,
    testing::Values(OrderCase{ElementType::f32, {"(a, b, c) -> (b, a, c)"}},
                    OrderCase{ElementType::f32, {"(a, b, c) -> (c, b, a)"}},
                    OrderCase{ElementType::u8, {"(a, b, c) -> (a // 2, b, a %% 2, c)"}},
                    OrderCase{ElementType::i16, {"(a, b, c) -> (a, c // 8, b, c %% 8)"}},
                    OrderCase{ElementType::i64, {"(a, b, c) -> (a * 2 + c // 8, b, c %% 8)"}},
                    OrderCase{ElementType::i8, {"(a, b, c) -> (b * 4 + a, c // 2 %% 4, c // 8, c %% 2)"}},
                    OrderCase{ElementType::f32,
                              {"(a, b, c) -> (a // 2, b, a %% 2, c)", "(a, b, c, d) -> (b, d, a, c)"}}));

TEST(WeightOrders, AreOfWeightsOnly) {
  FuncBuilder b("sum");
  Buffer x = b.input("x", ElementType::f32, {4, 4}), w = b.input("w", ElementType::f32, {4, 4});
  Buffer t = b.compute("t", ElementType::f32, {4, 4},
                       [&](Axes s) { return load(x, {s[0], s[1]}) + load(w, {s[0], s[1]}); });
  Buffer y = b.compute("y", ElementType::f32, {4, 4}, [&](Axes s) { return load(t, {s[1], s[0]}); });
  Func f = b.finish({y});
  mark_weights(f, {"w", "y"});
  EXPECT_TRUE(is_weight(f, f.params[1]));
  EXPECT_FALSE(is_weight(f, f.params[0]));
  EXPECT_FALSE(is_weight(f, f.params[2]));  // an output is nothing that is known
  Schedule schedule(f);
  for (const char* name : {"x", "y"}) {
    Outcome outcome = schedule.apply(TransformLayout{name, "(i, j) -> (j, i)"});
    EXPECT_EQ(outcome.code, RefusalCode::is_output);
  }
  EXPECT_TRUE(schedule.apply(TransformLayout{"t", "(i, j) -> (j, i)"}));
  EXPECT_THAT(weight_orders(f, schedule.trace()), testing::IsEmpty());
  EXPECT_TRUE(schedule.apply(TransformLayout{"w", "(i, j) -> (j, i)"}));
  EXPECT_THAT(weight_orders(f, schedule.trace()), testing::SizeIs(1));
}

}  // namespace
}  // namespace mcc::tensor::test
