// Hand-made models for the tests: a plan, kernels that are functions of the test program, weights.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codegen/device_writer.h"
#include "codegen/plan_writer.h"
#include "mcc/mcc.hpp"

namespace mcc::test {

using codegen::PlanDesc;
using codegen::PlanInstruction;
using codegen::PlanNode;
using codegen::PlanValue;
using codegen::Quantity;
using codegen::slot_quantity;

using runtime::Model;
using runtime::Session;
using runtime::SessionOptions;
using runtime::Tensor;

// Plan, kernels and weights in memory, and the image over them. Not copied: the image points into it.
struct TestModel {
  PlanDesc plan;
  std::vector<mcc_kernel_fn> kernels;
  std::vector<mcc_host_fn> host_functions;
  std::vector<float> weights;  // copied to aligned memory by image()
  std::optional<codegen::DeviceDesc> device;

  uint32_t add_value(PlanValue value) {
    plan.values.push_back(std::move(value));
    return static_cast<uint32_t>(plan.values.size() - 1);
  }
  uint32_t add_input(const std::string& name, std::vector<Quantity> dims, mcc_dtype dtype = MCC_DTYPE_f32) {
    const auto index = static_cast<uint32_t>(plan.graphs[0].inputs.size());
    plan.graphs[0].inputs.push_back(add_value({name, dtype, std::move(dims), MCC_STORAGE_input, index, 0}));
    return plan.graphs[0].inputs.back();
  }
  uint32_t add_output(const std::string& name, std::vector<Quantity> dims, mcc_dtype dtype = MCC_DTYPE_f32) {
    const auto index = static_cast<uint32_t>(plan.graphs[0].outputs.size());
    plan.graphs[0].outputs.push_back(add_value({name, dtype, std::move(dims), MCC_STORAGE_output, index, 0}));
    return plan.graphs[0].outputs.back();
  }
  // A node of graph `graph` that runs `kernel`; the last of `args` is its output.
  PlanNode& add_kernel(const std::string& name, mcc_kernel_fn kernel, std::vector<uint32_t> args,
                       std::vector<Quantity> dims, size_t graph = 0) {
    kernels.push_back(kernel);
    PlanNode node;
    node.target = static_cast<uint32_t>(kernels.size() - 1);
    node.args = std::move(args);
    node.output_count = 1;
    node.dims = std::move(dims);
    node.name = name;
    node.sources = {name + "_onnx"};
    plan.graphs[graph].nodes.push_back(node);
    return plan.graphs[graph].nodes.back();
  }

  const mcc_model_v1& image() {
    plan.weights_size = weights.size() * sizeof(float);
    plan_bytes_ = codegen::write_plan(plan);
    set_plan_bytes(plan_bytes_);
    if (!weights.empty()) {
      const size_t size = (plan.weights_size + 63) / 64 * 64;
      weights_memory_.reset(static_cast<float*>(std::aligned_alloc(64, size)));
      std::memcpy(weights_memory_.get(), weights.data(), plan.weights_size);
    }
    image_.struct_size = sizeof image_;
    image_.abi_version = MCC_ABI_VERSION;
    image_.kernels = kernels.data();
    image_.kernel_count = kernels.size();
    image_.host_functions = host_functions.data();
    image_.host_function_count = host_functions.size();
    image_.weights = weights_memory_.get();
    image_.weights_size = plan.weights_size;
    if (device) set_device_bytes(codegen::write_device_code(*device));
    return image_;
  }

  const mcc_model_v1& set_device_bytes(const std::vector<std::byte>& bytes) {
    device_bytes_ = bytes;
    aligned_device_.reset(static_cast<std::byte*>(std::aligned_alloc(64, (bytes.size() + 64) / 64 * 64)));
    if (!bytes.empty()) std::memcpy(aligned_device_.get(), bytes.data(), bytes.size());
    image_.device = aligned_device_.get();
    image_.device_size = bytes.size();
    return image_;
  }
  const std::vector<std::byte>& device_bytes() const { return device_bytes_; }

  // Other bytes than those of the plan.
  const mcc_model_v1& set_plan_bytes(const std::vector<std::byte>& bytes) {
    // Of exactly this size, so that a sanitizer sees any step beyond.
    aligned_plan_.reset(new uint64_t[bytes.size() / 8 + 1]);
    auto* memory = reinterpret_cast<std::byte*>(aligned_plan_.get());
    if (!bytes.empty()) std::memcpy(memory, bytes.data(), bytes.size());
    image_.plan = memory;
    image_.plan_size = bytes.size();
    return image_;
  }
  const std::vector<std::byte>& plan_bytes() const { return plan_bytes_; }

  TestModel() { plan.graphs.resize(1); }
  TestModel(const TestModel&) = delete;
  TestModel& operator=(const TestModel&) = delete;

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::vector<std::byte> plan_bytes_, device_bytes_;
  std::unique_ptr<std::byte, Free> aligned_device_;
  std::unique_ptr<uint64_t[]> aligned_plan_;
  std::unique_ptr<float, Free> weights_memory_;
  mcc_model_v1 image_ = {};
};

// Kernels: (x [n], w [n], y [n]; n) y = x * w, and (x [n], y [n]; n) y = x + 1.
inline int32_t multiply(void* const* buffers, const int64_t* dims, mcc_executor*) {
  for (int64_t i = 0; i < dims[0]; ++i) {
    static_cast<float*>(buffers[2])[i] =
        static_cast<float*>(buffers[0])[i] * static_cast<float*>(buffers[1])[i];
  }
  return 0;
}

inline int32_t increment(void* const* buffers, const int64_t* dims, mcc_executor*) {
  for (int64_t i = 0; i < dims[0]; ++i)
    static_cast<float*>(buffers[1])[i] = static_cast<float*>(buffers[0])[i] + 1;
  return 0;
}

// y = x * w + 1 over [2, 3], w = 1 .. 6, with the product in the arena.
inline void make_affine(TestModel& model) {
  const uint32_t x = model.add_input("x", {2, 3});
  const uint32_t y = model.add_output("y", {2, 3});
  const uint32_t w = model.add_value({"w", MCC_DTYPE_f32, {2, 3}, MCC_STORAGE_weights, 0, 0});
  const uint32_t product = model.add_value({"product", MCC_DTYPE_f32, {2, 3}, MCC_STORAGE_arena, 0, 64});
  model.plan.arena_size = 128;
  model.weights = {1, 2, 3, 4, 5, 6};
  model.add_kernel("multiply", multiply, {x, w, product}, {6}).flops = 6;
  model.add_kernel("increment", increment, {product, y}, {6});
}

inline std::vector<float> floats(const Tensor& tensor) {
  const float* data = tensor.as<float>();
  return {data, data + tensor.element_count()};
}

// The message of the error that `function` throws; "" when it does not.
template <class Function>
std::string error_of(const Function& function) {
  try {
    function();
  } catch (const runtime::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace mcc::test
