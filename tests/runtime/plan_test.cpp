// Damaged plans: an error, never a crash. Run with sanitizers, these tests also see reads outside of the plan.
#include "runtime/plan.h"

#include <random>

#include "runtime/test_model.h"

// A damaged plan may ask for more memory than there is: that is for the runtime to answer, not for the sanitizer.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:max_allocation_size_mb=64";
}
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return __asan_default_options(); }

namespace mcc::test {
namespace {

int32_t do_nothing(void* const*, const int64_t*, mcc_executor*) { return 0; }

int32_t leave_outputs(mcc_host_call*) { return 0; }

// Something of every section: symbols, shape code, sub-graphs, host functions, names, attributes.
void make_rich(TestModel& model) {
  PlanDesc& plan = model.plan;
  plan.symbols = {{"N", 1, 64}};
  plan.slot_count = 4;
  plan.heap_count = 1;
  plan.graphs.resize(3);
  plan.graphs[0].code = {{MCC_SHAPE_mul, 1, slot_quantity(0), 12, 0, "size of x"},
                         {MCC_SHAPE_add, 2, slot_quantity(1), 64, 0, ""},
                         {MCC_SHAPE_check, MCC_PLAN_NONE, slot_quantity(0), 0, 0, "N must not be 0"},
                         {MCC_SHAPE_grow, MCC_PLAN_NONE, 0, slot_quantity(1), 8, "h"}};
  plan.arena_size = slot_quantity(2);
  plan.scratch_per_thread = 100;
  plan.features = {"sse3"};
  plan.metadata = {{"target", "cpu"}, {"mcc.version", "test"}};
  model.weights = {1, 2, 3};
  const uint32_t x = model.add_input("x", {slot_quantity(0), 3});
  const uint32_t flag = model.add_input("flag", {}, MCC_DTYPE_bool);
  const uint32_t y = model.add_output("y", {slot_quantity(0), 3});
  const uint32_t w = model.add_value({"w", MCC_DTYPE_f32, {3}, MCC_STORAGE_weights, 0, 0});
  const uint32_t t = model.add_value({"t", MCC_DTYPE_f32, {slot_quantity(0), 3}, MCC_STORAGE_arena, 0, 64});
  const uint32_t s = model.add_value({"s", MCC_DTYPE_u8, {100}, MCC_STORAGE_scratch, 0, 0});
  const uint32_t h = model.add_value({"h", MCC_DTYPE_i64, {0}, MCC_STORAGE_heap, 0, 0});
  model.add_kernel("first", do_nothing, {x, w, s, t}, {slot_quantity(0)}).output_count = 2;
  model.add_kernel("then", do_nothing, {t, y}, {3}, 1);
  model.add_kernel("else", do_nothing, {x, y}, {3}, 2);
  model.host_functions = {leave_outputs};
  PlanNode host;
  host.kind = MCC_NODE_host;
  host.args = {x, h};
  host.output_count = 1;
  host.attributes = "axis=1";
  host.name = "host";
  plan.graphs[0].nodes.push_back(host);
  PlanNode copy;
  copy.kind = MCC_NODE_copy;
  copy.args = {x, t};
  copy.output_count = 1;
  copy.name = "copy";
  plan.graphs[0].nodes.push_back(copy);
  PlanNode branch;
  branch.kind = MCC_NODE_if;
  branch.args = {flag};
  branch.target = 1;
  branch.other = 2;
  branch.name = "if";
  plan.graphs[0].nodes.push_back(branch);
}

std::string open_error(const mcc_model_v1& image) {
  return error_of([&] { Model model(image); });
}

// Opens, and if that works creates a session and runs it. Any outcome is fine but a crash.
void use(const mcc_model_v1& image) {
  mcc_model* model = nullptr;
  if (mcc_model_from_image(&image, &model, nullptr) != MCC_OK) return;
  for (size_t i = 0; i < mcc_model_input_count(model); ++i) {
    mcc_tensor_info info;
    ASSERT_EQ(mcc_model_input(model, i, &info), MCC_OK);
    ASSERT_NE(info.name, nullptr);
  }
  mcc_session_options options = {};
  options.struct_size = sizeof options;
  options.threads = 1;
  mcc_session* session = nullptr;
  const mcc_model_sizes sizes = [&] {
    mcc_model_sizes all = {};
    all.struct_size = sizeof all;
    mcc_model_get_sizes(model, &all);
    return all;
  }();
  // A damaged size may be legal and enormous; memory is not what is tested here.
  const bool is_small = sizes.arena_bytes < (1 << 20) && sizes.scratch_bytes_per_thread < (1 << 20);
  if (is_small && mcc_session_create(model, &options, &session, nullptr) == MCC_OK) {
    const std::vector<float> x(64 * 3, 1);
    const bool flag = true;
    const int64_t dims[2] = {2, 3};
    const mcc_tensor tensors[2] = {{const_cast<float*>(x.data()), 0, MCC_DTYPE_f32, 2, dims},
                                   {const_cast<bool*>(&flag), 0, MCC_DTYPE_bool, 0, nullptr}};
    if (mcc_session_set_inputs(session, tensors, 2, nullptr) == MCC_OK) mcc_session_run(session, nullptr);
    mcc_session_destroy(session);
  }
  mcc_model_close(model);
}

void fix_checksum(std::vector<std::byte>& plan) {
  if (plan.size() < sizeof(mcc_plan_header)) return;
  const uint64_t sum =
      mcc_plan_checksum(reinterpret_cast<const unsigned char*>(plan.data()) + MCC_PLAN_CHECKED_FROM,
                        plan.size() - MCC_PLAN_CHECKED_FROM);
  std::memcpy(plan.data() + offsetof(mcc_plan_header, checksum), &sum, sizeof sum);
}

struct RichPlan : testing::Test {
  RichPlan() {
    make_rich(model);
    model.image();
  }
  TestModel model;
};

TEST_F(RichPlan, IsAccepted) {
  const mcc_model_v1& image = model.image();
  EXPECT_EQ(open_error(image), "");
  use(image);
  const Model opened(image);
  Session session(opened, {.threads = 2});
  const std::vector<float> x(6, 1);
  const bool flag = false;
  session.set_input("x", x.data(), {2, 3});
  session.set_input("flag", &flag, {});
  session.run();
  EXPECT_EQ(opened.input(0).dims, (std::vector<int64_t>{-1, 3}));
  EXPECT_EQ(opened.input(0).dim_names, (std::vector<std::string>{"N", ""}));
  EXPECT_EQ(session.output(0).dims, (std::vector<int64_t>{2, 3}));
}

TEST_F(RichPlan, SaysNoToEveryDamagedByte) {
  const std::vector<std::byte> good = model.plan_bytes();
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<std::byte> bad = good;
    bad[i] ^= std::byte{0x10};
    ASSERT_NE(open_error(model.set_plan_bytes(bad)), "") << "byte " << i;
  }
}

TEST_F(RichPlan, SaysNoToEveryTruncation) {
  const std::vector<std::byte> good = model.plan_bytes();
  for (size_t size = 0; size < good.size(); ++size) {
    ASSERT_NE(open_error(model.set_plan_bytes({good.begin(), good.begin() + static_cast<ptrdiff_t>(size)})),
              "");
  }
}

TEST_F(RichPlan, SurvivesDamageWithARightChecksum) {
  const std::vector<std::byte> good = model.plan_bytes();
  const uint8_t values[] = {0, 1, 2, 0x3f, 0x7f, 0x80, 0xfe, 0xff};
  for (size_t i = 0; i < good.size(); ++i) {
    for (uint8_t value : values) {
      std::vector<std::byte> bad = good;
      bad[i] = std::byte{value};
      fix_checksum(bad);
      use(model.set_plan_bytes(bad));
    }
  }
}

TEST_F(RichPlan, SurvivesDamagedWordsWithARightChecksum) {
  const std::vector<std::byte> good = model.plan_bytes();
  std::mt19937_64 random(7);
  for (int round = 0; round < 60'000; ++round) {
    std::vector<std::byte> bad = good;
    for (int k = 0; k < 1 + round % 4; ++k) {
      const uint64_t word = random() >> random() % 64;
      const size_t size = random() % 2 == 0 ? 4 : 8;
      const size_t place = random() % (good.size() / size) * size;
      std::memcpy(bad.data() + place, &word, size);
    }
    fix_checksum(bad);
    use(model.set_plan_bytes(bad));
  }
}

// Damage of one kind each, with the message it gets.
struct Damage {
  const char* name;
  void (*apply)(PlanDesc&);
  const char* message;
};

void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

struct DamagedPlan : testing::TestWithParam<Damage> {};

TEST_P(DamagedPlan, IsNamed) {
  TestModel model;
  make_rich(model);
  GetParam().apply(model.plan);
  EXPECT_EQ(open_error(model.image()), GetParam().message);
}

const Damage damages[] = {
    {"value_outside_of_weights", [](PlanDesc& plan) { plan.values[3].offset = 4; },
     "the model's plan is damaged: value 3 lies outside of its storage"},
    {"value_overflows", [](PlanDesc& plan) { plan.values[3].dims = {INT64_MAX, 16}; },
     "the model's plan is damaged: the size of value 3"},
    {"scratch_too_small", [](PlanDesc& plan) { plan.values[5].dims = {1000}; },
     "the model's plan is damaged: value 5 lies outside of its storage"},
    {"no_such_heap", [](PlanDesc& plan) { plan.values[6].index = 1; },
     "the model's plan is damaged: the storage of value 6"},
    {"input_in_arena", [](PlanDesc& plan) { plan.values[0].storage = MCC_STORAGE_arena; },
     "the model's plan is damaged: input 0"},
    {"no_such_kernel", [](PlanDesc& plan) { plan.graphs[0].nodes[0].target = 3; },
     "the model's plan is damaged: the target of node 0"},
    {"writes_weights", [](PlanDesc& plan) { plan.graphs[0].nodes[0].args[3] = 3; },
     "the model's plan is damaged: the arguments of node 0"},
    {"condition_is_no_bool", [](PlanDesc& plan) { plan.graphs[0].nodes[3].args = {0}; },
     "the model's plan is damaged: the target of node 3"},
    {"runs_itself", [](PlanDesc& plan) { plan.graphs[0].nodes[3].target = 0; },
     "the model's plan is damaged: the sub-graphs of graph 0"},
    {"code_writes_symbol", [](PlanDesc& plan) { plan.graphs[0].code[0].slot = 0; },
     "the model's plan is damaged: instruction 0"},
    {"grows_no_block", [](PlanDesc& plan) { plan.graphs[0].code[3].a = 1; },
     "the model's plan is damaged: instruction 3"},
    {"grows_a_slot", [](PlanDesc& plan) { plan.graphs[0].code[3].a = slot_quantity(1); },
     "the model's plan is damaged: instruction 3"},
    {"symbol_range", [](PlanDesc& plan) { plan.symbols[0].min = 65; },
     "the model's plan is damaged: symbol 0"},
};

INSTANTIATE_TEST_SUITE_P(Plan, DamagedPlan, testing::ValuesIn(damages),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(PlanWriter, IsDeterministic) {
  TestModel first, second;
  make_rich(first);
  make_rich(second);
  first.image();
  second.image();
  EXPECT_EQ(first.plan_bytes(), second.plan_bytes());
}

TEST(PlanWriter, KnowsEveryElementType){
#define X(name, text, cls, bits)                                                                    \
  EXPECT_STREQ(mcc_dtype_name(codegen::to_dtype(ElementType::name)),                                \
               ElementType::name == ElementType::tf32 ? "f32" : text);                              \
  if (ElementType::name != ElementType::string) {                                                   \
    EXPECT_EQ(mcc_dtype_bytes(codegen::to_dtype(ElementType::name)), byte_size(ElementType::name)); \
  }
    MCC_ELEMENT_TYPES(X)
#undef X
}

TEST(Features, AreAllKnownToTheRuntime) {
  TestModel model;
  make_rich(model);
  model.plan.features.clear();
#define MCC_ADD(name) model.plan.features.push_back(name);
  MCC_CPU_FEATURES(MCC_ADD)
#undef MCC_ADD
  const std::string error = open_error(model.image());
  EXPECT_EQ(error.find("does not know"), std::string::npos) << error;
  EXPECT_TRUE(error.empty() || error.find("this CPU lacks ") == 0) << error;
}

}  // namespace
}  // namespace mcc::test
