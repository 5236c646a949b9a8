#include "tensor/passes/join_cases.h"

#include <gtest/gtest.h>

#include <array>

#include "tensor/interpret.h"
#include "tensor/passes/lower.h"
#include "tensor/text.h"
#include "tensor/visit.h"
#include "tensor_passes/equivalence.h"

namespace mcc::tensor {
namespace {

class OtherElement : public Mutator {
 public:
  OtherElement(Buffer buffer, int64_t index) : buffer_(std::move(buffer)), index_(index) {}

 protected:
  using Mutator::on;
  Expr on(const Load& n, const Expr& self) override {
    return n.buffer.same_as(buffer_) ? Load::make(n.buffer, {Expr(index_)}) : Mutator::on(n, self);
  }

 private:
  const Buffer buffer_;
  const int64_t index_;
};

Stmt substitute_loads(const Stmt& s, const Buffer& buffer, int64_t index) {
  return OtherElement(buffer, index).mutate(s);
}

// Of CPUs: one function or the other, whole.
TEST(JoinCases, DoesWhatTheConditionSays) {
  const Func f = parse(R"(func f<N, K>(x: f32[N], a: f32[3]) -> (y: f32[N]) {
    for i in N {
      block b(i = i: spatial N) writes y[i] { y[i] = x[i] + a[0] }
    }
  })");
  auto adds = [&](int64_t which) {
    Func other = f;
    other.body = substitute_loads(f.body, f.params[1], which);
    return lower(other, Target{});
  };
  const Func joined = join_cases(adds(0), {{f.dims[1] == Expr(1), adds(1)}, {f.dims[1] == Expr(2), adds(2)}});
  for (const auto& [size, added] : {std::pair{0, 1.0f}, {1, 2.0f}, {2, 3.0f}, {3, 1.0f}}) {
    std::array<float, 3> x{1, 2, 3}, a{1, 2, 3}, y{};
    std::byte* buffers[] = {reinterpret_cast<std::byte*>(x.data()), reinterpret_cast<std::byte*>(a.data()),
                            reinterpret_cast<std::byte*>(y.data())};
    const int64_t dims[] = {3, size};
    const Status status = interpret(joined, buffers, dims);
    ASSERT_TRUE(status.ok()) << to_text(status.errors()) << to_text(joined);
    EXPECT_EQ(y, (std::array<float, 3>{1 + added, 2 + added, 3 + added})) << to_text(joined);
  }
}

}  // namespace
}  // namespace mcc::tensor
