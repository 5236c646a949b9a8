#include "tensor/schedule/separation.h"

#include <algorithm>
#include <numeric>

#include "tensor/schedule/digits.h"
#include "tensor/text.h"

namespace mcc::tensor {

bool repeats_instances(const Func& f, const BlockSite& site, size_t first, size_t last) {
  std::vector<Expr> values;
  for (size_t i = 0; i < site.block->axes.size(); ++i) {
    if (site.block->axes[i].kind == AxisKind::spatial) values.push_back(site.block->values[i]);
  }
  for (size_t i = first; i < last; ++i) {
    const For* loop = site.loops[i];
    if (axes_bound_to(*site.block, loop->var).reduce) continue;
    if (!is_int(loop->extent, 1) && !separates(regions_at(f, site, i), loop->var, values)) return true;
  }
  return false;
}

namespace {

constexpr int64_t kMaxReach = int64_t{1} << 48;  // of one term; sums of some stay in 64 bits

// The term of a sum that depends on the loop, when the sum tells its values apart whatever the other terms are: those of
// smaller coefficients stay below its own, and with it below the greatest common divisor of the larger ones.
Expr separated_term(const RegionAnalysis& regions, const Var& loop, const Expr& e) {
  std::vector<std::pair<int64_t, Expr>> terms;
  split_sum(e, &terms);
  Expr found;
  int64_t own = 0, reach = 0;  // its coefficient, and that times its width
  std::vector<std::pair<int64_t, int64_t>> others;
  for (const auto& [coefficient, atom] : terms) {
    std::optional<Stretch> stretch = regions.stretch(atom);
    int64_t width = 0, size = std::abs(coefficient), product = 0;
    if (!stretch || !as_int(regions.analyzer().simplify(stretch->width), &width)) return nullptr;
    if (__builtin_mul_overflow(size, width, &product) || product > kMaxReach) return nullptr;
    if (uses_var(atom, loop)) {
      if (found.defined()) return nullptr;
      found = atom;
      own = size;
      reach = product;
    } else if (width > 0) {
      others.emplace_back(size, product);
    }
  }
  int64_t below = 0, above = 0;
  for (const auto& [size, product] : others) {
    if (size > own) {
      above = std::gcd(above, size);
    } else {
      below += product;
    }
  }
  return below < own && (above == 0 || reach + below < above) ? found : nullptr;
}

// A sum of the values that takes back together what was divided: of n * 14 + (n * 4 + t) // 18 and (n * 4 + t) %% 18 the sum
// of 18 times the first and the second, n * 256 + t. For each base of a division.
std::vector<Expr> recombined(const RegionAnalysis& regions, const Var& loop,
                             const std::vector<Expr>& values) {
  struct Part {
    Expr base, sum;
  };
  std::vector<Part> parts;
  for (const Expr& value : values) {
    std::vector<std::pair<int64_t, Expr>> terms;
    split_sum(value, &terms);
    for (const auto& [coefficient, atom] : terms) {
      Digit digit = as_digit(atom);
      if (!uses_var(atom, loop) || coefficient != 1 || digit.base.same_as(atom)) continue;
      auto it = std::find_if(parts.begin(), parts.end(),
                             [&](const Part& p) { return structurally_equal(p.base, digit.base); });
      if (it == parts.end()) it = parts.insert(parts.end(), {digit.base, 0});
      it->sum = it->sum + value * Expr(digit.stride);
    }
  }
  std::vector<Expr> out;
  for (const Part& p : parts)
    out.push_back(regions.analyzer().simplify(p.sum));
  return out;
}

// Whether such terms of several values are together all digits of the loop's variable, or of a sum that tells its values
// apart.
bool separates_in_sums(const RegionAnalysis& regions, const Var& loop, const std::vector<Expr>& values) {
  std::vector<PlacedDigit> digits;
  for (size_t i = 0; i < values.size(); ++i) {
    Expr term = separated_term(regions, loop, values[i]);
    if (!term.defined()) continue;
    if (term.same_as(loop)) return true;
    digits.push_back({i, as_digit(term)});
  }
  for (const PlacedDigit& first : digits) {
    const Expr& base = first.digit.base;
    if (!base.same_as(loop) && !separated_term(regions, loop, base).same_as(loop)) continue;
    std::vector<PlacedDigit> same;
    for (const PlacedDigit& d : digits) {
      if (structurally_equal(d.digit.base, base)) same.push_back(d);
    }
    if (is_complete(&same, nullptr)) return true;
  }
  // What all values determine, their sums do, too.
  for (const Expr& sum : recombined(regions, loop, values)) {
    if (separated_term(regions, loop, sum).same_as(loop)) return true;
  }
  return false;
}

}  // namespace

bool separates(const RegionAnalysis& regions, const Var& loop, const std::vector<Expr>& values,
               bool in_sums) {
  auto is_separated = [&](const Expr& e) {
    if (in_sums) return separated_term(regions, loop, e).same_as(loop);
    std::optional<LinearForm> form = linear_form(e, {loop});
    if (!form || form->coefficients[0] == 0) return false;
    std::optional<Stretch> rest = regions.stretch(form->rest);
    return rest && regions.analyzer().can_prove(rest->width < std::abs(form->coefficients[0]));
  };
  std::vector<Expr> simple;
  for (const Expr& v : values) {
    if (uses_var(v, loop)) simple.push_back(regions.analyzer().simplify(v));
  }
  if (std::any_of(simple.begin(), simple.end(), is_separated)) return true;
  if (in_sums && separates_in_sums(regions, loop, simple)) return true;
  for (const Expr& e : simple) {
    Digit first = as_digit(e);
    if (first.stride == 1 && first.modulus == 0) continue;
    std::vector<PlacedDigit> digits;
    for (size_t i = 0; i < simple.size(); ++i) {
      Digit digit = as_digit(simple[i]);
      if (structurally_equal(digit.base, first.base)) digits.push_back({i, digit});
    }
    if (is_complete(&digits, nullptr) && is_separated(first.base)) return true;
  }
  return false;
}

namespace {

// A spatial axis of which the loop counts stretches: loop * length + what other loops count, which is less than the length.
struct Stretches {
  const Axis* axis = nullptr;
  int64_t length = 1;
};

// Where no other value of the block has to do with the loop.
std::optional<Stretches> stretches_of(const Func& f, const LoopOfBlock& of) {
  const Block& block = *of.site->block;
  std::optional<Stretches> found;
  for (size_t i = 0; i < block.axes.size(); ++i) {
    const Expr& value = block.values[i];
    if (!uses_var(value, of.loop)) continue;
    const std::optional<LinearForm> form = linear_form(value, {of.loop});
    if (found || block.axes[i].kind != AxisKind::spatial || !form || uses_var(form->rest, of.loop))
      return std::nullopt;
    found = {&block.axes[i], form->coefficients[0]};
    const Analyzer analyzer = analyzer_at(f, of.site->loops);
    if (!analyzer.can_prove(form->rest >= 0 && form->rest < Expr(found->length))) return std::nullopt;
  }
  return found;
}

// An access of the block to a buffer.
struct Use {
  const std::vector<Expr>* indices;
  bool is_store = false;
};

std::vector<Use> uses_of(const Block& block, const Buffer& buffer) {
  std::vector<Use> uses;
  for (const Stmt& s : {block.init, block.body}) {
    if (!s) continue;
    for_each_stmt(s, [&](const Stmt& below) {
      const auto* store = below.as<Store>();
      if (store && store->buffer.same_as(buffer)) uses.push_back({&store->indices, true});
    });
    for_each_expr(s, [&](const Expr& e) {
      const auto* load = e.as<Load>();
      if (load && load->buffer.same_as(buffer)) uses.push_back({&load->indices, false});
    });
  }
  return uses;
}

// Knows the elements that blocks access while loops around them stand still.
class StandingElements {
 public:
  StandingElements(const Func& f, const std::vector<const For*>& around) : analyzer_(analyzer_at(f, around)) {
    for (const For* loop : around)
      standing_.push_back(loop->var.node());
  }

  // Whether some dimension has different indices in both, each one number meanwhile.
  bool differ(const Block& a, const Use& of_a, const Block& b, const Use& of_b) const {
    for (size_t d = 0; d < of_a.indices->size(); ++d) {
      const Expr first = standing((*of_a.indices)[d], a), second = standing((*of_b.indices)[d], b);
      if (first.defined() && second.defined() && analyzer_.can_prove(first != second)) return true;
    }
    return false;
  }

 private:
  // Over the loops around; undefined where it depends on anything else.
  Expr standing(Expr index, const Block& block) const {
    for (size_t i = 0; i < block.axes.size(); ++i)
      index = substitute(index, {{block.axes[i].var.get(), block.values[i]}});
    bool is_standing = true;
    for_each_expr(Evaluate::make(index), [&](const Expr& e) {
      const auto* var = e.as<VarNode>();
      is_standing &=
          e.as<Load>() == nullptr &&
          (var == nullptr || std::find(standing_.begin(), standing_.end(), var) != standing_.end());
    });
    return is_standing ? index : Expr();
  }

  Analyzer analyzer_;
  std::vector<const VarNode*> standing_;
};

}  // namespace

bool are_apart(const Func& f, const std::vector<LoopOfBlock>& loops, const std::vector<const For*>& around) {
  std::vector<Stretches> stretches;
  for (const LoopOfBlock& of : loops) {
    const std::optional<Stretches> own = stretches_of(f, of);
    if (!own || (!stretches.empty() && own->length != stretches[0].length)) return false;
    stretches.push_back(*own);
  }
  const StandingElements elements(f, around);
  // Whether no block of the loops stores to the element of the use while the loops around stand still.
  auto is_left_alone = [&](const Block& block, const Use& use, const Buffer& buffer) {
    return !use.is_store && std::all_of(loops.begin(), loops.end(), [&](const LoopOfBlock& other) {
      const std::vector<Use> uses = uses_of(*other.site->block, buffer);
      return std::all_of(uses.begin(), uses.end(), [&](const Use& store) {
        return !store.is_store || elements.differ(block, use, *other.site->block, store);
      });
    });
  };
  for (const LoopOfBlock& writer : loops) {
    for (const Region& written : writer.site->block->writes) {
      std::vector<bool> is_at(written.buffer.rank(), true);
      for (size_t n = 0; n < loops.size(); ++n) {
        const Block& block = *loops[n].site->block;
        for (const Use& use : uses_of(block, written.buffer)) {
          if (!around.empty() && is_left_alone(block, use, written.buffer)) continue;
          for (size_t d = 0; d < use.indices->size(); ++d)
            is_at[d] = is_at[d] && (*use.indices)[d].same_as(stretches[n].axis->var);
        }
      }
      if (std::find(is_at.begin(), is_at.end(), true) == is_at.end()) return false;
    }
  }
  return true;
}

}  // namespace mcc::tensor
