#include "frontend/isolated.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <new>

namespace mcc::frontend {
namespace {

TEST(Isolated, GivesWhatTheFunctionReturns) {
  EXPECT_EQ(run_isolated([] { return std::string("a\0b", 3); }, {}), std::string("a\0b", 3));
}

TEST(Isolated, GivesNothingAfterACrash) {
  EXPECT_EQ(run_isolated([]() -> std::string { ::abort(); }, {}), std::nullopt);
}

// Leaves a file when it is destroyed in another process than the one that made it.
class Witness {
 public:
  explicit Witness(std::string path) : path_(std::move(path)) {}
  ~Witness() {
    if (::getpid() != made_in_) std::ofstream(path_) << "unwound";
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  pid_t made_in_ = ::getpid();
};

TEST(Isolated, ThrowsNothingThroughTheCaller) {
  const Witness witness(testing::TempDir() + "mcc_isolated_" + std::to_string(::getpid()));
  EXPECT_EQ(run_isolated([]() -> std::string { throw std::bad_alloc(); }, {}), std::nullopt);
  EXPECT_FALSE(std::filesystem::exists(witness.path()));
}

}  // namespace
}  // namespace mcc::frontend
