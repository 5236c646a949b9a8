// Loads a compiled model, runs it on random inputs, prints its latency, and fails when that is above a budget.
//
//     latency MODEL.so [--threads N] [--runs N] [--budget-ms MS] [--dim NAME=SIZE]...
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "mcc/mcc.hpp"

namespace {

struct Options {
  std::string model;
  int threads = 0;
  int runs = 100;
  double budget_ms = 0;  // 0 = none
  std::map<std::string, std::int64_t> dims;
};

[[noreturn]] void usage() {
  std::fprintf(stderr,
               "usage: latency MODEL.so [--threads N] [--runs N] [--budget-ms MS] [--dim NAME=SIZE]...\n");
  std::exit(2);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&]() -> std::string {
      if (++i == argc) usage();
      return argv[i];
    };
    if (argument == "--threads") {
      options.threads = std::atoi(value().c_str());
    } else if (argument == "--runs") {
      options.runs = std::max(1, std::atoi(value().c_str()));
    } else if (argument == "--budget-ms") {
      options.budget_ms = std::atof(value().c_str());
    } else if (argument == "--dim") {
      const std::string pair = value();
      const std::size_t equals = pair.find('=');
      if (equals == std::string::npos) usage();
      options.dims[pair.substr(0, equals)] = std::atoll(pair.c_str() + equals + 1);
    } else if (options.model.empty() && argument[0] != '-') {
      options.model = argument;
    } else {
      usage();
    }
  }
  if (options.model.empty()) usage();
  return options;
}

// A tensor and the memory that it lies in.
struct Input {
  mcc::runtime::Tensor tensor;
  std::vector<unsigned char> memory;
};

template <class T, class Draw>
void fill(Input& input, Draw draw) {
  T* data = reinterpret_cast<T*>(input.memory.data());
  std::generate(data, data + input.tensor.element_count(), draw);
}

// The sizes of an input: fixed ones, those given by --dim, else the smallest that the model takes.
std::vector<std::int64_t> choose_dims(const mcc::runtime::Model& model, const mcc::runtime::TensorInfo& info,
                                      const Options& options) {
  std::vector<std::int64_t> dims = info.dims;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] >= 0) continue;
    const auto given = options.dims.find(info.dim_names[d]);
    std::int64_t min = 1, max = 1;
    mcc_model_dim_range(model.handle(), info.dim_names[d].c_str(), &min, &max);
    dims[d] = given != options.dims.end() ? given->second : std::max<std::int64_t>(min, 1);
  }
  return dims;
}

Input make_input(const mcc::runtime::TensorInfo& info, const std::vector<std::int64_t>& dims,
                 std::mt19937& random) {
  Input input;
  input.tensor.dtype = info.dtype;
  input.tensor.dims = dims;
  // Zeros stand for the types that are not drawn below.
  input.memory.resize(input.tensor.element_count() * mcc_dtype_bytes(info.dtype) + 1);
  std::uniform_real_distribution<double> real(0, 1);
  const auto draw_real = [&] { return real(random); };
  const auto draw_bit = [&] { return random() & 1; };
  switch (info.dtype) {
    case MCC_DTYPE_f64:
      fill<double>(input, draw_real);
      break;
    case MCC_DTYPE_f32:
      fill<float>(input, draw_real);
      break;
    case MCC_DTYPE_f16:
      fill<std::uint16_t>(input, [&] { return 0x3800 + random() % 0x400; });
      break;  // [0.5, 1)
    case MCC_DTYPE_bf16:
      fill<std::uint16_t>(input, [&] { return 0x3f00 + random() % 0x80; });
      break;  // [0.5, 1)
    case MCC_DTYPE_i64:
    case MCC_DTYPE_u64:
      fill<std::uint64_t>(input, draw_bit);
      break;
    case MCC_DTYPE_i32:
    case MCC_DTYPE_u32:
      fill<std::uint32_t>(input, draw_bit);
      break;
    case MCC_DTYPE_i16:
    case MCC_DTYPE_u16:
      fill<std::uint16_t>(input, draw_bit);
      break;
    case MCC_DTYPE_i8:
    case MCC_DTYPE_u8:
    case MCC_DTYPE_bool:
      fill<std::uint8_t>(input, draw_bit);
      break;
    default:
      break;
  }
  input.tensor.data = input.memory.data();
  return input;
}

std::string shape_text(const std::vector<std::int64_t>& dims) {
  std::string text;
  for (std::int64_t dim : dims)
    text += (text.empty() ? "" : "x") + std::to_string(dim);
  return text.empty() ? "scalar" : text;
}

int run(const Options& options) {
  const mcc::runtime::Model model(options.model);
  mcc::runtime::SessionOptions session_options;
  session_options.threads = options.threads;
  mcc::runtime::Session session(model, session_options);

  std::mt19937 random(1);
  std::vector<Input> inputs;
  for (std::size_t i = 0; i < model.input_count(); ++i) {
    const mcc::runtime::TensorInfo info = model.input(i);
    inputs.push_back(make_input(info, choose_dims(model, info, options), random));
    session.set_input(i, inputs.back().tensor);
    std::printf("input  %-20s %s %s\n", info.name.c_str(), mcc_dtype_name(info.dtype),
                shape_text(inputs.back().tensor.dims).c_str());
  }

  for (int i = 0; i < std::max(1, options.runs / 10); ++i)
    session.run();  // warm up
  std::vector<double> times;
  for (int i = 0; i < options.runs; ++i) {
    const auto start = std::chrono::steady_clock::now();
    session.run();
    times.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());

  for (std::size_t i = 0; i < model.output_count(); ++i) {
    const mcc::runtime::Tensor output = session.output(i);
    std::printf("output %-20s %s %s\n", model.output(i).name.c_str(), mcc_dtype_name(output.dtype),
                shape_text(output.dims).c_str());
  }
  const double median = times[times.size() / 2];
  std::printf("latency of %d runs on %d threads: min %.4f ms, median %.4f ms\n", options.runs,
              session.threads(), times.front(), median);
  if (options.budget_ms > 0 && median > options.budget_ms) {
    std::printf("over the budget of %.4f ms\n", options.budget_ms);
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const mcc::runtime::Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 3;
  }
}
