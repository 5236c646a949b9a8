#include "frontend/model_prepare.h"

#include <google/protobuf/stubs/logging.h>

#include <cstring>

#include "frontend/isolated.h"
#include "onnx/proto_utils.h"

namespace mcc::frontend {

namespace {

// A message between processes: numbers and texts one after the other.
void put(std::string& out, uint64_t number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void put(std::string& out, const std::string& s) {
  put(out, s.size());
  out += s;
}

void put(std::string& out, const Diagnostics& problems) {
  put(out, problems.size());
  for (const Diagnostic& problem : problems) {
    put(out, static_cast<uint64_t>(problem.kind));
    put(out, problem.where);
    put(out, problem.message);
    put(out, problem.hint);
  }
}

class Taker {
 public:
  explicit Taker(const std::string& message) : rest_(message) {}

  uint64_t number() {
    uint64_t value = 0;
    MCC_CHECK(rest_.size() >= sizeof value, "a short message");
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }

  std::string_view bytes() {
    const uint64_t size = number();
    MCC_CHECK(rest_.size() >= size, "a short message");
    std::string_view result = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return result;
  }

  Diagnostics diagnostics() {
    Diagnostics problems(number());
    for (Diagnostic& problem : problems) {
      problem.kind = static_cast<ErrorKind>(number());
      problem.where = bytes();
      problem.message = bytes();
      problem.hint = bytes();
    }
    return problems;
  }

 private:
  std::string_view rest_;
};

std::string encode(const PreparedModel& prepared) {
  std::string out;
  put(out, prepared.usable ? 1 : 0);
  put(out, prepared.problems);
  put(out, prepared.doubts.note);
  put(out, prepared.doubts.problems);
  put(out, prepared.model.SerializeAsString());
  return out;
}

PreparedModel decode(const std::string& message) {
  Taker take(message);
  PreparedModel prepared;
  prepared.usable = take.number() != 0;
  prepared.problems = take.diagnostics();
  prepared.doubts.note = take.bytes();
  prepared.doubts.problems = take.diagnostics();
  const std::string_view model = take.bytes();
  prepared.usable &= onnx::ParseProtoFromBytes(&prepared.model, model.data(), model.size());
  return prepared;
}

PreparedModel prepare_here(onnx::ModelProto model, const std::string& folder, const ImportOptions& options,
                           bool convert) {
  google::protobuf::LogSilencer quiet;
  PreparedModel prepared;
  Diagnostics& problems = prepared.problems;
  if (check_versions(model, problems) && inline_functions(model, problems)) {
    order_nodes(*model.mutable_graph());
    check_model(model, folder, problems);
    divide_inputs(*model.mutable_graph(), options, problems);
    prepared.usable = bind_shapes(model, options, problems, prepared.doubts) &&
                      (!convert || convert_model(model, problems));
  }
  prepared.model = std::move(model);
  return prepared;
}

std::optional<PreparedModel> prepare_apart(const onnx::ModelProto& model, const std::string& folder,
                                           const ImportOptions& options, bool convert) {
  IsolationLimits limits;
  limits.memory += 6 * static_cast<size_t>(model.ByteSizeLong());
  std::optional<std::string> message =
      run_isolated([&] { return encode(prepare_here(model, folder, options, convert)); }, limits);
  if (!message) return std::nullopt;
  return decode(*message);
}

}  // namespace

PreparedModel prepare_model(const onnx::ModelProto& model, const std::string& folder,
                            const ImportOptions& options) {
  if (std::optional<PreparedModel> prepared = prepare_apart(model, folder, options, true)) return *prepared;
  // ONNX's inference does not check every attribute before it computes with it. The graph's own rules do, so they may
  // say what is wrong; they are close enough to those of older opsets for that.
  std::optional<PreparedModel> unconverted = prepare_apart(model, folder, options, false);
  PreparedModel prepared = unconverted ? std::move(*unconverted) : PreparedModel{};
  prepared.failed = true;
  return prepared;
}

}  // namespace mcc::frontend
