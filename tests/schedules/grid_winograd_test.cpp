// Winograd's convolutions on the grid: tiles that images do not fill, padding on some sides, several images, residuals.
#include <gtest/gtest.h>

#include <regex>

#include "graph/graph_text.h"
#include "graph/passes/fuse.h"
#include "schedules/grid_cases.h"
#include "schedules/run_func.h"
#include "tensor/passes/merge_axes.h"
#include "tensor/sizes.h"
#include "tuner/default_schedule.h"
#include "tuner/grid_rules.h"
#include "tuner/random.h"

namespace mcc::test {
namespace {

using namespace tensor;

struct Problem {
  const char* name;
  int64_t images, in, out, height, width;
  int64_t pads[4];
};
void PrintTo(const Problem& p, std::ostream* out) { *out << p.name; }

// relu(convolution + residual)
Func winograd(const Problem& p, int64_t tile) {
  const int64_t height = p.height + p.pads[0] + p.pads[2] - 2, width = p.width + p.pads[1] + p.pads[3] - 2;
  const std::string pads = text(p.pads[0], ", ", p.pads[1], ", ", p.pads[2], ", ", p.pads[3]);
  graph::Graph g = graph::test::parse_graph(
      text("graph g(%x: f32[", p.images, ", ", p.in, ", ", p.height, ", ", p.width, "], %u: f32[1, ",
           tile + 2, ", ", tile + 2, ", ", p.in, ", ", p.out, "], %r: f32[", p.images, ", ", p.out, ", ",
           height, ", ", width, "]) {\n  %b: f32[", p.out,
           "] random\n  %c = mcc.Winograd(%x, %u, %b) {tile = ", tile, ", channels = ", p.out, ", pads = [",
           pads, "]}\n  %s = Add(%c, %r)\n  %y = Relu(%s)\n  return %y\n}\n"));
  const std::vector<graph::KernelGroup> groups = graph::fuse(g);
  EXPECT_EQ(groups.size(), 1u);
  return merge_axes(graph::build_kernel(g, groups[0]));
}

// Takes any answers but for the order of the products and the parts of their sums.
class AnyDecider : public tuner::PreferredDecider {
 public:
  AnyDecider(uint64_t seed, int64_t by_tiles, bool in_parts)
      : random_(seed), by_tiles_(by_tiles), in_parts_(in_parts) {}
  tuner::Answer answer(const tuner::Choice& choice, const tuner::Answer&) override {
    ++asked;
    if (choice.name.ends_with(".by_tiles")) return {by_tiles_};
    if (choice.name.ends_with(".parts")) return {in_parts_ ? choice.options.back() : 1};
    return {choice.options[static_cast<size_t>(random_.below(static_cast<int64_t>(choice.options.size())))]};
  }
  int asked = 0;

 private:
  tuner::Random random_;
  int64_t by_tiles_;
  bool in_parts_;
};

class GridWinograd : public ::testing::TestWithParam<Problem> {};

TEST_P(GridWinograd, IsRightInAnyForm) {
  Target target;
  target.kind = TargetKind::cuda;
  target.vector_bits = 128;
  target.gpu = *find_gpu("sm_80");
  for (int64_t tile : {2, 4}) {
    Func f = winograd(GetParam(), tile);
    std::vector<graph::Constant> want = run(f, f);
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const bool in_parts = seed == 3;
      AnyDecider decide(seed, static_cast<int64_t>(seed % 2), in_parts);
      tuner::Draft draft{Schedule(f), decide, target};
      tuner::apply_grid_rules(draft);
      ASSERT_TRUE(draft.refusal) << draft.refusal.detail;
      SCOPED_TRACE(text(to_text(f), to_text(draft.schedule.trace())));
      EXPECT_GE(decide.asked, 4);
      ASSERT_NE(draft.schedule.find_block("product.tile"), nullptr) << "another rule took it";
      Func lowered = lower(draft.schedule.func(), target);
      std::vector<std::string> broken = verify_launches(lowered, target.gpu);
      ASSERT_TRUE(broken.empty()) << broken[0] << to_text(lowered);
      const std::string code = to_text(lowered), grid = "@{thread=\"block.x\"}";
      size_t launches = 0;
      for (size_t at = code.find(grid); at != std::string::npos; at = code.find(grid, at + 1))
        ++launches;
      EXPECT_EQ(launches, 3u) << "parts of sums are added up where they are transformed";
      // What a thread has of a tile is in its registers.
      EXPECT_FALSE(
          std::regex_search(code, std::regex("alloc (pad|rows|product|product.tile|sums): [^ ]* local")))
          << code;
      graph::test::expect_close(run(lowered, f), want, 1e-4);
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Problems, GridWinograd,
                         ::testing::Values(Problem{"whole_tiles", 1, 4, 8, 10, 14, {0, 0, 0, 0}},
                                           Problem{"odd_extents", 1, 5, 7, 9, 11, {1, 1, 1, 1}},
                                           Problem{"two_images", 2, 3, 6, 6, 7, {1, 1, 1, 1}},
                                           Problem{"padding_on_some_sides", 1, 6, 9, 8, 7, {0, 2, 1, 0}},
                                           Problem{"long_sums", 1, 64, 5, 5, 6, {1, 1, 1, 1}}),
                         [](const auto& info) { return std::string(info.param.name); });

// Of any batch, or any picture: one schedule that is right at every size, in as many launches.
struct OpenProblem {
  const char* name;
  const char* shape;  // of the input
  const char* pads;
  std::vector<std::vector<int64_t>> sizes;  // of the open dimensions
};
void PrintTo(const OpenProblem& p, std::ostream* out) { *out << p.name; }

class GridOpenWinograd : public ::testing::TestWithParam<OpenProblem> {};

TEST_P(GridOpenWinograd, IsThreeLaunchesAtEverySize) {
  const OpenProblem& p = GetParam();
  const Target target = gpu_target("sm_80");
  for (int64_t tile : {2, 4}) {
    const Func f = fused_kernel(text("graph g(%x: f32[", p.shape, "], %u: f32[1, ", tile + 2, ", ", tile + 2,
                                     ", 5, 6], %r: f32[1, 6, 1, 1]) {\n",
                                     "  %b: f32[6] random\n  %c = mcc.Winograd(%x, %u, %b) {tile = ", tile,
                                     ", channels = 6, pads = [", p.pads,
                                     "]}\n  %s = Mul(%c, %r)\n  %y = Relu(%s)\n  return %y\n}\n"));
    ASSERT_FALSE(f.dims.empty());
    const tuner::DefaultSchedule made = tuner::explained_default_schedule(f, target);
    ASSERT_FALSE(made.is_plain);
    SCOPED_TRACE(to_text(f) + to_text(made.schedule.trace()));
    ASSERT_NE(made.schedule.find_block("product.tile"), nullptr) << "another rule took it";
    const Func lowered = lower(made.schedule.func(), target);
    const std::vector<std::string> broken = verify(lowered, Stage::lowered);
    ASSERT_TRUE(broken.empty()) << broken[0];
    EXPECT_EQ(launches_of(lowered), 3);
    for (const std::vector<int64_t>& sizes : p.sizes) {
      ASSERT_EQ(sizes.size(), f.dims.size());
      const Func instance = with_sizes(f, sizes);
      const std::vector<std::string> excess = verify_launches(with_sizes(lowered, sizes), target.gpu);
      EXPECT_TRUE(excess.empty()) << excess[0];
      graph::test::expect_close(run_at(lowered, sizes, instance), run(instance, instance), 1e-4);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Problems, GridOpenWinograd,
    ::testing::Values(
        OpenProblem{"batch", "N, 5, 9, 11", "1, 1, 1, 1", {{1}, {2}, {3}, {7}}},
        OpenProblem{"batch_of_whole_tiles", "N, 5, 10, 10", "0, 0, 0, 0", {{1}, {2}, {3}}},
        OpenProblem{"pictures", "N, 5, H, W", "1, 1, 1, 1", {{1, 1, 1}, {2, 7, 9}, {1, 3, 16}, {3, 5, 4}}},
        OpenProblem{"height", "2, 5, H, 7", "0, 2, 1, 0", {{2}, {9}}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mcc::test
