// Test data in files. With MCC_UPDATE=1 in the environment goldens are rewritten instead of compared; a person reads
// the difference before it is committed.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace mcc {

// Path of a file below tests/.
inline std::string test_data(const std::string& relative) {
  return std::string(MCC_SOURCE_DIR) + "/tests/" + relative;
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << "cannot read " << path;
  std::stringstream content;
  content << in.rdbuf();
  return content.str();
}

// Compares with the file (relative to tests/), or rewrites it.
inline void expect_golden(const std::string& relative, const std::string& actual) {
  std::string path = test_data(relative);
  const char* update = std::getenv("MCC_UPDATE");
  if (update && std::string(update) == "1") {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << actual;
    return;
  }
  EXPECT_EQ(actual, read_file(path)) << "MCC_UPDATE=1 rewrites " << path;
}

}  // namespace mcc
