#include <gtest/gtest.h>

#include "tensor/schedule/schedule.h"

namespace mcc::tensor {
namespace {

TEST(TraceText, PrintsFieldsThatAreNotDefaults) {
  EXPECT_EQ(to_text(Step(Split{"i", {0, 4}, {}})), "split(loop=\"i\", factors=[0, 4])");
  EXPECT_EQ(to_text(Step(Split{"i", {0, 4}, {"a", "b"}})),
            "split(loop=\"i\", factors=[0, 4], names=[\"a\", \"b\"])");
  EXPECT_EQ(to_text(Step(Rfactor{"s", "s.k", "p", 0})), "rfactor(block=\"s\", loop=\"s.k\", name=\"p\")");
}

TEST(TraceText, ReadsBackWhatItPrints) {
  Trace trace = {Split{"i", {0, 4}, {"a", "b"}}, Fuse{{"a", "b"}, ""}, Rfactor{"s", "k", "p", 2},
                 Annotate{"", "l", "key", "a \"quoted\" \\ value\nand a line"},
                 TransformLayout{"b", "(i, j) -> (j, i)"}};
  Result<Trace> read = parse_trace(to_text(trace));
  ASSERT_TRUE(read.ok()) << to_text(read.errors());
  EXPECT_EQ(to_text(*read), to_text(trace));
}

TEST(TraceText, SkipsCommentsAndEmptyLines) {
  Result<Trace> read = parse_trace("# a comment\n\n  unroll( loop = \"i\" )   # why\n\n");
  ASSERT_TRUE(read.ok()) << to_text(read.errors());
  EXPECT_EQ(to_text(*read), "unroll(loop=\"i\")\n");
}

std::string error_of(std::string_view source) {
  Result<Trace> read = parse_trace(source);
  return read.ok() ? "none" : read.errors()[0].where + ": " + read.errors()[0].message;
}

TEST(TraceText, NamesThePlaceOfAnError) {
  EXPECT_EQ(error_of("unroll(loop=\"i\")\nsplat()"),
            "trace, line 2, column 6: expected the name of a step, not 'splat', got '('");
  EXPECT_EQ(error_of("split(loop=\"i\", size=[1])"),
            "trace, line 1, column 22: expected a field of the step, not 'size', got '['");
  EXPECT_EQ(error_of("split(loop=\"i\", factors=[1, x])"),
            "trace, line 1, column 29: expected an integer, got 'x'");
  EXPECT_EQ(error_of("split(loop=\"i"),
            "trace, line 1, column 14: expected a closing quote, got the end of the text");
  EXPECT_EQ(error_of("split(loop=\"i\") fuse()"),
            "trace, line 1, column 17: expected the end of the line, got 'f'");
  EXPECT_EQ(error_of("split(factors=[99999999999999999999])"),
            "trace, line 1, column 16: expected an integer, got '9'");
}

TEST(Schedule, RefusesAnEmptyStep) {
  Schedule schedule{Func()};
  EXPECT_EQ(schedule.apply(Step(std::monostate())).code, RefusalCode::bad_argument);
}

}  // namespace
}  // namespace mcc::tensor
