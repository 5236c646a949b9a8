// Names of targets and what they stand for.
#include <gmock/gmock.h>

#include "codegen/codegen.h"
#include "codegen/host_gpu.h"

namespace mcc::codegen {
namespace {

using tensor::Target;
using tensor::TargetKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> archs(const std::string& list) {
  Result<std::vector<Target>> targets = make_targets(list);
  EXPECT_TRUE(targets.ok()) << list;
  std::vector<std::string> names;
  if (targets.ok())
    for (const Target& target : *targets) names.push_back(target.cpu);
  return names;
}

TEST(Target, GpusHaveTheirLimits) {
  for (const char* arch : {"sm_70", "sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a"}) {
    Result<Target> target = make_target(std::string("cuda:") + arch);
    ASSERT_TRUE(target.ok()) << arch;
    EXPECT_EQ(target->kind, TargetKind::cuda);
    EXPECT_EQ(target->cpu, arch);
    EXPECT_EQ(target->gpu.arch, arch);
    EXPECT_EQ(target->fingerprint(), std::string("nvptx64-nvidia-cuda ") + arch);
    EXPECT_GE(target->gpu.shared_per_block_max, target->gpu.shared_per_block);
    EXPECT_GE(target->gpu.shared_per_multiprocessor, target->gpu.shared_per_block_max);
    EXPECT_EQ(target->lanes(32), 4);
  }
  EXPECT_EQ(make_target("cuda:sm_90a")->gpu.sm(), 90);
  EXPECT_EQ(make_target("cuda:sm_86")->gpu.threads_per_multiprocessor, 1536);
}

TEST(Target, CudaIsTheGpuHereElseSm80) {
  Result<Target> target = make_target("cuda");
  ASSERT_TRUE(target.ok());
  if (!host_gpus().gpus.empty()) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(target->cpu, "sm_80");
}

TEST(Target, ListsAreOfGpus) {
  EXPECT_THAT(archs("cuda:sm_90,cuda:sm_80"), ElementsAre("sm_80", "sm_90"));
  EXPECT_THAT(archs("cuda:sm_80,sm_90a,sm_90,sm_80"), ElementsAre("sm_80", "sm_90", "sm_90a"));
  EXPECT_THAT(archs("cpu:x86-64-v3"), ElementsAre("x86-64-v3"));
  Result<std::vector<Target>> mixed = make_targets("cpu:x86-64-v3,cuda:sm_80");
  ASSERT_FALSE(mixed.ok());
  EXPECT_THAT(to_text(mixed.errors()), HasSubstr("a list can only name architectures of GPUs"));
  EXPECT_FALSE(make_targets("cuda:sm_80,").ok());
  EXPECT_FALSE(make_targets("sm_80").ok());
}

}  // namespace
}  // namespace mcc::codegen
