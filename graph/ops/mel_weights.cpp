// MelWeightMatrix: which part each bin of a spectrum has in each band of the mel scale. It is known when its numbers are.
#include <cmath>

#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

constexpr int64_t kMost = int64_t{1} << 28;

struct Mel {
  int64_t bands = 0, length = 0;
  double rate = 0, low = 0, high = 0;

  int64_t bins() const { return length / 2 + 1; }
  // Where bands begin, have their middle, and end: bins of the spectrum, two more than there are bands.
  std::vector<int64_t> edges() const {
    const double ten = std::log(10.0), first = 2595 * std::log1p(low / 700) / ten,
                 last = 2595 * std::log1p(high / 700) / ten;
    const double step = (last - first) / static_cast<double>(bands + 2);
    std::vector<int64_t> result;
    for (int64_t i = 0; i < bands + 2; ++i) {
      const double hertz = 700 * std::expm1((static_cast<double>(i) * step + first) / 2595 * ten);
      result.push_back(static_cast<int64_t>(std::floor(static_cast<double>(length + 1) * hertz / rate)));
    }
    return result;
  }
};

// Nothing where a number is not known.
std::optional<Mel> mel_of(const Constant* const (&inputs)[5]) {
  for (const Constant* input : inputs)
    if (!input || input->count() != 1) return std::nullopt;
  return Mel{inputs[0]->int_at(0), inputs[1]->int_at(0), inputs[2]->number_at(0), inputs[3]->number_at(0),
             inputs[4]->number_at(0)};
}

void infer_mel(InferContext& c) {
  const char* names[] = {"num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"};
  const Constant* inputs[5];
  for (int i = 0; i < 5; ++i) {
    if (!expect_type(c, i, i < 3 ? TypeSet::index : TypeSet::floating)) return;
    inputs[i] = c.constant(i);
    if (!inputs[i])
      return c.unsupported(text("input ", i, " (", names[i], ") needs a value known at compile time"));
    if (!expect(c, inputs[i]->count() == 1, "input ", i, " (", names[i], "): expected one number")) return;
  }
  const Mel mel = *mel_of(inputs);
  if (!expect(c, mel.bands >= 1 && mel.length >= 1 && mel.rate > 0,
              "expected positive numbers of bands and bins and a positive rate, got ", mel.bands, ", ",
              mel.length, " and ", mel.rate) ||
      !expect(c, mel.bands < kMost && mel.length < kMost && mel.bands * mel.bins() < kMost, "a matrix of ",
              mel.bins(), " by ", mel.bands) ||
      !expect(c, 0 <= mel.low && mel.low <= mel.high && mel.high <= mel.rate / 2,
              "expected edges in order from 0 to half the rate, got ", mel.low, " and ", mel.high,
              " for a rate of ", mel.rate)) {
    return;
  }
  std::optional<ElementType> element = ElementType::f32;
  if (c.attributes().has("output_datatype")) element = element_attribute(c, "output_datatype");
  if (element) c.set_output(0, {*element, {mel.bins(), mel.bands}});
}

std::vector<double> weights_of(const Mel& mel) {
  const std::vector<int64_t> edges = mel.edges();
  std::vector<double> w(static_cast<size_t>(mel.bins() * mel.bands));
  auto set = [&](int64_t bin, int64_t band, double value) {
    if (bin >= 0 && bin < mel.bins()) w[static_cast<size_t>(bin * mel.bands + band)] = value;
  };
  for (int64_t band = 0; band < mel.bands; ++band) {
    const int64_t low = edges[static_cast<size_t>(band)], middle = edges[static_cast<size_t>(band) + 1],
                  high = edges[static_cast<size_t>(band) + 2];
    if (low == middle) set(middle, band, 1);
    for (int64_t j = low; j <= middle && low < middle; ++j)
      set(j, band, static_cast<double>(j - low) / static_cast<double>(middle - low));
    for (int64_t j = middle; j < high; ++j)
      set(j, band, static_cast<double>(high - j) / static_cast<double>(high - middle));
  }
  return w;
}

std::optional<Constant> fold_mel(const Graph& graph, const Node& node) {
  const Constant* inputs[5];
  for (size_t i = 0; i < 5; ++i) {
    const std::optional<Constant>& known = graph.value(node.inputs[i]).constant;
    inputs[i] = known ? &*known : nullptr;
  }
  const std::optional<Mel> mel = mel_of(inputs);
  if (!mel) return std::nullopt;
  const ElementType element = graph.value(node.outputs[0]).type.element;
  std::vector<std::byte> bytes;
  for (double weight : weights_of(*mel)) {
    const Constant value = Constant::scalar(element, weight);
    bytes.insert(bytes.end(), value.bytes().begin(), value.bytes().end());
  }
  return Constant::copy_of(element, {mel->bins(), mel->bands}, bytes);
}

OpDef mel_op() {
  OpDef op = onnx_op("MelWeightMatrix", FusionClass::host, 5, infer_mel, nullptr);
  op.fold = fold_mel;
  return op;
}

}  // namespace

std::span<const OpDef> mel_ops() {
  static const OpDef ops[] = {mel_op()};
  return ops;
}

}  // namespace mcc::graph
