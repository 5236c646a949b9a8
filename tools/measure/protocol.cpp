#include "tools/measure/protocol.h"

#include <algorithm>
#include <cmath>

#include "tools/measure/json_reader.h"

namespace mcc::tools {

namespace {

using nlohmann::json;
using tuner::Measurement;

constexpr std::string_view kEvents[] = {"reference", "build",   "built", "run",     "check", "idle",
                                        "result",    "machine", "done",  "restart", "error"};
constexpr std::string_view kErrorKinds[] = {"comparison",  "usage",       "bad_input",
                                            "unsupported", "environment", "tuning_log"};

template <size_t N>
std::optional<size_t> index_of(const std::string_view (&names)[N], std::string_view name) {
  const auto* at = std::find(std::begin(names), std::end(names), name);
  if (at == std::end(names)) return std::nullopt;
  return static_cast<size_t>(at - std::begin(names));
}

std::string dump(const json& document) {
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

// JSON has no infinity.
double finite(double x) { return std::isnan(x) ? 1e300 : std::clamp(x, -1e300, 1e300); }

json encode_measurement(const Measurement& m) {
  json times = json::array();
  for (double t : m.times_us)
    times.push_back(finite(t));
  return {{"error", tuner::to_text(m.error)},
          {"message", m.message},
          {"times_us", times},
          {"is_censored", m.is_censored},
          {"max_error", finite(m.max_error)},
          {"is_checked", m.is_checked},
          {"noise", finite(m.noise)},
          {"build_seconds", m.build_seconds},
          {"run_seconds", m.run_seconds}};
}

std::optional<Measurement> decode_measurement(const json& object) {
  if (!object.is_object()) return std::nullopt;
  JsonReader reader(object);
  Measurement m;
  std::optional<tuner::TrialError> error = tuner::parse_trial_error(reader.string("error"));
  if (!error) return std::nullopt;
  m.error = *error;
  m.message = reader.string("message");
  m.is_censored = reader.flag("is_censored");
  m.is_checked = reader.flag("is_checked");
  m.max_error = reader.number("max_error", 0, 0, 1e300);
  m.noise = reader.number("noise", 0, 0, 1e300);
  m.build_seconds = reader.number("build_seconds", 0, 0, 1e9);
  m.run_seconds = reader.number("run_seconds", 0, 0, 1e9);
  auto times = object.find("times_us");
  if (times == object.end() || !times->is_array()) return std::nullopt;
  for (const json& t : *times) {
    if (!t.is_number() || !(t.get<double>() >= 0)) return std::nullopt;
    m.times_us.push_back(t.get<double>());
  }
  if (!reader.problem().empty()) return std::nullopt;
  return m;
}

void decode_errors(const json& document, Diagnostics& errors) {
  auto list = document.find("errors");
  if (list == document.end() || !list->is_array()) return;
  for (const json& item : *list) {
    if (!item.is_object()) continue;
    JsonReader reader(item);
    Diagnostic diagnostic;
    diagnostic.kind = static_cast<ErrorKind>(index_of(kErrorKinds, reader.string("kind")).value_or(2));
    diagnostic.where = reader.string("where");
    diagnostic.message = reader.string("message");
    diagnostic.hint = reader.string("hint");
    errors.push_back(std::move(diagnostic));
  }
}

}  // namespace

std::string encode(const WorkerRequest& r) {
  const tuner::MeasureOptions& o = r.options;
  if (r.wants_machine)
    return dump({{"version", kProtocolVersion}, {"id", r.id}, {"target", r.target}, {"wants_machine", true}});
  return dump({{"version", kProtocolVersion},
               {"id", r.id},
               {"task", r.task},
               {"target", r.target},
               {"candidates", r.candidates},
               {"options",
                {{"threads", o.threads},
                 {"incumbent_us", finite(o.incumbent_us)},
                 {"is_cold", o.is_cold},
                 {"timeout_seconds", o.timeout_seconds},
                 {"precision", o.precision},
                 {"seed", o.seed & static_cast<uint64_t>(INT64_MAX)},
                 {"is_fresh", o.is_fresh},
                 {"patience", o.patience},
                 {"is_serial", r.is_serial},
                 {"optimization", r.emit.optimization},
                 {"strict", r.emit.strict},
                 {"fast_math", r.emit.fast_math}}}});
}

Result<WorkerRequest> decode_request(const std::string& line) {
  const auto refuse = [](std::string message) {
    return Diagnostic{ErrorKind::bad_input, "request", std::move(message), ""};
  };
  const json document = json::parse(line, nullptr, false);
  if (!document.is_object()) return refuse("expected a JSON object on one line");
  JsonReader reader(document);
  WorkerRequest r;
  r.id = reader.integer("id", 0, 0, INT64_MAX);
  if (reader.integer("version", 0, 0, 1 << 20) != kProtocolVersion)
    return refuse(text("\"version\": expected ", kProtocolVersion));
  r.task = reader.string("task");
  r.target = reader.string("target");
  r.candidates = reader.strings("candidates", kMaxCandidates);
  r.wants_machine = reader.flag("wants_machine");
  if (!reader.problem().empty()) return refuse(reader.problem());
  if (r.wants_machine && !r.target.empty()) return r;
  if (r.task.empty() || r.target.empty()) return refuse("expected \"task\" and \"target\"");
  auto options = document.find("options");
  if (options == document.end()) return r;
  if (!options->is_object()) return refuse("\"options\": expected an object");
  JsonReader o(*options);
  r.options.threads = static_cast<int>(o.integer("threads", 1, 1, 1024));
  r.options.incumbent_us = o.number("incumbent_us", 0, 0, 1e300);
  r.options.is_cold = o.flag("is_cold");
  r.options.timeout_seconds = o.number("timeout_seconds", 1, 0, 1e6);
  r.options.precision = o.number("precision", 0.01, 0, 1);
  r.options.seed = static_cast<uint64_t>(o.integer("seed", 1, 0, INT64_MAX));
  r.options.is_fresh = o.flag("is_fresh");
  r.options.patience = o.number("patience", 1, 0.1, 1000);
  r.is_serial = o.flag("is_serial");
  r.emit.optimization = static_cast<int>(o.integer("optimization", 2, 0, 3));
  r.emit.strict = o.flag("strict");
  r.emit.fast_math = o.flag("fast_math");
  if (!o.problem().empty()) return refuse("options: " + o.problem());
  return r;
}

std::string encode(const WorkerMessage& m) {
  json document = {{"id", m.id}, {"event", kEvents[static_cast<size_t>(m.event)]}};
  if (m.candidate >= 0) document["candidate"] = m.candidate;
  if (m.event == WorkerEvent::result) document["measurement"] = encode_measurement(m.measurement);
  if (m.machine) document["machine"] = to_json(*m.machine);
  if (m.event == WorkerEvent::error) {
    json& errors = document["errors"] = json::array();
    for (const Diagnostic& d : m.errors) {
      errors.push_back({{"kind", kErrorKinds[static_cast<size_t>(d.kind)]},
                        {"where", d.where},
                        {"message", d.message},
                        {"hint", d.hint}});
    }
  }
  return dump(document);
}

std::optional<WorkerMessage> decode_message(const std::string& line) {
  const json document = json::parse(line, nullptr, false);
  if (!document.is_object()) return std::nullopt;
  JsonReader reader(document);
  WorkerMessage m;
  m.id = reader.integer("id", 0, 0, INT64_MAX);
  m.candidate = reader.integer("candidate", -1, 0, static_cast<int64_t>(kMaxCandidates));
  std::optional<size_t> event = index_of(kEvents, reader.string("event"));
  if (!event || !reader.problem().empty()) return std::nullopt;
  m.event = static_cast<WorkerEvent>(*event);
  if (m.event == WorkerEvent::error) decode_errors(document, m.errors);
  if (m.event == WorkerEvent::machine) {
    auto it = document.find("machine");
    if (it != document.end()) m.machine = parse_machine(*it);
    if (!m.machine) return std::nullopt;
  }
  if (m.event == WorkerEvent::result) {
    auto it = document.find("measurement");
    std::optional<Measurement> measurement = it == document.end() ? std::nullopt : decode_measurement(*it);
    if (!measurement) return std::nullopt;
    m.measurement = std::move(*measurement);
  }
  return m;
}

}  // namespace mcc::tools
