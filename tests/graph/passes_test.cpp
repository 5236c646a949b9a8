// Each case of tests/graph/data: the pass's result against its golden, and both graphs against each other on the interpreter.
#include "graph/passes/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "graph/compare.h"
#include "graph/fold.h"
#include "graph/passes/apply_layouts.h"

namespace mcc::graph::test {
namespace {

// What a case's options say.
struct Setting {
  tensor::Target target;
  bool strict = false, once = false;
  double tolerance = 0;
  ElementType precision = ElementType::f16;
  Layout layout = Layout::blocked;  // apply_layouts: of all convolutions
};

Setting setting_of(const Case& c) {
  Setting s;
  s.target.vector_bits = 128;
  s.target.vector_registers = 16;
  for (const std::string& option : c.options) {
    std::istringstream in(option);
    std::string key;
    in >> key;
    if (key == "strict") {
      s.strict = true;
    } else if (key == "once") {
      s.once = true;
    } else if (key == "tolerance") {
      in >> s.tolerance;
    } else if (key == "layout") {
      std::string name;
      in >> name;
      s.layout = name == "plain" ? Layout::plain : Layout::channels_last;
    } else if (key == "precision") {
      std::string name;
      in >> name;
      s.precision = parse_element_type(name).value_or(ElementType::f32);
    } else if (key == "lanes") {
      int lanes = 0;
      in >> lanes;
      s.target.vector_bits = 32 * lanes;
    } else if (key == "vnni") {
      s.target.vector_bits = 512;
      s.target.features = "+avx512vnni";
    } else if (key == "avx512bf16") {
      s.target.vector_bits = 512;
      s.target.vector_registers = 32;
      s.target.features = "+avx512bf16";
    } else if (key == "avx2") {
      s.target.vector_bits = 256;
      s.target.features = "+avx2";
    } else if (key == "no_fma") {
      s.target.has_fma = false;
    } else if (key == "f16c") {
      s.target.features = "+f16c";
    } else if (key == "l2") {  // bytes
      in >> s.target.l2.bytes;
    } else if (key == "l3") {
      in >> s.target.l3.bytes;
    } else if (key == "gpu") {  // an architecture and how many multiprocessors of it
      std::string arch;
      in >> arch;
      s.target.kind = tensor::TargetKind::cuda;
      s.target.gpu = *tensor::find_gpu(arch == "sm_90a" ? "sm_90" : arch);
      s.target.gpu.arch = arch;
      in >> s.target.gpu.multiprocessors;
    } else if (key == "features") {
      in >> s.target.features;
    } else if (key == "registers") {
      in >> s.target.vector_registers;
    } else {
      ADD_FAILURE() << "unknown option " << option;
    }
  }
  return s;
}

struct Pass {
  const char* name;
  void (*run)(Graph& g, const Setting& s);
};

void must(const Status& status) { EXPECT_TRUE(status.ok()) << to_text(status.errors()); }

// In the order of the pipeline. Each has its file in tests/graph/data.
constexpr Pass kPasses[] = {
    {"fold_constants",
     [](Graph& g, const Setting&) {
       FoldBudget budget(g);
       must(fold_constants(g, interpreter_evaluator(), budget));
     }},
    {"move_quantization", [](Graph& g, const Setting&) { move_quantization(g); }},
    {"use_byte_products", [](Graph& g, const Setting& s) { use_byte_products(g, s.target, s.strict); }},
    {"use_real_products", [](Graph& g, const Setting&) { use_real_products(g); }},
    {"use_nbits_products", [](Graph& g, const Setting& s) { use_nbits_products(g, s.target, s.strict); }},
    {"eliminate_dead_code", [](Graph& g, const Setting&) { eliminate_dead_code(g); }},
    {"simplify_algebra", [](Graph& g, const Setting&) { simplify_algebra(g); }},
    {"eliminate_common_subexpressions", [](Graph& g, const Setting&) { eliminate_common_subexpressions(g); }},
    {"widen_halves", [](Graph& g, const Setting& s) { widen_halves(g, s.target); }},
    {"expand_einsums", [](Graph& g, const Setting&) { expand_einsums(g); }},
    {"expand_fourier", [](Graph& g, const Setting&) { expand_fourier(g); }},
    {"trim_windows", [](Graph& g, const Setting&) { trim_windows(g); }},
    {"place_updates", [](Graph& g, const Setting& s) { place_updates(g, s.target); }},
    {"sink_transposes", [](Graph& g, const Setting&) { sink_transposes(g); }},
    {"split_channel_groups", [](Graph& g, const Setting&) { split_channel_groups(g); }},
    {"fold_scales", [](Graph& g, const Setting&) { fold_scales(g); }},
    {"split_conv_transpose", [](Graph& g, const Setting&) { split_conv_transpose(g); }},
    {"split_dilations", [](Graph& g, const Setting& s) { split_dilations(g, s.target); }},
    {"order_interleaved_channels", [](Graph& g, const Setting&) { order_interleaved_channels(g); }},
    {"merge_products", [](Graph& g, const Setting& s) { merge_products(g, s.target); }},
    {"sink_reshapes", [](Graph& g, const Setting&) { sink_reshapes(g); }},
    {"tile_selected_rows", [](Graph& g, const Setting& s) { tile_selected_rows(g, s.target); }},
    {"select_matrices", [](Graph& g, const Setting&) { select_matrices(g); }},
    {"group_heads", [](Graph& g, const Setting& s) { group_heads(g, s.target); }},
    {"view_operands", [](Graph& g, const Setting& s) { view_operands(g, s.target); }},
    {"separate_parts", [](Graph& g, const Setting& s) { separate_parts(g, s.target); }},
    {"fuse_attention", [](Graph& g, const Setting& s) { fuse_attention(g, s.target, s.precision); }},
    {"apply_layouts",
     [](Graph& g, const Setting& s) {
       Layouts layouts;
       for (size_t n = 0; n < g.nodes.size(); ++n)
         layouts[static_cast<NodeId>(n)] = s.layout;
       apply_layouts(g, layouts, s.target, s.strict, {});
     }},
    {"lower_precision", [](Graph& g, const Setting& s) { lower_precision(g, s.precision, s.target); }},
    {"divide_attention",
     [](Graph& g, const Setting& s) {
       fuse_attention(g, s.target, s.precision);
       lower_precision(g, s.precision, s.target);
       divide_attention(g, s.target, {});
     }},
    {"pack_attention",
     [](Graph& g, const Setting& s) {
       fuse_attention(g, s.target, s.precision);
       lower_precision(g, s.precision, s.target);
       pack_attention(g, s.target);
     }},
    {"lay_out_samples", [](Graph& g, const Setting& s) { lay_out_samples(g, s.target); }},
    {"rank_elements", [](Graph& g, const Setting& s) { rank_elements(g, s.target, {}); }},
    {"divide_scans", [](Graph& g, const Setting& s) { divide_scans(g, s.target, s.strict, {}); }},
    {"use_winograd", [](Graph& g, const Setting& s) { use_winograd(g, s.target, {}); }},
    {"choose_layouts", [](Graph& g, const Setting& s) { choose_layouts(g, s.target, s.strict, {}); }},
    {"tabulate_bytes", [](Graph& g, const Setting& s) { tabulate_bytes(g, s.target); }},
    {"tabulate_resizes", [](Graph& g, const Setting&) { tabulate_resizes(g); }},
    {"quantize_by_products", [](Graph& g, const Setting& s) { quantize_by_products(g, s.target); }},
    {"repeat_conversions", [](Graph& g, const Setting& s) { repeat_conversions(g, s.target); }},
    {"optimize",
     [](Graph& g, const Setting& s) {
       OptimizeOptions options;
       options.target = s.target;
       options.evaluate = interpreter_evaluator();
       options.strict = s.strict;
       must(optimize(g, options));
     }},
};

const Pass& pass_named(const std::string& name) {
  const auto* pass =
      std::find_if(std::begin(kPasses), std::end(kPasses), [&](const Pass& p) { return p.name == name; });
  if (pass == std::end(kPasses)) throw std::runtime_error("no pass " + name);
  return *pass;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Pass& pass : kPasses) {
    for (Case& c : read_cases(data_path(pass.name)))
      cases.push_back(std::move(c));
  }
  return cases;
}

// Inputs and outputs of both: the same names and types, in the same order.
void expect_same_interface(const Graph& before, const Graph& after) {
  auto describe = [](const Graph& g) {
    std::string out;
    for (const auto& ids : {g.inputs, g.outputs}) {
      for (ValueId v : ids)
        out += text(g.value(v).name, ": ", to_text(g.value(v).type), "\n");
      out += "->\n";
    }
    return out;
  };
  EXPECT_EQ(describe(before), describe(after));
}

// No node of the result names an origin that never was.
void expect_known_origins(const Graph& before, const Graph& after) {
  std::set<std::string> known;
  for (const Node& n : before.nodes)
    known.insert(n.origins.begin(), n.origins.end());
  for (const Node& n : after.nodes) {
    for (const std::string& origin : n.origins)
      EXPECT_TRUE(known.count(origin)) << origin << " of " << n.name;
  }
}

void expect_same_results(const Graph& before, const Graph& after, double tolerance) {
  std::vector<Constant> inputs = random_inputs(before);
  Result<std::vector<Constant>> want = run_graph(before, inputs, interpreter_evaluator());
  Result<std::vector<Constant>> got = run_graph(after, inputs, interpreter_evaluator());
  ASSERT_TRUE(want.ok()) << to_text(want.errors());
  ASSERT_TRUE(got.ok()) << to_text(got.errors());
  expect_close(*got, *want, tolerance);
}

class GraphPass : public ::testing::TestWithParam<Case> {};

TEST_P(GraphPass, KeepsTheMeaningAndMatchesItsGolden) {
  const Case& c = GetParam();
  const Setting setting = setting_of(c);
  const Pass& pass = pass_named(c.file);
  Graph before = parse_graph(c.graph), after = before;
  ASSERT_TRUE(verify(before).empty()) << verify(before)[0];
  pass.run(after, setting);
  ASSERT_TRUE(verify(after).empty()) << verify(after)[0] << "\n" << to_text(after);
  expect_same_interface(before, after);
  expect_known_origins(before, after);
  if (before.dims.empty()) expect_same_results(before, after, setting.tolerance);
  if (!setting.once) {
    Graph again = after;
    pass.run(again, setting);
    EXPECT_EQ(to_text(again), to_text(after)) << "a second run of the pass changes its result";
  }
  expect_case(c, to_text(after));
}

// After all passes each node says for which of the model's it is there.
TEST_P(GraphPass, LeavesNoNodeNameless) {
  const Case& c = GetParam();
  const Setting setting = setting_of(c);
  Graph before = parse_graph(c.graph);
  // All passes together take static graphs without mcc's own operators and attributes, as they come from the frontend.
  if (!before.dims.empty() || c.graph.find("mcc.") != std::string::npos) return;
  Graph after = before;
  OptimizeOptions options;
  options.target = setting.target;
  options.evaluate = interpreter_evaluator();
  options.strict = setting.strict;
  options.precision = setting.precision;
  must(optimize(after, options));
  expect_known_origins(before, after);
  for (const Node& n : after.nodes)
    EXPECT_TRUE(n.dead || !n.origins.empty()) << n.name << "\n" << to_text(after);
}

INSTANTIATE_TEST_SUITE_P(Data, GraphPass, ::testing::ValuesIn(all_cases()), test_name);

// What the pass asks to be computed. Results are zeros.
struct Asked {
  int calls = 0;
  int64_t most_bytes = 0;  // of results that are there at a time
};

Asked fold(Graph& g) {
  Asked asked;
  std::vector<std::weak_ptr<std::vector<std::byte>>> made;
  FoldBudget budget(g);
  must(fold_constants(
      g,
      [&](const tensor::Func&, std::span<const Constant>, const std::vector<TensorType>& outputs) -> Result<std::vector<Constant>> {
        ++asked.calls;
        std::vector<Constant> results;
        for (const TensorType& type : outputs) {
          auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(static_count(type.shape) * byte_size(type.element)));
          made.push_back(bytes);
          results.emplace_back(type.element, static_shape(type.shape), std::span<const std::byte>(*bytes), bytes);
        }
        int64_t there = 0;
        for (const auto& bytes : made) {
          if (const auto held = bytes.lock()) there += static_cast<int64_t>(held->size());
        }
        asked.most_bytes = std::max(asked.most_bytes, there);
        return results;
      },
      budget));
  EXPECT_TRUE(verify(g).empty()) << verify(g)[0];
  return asked;
}

TEST(FoldConstants, LeavesToRunTimeWhatAFewBytesWouldGrowTo) {
  Graph g = parse_graph(R"(graph g(%x: f32[4096]) {
  %a: f32[1, 1] = [2]
  %s: i64[2] = [1000000, 4096]
  %b = Expand(%a, %s)
  %y = Mul(%x, %b)
  return %y
})");
  EXPECT_EQ(fold(g).calls, 0);
  EXPECT_EQ(g.nodes.size(), 2U);
}

// A constant, so many nodes that each read the one before, and a node that is left. step: a node's expression for the name that it reads.
template <class Step>
Asked fold_chain(const std::string& shape, int length, const Step& step) {
  std::string source = text("graph g(%x: f32[1]) {\n  %a0: f32[", shape, "] random\n");
  for (int i = 0; i < length; ++i)
    source += text("  %a", i + 1, " = ", step(text("%a", i)), "\n");
  Graph g = parse_graph(text(source, "  %y = Mul(%x, %a", length, ")\n  return %y\n}\n"));
  return fold(g);
}

TEST(FoldConstants, ResultsThatDoubleComeToAnEnd) {
  const Asked asked = fold_chain("1024", 30, [](const std::string& a) { return text("Concat(", a, ", ", a, ") {axis = 0}"); });
  EXPECT_GT(asked.calls, 10);
  EXPECT_LE(asked.most_bytes, int64_t{256} << 20);
}

TEST(FoldConstants, LongChainsHoldNoMoreThanTheyNeed) {
  const Asked asked = fold_chain("262144", 400, [](const std::string& a) { return text("Neg(", a, ")"); });
  EXPECT_EQ(asked.calls, 400);
  EXPECT_LE(asked.most_bytes, int64_t{2} << 20);
}

TEST(FoldConstants, ArithmeticIsLimited) {
  const Asked asked = fold_chain("1024, 1024", 400, [](const std::string& a) { return text("MatMul(", a, ", ", a, ")"); });
  EXPECT_GE(asked.calls, 4);
  EXPECT_LE(asked.calls, 10);
}

// The experts of a mixture, say.
// How many functions of constants are computed while a model is optimised in which so many convolutions have the same weights.
int evaluations(int convolutions) {
  std::string source = "graph g(";
  for (int i = 0; i < convolutions; ++i)
    source += text(i > 0 ? ", " : "", "%x", i, ": f32[1, 8, 6, 6]");
  source +=
      ") {\n  %w: f32[8, 8, 3, 3] random\n  %s: f32[8] random\n  %b: f32[8] random\n  %m: f32[8] random\n  "
      "%v: f32[8] = [1, 2, 3, 4, 5, 6, 7, 8]\n";
  for (int i = 0; i < convolutions; ++i) {
    source += text("  %c", i, " = Conv(%x", i, ", %w) {pads = [1, 1, 1, 1]}\n");
    source += text("  %y", i, " = BatchNormalization(%c", i, ", %s, %b, %m, %v)\n");
  }
  source += "  return ";
  for (int i = 0; i < convolutions; ++i)
    source += text(i > 0 ? ", " : "", "%y", i);
  Graph g = parse_graph(source + "\n}\n");
  int count = 0;
  OptimizeOptions options;
  options.evaluate = [&count](const tensor::Func& f, std::span<const Constant> inputs,
                              const std::vector<TensorType>& outputs) {
    ++count;
    return interpreter_evaluator()(f, inputs, outputs);
  };
  EXPECT_TRUE(optimize(g, options).ok());
  return count;
}

TEST(FoldConstants, WeightsOfSeveralNodesAreScaledAndPackedOnce) {
  const int once = evaluations(1);
  EXPECT_GT(once, 0);
  EXPECT_EQ(evaluations(5), once);
}

TEST(MergeProducts, OfManyAreSeveral) {
  std::string source = "graph g(%x: f32[4, 8]) {\n", results;
  for (int i = 0; i < 150; ++i) {
    source += text("  %w", i, ": f32[8, 4] random\n  %y", i, " = MatMul(%x, %w", i, ")\n");
    results += text(i == 0 ? "" : ", ", "%y", i);
  }
  Graph g = parse_graph(text(source, "  return ", results, "\n}\n"));
  tensor::Target target;
  target.kind = tensor::TargetKind::cuda;
  target.gpu = *tensor::find_gpu("sm_80");
  merge_products(g, target);
  EXPECT_TRUE(verify(g).empty()) << verify(g)[0];
  int products = 0;
  for (const Node& node : g.nodes) {
    products += node.op->name == "MatMul" ? 1 : 0;
    EXPECT_LE(node.outputs.size(), 64U);
  }
  EXPECT_EQ(products, 3);
}

}  // namespace
}  // namespace mcc::graph::test
