#include "tensor/passes/merge_axes.h"

#include <gtest/gtest.h>

#include "tensor/text.h"
#include "tensor_passes/equivalence.h"

namespace mcc::tensor {
namespace {

TEST(MergeAxes, TheVariableOfALoopOfOneInABlockIsItsBeginning) {
  const Func f = parse(R"(func f(x: f32[6]) -> (y: f32[6]) {
    for i in 6 {
      block b(i = i: spatial 6) writes y[i] {
        for t in 1 {
          if t < 1 { y[i] = x[i] + f32(t) }
        }
      }
    }
  })");
  const Func g = merge_axes(f);
  expect_equivalent(f, g);
  EXPECT_EQ(to_text(g).find("t < 1"), std::string::npos) << to_text(g);
}

}  // namespace
}  // namespace mcc::tensor
