// Blocks that do several things for each of their places, in loops of their own.
#include <gtest/gtest.h>

#include <algorithm>

#include "schedules/optimized_kernels.h"
#include "tensor/text.h"
#include "tuner/default_schedule.h"

namespace mcc::test {
namespace {

tensor::Target machine() {
  tensor::Target t;
  t.cores = 4;
  t.fork_us = 5;
  return t;
}

// Threads take places of the block that are far from one another, or all of them are one thread's.
bool is_parallel(const std::string& source, const std::string& block) {
  const std::vector<tensor::Func> kernels = kernels_of(source, machine());
  EXPECT_EQ(kernels.size(), 1u);
  const tensor::Schedule schedule = tuner::default_schedule(kernels[0], machine());
  const std::vector<const tensor::For*> loops = schedule.loops_of(block);
  return std::any_of(loops.begin(), loops.end(),
                     [](const tensor::For* l) { return l->loop == tensor::LoopKind::parallel; });
}

std::string boxes(int64_t boxes, int64_t classes) {
  return text("graph g(%b: f32[1, ", boxes, ", 4], %s: f32[1, ", classes, ", ", boxes,
              "], %m: i64[1]) {\n  %y, %n = mcc.SelectBoxes(%b, %s, %m)\n  return %y, %n\n}\n");
}

TEST(Sequence, PlacesOfMuchWorkAreParallel) {
  EXPECT_TRUE(is_parallel(boxes(8400, 80), "collect"));
  EXPECT_FALSE(is_parallel(boxes(20, 2), "collect"));
}

TEST(Sequence, StepsOneAfterTheOtherAreNot) {
  EXPECT_FALSE(is_parallel(
      "graph g(%x: f32[500000]) {\n  %y, %i, %v, %c, %n = mcc.Unique(%x)\n  return %y, %n\n}\n", "sort"));
}

// Lanes of the vectorized loop around a block; 0 if there is none.
int64_t lanes_of(const std::string& source, const std::string& block) {
  const std::vector<tensor::Func> kernels = kernels_of(source, machine());
  EXPECT_EQ(kernels.size(), 1u);
  const tensor::Schedule schedule = tuner::default_schedule(kernels[0], machine());
  for (const tensor::For* loop : schedule.loops_of(block)) {
    int64_t lanes = 0;
    if (loop->loop == tensor::LoopKind::vectorized && tensor::as_int(loop->extent, &lanes)) return lanes;
  }
  return 0;
}

// Two heads with a state [16, value] each.
std::string linear_attention(int64_t value) {
  return text("graph g(%q: f32[1, 9, 32], %k: f32[1, 9, 32], %v: f32[1, 9, ", 2 * value,
              "], %s: f32[1, 2, 16, ", value,
              "]) {\n  %y, %n = LinearAttention(%q, %k, %v, %s) {kv_num_heads = 2, q_num_heads = 2, "
              "update_rule = \"linear\"}\n"
              "  return %y, %n\n}\n");
}

TEST(Sequence, NeighboursThatDoTheSameAreVectors) {
  EXPECT_EQ(lanes_of(linear_attention(128), "steps"), 64);
  EXPECT_EQ(lanes_of(linear_attention(96), "steps"), 48);
  EXPECT_EQ(lanes_of(linear_attention(16), "steps"), 16);
  EXPECT_EQ(lanes_of(linear_attention(20), "steps"), 0);
  EXPECT_EQ(lanes_of(boxes(8400, 64), "collect"), 0);
}

// Lines that are contiguous are gone through by themselves, some at a time.
TEST(Lines, AreOutsideOfTheirSteps) {
  const std::vector<tensor::Func> kernels = kernels_of(
      "graph g(%x: f32[40, 150]) {\n  %a: i64[] = [1]\n  %y = CumSum(%x, %a)\n  return %y\n}\n", machine());
  ASSERT_EQ(kernels.size(), 1u);
  const tensor::Schedule schedule = tuner::default_schedule(kernels[0], machine());
  const std::vector<const tensor::For*> loops = schedule.loops_of("scan");
  ASSERT_EQ(loops.size(), 3u);
  int64_t steps = 0;
  EXPECT_TRUE(tensor::as_int(loops[1]->extent, &steps) && steps == 150) << tensor::to_text(schedule.func());
  EXPECT_EQ(loops[2]->loop, tensor::LoopKind::unrolled);
}

}  // namespace
}  // namespace mcc::test
