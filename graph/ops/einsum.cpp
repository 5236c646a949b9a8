// Einsum: a sum of products over the labels that the output leaves out.
#include "graph/ops/einsum.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

// One term with `ellipsis` dimensions under its "...".
std::optional<std::vector<Label>> parse_term(const std::string& term, int ellipsis) {
  std::vector<Label> labels;
  bool had_ellipsis = false;
  for (size_t k = 0; k < term.size(); ++k) {
    if (term.compare(k, 3, "...") == 0 && !had_ellipsis) {
      for (int d = ellipsis; d-- > 0;)
        labels.push_back(kEllipsis + d);
      had_ellipsis = true;
      k += 2;
    } else if (std::isalpha(static_cast<unsigned char>(term[k]))) {
      labels.push_back(static_cast<unsigned char>(term[k]));
    } else {
      return std::nullopt;
    }
  }
  return labels;
}

int letters_in(const std::string& term) {
  int n = 0;
  for (char ch : term)
    n += std::isalpha(static_cast<unsigned char>(ch)) ? 1 : 0;
  return n;
}

// Without "->": the ellipsis, then the labels that occur once, in alphabetical order.
std::vector<Label> implicit_output(const Equation& e, int ellipsis) {
  std::map<Label, int> uses;
  for (const auto& term : e.operands) {
    for (Label l : term)
      ++uses[l];
  }
  std::vector<Label> output;
  for (int d = ellipsis; d-- > 0;)
    output.push_back(kEllipsis + d);
  for (const auto& [label, count] : uses) {
    if (label < kEllipsis && count == 1) output.push_back(label);
  }
  return output;
}

}  // namespace

ParsedEquation parse_equation(std::string text_, const std::vector<int>& ranks) {
  std::erase(text_, ' ');
  size_t arrow = text_.find("->");
  std::string left = text_.substr(0, arrow);
  std::vector<std::string> terms{""};
  for (char ch : left) {
    if (ch == ',') {
      terms.emplace_back();
    } else {
      terms.back() += ch;
    }
  }
  if (terms.size() != ranks.size()) {
    return {{}, text("equation ", text_, " has ", terms.size(), " terms for ", ranks.size(), " inputs")};
  }
  Equation e;
  int widest = 0;
  for (size_t k = 0; k < terms.size(); ++k) {
    bool has_ellipsis = terms[k].find("...") != std::string::npos;
    int ellipsis = ranks[k] - letters_in(terms[k]);
    auto labels = parse_term(terms[k], std::max(ellipsis, 0));
    if (!labels) return {{}, text("equation ", text_, " cannot be read")};
    if (ellipsis < 0 || (!has_ellipsis && ellipsis != 0)) {
      return {{}, text("equation ", text_, ": term ", k, " does not fit an input of rank ", ranks[k])};
    }
    widest = std::max(widest, has_ellipsis ? ellipsis : 0);
    e.operands.push_back(*labels);
  }
  if (arrow == std::string::npos) {
    e.output = implicit_output(e, widest);
  } else {
    auto output = parse_term(text_.substr(arrow + 2), widest);
    if (!output) return {{}, text("equation ", text_, " cannot be read")};
    e.output = *output;
  }
  return {e, ""};
}

std::string to_text(const Equation& equation) {
  static constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::map<Label, char> letters;
  std::string result;
  auto write = [&](const std::vector<Label>& term) {
    for (Label l : term) {
      const auto [entry, is_new] = letters.try_emplace(l, '?');
      if (is_new) {
        MCC_CHECK(letters.size() <= kLetters.size(), "an equation of more labels than there are letters");
        entry->second = kLetters[letters.size() - 1];
      }
      result += entry->second;
    }
  };
  for (const std::vector<Label>& term : equation.operands) {
    if (!result.empty() || &term != &equation.operands.front()) result += ',';
    write(term);
  }
  result += "->";
  write(equation.output);
  return result;
}

namespace {

template <class Context>
std::vector<int> ranks_of(const Context& c, int n) {
  std::vector<int> ranks;
  for (int i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<Context, InferContext>) {
      ranks.push_back(c.rank(i));
    } else {
      ranks.push_back(static_cast<int>(c.input_type(i).shape.size()));
    }
  }
  return ranks;
}

void infer_einsum(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::number)) return;
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (!expect(c, c.has_input(i), "input ", i, " is missing") || !expect_same_type(c, 0, i)) return;
  }
  ParsedEquation parsed = parse_equation(c.attributes().text("equation", ""), ranks_of(c, c.num_inputs()));
  if (!expect(c, parsed.equation.has_value(), parsed.error)) return;
  std::map<Label, Expr> extents;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const auto& labels = parsed.equation->operands[static_cast<size_t>(i)];
    for (size_t k = 0; k < labels.size(); ++k) {
      const Expr& d = c.input(i).shape[k];
      auto [entry, is_new] = extents.try_emplace(labels[k], d);
      if (is_new || tensor::is_int(d, 1)) continue;
      if (tensor::is_int(entry->second, 1)) {
        entry->second = d;
      } else if (!expect_same_dim(c, entry->second, d, text("dimension ", k, " of input ", i))) {
        return;
      } else if (static_dim(d)) {
        entry->second = d;
      }
    }
  }
  Shape out;
  for (Label l : parsed.equation->output) {
    if (!expect(c, extents.count(l) != 0, "the equation's output has a label that no input has")) return;
    out.push_back(extents[l]);
  }
  c.set_output(0, {contraction_result(c), out});
}

void compute_einsum(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  Equation e = *parse_equation(c.attributes().text("equation", ""), ranks_of(c, c.num_inputs())).equation;
  std::map<Label, Expr> extents;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const auto& labels = e.operands[static_cast<size_t>(i)];
    for (size_t k = 0; k < labels.size(); ++k) {
      const Expr& d = c.input_type(i).shape[k];
      auto [entry, is_new] = extents.try_emplace(labels[k], d);
      if (!is_new && !tensor::is_int(d, 1)) entry->second = d;
    }
  }
  std::vector<Label> summed;
  std::vector<Expr> summed_extents;
  for (const auto& [label, extent] : extents) {
    if (std::find(e.output.begin(), e.output.end(), label) != e.output.end()) continue;
    summed.push_back(label);
    summed_extents.push_back(extent);
  }
  auto value = [&](Axes i, Axes r) {
    std::map<Label, Expr> position;
    for (size_t k = 0; k < e.output.size(); ++k)
      position[e.output[k]] = i[k];
    for (size_t k = 0; k < summed.size(); ++k)
      position[summed[k]] = r[k];
    Expr product;
    for (int n = 0; n < c.num_inputs(); ++n) {
      std::vector<Expr> at;
      for (Label l : e.operands[static_cast<size_t>(n)]) {
        bool broadcast = tensor::is_int(c.input_type(n).shape[at.size()], 1);
        at.push_back(broadcast ? Expr(0) : position[l]);
      }
      Expr x = widen(c.at(n, at));
      product = product.defined() ? product * x : x;
    }
    return product;
  };
  Buffer sum =
      c.builder.reduce("einsum", wide_type(out.element), out.shape, summed_extents, Reducer::sum, value);
  c.set_output(0, cast_buffer(c, sum, out.element));
}

}  // namespace

std::span<const OpDef> einsum_ops() {
  static const OpDef op = onnx_op("Einsum", FusionClass::contraction, 1, infer_einsum, compute_einsum);
  return {&op, 1};
}

}  // namespace mcc::graph
