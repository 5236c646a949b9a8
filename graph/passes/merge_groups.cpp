#include "graph/passes/merge_groups.h"

#include "graph/passes/rewrite.h"

namespace mcc::graph {

namespace {

constexpr int64_t kMostMerged = 8;  // of which a CPU still gains something

}  // namespace

int64_t merged_groups(int64_t groups, int64_t in_channels, int64_t out_channels, int64_t lanes) {
  const int64_t in = in_channels / groups, out = out_channels / groups;
  for (int64_t m = 1; m <= std::min(groups, kMostMerged); ++m) {
    if (m * in % lanes != 0 || m * out % lanes != 0) continue;
    // A block that lacks its last groups is filled up with zeros, as blocks of channels are.
    if (groups % m == 0 || (m * in == lanes && m * out == lanes)) return m;
  }
  return 0;
}

int64_t merged_groups_of_words(int64_t groups, int64_t in_channels, int64_t out_channels, int64_t lanes,
                               int64_t word) {
  const int64_t in = in_channels / groups, out = out_channels / groups;
  for (int64_t m = 1; m <= std::min(groups, kMostMerged); ++m) {
    if (m * in % word == 0 && m * out % lanes == 0) return m;
  }
  return 0;
}

int64_t grid_merged_groups(int64_t groups, int64_t in_channels, int64_t out_channels) {
  constexpr int64_t kVector = 8, kColumns = 32, kMost = 16;
  const int64_t in = in_channels / groups, out = out_channels / groups;
  int64_t best = 0;
  for (int64_t m = 1; m <= std::min(groups, kMost) && (best == 0 || best * out < kColumns); ++m) {
    if (groups % m == 0 && m * in % kVector == 0 && m * out % kVector == 0) best = m;
  }
  return best;
}

ValueId merge_groups(Graph& g, const std::string& name, ValueId w, int64_t groups, int64_t m) {
  using Ints = std::vector<int64_t>;
  const ElementType element = g.value(w).type.element;
  auto ints = [&](const char* what, const Ints& values) { return g.add_constant(name + what, Constant::ints(values)); };
  auto reshape = [&](ValueId x, const Ints& dims) { return reshaped(g, name, x, dims); };
  Ints ws = static_shape(g.value(w).type.shape);
  const int64_t missing = (m - groups % m) % m, out = ws[0] / groups;
  if (missing != 0) {
    Ints pads(2 * ws.size(), 0);
    pads[ws.size()] = missing * out;
    w = emit(g, "", "Pad", name, {w, ints(".pads", pads)});
    ws[0] += missing * out;
  }
  // [groups / m, m, out, 1, in, k...], of which m times as many inputs are made along the fourth axis.
  Ints split{ws[0] / out / m, m, out, 1}, merged{ws[0], m * ws[1]}, mask{1, m, 1, m};
  split.insert(split.end(), ws.begin() + 1, ws.end());
  merged.insert(merged.end(), ws.begin() + 2, ws.end());
  mask.resize(split.size(), 1);
  std::vector<uint8_t> own(static_cast<size_t>(m * m));
  for (size_t i = 0; i < own.size(); i += static_cast<size_t>(m + 1))
    own[i] = 1;
  const ValueId is_own = g.add_constant(name + ".own", Constant::of(ElementType::boolean, mask, own));
  const ValueId zero = g.add_constant(name + ".zero", Constant::scalar(element, 0));
  return reshape(emit(g, "", "Where", name, {is_own, reshape(w, split), zero}), merged);
}

}  // namespace mcc::graph
