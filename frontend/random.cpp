// Random numbers. A node of the graph says which ones there are in this run, or iteration (mcc.Draw), another one makes them (mcc.Random,
// graph/ops/random.h); what depends on them is made of ONNX's operators.
#include <bit>
#include <cmath>
#include <cstdint>

#include "frontend/graph_builder.h"
#include "graph/ops/random.h"
#include "onnx/defs/attr_proto_util.h"

namespace mcc::frontend {

using graph::Constant;

namespace {

float number_attribute(const onnx::NodeProto& node, const std::string& name, float otherwise) {
  const onnx::AttributeProto* a = find_attribute(node, name);
  return a ? a->f() : otherwise;
}

// Of a float its bits: every seed is another key.
std::optional<int64_t> seed_of(const onnx::NodeProto& node) {
  const onnx::AttributeProto* a = find_attribute(node, "seed");
  if (!a) return std::nullopt;
  return a->type() == onnx::AttributeProto::INT ? a->i() : int64_t{std::bit_cast<uint32_t>(a->f())};
}

bool draws_numbers(const std::string& type) {
  return type == "RandomNormal" || type == "RandomUniform" || type == "RandomNormalLike" ||
         type == "RandomUniformLike" || type == "Bernoulli" || type == "Multinomial";
}

ElementType wide_element(ElementType element) {
  return element == ElementType::f64 ? ElementType::f64 : ElementType::f32;
}

}  // namespace

bool Builder::add_random_node(const onnx::NodeProto& node, Scope& scope, const Origin& origin) {
  const std::string& type = node.op_type();
  std::vector<Entry> inputs;
  for (const std::string& name : node.input())
    inputs.push_back(scope.find(name));
  const Constant* mode = type == "Dropout" && inputs.size() > 2 ? known(inputs[2]) : nullptr;
  const bool is_inference = mode && mode->count() == 1 && mode->int_at(0) == 0;
  const bool is_training =
      type == "Dropout" && inputs.size() > 2 && inputs[2].kind != Entry::absent && !is_inference;
  if (!is_training && !draws_numbers(type)) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].kind == Entry::value || inputs[i].kind == Entry::absent) continue;
    if (inputs[i].kind != Entry::unknown)
      report_operand(node.input(static_cast<int>(i)), inputs[i], where_of(node, origin));
    return give_up(node, scope), true;
  }
  const bool has_operand = !type.starts_with("Random") || type.ends_with("Like");
  if (has_operand && (inputs.empty() || inputs[0].kind != Entry::value)) {
    report(ErrorKind::bad_input, where_of(node, origin), "input 0 is missing");
    return give_up(node, scope), true;
  }
  if (std::any_of(inputs.begin(), inputs.end(), [&](const Entry& e) { return tainted_.contains(e.id); }))
    return give_up(node, scope), true;
  const size_t first = graph_.values.size();
  const Origin part = part_of(node, origin);
  std::vector<Entry> results;
  if (type == "Bernoulli") {
    results = {bernoulli(node, inputs[0], part)};
  } else if (type == "Multinomial") {
    results = {multinomial(node, inputs[0], part)};
  } else if (is_training) {
    results = dropout_in_training(node, inputs, part);
  } else {
    results = {random_of_shape(node, has_operand ? inputs[0] : Entry{Entry::absent}, part)};
  }
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty()) continue;
    const Entry result = static_cast<size_t>(i) < results.size() ? results[static_cast<size_t>(i)] : Entry{};
    if (is_reported(result)) return give_up(node, scope), true;
    take_over(node.output(i), result, first, scope);
  }
  return true;
}

Entry Builder::random_tensor(const Distribution& distribution, const Entry& shape,
                             std::optional<int64_t> seed, const Origin& origin) {
  if (streams_ == graph::kMostStreams) {
    report(ErrorKind::unsupported, origin.where,
           text("is one of more than ", streams_, " nodes that draw random numbers"));
    return {};
  }
  onnx::NodeProto draw, random;
  *draw.add_attribute() = onnx::MakeAttribute("stream", streams_++);
  if (seed) *draw.add_attribute() = onnx::MakeAttribute("seed", *seed);
  const Entry state = make_own("Draw", iterations_, draw, {true}, origin)[0];
  if (state.kind != Entry::value || shape.kind != Entry::value) return {};
  const ElementType element = distribution.element, wide = wide_element(element);
  *random.add_attribute() = onnx::MakeAttribute("dtype", static_cast<int64_t>(onnx_of_element(wide)));
  if (element != wide)
    *random.add_attribute() = onnx::MakeAttribute("rounds_to", std::string(to_text(element)));
  for (const auto& [name, value] : distribution.parameters)
    *random.add_attribute() = onnx::MakeAttribute(name, value);
  const Entry numbers = make_own("Random", {state, shape}, random, {true}, origin)[0];
  if (numbers.kind != Entry::value || element == wide) return numbers;
  return make("Cast", {numbers}, {"to", onnx_of_element(element)}, origin);
}

// The type that the attribute names.
std::optional<ElementType> Builder::drawn_element(const onnx::NodeProto& node,
                                                  std::optional<ElementType> otherwise,
                                                  const Origin& origin) {
  const onnx::AttributeProto* dtype = find_attribute(node, "dtype");
  const std::optional<ElementType> element =
      dtype ? element_of_onnx(static_cast<int>(dtype->i())) : otherwise;
  if (!element)
    report(
        ErrorKind::unsupported, origin.where,
        text("element type ", onnx_type_name(static_cast<int>(dtype ? dtype->i() : 0)), " is not supported"));
  return element;
}

Entry Builder::random_of_shape(const onnx::NodeProto& node, const Entry& like, const Origin& origin) {
  const bool has_operand = like.kind == Entry::value;
  const std::optional<ElementType> element =
      drawn_element(node, has_operand ? graph_.value(like.id).type.element : ElementType::f32, origin);
  if (!element) return {};
  if (bit_width(*element) < 16 || !is_float(*element)) {
    report(ErrorKind::bad_input, origin.where,
           text("expected a result of f16, bf16, f32 or f64, got ", to_text(*element)),
           "the attribute dtype names its type");
    return {};
  }
  Entry shape;
  if (has_operand) {
    shape = make("Shape", {like}, {}, origin);
  } else {
    const onnx::AttributeProto* sizes = find_attribute(node, "shape");
    if (!sizes) {
      report(ErrorKind::bad_input, origin.where, "attribute 'shape' is missing");
      return {};
    }
    shape = make_constant(Constant::ints({sizes->ints().begin(), sizes->ints().end()}),
                          text(origin.name, ".shape"));
  }
  Distribution distribution{{}, *element};
  const bool is_normal = node.op_type().starts_with("RandomNormal");
  if (is_normal)
    distribution.parameters = {{"mean", number_attribute(node, "mean", 0)},
                               {"scale", number_attribute(node, "scale", 1)}};
  else
    distribution.parameters = {{"low", number_attribute(node, "low", 0)},
                               {"high", number_attribute(node, "high", 1)}};
  for (const auto& [name, value] : distribution.parameters) {
    if (std::isfinite(value)) continue;
    report(ErrorKind::bad_input, origin.where,
           text("attribute ", name, ": expected a finite number, got ", value));
    return {};
  }
  if (!is_normal && !std::isfinite(distribution.parameters[1].second - distribution.parameters[0].second)) {
    report(ErrorKind::bad_input, origin.where, "high - low: expected a finite number");
    return {};
  }
  return random_tensor(distribution, shape, seed_of(node), origin);
}

// Whether a uniform number is below the probability.
Entry Builder::bernoulli(const onnx::NodeProto& node, const Entry& x, const Origin& origin) {
  const ElementType element = graph_.value(x.id).type.element, wide = wide_element(element);
  const std::optional<ElementType> result = drawn_element(node, element, origin);
  if (!result) return {};
  if (!is_float(element)) {
    report(ErrorKind::bad_input, origin.where,
           text("expected probabilities of a float type, got ", to_text(element)));
    return {};
  }
  const Entry probability = element == wide ? x : make("Cast", {x}, {"to", onnx_of_element(wide)}, origin);
  const Entry uniform = random_tensor({{{"low", 0.0f}, {"high", 1.0f}}, wide}, make("Shape", {x}, {}, origin),
                                      seed_of(node), origin);
  if (probability.kind != Entry::value || uniform.kind != Entry::value) return {};
  const Entry is_below = make("Less", {uniform, probability}, {}, origin);
  if (is_below.kind != Entry::value || *result == ElementType::boolean) return is_below;
  return make("Cast", {is_below}, {"to", onnx_of_element(*result)}, origin);
}

// The classes whose sums of probabilities, up to them, are not above a uniform number times the sum of all: their number is the class.
// In f64, of exp(x - the row's largest); what is not finite has no probability.
Entry Builder::multinomial(const onnx::NodeProto& node, const Entry& x, const Origin& origin) {
  const graph::TensorType type = graph_.value(x.id).type;
  const onnx::AttributeProto* count = find_attribute(node, "sample_size");
  const int64_t samples = count ? count->i() : 1;
  const std::optional<ElementType> result = drawn_element(node, ElementType::i32, origin);
  if (!result) return {};
  if (!is_float(type.element) || type.shape.size() != 2 || tensor::is_int(type.shape[1], 0)) {
    report(ErrorKind::bad_input, origin.where,
           text("expected logarithms of probabilities of shape [batch, classes], got ", to_text(type)));
    return {};
  }
  if (samples < 0 || (*result != ElementType::i32 && *result != ElementType::i64)) {
    report(ErrorKind::bad_input, origin.where,
           samples < 0 ? text("sample_size: expected at least 0, got ", samples)
                       : text("dtype: expected i32 or i64, got ", to_text(*result)));
    return {};
  }
  const auto constant = [&](Constant value) {
    return make_constant(std::move(value), text(origin.name, ".constant"));
  };
  const auto axis = [&](int64_t k) { return constant(Constant::ints({k})); };
  const auto number = [&](double value) {
    return constant(Constant::of(ElementType::f64, {}, std::vector<double>{value}));
  };
  // Nothing goes wrong on the way: types and shapes are right.
  const Entry logits = type.element == ElementType::f64
                           ? x
                           : make("Cast", {x}, {"to", onnx_of_element(ElementType::f64)}, origin);
  const Entry is_finite = make("Less", {make("Abs", {logits}, {}, origin), number(INFINITY)}, {}, origin);
  const Entry possible = make("Where", {is_finite, logits, number(-INFINITY)}, {}, origin);
  const Entry most = make("ReduceMax", {possible, axis(1)}, {"keepdims", 1}, origin);
  const Entry weights = make("Exp", {make("Sub", {possible, most}, {}, origin)}, {}, origin);
  const Entry sums = make("CumSum", {weights, constant(Constant::scalar(ElementType::i64, 1))}, {}, origin);
  const Entry all = slice(sums, 1, -1, INT64_MAX, origin);
  const Entry batch = slice(make("Shape", {x}, {}, origin), 0, 0, 1, origin);
  const Entry shape = concatenate({batch, constant(Constant::ints({samples}))}, 0, origin);
  const Entry uniform =
      random_tensor({{{"low", 0.0f}, {"high", 1.0f}}, ElementType::f64}, shape, seed_of(node), origin);
  if (is_reported(all) || is_reported(uniform)) return {};
  const Entry wanted = make("Mul", {uniform, all}, {}, origin);
  const Entry is_passed =
      make("LessOrEqual",
           {make("Unsqueeze", {sums, axis(1)}, {}, origin), make("Unsqueeze", {wanted, axis(2)}, {}, origin)},
           {}, origin);
  const Entry passed = make("Cast", {is_passed}, {"to", onnx_of_element(*result)}, origin);
  return make("ReduceSum", {passed, axis(2)}, {"keepdims", 0}, origin);
}

// data * (0, or 1 / (1 - ratio) with a probability of 1 - ratio).
std::vector<Entry> Builder::dropout_in_training(const onnx::NodeProto& node, const std::vector<Entry>& inputs,
                                                const Origin& origin) {
  const Entry& data = inputs[0];
  const graph::TensorType type = graph_.value(data.id).type;
  const auto wrong = [&](std::string message) {
    report(ErrorKind::bad_input, origin.where, std::move(message));
    return std::vector<Entry>{};
  };
  const auto constant = [&](Constant value) {
    return make_constant(std::move(value), text(origin.name, ".constant"));
  };
  Entry ratio = inputs[1];
  if (ratio.kind == Entry::absent)
    ratio = constant(Constant::of(ElementType::f32, {}, std::vector<float>{0.5f}));
  const graph::TensorType ratio_type = graph_.value(ratio.id).type;
  if (!is_float(type.element)) return wrong(text("expected data of a float type, got ", to_text(type)));
  if (!is_float(ratio_type.element) || !graph::is_static(ratio_type.shape) ||
      graph::static_count(ratio_type.shape) != 1)
    return wrong(text("input 1 (ratio): expected one float, got ", to_text(ratio_type)));
  if (!is_one_bool(inputs[2].id))
    return wrong(
        text("input 2 (training_mode): expected one bool, got ", to_text(graph_.value(inputs[2].id).type)));
  if (const Constant* value = known(ratio); value && !(0 <= value->number_at(0) && value->number_at(0) < 1))
    return wrong(text("input 1 (ratio): expected at least 0 and less than 1, got ", value->number_at(0)));

  const auto as_scalar = [&](const Entry& x) {
    return graph_.value(x.id).type.shape.empty()
               ? x
               : make("Reshape", {x, constant(Constant::ints({}))}, {}, origin);
  };
  const auto converted = [&](const Entry& x, ElementType element) {
    return graph_.value(x.id).type.element == element
               ? x
               : make("Cast", {x}, {"to", onnx_of_element(element)}, origin);
  };
  const ElementType wide = wide_element(ratio_type.element);
  const auto number = [&](double value) {
    return wide == ElementType::f64
               ? constant(Constant::of(wide, {}, std::vector<double>{value}))
               : constant(Constant::of(wide, {}, std::vector<float>{static_cast<float>(value)}));
  };
  ratio = converted(as_scalar(ratio), wide);
  const Entry uniform = random_tensor({{{"low", 0.0f}, {"high", 1.0f}}, wide},
                                      make("Shape", {data}, {}, origin), seed_of(node), origin);
  if (uniform.kind != Entry::value) return {};
  Entry stays = make("GreaterOrEqual", {uniform, ratio}, {}, origin);
  Entry scale = make("Div", {number(1), make("Sub", {number(1), ratio}, {}, origin)}, {}, origin);
  if (!known(inputs[2])) {
    const Entry is_training = as_scalar(inputs[2]);
    stays = make("Or", {make("Not", {is_training}, {}, origin), stays}, {}, origin);
    scale = make("Where", {is_training, scale, number(1)}, {}, origin);
  }
  const Entry factor = converted(make("Where", {stays, scale, number(0)}, {}, origin), type.element);
  std::vector<Entry> results = {make("Mul", {data, factor}, {}, origin)};
  if (node.output_size() > 1 && !node.output(1).empty()) results.push_back(stays);
  return results;
}

}  // namespace mcc::frontend
