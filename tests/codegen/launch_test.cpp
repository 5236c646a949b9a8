// Schedules for GPUs (tests/tensor_passes/data/launch) as PTX, run an instruction at a time by the stand-in driver's machine, against
// the unscheduled function on the interpreter.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "codegen/compiled.h"
#include "codegen/device.h"
#include "fake_cuda/ptx.h"
#include "golden.h"
#include "tensor/intrinsics.h"
#include "tensor/numeric.h"
#include "tensor/passes/lower.h"
#include "tensor/simplify.h"
#include "tensor/sizes.h"
#include "tensor/visit.h"

namespace mcc::codegen {
namespace {

using namespace tensor;

std::string section(const std::string& file, const std::string& name) {
  size_t begin = file.find("=== " + name + "\n");
  if (begin == std::string::npos) return "";
  begin += name.size() + 5;
  return file.substr(begin, file.find("=== ", begin) - begin);
}

int64_t extent_of(const Expr& e) {
  int64_t value = 0;
  MCC_CHECK(as_int(simplify(e), &value), to_text(e), " is not constant");
  return value;
}

// Numbers between -2 and 2, any bytes; all buffers aligned as those of a GPU.
struct Buffers {
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> pointers;

  void add(int64_t bytes) {
    memory.emplace_back(static_cast<size_t>(bytes) + 64);
    void* at = memory.back().data();
    size_t space = memory.back().size();
    pointers.push_back(static_cast<std::byte*>(std::align(64, static_cast<size_t>(bytes), at, space)));
  }
};

double number_at(const Buffer& b, const std::byte* memory, int64_t n) {
  uint64_t bits = 0;
  const auto size = static_cast<size_t>(byte_size(b.element()));
  std::memcpy(&bits, memory + static_cast<size_t>(n) * size, size);
  return is_float(b.element()) ? float_from_bits(b.element(), bits)
                               : static_cast<double>(static_cast<int32_t>(bits));
}

int64_t count_of(const Buffer& b) {
  int64_t count = 1;
  for (const Expr& e : b.shape())
    count *= extent_of(e);
  return count;
}

Buffers buffers_of(const Func& f) {
  Buffers out;
  std::mt19937 engine(7);
  std::uniform_real_distribution<double> real(-2, 2);
  for (const Buffer& b : f.params) {
    const int64_t size = byte_size(b.element());
    out.add(count_of(b) * size);
    for (int64_t n = 0; n < count_of(b); ++n) {
      const double x = real(engine);
      const uint64_t bits = is_float(b.element()) ? float_to_bits(b.element(), round_float(b.element(), x))
                            : size == 1           ? engine()
                                                  : static_cast<uint64_t>(n % 3);
      std::memcpy(out.pointers.back() + n * size, &bits, static_cast<size_t>(size));
    }
  }
  return out;
}

// As many as the schedule asks for: none is left to loops.
void expect_instructions(const Func& lowered, const std::string& ptx) {
  int calls = 0;
  for_each_expr(lowered.body, [&](const Expr& e) {
    const auto* call = e.as<Call>();
    calls += call && (class_of(call->function) == IntrinsicClass::mma || is_wgmma(call->function));
    calls += call && class_of(call->function) == IntrinsicClass::dot ? call->type.lanes : 0;
  });
  int found = 0;
  for (const char* name : {"mma.sync", "wgmma.mma_async", "dp4a."}) {
    for (size_t at = ptx.find(name); at != std::string::npos; at = ptx.find(name, at + 1))
      ++found;
  }
  EXPECT_GE(found, calls);
}

// What the symbolic dimensions of a function are in a run.
struct DimSizes {
  std::vector<Var> dims;
  std::vector<int64_t> sizes;

  int64_t of(Expr e) const {
    for (size_t n = 0; n < dims.size(); ++n)
      e = substitute(e, {{dims[n].get(), Expr(sizes[n])}});
    return extent_of(e);
  }
};

// Empty, or what goes wrong in the machine.
std::string error_of(const DeviceCode& code, Buffers* buffers, test::PtxTraffic* traffic = nullptr, const DimSizes& at = {}) {
  for (const Expr& bytes : code.memory.workspaces)
    buffers->add(at.of(bytes));
  std::string problem;
  std::shared_ptr<const test::PtxModule> module = test::parse_ptx(code.ptx, &problem);
  if (!module) return problem;
  auto run = [&](const DeviceLaunch& launch, int64_t turn) -> std::string {
    test::PtxGrid grid{};
    for (size_t n = 0; n < 3; ++n) {
      grid.grid[n] = static_cast<unsigned>(at.of(launch.grid[n]));
      grid.block[n] = static_cast<unsigned>(extent_of(launch.block[n]));
    }
    if (launch.is_shared_dynamic) grid.dynamic_shared = static_cast<unsigned>(launch.shared_bytes);
    std::vector<uint64_t> arguments;
    for (int b : launch.buffers)
      arguments.push_back(reinterpret_cast<uint64_t>(buffers->pointers[static_cast<size_t>(b)]));
    for (int d : launch.dims)
      arguments.push_back(static_cast<uint64_t>(at.sizes[static_cast<size_t>(d)]));
    if (launch.takes_turn) arguments.push_back(static_cast<uint64_t>(turn));
    for (int64_t number : launch.numbers)
      arguments.push_back(static_cast<uint64_t>(number));
    std::vector<test::PtxTensorMap> maps(launch.maps.size());
    for (size_t m = 0; m < maps.size(); ++m) {
      const TensorMap& of = launch.maps[m];
      auto number = [](int64_t n) { return static_cast<uint32_t>(n); };
      maps[m].address = reinterpret_cast<uint64_t>(buffers->pointers[static_cast<size_t>(of.buffer)]);
      maps[m].width = number(of.width);
      maps[m].height = number(of.height);
      maps[m].pitch = number(of.width * of.element_bytes);
      maps[m].element_bytes = number(of.element_bytes);
      maps[m].box_width = number(of.box_width);
      maps[m].box_height = number(of.box_height);
      maps[m].swizzle = number(of.swizzle);
      arguments.push_back(reinterpret_cast<uint64_t>(&maps[m]));
    }
    auto is_device = [&](uint64_t address, size_t bytes) {
      return std::any_of(buffers->memory.begin(), buffers->memory.end(),
                         [&](const std::vector<std::byte>& m) {
                           const auto begin = reinterpret_cast<uint64_t>(m.data());
                           return address >= begin && address + bytes <= begin + m.size();
                         });
    };
    return test::run_ptx(*module, launch.entry, grid, arguments, is_device, traffic);
  };
  for (size_t first = 0; first < code.launches.size();) {
    const DeviceLaunch& head = code.launches[first];
    const size_t body = std::max<size_t>(head.loop_launches, 1);
    const int64_t turns = head.loop_launches > 0 ? at.of(head.loop_turns) : 1;
    for (int64_t turn = 0; turn < turns; ++turn) {
      for (size_t l = first; l < first + body; ++l)
        if (const std::string error = run(code.launches[l], head.loop_first + turn); !error.empty())
          return error;
    }
    first += body;
  }
  return "";
}

void run_as_ptx(const Func& lowered, const Target& target, Buffers* buffers,
                test::PtxTraffic* traffic = nullptr, const std::vector<int64_t>& sizes = {}) {
  Result<DeviceCode> code = emit_ptx(lowered, "kernel", target);
  ASSERT_TRUE(code.ok()) << to_text(code.errors());
  expect_instructions(lowered, code->ptx);
  ASSERT_EQ(error_of(*code, buffers, traffic, {lowered.dims, sizes}), "") << code->ptx;
}

std::vector<std::string> launch_files() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(MCC_SOURCE_DIR "/tests/tensor_passes/data/launch"))
    names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

// The schedule of a file, lowered.
Func lowered_file(const std::string& name, const Target& target) {
  const std::string file = read_file(test_data("tensor_passes/data/launch/" + name + ".txt"));
  Schedule schedule(parse(section(file, "func")));
  Result<Trace> trace = parse_trace(section(file, "trace"));
  MCC_CHECK(trace.ok() && schedule.replay(*trace), name);
  return lower(schedule.func(), target);
}

// The architectures that can run the schedule of a file.
std::vector<const char*> architectures(const std::string& name) {
  constexpr std::string_view kFromTuring[] = {"dot4_u8i8", "dot4_i8i8", "mma_f16",   "mma_held_f16",
                                              "mma_i8",    "mma_u8i8",  "async_f16", "rolling"};
  if (std::ranges::find(kFromTuring, name) != std::end(kFromTuring)) return {"sm_75", "sm_80", "sm_90"};
  return name.starts_with("wgmma") ? std::vector{"sm_90a"} : std::vector{"sm_80", "sm_90"};
}

class Launches : public testing::TestWithParam<std::string> {};

TEST_P(Launches, Assemble) {
  const char* home = std::getenv("CUDA_HOME");
  const std::unique_ptr<Assembler> assembler =
      Assembler::find(home ? std::vector<std::string>{home} : std::vector<std::string>{}, {});
  if (!assembler) GTEST_SKIP() << "neither nvJitLink nor ptxas is here";
  for (const char* arch : architectures(GetParam())) {
    Result<Target> target = make_target(text("cuda:", arch));
    Result<DeviceCode> code = emit_ptx(lowered_file(GetParam(), *target), "kernel", *target);
    ASSERT_TRUE(code.ok()) << to_text(code.errors());
    Result<Cubin> cubin = assembler->assemble(code->ptx, arch);
    ASSERT_TRUE(cubin.ok()) << to_text(cubin.errors()) << code->ptx;
    for (const EntryFigures& entry : cubin->entries)
      EXPECT_EQ(entry.spill_stores, 0) << arch;
    EXPECT_EQ(cubin->losses, std::vector<std::string>()) << code->ptx;
  }
}

TEST_P(Launches, AreRightAsPtx) {
  const std::string file = read_file(test_data("tensor_passes/data/launch/" + GetParam() + ".txt"));
  const Func symbolic = parse(section(file, "func"));
  std::istringstream listed(section(file, "sizes"));
  const std::vector<int64_t> sizes{std::istream_iterator<int64_t>(listed), {}};
  ASSERT_EQ(sizes.size(), symbolic.dims.size());
  const Func f = with_sizes(symbolic, sizes);
  Result<Trace> trace = parse_trace(section(file, "trace"));
  ASSERT_TRUE(trace.ok());
  Schedule schedule(symbolic);
  ASSERT_TRUE(schedule.replay(*trace));
  Buffers want = buffers_of(f);
  ASSERT_TRUE(interpret(f, want.pointers).ok());
  for (const char* arch : architectures(GetParam())) {
    SCOPED_TRACE(arch);
    Buffers got = buffers_of(f);
    Result<Target> target = make_target(text("cuda:", arch));
    run_as_ptx(lower(schedule.func(), *target), *target, &got, nullptr, sizes);
    for (size_t n = static_cast<size_t>(f.num_inputs()); n < f.params.size(); ++n) {
      for (int64_t k = 0; k < count_of(f.params[n]); ++k) {
        const double x = number_at(f.params[n], want.pointers[n], k),
                     y = number_at(f.params[n], got.pointers[n], k);
        ASSERT_NEAR(x, y, 1e-4 * (1 + std::fabs(x))) << f.params[n].name() << " at " << k;
      }
    }
  }
}

// What is older than PTX 8.4 says so, for drivers that are, too.
TEST(Launch, NamesTheVersionOfPtxThatItNeeds) {
  const Result<Target> target = make_target("cuda:sm_90a");
  for (const auto& [file, version] :
       {std::pair{"wgmma_f16", "8.0"}, {"wgmma_exchanged_i8", "8.0"}, {"wgmma_u8i8", "8.4"}}) {
    Result<DeviceCode> code = emit_ptx(lowered_file(file, *target), "kernel", *target);
    ASSERT_TRUE(code.ok()) << to_text(code.errors());
    const std::string line = text(".version ", version, "\n");
    EXPECT_NE(code->ptx.find(line), std::string::npos) << code->ptx;
  }
  // The stand-in driver knows what came with it.
  std::string ptx = emit_ptx(lowered_file("wgmma_u8i8", *target), "kernel", *target)->ptx, problem;
  const std::string newer = ".version 8.4";
  ptx.replace(ptx.find(newer), newer.size(), ".version 8.3");
  EXPECT_EQ(test::parse_ptx(ptx, &problem), nullptr);
  EXPECT_NE(problem.find("mixed types of integers in a product before PTX 8.4"), std::string::npos)
      << problem;
}

// Sums of warpgroups are those of the products until these have been waited for.
TEST(Launch, SumsAreNotUsedBeforeTheWait) {
  const Result<Target> target = make_target("cuda:sm_90a");
  const Func lowered = lowered_file("wgmma_f16", *target);
  Result<DeviceCode> code = emit_ptx(lowered, "kernel", *target);
  ASSERT_TRUE(code.ok()) << to_text(code.errors());
  const std::string wait = "wgmma.wait_group";
  size_t waits = 0;
  for (size_t at = code->ptx.find(wait); at != std::string::npos; at = code->ptx.find(wait), ++waits)
    code->ptx.erase(at, code->ptx.find(';', at) + 1 - at);
  ASSERT_GT(waits, 0u);
  Buffers buffers = buffers_of(lowered);
  EXPECT_NE(error_of(*code, &buffers).find("a sum of a product is used before wgmma.wait_group, in: "),
            std::string::npos);
}

// What is left of 1 is a difference of some steps: the quotient is off by no more than its rounding, and that of its divisor, make it.
TEST(Launch, SigmoidsAreAsGoodAsTheirQuotients) {
  const Result<Target> target = make_target("cuda:sm_80");
  const Func lowered =
      lower(parse("func f(x: f32[4096]) -> (y: f32[4096]) { bound for b in 32 @{thread=\"block.x\"} { bound "
                  "for t in 128 "
                  "@{thread=\"thread.x\"} { y[b * 128 + t] = sigmoid(x[b * 128 + t] + 12.0) } } }"),
            *target);
  Buffers buffers = buffers_of(lowered);
  run_as_ptx(lowered, *target, &buffers);
  for (int64_t k = 0; k < 4096; ++k) {
    const double x = static_cast<float>(number_at(lowered.params[0], buffers.pointers[0], k)) + 12.0F;
    EXPECT_NEAR(number_at(lowered.params[1], buffers.pointers[1], k), 1 / (1 + std::exp(-x)), 0x1.81p-24)
        << x;
  }
}

// Operands whose units are exchanged: each warp reads whole sectors and none twice, and no bank is asked for two words at once, by
// copies or by products.
TEST(Traffic, OfExchangedUnitsIsTheLeast) {
  for (const std::string& name : launch_files()) {
    if (!name.starts_with("wgmma_exchanged")) continue;
    SCOPED_TRACE(name);
    const Result<Target> target = make_target("cuda:sm_90a");
    const Func lowered = lowered_file(name, *target);
    Buffers buffers = buffers_of(lowered);
    test::PtxTraffic traffic;
    run_as_ptx(lowered, *target, &buffers, &traffic);
    EXPECT_GT(traffic.copies, 0u);
    EXPECT_EQ(traffic.sectors * 32, traffic.copied_bytes);
    EXPECT_EQ(traffic.write_passes, traffic.write_groups);
    EXPECT_GT(traffic.operand_rows, 0u);
    EXPECT_EQ(traffic.operand_passes, traffic.operand_rows);
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Launches, testing::ValuesIn(launch_files()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mcc::codegen
