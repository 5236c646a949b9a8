#include "tensor/schedule/index_map.h"

#include <gtest/gtest.h>

namespace mcc::tensor {
namespace {

// Traces come from logs, too: what a map may ask for is bounded.
TEST(IndexMap, OfTooManyOperatorsIsNone) {
  auto sum = [](const std::string& term, int terms) {
    std::string map = "(i, j) -> (" + term;
    for (int k = 1; k < terms; ++k) map += " + " + term;
    return parse_index_map(map + ", j)");
  };
  EXPECT_TRUE(sum("i", 100));
  EXPECT_FALSE(sum("i * j", 300'000));
}

TEST(IndexMap, OfTooManyIndicesIsNone) {
  auto identity = [](int count) {
    std::string names = "i0";
    for (int k = 1; k < count; ++k) names += ", i" + std::to_string(k);
    return parse_index_map("(" + names + ") -> (i0)");
  };
  EXPECT_TRUE(identity(16));
  EXPECT_FALSE(identity(17));
}

}  // namespace
}  // namespace mcc::tensor
