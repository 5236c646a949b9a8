#include "graph/graph_text.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

#include "graph/op.h"

namespace mcc::graph::test {
namespace {

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

// One line of a graph, read from left to right.
class Line {
 public:
  explicit Line(const std::string& text) : text_(text) {}

  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])))
      ++at_;
  }
  bool at_end() {
    skip_space();
    return at_ == text_.size();
  }
  bool take(const std::string& token) {
    skip_space();
    if (text_.compare(at_, token.size(), token) != 0) return false;
    at_ += token.size();
    return true;
  }
  void need(const std::string& token) {
    if (!take(token)) fail("expected '" + token + "' at '" + text_.substr(at_) + "'");
  }
  // Letters, digits, and what stands in names and numbers.
  std::string word() {
    skip_space();
    size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) ||
                                  std::string("_.+-#/").find(text_[at_]) != std::string::npos)) {
      ++at_;
    }
    if (begin == at_) fail("expected a word at '" + text_.substr(at_) + "'");
    return text_.substr(begin, at_ - begin);
  }
  std::string until(char end) {
    size_t begin = at_;
    at_ = text_.find(end, at_);
    if (at_ == std::string::npos) fail(std::string("expected '") + end + "'");
    return text_.substr(begin, at_++ - begin);
  }
  template <class Item>
  void list(const std::string& open, const std::string& close, Item item) {
    need(open);
    if (take(close)) return;
    do {
      item();
    } while (take(","));
    need(close);
  }

 private:
  const std::string& text_;
  size_t at_ = 0;
};

bool is_number_of_floats(const std::string& word) { return word.find_first_of(".en") != std::string::npos; }

uint64_t hash(const std::string& s) {
  uint64_t h = 14695981039346656037U;
  for (char c : s)
    h = (h ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return h;
}

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

Constant from_numbers(const TensorType& type, const std::vector<double>& values) {
  std::vector<std::byte> bytes;
  for (double v : values) {
    Constant one = Constant::scalar(type.element, v);
    bytes.insert(bytes.end(), one.bytes().begin(), one.bytes().end());
  }
  return Constant::copy_of(type.element, static_shape(type.shape), bytes);
}

class Parser {
 public:
  Graph run(const std::string& text) {
    std::istringstream in(text);
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      try {
        Line l(line);
        if (!l.at_end()) parse_line(l);
      } catch (const std::exception& e) {
        fail("line " + std::to_string(number) + ": " + e.what() + "\n" + line);
      }
    }
    return std::move(g_);
  }

 private:
  void parse_line(Line& l) {
    if (l.take("graph ")) return parse_head(l);
    if (l.take("}")) return;
    if (l.take("return ")) {
      do {
        g_.outputs.push_back(operand(l));
      } while (l.take(","));
      return;
    }
    std::vector<std::string> names;
    do {
      names.push_back(l.take("_") ? "" : name(l));
    } while (l.take(","));
    if (l.take(":")) return parse_constant(l, names[0]);
    l.need("=");
    parse_node(l, names);
  }

  std::string name(Line& l) {
    l.need("%");
    return l.word();
  }

  ValueId operand(Line& l) {
    if (l.take("_")) return kNoValue;
    std::string n = name(l);
    auto it = values_.find(n);
    if (it == values_.end()) fail("no value %" + n);
    return it->second;
  }

  TensorType type(Line& l) {
    TensorType t;
    std::string element = l.word();
    auto parsed = parse_element_type(element);
    if (!parsed) fail("no element type " + element);
    t.element = *parsed;
    l.list("[", "]", [&] { t.shape.push_back(dim(l.word())); });
    return t;
  }

  Expr dim(const std::string& word) {
    if (std::isdigit(static_cast<unsigned char>(word[0]))) return Expr(int64_t{std::stoll(word)});
    return g_.dim(word, {1, 1 << 20});
  }

  void parse_head(Line& l) {
    g_.name = l.word();
    l.list("(", ")", [&] {
      std::string n = name(l);
      l.need(":");
      g_.inputs.push_back(values_[n] = g_.add_value(n, type(l)));
    });
    l.need("{");
  }

  void parse_constant(Line& l, const std::string& n) {
    TensorType t = type(l);
    Constant c;
    if (l.take("random")) {
      double low = -1, high = 1;
      if (!l.at_end()) {
        low = std::stod(l.word());
        high = std::stod(l.word());
      }
      c = random_constant(t, n, low, high);
    } else {
      std::vector<double> values;
      l.need("=");
      l.list("[", "]", [&] { values.push_back(std::stod(l.word())); });
      if (static_cast<int64_t>(values.size()) != static_count(t.shape)) fail("wrong number of values");
      c = from_numbers(t, values);
    }
    values_[n] = g_.add_constant(n, c);
  }

  Attribute attribute(Line& l) {
    if (l.take("\"")) return l.until('"');
    if (!l.take("[")) {
      std::string w = l.word();
      if (is_number_of_floats(w)) return std::stod(w);
      return int64_t{std::stoll(w)};
    }
    std::vector<std::string> words;
    if (!l.take("]")) {
      do {
        words.push_back(l.word());
      } while (l.take(","));
      l.need("]");
    }
    if (std::any_of(words.begin(), words.end(), is_number_of_floats)) {
      std::vector<double> values;
      for (const std::string& w : words)
        values.push_back(std::stod(w));
      return values;
    }
    std::vector<int64_t> values;
    for (const std::string& w : words)
      values.push_back(std::stoll(w));
    return values;
  }

  void parse_node(Line& l, const std::vector<std::string>& names) {
    std::string op = l.word(), domain;
    if (size_t dot = op.rfind('.'); dot != std::string::npos) {
      domain = op.substr(0, dot);
      op = op.substr(dot + 1);
    }
    const OpDef* def = find_op(domain, op);
    if (!def) fail("no operator " + op);
    std::vector<ValueId> inputs;
    l.list("(", ")", [&] { inputs.push_back(operand(l)); });
    Attributes attributes;
    if (!l.at_end()) {
      l.list("{", "}", [&] {
        std::string key = l.word();
        l.need("=");
        attributes.set(key, attribute(l));
      });
    }
    const std::string& own =
        *std::find_if(names.begin(), names.end(), [](const auto& n) { return !n.empty(); });
    NodeId id = g_.add_node(*def, own, inputs, attributes, std::vector<TensorType>(names.size()));
    g_.node(id).origins = {own};
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) {
        g_.node(id).outputs[i] = kNoValue;
      } else {
        g_.value(g_.node(id).outputs[i]).name = names[i];
        values_[names[i]] = g_.node(id).outputs[i];
      }
    }
    Result<std::vector<TensorType>> types = infer_types(g_, g_.node(id));
    if (!types.ok()) fail(to_text(types.errors()));
    for (size_t i = 0; i < names.size(); ++i)
      if (!names[i].empty()) g_.value(g_.node(id).outputs[i]).type = (*types)[i];
  }

  Graph g_;
  std::map<std::string, ValueId> values_;
};

}  // namespace

Graph parse_graph(const std::string& text) { return Parser().run(text); }

Constant random_constant(const TensorType& type, const std::string& seed, double low, double high) {
  std::vector<double> values;
  uint64_t start = hash(seed);
  for (int64_t i = 0; i < static_count(type.shape); ++i) {
    uint64_t bits = mix(start + static_cast<uint64_t>(i));
    if (is_float(type.element)) {
      values.push_back(low + (high - low) * static_cast<double>(bits >> 40) / static_cast<double>(1 << 24));
    } else {
      values.push_back(static_cast<double>(is_bool(type.element) ? bits % 2 : bits % 4));
    }
  }
  return from_numbers(type, values);
}

std::vector<Constant> random_inputs(const Graph& graph) {
  std::vector<Constant> inputs;
  for (ValueId v : graph.inputs)
    inputs.push_back(random_constant(graph.value(v).type, graph.value(v).name));
  return inputs;
}

std::vector<Case> read_cases(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail("cannot read " + path);
  std::vector<Case> cases;
  std::string* part = nullptr;
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("== ", 0) == 0) {
      cases.emplace_back();
      cases.back().file = std::filesystem::path(path).stem().string();
      cases.back().name = line.substr(3);
      part = nullptr;
    } else if (cases.empty()) {
      fail(path + ": expected '== name'");
    } else if (line.rfind("option ", 0) == 0) {
      cases.back().options.push_back(line.substr(7));
    } else if (line == "--") {
      part = &cases.back().expected;
    } else {
      if (!part) part = &cases.back().graph;
      *part += line + "\n";
    }
  }
  return cases;
}

void write_cases(const std::string& path, const std::vector<Case>& cases) {
  std::ofstream out(path, std::ios::binary);
  for (const Case& c : cases) {
    out << "== " << c.name << "\n";
    for (const std::string& option : c.options)
      out << "option " << option << "\n";
    out << c.graph << "--\n" << c.expected;
  }
}

}  // namespace mcc::graph::test
