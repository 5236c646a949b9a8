// The forms that values have while a graph is rewritten to layouts, and the regions that share one.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "graph/graph.h"
#include "graph/passes/apply_layouts.h"

namespace mcc::graph {

// A value that exists laid out, instead of plain.
struct LaidOut {
  ValueId value;  // of rank 5, of volumes 6
  Layout layout = Layout::blocked;
  int64_t channels = 0;    // C
  int region = 0;          // LayoutForms'
  bool in_groups = false;  // the plain value has [.., groups, channels of a group, ..]
};

// [N, G, C / G, ...] as the image [N, C, H, W], or the volume.
std::vector<int64_t> without_groups(std::vector<int64_t> dims);

class LayoutForms {
 public:
  // lanes: of a block.
  LayoutForms(Graph& graph, int64_t lanes) : g_(graph), lanes_(lanes) {}

  // Channels side by side in memory, and how many such groups there are.
  int64_t block(Layout layout, int64_t channels) const;
  int64_t blocks(Layout layout, int64_t channels) const;

  bool is_laid_out(ValueId v) const { return v != kNoValue && laid_out_.count(v) != 0; }
  const LaidOut& laid_out(ValueId v) const { return laid_out_.at(v); }
  // The layout in which a node follows its operands: that of the first one which has one. All that have one are from now
  // on of one region. Without a value where none has one.
  LaidOut lead(const Node& node);
  // The node's result, of several that one, is from now on this value.
  void set_result(NodeId id, const LaidOut& result, size_t output = 0);

  // The plain form; made once, when first asked for. It takes the value's own id, so that users need no change.
  ValueId plain(ValueId v);
  void restore_inputs(NodeId id);  // as plain forms
  // A value of rank 4 or 5 in a layout; of rank 3 as an image of one row. in_groups: its channels have two axes.
  ValueId in_layout(ValueId v, Layout layout, bool in_groups = false);
  // A plain value with its channels last, and with zeros behind them up to `channels`.
  ValueId filled_up(ValueId v, int64_t channels);
  // [C] -> [C/c, c] of so many channels, with zeros behind those of v.
  ValueId pack_vector(const std::string& name, ValueId v, Layout layout, int64_t channels);
  ValueId reshape(const std::string& name, ValueId x, const std::vector<int64_t>& dims);
  // With channels last there is one block of them: an axis of one element behind the first.
  ValueId with_blocks(const std::string& name, ValueId x);
  ValueId without_blocks(const std::string& name, ValueId x);
  ValueId reshaped_as_image(const std::string& name, ValueId x);  // of rank 3; others as they are
  ValueId as_signal(const std::string& name, ValueId x);          // an image of height 1, of any width, back

  // A region of this convolution alone.
  int add_region(NodeId convolution);
  void join(int a, int b);
  std::vector<Region> regions() const;

 private:
  const Shape& shape(ValueId v) const { return g_.value(v).type.shape; }
  int root(int region) const;
  ValueId height_axis(const std::string& name);  // as a constant

  Graph& g_;
  int64_t lanes_;
  std::map<ValueId, LaidOut> laid_out_;
  std::map<ValueId, ValueId> plain_;  // their plain forms, once made
  std::map<std::tuple<ValueId, Layout, bool>, ValueId>
      copies_;                        // plain values in other layouts, in groups or not
  std::vector<int> parents_;          // regions, as a forest of those that were joined
  std::vector<NodeId> convolutions_;  // of each region, before it was joined
};

}  // namespace mcc::graph
