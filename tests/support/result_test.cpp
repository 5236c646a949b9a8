#include "support/result.h"

#include <gtest/gtest.h>

#include "support/element_type.h"
#include "support/hash.h"

namespace mcc {
namespace {

TEST(Result, HoldsAValueOrDiagnostics) {
  Result<int> good(3);
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(*good, 3);
  Result<int> bad(Diagnostic{ErrorKind::unsupported, "node 'a'", "no such thing", "leave it out"});
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(to_text(bad.errors()), "node 'a': no such thing\n  leave it out");
  EXPECT_THROW(bad.value(), InternalError);
}

TEST(Result, EachKindHasItsExitCode) {
  EXPECT_EQ(exit_code(ErrorKind::comparison), 1);
  EXPECT_EQ(exit_code(ErrorKind::usage), 2);
  EXPECT_EQ(exit_code(ErrorKind::bad_input), 3);
  EXPECT_EQ(exit_code(ErrorKind::unsupported), 4);
  EXPECT_EQ(exit_code(ErrorKind::environment), 5);
  EXPECT_EQ(exit_code(ErrorKind::tuning_log), 6);
}

TEST(Check, SaysWhereAndWhat) {
  try {
    MCC_CHECK(1 + 1 == 3, "one and one is ", 2);
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_EQ(e.message(), "one and one is 2");
    EXPECT_NE(std::string(e.what()).find("1 + 1 == 3: one and one is 2"), std::string::npos);
  }
}

TEST(Text, PiecesAndLists) {
  EXPECT_EQ(text("a", 1, ' ', true, 0.1, std::string("z")), "a1 true0.1z");
  EXPECT_EQ(list_text(std::vector<int>{1, 3, 224}), "[1, 3, 224]");
}

TEST(ElementTypes, NamesReadBack) {
#define X(name, text, cls, bits) EXPECT_EQ(parse_element_type(to_text(ElementType::name)), ElementType::name);
  MCC_ELEMENT_TYPES(X)
#undef X
  EXPECT_EQ(parse_element_type("f33"), std::nullopt);
  EXPECT_EQ(byte_size(ElementType::i4), 1);
  EXPECT_EQ(byte_size(ElementType::f64), 8);
}

TEST(Hash, KnownValues) {
  EXPECT_EQ(hash_bytes(""), 0xcbf29ce484222325u);
  EXPECT_EQ(hash_bytes("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash_bytes("foobar"), 0x85944171f73967e8u);
}

}  // namespace
}  // namespace mcc
