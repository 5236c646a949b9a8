// Attention of a CPU, its factors in words of two bf16:
//
//   y = mcc.Attention(q, k, v, ..)    becomes    y = mcc.Attention(q, k, v, ..) {words = [multiples of rows, keys, depth, columns]}
#include "graph/passes/pack_attention.h"

#include "graph/passes/pack_products.h"
#include "graph/passes/passes.h"
#include "tensor/instructions.h"
#include "tensor/intrinsics.h"

namespace mcc::graph {
namespace {

// Rows of a tile: those that make up m rows with the fewest besides, in pairs of tiles.
int64_t tile_rows(int64_t m) {
  const int64_t pair = 2 * tensor::kTileRows;
  const int64_t tiles = m <= tensor::kTileRows ? 1 : (m + pair - 1) / pair * 2;
  return (m + tiles - 1) / tiles;
}

}  // namespace

std::vector<int64_t> attention_words(const std::vector<int64_t>& extents, ElementType factor,
                                     const tensor::Target& target) {
  // Of fewer rows packing takes as long as multiplying. Narrow heads leave much of a tile's depth empty, and little to multiply beside
  // the softmax: of 16 elements those of 64 queries and keys took 1.16 times what they take in f32 (Sapphire Rapids), of 197 0.98
  // times, of 768 0.73 times. Results of one element are no vectors.
  constexpr int64_t kFewestRows = 8, kNarrow = 32, kManyKeys = 256;
  const int64_t m = extents[0], word = word_of(factor, target), lanes = target.lanes(32);
  const bool is_narrow = extents[2] + extents[3] <= kNarrow && extents[1] < kManyKeys;
  if (word == 1 || m < kFewestRows || is_narrow || extents[3] == 1) return {};
  const int64_t k = word * tensor::kTileRows;
  if (tensor::tile_instruction(target, tile_rows(m), tensor::kTileRows, factor))
    return {tile_rows(m), k, k, tensor::kTileColumns};
  return {1, lanes, 2 * word, lanes};
}

void pack_attention(Graph& graph, const tensor::Target& target) {
  if (target.kind != tensor::TargetKind::cpu) return;
  for (Node& node : graph.nodes) {
    if (node.dead || node.op->name != "Attention" || node.op->domain != "mcc") continue;
    const ElementType factor = graph.value(node.inputs[0]).type.element;
    auto is_factor = [&](size_t i) { return graph.value(node.inputs[i]).type.element == factor; };
    if (!is_factor(1) || !is_factor(2)) continue;
    const std::vector<int64_t> words = attention_words(node.attributes.integers("extents"), factor, target);
    if (!words.empty()) node.attributes.set("words", words);
  }
}

}  // namespace mcc::graph
