// The order of the graph passes.
#include "graph/op.h"
#include "graph/passes/passes.h"

namespace mcc::graph {
namespace {

// Of a graph whose products all multiply numbers of one narrow type: that; else f32.
ElementType type_of_products(const Graph& graph) {
  ElementType type = ElementType::f32;
  for (const Node& node : graph.nodes) {
    if (node.dead || node.op->fusion != FusionClass::contraction) continue;
    const ElementType own = graph.value(node.inputs[0]).type.element;
    if (!is_float(own) || bit_width(own) != 16 || (type != ElementType::f32 && type != own)) return ElementType::f32;
    type = own;
  }
  return type;
}

}  // namespace

Status optimize(Graph& graph, const OptimizeOptions& options) {
  Diagnostics errors;
  // Runs one pass, names the origins of what it made, shows it to the observer, and holds its result against the graph's rules.
  auto step = [&](const char* name, auto&& pass) {
    if (!errors.empty()) return;
    pass();
    name_origins(graph);
    if (options.observer) options.observer(name, graph);
    std::vector<std::string> broken = verify(graph);
    MCC_CHECK(broken.empty(), "after ", name, ": ", broken.empty() ? "" : broken[0]);
  };
  FoldBudget budget(graph);
  ElementType precision = options.precision;
  auto fold = [&](bool keeps_quantized = false) {
    Status status = fold_constants(graph, options.evaluate, budget, keeps_quantized);
    if (!status.ok()) errors = status.errors();
  };

  if (options.level > 0) {
    step("fold_constants", [&] { fold(true); });
    // In front of the passes that know quantised models of f32.
    if (!options.strict && quantizes_halves(graph)) {
      if (precision == ElementType::f32) precision = type_of_products(graph);
      step("widen_halves", [&] { widen_halves(graph, options.target); });
      step("fold_constants", [&] { fold(true); });  // the scales
    }
    step("select_matrices", [&] { select_matrices(graph); });
    step("tile_selected_rows", [&] { tile_selected_rows(graph, options.target); });
    step("move_quantization", [&] { move_quantization(graph); });
    step("fold_constants", [&] { fold(true); });  // weights that are moved
    step("use_byte_products", [&] { use_byte_products(graph, options.target, options.strict); });
    step("tabulate_bytes", [&] { tabulate_bytes(graph, options.target); });
    if (!options.strict) step("use_real_products", [&] { use_real_products(graph); });
    step("use_nbits_products", [&] { use_nbits_products(graph, options.target, options.strict); });
  }
  step("fold_constants", fold);
  step("eliminate_dead_code", [&] { eliminate_dead_code(graph); });
  if (options.level > 0) {
    step("simplify_algebra", [&] { simplify_algebra(graph); });
    step("eliminate_common_subexpressions", [&] { eliminate_common_subexpressions(graph); });
    if (!options.strict) {
      // What is computed in f32 is then rounded where the model itself has it so: in front of products.
      if (precision == ElementType::f32 && options.target.kind == tensor::TargetKind::cpu) precision = type_of_products(graph);
      step("widen_halves", [&] { widen_halves(graph, options.target); });
      step("fold_constants", fold);
    }
    if (!options.strict) step("expand_einsums", [&] { expand_einsums(graph); });
    step("expand_fourier", [&] { expand_fourier(graph); });
    step("trim_windows", [&] { trim_windows(graph); });
    step("place_updates", [&] { place_updates(graph, options.target); });
    step("lay_out_samples", [&] { lay_out_samples(graph, options.target); });
    step("sink_transposes", [&] { sink_transposes(graph); });
    step("simplify_algebra", [&] { simplify_algebra(graph); });
    step("split_channel_groups", [&] { split_channel_groups(graph); });
    step("merge_products", [&] { merge_products(graph, options.target); });
    step("sink_reshapes", [&] { sink_reshapes(graph); });
    if (!options.strict) {
      step("fold_scales", [&] { fold_scales(graph); });
      // Weights that are scaled: once where nodes share them.
      step("eliminate_common_subexpressions", [&] { eliminate_common_subexpressions(graph); });
      step("fold_constants", fold);
      step("split_conv_transpose", [&] { split_conv_transpose(graph); });
    }
    step("order_interleaved_channels", [&] { order_interleaved_channels(graph); });
    step("fold_constants", fold);
    step("simplify_algebra", [&] { simplify_algebra(graph); });
    if (!options.strict && precision == ElementType::f32)
      step("split_dilations", [&] { split_dilations(graph, options.target); });
    if (!options.strict) step("fuse_attention", [&] { fuse_attention(graph, options.target, precision); });
    step("eliminate_dead_code", [&] { eliminate_dead_code(graph); });
    if (precision != ElementType::f32) {
      step("lower_precision", [&] { lower_precision(graph, precision, options.target); });
      step("fold_constants", fold);  // weights in that type, for the choice of layouts
    }
    if (!options.strict) step("divide_attention", [&] { divide_attention(graph, options.target, options.algorithms); });
    if (!options.strict) step("pack_attention", [&] { pack_attention(graph, options.target); });
    step("rank_elements", [&] { rank_elements(graph, options.target, options.algorithms); });
    step("divide_scans", [&] { divide_scans(graph, options.target, options.strict, options.algorithms); });
    step("find_in_parts", [&] { find_in_parts(graph, options.target); });
    if (!options.strict) step("use_winograd", [&] { use_winograd(graph, options.target, options.algorithms); });
    step("choose_layouts", [&] { choose_layouts(graph, options.target, options.strict, options.algorithms); });
    step("group_heads", [&] { group_heads(graph, options.target); });
    step("view_operands", [&] { view_operands(graph, options.target); });
    step("tabulate_resizes", [&] { tabulate_resizes(graph); });
    // Weights that are packed, likewise.
    step("eliminate_common_subexpressions", [&] { eliminate_common_subexpressions(graph); });
    step("fold_constants", fold);
    step("simplify_algebra", [&] { simplify_algebra(graph); });
    step("sink_reshapes", [&] { sink_reshapes(graph); });  // of images whose channels are last now
    step("quantize_by_products", [&] { quantize_by_products(graph, options.target); });
    step("eliminate_common_subexpressions", [&] { eliminate_common_subexpressions(graph); });
    step("eliminate_dead_code", [&] { eliminate_dead_code(graph); });
    step("separate_parts", [&] { separate_parts(graph, options.target); });
    step("repeat_conversions", [&] { repeat_conversions(graph, options.target); });
  }
  if (!errors.empty()) return errors;
  return done();
}

}  // namespace mcc::graph
