// Which random numbers a run gives: seeds of sessions and of nodes, streams, executions.
#include <gmock/gmock.h>

#include <array>
#include <cstddef>

#include "runtime/test_model.h"

namespace mcc::test {
namespace {

using testing::HasSubstr;
using Words = std::array<uint64_t, 2>;

struct DrawModel : TestModel {
  PlanNode& add_draw(const std::string& name, uint32_t stream, std::optional<uint64_t> seed = {}) {
    const mcc_plan_draw draw{seed.value_or(0), seed ? 1u : 0u, stream};
    PlanNode node;
    node.kind = MCC_NODE_draw;
    node.args = {add_output(name, {2}, MCC_DTYPE_i64)};
    node.output_count = 1;
    node.attributes.assign(reinterpret_cast<const char*>(&draw), sizeof draw);
    node.name = "draw";
    plan.graphs[0].nodes.push_back(node);
    return plan.graphs[0].nodes.back();
  }
};

Words next(Session& session, const std::string& name) {
  session.run();
  Words words{};
  std::memcpy(words.data(), session.output(name).data, sizeof words);
  return words;
}

SessionOptions with_seed(std::optional<uint64_t> seed) {
  SessionOptions options;
  options.threads = 1;
  options.seed = seed;
  return options;
}

TEST(Draw, CountsTheExecutionsOfASession) {
  DrawModel description;
  description.add_draw("y", 3);
  const Model model(description.image());
  Session session(model, with_seed(42));
  for (uint64_t k = 0; k < 3; ++k)
    EXPECT_EQ(next(session, "y"), (Words{42, uint64_t{3} << 40 | k}));
  Session again(model, with_seed(42));
  EXPECT_EQ(next(again, "y"), (Words{42, uint64_t{3} << 40}));
}

TEST(Draw, SeedsOfNodesGoBeforeThoseOfSessions) {
  DrawModel description;
  description.add_draw("y", 0, 7);
  description.add_draw("z", 1, 0);
  description.add_draw("own", 2);
  const Model model(description.image());
  Session session(model, with_seed(42));
  EXPECT_EQ(next(session, "y")[0], 7u);
  EXPECT_EQ(next(session, "z")[0], 0u);
  EXPECT_EQ(next(session, "own")[0], 42u);
}

TEST(Draw, SessionsWithoutASeedHaveOneOfTheirOwn) {
  DrawModel description;
  description.add_draw("y", 0);
  const Model model(description.image());
  Session a(model, with_seed({})), b(model, with_seed({})), zero(model, with_seed(0));
  const uint64_t first = next(a, "y")[0];
  EXPECT_NE(first, next(b, "y")[0]);
  EXPECT_NE(first, 0u);
  EXPECT_EQ(next(a, "y")[0], first);
  EXPECT_EQ(next(zero, "y")[0], 0u);
}

// Programs that were compiled before there were seeds have shorter options.
TEST(Draw, ShorterOptionsHaveNoSeed) {
  DrawModel description;
  description.add_draw("y", 0);
  const Model model(description.image());
  mcc_session_options options = {};
  options.struct_size = offsetof(mcc_session_options, has_seed);
  options.has_seed = 1;
  options.seed = 42;
  mcc_session* session = nullptr;
  mcc_error error;
  ASSERT_EQ(mcc_session_create(model.handle(), &options, &session, &error), MCC_OK) << error.message;
  ASSERT_EQ(mcc_session_run(session, &error), MCC_OK);
  mcc_tensor words = {};
  ASSERT_EQ(mcc_session_output(session, 0, &words, &error), MCC_OK);
  EXPECT_NE(static_cast<const uint64_t*>(words.data)[0], 42u);
  mcc_session_destroy(session);
}

TEST(Draw, DamagedNodesAreRefused) {
  const auto refusal = [](void (*damage)(PlanNode&, DrawModel&)) {
    DrawModel description;
    damage(description.add_draw("y", 0), description);
    try {
      const Model model(description.image());
    } catch (const runtime::Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(refusal([](PlanNode&, DrawModel&) {}), "none");
  EXPECT_THAT(refusal([](PlanNode& node, DrawModel&) { node.attributes.pop_back(); }),
              HasSubstr("the target of node 0"));
  EXPECT_THAT(refusal([](PlanNode& node, DrawModel&) { node.output_count = 0; }),
              HasSubstr("the target of node 0"));
  EXPECT_THAT(refusal([](PlanNode& node, DrawModel& m) { m.plan.values[node.args[0]].dims = {1}; }),
              HasSubstr("the target of node 0"));
  EXPECT_THAT(
      refusal([](PlanNode& node, DrawModel& m) { m.plan.values[node.args[0]].dtype = MCC_DTYPE_f32; }),
      HasSubstr("the target of node 0"));
  EXPECT_THAT(refusal([](PlanNode& node, DrawModel&) { node.args.clear(), node.output_count = 0; }),
              HasSubstr("the target of node 0"));
}

}  // namespace
}  // namespace mcc::test
