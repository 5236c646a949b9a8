// Sums that wait in memory between a loop that adds them up and a function of them: where that pays, and with the same results.
#include <gtest/gtest.h>

#include "codegen/compiled.h"
#include "codegen/replayed.h"
#include "support/text.h"
#include "tensor/build.h"
#include "tensor/passes/lower.h"

namespace mcc::codegen {
namespace {

constexpr int64_t kRows = 24, kLanes = 16;

struct Product {
  tensor::Func plain, scheduled;
};

// f(x w) of 24 rows and 16 columns over `depth`, all sums in registers.
Product product(int64_t depth, const std::function<tensor::Expr(const tensor::Expr&)>& f) {
  using namespace tensor;
  FuncBuilder b("product");
  Buffer x = b.input("x", ElementType::f32, {kRows, depth});
  Buffer w = b.input("w", ElementType::f32, {depth, kLanes});
  Buffer sum = b.reduce("sum", ElementType::f32, {kRows, kLanes}, {depth}, Reducer::sum,
                        [&](Axes s, Axes r) { return load(x, {s[0], r[0]}) * load(w, {r[0], s[1]}); });
  Buffer y =
      b.compute("y", ElementType::f32, {kRows, kLanes}, [&](Axes s) { return f(load(sum, {s[0], s[1]})); });
  Product out{b.finish({y}), {}};
  out.scheduled = replayed(out.plain, R"(set_scope(buffer="sum", scope="registers")
reorder(loops=["sum.r0", "sum.i0", "sum.i1"])
decompose_reduction(block="sum", loop="sum.r0")
unroll(loop="sum.i0")
vectorize(loop="sum.i1")
unroll(loop="sum.init.i0")
vectorize(loop="sum.init.i1")
unroll(loop="y.i0")
vectorize(loop="y.i1")
)")
                      .func();
  return out;
}

tensor::Expr erf_of(const tensor::Expr& e) { return tensor::call(tensor::Intrinsic::erf, {e}); }
tensor::Expr twice(const tensor::Expr& e) { return e + e; }

// How many sums wait in memory, in the code for Zen 4.
int waiting(const tensor::Func& scheduled) {
  const tensor::Target target = *make_target("cpu:znver4");
  EmitOptions options;
  options.keep_llvm_ir = true;
  const Result<ObjectCode> object = emit_object(tensor::lower(scheduled, target), "product", target, options);
  EXPECT_TRUE(object.ok()) << to_text(object.errors());
  int count = 0;
  for (size_t at = 0; (at = object->llvm_ir.find("store volatile <16 x float>", at)) != std::string::npos;
       ++at)
    ++count;
  return count;
}

TEST(KeepSums, WaitInMemoryForAFunctionOfThem) { EXPECT_EQ(waiting(product(512, erf_of).scheduled), kRows); }

TEST(KeepSums, StayInRegistersForLittle) {
  EXPECT_EQ(waiting(product(512, twice).scheduled), 0);  // no constants to speak of
  EXPECT_EQ(waiting(product(32, erf_of).scheduled), 0);  // a store and a load of each would be dear
}

TEST(KeepSums, AreTheSame) {
  const Product p = product(512, erf_of);
  for (const tensor::Target& target : test_targets()) {
    SCOPED_TRACE(target.name);
    expect_same(p.plain, p.scheduled, target, random_memory(p.plain, 1));
  }
}

}  // namespace
}  // namespace mcc::codegen
