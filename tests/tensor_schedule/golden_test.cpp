// Each file of data/ is a function, a trace, and the function after it or the refusal. MCC_UPDATE=1 rewrites the last.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tensor/schedule/schedule.h"
#include "tensor/text.h"
#include "tensor/verify.h"

namespace mcc::tensor {
namespace {

const char* const kFolder = MCC_SOURCE_DIR "/tests/tensor_schedule/data";

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// "=== NAME" lines part the file.
struct Golden {
  std::string func, trace, expected;
};

Golden read_golden(const std::filesystem::path& path) {
  Golden golden;
  std::string* section = nullptr;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    if (line == "=== func") {
      section = &golden.func;
    } else if (line == "=== trace") {
      section = &golden.trace;
    } else if (line == "=== result") {
      section = &golden.expected;
    } else if (section != nullptr) {
      *section += line + "\n";
    }
  }
  return golden;
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class ScheduleGolden : public testing::TestWithParam<std::string> {};

TEST_P(ScheduleGolden, Replays) {
  std::filesystem::path path = std::filesystem::path(kFolder) / (GetParam() + ".txt");
  Golden golden = read_golden(path);
  Result<Func> func = parse_func(golden.func, path.string());
  ASSERT_TRUE(func.ok()) << to_text(func.errors());
  ASSERT_THAT(verify(*func, Stage::blocks), testing::ElementsAre()) << "before the trace";
  Result<Trace> trace = parse_trace(golden.trace);
  ASSERT_TRUE(trace.ok()) << to_text(trace.errors());

  Schedule schedule(*func);
  Outcome outcome = schedule.replay(*trace);
  std::string got =
      outcome ? to_text(schedule.func()) : text("refused: ", to_text(outcome.code), ": ", outcome.detail);
  if (got.empty() || got.back() != '\n') got += '\n';
  EXPECT_THAT(verify(schedule.func(), Stage::blocks), testing::ElementsAre());
  if (std::getenv("MCC_UPDATE") != nullptr) {
    std::ofstream(path) << "=== func\n"
                        << golden.func << "=== trace\n"
                        << golden.trace << "=== result\n"
                        << got;
    return;
  }
  EXPECT_EQ(got, golden.expected);
}

INSTANTIATE_TEST_SUITE_P(Data, ScheduleGolden, testing::ValuesIn(golden_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace mcc::tensor
