// What a kernel's code must look like, and how it talks to its surroundings: registers, memory, threads, linking.
#include <dlfcn.h>
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "codegen/compiled.h"
#include "codegen/linker.h"
#include "codegen/matmul.h"
#include "codegen/replayed.h"
#include "mcc/abi.h"
#include "tensor/sizes.h"

namespace mcc::codegen {
namespace {

ObjectCode emit(const tensor::Func& scheduled, const tensor::Target& target,
                const std::string& symbol = "kernel") {
  EmitOptions options;
  options.keep_assembly = true;
  Result<ObjectCode> object = emit_object(tensor::lower(scheduled, target), symbol, target, options);
  MCC_CHECK(object.ok(), to_text(object.errors()));
  return std::move(*object);
}

tensor::Target target(const std::string& name) {
  Result<tensor::Target> t = make_target(name);
  MCC_CHECK(t.ok(), to_text(t.errors()));
  return *t;
}

// The loop (label to backward jump) with the most of such instructions: its lines.
std::vector<std::string> inner_loop(const std::string& assembly, const std::string& instruction = "vfmadd") {
  std::vector<std::string> lines, best;
  size_t best_count = 0;
  std::istringstream in(assembly);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(".L")) lines.clear();
    lines.push_back(line);
    bool is_jump_back = line.starts_with("\tj") && !lines.empty() &&
                        line.find(lines[0].substr(0, lines[0].find(':'))) != std::string::npos;
    if (!is_jump_back) continue;
    auto count = static_cast<size_t>(std::count_if(lines.begin(), lines.end(), [&](const std::string& l) {
      return l.find(instruction) != std::string::npos;
    }));
    if (count > best_count) best = lines;
    best_count = std::max(best_count, count);
  }
  return best;
}

int count_lines(const std::vector<std::string>& lines, const std::string& part) {
  return static_cast<int>(std::count_if(
      lines.begin(), lines.end(), [&](const std::string& l) { return l.find(part) != std::string::npos; }));
}

// Eight at a time, not one by one: what is greater is decided in f32.
TEST(HalfMaximum, IsAVectorOperation) {
  const tensor::Func f = parse(R"(
func f(x: f16[64], y: f16[64]) -> (z: f16[64]) {
  for i in 8 { z[ramp(i * 8, 1, 8)] = max(x[ramp(i * 8, 1, 8)], y[ramp(i * 8, 1, 8)]) }
})");
  for (const char* name : {"cpu:x86-64-v3", "cpu:znver3", "cpu:x86-64-v4"}) {
    const std::string assembly = emit(f, target(name)).assembly;
    EXPECT_THAT(assembly, testing::HasSubstr("vcvtph2ps")) << name;
    EXPECT_THAT(assembly, testing::Not(testing::HasSubstr("comiss"))) << assembly;
  }
  EXPECT_THAT(emit(f, target("cpu:sapphirerapids")).assembly, testing::Not(testing::HasSubstr("vcvtph2ps")));
}

struct TileCase {
  const char* target;
  int rows, columns;
  const char* vector;
};

class RegisterTile : public testing::TestWithParam<TileCase> {};

// Accumulators stay in registers, and the loop holds nothing but one FMA for each, the loads, and its counter.
TEST_P(RegisterTile, InnerLoopIsLoadsAndFmas) {
  const TileCase& c = GetParam();
  tensor::Target t = target(c.target);
  ObjectCode code = emit(tiled_matmul(10 * c.rows + 5, 4 * c.columns, 64, c.rows, c.columns, t.lanes(32)), t);
  std::vector<std::string> loop = inner_loop(code.assembly);
  int vectors = c.columns / t.lanes(32);
  EXPECT_EQ(count_lines(loop, "vfmadd"), c.rows * vectors) << join(loop, "\n");
  EXPECT_EQ(count_lines(loop, "vfmadd213") + count_lines(loop, "vfmadd132"), 0);
  EXPECT_EQ(count_lines(loop, "(%rsp") + count_lines(loop, "(%rbp"), 0) << join(loop, "\n");
  EXPECT_LE(count_lines(loop, "vmovups"), vectors) << join(loop, "\n");
  EXPECT_LE(static_cast<int>(loop.size()), c.rows * vectors + vectors + c.rows + 5) << join(loop, "\n");
  EXPECT_GT(count_lines(loop, c.vector), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Tiles, RegisterTile,
    testing::Values(TileCase{"cpu:x86-64-v4", 12, 32, "%zmm"}, TileCase{"cpu:x86-64-v4", 8, 48, "%zmm"},
                    TileCase{"cpu:sapphirerapids", 14, 32, "%zmm"}, TileCase{"cpu:x86-64-v3", 6, 16, "%ymm"},
                    TileCase{"cpu:znver3", 4, 24, "%ymm"}),
    [](const auto& info) {
      std::string name = text(info.param.target, "_", info.param.rows, "x", info.param.columns);
      std::replace_if(name.begin(), name.end(), [](char ch) { return !std::isalnum(ch); }, '_');
      return name;
    });

// 6 rows of two vectors of sums of 128 products of i16 and i8, four steps of two at a time.
tensor::Func widened_tile() {
  using namespace tensor;
  FuncBuilder b("product");
  Buffer x = b.input("x", ElementType::i16, {6, 128});
  Buffer w = b.input("w", ElementType::i8, {64, 16, 2});
  auto wide = [](const Expr& e) { return cast(ElementType::i32, e); };
  Buffer sum = b.reduce("sum", ElementType::i32, {6, 16}, {64, 2}, Reducer::sum, [&](Axes s, Axes r) {
    return wide(load(x, {s[0], r[0] * 2 + r[1]})) * wide(load(w, {r[0], s[1], r[1]}));
  });
  Buffer y = b.compute("y", ElementType::i32, {6, 16}, [&](Axes s) { return load(sum, {s[0], s[1]}) + 1; });
  return replayed(b.finish({y}), R"(set_scope(buffer="sum", scope="registers")
split(loop="sum.i1", factors=[2, 8], names=["sum.vec", "sum.lane"])
split(loop="sum.r0", factors=[16, 4], names=["sum.k", "sum.u"])
reorder(loops=["sum.k", "sum.u", "sum.i0", "sum.vec", "sum.lane", "sum.r1"])
decompose_reduction(block="sum", loop="sum.k")
tensorize(loop="sum.lane", instruction="dot2_i16i8_i32x8")
unroll(loop="sum.u")
unroll(loop="sum.i0")
unroll(loop="sum.vec")
unroll(loop="sum.init.i0")
unroll(loop="sum.init.vec")
vectorize(loop="sum.init.lane")
split(loop="y.i1", factors=[2, 8], names=["y.vec", "y.lane"])
unroll(loop="y.i0")
unroll(loop="y.vec")
vectorize(loop="y.lane")
)")
      .func();
}

// Products are added to the sums one after the other: added to each other first, they would need registers of their own.
TEST(Kernel, IntegersAreSummedInTheOrderOfTheSchedule) {
  const std::vector<std::string> loop =
      inner_loop(emit(widened_tile(), target("cpu:haswell")).assembly, "vpmaddwd");
  EXPECT_EQ(count_lines(loop, "vpmaddwd"), 48) << join(loop, "\n");
  EXPECT_EQ(count_lines(loop, "vpmovsxbw"), 8) << join(loop, "\n");
  EXPECT_EQ(count_lines(loop, "(%rsp") + count_lines(loop, "(%rbp"), 0) << join(loop, "\n");
}

TEST(Kernel, TiledMatmulsWithTailsAreRight) {
  for (const tensor::Target& t : test_targets()) {
    for (auto [m, n, k] : {std::tuple{5, 32, 7}, std::tuple{29, 64, 1}, std::tuple{25, 33, 16}}) {
      tensor::Func f = tiled_matmul(m, n, k, 6, 32, t.lanes(32));
      Memory memory = random_memory(f, 1);
      auto* x = reinterpret_cast<float*>(memory[0].data());
      auto* w = reinterpret_cast<float*>(memory[1].data());
      for (size_t i = 0; i < memory[0].size() / 4; ++i)
        x[i] = static_cast<float>(i % 7) - 3;
      for (size_t i = 0; i < memory[1].size() / 4; ++i)
        w[i] = static_cast<float>(i % 5) - 2;
      expect_same(f, f, t, memory);
    }
  }
}

TEST(Kernel, SameBytesOnEveryThread) {
  tensor::Target t = target("cpu:x86-64-v4");
  tensor::Func f = tiled_matmul(29, 64, 16, 6, 32, 16);
  std::vector<std::vector<char>> bytes(4);
  std::vector<std::thread> threads;
  for (auto& out : bytes)
    threads.emplace_back([&] { out = emit(f, t).bytes; });
  for (std::thread& thread : threads)
    thread.join();
  for (const auto& other : bytes)
    EXPECT_EQ(other, bytes[0]);
}

TEST(Kernel, EveryNamedTargetGeneratesCode) {
  tensor::Func f = parse(
      "func f(x: f16[100]) -> (y: f32[100], z: i8[100]) {\n"
      "  for i.o in 7 { vectorized for i.v in 16 { block y(i = i.o * 16 + i.v: spatial 100) where i.o * 16 + "
      "i.v < 100 { y[i] = exp(f32(x[i])) % 3.0 } } }\n"
      "  for j in 100 { block z(i = j: spatial 100) { z[i] = i8(x[i]) } } }");
  for (const char* name :
       {"cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4", "cpu:haswell", "cpu:skylake-avx512", "cpu:znver4",
        "cpu:znver5", "cpu:sapphirerapids", "cpu:graniterapids", "cpu:nehalem"}) {
    EXPECT_FALSE(emit(f, target(name)).bytes.empty()) << name;
  }
}

TEST(Target, UnknownNamesAreUsageErrors) {
  for (const char* name : {"cpu:notacpu", "gpu", "", "cpu:", "cpu:i386"}) {
    Result<tensor::Target> t = make_target(name);
    ASSERT_FALSE(t.ok()) << name;
    EXPECT_EQ(t.errors()[0].kind, ErrorKind::usage);
    EXPECT_THAT(t.errors()[0].hint, testing::HasSubstr("cpu:x86-64-v3"));
  }
}

TEST(Target, DescribesVectors) {
  EXPECT_EQ(target("cpu:x86-64-v4").lanes(32), 16);
  EXPECT_EQ(target("cpu:x86-64-v3").lanes(32), 8);
  EXPECT_EQ(target("cpu:x86-64-v2").lanes(32), 4);
  EXPECT_TRUE(target("cpu:x86-64-v3").has_fma);
  EXPECT_FALSE(target("cpu:x86-64-v2").has_fma);
  EXPECT_TRUE(runs_here(target("cpu")));
  EXPECT_GT(target("cpu").l1.bytes, 0);
}

// ---- Threads ----

// Runs the items last to first, in two halves, as if by two workers.
struct TwoWorkers {
  mcc_executor executor{};
  std::vector<std::pair<int64_t, int64_t>> calls;
  TwoWorkers() {
    executor.num_threads = 2;
    executor.user = this;
    executor.parallel_for = [](mcc_executor* self, mcc_task_fn task, void* context, int64_t count) {
      auto& calls = static_cast<TwoWorkers*>(self->user)->calls;
      int64_t half = count / 2;
      calls.emplace_back(half, count);
      calls.emplace_back(0, half);
      task(context, half, count, 1);
      task(context, 0, half, 0);
    };
  }
};

TEST(Kernel, ParallelLoopsGoThroughTheExecutor) {
  // Per iteration a private buffer that is too large for the stack (80 KB), and one in the kernel's workspace.
  tensor::Func f = parse(
      "func f(x: f32[6, 20000], s: f32[6]) -> (y: f32[6, 20000]) {\n"
      "  alloc total: f32[20000]\n  alloc t: f32[6, 20000] local\n"
      "  for a in 20000 { block total(i = a: spatial 20000) { total[i] = x[0, i] + 1.0 } }\n"
      "  parallel for r in 6 {\n"
      "    for j in 20000 { block t(i = r: spatial 6, c = j: spatial 20000) { t[i, c] = x[i, c] * s[i] } }\n"
      "    for k in 20000 { block y(i = r: spatial 6, c = k: spatial 20000) { y[i, c] = t[i, 19999 - c] + "
      "total[c] } }\n"
      "  } }");
  tensor::Target t = target("cpu");
  tensor::Func lowered = tensor::lower(f, t);
  Result<KernelMemory> needs = kernel_memory(lowered);
  ASSERT_TRUE(needs.ok());
  ASSERT_EQ(needs->workspaces.size(), 1u);
  EXPECT_TRUE(tensor::is_int(needs->workspaces[0], 80000));
  EXPECT_GE(needs->scratch_per_thread, 80000);
  EXPECT_EQ(needs->scratch_per_thread % 64, 0);

  Memory memory = random_memory(f, 3), expected = memory;
  run_interpreted(f, &expected);
  Result<std::unique_ptr<Jit>> jit = Jit::create(t);
  ASSERT_TRUE(jit.ok());
  Result<std::shared_ptr<Jit::Kernel>> kernel = (*jit)->load(emit(f, t), "kernel");
  ASSERT_TRUE(kernel.ok()) << to_text(kernel.errors());
  std::vector<float> workspace(20000 + 16),
      scratch(2 * static_cast<size_t>(needs->scratch_per_thread) / 4 + 16);
  auto aligned = [](std::vector<float>& v) {
    auto address = reinterpret_cast<uintptr_t>(v.data());
    return reinterpret_cast<void*>((address + 63) / 64 * 64);
  };
  void* buffers[] = {memory[0].data(), memory[1].data(), memory[2].data(), aligned(workspace),
                     aligned(scratch)};
  TwoWorkers workers;
  EXPECT_EQ((*kernel)->function(buffers, nullptr, &workers.executor), 0);
  EXPECT_THAT(workers.calls, testing::ElementsAre(std::pair{3, 6}, std::pair{0, 3}));
  auto* got = reinterpret_cast<float*>(memory[2].data());
  auto* want = reinterpret_cast<float*>(expected[2].data());
  for (size_t i = 0; i < 120000; ++i) {
    if (!std::isfinite(want[i])) continue;
    ASSERT_NEAR(got[i], want[i], 1e-5 * std::fabs(want[i]) + 1e-5) << i;
  }
}

TEST(Kernel, ThreadsHaveRoomForTheLargestSizesUnlessThatIsTooMuch) {
  tensor::Func f = parse(
      "func f<n>(x: f32[6, n]) -> (y: f32[6, n]) {\n"
      "  alloc t: f32[6, n] local\n"
      "  parallel for r in 6 {\n"
      "    for j in n { block t(i = r: spatial 6, c = j: spatial n) { t[i, c] = x[i, c] * 2.0 } }\n"
      "    for k in n { block y(i = r: spatial 6, c = k: spatial n) { y[i, c] = t[i, n - 1 - c] } }\n"
      "  } }");
  const auto needs = [&](int64_t largest) {
    tensor::mark_sizes(f, {{1, largest}});
    Result<KernelMemory> memory = kernel_memory(tensor::lower(f, target("cpu")));
    EXPECT_TRUE(memory.ok());
    return *memory;
  };
  EXPECT_GE(needs(100'000).scratch_per_thread, 400'000);
  EXPECT_TRUE(needs(100'000).workspaces.empty());
  EXPECT_EQ(needs(1'000'000'000).scratch_per_thread, 0);
  ASSERT_EQ(needs(1'000'000'000).workspaces.size(), 1u);
  tensor::VarMap sizes;
  sizes[f.dims[0].get()] = 100;
  sizes[tensor::thread_count().get()] = 3;
  int64_t bytes = 0;
  ASSERT_TRUE(tensor::as_int(substitute(needs(1'000'000'000).workspaces[0], sizes), &bytes));
  EXPECT_EQ(bytes, 3 * 448);
}

TEST(Kernel, SymbolicDimensionsAreArguments) {
  tensor::FuncBuilder b("scaled");
  tensor::Var n = b.dim("n");
  tensor::Buffer x = b.input("x", ElementType::f32, {n, 3});
  tensor::Buffer sum = b.reduce("sum", ElementType::f32, {3}, {n}, tensor::Reducer::sum,
                                [&](tensor::Axes s, tensor::Axes r) { return load(x, {r[0], s[0]}); });
  tensor::Buffer y = b.compute("y", ElementType::f32, {n, 3},
                               [&](tensor::Axes i) { return load(x, {i[0], i[1]}) - load(sum, {i[1]}); });
  tensor::Func f = b.finish({y});
  Result<std::unique_ptr<Jit>> jit = Jit::create(target("cpu"));
  ASSERT_TRUE(jit.ok());
  for (int64_t rows : {0, 1, 5}) {
    std::vector<float> in(static_cast<size_t>(3 * rows + 1), 2.0f), out(in.size(), -1.0f);
    void* buffers[] = {in.data(), out.data()};
    int64_t dims[] = {rows};
    ASSERT_TRUE((*jit)->run(f, buffers, dims).ok());
    for (size_t i = 0; i < static_cast<size_t>(3 * rows); ++i)
      EXPECT_EQ(out[i], 2.0f - 2.0f * static_cast<float>(rows));
    EXPECT_EQ(out.back(), -1.0f);
  }
}

TEST(Jit, LoadsManyKernelsOfOneNameOnManyThreads) {
  tensor::Target t = target("cpu");
  std::vector<std::shared_ptr<Jit::Kernel>> kernels(16);
  {
    Result<std::unique_ptr<Jit>> jit = Jit::create(t);
    ASSERT_TRUE(jit.ok());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kernels.size(); ++i) {
      threads.emplace_back([&, i] {
        tensor::Func f = parse(
            text("func f(x: f32[1]) -> (y: f32[1]) { for i in 1 { block y(a = i: spatial 1) { y[a] = x[a] + ",
                 i, ".0 } } }"));
        Result<std::shared_ptr<Jit::Kernel>> kernel = (*jit)->load(emit(f, t), "kernel");
        if (kernel.ok()) kernels[i] = *kernel;
      });
    }
    for (std::thread& thread : threads)
      thread.join();
  }
  for (size_t i = 0; i < kernels.size(); ++i) {
    ASSERT_TRUE(kernels[i]);
    float x = 1, y = 0;
    void* buffers[] = {&x, &y};
    kernels[i]->function(buffers, nullptr, nullptr);
    EXPECT_EQ(y, 1 + static_cast<float>(i));
  }
}

TEST(Kernel, EveryOptionKeepsTheResults) {
  tensor::FuncBuilder b("softmax");
  tensor::Buffer x = b.input("x", ElementType::f32, {4, 37});
  tensor::Buffer e = b.compute("e", ElementType::f32, {4, 37}, [&](tensor::Axes i) {
    tensor::Expr v = load(x, {i[0], i[1]});
    return call(tensor::Intrinsic::exp, {v}) + call(tensor::Intrinsic::tanh, {v}) +
           call(tensor::Intrinsic::log1p, {v * v});
  });
  tensor::Buffer sum = b.reduce("sum", ElementType::f32, {4}, {37}, tensor::Reducer::sum,
                                [&](tensor::Axes s, tensor::Axes r) { return load(e, {s[0], r[0]}); });
  tensor::Func f = b.finish({sum, e});
  Memory inputs = random_memory(f, 3);
  auto* values = reinterpret_cast<float*>(inputs[0].data());
  for (int i = 0; i < 4 * 37; ++i)
    values[i] = static_cast<float>(i % 23) / 4 - 3;
  Memory expected = inputs;
  run_interpreted(f, &expected);
  for (const tensor::Target& t : test_targets()) {
    Result<std::unique_ptr<Jit>> jit = Jit::create(t);
    ASSERT_TRUE(jit.ok());
    for (int variant = 0; variant < 12; ++variant) {
      EmitOptions options;
      options.optimization = variant % 4;
      options.strict = variant / 4 == 1;
      options.fast_math = variant / 4 == 2;
      Result<ObjectCode> object = emit_object(tensor::lower(f, t), "kernel", t, options);
      ASSERT_TRUE(object.ok());
      Result<std::shared_ptr<Jit::Kernel>> kernel = (*jit)->load(*object, "kernel");
      ASSERT_TRUE(kernel.ok());
      Memory actual = inputs;
      std::vector<void*> buffers;
      for (auto& bytes : actual)
        buffers.push_back(bytes.data());
      (*kernel)->function(buffers.data(), nullptr, nullptr);
      EXPECT_EQ(difference(f, expected, actual, 1e-5), "") << t.name << ", variant " << variant;
    }
  }
}

// ---- Loops that end before their last iteration ----

// a[i] becomes 63 where it is not yet; the steps that it would have taken afterwards are more than a machine can take.
TEST(SettlingLoop, EndsWhereNothingChanges) {
  const char* const sources[] = {R"(
func f(next: i32[64], first: i32[32]) -> (a: i32[32]) {
  for i in 32 {
    a[i] = first[i]
    for step in STEPS { a[i] = next[i64(a[i])] }
  }
})",
                                 R"(
func f(next: i32[64], first: i32[32]) -> (a: i32[32]) {
  for i in 2 {
    a[ramp(i * 16, 1, 16)] = first[ramp(i * 16, 1, 16)]
    for step in STEPS { a[ramp(i * 16, 1, 16)] = next[i64x16(a[ramp(i * 16, 1, 16)])] }
  }
})"};
  for (const std::string source : sources) {
    const auto with_steps = [&](const std::string& steps) {
      std::string s = source;
      return parse(s.replace(s.find("STEPS"), 5, steps));
    };
    for (const tensor::Target& t : test_targets()) {
      const tensor::Func few = with_steps("5"), enough = with_steps("64"),
                         many = with_steps("1000000000000000");
      Memory inputs = random_memory(few, 1);
      auto* next = reinterpret_cast<int32_t*>(inputs[0].data());
      auto* first = reinterpret_cast<int32_t*>(inputs[1].data());
      for (int32_t i = 0; i < 64; ++i)
        next[i] = std::min(i + 1 + i % 3, 63);
      for (int32_t i = 0; i < 32; ++i)
        first[i] = 63 - 2 * i;
      expect_same(few, few, t, inputs);
      expect_same(enough, many, t, inputs);
    }
  }
}

// ---- Linking ----

TEST(Linker, MakesALibraryThatLoads) {
  std::string folder = testing::TempDir(), object_path = folder + "/kernel.o",
              library = folder + "/kernel.so";
  tensor::Func f = parse(
      "func f(x: f32[10]) -> (y: f32[10]) { for i in 10 { block y(a = i: spatial 10) { y[a] = x[a] + 1.0 } } "
      "}");
  ObjectCode code = emit(f, target("cpu"), "mcc_test_kernel");
  std::ofstream(object_path, std::ios::binary)
      .write(code.bytes.data(), static_cast<std::streamsize>(code.bytes.size()));
  Status linked = link_shared({object_path}, library, "kernel.so");
  ASSERT_TRUE(linked.ok()) << to_text(linked.errors());
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(handle, nullptr) << dlerror();
  EXPECT_EQ(dlsym(handle, "mcc_test_kernel"), nullptr) << "kernels are hidden";
  dlclose(handle);

  auto read = [](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  std::string first = read(library);
  ASSERT_TRUE(link_shared({object_path}, library, "kernel.so").ok());
  EXPECT_EQ(read(library), first);
}

TEST(Linker, ReportsWhatIsWrong) {
  std::string folder = testing::TempDir();
  Status missing = link_shared({folder + "/no_such_file.o"}, folder + "/x.so", "x.so");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(to_text(missing.errors()), testing::HasSubstr("no_such_file.o"));
  std::ofstream(folder + "/bad.o") << "this is no object";
  EXPECT_FALSE(link_shared({folder + "/bad.o"}, folder + "/x.so", "x.so").ok());
}

}  // namespace
}  // namespace mcc::codegen
