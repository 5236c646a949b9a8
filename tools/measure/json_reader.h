// Documents of another process: every member's kind and size is checked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "support/text.h"

namespace mcc::tools {

// Reads members of an object and remembers the first that is wrong.
class JsonReader {
 public:
  explicit JsonReader(const nlohmann::json& object) : object_(object) {}

  double number(const char* key, double otherwise, double low, double high) {
    const nlohmann::json* value = find(key);
    if (!value) return otherwise;
    if (!value->is_number()) return fail(key, "a number"), otherwise;
    const auto x = value->get<double>();
    if (!(x >= low && x <= high)) return fail(key, text("a number from ", low, " to ", high)), otherwise;
    return x;
  }
  int64_t integer(const char* key, int64_t otherwise, int64_t low, int64_t high) {
    const nlohmann::json* value = find(key);
    if (!value) return otherwise;
    if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX))
      return fail(key, "an integer"), otherwise;
    const auto x = value->get<int64_t>();
    if (x < low || x > high) return fail(key, text("an integer from ", low, " to ", high)), otherwise;
    return x;
  }
  bool flag(const char* key) {
    const nlohmann::json* value = find(key);
    if (!value) return false;
    if (!value->is_boolean()) return fail(key, "true or false"), false;
    return value->get<bool>();
  }
  std::string string(const char* key) {
    const nlohmann::json* value = find(key);
    if (!value) return "";
    if (!value->is_string()) return fail(key, "a string"), "";
    return value->get<std::string>();
  }
  std::vector<std::string> strings(const char* key, size_t most) {
    std::vector<std::string> list;
    const nlohmann::json* value = find(key);
    if (!value) return list;
    if (!value->is_array() || value->size() > most) return fail(key, text("a list of at most ", most)), list;
    for (const nlohmann::json& item : *value) {
      if (!item.is_string()) return fail(key, "a list of strings"), list;
      list.push_back(item.get<std::string>());
    }
    return list;
  }
  const std::string& problem() const { return problem_; }
  void fail(const char* key, const std::string& expected) {
    if (problem_.empty()) problem_ = text("\"", key, "\": expected ", expected);
  }

 private:
  const nlohmann::json* find(const char* key) const {
    auto it = object_.find(key);
    return it == object_.end() ? nullptr : &*it;
  }
  const nlohmann::json& object_;
  std::string problem_;
};

}  // namespace mcc::tools
