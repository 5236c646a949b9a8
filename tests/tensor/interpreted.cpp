#include "tensor/interpreted.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tensor/numeric.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

std::vector<std::byte> to_bytes(ElementType element, const Tensor& values) {
  const auto size = static_cast<size_t>(byte_size(element));
  std::vector<std::byte> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t bits = is_float(element) ? float_to_bits(element, values[i])
                                            : static_cast<uint64_t>(static_cast<int64_t>(values[i]));
    std::memcpy(bytes.data() + i * size, &bits, size);
  }
  return bytes;
}

Tensor from_bytes(ElementType element, const std::vector<std::byte>& bytes) {
  const auto size = static_cast<size_t>(byte_size(element));
  Tensor values;
  for (size_t at = 0; at < bytes.size(); at += size) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + at, size);
    const int64_t whole =
        wrap_int(is_float(element) ? ElementType::u64 : element, static_cast<int64_t>(bits));
    if (is_float(element)) {
      values.push_back(float_from_bits(element, bits));
    } else {
      values.push_back(element == ElementType::u64 ? static_cast<double>(bits) : static_cast<double>(whole));
    }
  }
  return values;
}

}  // namespace

Func parse(const std::string& source) {
  Result<Func> f = parse_func(source);
  EXPECT_TRUE(f.ok()) << to_text(f.errors()) << "\n" << source;
  return *f;
}

int64_t count(const Buffer& b, const Func& f, const std::vector<int64_t>& dims) {
  int64_t product = 1;
  for (const Expr& extent : b.shape()) {
    int64_t value = 0;
    for (size_t i = 0; i < dims.size(); ++i)
      if (extent.same_as(f.dims[i])) value = dims[i];
    as_int(extent, &value);
    product *= value;
  }
  return product;
}

Outcome run(const Func& f, const std::vector<Tensor>& inputs, const std::vector<int64_t>& dims,
            const InterpretOptions& options) {
  std::vector<std::vector<std::byte>> memory;
  for (size_t i = 0; i < inputs.size(); ++i)
    memory.push_back(to_bytes(f.params[i].element(), inputs[i]));
  for (size_t i = inputs.size(); i < f.params.size(); ++i) {
    const Buffer& b = f.params[i];
    memory.emplace_back(static_cast<size_t>(count(b, f, dims) * byte_size(b.element())));
  }
  std::vector<std::byte*> buffers;
  for (auto& bytes : memory)
    buffers.push_back(bytes.data());
  Status status = interpret(f, buffers, dims, options);
  Outcome out;
  if (!status.ok()) out.error = to_text(status.errors());
  for (size_t i = inputs.size(); i < f.params.size(); ++i)
    out.outputs.push_back(from_bytes(f.params[i].element(), memory[i]));
  return out;
}

Outcome run(const std::string& source, const std::vector<Tensor>& inputs,
            const std::vector<int64_t>& dims, const InterpretOptions& options) {
  return run(parse(source), inputs, dims, options);
}

Tensor random_values(size_t count, int seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  Tensor out(count);
  for (double& x : out)
    x = static_cast<double>(static_cast<float>(random() % 2001) / 1000.0f - 1.0f);
  return out;
}

}  // namespace mcc::tensor
