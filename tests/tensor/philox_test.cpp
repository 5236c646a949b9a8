// The known answers that come with Random123, the implementation by the generator's authors (kat_vectors, philox4x32 of 10 rounds).
#include "tensor/philox.h"

#include <gtest/gtest.h>

#include "tensor/interpreted.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

using Block = std::array<uint32_t, 4>;

TEST(Philox, HasTheKnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}),
            (Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x85a308d3'243f6a88, 0x03707344'13198a2e, 0x299f31d0'a4093822),
            (Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// As i64, of which the interpreter's doubles have the upper digits.
TEST(Philox, IsWhatTheIntrinsicsGive) {
  struct Case {
    const char* expr;
    uint64_t expected;
  };
  for (const Case& c : {Case{"philox(0:u64, 0:u64, 0:u64) & 4294967295:u64", 0x6627e8d5},
                        Case{"philox(0:u64, 0:u64, 0:u64) >> 32:u64", 0xe169c58d},
                        Case{"philox_rest(0:u64, 0:u64, 0:u64) & 4294967295:u64", 0xbc57ac4c},
                        Case{"philox_rest(0:u64, 0:u64, 0:u64) >> 32:u64", 0x9b00dbd8}}) {
    const Outcome out = run(text("func f() -> (y: u64[1]) { y[0] = ", c.expr, " }"));
    ASSERT_EQ(out.error, "") << c.expr;
    EXPECT_EQ(out.first()[0], static_cast<double>(c.expected)) << c.expr;
  }
}

}  // namespace
}  // namespace mcc::tensor
