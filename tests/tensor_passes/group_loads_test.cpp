#include "tensor/passes/group_loads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/text.h"
#include "tensor_passes/equivalence.h"

namespace mcc::tensor {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string grouped(const char* source) {
  const Func f = parse(source);
  const Func g = group_loads(f);
  expect_equivalent(f, g);
  return to_text(g);
}

TEST(GroupLoads, LoadsOfSeveralStoresComeFirst) {
  const std::string g =
      grouped("func f(x: f32[4]) -> (y: f32[4]) { y[0] = x[3] y[1] = x[2] y[2] = x[1] y[3] = x[0] }");
  EXPECT_LT(g.rfind("let "), g.find("y[0] =")) << g;
  EXPECT_EQ(g.find("= x[", g.find("y[0] =")), std::string::npos) << g;
}

TEST(GroupLoads, OneStoreStaysAsItIs) {
  EXPECT_THAT(grouped("func f(x: f32[4]) -> (y: f32[4]) { for i in 4 { y[i] = x[i] + x[3 - i] } }"),
              Not(HasSubstr("let ")));
}

TEST(GroupLoads, WhatIsWrittenOnTheWayIsReadWhereItWas) {
  const std::string g = grouped(
      "func f(x: f32[4]) -> (y: f32[4], z: f32[2]) { y[0] = x[3] y[1] = x[2] z[0] = y[1] + x[0] y[2] = y[0] "
      "y[3] = x[1] z[1] = y[3] }");
  EXPECT_THAT(g, Not(HasSubstr("= y[1]\n"))) << g;
  EXPECT_THAT(g, HasSubstr("z[0] = y[1] + x")) << g;
}

// x[i - 1] and x[i + 1] are not there at the ends.
TEST(GroupLoads, ConditionsGoWithTheLoads) {
  const std::string g = grouped(
      "func f(x: f32[4], k: i64[4]) -> (y: f32[12]) { for i in 4 { "
      "y[i] = select(i > 0, x[i - 1], 7.0) "
      "if i < 3 { y[4 + i] = x[i + 1] * 2.0 } "
      "if i > 1 { y[8 + i] = select(i < 3, x[i + 1], x[i - 1]) } } }");
  EXPECT_THAT(g, HasSubstr("let ")) << g;
}

TEST(GroupLoads, PlacesThatAreReadAreReadBeforeWhatStandsThere) {
  const std::string g = grouped(
      "func f(x: f32[4], k: i64[4]) -> (y: f32[4]) { for i in 2 { "
      "y[2 * i] = select(k[i] >= 0 && k[i] < 4, x[k[i]], 1.0) "
      "y[2 * i + 1] = select(k[i + 2] >= 0 && k[i + 2] < 4, x[k[i + 2]], 1.0) } }");
  EXPECT_THAT(g, HasSubstr("let ")) << g;
}

std::string row_with_barrier(const char* between) {
  return text(
      "func f(x: f32[32], s: f32[32], t: f32[64]) -> (y: f32[32], z: f32[32]) { "
      "bound for b in 1 @{thread=\"block.x\"} { alloc sum: f32[32] shared { bound for i in 32 "
      "@{thread=\"thread.x\"} { "
      "sum[i] = x[i] z[i] = x[i] * 2.0 evaluate barrier() ",
      between, " y[i] = sum[31 - i] * s[i] + t[i] } } } }");
}

size_t loads_ahead_of_barrier(const std::string& source) {
  const std::string g = grouped(source.c_str());
  const std::string ahead = g.substr(0, g.find("barrier()"));
  size_t count = 0;
  for (const char* load : {"= s[i]", "= t[i]", "= z[31 - i]"})
    count += ahead.find(load) != std::string::npos;
  return count;
}

TEST(GroupLoads, WhatIsReadBehindABarrierIsAskedForAheadOfIt) {
  EXPECT_EQ(loads_ahead_of_barrier(row_with_barrier("")), 2);
  EXPECT_EQ(loads_ahead_of_barrier(row_with_barrier("y[i] = z[31 - i]")), 2);
  EXPECT_EQ(loads_ahead_of_barrier(row_with_barrier("y[i] = 0.0 for k in 2 { y[i] = y[i] + t[i + k] }")), 0);
  // Of much, the first.
  std::string much;
  for (int k = 1; k <= 15; ++k)
    much += text("y[i] = t[i + ", k, "] ");
  EXPECT_EQ(loads_ahead_of_barrier(row_with_barrier(much.c_str())), 0);
  much.resize(much.rfind("y[i]"));
  EXPECT_EQ(loads_ahead_of_barrier(row_with_barrier(much.c_str())), 2);
}

}  // namespace
}  // namespace mcc::tensor
