#include "tuner/transformed_product.h"

#include <algorithm>

#include "tensor/visit.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

// The variable and divisor of a division in the indices at which a block reads a buffer.
struct Division {
  const ExprNode* variable = nullptr;
  int64_t divisor = 0;
};

class FindDivision : public Visitor {
 public:
  explicit FindDivision(const Buffer& buffer) : buffer_(buffer) {}
  Division found;

 protected:
  using Visitor::on;
  void on(const Load& n) override {
    bool outer = inside_;
    inside_ = n.buffer.same_as(buffer_);
    Visitor::on(n);
    inside_ = outer;
  }
  void on(const Binary& n) override {
    int64_t divisor = 0;
    if (inside_ && n.op == BinaryOp::floor_div && n.a.kind() == ExprKind::Var && as_int(n.b, &divisor)) {
      found = {n.a.get(), divisor};
    }
    Visitor::on(n);
  }

 private:
  const Buffer& buffer_;
  bool inside_ = false;
};

// The one injective block that computes and that the others name.
std::optional<BlockInfo> transform(const Schedule& s, const std::vector<std::string>& names) {
  std::optional<BlockInfo> found;
  for (const std::string& name : names) {
    std::optional<BlockInfo> info = analyze(s, name);
    if (!info || !info->is_injective || info->is_movement || found) return std::nullopt;
    found = info;
  }
  return found;
}

// Of the block, the axis that is divided by the tile where the block reads the buffer.
Division tile_axis(const Schedule& s, const std::string& block, const Buffer& buffer) {
  FindDivision find(buffer);
  find.visit(s.find_block(block)->body);
  return find.found;
}

// The position of the axis that a variable belongs to; the number of axes where it is none of them.
size_t axis_of(const Block& block, const ExprNode* variable) {
  auto it = std::find_if(block.axes.begin(), block.axes.end(),
                         [&](const Axis& a) { return a.var.get() == variable; });
  return static_cast<size_t>(it - block.axes.begin());
}

}  // namespace

std::optional<TransformedProduct> as_transformed_product(const Schedule& s, const std::string& name) {
  std::optional<BlockInfo> product = analyze(s, name), input = transform(s, s.producers(name)),
                           sums = transform(s, s.consumers(name));
  if (!product || !product->is_contraction || !input || !sums) return std::nullopt;
  std::optional<BlockInfo> result = transform(s, s.consumers(sums->name)),
                           rows = transform(s, s.producers(input->name));
  if (!result || !rows || s.consumers(input->name).size() != 1 || s.consumers(rows->name).size() != 1)
    return std::nullopt;
  TransformedProduct out{*input, *product, *sums, *result, rows->name, s.producers(rows->name)};
  for (const std::string& pad : out.pads) {
    std::optional<BlockInfo> info = analyze(s, pad);
    if (!info || !info->is_injective) return std::nullopt;
  }
  // The result is read across from the sums, these down from the product; both have the same leading axes.
  const Division across = tile_axis(s, result->name, sums->store.buffer),
                 down = tile_axis(s, sums->name, product->store.buffer);
  if (across.divisor == 0 || across.divisor != down.divisor) return std::nullopt;
  out.tile = across.divisor;
  out.column = axis_of(*s.find_block(result->name), across.variable);
  out.line = axis_of(*s.find_block(sums->name), down.variable);
  if (out.column >= result->axes.size() || out.line >= out.column) return std::nullopt;
  return out;
}

}  // namespace mcc::tuner
