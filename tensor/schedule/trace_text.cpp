// The text of traces: one step a line, name(field=value, ...). Fields that hold their default are left out; lines that
// are empty or start with '#' are skipped.
#include <charconv>
#include <limits>
#include <type_traits>

#include "tensor/schedule/schedule.h"

namespace mcc::tensor {
namespace {

// ---- Printing ----

std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string value_text(int64_t value) { return std::to_string(value); }
std::string value_text(const std::string& value) { return quoted(value); }
template <class T>
std::string value_text(const std::vector<T>& list) {
  std::vector<std::string> items;
  for (const T& item : list)
    items.push_back(value_text(item));
  return list_text(items);
}

struct Printer {
  std::string out;
  template <class T>
  void operator()(const char* name, const T& value) {
    if (value == T()) return;
    if (!out.empty()) out += ", ";
    out += text(name, "=", value_text(value));
  }
};

const char* name_of(const std::monostate&) { return "nothing"; }
#define X(name, Struct) \
  const char* name_of(const Struct&) { return #name; }
MCC_SCHEDULE_STEPS(X)
#undef X

// ---- Parsing ----

// Reads the text; the first error sticks.
class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  std::string place() const { return text("line ", line_, ", column ", at_ - line_start_ + 1); }
  bool at_end() const { return at_ >= source_.size(); }

  void skip_blank_lines() {
    while (!at_end()) {
      skip_spaces();
      if (peek() == '#') {
        while (!at_end() && peek() != '\n')
          ++at_;
      }
      if (peek() == '\r') ++at_;
      if (at_end() || peek() != '\n') return;
      ++at_;
      ++line_;
      line_start_ = at_;
    }
  }
  void end_of_line() {
    skip_spaces();
    if (!at_end() && peek() != '\n' && peek() != '\r' && peek() != '#') fail("expected the end of the line");
  }
  bool accept(char c) {
    skip_spaces();
    if (failed() || peek() != c || at_end()) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(text("expected '", c, "'"));
  }
  std::string word() {
    skip_spaces();
    size_t start = at_;
    while (!at_end() && (peek() == '_' || (peek() >= 'a' && peek() <= 'z')))
      ++at_;
    if (at_ == start) fail("expected a name");
    return std::string(source_.substr(start, at_ - start));
  }

  void value(int64_t& v) {
    skip_spaces();
    const char* first = source_.data() + at_;
    auto [end, code] = std::from_chars(first, source_.data() + source_.size(), v);
    if (code != std::errc()) return fail("expected an integer");
    at_ += static_cast<size_t>(end - first);
  }
  void value(std::string& v) {
    expect('"');
    v.clear();
    while (!failed()) {
      if (at_end() || peek() == '\n') return fail("expected a closing quote");
      char c = source_[at_++];
      if (c == '"') return;
      if (c == '\\') {
        if (at_end()) return fail("expected a character behind the backslash");
        c = source_[at_++];
        if (c == 'n') c = '\n';
      }
      v += c;
    }
  }
  template <class T>
  void value(std::vector<T>& list) {
    list.clear();
    expect('[');
    if (accept(']')) return;
    while (!failed()) {
      T item{};
      value(item);
      list.push_back(std::move(item));
      if (list.size() > kMaxItems) return fail(text("expected at most ", kMaxItems, " items"));
      if (accept(']')) return;
      expect(',');
    }
  }
  void fail(std::string message) {
    if (failed()) return;
    error_ = std::move(message);
    skip_spaces();
    if (at_end()) {
      error_ += ", got the end of the text";
    } else if (peek() == '\n') {
      error_ += ", got the end of the line";
    } else {
      error_ += text(", got '", peek(), "'");
    }
  }

 private:
  static constexpr size_t kMaxItems = 64;
  char peek() const { return at_end() ? '\0' : source_[at_]; }
  void skip_spaces() {
    while (!at_end() && (peek() == ' ' || peek() == '\t'))
      ++at_;
  }
  std::string_view source_;
  size_t at_ = 0, line_start_ = 0;
  int line_ = 1;
  std::string error_;
};

// Reads the value of the field of the given name.
struct FieldReader {
  Reader& reader;
  const std::string& name;
  bool found = false;
  template <class T>
  void operator()(const char* field, T& value) {
    if (name != field) return;
    found = true;
    reader.value(value);
  }
};

template <class S>
void read_fields(Reader& reader, S& step) {
  reader.expect('(');
  if (reader.accept(')')) return;
  while (!reader.failed()) {
    std::string name = reader.word();
    reader.expect('=');
    if (reader.failed()) return;
    FieldReader field{reader, name};
    step.fields(field);
    if (!field.found) return reader.fail(text("expected a field of the step, not '", name, "'"));
    if (reader.accept(')')) return;
    reader.expect(',');
  }
}

Step read_step(Reader& reader) {
  std::string name = reader.word();
  if (reader.failed()) return {};
#define X(word, Struct)        \
  if (name == #word) {         \
    Struct step;               \
    read_fields(reader, step); \
    return step;               \
  }
  MCC_SCHEDULE_STEPS(X)
#undef X
  reader.fail(text("expected the name of a step, not '", name, "'"));
  return {};
}

}  // namespace

std::string to_text(const Step& step) {
  return std::visit(
      [](auto s) {
        Printer printer;
        if constexpr (!std::is_same_v<decltype(s), std::monostate>) s.fields(printer);
        return text(name_of(s), "(", printer.out, ")");
      },
      step);
}

std::string to_text(const Trace& trace) {
  std::string out;
  for (const Step& step : trace)
    out += to_text(step) + "\n";
  return out;
}

Result<Trace> parse_trace(std::string_view source) {
  constexpr size_t kMaxSteps = 4096;
  Reader reader(source);
  Trace trace;
  for (reader.skip_blank_lines(); !reader.at_end(); reader.skip_blank_lines()) {
    Step step = read_step(reader);
    if (!reader.failed()) reader.end_of_line();
    if (!reader.failed() && trace.size() == kMaxSteps)
      reader.fail(text("expected at most ", kMaxSteps, " steps"));
    if (reader.failed()) {
      return Diagnostic{ErrorKind::bad_input, text("trace, ", reader.place()), reader.error(), ""};
    }
    trace.push_back(std::move(step));
  }
  return trace;
}

}  // namespace mcc::tensor
