// What tests of graph passes share: comparing results, and the cases of a data file.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "golden.h"
#include "graph/graph_text.h"

namespace mcc::graph::test {

inline bool is_close(double got, double want, double tolerance) {
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want);
  return got == want || std::fabs(got - want) <= tolerance * (1 + std::fabs(want));
}

inline void expect_close(const std::vector<Constant>& got, const std::vector<Constant>& want,
                         double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < want.size(); ++k) {
    ASSERT_EQ(to_text(got[k].type()), to_text(want[k].type()));
    for (int64_t i = 0; i < want[k].count(); ++i) {
      double g = got[k].number_at(i), w = want[k].number_at(i);
      ASSERT_TRUE(is_close(g, w, tolerance))
          << "output " << k << ", element " << i << ": got " << g << ", expected " << w;
    }
  }
}

inline std::string data_path(const std::string& pass) { return test_data("graph/data/" + pass + ".txt"); }

// Compares with the case's expectation, or rewrites it in its file.
inline void expect_case(const Case& c, const std::string& actual) {
  if (const char* update = std::getenv("MCC_UPDATE"); update && std::string(update) == "1") {
    std::vector<Case> cases = read_cases(data_path(c.file));
    for (Case& other : cases)
      if (other.name == c.name) other.expected = actual;
    write_cases(data_path(c.file), cases);
  } else {
    EXPECT_EQ(actual, c.expected) << "MCC_UPDATE=1 rewrites " << data_path(c.file);
  }
}

inline std::string test_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.file + "_" + info.param.name;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char ch) { return !std::isalnum(ch); }, '_');
  return name;
}

}  // namespace mcc::graph::test
