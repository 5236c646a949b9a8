#include "tuner/log_line.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "support/text.h"

namespace mcc::tuner {
namespace {

using Json = nlohmann::ordered_json;

// Further bounds. Times are below the 31 years of 1e15 us; decisions are extents and factors.
constexpr size_t kMaxName = 256, kMaxMessage = 4096, kMaxTrace = size_t{1} << 20, kMaxText = size_t{3} << 20;
constexpr size_t kMaxTimes = 4096, kMaxSizes = 256, kMaxPoint = 1024, kMaxAnswer = 16, kMaxThreads = 4096;
constexpr int kMaxDepth = 16;
constexpr int64_t kMaxInteger = int64_t{1} << 53;
constexpr double kMaxNumber = 1e15;

enum class Field : uint8_t {
  v, kind, id, name, text, flops, bytes, task, target, device, sketch, point, trace, times_us, error, message,
  max_error, checked, censored, noise, threads, seed, build_s, run_s, time, source,
  estimate_us, beats, problem, algorithm, us, sizes, unknown,
};
constexpr std::string_view kFields[] = {
    "v",     "kind",     "id",    "name",    "text",      "flops",   "bytes",    "task",  "target",
    "device", "sketch",  "point", "trace",   "times_us",  "error",   "message",  "max_error", "checked",
    "censored", "noise", "threads", "seed",  "build_s",   "run_s",   "time",     "source",
    "estimate_us", "beats", "problem", "algorithm", "us", "sizes"};
static_assert(std::size(kFields) == static_cast<size_t>(Field::unknown));
static_assert(std::size(kFields) < 64);  // bits of seen_
constexpr std::string_view kSources[] = {"default", "search", "verify", "import", "picked", "final"};

Field field_of(std::string_view key) {
  size_t i = 0;
  while (i < std::size(kFields) && kFields[i] != key) ++i;
  return static_cast<Field>(i);
}

constexpr uint64_t bit(Field f) { return uint64_t{1} << static_cast<unsigned>(f); }
constexpr uint64_t kTaskFields = bit(Field::id) | bit(Field::name) | bit(Field::text);
constexpr uint64_t kTrialFields = bit(Field::task) | bit(Field::target) | bit(Field::sketch) | bit(Field::point) |
                                  bit(Field::trace) | bit(Field::times_us) | bit(Field::error) | bit(Field::threads);
constexpr uint64_t kChoiceFields =
    bit(Field::problem) | bit(Field::algorithm) | bit(Field::us) | bit(Field::target) | bit(Field::threads);

// Takes the events of one line's JSON and fills in the record. A value of another type, or out of bounds, ends it.
class Handler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Handler(LogLine& out) : out_(out) {}

  bool null() override { return scalar("null"); }
  bool boolean(bool value) override {
    if (is_skipped()) return true;
    if (depth_ != 1) return expected("a boolean");
    if (field_ == Field::checked) return set(out_.entry.trial.measurement.is_checked, value);
    if (field_ == Field::censored) return set(out_.entry.trial.measurement.is_censored, value);
    return expected("a boolean");
  }
  bool number_integer(number_integer_t value) override { return integer(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (!is_skipped() && depth_ == 1 && field_ == Field::seed) return set(out_.entry.seed, value);
    if (value > static_cast<number_unsigned_t>(INT64_MAX)) return number(static_cast<double>(value));
    return integer(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return number(value); }
  bool string(string_t& value) override { return is_skipped() || text_value(value); }
  bool binary(binary_t&) override { return expected("binary data"); }

  bool start_object(std::size_t) override {
    if (++depth_ > kMaxDepth) return fail(text("expected at most ", kMaxDepth, " brackets inside of each other"));
    if (depth_ == 1 || is_skipped()) return true;
    return (depth_ == 2 && (field_ == Field::point || field_ == Field::us)) || expected("an object");
  }
  bool end_object() override { return --depth_, true; }
  bool start_array(std::size_t) override {
    if (++depth_ > kMaxDepth) return fail(text("expected at most ", kMaxDepth, " brackets inside of each other"));
    if (depth_ == 1) return fail("expected an object, got an array");
    if (is_skipped()) return true;
    if (depth_ == 2 && (field_ == Field::times_us || field_ == Field::beats || field_ == Field::sizes)) return true;
    return (depth_ == 3 && field_ == Field::point) || expected("an array");
  }
  bool end_array() override { return --depth_, true; }

  bool key(string_t& name) override {
    if (depth_ > 1) return is_skipped() || (field_ == Field::us ? algorithm_key(name) : point_key(name));
    field_ = field_of(name);
    if (seen_ == 0 && field_ != Field::v) return fail("expected \"v\", the version, as the first field");
    if (field_ == Field::unknown) return true;
    if (seen_ & bit(field_)) return fail(text("expected ", name, " once"));
    seen_ |= bit(field_);
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    std::string what = error.what();
    size_t reason = what.find(": ");
    reason = reason == std::string::npos ? 0 : reason + 2;
    return fail(text("no JSON at column ", position, ": ", what.substr(reason, 160)));
  }

  bool is_newer() const { return is_newer_; }
  const std::string& error() const { return error_; }

  // What the whole line lacks.
  bool finish() {
    if (depth_ != 0 || seen_ == 0) return fail("expected an object");
    if (!(seen_ & bit(Field::kind))) return fail("expected a field kind");
    uint64_t missing = fields_of(out_.kind) & ~seen_;
    for (size_t i = 0; i < std::size(kFields); ++i) {
      if (missing & bit(static_cast<Field>(i))) return fail(text("expected a field ", kFields[i]));
    }
    if (out_.kind == LogLine::Kind::trial) {
      const Measurement& m = out_.entry.trial.measurement;
      if (out_.entry.source == "picked" && !(m.ok() && m.times_us.empty())) {
        return fail("times_us: expected none of a picked trial, and no error");
      }
      if (m.ok() && m.times_us.empty() && out_.entry.source != "import" && out_.entry.source != "picked") {
        return fail("times_us: expected times of a trial without error, got none");
      }
      if (m.ok() && m.is_checked && m.max_error > 1) {
        return fail(text("max_error: expected at most 1 of a trial without error, got ", m.max_error));
      }
    }
    return out_.kind != LogLine::Kind::choice || finish_choice();
  }

 private:
  bool is_skipped() const { return depth_ >= 1 && field_ == Field::unknown; }

  static uint64_t fields_of(LogLine::Kind kind) {
    return kind == LogLine::Kind::task ? kTaskFields : kind == LogLine::Kind::choice ? kChoiceFields : kTrialFields;
  }
  // A choice has fields in common with trials.
  bool finish_choice() {
    LogChoice& choice = out_.choice;
    choice.device = std::move(out_.entry.device);
    choice.threads = out_.entry.threads;
    choice.time = out_.entry.time;
    return choice.us.contains(choice.algorithm) ||
           fail(text("us: expected a time of the algorithm that is chosen, ", choice.algorithm));
  }

  bool fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }
  std::string place() const {
    if (depth_ == 0) return "";
    if (field_ == Field::us && depth_ > 1 && !algorithm_.empty()) return text("us ", algorithm_, ": ");
    if (field_ == Field::point && !point_name_.empty()) return text("point ", point_name_, ": ");
    return text(kFields[static_cast<size_t>(field_)], ": ");
  }
  bool expected(std::string_view got) {
    std::string_view want = "another value";
    switch (field_) {
      case Field::us: want = "times by algorithm"; break;
      case Field::point: want = "lists of integers by name"; break;
      case Field::times_us: want = "a list of numbers"; break;
      case Field::beats: want = "a list of strings"; break;
      case Field::sizes: want = "a list of integers"; break;
      case Field::checked: case Field::censored: want = "true or false"; break;
      case Field::v: case Field::flops: case Field::bytes: case Field::threads: case Field::seed: want = "an integer"; break;
      case Field::max_error: case Field::noise: case Field::build_s: case Field::run_s: case Field::time:
      case Field::estimate_us:
        want = "a number";
        break;
      case Field::kind: case Field::id: case Field::name: case Field::text: case Field::task: case Field::target:
      case Field::device: case Field::sketch: case Field::trace: case Field::error: case Field::message:
      case Field::source: case Field::problem: case Field::algorithm:
        want = "a string";
        break;
      case Field::unknown: break;
    }
    if (depth_ == 0) want = "an object";
    return fail(text(place(), "expected ", want, ", got ", got));
  }
  bool scalar(std::string_view got) { return is_skipped() || expected(got); }
  template <class T>
  bool set(T& to, T value) {
    to = std::move(value);
    return true;
  }

  bool integer(int64_t value) {
    if (is_skipped()) return true;
    if (depth_ == 3 && field_ == Field::point) {
      if (answer_->size() == kMaxAnswer) return fail(text(place(), "expected at most ", kMaxAnswer, " integers"));
      if (value < -kMaxInteger || value > kMaxInteger) {
        return fail(text(place(), "expected integers of at most 2^53, got ", value));
      }
      answer_->push_back(value);
      return true;
    }
    if (depth_ == 2 && field_ == Field::sizes) {
      std::vector<int64_t>& sizes = out_.entry.sizes;
      if (sizes.size() == kMaxSizes) return fail(text(place(), "expected at most ", kMaxSizes, " integers"));
      return bounded(value, 0, kMaxInteger, sizes.emplace_back());
    }
    if (depth_ == 1) {
      switch (field_) {
        case Field::v: return version(value);
        case Field::flops: return bounded(value, 0, INT64_MAX, out_.task.flops);
        case Field::bytes: return bounded(value, 0, INT64_MAX, out_.task.bytes);
        case Field::threads: {
          int64_t threads = 0;
          if (!bounded(value, 1, static_cast<int64_t>(kMaxThreads), threads)) return false;
          return set(out_.entry.threads, static_cast<int>(threads));
        }
        case Field::seed: return fail(text("seed: expected 0 to 2^64-1, got ", value));
        default: break;
      }
    }
    return number(static_cast<double>(value));
  }
  bool version(int64_t value) {
    out_.version = value;
    is_newer_ = value > kLogVersion;
    if (is_newer_) return false;
    return value == kLogVersion || fail(text("v: expected version ", kLogVersion, ", got ", value));
  }
  bool bounded(int64_t value, int64_t low, int64_t high, int64_t& to) {
    if (value < low || value > high) return fail(text(place(), "expected ", low, " to ", high, ", got ", value));
    return set(to, value);
  }

  bool number(double value) {
    if (is_skipped()) return true;
    Measurement& m = out_.entry.trial.measurement;
    double* to = nullptr;
    if (depth_ == 1) {
      switch (field_) {
        case Field::max_error: to = &m.max_error; break;
        case Field::noise: to = &m.noise; break;
        case Field::build_s: to = &m.build_seconds; break;
        case Field::run_s: to = &m.run_seconds; break;
        case Field::time: to = &out_.entry.time; break;
        case Field::estimate_us: to = &out_.entry.estimate_us; break;
        default: return expected("a number");
      }
    } else if (depth_ == 2 && field_ == Field::us) {
      if (std::isfinite(value) && value > 0 && value <= kMaxNumber) return set(out_.choice.us[algorithm_], value);
      return fail(text(place(), "expected more than 0 to 1e15, got ", value));
    } else if (depth_ != 2 || field_ != Field::times_us) {
      return expected("a number");
    }
    if (!std::isfinite(value) || value < 0 || value > kMaxNumber || (to == nullptr && value == 0)) {
      return fail(text(place(), "expected ", to ? "0" : "more than 0", " to 1e15, got ", value));
    }
    if (to) return set(*to, value);
    if (m.times_us.size() == kMaxTimes) return fail(text("times_us: expected at most ", kMaxTimes, " times"));
    m.times_us.push_back(value);
    return true;
  }

  bool text_value(std::string& value) {
    LogEntry& entry = out_.entry;
    if (depth_ == 2 && field_ == Field::beats) {
      if (entry.beats.size() == kMaxBeats) return fail(text("beats: expected at most ", kMaxBeats, " schedules"));
      return short_text(value, 1, kMaxName, entry.beats.emplace_back());
    }
    if (depth_ != 1) return expected("a string");
    switch (field_) {
      case Field::kind: return kind(value);
      case Field::id: return short_text(value, 1, kMaxName, out_.task.id);
      case Field::name: return short_text(value, 0, kMaxName, out_.task.name);
      case Field::text: return short_text(value, 1, kMaxText, out_.task.text);
      case Field::task: return short_text(value, 1, kMaxName, entry.task);
      case Field::target: return short_text(value, 1, kMaxName, entry.device.target);
      case Field::device: return short_text(value, 0, kMaxName, entry.device.description);
      case Field::sketch: return short_text(value, 0, kMaxName, entry.trial.candidate.sketch);
      case Field::trace: return short_text(value, 0, kMaxTrace, out_.trace_text);
      case Field::message: return short_text(value, 0, kMaxMessage, entry.trial.measurement.message);
      case Field::problem: return short_text(value, 1, kMaxName, out_.choice.problem);
      case Field::algorithm: return short_text(value, 1, kMaxName, out_.choice.algorithm);
      case Field::source: return one_of(value, kSources) && set(entry.source, value);
      case Field::error: {
        std::optional<TrialError> error = parse_trial_error(value);
        if (!error) return fail(text("error: expected the name of an error, got \"", value.substr(0, 40), "\""));
        return set(entry.trial.measurement.error, *error);
      }
      default: return expected("a string");
    }
  }
  bool short_text(std::string& value, size_t low, size_t high, std::string& to) {
    if (value.size() < low || value.size() > high) {
      return fail(text(place(), "expected ", low, " to ", high, " bytes, got ", value.size()));
    }
    to = std::move(value);
    return true;
  }
  template <size_t N>
  bool one_of(const std::string& value, const std::string_view (&names)[N]) {
    for (std::string_view name : names) {
      if (name == value) return true;
    }
    return fail(text(place(), "expected one of ", join(names, ", "), ", got \"", value.substr(0, 40), "\""));
  }
  bool kind(const std::string& value) {
    if (value != "task" && value != "trial" && value != "choice") {
      return fail(text("kind: expected task, trial or choice, got \"", value.substr(0, 40), "\""));
    }
    return set(out_.kind, value == "task"    ? LogLine::Kind::task
                          : value == "trial" ? LogLine::Kind::trial
                                             : LogLine::Kind::choice);
  }
  bool algorithm_key(std::string& name) {
    if (depth_ != 2) return expected("an object");
    if (out_.choice.us.size() == kMaxAlgorithms) return fail(text("us: expected at most ", kMaxAlgorithms, " algorithms"));
    if (name.empty() || name.size() > kMaxName) return fail("us: expected names of 1 to 256 bytes");
    algorithm_ = std::move(name);
    return out_.choice.us.try_emplace(algorithm_, 0).second || fail(text(place(), "expected once"));
  }
  bool point_key(std::string& name) {
    Point& point = out_.entry.trial.candidate.point;
    if (depth_ != 2 || field_ != Field::point) return expected("an object");
    if (point.size() == kMaxPoint) return fail(text("point: expected at most ", kMaxPoint, " decisions"));
    if (name.empty() || name.size() > kMaxName) return fail("point: expected names of 1 to 256 bytes");
    point_name_ = name;
    auto [at, is_new] = point.try_emplace(std::move(name));
    answer_ = &at->second;
    return is_new || fail(text(place(), "expected once"));
  }

  LogLine& out_;
  Field field_ = Field::v;
  uint64_t seen_ = 0;
  int depth_ = 0;
  bool is_newer_ = false;
  std::string point_name_, algorithm_, error_;
  Answer* answer_ = nullptr;
};

}  // namespace

LogLine parse_log_line(std::string_view line) {
  LogLine out;
  Handler handler(out);
  bool ok = nlohmann::json::sax_parse(line.begin(), line.end(), &handler) && handler.finish();
  if (handler.is_newer()) {
    out.kind = LogLine::Kind::newer;
  } else if (!ok) {
    out.kind = LogLine::Kind::bad;
    out.error = handler.error();
  }
  return out;
}

Status resolve_trace(LogEntry& entry, const std::string& trace_text) {
  Result<tensor::Trace> trace = tensor::parse_trace(trace_text);
  if (!trace.ok()) return trace.errors();
  entry.trial.candidate.trace = std::move(*trace);
  return done();
}

std::string task_line(const LogTask& task) {
  Json line = {{"v", kLogVersion}, {"kind", "task"},     {"id", task.id},      {"name", task.name},
               {"text", task.text}, {"flops", task.flops}, {"bytes", task.bytes}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string choice_line(const LogChoice& choice) {
  Json us = Json::object();
  for (const auto& [algorithm, time] : choice.us) us[algorithm] = time;
  Json line = {{"v", kLogVersion},
               {"kind", "choice"},
               {"problem", choice.problem},
               {"algorithm", choice.algorithm},
               {"us", std::move(us)},
               {"target", choice.device.target},
               {"threads", choice.threads},
               {"device", choice.device.description},
               {"time", choice.time}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string entry_line(const LogEntry& entry) { return entry_line(entry, tensor::to_text(entry.trial.candidate.trace)); }

std::string entry_line(const LogEntry& entry, const std::string& trace_text) {
  const Candidate& c = entry.trial.candidate;
  const Measurement& m = entry.trial.measurement;
  Json point = Json::object();
  for (const auto& [name, answer] : c.point) point[name] = answer;
  Json line = {{"v", kLogVersion},
               {"kind", "trial"},
               {"task", entry.task},
               {"target", entry.device.target},
               {"threads", entry.threads},
               {"times_us", m.times_us},
               {"error", std::string(to_text(m.error))},
               {"message", m.message.substr(0, kMaxMessage)},
               {"checked", m.is_checked},
               {"max_error", std::min(m.max_error, kMaxNumber)},
               {"censored", m.is_censored},
               {"noise", m.noise},
               {"source", entry.source},
               {"sketch", c.sketch},
               {"point", std::move(point)},
               {"trace", trace_text},
               {"device", entry.device.description},
               {"seed", entry.seed},
               {"build_s", m.build_seconds},
               {"run_s", m.run_seconds},
               {"time", entry.time}};
  if (entry.source == "picked") line["estimate_us"] = entry.estimate_us;
  if (!entry.beats.empty()) line["beats"] = entry.beats;
  if (!entry.sizes.empty()) line["sizes"] = entry.sizes;
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace mcc::tuner
