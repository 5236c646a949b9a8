// What is read off the loops that a library computes, and what it does not compute.
#include "tensor/library_product.h"

#include <gmock/gmock.h>

#include "support/text.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

using ::testing::HasSubstr;

std::string text_of(const LibraryMatrix& m) {
  return text(m.buffer.name(), " ", m.row, " ", m.column, " ", m.batch);
}

std::string read(const std::string& source) {
  Result<Func> f = parse_func(source);
  if (!f.ok()) return to_text(f.errors());
  if (!is_library_nest(f->body)) return "no such nest";
  Result<LibraryProduct> p = library_product(*f->body.as<For>());
  if (!p.ok()) return p.errors()[0].message;
  std::string out = text(p->batches, " of ", p->rows, "x", p->columns, "x", p->depth, ": ", text_of(p->a),
                         ", ", text_of(p->b), ", ", text_of(p->d));
  if (p->scale != 1) out += text(", scale ", p->scale);
  if (p->bias) out += text(", bias ", p->bias->name());
  if (p->addend) out += text(", addend ", text_of(*p->addend));
  return text(out, ", algorithm ", p->algorithm);
}

// y = the sum of `product` over k, by loops i and j.
std::string product_of(const std::string& parameters, const std::string& product,
                       const std::string& library = "cublasLt:0") {
  return text("func f(", parameters, ") -> (y: f32[30]) { for i in 5 @{library=\"", library,
              "\"} { for j in 6 {", " y[i * 6 + j] = 0.0 for k in 4 { y[i * 6 + j] = y[i * 6 + j] + ",
              product, " } } } }");
}

// y = `result` of the sum s of a * b.
std::string result_of(const std::string& parameters, const std::string& result,
                      const std::string& element = "f32", const std::string& operand = "f32") {
  auto load = [&](const std::string& of) { return operand == "f32" ? of : text("f32(", of, ")"); };
  return text("func f(a: ", operand, "[20], b: ", operand, "[24]", parameters, ") -> (y: ", element,
              "[30]) { for i in 5 @{library=\"cublasLt:3\"} { for j in 6 { alloc s: f32[1] local { s[0] = "
              "0.0 for k in 4 { ",
              "s[0] = s[0] + ", load("a[i * 4 + k]"), " * ", load("b[k * 6 + j]"),
              " } y[i * 6 + j] = ", result, " } } } }");
}

TEST(LibraryProduct, OperandsInEveryOrder) {
  const std::string both = "a: f32[20], b: f32[24]";
  EXPECT_EQ(read(product_of(both, "a[i * 4 + k] * b[k * 6 + j]")),
            "1 of 5x6x4: a 4 1 0, b 6 1 0, y 6 1 0, algorithm 0");
  EXPECT_EQ(read(product_of(both, "a[i * 4 + k] * b[j * 4 + k]")),
            "1 of 5x6x4: a 4 1 0, b 1 4 0, y 6 1 0, algorithm 0");
  EXPECT_EQ(read(product_of(both, "a[k * 5 + i] * b[k * 6 + j]")),
            "1 of 5x6x4: a 1 5 0, b 6 1 0, y 6 1 0, algorithm 0");
  // Whichever stands first.
  EXPECT_EQ(read(product_of(both, "b[k * 6 + j] * a[i * 4 + k]", "cublasLt:7")),
            "1 of 5x6x4: a 4 1 0, b 6 1 0, y 6 1 0, algorithm 7");
  // A part of a wider array.
  EXPECT_EQ(read(product_of("a: f32[50], b: f32[24]", "a[i * 10 + k] * b[k * 6 + j]")),
            "1 of 5x6x4: a 10 1 0, b 6 1 0, y 6 1 0, algorithm 0");
}

TEST(LibraryProduct, ManyMatrices) {
  auto batched = [](const std::string& product) {
    return text(
        "func f(a: f32[60], b: f32[72]) -> (y: f32[90]) { for n in 3 @{library=\"cublasLt:0\"} { for i in 5 "
        "{ for j in 6 { ",
        "y[n * 30 + i * 6 + j] = 0.0 for k in 4 { y[n * 30 + i * 6 + j] = y[n * 30 + i * 6 + j] + ", product,
        " } } } } }");
  };
  EXPECT_EQ(read(batched("a[n * 20 + i * 4 + k] * b[n * 24 + k * 6 + j]")),
            "3 of 5x6x4: a 4 1 20, b 6 1 24, y 6 1 30, algorithm 0");
  // Those with the same right side in order are rows of one product; with the same left side they are not.
  EXPECT_EQ(read(batched("a[n * 20 + i * 4 + k] * b[k * 6 + j]")),
            "1 of 15x6x4: a 4 1 0, b 6 1 0, y 6 1 0, algorithm 0");
  EXPECT_EQ(read(batched("a[i * 4 + k] * b[n * 24 + k * 6 + j]")),
            "3 of 5x6x4: a 4 1 0, b 6 1 24, y 6 1 30, algorithm 0");
}

TEST(LibraryProduct, OneRowOrSeveralSums) {
  EXPECT_EQ(read(R"(func f(a: f32[4], b: f32[24]) -> (y: f32[6]) { for j in 6 @{library="cublasLt:0"} {
                      y[j] = 0.0 for k in 4 { y[j] = y[j] + a[k] * b[k * 6 + j] } } })"),
            "1 of 1x6x4: a 4 1 0, b 6 1 0, y 6 1 0, algorithm 0");
  EXPECT_EQ(
      read(
          R"(func f(a: f32[40], b: f32[48]) -> (y: f32[30]) { for i in 5 @{library="cublasLt:0"} { for j in 6 {
                      y[i * 6 + j] = 0.0
                      for p in 4 { for q in 2 { y[i * 6 + j] = y[i * 6 + j] + a[i * 8 + p * 2 + q] * b[p * 12 + q * 6 + j] } } } } })"),
      "1 of 5x6x8: a 8 1 0, b 6 1 0, y 6 1 0, algorithm 0");
}

TEST(LibraryProduct, WhatIsDoneToTheSum) {
  const std::string plain = "1 of 5x6x4: a 4 1 0, b 6 1 0, y 6 1 0";
  EXPECT_EQ(read(result_of("", "s[0]")), plain + ", algorithm 3");
  EXPECT_EQ(read(result_of(", c: f32[6]", "s[0] * 0.5 + c[j]")), plain + ", scale 0.5, bias c, algorithm 3");
  EXPECT_EQ(read(result_of(", c: f32[6], r: f32[30]", "r[i * 6 + j] + (s[0] + c[j])")),
            plain + ", bias c, addend r 6 1 0, algorithm 3");
  EXPECT_EQ(read(result_of("", "f16(s[0])", "f16", "f16")), plain + ", algorithm 3");
  // What the library does otherwise, or not at all.
  EXPECT_THAT(read(result_of("", "max(s[0], 0.0)")),
              HasSubstr("it does not compute max(s[0], 0.0) of a sum"));
  EXPECT_THAT(read(result_of(", c: f32[6]", "(s[0] + c[j]) * 0.5")), HasSubstr("it does not compute"));
  EXPECT_THAT(read(result_of(", c: f32[5]", "s[0] + c[i]")),
              HasSubstr("c in rows or columns that lie in one piece"));
  EXPECT_THAT(read(result_of(", r: f32[30]", "s[0] + r[j * 5 + i]")),
              HasSubstr("what is added to lie like the result"));
  EXPECT_THAT(read(result_of(", c: f32[6]", "f16(s[0] + c[j])", "f16", "f16")),
              HasSubstr("it does not compute"));
  EXPECT_THAT(read(result_of("", "f16(s[0])", "f16")),
              HasSubstr("a result in f32 or in the type of the operands"));
}

TEST(LibraryProduct, OtherNests) {
  const std::string both = "a: f32[60], b: f32[60]";
  EXPECT_EQ(read("func f(x: f32[4]) -> (y: f32[4]) { for i in 4 { y[i] = x[i] } }"), "no such nest");
  EXPECT_THAT(
      read(R"(func f(x: f32[4]) -> (y: f32[4]) { for i in 4 @{library="cublasLt:0"} { y[i] = x[i] } })"),
      HasSubstr("expected a sum that begins with 0"));
  EXPECT_THAT(read(product_of(both, "max(a[i * 4 + k], b[k * 6 + j])")),
              HasSubstr("a sum of products of two operands"));
  EXPECT_THAT(read(product_of(both, "a[i * 6 + j] * b[k * 6 + j]")),
              HasSubstr("columns of one operand only"));
  EXPECT_THAT(read(product_of(both, "a[i * 4 + k + 2] * b[k * 6 + j]")),
              HasSubstr("operands that begin where their arrays do"));
  EXPECT_THAT(read(product_of(both, "a[i * 8 + k * 2] * b[k * 6 + j]")),
              HasSubstr("a in rows or columns that lie in one piece"));
  // Windows that overlap are no rows.
  EXPECT_THAT(read(product_of(both, "a[i + k] * b[k * 6 + j]")),
              HasSubstr("a in rows or columns that lie in one piece"));
  EXPECT_THAT(read(product_of("a: f64[20], b: f64[24]", "f32(a[i * 4 + k]) * f32(b[k * 6 + j])")),
              HasSubstr("both operands in f32, tf32, f16 or bf16"));
  for (const char* library : {"cublasLt", "cublasLt:16", "cublasLt:-1", "cublasLt:1x", "cudnn:0"})
    EXPECT_THAT(read(product_of(both, "a[i * 4 + k] * b[k * 6 + j]", library)),
                HasSubstr("expected library = \"cublasLt:0\""));
}

}  // namespace
}  // namespace mcc::tensor
