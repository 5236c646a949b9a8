#include "tools/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <optional>

#include "tensor/instructions.h"

namespace mcc::tools {

namespace {

Diagnostic usage(std::string message) { return {ErrorKind::usage, "", std::move(message), ""}; }

std::optional<int64_t> parse_integer(std::string_view s) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (s.empty() || error != std::errc() || end != s.data() + s.size()) return std::nullopt;
  return value;
}

// A size, or "1..64": the sizes from 1 to 64. Of more than this no memory plan could be made.
constexpr int64_t kLargestSize = int64_t{1} << 31;
// Without a bound a dimension is taken to be about this large.
constexpr int64_t kUsualSize = 128;
std::optional<graph::DimRange> parse_sizes(std::string_view s) {
  if (s.ends_with("..")) {
    const std::optional<int64_t> min = parse_integer(s.substr(0, s.size() - 2));
    if (!min || *min < 0 || *min >= tensor::kLargestSize) return std::nullopt;
    return graph::DimRange{*min, tensor::kLargestSize, std::max(*min, kUsualSize)};
  }
  const size_t dots = s.find("..");
  const std::optional<int64_t> min = parse_integer(s.substr(0, dots));
  const std::optional<int64_t> max = dots == std::string_view::npos ? min : parse_integer(s.substr(dots + 2));
  if (!min || !max || *min < 0 || *max < *min) return std::nullopt;
  if (*min != *max && *max > kLargestSize) return std::nullopt;
  return graph::DimRange{*min, *max};
}

struct GivenShape {
  std::vector<int64_t> sizes;  // kOpenDim where there is a range
  std::map<size_t, graph::DimRange> ranges;
};

std::optional<GivenShape> parse_shape(std::string_view s) {
  GivenShape shape;
  while (true) {
    const size_t end = std::min(s.find('x'), s.size());
    const std::optional<graph::DimRange> dim = parse_sizes(s.substr(0, end));
    if (!dim) return std::nullopt;
    const bool is_open = dim->min != dim->max;
    if (is_open) shape.ranges[shape.sizes.size()] = *dim;
    shape.sizes.push_back(is_open ? frontend::kOpenDim : dim->min);
    if (end == s.size()) return shape;
    s.remove_prefix(end + 1);
  }
}

std::optional<std::vector<double>> parse_numbers(std::string_view s) {
  std::vector<double> numbers;
  while (true) {
    const size_t end = std::min(s.find(','), s.size());
    double number = 0;
    const auto [last, error] = std::from_chars(s.data(), s.data() + end, number);
    if (error != std::errc() || last != s.data() + end) return std::nullopt;
    numbers.push_back(number);
    if (end == s.size()) return numbers;
    s.remove_prefix(end + 1);
  }
}

}  // namespace

void add_input_options(CLI::App& command, InputArguments& arguments, const std::string& help) {
  const auto add = [&](const char* name, std::vector<std::string>& values, const char* what) {
    command.add_option(name, values, help.empty() ? what : help)->allow_extra_args(false);
  };
  add("--input-shape", arguments.shapes, "INPUT=1x3x224x224; once for each input");
  add("--dim", arguments.dims,
      "NAME=8: the value of a named dimension; NAME=1..64 or NAME=1..: it stays open");
  add("--sequence-length", arguments.lengths,
      "INPUT=3: how many tensors an input has that is a sequence; the library has INPUT[0], INPUT[1], ...");
  add("--without", arguments.left_out, "INPUT: an optional input that is left out");
  add("--input-value", arguments.values,
      "INPUT=0.25, INPUT=1,2,3: an input that is always the same, as a constant: the library has no such "
      "input");
}

std::string input_options_text(const InputArguments& arguments) {
  std::string out;
  const auto add = [&](const char* name, const std::vector<std::string>& values) {
    for (const std::string& value : values)
      out += text(" ", name, " ", value);
  };
  add("--input-shape", arguments.shapes);
  add("--dim", arguments.dims);
  add("--sequence-length", arguments.lengths);
  add("--without", arguments.left_out);
  add("--input-value", arguments.values);
  return out;
}

Status parse_import_options(const InputArguments& arguments, frontend::ImportOptions& options) {
  Diagnostics errors;
  for (const std::string& spec : arguments.shapes) {
    // The shape has neither of the two characters, so names may.
    const size_t split = spec.find_last_of("=:");
    std::optional<GivenShape> shape;
    if (split != std::string::npos) shape = parse_shape(std::string_view(spec).substr(split + 1));
    if (!shape || split == 0) {
      errors.push_back(usage(text("--input-shape ", spec, ": expected INPUT=1x3x224x224")));
      continue;
    }
    options.input_shapes[spec.substr(0, split)] = shape->sizes;
    if (!shape->ranges.empty()) options.input_ranges[spec.substr(0, split)] = shape->ranges;
  }
  for (const std::string& spec : arguments.dims) {
    const size_t split = spec.rfind('=');
    const std::string value = split == std::string::npos ? "" : spec.substr(split + 1);
    const std::optional<graph::DimRange> sizes = parse_sizes(value);
    if (!sizes || split == 0) {
      errors.push_back(usage(text("--dim ", spec, ": expected NAME=8, or NAME=1..64 for all sizes from 1 to 64, NAME=1.. for all")));
    } else if (const std::string name = spec.substr(0, split); sizes->min == sizes->max) {
      options.dims[name] = sizes->min;
    } else {
      options.dim_ranges[name] = *sizes;
    }
  }
  for (const auto& [name, range] : options.dim_ranges) {
    if (options.dims.count(name) != 0)
      errors.push_back(usage(text("--dim ", name, " is given twice, as ", options.dims[name], " and as ", range.min, "..", range.max)));
  }
  for (const std::string& spec : arguments.lengths) {
    const size_t split = spec.rfind('=');
    const std::optional<int64_t> length =
        split == std::string::npos ? std::nullopt : parse_integer(std::string_view(spec).substr(split + 1));
    if (!length || split == 0)
      errors.push_back(
          usage(text("--sequence-length ", spec, ": expected INPUT=3, the number of its tensors")));
    else
      options.sequence_lengths[spec.substr(0, split)] = *length;
  }
  options.left_out.insert(arguments.left_out.begin(), arguments.left_out.end());
  for (const std::string& spec : arguments.values) {
    const size_t split = spec.rfind('=');
    std::optional<std::vector<double>> numbers;
    if (split != std::string::npos) numbers = parse_numbers(std::string_view(spec).substr(split + 1));
    if (!numbers || split == 0)
      errors.push_back(
          usage(text("--input-value ", spec, ": expected INPUT=0.25, or INPUT=1,2,3 of several elements")));
    else
      options.numbers[spec.substr(0, split)] = *numbers;
  }
  if (!errors.empty()) return errors;
  return done();
}

Result<ElementType> parse_precision(const std::string& name, const std::vector<tensor::Target>& targets,
                                    int opt_level) {
  constexpr std::pair<std::string_view, ElementType> kNames[] = {{"fp32", ElementType::f32},
                                                                 {"tf32", ElementType::tf32},
                                                                 {"fp16", ElementType::f16},
                                                                 {"bf16", ElementType::bf16}};
  const auto* found =
      std::find_if(std::begin(kNames), std::end(kNames), [&](const auto& row) { return row.first == name; });
  auto refuse = [&](std::string what, std::string hint) {
    return Diagnostic{ErrorKind::usage, "", text("--precision ", name, ": ", what), std::move(hint)};
  };
  if (found == std::end(kNames)) return refuse("expected fp32, tf32, fp16 or bf16", "");
  if (found->second == ElementType::f32) return ElementType::f32;
  for (const tensor::Target& target : targets) {
    if (target.kind != tensor::TargetKind::cuda) {
      if (tensor::dot_instruction(target, found->second)) continue;
      return refuse(
          text(target.name, " computes in fp32: a narrower type would lose digits and gain nothing"),
          "bf16 is for CPUs with AVX512-BF16 (cpu:znver4, cpu:sapphirerapids and later ones), all types are for --target cuda:sm_80 "
          "and later ones");
    }
    if (!tensor::multiplies_matrices(target.gpu, found->second)) {
      return refuse(
          text(target.gpu.arch, " has no matrix instructions of that type that are used here, expected sm_",
               tensor::first_matrix_sm(found->second), " or later"),
          "leave --precision out, or name other architectures in --target");
    }
  }
  if (opt_level == 0) return refuse("-O0 leaves the graph as it is", "use -O1 or higher");
  return found->second;
}

Result<std::map<std::string, std::string>> parse_emit(const std::vector<std::string>& specs) {
  static constexpr std::string_view kKinds[] = {"graph", "tensor", "llvm", "asm", "ptx"};
  std::map<std::string, std::string> result;
  for (const std::string& spec : specs) {
    const size_t split = spec.find('=');
    if (split == std::string::npos || split + 1 == spec.size())
      return usage(text("--emit ", spec, ": expected KIND,...=FOLDER"));
    std::string_view kinds = std::string_view(spec).substr(0, split);
    while (true) {
      const size_t end = std::min(kinds.find(','), kinds.size());
      const std::string kind(kinds.substr(0, end));
      if (std::find(std::begin(kKinds), std::end(kKinds), kind) == std::end(kKinds))
        return usage(text("--emit ", spec, ": there is no kind '", kind, "', only ", join(kKinds, ", ")));
      result[kind] = spec.substr(split + 1);
      if (end == kinds.size()) break;
      kinds.remove_prefix(end + 1);
    }
  }
  return result;
}

Result<NamedFile> parse_named_file(const std::string& spec, const std::vector<std::string>& names,
                                   const std::string& option) {
  for (size_t split = spec.find('='); split != std::string::npos; split = spec.find('=', split + 1)) {
    auto found = std::find(names.begin(), names.end(), spec.substr(0, split));
    if (found != names.end())
      return NamedFile{static_cast<size_t>(found - names.begin()), spec.substr(split + 1)};
  }
  if (spec.find('=') == std::string::npos) return usage(text(option, " ", spec, ": expected NAME=FILE.npy"));
  return usage(text(option, " ", spec, ": the model has no such name; it has ", join(names, ", ")));
}

}  // namespace mcc::tools
