#include "tools/verify.h"

#include <stdlib.h>

#include <algorithm>
#include <filesystem>

#include "tools/console.h"
#include "tools/driver.h"
#include "tools/loaded_model.h"
#include "tools/rounding.h"
#include "tools/temporary_folder.h"

namespace mcc::tools {

namespace {

using graph::Constant;

// A model made ready for inputs of certain shapes: compiled, or as a graph for the interpreter.
class Subject {
 public:
  static Result<std::shared_ptr<Subject>> make(const std::string& model,
                                               const frontend::ImportOptions& import,
                                               const VerifyOptions& options) {
    auto subject = std::make_shared<Subject>();
    subject->threads_ = options.threads;
    if (options.interpret) {
      Result<frontend::ImportedModel> imported =
          frontend::import_onnx(model, import, graph::interpreter_evaluator());
      if (!imported.ok()) return imported.errors();
      subject->imported_ = std::move(*imported);
      const graph::Graph& graph = subject->imported_->graph;
      for (graph::ValueId id : graph.inputs)
        subject->inputs_.push_back(graph.value(id).name);
      for (graph::ValueId id : graph.outputs)
        subject->outputs_.push_back(graph.value(id).name);
      return subject;
    }
    Result<TemporaryFolder> folder = TemporaryFolder::create();
    if (!folder.ok()) return folder.errors();
    subject->folder_ = std::move(*folder);
    CompileOptions compile;
    compile.model_path = model;
    compile.output_path = subject->folder_->path() + "/model.so";
    compile.target = options.target;
    compile.precision = options.precision;
    compile.import = import;
    compile.jobs = 1;
    Result<CompileReport> report = compile_model(compile);
    if (!report.ok()) return report.errors();
    Result<runtime::Model> library = open_model(compile.output_path);
    if (!library.ok()) return library.errors();
    subject->library_ = std::move(*library);
    subject->inputs_ = names_of(input_specs(*subject->library_));
    subject->outputs_ = names_of(output_specs(*subject->library_));
    return subject;
  }

  const std::vector<std::string>& input_names() const { return inputs_; }
  const std::vector<std::string>& output_names() const { return outputs_; }

  // draws: which random numbers there are.
  Result<std::vector<Constant>> run(const std::vector<Constant>& inputs, const graph::Draws& draws = {}) {
    if (imported_)
      return graph::run_graph(imported_->graph, inputs, graph::interpreter_evaluator(), nullptr, draws);
    runtime::SessionOptions options;
    options.threads = threads_;
    options.seed = draws.seed;
    runtime::Session session(*library_, options);
    set_inputs(session, inputs);
    for (uint64_t k = 0; k <= draws.execution; ++k)
      session.run();
    return copy_outputs(*library_, session);
  }

 private:
  std::optional<TemporaryFolder> folder_;  // of the library
  std::optional<frontend::ImportedModel> imported_;
  std::optional<runtime::Model> library_;
  std::vector<std::string> inputs_, outputs_;
  int threads_ = 1;
};

// How a shape that depends on an input's value can become known: ever more of the small inputs are fixed.
enum class Fixing { nothing, integers, small, all_small };

bool is_fixed(const Constant& value, size_t position, Fixing fixing) {
  constexpr int64_t kMostElements = 64;
  if (value.shape().size() > 1 || value.count() > kMostElements) return false;
  const bool integer = value.element() == ElementType::i64 || value.element() == ElementType::i32 ||
                       value.element() == ElementType::boolean;
  switch (fixing) {
    case Fixing::nothing:
      return false;
    case Fixing::integers:
      return integer && position > 0;
    case Fixing::small:
      return position > 0;
    case Fixing::all_small:
      return true;
  }
  MCC_UNREACHABLE("unknown fixing");
}

frontend::ImportOptions import_options(const DividedValues& inputs, Fixing fixing) {
  frontend::ImportOptions options;
  options.sequence_lengths = inputs.lengths;
  options.left_out = inputs.left_out;
  for (const DividedValues::Tensor& tensor : inputs.tensors) {
    if (!tensor.value) continue;
    if (is_fixed(*tensor.value, tensor.position, fixing))
      options.constants[tensor.name] = *tensor.value;
    else
      options.input_shapes[tensor.name] = tensor.value->shape();
  }
  return options;
}

// Shapes that are only as fixed as the model has them. Those that are even here have no bound, the others may be up to twice as large.
void leave_open(const DividedValues& inputs, const std::vector<frontend::DeclaredTensor>& declared,
                frontend::ImportOptions& options) {
  for (const DividedValues::Tensor& tensor : inputs.tensors) {
    const frontend::DeclaredTensor& input = declared[tensor.position];
    auto given = options.input_shapes.find(tensor.name);
    if (given == options.input_shapes.end() || !input.has_shape || input.shape.size() != given->second.size()) continue;
    for (size_t i = 0; i < input.shape.size(); ++i) {
      int64_t& size = given->second[i];
      if (input.shape[i] >= 0 || size == 0) continue;
      const graph::DimRange range = size % 2 == 0 ? graph::DimRange{1, tensor::kLargestSize, size} : graph::DimRange{1, 2 * size};
      options.input_ranges[tensor.name][i] = range;
      const std::string& symbol = input.symbols[i];
      if (!symbol.empty())
        options.dim_ranges[input.is_sequence ? frontend::item_dim_name(tensor.name, symbol) : symbol] = range;
      size = frontend::kOpenDim;
    }
  }
}

// The options with one size in place of each range. pick says which.
frontend::ImportOptions with_sizes(frontend::ImportOptions options, const std::function<int64_t(const graph::DimRange&)>& pick) {
  for (const auto& [name, range] : options.dim_ranges)
    options.dims[name] = pick(range);
  for (const auto& [input, ranges] : options.input_ranges)
    for (const auto& [axis, range] : ranges)
      options.input_shapes[input][axis] = pick(range);
  if (options.other_dims) {
    const int64_t size = pick(*options.other_dims);
    options.other_dims = graph::DimRange{size, size};
  }
  options.dim_ranges.clear();
  options.input_ranges.clear();
  return options;
}

// What a model with open dimensions is compared at: small sizes, as the interpreter takes its time; no vector is full at some, and tiles
// are left over at others.
std::vector<frontend::ImportOptions> samples_of(const frontend::ImportOptions& options) {
  if (options.dim_ranges.empty() && options.input_ranges.empty() && !options.other_dims) return {options};
  std::vector<frontend::ImportOptions> samples;
  for (int64_t size : {1, 7, 33})
    samples.push_back(with_sizes(options, [&](const graph::DimRange& range) { return std::clamp(size, range.min, range.max); }));
  return samples;
}

bool is_unsupported(const Diagnostics& errors) {
  return exit_code_of(errors) == exit_code(ErrorKind::unsupported);
}

CaseResult from_errors(CaseResult result, const Diagnostics& errors) {
  result.status = is_unsupported(errors) ? CaseStatus::unsupported : CaseStatus::fail;
  result.is_of_machine = exit_code_of(errors) == exit_code(ErrorKind::environment);
  result.reason = to_text(errors);
  std::replace(result.reason.begin(), result.reason.end(), '\n', ' ');
  return result;
}

class CaseRun {
 public:
  CaseRun(const TestCase& test, const VerifyOptions& options) : test_(test), options_(options) {
    result_.name = test.name;
    tolerance_ = test.tolerance;
    if (options.rtol) tolerance_.rtol = *options.rtol;
    if (options.atol) tolerance_.atol = *options.atol;
  }

  CaseResult run() {
    Result<frontend::ModelSummary> summary = frontend::summarize_onnx(test_.model);
    if (!summary.ok()) return from_errors(result_, summary.errors());
    model_ = std::move(*summary);
    if (test_.against_reference) {
      run_against_reference(model_);
      return result_;
    }
    if (test_.sets.empty()) {
      Result<std::shared_ptr<Subject>> subject = Subject::make(test_.model, {}, options_);
      if (!subject.ok()) return from_errors(result_, subject.errors());
      result_.status = CaseStatus::fail;
      result_.reason = "there is no test data";
      return result_;
    }
    result_.status = CaseStatus::pass;
    for (const std::string& set : test_.sets) {
      run_set(set);
      if (result_.status != CaseStatus::pass) break;
    }
    return result_;
  }

 private:
  // Dimensions without a value stay open, as `mcc compile` leaves them.
  bool is_left_open(const frontend::ModelSummary& summary, const frontend::ImportOptions& import) const {
    return !frontend::options_for_other_dims(summary, import).empty();
  }

  void run_against_reference(const frontend::ModelSummary& summary) {
    std::shared_ptr<Subject> compiled;  // one for all sizes
    frontend::ImportOptions import = options_.import;
    if (is_left_open(summary, import)) import.other_dims = frontend::kAnySize;
    for (const frontend::ImportOptions& sizes : samples_of(import)) {
      run_against_reference(import, sizes, compiled);
      if (result_.status != CaseStatus::pass) return;
    }
  }

  void run_against_reference(const frontend::ImportOptions& import, const frontend::ImportOptions& sizes, std::shared_ptr<Subject>& compiled) {
    Result<frontend::ImportedModel> imported = frontend::import_onnx(test_.model, sizes, graph::interpreter_evaluator());
    if (!imported.ok()) {
      result_ = from_errors(result_, imported.errors());
      return;
    }
    const graph::Graph& graph = imported->graph;
    std::vector<Constant> arguments;
    for (graph::ValueId id : graph.inputs) {
      const graph::Value& value = graph.value(id);
      arguments.push_back(
          random_tensor(value.name, value.type.element, graph::static_shape(value.type.shape), 1));
    }
    Result<std::shared_ptr<Subject>> subject =
        compiled ? compiled : Subject::make(test_.model, options_.interpret ? sizes : import, options_);
    if (!subject.ok()) {
      result_ = from_errors(result_, subject.errors());
      return;
    }
    if (!options_.interpret) compiled = *subject;
    const std::string said = result_.tolerance;
    const bool draws = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                   [](const graph::Node& node) { return graph::is_draw(*node.op); });
    constexpr uint64_t kSeed = 7;
    for (uint64_t execution = 0; execution < (draws ? 3 : 1); ++execution) {
      result_.tolerance = said;
      compare_run(graph, **subject, arguments, {kSeed, execution});
      if (result_.status != CaseStatus::pass) return;
    }
  }

  void compare_run(const graph::Graph& graph, Subject& subject, const std::vector<Constant>& arguments,
                   const graph::Draws& draws) {
    Result<std::vector<Constant>> want =
        graph::run_graph(graph, arguments, graph::interpreter_evaluator(), nullptr, draws);
    Result<std::vector<Constant>> got = want.ok() ? subject.run(arguments, draws) : want.errors();
    if (!got.ok()) {
      result_ = from_errors(result_, got.errors());
      return;
    }
    result_.status = CaseStatus::pass;
    const std::vector<Rounding> roundings = rounding_of_outputs(graph);
    std::optional<std::vector<Constant>> other;  // with other steps of quantisation, once they are needed
    for (size_t i = 0; i < got->size(); ++i) {
      Tolerance allowed = tolerance_for((*want)[i], allow_rounding((*want)[i], roundings[i]));
      Comparison comparison = compare((*got)[i], (*want)[i], allowed);
      if (!comparison.same && !options_.atol) {
        if (!other) other = run_with_other_steps(graph, arguments, draws);
        if (!other->empty()) {
          allow_steps((*want)[i], (*other)[i], allowed);
          comparison = compare((*got)[i], (*want)[i], allowed);
        }
      }
      if (!comparison.same)
        return fail(text("output '", subject.output_names()[i], "': ", comparison.reason));
    }
  }

  // Results of a model that is quantised if rounding takes other steps; of others none.
  std::vector<Constant> run_with_other_steps(const graph::Graph& graph,
                                             const std::vector<Constant>& arguments,
                                             const graph::Draws& draws) const {
    const std::optional<graph::Graph> other = with_other_steps(graph, unit_of_operands());
    if (!other) return {};
    Result<std::vector<Constant>> results =
        graph::run_graph(*other, arguments, graph::interpreter_evaluator(), nullptr, draws);
    return results.ok() ? std::move(*results) : std::vector<Constant>();
  }

  void allow_steps(const Constant& want, const Constant& other, Tolerance& allowed) {
    constexpr double kOtherWay = 2;  // the other side may take steps, too
    const double moved = kOtherWay * largest_difference(want, other);
    (is_float(want.element()) ? allowed.atol : allowed.steps) += moved;
    if (!result_.tolerance.empty()) result_.tolerance += "; ";
    result_.tolerance += text(moved, " more by other steps of quantisation");
  }

  // Of operands of products: halves of a unit in the last of 11 digits, or of 8.
  double unit_of_operands() const {
    return options_.precision == "fp32" ? 0 : options_.precision == "bf16" ? 0x1p-8 : 0x1p-11;
  }

  // Unless the user says how much, the absolute error may be what the length of the sums makes of it.
  Tolerance allow_rounding(const Constant& want, const Rounding& rounding) {
    Tolerance allowed = tolerance_;
    if (!is_float(want.element())) return allowed;
    std::string why = "as given";
    if (!options_.atol) {
      const double unit = unit_of_operands();
      const double largest = largest_finite(want);
      const double of_operands = rounding.of_operands(std::max(unit, rounding.unit), largest);
      allowed.atol = std::max(allowed.atol, rounding.absolute(largest) + of_operands);
      why = to_text(rounding);
      if (unit > 0) why += text(", operands in ", options_.precision);
    }
    if (!result_.tolerance.empty()) result_.tolerance += "; ";
    result_.tolerance += text(allowed.rtol, " of each value and ", allowed.atol, ": ", why);
    return allowed;
  }

  void run_set(const std::string& folder) {
    Result<DataSet> data = read_data_set(folder, model_);
    if (!data.ok()) {
      // The model itself says best what is not supported.
      Result<std::shared_ptr<Subject>> subject = Subject::make(test_.model, {}, options_);
      result_ = from_errors(result_, subject.ok() ? data.errors() : subject.errors());
      return;
    }
    const DividedValues inputs = divide_values(model_.inputs, data->inputs);
    Result<std::shared_ptr<Subject>> subject = prepare(inputs);
    if (!subject.ok()) {
      result_ = from_errors(result_, subject.errors());
      return;
    }
    std::vector<Constant> arguments;
    for (const std::string& name : (*subject)->input_names()) {
      const auto found = std::find_if(inputs.tensors.begin(), inputs.tensors.end(),
                                      [&](const auto& tensor) { return tensor.name == name; });
      if (found == inputs.tensors.end() || !found->value)
        return fail(text("the test data has no input '", name, "'"));
      arguments.push_back(*found->value);
    }
    Result<std::vector<Constant>> got = (*subject)->run(arguments);
    if (!got.ok()) {
      result_ = from_errors(result_, got.errors());
      return;
    }
    check_outputs((*subject)->output_names(), *got, data->outputs);
  }

  // Fixes inputs only when the model cannot be compiled without.
  Result<std::shared_ptr<Subject>> prepare(const DividedValues& inputs) {
    std::optional<Diagnostics> first_errors;
    size_t fixed_before = 0;
    for (Fixing fixing : {Fixing::nothing, Fixing::integers, Fixing::small, Fixing::all_small}) {
      frontend::ImportOptions import = import_options(inputs, fixing);
      if (options_.open) leave_open(inputs, model_.inputs, import);
      if (fixing != Fixing::nothing && import.constants.size() == fixed_before) continue;
      fixed_before = import.constants.size();
      Result<std::shared_ptr<Subject>> subject = Subject::make(test_.model, import, options_);
      if (subject.ok()) {
        result_.fixed_inputs.clear();
        for (const auto& [name, value] : import.constants)
          result_.fixed_inputs.push_back(name);
        return subject;
      }
      if (!first_errors) first_errors = subject.errors();
      if (!is_unsupported(subject.errors())) break;
    }
    return *first_errors;
  }

  void check_outputs(const std::vector<std::string>& names, const std::vector<Constant>& got,
                     const std::vector<frontend::NamedValue>& expected) {
    if (expected.empty()) return fail("there are no expected outputs");
    const DividedValues want = divide_values(model_.outputs, expected);
    for (size_t i = 0; i < std::max(names.size(), want.tensors.size()); ++i) {
      // The model has its outputs in order; of sequences and optional values it may have more or fewer than expected.
      if (i >= names.size() || i >= want.tensors.size() || names[i] != want.tensors[i].name) {
        const bool is_extra =
            i >= want.tensors.size() || (i < names.size() && names.size() > want.tensors.size());
        return fail(is_extra ? text("output '", names[i], "' is not expected")
                             : text("there is no output '", want.tensors[i].name, "'"));
      }
      const Constant* value = want.tensors[i].value;
      if (!value) return fail(text("there is no expected value for output '", names[i], "'"));
      const Comparison comparison = compare(got[i], *value, tolerance_for(*value, tolerance_));
      if (!comparison.same) return fail(text("output '", names[i], "': ", comparison.reason));
    }
  }

  void fail(std::string reason) {
    result_.status = CaseStatus::fail;
    result_.reason = std::move(reason);
  }

  const TestCase& test_;
  const VerifyOptions& options_;
  CaseResult result_;
  Tolerance tolerance_;
  frontend::ModelSummary model_;
};

}  // namespace

std::string_view to_text(CaseStatus status) {
  switch (status) {
    case CaseStatus::pass:
      return "pass";
    case CaseStatus::fail:
      return "fail";
    case CaseStatus::unsupported:
      return "unsupported";
    case CaseStatus::crash:
      return "crash";
  }
  MCC_UNREACHABLE("unknown status");
}

CaseResult verify_case(const TestCase& test, const VerifyOptions& options) {
  return CaseRun(test, options).run();
}

std::vector<CaseResult> verify_cases(const std::vector<TestCase>& cases, const VerifyOptions& options,
                                     const CaseProgress& progress) {
  std::vector<std::string> names;
  for (const TestCase& test : cases)
    names.push_back(test.name);
  return run_isolated(names, [&](size_t i) { return verify_case(cases[i], options); }, options, progress);
}

}  // namespace mcc::tools
