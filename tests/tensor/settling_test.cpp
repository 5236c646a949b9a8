// Which loops may end as soon as an iteration changes nothing.
#include "tensor/settling.h"

#include <gtest/gtest.h>

#include "tensor/text.h"

namespace mcc::tensor {
namespace {

// In what of "a" and "i" one iteration of a loop does, with tables "t" and "x".
bool settles(const std::string& statement, const std::string& element = "i32") {
  const Result<Func> f = parse_func("func f(t: i32[64], x: f32[64]) -> (a: " + element +
                                    "[64]) { for j in 4 { for i in 9 { " + statement + " } } }");
  EXPECT_TRUE(f.ok()) << to_text(f.errors());
  if (!f.ok()) return false;
  return settling_store(*f->body.as<For>()->body.as<For>()) != nullptr;
}

TEST(Settling, WhatFollowsFromItsOwnElements) {
  EXPECT_TRUE(settles("a[j] = t[i64(a[j])]"));
  EXPECT_TRUE(settles("a[j] = t[i64(a[j] + select(x[i64(a[j])] <= bit_cast<f32>(t[j]), 0:i32, 1:i32))]"));
  EXPECT_TRUE(settles("a[ramp(j * 16, 1, 16)] = t[i64x16(a[ramp(j * 16, 1, 16)])]"));
}

TEST(Settling, NotWhatFollowsFromOthers) {
  EXPECT_FALSE(settles("a[j] = a[j] + i32(i)"));
  EXPECT_FALSE(settles("a[i] = t[i64(a[i])]"));
  EXPECT_FALSE(settles("a[j] = a[i64(a[j])]"));
  EXPECT_FALSE(settles("a[j] = t[j]"));
  EXPECT_FALSE(settles("a[j] = t[i64(a[j])]  a[j] = a[j] + 1:i32"));
  EXPECT_FALSE(settles("a[j] = shuffle_xor(a[j], 1:i32)"));
  EXPECT_FALSE(settles("a[j] = x[i64(t[j])] + a[j]", "f32"));
}

}  // namespace
}  // namespace mcc::tensor
