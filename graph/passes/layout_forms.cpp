#include "graph/passes/layout_forms.h"

#include "graph/passes/convolution_cost.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {

int64_t LayoutForms::block(Layout layout, int64_t channels) const {
  return layout == Layout::channels_last ? channels : lanes_;
}

int64_t LayoutForms::blocks(Layout layout, int64_t channels) const {
  int64_t c = block(layout, channels);
  return (channels + c - 1) / c;
}

std::vector<int64_t> without_groups(std::vector<int64_t> dims) {
  dims[1] *= dims[2];
  dims.erase(dims.begin() + 2);
  return as_image(dims);
}

LaidOut LayoutForms::lead(const Node& node) {
  LaidOut first{kNoValue};
  for (ValueId v : node.inputs) {
    if (!is_laid_out(v)) continue;
    const LaidOut& x = laid_out_.at(v);
    if (first.value == kNoValue) {
      first = x;
    } else {
      join(first.region, x.region);
    }
  }
  return first;
}

void LayoutForms::set_result(NodeId id, const LaidOut& result, size_t output) {
  Node& node = g_.node(id);
  laid_out_[node.outputs[output]] = result;
  NodeId maker = g_.value(result.value).producer;
  g_.node(maker).name = node.name;
  for (const std::string& origin : node.origins)
    g_.node(maker).origins.push_back(origin);
  // The node itself stays until dead code goes: nothing uses it, as every user takes plain() or the value laid out.
}

ValueId LayoutForms::plain(ValueId v) {
  auto it = laid_out_.find(v);
  if (it == laid_out_.end()) return v;
  if (auto made = plain_.find(v); made != plain_.end()) return made->second;
  const std::string name = g_.value(v).name;
  const LaidOut from = it->second;
  Attributes a;
  ValueId x;
  if (from.layout == Layout::channels_last) {
    const size_t rank = shape(from.value).size() - 1;
    std::vector<int64_t> perm{0, static_cast<int64_t>(rank) - 1};
    for (size_t d = 1; d + 1 < rank; ++d)
      perm.push_back(static_cast<int64_t>(d));
    a.set("perm", perm);
    x = emit(g_, "", "Transpose", name, {without_blocks(name, from.value)}, a);
  } else {
    a.set("block", lanes_);
    a.set("channels", from.channels);
    x = emit(g_, "mcc", "Unpack", name, {from.value}, a);
  }
  if (shape(v).size() != shape(x).size() || from.in_groups) x = is_static(shape(v)) ? reshape(name, x, static_shape(shape(v))) : as_signal(name, x);
  g_.value(x).name = name;
  return plain_[v] = x;
}

void LayoutForms::restore_inputs(NodeId id) {
  for (size_t i = 0; i < g_.node(id).inputs.size(); ++i) {
    ValueId v = g_.node(id).inputs[i];
    if (!is_laid_out(v)) continue;
    ValueId restored = plain(v);
    g_.node(id).inputs[i] = restored;
  }
}

ValueId LayoutForms::in_layout(ValueId v, Layout layout, bool in_groups) {
  if (auto it = laid_out_.find(v); it != laid_out_.end() && it->second.layout == layout && it->second.in_groups == in_groups)
    return it->second.value;
  v = plain(v);
  if (auto it = copies_.find({v, layout, in_groups}); it != copies_.end()) return it->second;
  const std::string name = g_.value(v).name;
  Attributes a;
  ValueId x, image = in_groups ? reshape(name, v, without_groups(static_shape(shape(v)))) : reshaped_as_image(name, v);
  if (layout == Layout::channels_last) {
    std::vector<int64_t> perm{0};
    for (size_t d = 2; d < shape(image).size(); ++d)
      perm.push_back(static_cast<int64_t>(d));
    perm.push_back(1);
    a.set("perm", perm);
    x = with_blocks(name, emit(g_, "", "Transpose", name, {image}, a));
  } else {
    a.set("block", lanes_);
    x = emit(g_, "mcc", "Pack", name, {image}, a);
  }
  return copies_[{v, layout, in_groups}] = x;
}

ValueId LayoutForms::with_blocks(const std::string& name, ValueId x) {
  if (!is_static(shape(x)))
    return emit(g_, "", "Unsqueeze", name, {x, g_.add_constant(name + ".axes", Constant::ints({1}))});
  std::vector<int64_t> dims = static_shape(shape(x));
  dims.insert(dims.begin() + 1, 1);
  return reshape(name, x, dims);
}

ValueId LayoutForms::without_blocks(const std::string& name, ValueId x) {
  if (!is_static(shape(x)))
    return emit(g_, "", "Squeeze", name, {x, g_.add_constant(name + ".axes", Constant::ints({1}))});
  std::vector<int64_t> dims = static_shape(shape(x));
  dims.erase(dims.begin() + 1);
  return reshape(name, x, dims);
}

ValueId LayoutForms::filled_up(ValueId v, int64_t channels) {
  const std::string name = g_.value(v).name;
  Attributes a;
  a.set("block", channels);
  return emit(g_, "mcc", "Pack", name, {reshaped_as_image(name, v)}, a);
}

ValueId LayoutForms::pack_vector(const std::string& name, ValueId v, Layout layout, int64_t channels) {
  Attributes a;
  a.set("block", block(layout, channels));
  ValueId packed = emit(g_, "mcc", "Pack", name + ".bias", {reshape(name, v, {1, static_count(shape(v))})}, a);
  return reshape(name, packed, {blocks(layout, channels), block(layout, channels)});
}

ValueId LayoutForms::reshape(const std::string& name, ValueId x, const std::vector<int64_t>& dims) {
  return reshaped(g_, name, x, dims);
}

ValueId LayoutForms::reshaped_as_image(const std::string& name, ValueId x) {
  if (shape(x).size() != 3) return x;
  return is_static(shape(x)) ? reshape(name, x, as_image(static_shape(shape(x)))) : emit(g_, "", "Unsqueeze", name, {x, height_axis(name)});
}

ValueId LayoutForms::as_signal(const std::string& name, ValueId x) { return emit(g_, "", "Squeeze", name, {x, height_axis(name)}); }

ValueId LayoutForms::height_axis(const std::string& name) { return g_.add_constant(name + ".axes", Constant::ints({2})); }

int LayoutForms::add_region(NodeId convolution) {
  auto region = static_cast<int>(parents_.size());
  parents_.push_back(region);
  convolutions_.push_back(convolution);
  return region;
}

int LayoutForms::root(int region) const {
  while (parents_[static_cast<size_t>(region)] != region)
    region = parents_[static_cast<size_t>(region)];
  return region;
}

void LayoutForms::join(int a, int b) { parents_[static_cast<size_t>(root(b))] = root(a); }

std::vector<Region> LayoutForms::regions() const {
  std::map<int, Region> by_root;
  for (size_t i = 0; i < convolutions_.size(); ++i)
    by_root[root(static_cast<int>(i))].push_back(convolutions_[i]);
  std::vector<Region> out;
  for (auto& [root, region] : by_root)
    out.push_back(std::move(region));
  return out;
}

}  // namespace mcc::graph
