// A run after the first with the same shapes allocates nothing: counted at malloc itself.
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#include "runtime/test_model.h"

namespace {

// Of the thread that runs the session: what others do at their start is not part of a run.
// Atomic, or the compiler, which knows that malloc leaves the program's variables alone, drops the writes around it.
thread_local std::atomic<bool> is_counting{false};
thread_local std::atomic<int> allocations{0};

void count() {
  if (is_counting) ++allocations;
}

}  // namespace

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*)(const volatile void*, size_t),
                                                         void (*)(const volatile void*));
static void install_counter() {
  static const int installed = __sanitizer_install_malloc_and_free_hooks(
      [](const volatile void*, size_t) { count(); }, [](const volatile void*) {});
  ASSERT_GT(installed, 0);
}
#else
// The C library's own functions under the names that it keeps for replacements like these.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t size) {
  count();
  return __libc_malloc(size);
}
void* calloc(size_t number, size_t size) {
  count();
  return __libc_calloc(number, size);
}
void* realloc(void* memory, size_t size) {
  count();
  return __libc_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  count();
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
}
static void install_counter() {}
#endif

namespace mcc::test {
namespace {

// Allocations of `function`.
template <class Function>
int count_in(const Function& function) {
  install_counter();
  allocations = 0;
  is_counting = true;
  function();
  is_counting = false;
  return allocations;
}

void run_often(mcc_session* session, const mcc_tensor& x, const mcc_tensor& y) {
  for (int i = 0; i < 100; ++i) {
    mcc_tensor result;
    if (mcc_session_set_input(session, 0, &x, nullptr) != MCC_OK ||
        mcc_session_run(session, nullptr) != MCC_OK ||
        mcc_session_output(session, 0, &result, nullptr) != MCC_OK ||
        mcc_session_set_output(session, 0, &y, nullptr) != MCC_OK ||
        mcc_session_run(session, nullptr) != MCC_OK ||
        mcc_session_set_output(session, 0, nullptr, nullptr) != MCC_OK) {
      std::abort();
    }
  }
}

TEST(Allocations, AreSeenByTheCounter) {
  EXPECT_EQ(count_in([] {
              void* volatile memory = std::malloc(10);
              std::free(memory);
            }),
            1);
  EXPECT_EQ(count_in([] {
              int* volatile number = new int;
              delete number;
            }),
            1);
}

TEST(Allocations, DoNotHappenAfterTheFirstRun) {
  TestModel description;
  make_affine(description);
  const Model model(description.image());
  std::vector<float> x(6, 1), y(6);
  const int64_t dims[] = {2, 3};
  const mcc_tensor input = {x.data(), 0, MCC_DTYPE_f32, 2, dims};
  const mcc_tensor output = {y.data(), 0, MCC_DTYPE_f32, 2, dims};
  for (int threads : {1, 2, 4}) {
    for (bool profile : {false, true}) {
      Session session(model, {.threads = threads, .profile = profile});
      ASSERT_EQ(mcc_session_set_input(session.handle(), 0, &input, nullptr), MCC_OK);
      session.run();
      EXPECT_EQ(count_in([&] { run_often(session.handle(), input, output); }), 0);
    }
  }
}

TEST(Allocations, DoNotHappenForShapesThatFit) {
  TestModel description;
  PlanDesc& plan = description.plan;
  plan.symbols = {{"N", 1, 1000}};
  plan.slot_count = 2;
  const Quantity n = slot_quantity(0), bytes = slot_quantity(1);
  plan.graphs[0].code = {{MCC_SHAPE_mul, 1, n, 4, 0, ""}};
  plan.arena_size = bytes;
  const uint32_t x = description.add_input("x", {n});
  const uint32_t t = description.add_value({"t", MCC_DTYPE_f32, {n}, MCC_STORAGE_arena, 0, 0});
  const uint32_t y = description.add_output("y", {n});
  description.add_kernel("increment", increment, {x, t}, {n});
  description.add_kernel("increment", increment, {t, y}, {n});
  const Model model(description.image());
  Session session(model, {.threads = 1});
  std::vector<float> data(1000, 1);
  const auto run = [&](int64_t size) {
    const mcc_tensor input = {data.data(), 0, MCC_DTYPE_f32, 1, &size};
    if (mcc_session_set_input(session.handle(), 0, &input, nullptr) != MCC_OK) std::abort();
    if (mcc_session_run(session.handle(), nullptr) != MCC_OK) std::abort();
  };
  run(1000);
  EXPECT_EQ(count_in([&] {
              for (int64_t size = 1; size <= 1000; size += 37)
                run(size);
            }),
            0);
}

// Whose strings are others in every run, and are no more and no longer than before.
TEST(Allocations, DoNotHappenForStringsThatFit) {
  TestModel description;
  std::vector<PlanNode>& nodes = description.plan.graphs[0].nodes;
  const uint32_t x = description.add_input("x", {200}, MCC_DTYPE_string),
                 y = description.add_output("y", {200}, MCC_DTYPE_string);
  const uint32_t ids = description.add_value({"ids", MCC_DTYPE_i64, {200}, MCC_STORAGE_arena, 0, 0});
  description.plan.arena_size = 200 * 8;
  auto add = [&](mcc_text_op op, std::vector<uint32_t> args, std::string attributes) {
    PlanNode node;
    node.kind = MCC_NODE_text;
    node.target = op;
    node.output_count = args.empty() ? 0 : 1;
    node.args = std::move(args);
    node.attributes = std::move(attributes);
    nodes.push_back(node);
  };
  add(MCC_TEXT_table, {}, std::string(8, '\0'));
  add(MCC_TEXT_intern, {x, ids}, "");
  add(MCC_TEXT_show, {ids, y}, "");
  const Model model(description.image());
  Session session(model, {.threads = 1});
  std::vector<std::string> words(200, std::string(1000, 'a'));
  session.set_input(0, words, {200});
  const auto run = [&](int number) {
    for (size_t i = 0; i < words.size(); ++i)
      std::memcpy(words[i].data(), &i, sizeof i),
          std::memcpy(words[i].data() + sizeof i, &number, sizeof number);
    if (mcc_session_run(session.handle(), nullptr) != MCC_OK) std::abort();
  };
  run(0);
  EXPECT_EQ(count_in([&] {
              for (int number = 1; number < 20; ++number)
                run(number);
            }),
            0);
}

}  // namespace
}  // namespace mcc::test
