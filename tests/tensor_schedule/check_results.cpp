#include "check_results.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "random_trace.h"
#include "support/text.h"
#include "tensor/interpret.h"
#include "tensor/passes/lower.h"
#include "tensor/simplify.h"
#include "tensor/text.h"
#include "tensor/verify.h"
#include "tensor/visit.h"

namespace mcc::tensor::test {
namespace {

int64_t elements(const Buffer& buffer, const Func& f, const std::vector<int64_t>& dims) {
  VarMap values;
  for (size_t i = 0; i < dims.size(); ++i)
    values[f.dims[i].get()] = dims[i];
  int64_t count = 1;
  for (const Expr& e : buffer.shape()) {
    int64_t extent = 0;
    EXPECT_TRUE(as_int(simplify(substitute(e, values)), &extent));
    count *= extent;
  }
  return count;
}

template <class T>
void fill(Bytes& bytes, Random& random, double scale, int64_t low, int64_t high) {
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T value = static_cast<T>(scale * static_cast<double>(low + random.below(high - low + 1)));
    std::memcpy(&bytes[i], &value, sizeof(T));
  }
}

// Inputs are random, outputs a pattern that no result has.
std::vector<Bytes> make_buffers(const Workload& w) {
  Random random(7);
  std::vector<Bytes> buffers;
  for (size_t i = 0; i < w.func.params.size(); ++i) {
    const Buffer& b = w.func.params[i];
    Bytes bytes(static_cast<size_t>(elements(b, w.func, w.dims) * byte_size(b.element())), std::byte{0xAB});
    if (i < static_cast<size_t>(w.func.num_inputs())) {
      switch (b.element()) {
        case ElementType::f32:
          fill<float>(bytes, random, 0.125, -16, 16);
          break;
        case ElementType::i32:
          fill<int32_t>(bytes, random, 1, -9, 9);
          break;
        case ElementType::i8:
          fill<int8_t>(bytes, random, 1, -128, 127);
          break;
        case ElementType::u8:
          fill<uint8_t>(bytes, random, 1, 0, 255);
          break;
        default:
          ADD_FAILURE() << "no inputs of this type";
      }
    }
    buffers.push_back(std::move(bytes));
  }
  return buffers;
}

}  // namespace

std::string run(const Workload& w, const Func& f, std::vector<Bytes>* buffers, const std::vector<WeightOrder>& orders) {
  *buffers = make_buffers(w);
  for (const WeightOrder& order : orders) {
    Bytes& given = (*buffers)[order.parameter];
    if (order.bytes() != static_cast<int64_t>(given.size())) return text("an order of ", order.bytes(), " bytes");
    given = reordered(order, given);
  }
  std::vector<std::byte*> memory;
  for (Bytes& b : *buffers)
    memory.push_back(b.data());
  Status status = interpret(f, memory, w.dims);
  return status.ok() ? "" : to_text(status.errors());
}

namespace {

std::string compare(const Workload& w, const std::vector<Bytes>& got, const std::vector<Bytes>& expected) {
  for (size_t i = static_cast<size_t>(w.func.num_inputs()); i < got.size(); ++i) {
    if (w.exact || w.func.params[i].element() != ElementType::f32) {
      if (got[i] != expected[i]) return text("output ", w.func.params[i].name(), " differs");
      continue;
    }
    for (size_t k = 0; k + sizeof(float) <= got[i].size(); k += sizeof(float)) {
      float a = 0, b = 0;
      std::memcpy(&a, &got[i][k], sizeof(float));
      std::memcpy(&b, &expected[i][k], sizeof(float));
      if (!(std::fabs(a - b) <= 1e-4f * (1 + std::fabs(b)))) {
        return text("output ", w.func.params[i].name(), "[", k / sizeof(float), "] is ", a, ", expected ", b);
      }
    }
  }
  return "";
}

std::string check_lowered(const Workload& w, const Func& scheduled, const std::vector<Bytes>& expected,
                          const std::vector<WeightOrder>& orders) {
  Func lowered = lower(scheduled, Target());
  std::vector<std::string> violations = verify(lowered, Stage::lowered);
  if (!violations.empty()) return "verifier, lowered: " + join(violations, "\n");
  std::vector<Bytes> got;
  if (std::string error = run(w, lowered, &got, orders); !error.empty()) return "interpreter, lowered: " + error;
  std::string difference = compare(w, got, expected);
  return difference.empty() ? "" : "lowered: " + difference;
}

}  // namespace

std::string check_results(const Workload& w, const Func& scheduled, const std::vector<Bytes>& expected,
                          bool lowers, const std::vector<WeightOrder>& orders) {
  std::vector<std::string> violations = verify(scheduled, Stage::blocks);
  if (!violations.empty()) return "verifier: " + join(violations, "\n");
  std::vector<Bytes> got;
  if (std::string error = run(w, scheduled, &got, orders); !error.empty()) return "interpreter: " + error;
  std::string difference = compare(w, got, expected);
  return difference.empty() && lowers ? check_lowered(w, scheduled, expected, orders) : difference;
}

}  // namespace mcc::tensor::test
