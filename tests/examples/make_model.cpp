// Writes a model library by hand: y = relu(x * w) + 1 over [1, 1000] floats, w = 2. usage: example_model OUT.so
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <span>

#include "codegen/model_library.h"

namespace {

using namespace mcc;
using namespace mcc::codegen;

constexpr int64_t size = 1000;

PlanDesc make_plan() {
  PlanDesc plan;
  plan.metadata = {{"model.name", "example"}};
  plan.arena_size = size * 4;
  plan.values = {{"x", MCC_DTYPE_f32, {1, size}, MCC_STORAGE_input, 0, 0},
                 {"w", MCC_DTYPE_f32, {1, size}, MCC_STORAGE_weights, 0, 0},
                 {"t", MCC_DTYPE_f32, {1, size}, MCC_STORAGE_arena, 0, 0},
                 {"y", MCC_DTYPE_f32, {1, size}, MCC_STORAGE_output, 0, 0}};
  PlanNode first;
  first.args = {0, 1, 2};
  first.output_count = 1;
  first.dims = {size};
  first.name = "scale_relu";
  PlanNode second = first;
  second.target = 1;
  second.args = {2, 3};
  second.name = "add_one";
  plan.graphs = {{"main", {first, second}, {}, {0}, {3}}};
  return plan;
}

Status link_with_system(const std::vector<std::string>& objects, const std::string& output,
                        const std::string&) {
  std::string command = MCC_TEST_LINKER " -shared -nostdlib -Wl,-z,defs -o '" + output + "'";
  for (const std::string& object : objects)
    command += " '" + object + "'";
  if (std::system(command.c_str()) == 0) return done();
  return Diagnostic{ErrorKind::environment, output, "cannot link", ""};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::ifstream file(MCC_TEST_KERNELS, std::ios::binary);
  const std::vector<char> kernels = {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::vector<float> weights(size, 2);
  ModelLibrary library;
  library.plan = make_plan();
  library.kernels = {"scale_relu", "add_one"};
  library.objects = {kernels};
  library.weights = {{0, std::as_bytes(std::span(weights))}};
  library.weights_size = weights.size() * sizeof(float);
  const Status status = write_model_library(library, argv[1], link_with_system);
  if (!status.ok()) std::fprintf(stderr, "%s\n", to_text(status.errors()).c_str());
  return status.ok() ? 0 : 1;
}
