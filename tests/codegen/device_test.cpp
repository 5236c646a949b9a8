// Kernels for GPUs, given as lowered functions: every one goes through NVIDIA's assembler where it is installed (counted as
// skipped where it is not); a few small ones are compared with their text.
#include "codegen/device.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "codegen/compiled.h"
#include "golden.h"
#include "tensor/passes/group_loads.h"

namespace mcc::codegen {
namespace {

using tensor::Target;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const char* const kFloats[] = {"f64", "f32", "tf32", "f16", "bf16", "f8e4m3", "f8e5m2"};
const char* const kInts[] = {"i64", "i32", "i16", "i8", "i4", "u64", "u32", "u16", "u8", "u4"};

Target target_of(const std::string& name) {
  Result<Target> target = make_target(name);
  MCC_CHECK(target.ok(), to_text(target.errors()));
  return *target;
}

const Assembler* assembler() {
  static const std::unique_ptr<Assembler> found = [] {
    const char* home = std::getenv("CUDA_HOME");
    return Assembler::find(home ? std::vector<std::string>{home} : std::vector<std::string>{}, {});
  }();
  return found.get();
}

DeviceCode emit(const tensor::Func& f, const std::string& arch, const EmitOptions& options = {}) {
  Result<DeviceCode> code = emit_ptx(f, "kernel", target_of("cuda:" + arch), options);
  MCC_CHECK(code.ok(), to_text(code.errors()), to_text(f));
  return *code;
}

DeviceCode emit(const std::string& source, const std::string& arch, const EmitOptions& options = {}) {
  return emit(parse(source), arch, options);
}

std::string refusal(const std::string& source, const std::string& arch = "sm_80") {
  Result<DeviceCode> code = emit_ptx(parse(source), "kernel", target_of("cuda:" + arch));
  return code.ok() ? "it is accepted" : to_text(code.errors());
}

// In each thread of a grid that covers kCount elements: the statements, with i, over vectors of `lanes`.
constexpr int kCount = 1024 * 4;
std::string grid(const std::string& inputs, const std::vector<std::pair<std::string, std::string>>& outputs,
                 int lanes) {
  std::string params, stores;
  for (size_t n = 0; n < outputs.size(); ++n) {
    params += text(n ? ", " : "", "y", n, ": ", outputs[n].first, "[", kCount, "]");
    stores += text("y", n, "[I] = ", outputs[n].second, "\n");
  }
  std::string index =
      lanes == 1 ? "bx * 128 + tx" : text("ramp(bx * ", 128 * lanes, " + tx * ", lanes, ", 1, ", lanes, ")");
  for (size_t at = 0; (at = stores.find("[I]", at)) != std::string::npos;)
    stores.replace(at, 3, "[" + index + "]");
  return text("func f(", inputs, ") -> (", params, ") { bound for bx in ", kCount / 128 / lanes,
              " @{thread=\"block.x\"} { bound for tx in 128 @{thread=\"thread.x\"} {\n", stores, "} } }");
}

void expect_assembles(const DeviceCode& code, const std::string& arch, const std::string& source) {
  Result<Cubin> cubin = assembler()->assemble(code.ptx, arch);
  ASSERT_TRUE(cubin.ok()) << to_text(cubin.errors()) << source << code.ptx;
  std::set<std::string> entries;
  for (const DeviceLaunch& launch : code.launches)
    entries.insert(launch.entry);
  EXPECT_EQ(cubin->entries.size(), entries.size());
  EXPECT_EQ(cubin->bytes.empty(), cubin->arch != arch);
}

class Operations : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!assembler()) GTEST_SKIP() << "neither nvJitLink nor ptxas is here";
  }
  void check(const std::string& inputs, const std::vector<std::pair<std::string, std::string>>& outputs) {
    for (const char* arch : {"sm_70", "sm_80", "sm_90"}) {
      for (int lanes : {1, 4}) {
        std::string source = grid(inputs, outputs, lanes);
        // Constants are as wide as what they stand beside.
        SCOPED_TRACE(text(arch, ", ", lanes, " lanes"));
        expect_assembles(emit(source, arch), arch, source);
        if (HasFailure()) return;
      }
    }
  }
  static std::string inputs_of(const std::string& type, std::initializer_list<const char*> names) {
    std::string list;
    for (const char* name : names)
      list += text(list.empty() ? "" : ", ", name, ": ", type, "[", kCount, "]");
    return list;
  }
};

class DeviceFloats : public Operations {};
class DeviceInts : public Operations {};

TEST_P(DeviceFloats, Assemble) {
  std::string t = GetParam();
  std::vector<std::pair<std::string, std::string>> outputs;
  for (const char* op : {"+", "-", "*", "/", "%"})
    outputs.emplace_back(t, text("a[I] ", op, " b[I]"));
  for (const char* op : {"==", "!=", "<", "<=", ">", ">="})
    outputs.emplace_back("bool", text("a[I] ", op, " b[I]"));
  for (const char* name : {"sqrt", "abs", "floor", "ceil", "round", "trunc"})
    outputs.emplace_back(t, text(name, "(a[I])"));
  outputs.emplace_back(t, "min(a[I], b[I]) + max(a[I], c[I])");
  outputs.emplace_back(t, "fma(a[I], b[I], c[I])");
  outputs.emplace_back("bool", "is_inf(a[I]) || is_nan(b[I])");
  outputs.emplace_back(t, "select(a[I] < b[I], c[I], a[I] * c[I])");
  check(inputs_of(t, {"a", "b", "c"}), outputs);
}

TEST_P(DeviceFloats, Convert) {
  std::string t = GetParam();
  for (const char* to : kFloats) {
    std::string source = grid(inputs_of(t, {"a"}), {{to, text(to, "(a[I])")}}, 1);
    expect_assembles(emit(source, "sm_80"), "sm_80", source);
  }
  std::vector<std::pair<std::string, std::string>> outputs;
  for (const char* to : kInts)
    outputs.emplace_back(to, text(to, "(a[bx * 128 + tx])"));
  std::string source = grid(inputs_of(t, {"a"}), outputs, 1);
  expect_assembles(emit(source, "sm_70"), "sm_70", source);
}

TEST_P(DeviceInts, Assemble) {
  std::string t = GetParam();
  std::vector<std::pair<std::string, std::string>> outputs;
  for (const char* op : {"+", "-", "*", "/", "%", "//", "%%", "&", "|", "^"})
    outputs.emplace_back(t, text("a[I] ", op, " b[I]"));
  for (const char* op : {"==", "<", ">="})
    outputs.emplace_back("bool", text("a[I] ", op, " b[I]"));
  outputs.emplace_back(t, "min(a[I], b[I])");
  outputs.emplace_back(t, "abs(a[I]) + max(a[I], b[I])");
  outputs.emplace_back(t, "bit_not(a[I])");
  outputs.emplace_back(t, "popcount(a[I])");
  check(inputs_of(t, {"a", "b"}), outputs);
}

TEST_P(DeviceInts, Convert) {
  std::string t = GetParam();
  std::vector<std::pair<std::string, std::string>> outputs;
  for (const char* to : kFloats)
    outputs.emplace_back(to, text(to, "(a[bx * 128 + tx])"));
  for (const char* to : kInts)
    outputs.emplace_back(to, text(to, "(a[bx * 128 + tx])"));
  outputs.emplace_back("bool", "bool(a[bx * 128 + tx])");
  std::string source = grid(inputs_of(t, {"a"}), outputs, 1);
  expect_assembles(emit(source, "sm_80"), "sm_80", source);
}

std::string name_of(const testing::TestParamInfo<const char*>& info) { return info.param; }
INSTANTIATE_TEST_SUITE_P(Types, DeviceFloats, testing::ValuesIn(kFloats), name_of);
INSTANTIATE_TEST_SUITE_P(Types, DeviceInts, testing::ValuesIn(kInts), name_of);

// ---- Launches ----

// Two launches with a workspace between them, one of them over a symbolic dimension.
constexpr const char* kTwoLaunches = R"(
func f<n>(x: f32[n]) -> (y: f32[n * 32]) {
  alloc w: f32[n] {
    bound for b in (n + 255) // 256 @{thread="block.x"} {
      bound for t in 256 @{thread="thread.x"} {
        if b * 256 + t < n {
          w[b * 256 + t] = x[b * 256 + t] * 2.0
        }
      }
    }
    bound for by in n @{thread="block.y"} {
      bound for t in 32 @{thread="thread.x"} {
        y[by * 32 + t] = w[by]
      }
    }
  }
})";

TEST(Device, LaunchesAndTheirArguments) {
  DeviceCode code = emit(kTwoLaunches, "sm_80");
  ASSERT_EQ(code.launches.size(), 2U);
  EXPECT_EQ(code.launches[0].entry, "kernel_0");
  EXPECT_THAT(code.launches[0].buffers, ElementsAre(0, 2));
  EXPECT_THAT(code.launches[0].dims, ElementsAre(0));
  EXPECT_EQ(tensor::to_text(code.launches[0].grid[0]), "(n + 255) // 256");
  EXPECT_EQ(tensor::to_text(code.launches[0].block[0]), "256");
  EXPECT_EQ(code.launches[1].entry, "kernel_1");
  EXPECT_THAT(code.launches[1].buffers, ElementsAre(1, 2));
  EXPECT_EQ(tensor::to_text(code.launches[1].grid[1]), "n");
  ASSERT_EQ(code.memory.workspaces.size(), 1U);
  EXPECT_EQ(tensor::to_text(code.memory.workspaces[0]), "4 * n");
  if (assembler()) expect_assembles(code, "sm_80", kTwoLaunches);
}

int count(const std::string& haystack, const std::string& needle) {
  int n = 0;
  for (size_t at = haystack.find(needle); at != std::string::npos; at = haystack.find(needle, at + 1))
    ++n;
  return n;
}

constexpr const char* kSteps = R"(
func f(x: f32[64]) -> (y: f32[64]) {
  for t in 3 {
    bound for b in 2 @{thread="block.x"} {
      bound for i in 32 @{thread="thread.x"} {
        y[b * 32 + i] = x[b * 32 + i] + x[t]
      }
    }
    for u in 2 {
      bound for b in 1 @{thread="block.x"} {
        bound for i in 32 @{thread="thread.x"} {
          y[i] = y[i + 32] * x[t + u]
        }
      }
    }
  }
})";

TEST(Device, StepsAreLaunchesOfOneKernel) {
  DeviceCode code = emit(kSteps, "sm_80");
  std::vector<std::string> found;
  for (const DeviceLaunch& launch : code.launches)
    found.push_back(text(launch.entry, ":", launch.takes_turn ? 1 : 0, ",", join(launch.numbers, ",")));
  EXPECT_THAT(found, ElementsAre("kernel_0:1,", "kernel_1:1,0", "kernel_1:1,1"));
  EXPECT_EQ(code.launches[0].loop_launches, 3U);
  EXPECT_EQ(tensor::to_text(code.launches[0].loop_turns), "3");
  EXPECT_EQ(code.launches[1].loop_launches, 0U);
  EXPECT_EQ(count(code.ptx, ".visible .entry"), 2);
  EXPECT_EQ(count(code.ptx, ".param .u64 kernel_1_param_"), 4);  // y, x, t, u
  if (assembler()) expect_assembles(code, "sm_80", kSteps);
}

// A matmul tile by tile: 16 x 16 threads, operands in shared memory, 64 x 64 a block, 4 x 4 a thread.
std::string tiled_matmul(int shared_k) {
  return text(R"(
func f(a: f32[262144], b: f32[262144]) -> (c: f32[262144]) {
  bound for by in 8 @{thread="block.y"} {
    bound for bx in 8 @{thread="block.x"} {
      alloc as: f32[)",
              64 * shared_k, R"(] shared {
        alloc bs: f32[)",
              64 * shared_k, R"(] shared {
          bound for t in 256 @{thread="thread.x"} {
            alloc acc: f32[8] registers {
              acc[ramp(0, 1, 4)] = broadcast(0.0, 4)
              acc[ramp(4, 1, 4)] = broadcast(0.0, 4)
              for ko in )",
              512 / shared_k, R"( {
                evaluate barrier()
                for r in )",
              shared_k / 16, R"( {
                  as[ramp(t * 4 + r * 1024, 1, 4)] = a[ramp(by * 32768 + t // 4 * 512 + ko * )",
              shared_k, R"( + t %% 4 * 4 + r * 16, 1, 4)]
                  bs[ramp(t * 4 + r * 1024, 1, 4)] = b[ramp((ko * )",
              shared_k, R"( + r * 16 + t // 16) * 512 + bx * 64 + t %% 16 * 4, 1, 4)]
                }
                evaluate barrier()
                for k in )",
              shared_k, R"( {
                  acc[ramp(0, 1, 4)] = acc[ramp(0, 1, 4)] + broadcast(as[t // 16 * 64 + k %% 16], 4) * bs[ramp(k * 64 + t %% 16 * 4, 1, 4)]
                  acc[ramp(4, 1, 4)] = acc[ramp(4, 1, 4)] + broadcast(as[t // 16 * 64 + 16 + k %% 16], 4) * bs[ramp(k * 64 + t %% 16 * 4, 1, 4)]
                }
              }
              c[ramp(by * 32768 + t // 16 * 2048 + bx * 64 + t %% 16 * 4, 1, 4)] = acc[ramp(0, 1, 4)]
              c[ramp(by * 32768 + t // 16 * 2048 + 512 + bx * 64 + t %% 16 * 4, 1, 4)] = acc[ramp(4, 1, 4)]
            }
          }
        }
      }
    }
  }
})");
}

TEST(Device, SharedMemoryIsLoadedAndStoredInVectors) {
  std::string source = tiled_matmul(16);
  DeviceCode code = emit(source, "sm_80");
  EXPECT_EQ(code.launches[0].shared_bytes, 2 * 64 * 16 * 4);
  EXPECT_FALSE(code.launches[0].is_shared_dynamic);
  EXPECT_EQ(count(code.ptx, "bar.sync"), 2);
  EXPECT_EQ(count(code.ptx, "ld.global.nc.v4.f32"), 2) << code.ptx;
  EXPECT_EQ(count(code.ptx, "st.shared.v4.f32"), 2);
  EXPECT_GE(count(code.ptx, "ld.shared.v4.f32"), 1);
  EXPECT_EQ(count(code.ptx, "st.global.v4.f32"), 2) << code.ptx;
  EXPECT_THAT(code.ptx, HasSubstr(".reqntid 256, 1, 1"));
  EXPECT_EQ(count(code.ptx, ".local"), 0) << "accumulators must be in registers";
  if (!assembler()) GTEST_SKIP() << "neither nvJitLink nor ptxas is here";
  for (const char* arch : {"sm_70", "sm_80", "sm_90"}) {
    Result<Cubin> cubin = assembler()->assemble(emit(source, arch).ptx, arch);
    ASSERT_TRUE(cubin.ok()) << to_text(cubin.errors());
    ASSERT_EQ(cubin->entries.size(), 1U);
    EXPECT_EQ(cubin->entries[0].entry, "kernel");
    EXPECT_GT(cubin->entries[0].registers, 16);
    EXPECT_LE(cubin->entries[0].registers, 96);
    EXPECT_GE(cubin->entries[0].shared_bytes, code.launches[0].shared_bytes);
    EXPECT_EQ(cubin->entries[0].spill_stores, 0);
  }
}

// Vectors of other than neighbours, of which LLVM has to see each element to keep it in a register.
TEST(Device, RegistersAreTakenInAnyOrder) {
  DeviceCode code = emit(R"(
func f(x: f32[4096]) -> (y: f32[4096]) {
  bound for b in 4 @{thread="block.x"} {
    bound for t in 128 @{thread="thread.x"} {
      alloc acc: f32[8] registers {
        acc[ramp(0, 1, 4)] = x[ramp(b * 1024 + t * 8, 1, 4)]
        acc[ramp(4, 1, 4)] = x[ramp(b * 1024 + t * 8 + 4, 1, 4)]
        y[ramp(b * 1024 + t * 8, 1, 4)] = acc[ramp(0, 1, 4) // broadcast(2, 4) * broadcast(4, 4) + ramp(0, 1, 4) %% broadcast(2, 4)]
        acc[ramp(0, 1, 4) // broadcast(2, 4) * broadcast(4, 4) + ramp(0, 1, 4) %% broadcast(2, 4)] = acc[ramp(4, 1, 4)]
        y[ramp(b * 1024 + t * 8 + 4, 1, 4)] = acc[ramp(0, 2, 4)]
      }
    }
  }
})",
                         "sm_80");
  EXPECT_EQ(count(code.ptx, ".local"), 0) << code.ptx;
  EXPECT_EQ(count(code.ptx, "st.global.v4.f32"), 2) << code.ptx;
}

TEST(Device, NarrowFloatsAreConvertedByInstructions) {
  auto narrowing = [](const std::string& type) {
    return "func f(x: f32[4096]) -> (y: " + type + R"([4096]) {
  bound for b in 4 @{thread="block.x"} {
    bound for t in 256 @{thread="thread.x"} {
      y[ramp(b * 1024 + t * 4, 1, 4)] = )" +
           type + R"(x4(x[ramp(b * 1024 + t * 4, 1, 4)])
    }
  }
})";
  };
  for (const std::string type : {"f16", "bf16"}) {
    const std::string ptx = emit(narrowing(type), "sm_80").ptx;
    EXPECT_EQ(count(ptx, "cvt.rn." + type + "x2.f32"), 2) << ptx;
    EXPECT_EQ(count(ptx, "shr.u32"), 0) << ptx;
    EXPECT_EQ(count(emit(narrowing(type), "sm_75").ptx, "x2.f32"), 0);
    if (assembler()) {
      EXPECT_TRUE(assembler()->assemble(ptx, "sm_80").ok());
    }
  }
}

// The result of a sum may be put where one of its terms lies: while a launch writes memory, it reads nothing of it by way of the
// read-only cache.
TEST(Device, InputsThatMayBeWrittenOverAreReadPlainly) {
  const std::string ptx =
      emit(grid("a: f32[4096], b: f32[4096], c: f32[8192]", {{"f32", "a[I] + b[I] * c[I]"}}, 4), "sm_80").ptx;
  EXPECT_EQ(count(ptx, "ld.global.v4.f32"), 2) << ptx;
  EXPECT_EQ(count(ptx, "ld.global.nc.v4.f32"), 1) << ptx;
}

// What it reads and writes stands behind the wait, in the machine code as well: the assembler moves up reads by way of the read-only
// cache, and those of what it knows not to be written.
TEST(Device, KernelsOfHopperWaitForThoseBeforeThem) {
  const std::string sources[] = {tiled_matmul(16), kTwoLaunches,
                                 grid("a: f32[8192], b: f32[8192]", {{"f32", "a[I] + b[I]"}}, 4)};
  for (const std::string& source : sources) {
    EXPECT_THAT(emit(source, "sm_89").ptx, AllOf(Not(HasSubstr("griddepcontrol")), HasSubstr("ld.global.nc")));
    EXPECT_FALSE(emit(source, "sm_89").launches[0].waits_itself);
    for (const char* arch : {"sm_90", "sm_90a"}) {
      const DeviceCode code = emit(source, arch);
      EXPECT_EQ(count(code.ptx, "griddepcontrol.wait"), static_cast<int>(code.launches.size())) << code.ptx;
      EXPECT_THAT(code.ptx, Not(HasSubstr("ld.global.nc")));
      for (const DeviceLaunch& launch : code.launches) {
        EXPECT_TRUE(launch.waits_itself);
        const size_t begin = code.ptx.find(".entry " + launch.entry + "(");
        ASSERT_NE(begin, std::string::npos) << code.ptx;
        EXPECT_LT(code.ptx.find("griddepcontrol.wait", begin), code.ptx.find(".global", begin)) << code.ptx;
      }
    }
  }
}

// What the pass group_loads brings ahead of writes stays there: without the read-only cache the assembler leaves the order as it is.
TEST(Device, KernelsOfHopperReadAheadOfWrites) {
  auto emit_grouped = [](const std::string& source) {
    return emit(tensor::group_loads(parse(source)), "sm_90").ptx;
  };
  auto places = [](const std::string& ptx, const char* what) {
    std::vector<size_t> found;
    for (size_t at = 0; (at = ptx.find(what, at)) != std::string::npos; ++at)
      found.push_back(at);
    return found;
  };
  const std::string two = emit_grouped(grid("a: f32[4096], b: f32[4096]", {{"f32", "a[I] * a[I]"}, {"f32", "b[I] * b[I]"}}, 4));
  EXPECT_EQ(places(two, "ld.global").size(), 2U) << two;
  EXPECT_LT(places(two, "ld.global").back(), places(two, "st.global").front()) << two;
  // What is written is read behind that.
  const std::string shifted =
      emit_grouped(grid("a: f32[4096]", {{"f32", "a[I] * 2.0"}, {"f32", "y0[bx * 128 + 127 - tx] * 2.0"}}, 1));
  EXPECT_EQ(places(shifted, "ld.global").size(), 2U) << shifted;
  EXPECT_GT(places(shifted, "ld.global").back(), places(shifted, "st.global").front()) << shifted;
  // No more than registers hold.
  std::vector<std::pair<std::string, std::string>> outputs;
  std::string inputs;
  for (int n = 0; n < 12; ++n) {
    inputs += text(n ? ", " : "", "x", n, ": f32[4096]");
    outputs.push_back({"f32", text("x", n, "[I] * x", n, "[I]")});
  }
  const std::string many = emit_grouped(grid(inputs, outputs, 4));
  const std::vector<size_t> reads = places(many, "ld.global"), writes = places(many, "st.global");
  const auto ahead = std::count_if(reads.begin(), reads.end(), [&](size_t at) { return at < writes[0]; });
  EXPECT_EQ(reads.size(), 12U);
  EXPECT_EQ(ahead, 8) << many;  // of four registers each
}

TEST(Device, SharedMemoryOfMoreThan48KBIsDynamic) {
  DeviceCode code = emit(tiled_matmul(128), "sm_80");
  EXPECT_EQ(code.launches[0].shared_bytes, 2 * 64 * 128 * 4);
  EXPECT_TRUE(code.launches[0].is_shared_dynamic);
  EXPECT_THAT(code.ptx, HasSubstr(".extern .shared"));
  if (assembler()) expect_assembles(code, "sm_80", "128 deep");
}

// A sum over the threads of a block: shuffles in each warp.
constexpr const char* kWarpSum = R"(
func f(x: f32[4096]) -> (y: f32[128]) {
  bound for b in 128 @{thread="block.x"} {
    bound for t in 32 @{thread="thread.x"} {
      let s0 = x[b * 32 + t]
      let s1 = s0 + shuffle_xor(s0, 16)
      let s2 = s1 + shuffle_xor(s1, 8)
      let s3 = s2 + shuffle_down(s2, 4)
      if t == 0 { y[b] = s3 }
    }
  }
})";

// Each thread takes from one that it names, by another for each; what 16 bits hold is an f32 in registers.
constexpr const char* kTakenByName = R"(
func f(x: f16[4096], n: i32[32]) -> (y: f16[4096]) {
  bound for b in 128 @{thread="block.x"} {
    bound for t in 32 @{thread="thread.x"} {
      let v = shuffle_from(x[b * 32 + t], t // 4 * 4 + i64(n[t]) %% 4)
      y[b * 32 + t] = v
    }
  }
})";

// An index that the bits of its terms make up where a condition holds, and outside of it a sum: b * 48 | t is one below t < 8 only.
TEST(Device, SumsAreSumsWhateverAConditionSays) {
  DeviceCode code = emit(R"(
func f(x: f32[384]) -> (y: f32[384]) {
  bound for b in 8 @{thread="block.x"} {
    alloc s: f32[32] shared {
      bound for t in 32 @{thread="thread.x"} {
        s[t] = select(t < 8, x[b * 48 + t], 0.0)
        evaluate barrier()
        if t < 24 { y[b * 48 + t] = s[t // 2] }
      }
    }
  }
})",
                         "sm_80");
  EXPECT_THAT(code.ptx, Not(HasSubstr("or.b32"))) << code.ptx;
}

TEST(Device, Goldens) {
  const std::pair<const char*, std::string> cases[] = {
      {"two_launches", kTwoLaunches},
      {"warp_sum", kWarpSum},
      {"add_vectors", grid("a: f32[4096], b: f32[4096]", {{"f32", "a[I] + b[I]"}}, 4)}};
  for (const auto& [name, source] : cases)
    expect_golden(text("codegen/data/device/", name, ".ptx"), emit(source, "sm_80").ptx);
}

TEST(Device, Shuffles) {
  DeviceCode code = emit(kWarpSum, "sm_70");
  EXPECT_EQ(count(code.ptx, "shfl.sync.bfly.b32"), 2);
  EXPECT_EQ(count(code.ptx, "shfl.sync.down.b32"), 1);
  DeviceCode named = emit(kTakenByName, "sm_70");
  EXPECT_EQ(count(named.ptx, "shfl.sync.idx.b32"), 1);
  if (!assembler()) GTEST_SKIP() << "neither nvJitLink nor ptxas is here";
  expect_assembles(code, "sm_70", kWarpSum);
  expect_assembles(named, "sm_70", kTakenByName);
}

TEST(Device, IsDeterministic) {
  const std::string source = tiled_matmul(32), expected = emit(source, "sm_90").ptx;
  std::vector<std::string> found(4);
  std::vector<std::thread> threads;
  for (std::string& ptx : found)
    threads.emplace_back([&] { ptx = emit(source, "sm_90").ptx; });
  for (std::thread& thread : threads)
    thread.join();
  for (const std::string& ptx : found)
    EXPECT_EQ(ptx, expected);
}

TEST(Device, RefusesWhatTheGpuCannotRun) {
  EXPECT_EQ(refusal("func f(x: f32[8]) -> (y: f32[8]) { for i in 8 { y[i] = x[i] } }"),
            "f: kernel part 'y' is not bound to the grid");
  const auto nest = [](const std::string& blocks, const std::string& threads, const std::string& body) {
    return text("func f(x: f32[8]) -> (y: f32[8]) { bound for b in ", blocks,
                " @{thread=\"block.y\"} { bound for t in ", threads, " @{thread=\"thread.x\"} { ", body,
                " } } }");
  };
  EXPECT_EQ(refusal(nest("1", "2048", "y[0] = 1.0")), "f: a block of 2048 threads, sm_80 has at most 1024");
  EXPECT_EQ(refusal(nest("65536", "1", "y[0] = 1.0")),
            "f: 65536 blocks along block.y, a GPU has at most 65535");
  const std::string shared = "alloc s: f32[26000] shared { s[t] = 1.0 }";
  EXPECT_EQ(refusal(nest("1", "32", shared), "sm_75"),
            "f: a block needs 104000 bytes of shared memory, sm_75 has at most 65536");
  EXPECT_EQ(refusal(nest("1", "32", shared)), "it is accepted");
  EXPECT_EQ(refusal(nest("1", "32", "alloc s: f32[5000] local { s[t] = 1.0 }")),
            "f: a thread needs 20000 bytes of private memory, at most 16384 are given");
  std::string inputs = "x0: f32[8]", sum = "x0[t]";
  for (int i = 1; i < 520; ++i) {
    inputs += text(", x", i, ": f32[8]");
    sum += text(" + x", i, "[t]");
  }
  EXPECT_EQ(refusal(text("func f(", inputs, ") -> (y: f32[8]) { bound for t in 8 @{thread=\"thread.x\"} { y[t] = ", sum, " } }")),
            "f: a launch has 4168 bytes of parameters, a GPU takes at most 4096");
  const std::string step = nest("1", "8", "y[t] = x[t]");
  const size_t body = step.find('{') + 1;
  EXPECT_EQ(refusal(step.substr(0, body) + "for o in 2 { for s in 70000 {" + step.substr(body) + " } }"),
            "f: 70000 iterations of loop s around launches are more than 65536 launches");
  EXPECT_EQ(
      refusal("func f(n: i64[1], x: f32[8]) -> (y: f32[8]) { for s in n[0] {" + step.substr(body) + " }"),
      "f: loop s around launches has bounds that are not known before the run");
  // All at once.
  EXPECT_THAT(refusal("func f(x: f32[8]) -> (y: f32[8], z: f32[8]) { for i in 8 { y[i] = x[i] } for i in 8 { "
                      "z[i] = x[i] } }"),
              testing::AllOf(HasSubstr("'y'"), HasSubstr("'z'")));
}

// ---- The assembler's report ----

TEST(AssemblerLog, IsRead) {
  std::vector<EntryFigures> entries = parse_assembler_log(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'first' for 'sm_80'\n"
      "ptxas info    : Function properties for mcc_$_fmod\n"
      "    99 bytes stack frame, 98 bytes spill stores, 97 bytes spill loads\n"
      "ptxas info    : Function properties for first\n"
      "    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
      "ptxas info    : Used 42 registers, used 1 barriers, 8 bytes cumulative stack size, 8192 bytes smem, "
      "376 bytes cmem[0]\n"
      "ptxas info    : Compiling entry function 'second' for 'sm_80'\n"
      "ptxas info    : Function properties for second\n"
      "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 8 registers, used 0 barriers\n");
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].entry, "first");
  EXPECT_EQ(entries[0].registers, 42);
  EXPECT_EQ(entries[0].shared_bytes, 8192);
  EXPECT_EQ(entries[0].stack_bytes, 8);
  EXPECT_EQ(entries[0].spill_stores, 12);
  EXPECT_EQ(entries[0].spill_loads, 16);
  EXPECT_EQ(entries[1].entry, "second");
  EXPECT_EQ(entries[1].registers, 8);
  EXPECT_EQ(entries[1].shared_bytes, 0);
}

// Whatever else is installed, and whichever kind that is.
TEST(Assembler, TheCudaThatIsNamedComesFirst) {
  namespace fs = std::filesystem;
  const fs::path cuda = fs::path(testing::TempDir()) / "mcc_named_cuda", program = cuda / "bin/ptxas";
  fs::create_directories(program.parent_path());
  std::ofstream(program) << "#!/bin/sh\necho 'Cuda compilation tools, release 11.1, V11.1.105'\n";
  fs::permissions(program, fs::perms::owner_all);
  const std::unique_ptr<Assembler> found = Assembler::find({cuda.string()}, {});
  fs::remove_all(cuda);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->name(), "ptxas 11.1 (" + program.string() + ")");
}

// A program that does not end is ended, and is an error; one that does not even say its version is none.
TEST(Assembler, DoesNotWaitForever) {
  namespace fs = std::filesystem;
  const fs::path cuda = fs::path(testing::TempDir()) / "mcc_slow_cuda", program = cuda / "bin/ptxas";
  fs::create_directories(program.parent_path());
  constexpr const char* kVersion = "case \"$*\" in *--version*) echo 'release 11.1, V11.1.105'; exit 0;; esac\n";
  for (const bool tells_version : {true, false}) {
    std::ofstream(program) << "#!/bin/sh\n" << (tells_version ? kVersion : "") << "exec sleep 1000\n";
    fs::permissions(program, fs::perms::owner_all);
    const std::unique_ptr<Assembler> found = Assembler::find_in({cuda.string()}, {tells_version ? 20 : 0.2, 0.2});
    ASSERT_EQ(found != nullptr, tells_version);
    if (!tells_version) continue;
    const Result<Cubin> cubin = found->assemble(".version 7.0\n.target sm_80\n", "sm_80");
    ASSERT_FALSE(cubin.ok());
    EXPECT_THAT(to_text(cubin.errors()), HasSubstr("took more than 0.2 s for PTX for sm_80, and was ended"));
  }
  fs::remove_all(cuda);
}

TEST(Assembler, NamesWhatItRefuses) {
  if (!assembler()) GTEST_SKIP() << "neither nvJitLink nor ptxas is here";
  Result<Cubin> cubin =
      assembler()->assemble(".version 7.0\n.target sm_80\n.address_size 64\nnonsense\n", "sm_80");
  ASSERT_FALSE(cubin.ok());
  EXPECT_THAT(to_text(cubin.errors()), HasSubstr("refuses PTX for sm_80"));
}

}  // namespace
}  // namespace mcc::codegen
