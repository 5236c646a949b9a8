#include "graph_ops/case_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace mcc::graph {
namespace {

// f32[2, 3] 1 2 3 4 5 6
Constant parse_tensor(std::istringstream& in) {
  std::string head;
  std::getline(in, head, ']');
  size_t bracket = head.find('[');
  if (bracket == std::string::npos) throw std::runtime_error("expected a type like f32[2, 3]");
  size_t start = head.find_first_not_of(' ');
  auto element = parse_element_type(head.substr(start, bracket - start));
  if (!element) throw std::runtime_error("unknown element type in " + head);
  std::vector<int64_t> shape;
  std::istringstream dims(head.substr(bracket + 1));
  for (std::string d; std::getline(dims, d, ',');) {
    if (d.find_first_not_of(' ') != std::string::npos) shape.push_back(std::stoll(d));
  }
  std::vector<std::byte> bytes;
  int64_t count = 1;
  for (int64_t d : shape)
    count *= d;
  for (int64_t k = 0; k < count; ++k) {
    std::string word;
    if (!(in >> word)) throw std::runtime_error("too few numbers for " + head + "]");
    if (is_int(*element) && bit_width(*element) == 64) {
      uint64_t value = word[0] == '-' ? static_cast<uint64_t>(std::stoll(word)) : std::stoull(word);
      const auto* raw = reinterpret_cast<const std::byte*>(&value);
      bytes.insert(bytes.end(), raw, raw + sizeof value);
    } else {
      Constant one = Constant::scalar(*element, std::stod(word));
      bytes.insert(bytes.end(), one.bytes().begin(), one.bytes().end());
    }
  }
  std::string rest;
  if (in >> rest) throw std::runtime_error("too many numbers for " + head + "]");
  return Constant::copy_of(*element, shape, bytes);
}

template <class T>
std::vector<T> parse_list(std::istringstream& in) {
  std::vector<T> values;
  for (T value; in >> value;)
    values.push_back(value);
  return values;
}

Attribute parse_attribute(std::istringstream& in) {
  std::string kind;
  in >> kind;
  if (kind == "int") return parse_list<int64_t>(in).at(0);
  if (kind == "float") return parse_list<double>(in).at(0);
  if (kind == "text") return parse_list<std::string>(in).at(0);
  if (kind == "ints") return parse_list<int64_t>(in);
  if (kind == "floats") return parse_list<double>(in);
  if (kind == "texts") return parse_list<std::string>(in);
  if (kind == "tensor") return parse_tensor(in);
  throw std::runtime_error("unknown kind of attribute: " + kind);
}

std::string rest_of(std::istringstream& in) {
  std::string rest;
  std::getline(in >> std::ws, rest);
  return rest;
}

void parse_line(const std::string& key, std::istringstream& in, OpCase& c) {
  if (key == "op") {
    in >> c.op;
    if (size_t dot = c.op.rfind('.'); dot != std::string::npos) {
      c.domain = c.op.substr(0, dot);
      c.op = c.op.substr(dot + 1);
    }
  } else if (key == "attr") {
    std::string name;
    in >> name;
    c.attributes.set(name, parse_attribute(in));
  } else if (key == "in" || key == "const") {
    c.inputs.push_back({true, key == "const", parse_tensor(in)});
  } else if (key == "none") {
    c.inputs.push_back({false, false, {}});
  } else if (key == "out") {
    c.outputs.emplace_back(parse_tensor(in));
  } else if (key == "skip") {
    c.outputs.emplace_back(std::nullopt);
  } else if (key == "tolerance") {
    in >> c.tolerance;
  } else if (key == "error") {
    in >> c.error_kind;
    c.error_text = rest_of(in);
  } else {
    throw std::runtime_error("unknown line: " + key);
  }
}

void read_file(const std::filesystem::path& path, std::vector<OpCase>& cases) {
  std::ifstream file(path);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream in(line);
    std::string key;
    if (!(in >> key) || key[0] == '#') continue;
    try {
      if (key == "case") {
        cases.emplace_back();
        cases.back().file = path.stem().string();
        cases.back().line = number;
        cases.back().name = rest_of(in);
      } else if (cases.empty()) {
        throw std::runtime_error("expected a case");
      } else {
        parse_line(key, in, cases.back());
      }
    } catch (const std::exception& e) {
      throw std::runtime_error(path.filename().string() + ":" + std::to_string(number) + ": " + e.what());
    }
  }
}

}  // namespace

std::vector<OpCase> read_op_cases(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".txt") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<OpCase> cases;
  for (const auto& path : paths)
    read_file(path, cases);
  return cases;
}

}  // namespace mcc::graph
