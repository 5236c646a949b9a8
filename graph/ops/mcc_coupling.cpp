// mcc.CouplePairs: probabilities of classes from those of pairs of them, as the frontend writes it for ai.onnx.ml's SVMClassifier.
//
// The second method of T.-F. Wu, C.-J. Lin and R. C. Weng, "Probability estimates for multi-class classification by pairwise
// coupling" (2004), as libsvm and onnxruntime carry it out: p minimises p' Q p, class after class, in at most 100 sweeps. It ends early
// where the error is small, which leaves some error in the result: to agree, rows stand still from there on.
#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

using tensor::Store;

constexpr int64_t kSweeps = 100;
constexpr int64_t kMostClasses = 1 << 10;

int64_t classes_of(const Attributes& a) { return a.integer("classes", 0); }

void infer_couple(InferContext& c) {
  const int64_t classes = classes_of(c.attributes());
  if (!expect_type(c, 0, TypeSet::floating) || !expect_rank(c, 0, 2) ||
      !expect(c, classes >= 2 && classes <= kMostClasses, "classes: expected 2 to ", kMostClasses, ", got ",
              classes) ||
      !expect_same_dim(c, classes * (classes - 1) / 2, c.input(0).shape[1], "number of pairs")) {
    return;
  }
  c.set_output(0, {c.input(0).element, {c.input(0).shape[0], classes}});
}

// Of classes i and j, in the order of pairs: the probability of i, where one of both is right.
Expr of_pair(const ComputeContext& c, const Expr& n, const Expr& i, const Expr& j) {
  const int64_t classes = classes_of(c.attributes());
  const Expr low = tensor::min(i, j), high = tensor::max(i, j);
  const Expr pair = low * (2 * classes - 1 - low) / 2 + high - low - 1;
  const Expr p = widen(c.at(0, {n, tensor::min(tensor::max(pair, 0), classes * (classes - 1) / 2 - 1)}));
  return select(i < j, p, number_like(p, 1) - p);
}

void compute_couple(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const int64_t classes = classes_of(c.attributes());
  const Expr& rows = out.shape[0];
  const ElementType wide = wide_type(out.element);
  tensor::FuncBuilder& b = c.builder;
  Buffer squares = b.reduce("squares", wide, {rows, classes}, {classes}, Reducer::sum, [&](Axes i, Axes r) {
    const Expr p = of_pair(c, i[0], r[0], i[1]);
    return select(r[0] == i[1], number_like(p, 0), p * p);
  });
  Buffer q = b.compute("q", wide, {rows, classes, classes}, [&](Axes i) {
    return select(i[1] == i[2], load(squares, {i[0], i[1]}),
                  -(of_pair(c, i[0], i[1], i[2]) * of_pair(c, i[0], i[2], i[1])));
  });
  // Entry s is what step s begins with.
  const int64_t steps = kSweeps * classes;
  Buffer p = b.new_buffer("p", wide, {steps + 1, rows, classes});
  Buffer done = b.new_buffer("done", ElementType::i32, {steps + 1, rows});
  b.block("begin", {{"n", rows}, {"i", classes}}, [&](Axes i) {
    return Store::make(p, {0, i[0], i[1]}, tensor::constant(wide, 1.0 / static_cast<double>(classes)));
  });
  b.block("begin_done", {{"n", rows}}, [&](Axes i) {
    return Store::make(done, {0, i[0]}, tensor::constant_int({ElementType::i32, 1}, 0));
  });
  b.serial_loop("s", steps, [&](const Expr& s) {
    const Expr turn = floor_mod(s, Expr(classes));
    Buffer qp = b.reduce("qp", wide, {rows, classes}, {classes}, Reducer::sum, [&](Axes i, Axes r) {
      return load(q, {i[0], i[1], r[0]}) * load(p, {s, i[0], r[0]});
    });
    Buffer pqp = b.reduce("pqp", wide, {rows}, {classes}, Reducer::sum,
                          [&](Axes i, Axes r) { return load(p, {s, i[0], r[0]}) * load(qp, {i[0], r[0]}); });
    Buffer error = b.reduce("error", wide, {rows}, {classes}, Reducer::max, [&](Axes i, Axes r) {
      return call(Intrinsic::abs, {load(qp, {i[0], r[0]}) - load(pqp, {i[0]})});
    });
    b.block("ends", {{"n", rows}}, [&](Axes i) {
      const Expr was = load(done, {s, i[0]}), e = load(error, {i[0]});
      const Expr ends = turn == 0 && e < number_like(e, 0.005 / static_cast<double>(classes));
      return Store::make(done, {s + 1, i[0]}, select(ends, tensor::constant_int(was.type(), 1), was));
    });
    b.block("update", {{"n", rows}, {"i", classes}}, [&](Axes i) {
      const Expr old = load(p, {s, i[0], i[1]});
      const Expr change = (load(pqp, {i[0]}) - load(qp, {i[0], turn})) / load(q, {i[0], turn, turn});
      const Expr fresh =
          (old + select(i[1] == turn, change, number_like(change, 0))) / (change + number_like(change, 1));
      return Store::make(p, {s + 1, i[0], i[1]}, select(load(done, {s + 1, i[0]}) == 1, old, fresh));
    });
  });
  c.set_output(0, b.compute("probability", out.element, out.shape,
                            [&](Axes i) { return cast(out.element, load(p, {steps, i[0], i[1]})); }));
}

}  // namespace

std::span<const OpDef> mcc_coupling_ops() {
  static const OpDef ops[] = {own_op("CouplePairs", FusionClass::opaque, 1, infer_couple, compute_couple)};
  return ops;
}

}  // namespace mcc::graph
