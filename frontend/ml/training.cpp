// Steps of optimisers (ai.onnx.preview.training): Adagrad, Adam, Momentum. Each works on any number of tensors.
#include "frontend/ml/ml_ops.h"

namespace mcc::frontend {

namespace {

// Inputs: the rate, the number of updates so far, then for each tensor its value, its gradient and what the optimiser keeps of it:
// all values first, and so on. Results have no gradients.
struct Step {
  Expansion& e;
  int tensors = 0, kinds = 0;

  // Kind `kind` of tensor `i`.
  int at(int kind, int i) const { return 2 + kind * tensors + i; }
  Operand in(int kind, int i) const { return e.in(at(kind, i)); }
  ElementType element(int i) const { return e.element(at(0, i)); }
  Operand number(int i, double value) const { return e.scalar(element(i), value); }
  // Of the attributes and inputs that belong to all tensors.
  Operand parameter(int i, const char* name) const { return number(i, e.number(name)); }
  Operand rate(int i) const { return converted(i, 0); }
  Operand updates(int i) const { return converted(i, 1); }
  Operand has_updates() const { return e.op("Greater", {e.in(1), e.scalar(ElementType::i64, 0)}); }
  Operand times(const Operand& a, const Operand& b) const { return e.op("Mul", {a, b}); }
  Operand plus(const Operand& a, const Operand& b) const { return e.op("Add", {a, b}); }
  Operand minus(const Operand& a, const Operand& b) const { return e.op("Sub", {a, b}); }
  Operand over(const Operand& a, const Operand& b) const { return e.op("Div", {a, b}); }
  Operand root(const Operand& a) const { return e.op("Sqrt", {a}); }
  // The gradient, and that of what keeps values small.
  Operand gradient(int i) const { return plus(times(parameter(i, "norm_coefficient"), in(0, i)), in(1, i)); }
  void give(int kind, int i, const Operand& value) const { e.result(kind * tensors + i, value); }

 private:
  Operand converted(int i, int input) const {
    return e.element(input) == element(i) ? e.in(input) : e.converted(e.in(input), element(i));
  }
};

std::optional<Step> step_of(Expansion& e, int kinds) {
  const int given = e.num_inputs() - 2;
  if (!e.expect(given > 0 && given % kinds == 0, "expected ", kinds,
                " inputs for each tensor behind 'R' and 'T', got ", given))
    return std::nullopt;
  Step s{e, given / kinds, kinds};
  for (int i = 0; i < s.tensors; ++i) {
    for (int kind = 0; kind < kinds; ++kind) {
      const int at = s.at(kind, i);
      if (!e.expect(e.has(at), "input ", at, " is missing") || !e.expect_shape(at, e.shape(s.at(0, i))) ||
          !e.expect(e.element(at) == s.element(i), "input ", at, " is ", to_text(e.element(at)),
                    ", expected ", to_text(s.element(i)))) {
        return std::nullopt;
      }
    }
  }
  if (!e.expect_single({0, 1})) return std::nullopt;
  return s;
}

void adagrad(Expansion& e) {
  const std::optional<Step> s = step_of(e, 3);
  if (!s) return;
  for (int i = 0; i < s->tensors; ++i) {
    const Operand rate = s->over(
        s->rate(i), s->plus(s->number(i, 1), s->times(s->updates(i), s->parameter(i, "decay_factor"))));
    const Operand g = s->gradient(i), squares = s->plus(s->in(2, i), s->times(g, g));
    const Operand size = s->plus(s->root(squares), s->parameter(i, "epsilon"));
    s->give(0, i, s->minus(s->in(0, i), s->over(s->times(rate, g), size)));
    s->give(1, i, squares);
  }
}

void adam(Expansion& e) {
  const std::optional<Step> s = step_of(e, 4);
  if (!s) return;
  for (int i = 0; i < s->tensors; ++i) {
    const Operand one = s->number(i, 1), alpha = s->parameter(i, "alpha"), beta = s->parameter(i, "beta"),
                  g = s->gradient(i);
    auto mixed = [&](const Operand& part, const Operand& old, const Operand& fresh) {
      return s->plus(s->times(part, old), s->times(s->minus(one, part), fresh));
    };
    const Operand mean = mixed(alpha, s->in(2, i), g), squares = mixed(beta, s->in(3, i), s->times(g, g));
    // Means that began with 0 are too small at first.
    auto missing = [&](const Operand& part) { return s->minus(one, e.op("Pow", {part, s->updates(i)})); };
    const Operand corrected = s->over(s->times(s->rate(i), s->root(missing(beta))), missing(alpha));
    const Operand rate = e.op("Where", {s->has_updates(), corrected, s->rate(i)});
    const Operand x = s->minus(
        s->in(0, i), s->times(rate, s->over(mean, s->plus(s->root(squares), s->parameter(i, "epsilon")))));
    s->give(0, i, s->times(s->minus(one, s->parameter(i, "norm_coefficient_post")), x));
    s->give(1, i, mean);
    s->give(2, i, squares);
  }
}

void momentum(Expansion& e) {
  const std::optional<Step> s = step_of(e, 3);
  if (!s) return;
  const std::string mode = e.word("mode");
  if (!e.expect(mode == "standard" || mode == "nesterov",
                "attribute 'mode': expected standard or nesterov, got ", mode))
    return;
  for (int i = 0; i < s->tensors; ++i) {
    const Operand alpha = s->parameter(i, "alpha"), g = s->gradient(i);
    const Operand beta = e.op("Where", {s->has_updates(), s->parameter(i, "beta"), s->number(i, 1)});
    const Operand speed = s->plus(s->times(alpha, s->in(2, i)), s->times(beta, g));
    const Operand way = mode == "standard" ? speed : s->plus(g, s->times(alpha, speed));
    s->give(0, i, s->minus(s->in(0, i), s->times(s->rate(i), way)));
    s->give(1, i, speed);
  }
}

}  // namespace

std::span<const MlOp> training_ops() {
  static constexpr MlOp kOps[] = {
      {"Adagrad", adagrad, kTrainingDomain},
      {"Adam", adam, kTrainingDomain},
      {"Momentum", momentum, kTrainingDomain},
  };
  return kOps;
}

}  // namespace mcc::frontend
