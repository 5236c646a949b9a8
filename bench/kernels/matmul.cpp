// Speed of register-tiled matrix products through the whole chain from schedule to machine code, one thread:
//   kernel_bench [M N K MR NR KU]...      GFLOP/s, best of the runs in half a second; --asm prints the code instead
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "codegen/codegen.h"
#include "tensor/text.h"
#include "tests/codegen/matmul.h"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Shape {
  int64_t m, n, k, mr, nr, unroll;
};

int run(const Shape& s, const mcc::tensor::Target& target, bool print) {
  Clock::time_point begin = Clock::now();
  mcc::tensor::Func f = mcc::codegen::tiled_matmul(s.m, s.n, s.k, s.mr, s.nr, target.lanes(32), s.unroll);
  double schedule_ms = seconds_since(begin) * 1e3;
  begin = Clock::now();
  mcc::tensor::Func lowered = mcc::tensor::lower(f, target);
  double lower_ms = seconds_since(begin) * 1e3;
  begin = Clock::now();
  mcc::codegen::EmitOptions options;
  options.keep_assembly = print;
  auto object = mcc::codegen::emit_object(lowered, "matmul", target, options);
  double emit_ms = seconds_since(begin) * 1e3;
  if (print) {
    std::printf("%s\n%s\n", mcc::tensor::to_text(lowered).c_str(), object->assembly.c_str());
    return 0;
  }
  auto jit = mcc::codegen::Jit::create(target);
  auto kernel = (*jit)->load(*object, "matmul");
  if (!kernel.ok()) return 1;
  auto floats = [](int64_t count) {
    auto* p = static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>(count * 4 + 63) / 64 * 64));
    for (int64_t i = 0; i < count; ++i)
      p[i] = static_cast<float>(i % 17) / 17;
    return p;
  };
  float* x = floats(s.m * s.k);
  float* w = floats((s.n + s.nr - 1) / s.nr * s.nr * s.k);
  float* y = floats(s.m * s.n);
  void* buffers[] = {x, w, y};
  double best = 1e9;
  for (Clock::time_point start = Clock::now(); seconds_since(start) < 0.5;) {
    Clock::time_point t = Clock::now();
    (*kernel)->function(buffers, nullptr, nullptr);
    best = std::min(best, seconds_since(t));
  }
  double gflops =
      2e-9 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k) / best;
  std::printf(
      "%5ld %5ld %5ld  tile %2ldx%-3ld by %ld %9.1f us %7.1f GFLOP/s   schedule %.1f lower %.1f emit %.1f "
      "ms\n",
      s.m, s.n, s.k, s.mr, s.nr, s.unroll, best * 1e6, gflops, schedule_ms, lower_ms, emit_ms);
  for (float* p : {x, w, y})
    std::free(p);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  bool print = argc > 1 && std::strcmp(argv[1], "--asm") == 0;
  std::vector<Shape> shapes;
  for (int i = print ? 2 : 1; i + 5 < argc; i += 6) {
    shapes.push_back({atoll(argv[i]), atoll(argv[i + 1]), atoll(argv[i + 2]), atoll(argv[i + 3]),
                      atoll(argv[i + 4]), atoll(argv[i + 5])});
  }
  if (shapes.empty()) {
    shapes = {{128, 128, 128, 12, 32, 1},
              {512, 512, 512, 12, 32, 1},
              {512, 512, 512, 12, 32, 4},
              {128, 3072, 768, 12, 32, 4},
              {197, 768, 768, 8, 48, 4}};
  }
  auto target = mcc::codegen::make_target("cpu");
  for (const Shape& s : shapes) {
    if (int code = run(s, *target, print); code != 0) return code;
  }
  return 0;
}
