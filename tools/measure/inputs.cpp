#include "tools/measure/inputs.h"

#include <array>
#include <cstring>
#include <set>
#include <unordered_map>

#include "support/random_bits.h"
#include "tensor/numeric.h"
#include "tensor/visit.h"

namespace mcc::tools {

using namespace tensor;

namespace {

using Sources = std::set<size_t>;  // inputs that a value was made from

class IndexUses : public Visitor {
 public:
  explicit IndexUses(const Func& f) : limits(f.params.size(), 0) {
    for (size_t i = 0; i < static_cast<size_t>(f.num_inputs()); ++i) {
      if (is_int(f.params[i].element())) made_from_[f.params[i].get()].insert(i);
    }
  }

  std::vector<int64_t> limits;

 protected:
  using Visitor::on;

  void on(const Load& n) override {
    note_indices(n.buffer, n.indices);
    Visitor::on(n);
  }
  void on(const Store& n) override {
    note_indices(n.buffer, n.indices);
    if (is_int(n.buffer.element())) made_from_[n.buffer.get()].merge(sources_of(n.value));
    Visitor::on(n);
  }
  void on(const Let& n) override {
    variables_[n.var.get()].merge(sources_of(n.value));
    Visitor::on(n);
  }

 private:
  struct Collector : Visitor {
    explicit Collector(const IndexUses& uses) : uses(uses) {}
    using Visitor::on;
    void on(const Load& n) override {
      add(uses.made_from_, n.buffer.get());
    }  // what picks it is a use of its own
    void on(const VarNode& n) override { add(uses.variables_, static_cast<const ExprNode*>(&n)); }
    template <class Map, class Key>
    void add(const Map& map, Key key) {
      auto it = map.find(key);
      if (it != map.end()) found.insert(it->second.begin(), it->second.end());
    }
    const IndexUses& uses;
    Sources found;
  };

  Sources sources_of(const Expr& e) const {
    Collector collector(*this);
    collector.visit(e);
    return collector.found;
  }

  void note_indices(const Buffer& buffer, const std::vector<Expr>& indices) {
    for (size_t d = 0; d < indices.size() && d < buffer.shape().size(); ++d) {
      int64_t extent = 0;
      if (!as_int(buffer.shape()[d], &extent)) continue;
      for (size_t input : sources_of(indices[d])) {
        int64_t& limit = limits[input];
        limit = limit == 0 ? extent : std::min(limit, extent);
      }
    }
  }

  std::unordered_map<const BufferNode*, Sources> made_from_;
  std::unordered_map<const ExprNode*, Sources> variables_;
};

void fill_f32(SplitMix& generator, int64_t count, float low, std::byte* out) {
  const auto value = [&](uint64_t bits) { return low + static_cast<float>(bits >> 8 & 0x7fffff) * 0x1p-22f; };
  auto* floats = reinterpret_cast<float*>(out);
  for (int64_t i = 0; i < count; i += 2) {
    const uint64_t bits = generator.next();
    floats[i] = value(bits & 0xffffffff);
    if (i + 1 < count) floats[i + 1] = value(bits >> 32);
  }
}

// Other floats are picked from a table: rounding each to its format would take longer than the kernel.
void fill_table(SplitMix& generator, ElementType element, int64_t count, double low, std::byte* out) {
  std::array<uint64_t, 1024> values;
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = low + 2.0 * (static_cast<double>(i) + 0.5) / static_cast<double>(values.size());
    values[i] = float_to_bits(element, round_float(element, value));
  }
  const auto width = static_cast<size_t>(byte_size(element));
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(out + static_cast<size_t>(i) * width, &values[generator.next() % values.size()], width);
}

}  // namespace

std::vector<int64_t> index_limits(const Func& f) {
  IndexUses uses(f);
  // Twice: what a later statement writes may be used by an earlier one of the next iteration.
  uses.visit(f.body);
  uses.visit(f.body);
  uses.limits.resize(static_cast<size_t>(f.num_inputs()));
  return uses.limits;
}

void fill_random(ElementType element, int64_t count, const InputOptions& options, std::byte* out) {
  SplitMix generator{options.seed * 0x2545f4914f6cdd1du + 1};
  const double low = options.is_positive || element == ElementType::f8e8m0 ? 0.5 : -1;
  if (element == ElementType::f32) {
    fill_f32(generator, count, static_cast<float>(low), out);
    return;
  }
  if (is_float(element)) {
    fill_table(generator, element, count, low, out);
    return;
  }
  const auto width = static_cast<size_t>(byte_size(element));
  int64_t range = options.limit > 0 ? options.limit : 100;
  if (is_bool(element)) range = 2;
  if (bit_width(element) < 8) range = std::min(range, int64_t{1} << (bit_width(element) - 1));
  if (bit_width(element) == 8) range = std::min<int64_t>(range, 128);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t value =
        generator.next() % static_cast<uint64_t>(range);  // little-endian: the low bytes first
    std::memcpy(out + static_cast<size_t>(i) * width, &value, width);
  }
}

}  // namespace mcc::tools
