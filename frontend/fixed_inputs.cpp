// Inputs that are always the same, given as numbers: constants of the type that the model says.
#include <algorithm>
#include <cmath>

#include "frontend/model_prepare.h"
#include "frontend/onnx_tensor.h"

namespace mcc::frontend {

namespace {

constexpr int64_t kMostNumbers = 1 << 20;
constexpr double kLargestWhole = 9007199254740992;  // 2^53: whole numbers up to it are exact

class Fixing {
 public:
  Fixing(const std::string& name, const std::vector<double>& numbers, const ImportOptions& options)
      : name_(name), numbers_(numbers), options_(options) {}

  Result<graph::Constant> constant(const onnx::TypeProto& type) const {
    const onnx::TypeProto& held = held_type(type);
    if (!held.has_tensor_type()) return wrong("the input is no tensor");
    const std::optional<ElementType> element = element_of_onnx(held.tensor_type().elem_type());
    if (!element || *element == ElementType::string)
      return wrong(text("an input of type ", onnx_type_name(held.tensor_type().elem_type()),
                        " cannot be given by numbers"));
    Result<std::vector<int64_t>> shape = shape_of(held.tensor_type());
    if (!shape.ok()) return shape.errors();
    return filled(*element, *shape);
  }

 private:
  Diagnostic wrong(const std::string& what, std::string hint = "") const {
    return {ErrorKind::usage, "", text("--input-value ", name_, ": ", what), std::move(hint)};
  }

  // Of a dimension that has no size in the model: the one that is given for it.
  std::optional<int64_t> given_size(const onnx::TensorShapeProto::Dimension& dim, size_t axis) const {
    if (const auto shape = options_.input_shapes.find(name_);
        shape != options_.input_shapes.end() && axis < shape->second.size())
      return shape->second[axis];
    if (const auto size = options_.dims.find(dim.dim_param()); has_name(dim) && size != options_.dims.end())
      return size->second;
    return std::nullopt;
  }

  // One dimension may be as large as there are numbers for it.
  Result<std::vector<int64_t>> shape_of(const onnx::TypeProto::Tensor& type) const {
    const auto given = options_.input_shapes.find(name_);
    if (!type.has_shape()) {
      if (given != options_.input_shapes.end()) return given->second;
      return wrong("the model does not say its shape",
                   text("give it, for example --input-shape ", name_, "=1"));
    }
    std::vector<int64_t> shape;
    std::optional<size_t> open;
    int64_t count = 1;
    for (const auto& dim : type.shape().dim()) {
      const std::optional<int64_t> size =
          dim.has_dim_value() && dim.dim_value() >= 0 ? dim.dim_value() : given_size(dim, shape.size());
      if (!size && open)
        return wrong("several of its dimensions have no size: give them by --dim or --input-shape");
      if (!size) open = shape.size();
      if (size.value_or(1) < 0 || __builtin_mul_overflow(count, size.value_or(1), &count) ||
          count > kMostNumbers)
        return wrong(text("its shape has more than ", kMostNumbers, " elements, or a range of sizes"));
      shape.push_back(size.value_or(1));
    }
    const auto numbers = static_cast<int64_t>(numbers_.size());
    if (open && count > 0 && numbers % count == 0) shape[*open] = numbers / count;
    return shape;
  }

  Result<graph::Constant> filled(ElementType element, const std::vector<int64_t>& shape) const {
    int64_t count = 1;
    for (const int64_t size : shape)
      count *= size;
    if (numbers_.size() != 1 && static_cast<int64_t>(numbers_.size()) != count)
      return wrong(text("expected ", count, count == 1 ? " number" : " numbers, or one for all elements",
                        ", got ", numbers_.size()));
    std::vector<std::byte> bytes;
    for (int64_t i = 0; i < count; ++i) {
      const double number = numbers_[numbers_.size() == 1 ? 0 : static_cast<size_t>(i)];
      const bool is_whole = std::abs(number) <= kLargestWhole && std::trunc(number) == number;
      const bool is_of_type =
          is_float(element) || (is_whole && graph::Constant::scalar(element, number).number_at(0) == number);
      if (!is_of_type) return wrong(text(number, " is no value of the type ", to_text(element)));
      const graph::Constant one = graph::Constant::scalar(element, number);
      bytes.insert(bytes.end(), one.bytes().begin(), one.bytes().end());
    }
    return graph::Constant::copy_of(element, shape, bytes);
  }

  const std::string& name_;
  const std::vector<double>& numbers_;
  const ImportOptions& options_;
};

}  // namespace

ImportOptions fix_inputs(const onnx::GraphProto& graph, ImportOptions options, Diagnostics& problems) {
  for (const auto& [name, numbers] : options.numbers) {
    const auto& inputs = graph.input();
    const auto input = std::find_if(inputs.begin(), inputs.end(),
                                    [&](const auto& candidate) { return candidate.name() == name; });
    if (input == inputs.end()) continue;  // bind_shapes() says so
    Result<graph::Constant> constant = Fixing(name, numbers, options).constant(input->type());
    if (constant.ok())
      options.constants[name] = std::move(*constant);
    else
      problems.insert(problems.end(), constant.errors().begin(), constant.errors().end());
  }
  return options;
}

}  // namespace mcc::frontend
