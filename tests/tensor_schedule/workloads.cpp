#include "workloads.h"

#include "tensor/build.h"
#include "tensor/schedule/weight_order.h"

namespace mcc::tensor::test {
namespace {

constexpr ElementType f32 = ElementType::f32;
constexpr ElementType i32 = ElementType::i32;

Func matmul() {
  FuncBuilder b("matmul");
  Buffer x = b.input("x", f32, {12, 10}), w = b.input("w", f32, {10, 18});
  Buffer y = b.reduce("y", f32, {12, 18}, {10}, Reducer::sum,
                      [&](Axes s, Axes r) { return load(x, {s[0], r[0]}) * load(w, {r[0], s[1]}); });
  return b.finish({y});
}

Func matmul_bias_relu() {
  FuncBuilder b("matmul_bias_relu");
  Buffer x = b.input("x", f32, {16, 8}), w = b.input("w", f32, {8, 24}), bias = b.input("bias", f32, {24});
  Buffer mm = b.reduce("mm", f32, {16, 24}, {8}, Reducer::sum,
                       [&](Axes s, Axes r) { return load(x, {s[0], r[0]}) * load(w, {r[0], s[1]}); });
  Buffer add =
      b.compute("add", f32, {16, 24}, [&](Axes s) { return load(mm, {s[0], s[1]}) + load(bias, {s[1]}); });
  Buffer relu = b.compute("relu", f32, {16, 24},
                          [&](Axes s) { return max(load(add, {s[0], s[1]}), constant(f32, 0)); });
  return b.finish({relu});
}

Func with_weights(Func f) {
  mark_weights(f, {"w"});
  return f;
}

// Weights in panels of two vectors of four.
Func matmul_panels() {
  FuncBuilder b("matmul_panels");
  Buffer x = b.input("x", f32, {12, 6}), w = b.input("w", f32, {4, 6, 8});
  Buffer y = b.reduce("y", f32, {12, 32}, {6}, Reducer::sum, [&](Axes s, Axes r) {
    return load(x, {s[0], r[0]}) * load(w, {floor_div(s[1], 8), r[0], floor_mod(s[1], 8)});
  });
  return with_weights(b.finish({y}));
}

Expr padded(const Buffer& x, Axes s, int64_t height, int64_t width) {
  Expr y = s[2] - 1, z = s[3] - 1;
  return select(y >= 0 && y < height && z >= 0 && z < width, load(x, {s[0], s[1], y, z, s[4]}),
                constant(f32, 0));
}

// Activations [N, C/4, H, W, 4], weights [O/4, C/4, 3, 3, 4, 4].
Func conv_blocked(int64_t stride) {
  int64_t size = 7, out = (size - 1) / stride + 1;
  FuncBuilder b("conv_blocked");
  Buffer x = b.input("x", f32, {1, 2, size, size, 4}), w = b.input("w", f32, {2, 2, 3, 3, 4, 4});
  Buffer bias = b.input("bias", f32, {2, 4});
  Buffer pad =
      b.compute("pad", f32, {1, 2, size + 2, size + 2, 4}, [&](Axes s) { return padded(x, s, size, size); });
  Buffer conv = b.reduce("conv", f32, {1, 2, out, out, 4}, {2, 3, 3, 4}, Reducer::sum, [&](Axes s, Axes r) {
    return load(pad, {s[0], r[0], s[2] * stride + r[1], s[3] * stride + r[2], r[3]}) *
           load(w, {s[1], r[0], r[1], r[2], r[3], s[4]});
  });
  Buffer relu = b.compute("relu", f32, {1, 2, out, out, 4}, [&](Axes s) {
    return max(load(conv, {s.begin(), s.end()}) + load(bias, {s[1], s[4]}), constant(f32, 0));
  });
  return b.finish({relu});
}

Func depthwise() {
  FuncBuilder b("depthwise");
  Buffer x = b.input("x", f32, {1, 3, 8, 8, 4}), w = b.input("w", f32, {3, 3, 3, 4});
  Buffer pad = b.compute("pad", f32, {1, 3, 10, 10, 4}, [&](Axes s) { return padded(x, s, 8, 8); });
  Buffer dw = b.reduce("dw", f32, {1, 3, 8, 8, 4}, {3, 3}, Reducer::sum, [&](Axes s, Axes r) {
    return load(pad, {s[0], s[1], s[2] + r[0], s[3] + r[1], s[4]}) * load(w, {s[1], r[0], r[1], s[4]});
  });
  Buffer clip = b.compute("clip", f32, {1, 3, 8, 8, 4}, [&](Axes s) {
    return min(max(load(dw, {s.begin(), s.end()}), constant(f32, 0)), constant(f32, 6));
  });
  return b.finish({clip});
}

Func softmax() {
  FuncBuilder b("softmax");
  Buffer x = b.input("x", f32, {9, 20});
  Buffer top =
      b.reduce("top", f32, {9}, {20}, Reducer::max, [&](Axes s, Axes r) { return load(x, {s[0], r[0]}); });
  Buffer exps = b.compute("exps", f32, {9, 20}, [&](Axes s) {
    return call(Intrinsic::exp, {load(x, {s[0], s[1]}) - load(top, {s[0]})});
  });
  Buffer total = b.reduce("total", f32, {9}, {20}, Reducer::sum,
                          [&](Axes s, Axes r) { return load(exps, {s[0], r[0]}); });
  Buffer y =
      b.compute("y", f32, {9, 20}, [&](Axes s) { return load(exps, {s[0], s[1]}) / load(total, {s[0]}); });
  return b.finish({y});
}

Func reduction_chain() {
  FuncBuilder b("reduction_chain");
  Buffer x = b.input("x", i32, {6, 5, 14});
  Buffer square = b.compute("square", i32, {6, 5, 14}, [&](Axes s) {
    Expr v = load(x, {s[0], s[1], s[2]});
    return v * v;
  });
  Buffer inner = b.reduce("inner", i32, {6, 5}, {14}, Reducer::sum,
                          [&](Axes s, Axes r) { return load(square, {s[0], s[1], r[0]}); });
  Buffer outer = b.reduce("outer", i32, {6}, {5}, Reducer::max,
                          [&](Axes s, Axes r) { return load(inner, {s[0], r[0]}); });
  Buffer y =
      b.compute("out", i32, {6, 5}, [&](Axes s) { return load(inner, {s[0], s[1]}) - load(outer, {s[0]}); });
  return b.finish({y});
}

Func transpose_add() {
  FuncBuilder b("transpose_add");
  Buffer x = b.input("x", i32, {20, 12}), z = b.input("z", i32, {12, 20});
  Buffer t = b.compute("t", i32, {12, 20}, [&](Axes s) { return load(x, {s[1], s[0]}); });
  Buffer sum =
      b.compute("sum", i32, {12, 20}, [&](Axes s) { return load(t, {s[0], s[1]}) + load(z, {s[0], s[1]}); });
  Buffer flat = b.compute("flat", i32, {240},
                          [&](Axes s) { return load(sum, {floor_div(s[0], 20), floor_mod(s[0], 20)}) * 3; });
  return b.finish({flat});
}

Func dot_u8i8() {
  FuncBuilder b("dot_u8i8");
  Buffer x = b.input("x", ElementType::u8, {6, 16}), w = b.input("w", ElementType::i8, {2, 4, 16, 4});
  Buffer y = b.reduce("y", i32, {6, 32}, {16}, Reducer::sum, [&](Axes s, Axes r) {
    Expr weight = load(w, {floor_div(s[1], 16), floor_div(r[0], 4), floor_mod(s[1], 16), floor_mod(r[0], 4)});
    return cast(i32, load(x, {s[0], r[0]})) * cast(i32, weight);
  });
  return b.finish({y});
}

Func attention_scores() {
  FuncBuilder b("attention_scores");
  Buffer q = b.input("q", f32, {3, 8, 6}), k = b.input("k", f32, {3, 10, 6});
  Buffer scaled = b.compute("scaled", f32, {3, 8, 6},
                            [&](Axes s) { return load(q, {s[0], s[1], s[2]}) * constant(f32, 0.5); });
  Buffer scores = b.reduce("scores", f32, {3, 8, 10}, {6}, Reducer::sum, [&](Axes s, Axes r) {
    return load(scaled, {s[0], s[1], r[0]}) * load(k, {s[0], s[2], r[0]});
  });
  Buffer total = b.reduce("total", f32, {3, 8}, {10}, Reducer::sum,
                          [&](Axes s, Axes r) { return load(scores, {s[0], s[1], r[0]}); });
  return b.finish({scores, total});
}

Func concat_pool() {
  FuncBuilder b("concat_pool");
  Buffer x = b.input("x", i32, {4, 9, 9}), z = b.input("z", i32, {3, 9, 9});
  Buffer both = b.compute("both", i32, {7, 9, 9}, [&](Axes s) {
    return select(s[0] < 4, load(x, {s[0], s[1], s[2]}), load(z, {s[0] - 4, s[1], s[2]}));
  });
  Buffer pool = b.reduce("pool", i32, {7, 4, 4}, {3, 3}, Reducer::max, [&](Axes s, Axes r) {
    return load(both, {s[0], s[1] * 2 + r[0], s[2] * 2 + r[1]});
  });
  Buffer neg = b.compute("neg", i32, {7, 4, 4}, [&](Axes s) { return -load(pool, {s[0], s[1], s[2]}); });
  return b.finish({neg});
}

Func symbolic_matmul() {
  FuncBuilder b("symbolic_matmul");
  Var m = b.dim("m");
  Buffer x = b.input("x", i32, {m, 8}), w = b.input("w", i32, {8, 12});
  Buffer mm = b.reduce("mm", i32, {m, 12}, {8}, Reducer::sum,
                       [&](Axes s, Axes r) { return load(x, {s[0], r[0]}) * load(w, {r[0], s[1]}); });
  Buffer twice = b.compute("twice", i32, {m, 12}, [&](Axes s) { return load(mm, {s[0], s[1]}) * 2; });
  return b.finish({twice});
}

// h = h * 2 + x[t] @ w over five steps.
Func recurrence() {
  FuncBuilder b("recurrence");
  Buffer x = b.input("x", i32, {5, 6}), w = b.input("w", i32, {6, 6});
  Buffer state = b.new_buffer("state", i32, {6, 6});
  b.block("start", {{"j", 6}}, [&](Axes i) { return Store::make(state, {0, i[0]}, constant(i32, 1)); });
  b.serial_loop("t", 5, [&](Expr t) {
    Buffer gate = b.reduce("gate", i32, {6}, {6}, Reducer::sum, [&](Axes s, Axes r) {
      return load(state, {t, r[0]}) * load(w, {r[0], s[0]}) + load(x, {t, r[0]});
    });
    b.block("next", {{"j", 6}}, [&](Axes i) {
      return Store::make(state, {t + 1, i[0]}, floor_mod(load(gate, {i[0]}), constant_int({i32, 1}, 7)));
    });
  });
  Buffer y = b.compute("y", i32, {6, 6}, [&](Axes s) { return load(state, {s[0], s[1]}) + 1; });
  return b.finish({y});
}

}  // namespace

std::vector<Workload> all_workloads() {
  return {
      {"matmul", matmul(), {}, false},
      {"matmul_bias_relu", matmul_bias_relu(), {}, false},
      {"conv_blocked", conv_blocked(1), {}, false},
      {"conv_constant", with_weights(conv_blocked(1)), {}, false},
      {"matmul_panels", matmul_panels(), {}, false},
      {"conv_strided", conv_blocked(2), {}, false},
      {"depthwise", depthwise(), {}, false},
      {"softmax", softmax(), {}, false},
      {"reduction_chain", reduction_chain(), {}, true},
      {"transpose_add", transpose_add(), {}, true},
      {"dot_u8i8", dot_u8i8(), {}, true},
      {"attention_scores", attention_scores(), {}, false},
      {"concat_pool", concat_pool(), {}, true},
      {"symbolic_matmul", symbolic_matmul(), {13}, true},
      {"recurrence", recurrence(), {}, true},
  };
}

}  // namespace mcc::tensor::test
