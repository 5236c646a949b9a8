// Recurrent layers: RNN, GRU, LSTM. The products with the inputs of all time steps are one contraction; a serial loop
// over time has the products with the state and the elementwise update. States of all steps are kept, each element
// written once: state[0] is the initial one, state[t + 1] follows step t.
//
// An LSTM with the attribute mcc_rounds_state (onnxruntime's DynamicQuantizeLSTM) multiplies states that are rounded to bytes, each row
// with a scale of its own, as DynamicQuantizeLinear rounds. mcc.ByteLSTM is such a layer of one direction whose products with states are
// dot products of bytes, and whose products with inputs are an operator of their own:
//   projected f32 [steps, batch, 4 hidden], with all biases; R in panels as of mcc.PackBytes, [panels, words, c, w];
//   scale f32 and sums i32 [4 hidden], of R's columns; then LSTM's inputs from the lengths on. Attribute hidden_size.
#include <algorithm>
#include <cctype>

#include "graph/ops/common.h"
#include "graph/ops/row_rounding.h"
#include "tensor/intrinsics.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

using tensor::Stmt;
using tensor::Store;

// Positions of the inputs.
constexpr int kX = 0, kW = 1, kR = 2, kBias = 3, kLengths = 4, kInitialH = 5, kInitialC = 6, kPeephole = 7;
// Those of mcc.ByteLSTM up to the lengths.
constexpr int kProjected = 0, kPanels = 1, kScale = 2, kSums = 3;

// ---- Activations ----

struct Activation {
  std::string name;  // lower case
  double alpha = 0, beta = 0;
};

struct ActivationRule {
  std::string_view name;
  bool has_alpha, has_beta;
  double alpha, beta;  // defaults
  Expr (*apply)(const Expr& x, const Expr& alpha, const Expr& beta);
};

const ActivationRule* find_rule(std::string_view name) {
  static const ActivationRule rules[] = {
      {"sigmoid", false, false, 0, 0,
       [](const Expr& x, const Expr&, const Expr&) { return call(Intrinsic::sigmoid, {x}); }},
      {"tanh", false, false, 0, 0,
       [](const Expr& x, const Expr&, const Expr&) { return call(Intrinsic::tanh, {x}); }},
      {"relu", false, false, 0, 0, [](const Expr& x, const Expr&, const Expr&) { return tensor::max(x, 0); }},
      {"affine", true, true, 1, 0, [](const Expr& x, const Expr& a, const Expr& b) { return a * x + b; }},
      {"leakyrelu", true, false, 0.01, 0,
       [](const Expr& x, const Expr& a, const Expr&) { return select(x < 0, a * x, x); }},
      {"thresholdedrelu", true, false, 1, 0,
       [](const Expr& x, const Expr& a, const Expr&) { return select(x >= a, x, 0); }},
      {"scaledtanh", true, true, 1, 1,
       [](const Expr& x, const Expr& a, const Expr& b) { return a * call(Intrinsic::tanh, {b * x}); }},
      {"hardsigmoid", true, true, 0.2, 0.5,
       [](const Expr& x, const Expr& a, const Expr& b) { return tensor::min(tensor::max(a * x + b, 0), 1); }},
      {"elu", true, false, 1, 0,
       [](const Expr& x, const Expr& a, const Expr&) {
         return select(x >= 0, x, a * call(Intrinsic::expm1, {x}));
       }},
      {"softsign", false, false, 0, 0,
       [](const Expr& x, const Expr&, const Expr&) { return x / (call(Intrinsic::abs, {x}) + 1); }},
      {"softplus", false, false, 0, 0,
       [](const Expr& x, const Expr&, const Expr&) {
         return tensor::max(x, 0) +
                call(Intrinsic::log1p, {call(Intrinsic::exp, {-call(Intrinsic::abs, {x})})});
       }},
  };
  for (const ActivationRule& rule : rules) {
    if (rule.name == name) return &rule;
  }
  return nullptr;
}

std::string lower(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char ch) { return std::tolower(ch); });
  return s;
}

// One for each direction and kind. The lists of parameters are consumed by the functions that have them, in order.
std::vector<Activation> activations(const Attributes& a, const std::vector<std::string>& defaults,
                                    size_t directions) {
  std::vector<std::string> names;
  if (const Attribute* given = a.find("activations")) names = std::get<std::vector<std::string>>(*given);
  if (names.empty()) {
    for (size_t d = 0; d < directions; ++d)
      names.insert(names.end(), defaults.begin(), defaults.end());
  }
  std::vector<double> alphas = a.numbers("activation_alpha"), betas = a.numbers("activation_beta");
  size_t next_alpha = 0, next_beta = 0;
  std::vector<Activation> result;
  for (const std::string& name : names) {
    Activation f{lower(name)};
    if (const ActivationRule* rule = find_rule(f.name)) {
      f.alpha = rule->has_alpha && next_alpha < alphas.size() ? alphas[next_alpha++] : rule->alpha;
      f.beta = rule->has_beta && next_beta < betas.size() ? betas[next_beta++] : rule->beta;
    }
    result.push_back(f);
  }
  return result;
}

Expr activate(const Activation& f, const Expr& x) {
  return find_rule(f.name)->apply(x, number_like(x, f.alpha), number_like(x, f.beta));
}

// ---- Types, common to all three ----

struct Kind {
  int64_t gates;
  std::vector<std::string> activations;
  bool has_cell = false;
};

const Kind& rnn_kind() {
  static const Kind kind{1, {"tanh"}};
  return kind;
}
const Kind& gru_kind() {
  static const Kind kind{3, {"sigmoid", "tanh"}};
  return kind;
}
const Kind& lstm_kind() {
  static const Kind kind{4, {"sigmoid", "tanh", "tanh"}, true};
  return kind;
}

bool batch_first(const Attributes& a) { return a.integer("layout", 0) == 1; }

// Weights as [direction, gates * hidden / p, input, p], as mcc.PackMatrix makes them, so that vectors read the products of one
// input: our own layout, which layout choice asks for by this attribute (p; 0: as ONNX has them).
int64_t weight_panel(const Attributes& a) { return a.integer("mcc_panel", 0); }

bool expect_shape(InferContext& c, int i, const Shape& wanted) {
  if (!c.has_input(i)) return true;
  if (!expect_rank(c, i, static_cast<int>(wanted.size()))) return false;
  for (size_t k = 0; k < wanted.size(); ++k) {
    if (!expect_same_dim(c, wanted[k], c.input(i).shape[k], text("dimension ", k, " of input ", i)))
      return false;
  }
  return true;
}

bool check_activations(InferContext& c, const Kind& kind, size_t directions) {
  const Attribute* given = c.attributes().find("activations");
  if (given &&
      !expect(c, std::holds_alternative<std::vector<std::string>>(*given), "activations: expected names")) {
    return false;
  }
  std::vector<Activation> all = activations(c.attributes(), kind.activations, directions);
  size_t wanted = kind.activations.size() * directions;
  if (!expect(c, all.size() == wanted, "activations: expected ", wanted, " names, got ", all.size()))
    return false;
  for (const Activation& f : all) {
    if (!expect(c, find_rule(f.name), "activation ", f.name, " is not known")) return false;
  }
  return true;
}

template <const Kind& (*kind_of)()>
void infer_recurrent(InferContext& c) {
  const Kind& kind = kind_of();
  const Attributes& a = c.attributes();
  int64_t panel = weight_panel(a);
  int weight_rank = panel != 0 ? 4 : 3;
  if (!expect_type(c, kX, TypeSet::floating) || !expect_same_type(c, kX, kW) ||
      !expect_same_type(c, kX, kR) || !expect_rank(c, kX, 3) || !expect_rank(c, kW, weight_rank) ||
      !expect_rank(c, kR, weight_rank)) {
    return;
  }
  std::string direction = a.text("direction", "forward");
  int64_t directions = direction == "bidirectional" ? 2 : 1;
  if (!expect(c, direction == "forward" || direction == "reverse" || directions == 2,
              "direction: expected forward, reverse or bidirectional, got ", direction)) {
    return;
  }
  auto hidden = need_static_dim(c, c.input(kR).shape[2], "the hidden size");
  if (!hidden || !check_activations(c, kind, static_cast<size_t>(directions))) return;
  if (!expect(c, a.integer("hidden_size", *hidden) == *hidden, "hidden_size is ", a.integer("hidden_size", 0),
              ", the weights' is ", *hidden)) {
    return;
  }
  const Shape& x = c.input(kX).shape;
  bool swap = batch_first(a);
  Expr steps = x[swap ? 1 : 0], batch = x[swap ? 0 : 1];
  Expr h = *hidden, d = directions;
  Shape state = swap ? Shape{batch, d, h} : Shape{d, batch, h};
  Expr width = kind.gates * h;
  auto weights = [&](const Expr& columns) {
    return panel != 0 ? Shape{d, ceil_div(width, panel), columns, panel} : Shape{d, width, columns};
  };
  if (!expect_shape(c, kW, weights(x[2])) || !expect_shape(c, kR, weights(h)) ||
      !expect_shape(c, kBias, {d, 2 * kind.gates * h}) || !expect_shape(c, kLengths, {batch}) ||
      !expect_shape(c, kInitialH, state)) {
    return;
  }
  if (kind.has_cell && (!expect_shape(c, kInitialC, state) || !expect_shape(c, kPeephole, {d, 3 * h})))
    return;
  ElementType element = c.input(kX).element;
  c.set_output(0, {element, swap ? Shape{batch, steps, d, h} : Shape{steps, d, batch, h}});
  c.set_output(1, {element, state});
  if (kind.has_cell) c.set_output(2, {element, state});
}

void infer_bytes(InferContext& c) {
  const Shape& p = c.input(kProjected).shape;
  const Expr hidden = c.attributes().integer("hidden_size", 0);
  c.set_output(0, {ElementType::f32, {p[0], 1, p[1], hidden}});
  c.set_output(1, {ElementType::f32, {1, p[1], hidden}});
  c.set_output(2, {ElementType::f32, {1, p[1], hidden}});
}

// ---- Computation ----

// One direction of a layer.
class Direction {
 public:
  Direction(ComputeContext& c, const Kind& kind, int64_t index, bool reverse)
      : c_(c), b_(c.builder), index_(index), reverse_(reverse), swap_(batch_first(c.attributes())) {
    const Shape& x = c.input_type(kX).shape;
    steps = x[swap_ ? 1 : 0];
    batch = x[swap_ ? 0 : 1];
    panel_ = weight_panel(c.attributes());
    is_of_bytes_ = c.input_type(kPanels).element == ElementType::i8;
    rounds_state_ = c.attributes().integer("mcc_rounds_state", 0) != 0;
    hidden = is_of_bytes_ ? Expr(c.attributes().integer("hidden_size", 0)) : c.input_type(kR).shape[2];
    wide = wide_type(c.input_type(kX).element);
    gates_ = kind.gates;
    bool two = c.attributes().text("direction", "forward") == "bidirectional";
    std::vector<Activation> all = activations(c.attributes(), kind.activations, two ? 2 : 1);
    auto first = all.begin() + index * static_cast<std::ptrdiff_t>(kind.activations.size());
    functions.assign(first, first + static_cast<std::ptrdiff_t>(kind.activations.size()));
    clip_ = c.attributes().number("clip", 0);
  }

  // The part of gate inputs that does not depend on the state, for every time step: x W' + W bias, plus the R bias of
  // those gates for which it may be added at once.
  void project_inputs(const std::function<bool(int64_t gate)>& with_recurrent_bias) {
    if (is_of_bytes_) return;
    const Expr& width = c_.input_type(kX).shape[2];
    Shape shape{steps, batch, gates_ * hidden};
    Buffer products = b_.reduce("project", wide, shape, {width}, Reducer::sum, [&](Axes i, Axes r) {
      Expr x = swap_ ? c_.at(kX, {i[1], i[0], r[0]}) : c_.at(kX, {i[0], i[1], r[0]});
      return widen(x) * weight(kW, i[2], r[0]);
    });
    inputs_ = products;
    if (!c_.has_input(kBias)) return;
    bool all = true;
    for (int64_t g = 0; g < gates_; ++g)
      all = all && with_recurrent_bias(g);
    inputs_ = b_.compute("biased", wide, shape, [&](Axes i) {
      Expr recurrent = bias(gates_ * hidden + i[2]);
      // Gates without it are the last ones.
      Expr kept = 0;
      for (int64_t g = 0; g < gates_; ++g)
        kept = kept + (with_recurrent_bias(g) ? hidden : Expr(0));
      if (!all) recurrent = select(i[2] < kept, recurrent, number_like(recurrent, 0));
      return load(products, to_vector(i)) + bias(i[2]) + recurrent;
    });
  }

  // A buffer [steps + 1, batch, hidden] whose first entry is the initial state.
  Buffer make_state(const std::string& name, int initial) {
    Buffer state = b_.new_buffer(name, wide, {steps + 1, batch, hidden});
    b_.block("initial_" + name, {{"b", batch}, {"h", hidden}}, [&](Axes i) {
      Expr value = tensor::constant(wide, 0);
      if (c_.has_input(initial)) {
        value = widen(swap_ ? c_.at(initial, {i[0], index_, i[1]}) : c_.at(initial, {index_, i[0], i[1]}));
      }
      return Store::make(state, {0, i[0], i[1]}, value);
    });
    return state;
  }

  // Products of a state [.., batch, hidden] (the entry `at` picks) with gates first .. first+count of R.
  Buffer recur(const std::string& name, int64_t first, int64_t count,
               const std::function<Expr(const Expr& batch, const Expr& k)>& state) {
    return b_.reduce(name, wide, {batch, count * hidden}, {hidden}, Reducer::sum, [&](Axes i, Axes r) {
      return state(i[0], r[0]) * weight(kR, first * hidden + i[1], r[0]);
    });
  }

  // The products of a layer's state at step t with all gates, by batch and place.
  std::function<Expr(const Expr& batch, const Expr& at)> recur(const Buffer& state, const Expr& t) {
    if (is_of_bytes_) return recur_bytes(state, t);
    Buffer from = rounds_state_ ? rounded(state, t) : state;
    Buffer r = recur("recurrent", 0, gates_, [&](const Expr& b, const Expr& k) {
      return rounds_state_ ? load(from, {b, k}) : load(state, {t, b, k});
    });
    return [r](const Expr& b, const Expr& at) { return load(r, {b, at}); };
  }

  // state[t + 1] = value, or state[t] where the sequence has ended.
  void update(const std::string& name, const Buffer& state, const Expr& t,
              const std::function<Expr(const Expr& batch, const Expr& h)>& value) {
    b_.block(name, {{"b", batch}, {"h", hidden}}, [&](Axes i) {
      Expr next = value(i[0], i[1]);
      if (c_.has_input(kLengths)) next = select(t < length(i[0]), next, load(state, {t, i[0], i[1]}));
      return Store::make(state, {t + 1, i[0], i[1]}, next);
    });
  }

  // The part of gate g that is known before the loop, at step t.
  Expr input(const Expr& t, const Expr& batch, int64_t g, const Expr& h) const {
    if (is_of_bytes_) return c_.at(kProjected, {time_of(t, batch), batch, g * hidden + h});
    return load(inputs_, {time_of(t, batch), batch, g * hidden + h});
  }
  Expr weight(int i, const Expr& gate, const Expr& k) const {
    if (panel_ == 0) return widen(c_.at(i, {index_, gate, k}));
    return widen(c_.at(i, {index_, floor_div(gate, Expr(panel_)), k, floor_mod(gate, Expr(panel_))}));
  }
  Expr bias(const Expr& at) const { return widen(c_.at(kBias, {index_, at})); }
  Expr recurrent_bias(int64_t g, const Expr& h) const { return bias((gates_ + g) * hidden + h); }
  Expr peephole(int64_t g, const Expr& h) const { return widen(c_.at(kPeephole, {index_, g * hidden + h})); }

  Expr clipped(const Expr& x) const {
    if (clip_ == 0) return x;
    return tensor::max(tensor::min(x, number_like(x, clip_)), number_like(x, -clip_));
  }
  Expr apply(size_t f, const Expr& x) const { return activate(functions[f], clipped(x)); }

  // The state after the step that read time `time`; 0 after the end of a sequence.
  Expr output(const Buffer& state, const Expr& time, const Expr& batch, const Expr& h) const {
    if (!c_.has_input(kLengths)) {
      return load(state, {reverse_ ? steps - time : time + 1, batch, h});
    }
    Expr n = length(batch);
    Expr value = load(state, {reverse_ ? n - time : time + 1, batch, h});
    return select(time < n, value, number_like(value, 0));
  }

  Expr steps, batch, hidden;
  ElementType wide;
  std::vector<Activation> functions;

 private:
  // Brought into range: no data makes the kernel read outside.
  Expr length(const Expr& batch) const {
    return tensor::min(tensor::max(cast(ElementType::i64, c_.at(kLengths, {batch})), 0), steps);
  }

  // The time that step t reads: backwards from the end of the sequence in a reverse direction.
  Expr time_of(const Expr& t, const Expr& batch) const {
    if (!reverse_) return t;
    if (!c_.has_input(kLengths)) return steps - 1 - t;
    Expr n = length(batch);
    return select(t < n, n - 1 - t, t);
  }

  RowRounding rounding(const Buffer& state, const Expr& t) {
    return {b_, wide, batch, hidden,
            [&](const Expr& row, const Expr& k) { return load(state, {t, row, k}); }};
  }

  // What a state's bytes stand for.
  Buffer rounded(const Buffer& state, const Expr& t) {
    const RowRounding to = rounding(state, t);
    return b_.compute("rounded", wide, {batch, hidden},
                      [&](Axes i) { return to.rounded(load(state, {t, i[0], i[1]}), i[0]); });
  }

  // sum (byte - zero) R * scales = (sum byte R - zero sum R) * scales, the sums of integers.
  std::function<Expr(const Expr& batch, const Expr& at)> recur_bytes(const Buffer& state, const Expr& t) {
    const Shape& panels = c_.input_type(kPanels).shape;
    const Expr &words = panels[1], &width = panels[2], &parts = panels[3];
    const int64_t word = *static_dim(parts);
    const ElementType element =
        word == tensor::word_elements(ElementType::u8) ? ElementType::u8 : ElementType::i16;
    const RowRounding to = rounding(state, t);
    int64_t length = 0;
    const bool is_whole = tensor::as_int(hidden, &length) && length % word == 0;
    const Buffer bytes = b_.compute("bytes", element, {batch, words * parts}, [&](Axes i) {
      const Expr byte = cast(element, to.byte(load(state, {t, i[0], i[1]}), i[0]));
      return is_whole ? byte : select(i[1] < hidden, byte, tensor::constant_int(byte.type(), 0));
    });
    auto widened = [](const Expr& e) { return cast(ElementType::i32, e); };
    const Buffer r = b_.reduce("recurrent", ElementType::i32, {batch, panels[0] * width}, {words, parts},
                               Reducer::sum, [&](Axes i, Axes k) {
                                 const Expr weight = c_.at(
                                     kPanels, {floor_div(i[1], width), k[0], floor_mod(i[1], width), k[1]});
                                 return widened(load(bytes, {i[0], k[0] * parts + k[1]})) * widened(weight);
                               });
    return [this, r, to, widened](const Expr& b, const Expr& at) {
      const Expr sum = load(r, {b, at}) - widened(to.zero(b)) * c_.at(kSums, {at});
      return cast(ElementType::f32, sum) * (to.scale(b) * c_.at(kScale, {at}));
    };
  }

  ComputeContext& c_;
  tensor::FuncBuilder& b_;
  int64_t index_;
  bool reverse_, swap_, is_of_bytes_ = false, rounds_state_ = false;
  int64_t gates_ = 1, panel_ = 0;
  double clip_ = 0;
  Buffer inputs_;
};

// The states of a direction after the loop.
struct States {
  Direction direction;
  Buffer hidden, cell;
};

States run_rnn(ComputeContext& c, int64_t index, bool reverse) {
  Direction d(c, rnn_kind(), index, reverse);
  d.project_inputs([](int64_t) { return true; });
  Buffer hs = d.make_state("hidden", kInitialH);
  c.builder.serial_loop("t", d.steps, [&](const Expr& t) {
    Buffer r = d.recur("recurrent", 0, 1, [&](const Expr& b, const Expr& k) { return load(hs, {t, b, k}); });
    d.update("update", hs, t, [&](const Expr& b, const Expr& h) {
      return d.apply(0, d.input(t, b, 0, h) + load(r, {b, h}));
    });
  });
  return {d, hs, {}};
}

// Gates z, r, h:  H' = (1 - z) . h + z . H,  h = g(x Wh' + r . (H Rh' + bias)) or g(x Wh' + (r . H) Rh' + bias)
States run_gru(ComputeContext& c, int64_t index, bool reverse) {
  Direction d(c, gru_kind(), index, reverse);
  bool reset_after = c.attributes().integer("linear_before_reset", 0) != 0;
  d.project_inputs([&](int64_t gate) { return gate < 2 || !reset_after; });
  Buffer hs = d.make_state("hidden", kInitialH);
  auto state = [&](const Expr& t) {
    return [&hs, t](const Expr& b, const Expr& k) { return load(hs, {t, b, k}); };
  };
  c.builder.serial_loop("t", d.steps, [&](const Expr& t) {
    Buffer r = d.recur("recurrent", 0, reset_after ? 3 : 2, state(t));
    auto gate = [&](int64_t g, const Expr& b, const Expr& h) {
      return d.apply(0, d.input(t, b, g, h) + load(r, {b, g * d.hidden + h}));
    };
    Buffer candidate;
    if (!reset_after) {
      Buffer kept = c.builder.compute("reset", d.wide, {d.batch, d.hidden}, [&](Axes i) {
        return gate(1, i[0], i[1]) * load(hs, {t, i[0], i[1]});
      });
      candidate = d.recur("candidate", 2, 1, [&](const Expr& b, const Expr& k) {
        return load(kept, {b, k});
      });
    }
    d.update("update", hs, t, [&](const Expr& b, const Expr& h) {
      Expr inner;
      if (reset_after) {
        inner = load(r, {b, 2 * d.hidden + h});
        if (c.has_input(kBias)) inner = inner + d.recurrent_bias(2, h);
        inner = gate(1, b, h) * inner;
      } else {
        inner = load(candidate, {b, h});
      }
      Expr fresh = d.apply(1, d.input(t, b, 2, h) + inner);
      Expr z = gate(0, b, h);
      return (number_like(z, 1) - z) * fresh + z * load(hs, {t, b, h});
    });
  });
  return {d, hs, {}};
}

// Gates i, o, f, c:  C' = f . C + i . g(c),  H' = o . h(C'); peepholes let i and f see C, and o see C'.
States run_lstm(ComputeContext& c, int64_t index, bool reverse) {
  Direction d(c, lstm_kind(), index, reverse);
  d.project_inputs([](int64_t) { return true; });
  Buffer hs = d.make_state("hidden", kInitialH), cs = d.make_state("cell", kInitialC);
  bool coupled = c.attributes().integer("input_forget", 0) != 0;
  constexpr int64_t kInputGate = 0, kOutputGate = 1, kForgetGate = 2, kCellGate = 3;
  c.builder.serial_loop("t", d.steps, [&](const Expr& t) {
    const auto recurrent = d.recur(hs, t);
    // seen: the cell state that the peephole shows; the order of peepholes is i, o, f.
    auto gate = [&](size_t f, int64_t g, const Expr& b, const Expr& h, const Expr& seen) {
      Expr x = d.input(t, b, g, h) + recurrent(b, g * d.hidden + h);
      if (c.has_input(kPeephole) && seen.defined()) x = x + d.peephole(g, h) * seen;
      return d.apply(f, x);
    };
    d.update("update_cell", cs, t, [&](const Expr& b, const Expr& h) {
      Expr old = load(cs, {t, b, h});
      Expr i = gate(0, kInputGate, b, h, old);
      Expr f = coupled ? number_like(i, 1) - i : gate(0, kForgetGate, b, h, old);
      return f * old + i * gate(1, kCellGate, b, h, {});
    });
    d.update("update", hs, t, [&](const Expr& b, const Expr& h) {
      Expr cell = load(cs, {t + 1, b, h});
      return gate(0, kOutputGate, b, h, cell) * activate(d.functions[2], cell);
    });
  });
  return {d, hs, cs};
}

// Joins the directions: f(states, other axes), chosen by the index of the direction.
Expr by_direction(const std::vector<States>& all, const Expr& which,
                  const std::function<Expr(const States&)>& f) {
  if (all.size() == 1) return f(all[0]);
  return select(which == 0, f(all[0]), f(all[1]));
}

template <States (*run)(ComputeContext&, int64_t, bool)>
void compute_recurrent(ComputeContext& c) {
  std::string direction = c.attributes().text("direction", "forward");
  std::vector<States> all;
  all.push_back(run(c, 0, direction == "reverse"));
  if (direction == "bidirectional") all.push_back(run(c, 1, true));
  bool swap = batch_first(c.attributes());
  ElementType element = c.input_type(kX).element;
  if (c.has_output(0)) {
    c.set_output(0, c.builder.compute("sequence", element, c.output_type(0).shape, [&](Axes i) {
      Expr b = swap ? i[0] : i[2], time = swap ? i[1] : i[0], d = swap ? i[2] : i[1];
      return cast(element, by_direction(all, d, [&](const States& s) {
                    return s.direction.output(s.hidden, time, b, i[3]);
                  }));
    }));
  }
  for (int k = 1; k <= 2; ++k) {
    if (!c.has_output(k)) continue;
    c.set_output(k, c.builder.compute("last", element, c.output_type(k).shape, [&](Axes i) {
      Expr b = swap ? i[0] : i[1], d = swap ? i[1] : i[0];
      return cast(element, by_direction(all, d, [&](const States& s) {
                    return load(k == 1 ? s.hidden : s.cell, {s.direction.steps, b, i[2]});
                  }));
    }));
  }
}

OpDef recurrent(std::string_view name, void (*infer)(InferContext&), void (*compute)(ComputeContext&)) {
  OpDef op = onnx_op(name, FusionClass::opaque, 3, infer, compute);
  op.layout = LayoutRole::recurrent;
  return op;
}

}  // namespace

std::span<const OpDef> rnn_ops() {
  static const OpDef ops[] = {
      recurrent("RNN", infer_recurrent<rnn_kind>, compute_recurrent<run_rnn>),
      recurrent("GRU", infer_recurrent<gru_kind>, compute_recurrent<run_gru>),
      recurrent("LSTM", infer_recurrent<lstm_kind>, compute_recurrent<run_lstm>),
      own_op("ByteLSTM", FusionClass::opaque, 4, infer_bytes, compute_recurrent<run_lstm>),
  };
  return ops;
}

}  // namespace mcc::graph
