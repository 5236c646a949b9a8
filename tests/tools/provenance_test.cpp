// The text in front of a kernel's steps: what is written is what is read.
#include "tools/provenance.h"

#include <gtest/gtest.h>

namespace mcc::tools {
namespace {

using tensor::RefusalCode;

KernelSchedule schedule() {
  KernelSchedule s;
  s.origin = kDefaultOrigin;
  s.trace = "split(loop=\"i\", factors=[0, 16], names=[\"o\", \"l\"])\nvectorize(loop=\"l\")\n";
  return s;
}

void expect_same(const KernelSchedule& a, const KernelSchedule& b) {
  EXPECT_EQ(a.archs, b.archs);
  EXPECT_EQ(a.origin, b.origin);
  EXPECT_EQ(a.chosen, b.chosen);
  EXPECT_EQ(a.refused, b.refused);
  EXPECT_EQ(a.trace, b.trace);
  EXPECT_EQ(a.first_launch, b.first_launch);
  EXPECT_EQ(a.launches, b.launches);
}

TEST(Provenance, OfOneTarget) {
  const std::string text = provenance_text("0123", {schedule()});
  EXPECT_EQ(text, "# task 0123\n# from default\n" + schedule().trace);
  const KernelProvenance read = parse_provenance(text);
  EXPECT_EQ(read.task, "0123");
  ASSERT_EQ(read.schedules.size(), 1U);
  expect_same(read.schedules[0], schedule());
}

TEST(Provenance, OfSeveralWithRefusedRules) {
  KernelSchedule first = schedule(), second = schedule();
  first.archs = {"sm_75"};
  first.launches = 2;
  first.origin = kPlainOrigin;
  first.trace = "";
  first.refused = {{"products, of all kinds", "conv", "bind(loop=\"a, b\")", RefusalCode::scope, "expected, as ever, some", "less"},
                   {"rows", "conv", "", RefusalCode::no_match, "it gave up", "less"}};
  second.archs = {"sm_80", "sm_90a"};
  second.chosen = "conv.rows 4, conv.tile 2 x 8";
  second.first_launch = 2;
  second.launches = 1;
  const KernelProvenance read = parse_provenance(provenance_text("0123", {first, second}));
  ASSERT_EQ(read.schedules.size(), 2U);
  expect_same(read.schedules[0], first);
  expect_same(read.schedules[1], second);
  EXPECT_TRUE(is_plain(read.schedules[0]) && is_default(read.schedules[0]) && !is_plain(read.schedules[1]));
}

// What compile warns of.
TEST(Provenance, SaysWhichSchedulesArePlain) {
  KernelSchedule ordinary = schedule(), plain = schedule();
  ordinary.refused = {{"rows", "sum", "", RefusalCode::no_match, "it gave up", "columns"}};
  EXPECT_EQ(plain_text({ordinary}), "");
  plain.origin = kPlainOrigin;
  plain.refused = {{"register tiles", "conv", "unroll(loop=\"i\")", RefusalCode::no_such_loop, "expected i", "less"}};
  EXPECT_EQ(plain_text({plain}),
            "has the plain schedule: the rule for register tiles (block conv) was refused: unroll(loop=\"i\"): expected i; less instead");
  plain.archs = {"sm_80", "sm_86"};
  EXPECT_EQ(plain_text({ordinary, plain}).substr(0, 41), "for sm_80, sm_86 has the plain schedule: ");
}

TEST(Provenance, OfAnyText) {
  for (const char* text : {"", "\n", "#", "# for", "# for ", "# for sm_80, launches", "# instead nothing\n# because\n", "# refused x",
                           "steps"}) {
    EXPECT_EQ(parse_provenance(text).schedules.size(), 1U) << text;
  }
}

}  // namespace
}  // namespace mcc::tools
