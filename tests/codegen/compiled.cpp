#include "codegen/compiled.h"

#include <cmath>
#include <cstring>

#include "codegen/memory_plan.h"
#include "tensor/numeric.h"

namespace mcc::codegen {

using tensor::Buffer;
using tensor::Func;

const std::vector<tensor::Target>& test_targets() {
  static const std::vector<tensor::Target> targets = [] {
    std::vector<tensor::Target> list;
    for (const char* name : {"cpu", "cpu:x86-64-v4", "cpu:x86-64-v3", "cpu:x86-64-v2"}) {
      Result<tensor::Target> target = make_target(name);
      MCC_CHECK(target.ok(), to_text(target.errors()));
      if (runs_here(*target)) list.push_back(*target);
    }
    return list;
  }();
  return targets;
}

Func parse(const std::string& source) {
  Result<Func> f = tensor::parse_func(source);
  MCC_CHECK(f.ok(), to_text(f.errors()), "\n", source);
  return *f;
}

namespace {

int64_t element_count(const Buffer& buffer) {
  int64_t count = 1;
  for (const tensor::Expr& extent : buffer.shape()) {
    int64_t value = 0;
    MCC_CHECK(tensor::as_int(extent, &value), "shape of ", buffer.name());
    count *= value;
  }
  return count;
}

double random_float(std::mt19937_64& engine) {
  constexpr double kSpecial[] = {0.0, -0.0, 1,    -1,    0.5,   2,    3,   -7,  1e-3,
                                 255, 256,  -128, 65504, 65520, 1e-7, 448, 464, 6e-8};
  switch (engine() % 8) {
    case 0:
      return kSpecial[engine() % std::size(kSpecial)];
    case 1:
      return std::ldexp(1.0 + static_cast<double>(engine() % 4096) / 4096,
                        static_cast<int>(engine() % 300) - 150);
    case 2:
      return engine() % 4 == 0 ? std::nan("") : engine() % 2 == 0 ? HUGE_VAL : -HUGE_VAL;
    default:
      return std::uniform_real_distribution<double>(-10, 10)(engine);
  }
}

void put(std::byte* where, ElementType element, uint64_t bits) {
  std::memcpy(where, &bits, static_cast<size_t>(byte_size(element)));
}

void fill(const Buffer& buffer, std::mt19937_64& engine, int64_t index_limit, std::vector<std::byte>* bytes) {
  ElementType element = buffer.element();
  bool is_index = buffer.name().starts_with("index");
  auto size = static_cast<size_t>(byte_size(element));
  for (size_t at = 0; at < bytes->size(); at += size) {
    uint64_t bits = 0;
    if (is_float(element)) {
      bits = tensor::float_to_bits(element, tensor::round_float(element, random_float(engine)));
    } else if (is_index) {
      bits = engine() % static_cast<uint64_t>(index_limit);
    } else {
      tensor::IntLimits limits = tensor::int_limits(element);
      int64_t small = static_cast<int64_t>(engine() % 13) - 6;
      int64_t value = engine() % 4 == 0   ? (engine() % 2 == 0 ? limits.low : limits.high)
                      : engine() % 2 == 0 ? small
                                          : static_cast<int64_t>(engine());
      bits = static_cast<uint64_t>(tensor::wrap_int(element, value));
    }
    put(bytes->data() + at, element, bits);
  }
}

}  // namespace

Memory random_memory(const Func& f, uint64_t seed, int64_t index_limit) {
  std::mt19937_64 engine(seed);
  Memory memory;
  for (size_t i = 0; i < f.params.size(); ++i) {
    const Buffer& buffer = f.params[i];
    std::vector<std::byte> bytes(static_cast<size_t>(element_count(buffer) * byte_size(buffer.element())));
    if (static_cast<int>(i) < f.num_inputs()) fill(buffer, engine, index_limit, &bytes);
    memory.push_back(std::move(bytes));
  }
  return memory;
}

void run_compiled(const Func& scheduled, const tensor::Target& target, Memory* memory,
                  std::span<const int64_t> dims) {
  Func lowered = tensor::lower(scheduled, target);
  EmitOptions options;
  options.strict = true;
  Result<ObjectCode> object = emit_object(lowered, "kernel", target, options);
  ASSERT_TRUE(object.ok()) << to_text(object.errors());
  Result<KernelMemory> needs = kernel_memory(lowered);
  ASSERT_TRUE(needs.ok()) << to_text(needs.errors());
  Result<std::unique_ptr<Jit>> jit = Jit::create(target);
  ASSERT_TRUE(jit.ok()) << to_text(jit.errors());
  Result<std::shared_ptr<Jit::Kernel>> kernel = (*jit)->load(*object, "kernel");
  ASSERT_TRUE(kernel.ok()) << to_text(kernel.errors());

  std::vector<void*> buffers;
  for (auto& bytes : *memory)
    buffers.push_back(bytes.data());
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<std::vector<Line>> own;
  auto add = [&](int64_t bytes) {
    own.emplace_back(static_cast<size_t>(bytes / 64 + 1));
    buffers.push_back(own.back().data());
  };
  for (const tensor::Expr& bytes : needs->workspaces) {
    add(evaluate_bytes(bytes, scheduled.dims, dims));
  }
  if (needs->scratch_per_thread > 0) add(needs->scratch_per_thread);
  ASSERT_EQ((*kernel)->function(buffers.data(), dims.data(), nullptr), 0);
}

void run_interpreted(const Func& f, Memory* memory, std::span<const int64_t> dims) {
  std::vector<std::byte*> buffers;
  for (auto& bytes : *memory)
    buffers.push_back(bytes.data());
  Status status = tensor::interpret(f, buffers, dims);
  ASSERT_TRUE(status.ok()) << to_text(status.errors()) << "\n" << tensor::to_text(f);
}

std::string difference(const Func& f, const Memory& expected, const Memory& actual, double tolerance) {
  for (size_t i = static_cast<size_t>(f.num_inputs()); i < f.params.size(); ++i) {
    ElementType element = f.params[i].element();
    auto size = static_cast<size_t>(byte_size(element));
    for (size_t at = 0; at < expected[i].size(); at += size) {
      uint64_t e = 0, a = 0;
      std::memcpy(&e, expected[i].data() + at, size);
      std::memcpy(&a, actual[i].data() + at, size);
      if (e == a) continue;
      auto value = [&](uint64_t bits) { return tensor::float_from_bits(element, bits); };
      if (is_float(element)) {
        if (std::isnan(value(e)) && std::isnan(value(a))) continue;
        if (std::fabs(value(e) - value(a)) <= tolerance * (1 + std::fabs(value(e)))) continue;
      }
      auto show = [&](uint64_t bits) {
        return is_float(element) ? text(value(bits))
                                 : text(tensor::wrap_int(element, static_cast<int64_t>(bits)));
      };
      return text(f.params[i].name(), "[", at / size, "]: expected ", show(e), ", got ", show(a));
    }
  }
  return "";
}

void expect_same_meaning(const Func& f, const Func& lowered, const Memory& inputs) {
  EXPECT_EQ(tensor::to_text(parse(tensor::to_text(lowered))), tensor::to_text(lowered));
  Memory expected = inputs, actual = inputs;
  run_interpreted(f, &expected);
  run_interpreted(lowered, &actual);
  EXPECT_EQ(difference(f, expected, actual), "");
}

void expect_same(const Func& f, const Func& scheduled, const tensor::Target& target, const Memory& inputs) {
  Memory expected = inputs, actual = inputs;
  run_interpreted(f, &expected);
  run_compiled(scheduled, target, &actual);
  if (testing::Test::HasFatalFailure()) return;
  EXPECT_EQ(difference(f, expected, actual), "")
      << target.name << "\n"
      << tensor::to_text(scheduled) << tensor::to_text(tensor::lower(scheduled, target));
}

}  // namespace mcc::codegen
