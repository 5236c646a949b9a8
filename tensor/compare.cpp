// Structural equality and order of expressions.
#include <bit>

#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::tensor {
namespace {

template <class T>
int three_way(const T& a, const T& b) {
  return a < b ? -1 : (b < a ? 1 : 0);
}

// The first non-zero of the comparisons, in order. In identity mode variables and buffers of equal names but different
// identity are told apart (by an arbitrary sign); otherwise they compare 0.
class Comparer {
 public:
  explicit Comparer(bool identity) : identity_(identity) {}

  int operator()(const Expr& a, const Expr& b) const {
    if (a.same_as(b)) return 0;
    if (!a.defined() || !b.defined()) return a.defined() ? 1 : -1;
    if (a.kind() != b.kind()) return three_way(a.kind(), b.kind());
    if (int c = type(a.type(), b.type())) return c;
    return dispatch(a, [&](const auto& x) {
      using Node = std::decay_t<decltype(x)>;
      return same_kind(x, *static_cast<const Node*>(b.get()));
    });
  }

 private:
  static int type(Type a, Type b) {
    if (a.element != b.element) return three_way(a.element, b.element);
    return three_way(a.lanes, b.lanes);
  }
  int lists(const std::vector<Expr>& a, const std::vector<Expr>& b) const {
    if (a.size() != b.size()) return three_way(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      if (int c = (*this)(a[i], b[i])) return c;
    }
    return 0;
  }
  int buffers(const Buffer& a, const Buffer& b) const {
    if (a.same_as(b)) return 0;
    int c = three_way(a.name(), b.name());
    return c == 0 && identity_ ? 1 : c;
  }

  int same_kind(const IntImm& a, const IntImm& b) const { return three_way(a.value, b.value); }
  int same_kind(const FloatImm& a, const FloatImm& b) const {
    return three_way(std::bit_cast<uint64_t>(a.value), std::bit_cast<uint64_t>(b.value));
  }
  int same_kind(const VarNode& a, const VarNode& b) const {
    int c = three_way(a.name, b.name);
    return c == 0 && identity_ ? 1 : c;
  }
  int same_kind(const Cast& a, const Cast& b) const { return (*this)(a.value, b.value); }
  int same_kind(const Binary& a, const Binary& b) const {
    if (a.op != b.op) return three_way(a.op, b.op);
    if (int c = (*this)(a.a, b.a)) return c;
    return (*this)(a.b, b.b);
  }
  int same_kind(const Select& a, const Select& b) const {
    if (int c = (*this)(a.condition, b.condition)) return c;
    if (int c = (*this)(a.on_true, b.on_true)) return c;
    return (*this)(a.on_false, b.on_false);
  }
  int same_kind(const Load& a, const Load& b) const {
    if (int c = buffers(a.buffer, b.buffer)) return c;
    if (int c = lists(a.indices, b.indices)) return c;
    return (*this)(a.predicate, b.predicate);
  }
  int same_kind(const Ramp& a, const Ramp& b) const {
    if (int c = (*this)(a.base, b.base)) return c;
    return (*this)(a.stride, b.stride);
  }
  int same_kind(const Broadcast& a, const Broadcast& b) const { return (*this)(a.value, b.value); }
  int same_kind(const Shuffle& a, const Shuffle& b) const {
    if (int c = lists(a.vectors, b.vectors)) return c;
    return three_way(a.indices, b.indices);
  }
  int same_kind(const VectorReduce& a, const VectorReduce& b) const {
    if (a.op != b.op) return three_way(a.op, b.op);
    return (*this)(a.value, b.value);
  }
  int same_kind(const Call& a, const Call& b) const {
    if (a.function != b.function) return three_way(a.function, b.function);
    return lists(a.args, b.args);
  }

  const bool identity_;
};

}  // namespace

bool structurally_equal(const Expr& a, const Expr& b) { return Comparer(true)(a, b) == 0; }
int compare(const Expr& a, const Expr& b) { return Comparer(false)(a, b); }

}  // namespace mcc::tensor
