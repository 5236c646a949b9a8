#include "tensor_passes/equivalence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tensor/interpret.h"
#include "tensor/numeric.h"
#include "tensor/passes/lower.h"
#include "tensor/simplify.h"
#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::tensor {
namespace {

using Memory = std::vector<std::vector<std::byte>>;

int64_t size_of(const Buffer& buffer, const Func& f, const std::vector<int64_t>& dims) {
  VarMap values;
  for (size_t i = 0; i < dims.size(); ++i)
    values.emplace(f.dims[i].get(), Expr(dims[i]));
  int64_t count = 1;
  for (const Expr& extent : buffer.shape()) {
    int64_t value = 0;
    EXPECT_TRUE(as_int(simplify(substitute(extent, values)), &value)) << to_text(extent);
    count *= value;
  }
  return count;
}

template <class T, class Random>
void fill(std::vector<std::byte>& bytes, Random&& random) {
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T value = random();
    std::memcpy(bytes.data() + i, &value, sizeof(T));
  }
}

Memory allocate(const Func& f, const std::vector<int64_t>& dims, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<double> real(-2, 2);
  Memory memory;
  for (size_t i = 0; i < f.params.size(); ++i) {
    const Buffer& b = f.params[i];
    std::vector<std::byte> bytes(static_cast<size_t>(size_of(b, f, dims) * byte_size(b.element())));
    bool is_input = static_cast<int>(i) < f.num_inputs();
    if (is_input && b.element() == ElementType::f32) {
      fill<float>(bytes, [&] { return static_cast<float>(real(engine)); });
    } else if (is_input && bit_width(b.element()) == 16 && is_float(b.element())) {
      fill<uint16_t>(bytes, [&] { return static_cast<uint16_t>(float_to_bits(b.element(), real(engine))); });
    } else if (is_input && b.element() == ElementType::tf32) {
      fill<uint32_t>(bytes, [&] { return static_cast<uint32_t>(float_to_bits(b.element(), real(engine))); });
    } else if (is_input && b.element() == ElementType::f64) {
      fill<double>(bytes, [&] { return real(engine); });
    } else if (is_input && b.element() == ElementType::i64) {
      fill<int64_t>(bytes, [&] { return static_cast<int64_t>(engine() % 4); });
    } else if (is_input && b.element() == ElementType::i32) {
      fill<int32_t>(bytes, [&] { return static_cast<int32_t>(engine() % 200) - 100; });
    } else if (is_input) {
      fill<uint8_t>(bytes, [&] { return static_cast<uint8_t>(engine() % 2); });
    }
    memory.push_back(std::move(bytes));
  }
  return memory;
}

bool run(const Func& f, Memory& memory, const std::vector<int64_t>& dims) {
  std::vector<std::byte*> pointers;
  for (auto& bytes : memory)
    pointers.push_back(bytes.data());
  Status status = interpret(f, pointers, dims);
  EXPECT_TRUE(status.ok()) << to_text(status.errors()) << "\n" << to_text(f);
  return status.ok();
}

template <class T>
void compare_floats(const std::vector<std::byte>& expected, const std::vector<std::byte>& actual,
                    const Tolerance& tolerance, const Func& f, const std::string& name) {
  for (size_t i = 0; i + sizeof(T) <= expected.size(); i += sizeof(T)) {
    T x, y;
    std::memcpy(&x, expected.data() + i, sizeof(T));
    std::memcpy(&y, actual.data() + i, sizeof(T));
    if (std::isnan(x) && std::isnan(y)) continue;
    double limit = tolerance.absolute + tolerance.relative * std::fabs(static_cast<double>(x));
    bool is_close = x == y || std::fabs(static_cast<double>(x) - static_cast<double>(y)) <= limit;
    ASSERT_TRUE(is_close) << name << "[" << i / sizeof(T) << "]: expected " << x << ", got " << y << "\n"
                          << to_text(f);
  }
}

}  // namespace

Func parse(const std::string& source) {
  Result<Func> f = parse_func(source);
  if (!f.ok()) ADD_FAILURE() << to_text(f.errors()) << "\n" << source;
  return f.ok() ? *f : Func{};
}

void expect_equivalent(const Func& expected, const Func& actual, const std::vector<int64_t>& dims,
                       Tolerance tolerance) {
  Memory a = allocate(expected, dims, 1), b = a;
  if (!run(expected, a, dims) || !run(actual, b, dims)) return;
  for (size_t i = 0; i < a.size(); ++i) {
    const Buffer& buffer = expected.params[i];
    if (buffer.element() == ElementType::f32) {
      compare_floats<float>(a[i], b[i], tolerance, actual, buffer.name());
    } else if (buffer.element() == ElementType::f64) {
      compare_floats<double>(a[i], b[i], tolerance, actual, buffer.name());
    } else {
      EXPECT_EQ(a[i], b[i]) << buffer.name() << "\n" << to_text(actual);
    }
  }
}

Func expect_lowers(const Func& f, const std::vector<int64_t>& dims, Tolerance tolerance, const Target& target) {
  bool failed = false;
  return lower(f, target, [&](const std::string& pass, const Func& g) {
    if (failed) return;
    SCOPED_TRACE("after " + pass);
    expect_equivalent(f, g, dims, tolerance);
    failed = ::testing::Test::HasFailure();
  });
}

}  // namespace mcc::tensor
