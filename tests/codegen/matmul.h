// The register-tiled matrix product that code generation is judged by.
#pragma once

#include "tensor/build.h"
#include "tensor/schedule/schedule.h"

namespace mcc::codegen {

// y[m, n] = sum over k of x[m, k] * w[n / nr, k, n % nr], rows by mr and columns by nr, accumulators in registers, column
// panels outermost; k_unroll steps of the reduction at a time.
inline tensor::Func tiled_matmul(int64_t m, int64_t n, int64_t k, int64_t mr, int64_t nr, int64_t lanes,
                                 int64_t k_unroll = 1) {
  using namespace tensor;
  constexpr ElementType f32 = ElementType::f32;
  FuncBuilder b("matmul");
  Buffer x = b.input("x", f32, {m, k});
  Buffer w = b.input("w", f32, {(n + nr - 1) / nr, k, nr});
  Buffer y = b.reduce("y", f32, {m, n}, {k}, Reducer::sum, [&](Axes s, Axes r) {
    return load(x, {s[0], r[0]}) * load(w, {floor_div(s[1], nr), r[0], floor_mod(s[1], nr)});
  });
  Schedule schedule(b.finish({y}));
  const std::string trace = text(
      "cache_write(block=\"y\", buffer=\"y\", scope=\"registers\", name=\"out\")\n"
      "split(loop=\"y.i0\", factors=[0, ",
      mr,
      "], names=[\"io\", \"ii\"])\n"
      "split(loop=\"y.i1\", factors=[0, ",
      nr / lanes, ", ", lanes,
      "], names=[\"jo\", \"ji\", \"jv\"])\n"
      "reorder(loops=[\"jo\", \"io\", \"y.r0\", \"ii\", \"ji\", \"jv\"])\n"
      "reverse_compute_at(block=\"out\", loop=\"io\")\n"
      "decompose_reduction(block=\"y\", loop=\"y.r0\")\n");
  Result<Trace> steps = parse_trace(trace);
  MCC_CHECK(steps.ok(), to_text(steps.errors()));
  Outcome outcome = schedule.replay(*steps);
  MCC_CHECK(outcome, outcome.detail);
  // The three nests under jo: initial values, the product, the copy out.
  auto apply = [&](const Step& step) {
    Outcome done = schedule.apply(step);
    MCC_CHECK(done, done.detail);
  };
  for (const std::string& block : schedule.block_names()) {
    std::vector<std::string> loops = schedule.loop_names_of(block);
    if (block == "out") {
      apply(Split{loops.back(), {0, lanes}, {"out.v0", "out.v"}});
      loops = schedule.loop_names_of(block);
    }
    size_t count = loops.size();
    apply(Vectorize{loops[count - 1]});
    apply(Unroll{loops[count - 2]});
    apply(Unroll{loops[count - 3]});
    if (block == "y" && k_unroll > 1) {
      apply(Split{"y.r0", {0, k_unroll}, {"ko", "ki"}});
      apply(Unroll{"ki"});
    }
  }
  return schedule.func();
}

}  // namespace mcc::codegen
