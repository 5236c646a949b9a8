// Attention whose products are of bf16 on CPUs: results beside those in f32, the instructions, and that no rule is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules/optimized_kernels.h"
#include "schedules/word_products.h"
#include "tuner/default_schedule.h"

namespace mcc::test {
namespace {

using tensor::Func;
using tensor::Target;

enum class Mask { none, scaled, added, causal, kept };

struct Form {
  int64_t batch, heads, m, n, d, e;
  Mask mask = Mask::none;
  bool is_joint = false;  // queries, keys and values are parts of one projection
  bool is_read = false;   // by a product, in bf16
};

void PrintTo(const Form& f, std::ostream* out) {
  constexpr const char* kMasks[] = {"", "_scaled", "_added", "_causal", "_kept"};
  *out << text("b", f.batch, "_h", f.heads, "_m", f.m, "_n", f.n, "_d", f.d, "_e", f.e,
               kMasks[static_cast<int>(f.mask)], f.is_joint ? "_joint" : "", f.is_read ? "_read" : "");
}

std::string attention(const Form& f) {
  const std::string b = std::to_string(f.batch), h = std::to_string(f.heads), m = std::to_string(f.m),
                    n = std::to_string(f.n);
  std::string inputs, body;
  auto heads = [&](const std::string& from, const std::string& length, int64_t width, const std::string& to) {
    body += text("  %", to, ".shape: i64[4] = [", b, ", ", length, ", ", h, ", ", width, "]\n  %", to,
                 ".r = Reshape(%", from, ", %", to, ".shape)\n  %", to, " = Transpose(%", to,
                 ".r) {perm = [0, 2, 1, 3]}\n");
  };
  if (f.is_joint) {
    inputs = text("%x: f32[", b, ", ", m, ", 8]");
    const std::string width = std::to_string(f.heads * f.d);
    body = text("  %w: f32[8, ", 3 * f.heads * f.d, "] random\n  %all = MatMul(%x, %w)\n  %parts: i64[3] = [",
                width, ", ", width, ", ", width, "]\n  %q0, %k0, %v0 = Split(%all, %parts) {axis = 2}\n");
  } else {
    inputs = text("%q0: f32[", b, ", ", m, ", ", f.heads * f.d, "], %k0: f32[", b, ", ", n, ", ",
                  f.heads * f.d, "], %v0: f32[", b, ", ", n, ", ", f.heads * f.e, "]");
  }
  heads("q0", m, f.d, "q");
  heads("k0", n, f.d, "k");
  heads("v0", n, f.e, "v");
  body +=
      "  %kt = Transpose(%k) {perm = [0, 1, 3, 2]}\n  %s0 = MatMul(%q, %kt)\n  %factor: f32[] = [0.375]\n";
  std::string scores = "s0";
  if (f.mask != Mask::none) {
    body += "  %s1 = Mul(%s0, %factor)\n";
    scores = "s1";
  }
  if (f.mask == Mask::added) {
    inputs += text(", %bias: f32[", b, ", 1, 1, ", n, "]");
    body += "  %s2 = Add(%s1, %bias)\n";
    scores = "s2";
  } else if (f.mask == Mask::causal || f.mask == Mask::kept) {
    const std::string shape = f.mask == Mask::kept ? n : text(m, ", ", n);
    std::string holds;
    for (int64_t i = 0; i < (f.mask == Mask::kept ? 1 : f.m); ++i) {
      for (int64_t j = 0; j < f.n; ++j)
        holds += text(holds.empty() ? "" : ", ", (f.mask == Mask::kept ? j % 3 != 1 : j <= i) ? 1 : 0);
    }
    body += text("  %holds: bool[", shape, "] = [", holds,
                 "]\n  %low: f32[] = [-1e30]\n  %s2 = Where(%holds, %s1, %low)\n");
    scores = "s2";
  }
  body += text("  %p = Softmax(%", scores,
               ") {axis = -1}\n  %o = MatMul(%p, %v)\n  %t = Transpose(%o) {perm = [0, 2, 1, 3]}\n");
  if (f.is_read) {
    body += text("  %flat: i64[3] = [", b, ", ", m, ", ", f.heads * f.e,
                 "]\n  %r = Reshape(%t, %flat)\n  %z: f32[", f.heads * f.e,
                 ", 16] random\n  %y = MatMul(%r, %z)\n");
  } else {
    body += "  %y = Relu(%t)\n";
  }
  return text("graph g(", inputs, ") {\n", body, "  return %y\n}\n");
}

constexpr Machine kMachines[] = {{"avx512bf16", "+avx2,+avx512bf16,+avx512f", 512, 32, true},
                                 {"amx", "+amx-bf16,+amx-tile,+avx2,+avx512bf16,+avx512f", 512, 32, true}};

// Whole tiles, and broken ones along each axis; a single key; widths of one element; rows of one tile, and of several.
const Form kForms[] = {{1, 2, 32, 32, 32, 32, Mask::scaled},
                       {2, 1, 16, 64, 32, 16, Mask::added},
                       {1, 2, 13, 13, 17, 17, Mask::causal, true},
                       {1, 3, 19, 7, 34, 3, Mask::none},
                       {2, 2, 9, 33, 1, 33, Mask::kept},
                       {1, 1, 35, 1, 32, 2, Mask::scaled},
                       {1, 2, 33, 33, 20, 20, Mask::scaled, true, true},
                       {1, 2, 8, 49, 34, 16, Mask::added, false, true},
                       {3, 1, 21, 20, 16, 40, Mask::causal, false, true}};

class Bf16Attention : public ::testing::TestWithParam<std::tuple<Form, Machine>> {};

// The kernels of all forms, as they are scheduled and at other points of the space, mean what they mean unscheduled.
TEST_P(Bf16Attention, IsRightAtAnyPointOfTheSpace) {
  const auto& [form, machine] = GetParam();
  const Target target = target_of(machine);
  bool used = false;
  for (const Func& f : kernels_of(attention(form), target, ElementType::bf16)) {
    const tuner::DefaultSchedule made = tuner::explained_default_schedule(f, target);
    SCOPED_TRACE(text(to_text(f), to_text(made.schedule.trace())));
    EXPECT_FALSE(made.is_plain);
    for (const tuner::RefusedRule& refused : made.refused)
      ADD_FAILURE() << to_text(refused);
    const std::vector<graph::Constant> want = run(f, f);
    const Func lowered = tensor::lower(made.schedule.func(), target);
    EXPECT_TRUE(verify(lowered, tensor::Stage::lowered).empty());
    constexpr double kTolerance = 0x1p-7;
    graph::test::expect_close(run(lowered, f), want, kTolerance);
    const bool is_attention = to_text(f).find("block exponential") != std::string::npos;
    if (!is_attention) continue;
    used = true;
    const std::string code = to_text(lowered);
    EXPECT_THAT(
        code, testing::HasSubstr(std::string(machine.name) == "amx" ? "tile_multiply_bf16(" : "dot2_bf16("));
    EXPECT_THAT(code, testing::Not(testing::HasSubstr("tile_product_bf16(")));
    expect_right_at_points(f, target, 2, kTolerance);
    if (HasFailure()) return;
  }
  EXPECT_TRUE(used);
}

std::vector<graph::Constant> results(const std::string& source, const Target& target, ElementType precision) {
  const graph::Graph g = optimized(source, target, precision);
  const std::vector<graph::Constant> inputs = graph::test::random_inputs(graph::test::parse_graph(source));
  Result<std::vector<graph::Constant>> out = graph::run_graph(g, inputs, graph::interpreter_evaluator());
  EXPECT_TRUE(out.ok());
  return out.ok() ? *out : std::vector<graph::Constant>();
}

TEST_P(Bf16Attention, IsThatInF32ButForRounding) {
  const auto& [form, machine] = GetParam();
  const std::string source = attention(form);
  const Target target = target_of(machine);
  graph::test::expect_close(results(source, target, ElementType::bf16),
                            results(source, target, ElementType::f32), 0x1p-4);
}

INSTANTIATE_TEST_SUITE_P(All, Bf16Attention,
                         ::testing::Combine(::testing::ValuesIn(kForms), ::testing::ValuesIn(kMachines)),
                         [](const auto& info) {
                           std::ostringstream name;
                           PrintTo(std::get<0>(info.param), &name);
                           return text(name.str(), "_", std::get<1>(info.param).name);
                         });

// Few rows, narrow heads, results of one element, and targets without the instructions: f32.
TEST(Bf16Attentions, AreLeftOutWhereTheyDoNotPay) {
  auto is_narrow = [](int64_t rows, int64_t keys, int64_t depth, int64_t columns, const Machine& machine) {
    bool found = false;
    const std::string source = attention({1, 2, rows, keys, depth, columns, Mask::scaled});
    for (const Func& f : kernels_of(source, target_of(machine), ElementType::bf16))
      found |= to_text(f).find("bf16") != std::string::npos;
    return found;
  };
  EXPECT_TRUE(is_narrow(8, 32, 17, 16, kMachines[1]));
  EXPECT_FALSE(is_narrow(7, 32, 17, 16, kMachines[1]));
  EXPECT_FALSE(is_narrow(8, 32, 16, 16, kMachines[1]));
  EXPECT_TRUE(is_narrow(8, 256, 16, 16, kMachines[1]));
  EXPECT_FALSE(is_narrow(32, 32, 64, 1, kMachines[1]));
  EXPECT_FALSE(is_narrow(32, 32, 32, 32, {"avx512", "+avx2,+avx512f", 512, 32, false}));
}

}  // namespace
}  // namespace mcc::test
