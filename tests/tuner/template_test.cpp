#include "tuner/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mcc::tuner::test {
namespace {

std::vector<std::vector<int64_t>> sizes(const std::vector<Entity>& entities) {
  std::vector<std::vector<int64_t>> out;
  for (const Entity& e : entities)
    out.push_back(std::get<SplitEntity>(e).size);
  return out;
}

using testing::ElementsAre;

TEST(Templates, SplitPolicies) {
  using V = std::vector<int64_t>;
  EXPECT_THAT(sizes(split_entities(12, {})),
              ElementsAre(V{-1, 1}, V{-1, 2}, V{-1, 3}, V{-1, 4}, V{-1, 6}, V{-1, 12}));
  EXPECT_THAT(sizes(split_entities(12, {.policy = SplitPolicy::power2})),
              ElementsAre(V{-1, 1}, V{-1, 2}, V{-1, 4}, V{-1, 8}));
  EXPECT_THAT(sizes(split_entities(6, {.policy = SplitPolicy::verbose})),
              ElementsAre(V{-1, 1}, V{-1, 2}, V{-1, 3}, V{-1, 4}, V{-1, 6}));
  EXPECT_THAT(sizes(split_entities(12, {.max_factor = 3})), ElementsAre(V{-1, 1}, V{-1, 2}, V{-1, 3}));
  EXPECT_THAT(
      sizes(split_entities(12, {.policy = SplitPolicy::candidates, .candidates = {{-1, 5}, {-1, 12}}})),
      ElementsAre(V{-1, 5}, V{-1, 12}));
  auto even = [](const SplitEntity& e) { return e.size[1] % 2 == 0; };
  EXPECT_THAT(sizes(split_entities(12, {.filter = even})),
              ElementsAre(V{-1, 2}, V{-1, 4}, V{-1, 6}, V{-1, 12}));
  // Ordered factorizations into four.
  EXPECT_EQ(split_entities(1024, {.outputs = 4}).size(), 286u);
}

TEST(Templates, ReorderPolicies) {
  EXPECT_EQ(reorder_entities(3, ReorderPolicy::identity).size(), 1u);
  EXPECT_EQ(reorder_entities(4, ReorderPolicy::all).size(), 24u);
  EXPECT_EQ(reorder_entities(4, ReorderPolicy::interleave, {{0, 1}, {2, 3}}).size(), 6u);
}

TEST(Templates, AnnotatePolicies) {
  EXPECT_EQ(annotate_entities(2, AnnotatePolicy::none).size(), 1u);
  EXPECT_EQ(annotate_entities(2, AnnotatePolicy::try_unroll).size(), 3u);
  EXPECT_EQ(annotate_entities(2, AnnotatePolicy::try_vec).size(), 2u);
  EXPECT_EQ(annotate_entities(2, AnnotatePolicy::try_unroll_vec).size(), 5u);
  Entity both = AnnotateEntity{{"unroll", "vec"}};
  EXPECT_EQ(annotate_entities(2, AnnotatePolicy::try_unroll_vec)[0], both);
}

ConfigSpace some_space() {
  return {{{"tile_y", split_entities(12, {})},
           {"order", reorder_entities(3, ReorderPolicy::all)},
           {"inner", annotate_entities(2, AnnotatePolicy::try_unroll)},
           {"unroll", {OtherEntity{0}, OtherEntity{16}}}}};
}

TEST(Templates, EachConfigurationHasANumber) {
  ConfigSpace space = some_space();
  ASSERT_EQ(space.size(), 6 * 6 * 3 * 2);
  for (int64_t i = 0; i < space.size(); ++i)
    EXPECT_EQ(space.index_of(space.at(i)), i);
  Config other = space.at(5);
  other[0].second = SplitEntity{{-1, 7}};
  EXPECT_EQ(space.index_of(other), -1);
}

TEST(Templates, JsonIsAutoTvms) {
  Config config{{"tile_y", SplitEntity{{-1, 8}}},
                {"order", ReorderEntity{{1, 0}}},
                {"inner", AnnotateEntity{{"unroll", "vec"}}},
                {"auto_unroll", OtherEntity{1}}};
  std::string json = config_to_json(config);
  EXPECT_EQ(
      json,
      R"([["tile_y","sp",[-1,8]],["order","re",[1,0]],["inner","an",["unroll","vec"]],["auto_unroll","ot",1]])");
  Result<Config> read = parse_config(json);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, config);
  EXPECT_EQ(std::get<OtherEntity>((*parse_config(R"([["k","ot",true]])"))[0].second).value, 1);
}

TEST(Templates, BadJsonIsAnError) {
  for (const char* bad :
       {"", "{", "{}", "[1]", R"([["a","sp"]])", R"([["a","sp","x"]])", R"([["a","sp",[1.5]]])",
        R"([["a","zz",[1]]])", R"([["a","ot",1],["a","ot",2]])", R"([["a","an",[1]]])"}) {
    EXPECT_FALSE(parse_config(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace mcc::tuner::test
