#include "tensor/simplify.h"

#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "golden.h"
#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::tensor {
namespace {

std::string trimmed(const std::string& s) {
  size_t first = s.find_first_not_of(" \t\r"), last = s.find_last_not_of(" \t\r");
  return first == std::string::npos ? "" : s.substr(first, last - first + 1);
}

// The declarations of a "given" line.
struct Given {
  Analyzer analyzer;
  std::vector<Var> vars;
  std::vector<Buffer> buffers{{"A", ElementType::i64, {1000}}, {"X", ElementType::f32, {1000}}};

  Expr parse(const std::string& source) const {
    Result<Expr> e = parse_expr(source, vars, buffers);
    EXPECT_TRUE(e.ok()) << source << ": " << (e.ok() ? "" : to_text(e.errors()));
    return e.ok() ? *e : Expr(0);
  }

  // "name", "name: low..high", "name: min + extent", "where condition"
  explicit Given(const std::string& line) {
    std::string declarations = line, condition;
    if (size_t where = line.find("where "); where != std::string::npos) {
      declarations = line.substr(0, where);
      condition = line.substr(where + 6);
    }
    for (const std::string& item : split_list(declarations))
      declare(item);
    if (!condition.empty()) analyzer.assume(parse(condition));
  }

 private:
  // At commas outside of parentheses.
  static std::vector<std::string> split_list(const std::string& list) {
    std::vector<std::string> out{""};
    int depth = 0;
    for (char c : list) {
      depth += (c == '(') - (c == ')');
      if (c == ',' && depth == 0) {
        out.emplace_back();
      } else {
        out.back() += c;
      }
    }
    return out;
  }
  void declare(const std::string& item) {
    size_t colon = item.find(':');
    if (colon == std::string::npos) {
      std::istringstream names(item);
      for (std::string name; names >> name;)
        vars.emplace_back(name);
      return;
    }
    Var var(trimmed(item.substr(0, colon)));
    std::string range = item.substr(colon + 1);
    if (size_t dots = range.find(".."); dots != std::string::npos) {
      int64_t low = std::stoll(range), high = std::stoll(range.substr(dots + 2));
      analyzer.bind(var, low, high - low + 1);
    } else {
      size_t plus = range.find(" + ");
      analyzer.bind(var, parse(range.substr(0, plus)), parse(range.substr(plus + 3)));
    }
    vars.push_back(var);
  }
};

TEST(Simplify, Expressions) {
  std::istringstream file(read_file(test_data("tensor/data/simplify/expressions.txt")));
  Given given("");
  int cases = 0, number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line = trimmed(line);
    if (line.empty() || line[0] == '#') continue;
    if (line.rfind("given ", 0) == 0) {
      given = Given(line.substr(6));
      continue;
    }
    size_t arrow = line.find(" => ");
    ASSERT_NE(arrow, std::string::npos) << line;
    Expr e = given.parse(line.substr(0, arrow));
    Expr simple = given.analyzer.simplify(e);
    EXPECT_EQ(to_text(simple), line.substr(arrow + 4)) << "line " << number << ": " << line;
    EXPECT_TRUE(given.analyzer.simplify(simple).same_as(simple))
        << "line " << number << ": not idempotent: " << to_text(given.analyzer.simplify(simple));
    ++cases;
  }
  EXPECT_GT(cases, 150);
}

// ---- Random expressions ----

int64_t floor_div_of(int64_t a, int64_t b) {
  if (b == 0) return 0;
  int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

// An evaluator of its own, so that nothing is shared with what is tested.
int64_t evaluate(const Expr& e, const std::vector<Var>& vars, const std::vector<int64_t>& values) {
  auto of = [&](const Expr& x) { return evaluate(x, vars, values); };
  if (const auto* imm = e.as<IntImm>()) return imm->value;
  if (e.as<VarNode>()) {
    for (size_t i = 0; i < vars.size(); ++i) {
      if (vars[i].same_as(e)) return values[i];
    }
    ADD_FAILURE() << "free variable";
  }
  if (const auto* s = e.as<Select>()) return of(s->condition) ? of(s->on_true) : of(s->on_false);
  if (const auto* c = e.as<Call>()) return !of(c->args[0]);  // only logical_not occurs
  const auto* n = e.as<Binary>();
  EXPECT_TRUE(n) << to_text(e);
  int64_t a = of(n->a), b = of(n->b);
  switch (n->op) {
    case BinaryOp::add:
      return a + b;
    case BinaryOp::sub:
      return a - b;
    case BinaryOp::mul:
      return a * b;
    case BinaryOp::div:
      return b == 0 ? 0 : a / b;
    case BinaryOp::mod:
      return b == 0 ? 0 : a % b;
    case BinaryOp::floor_div:
      return floor_div_of(a, b);
    case BinaryOp::floor_mod:
      return b == 0 ? 0 : a - floor_div_of(a, b) * b;
    case BinaryOp::min:
      return std::min(a, b);
    case BinaryOp::max:
      return std::max(a, b);
    case BinaryOp::eq:
      return a == b;
    case BinaryOp::ne:
      return a != b;
    case BinaryOp::lt:
      return a < b;
    case BinaryOp::le:
      return a <= b;
    case BinaryOp::gt:
      return a > b;
    case BinaryOp::ge:
      return a >= b;
    case BinaryOp::logical_and:
      return a && b;
    case BinaryOp::logical_or:
      return a || b;
    default:
      ADD_FAILURE() << to_text(n->op);
      return 0;
  }
}

class RandomExprs {
 public:
  explicit RandomExprs(uint32_t seed) : random_(seed) {}

  std::vector<Var> vars;
  std::vector<int64_t> low, high;

  int64_t pick(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(random_() % static_cast<uint64_t>(hi - lo + 1));
  }

  void declare_vars(Analyzer* analyzer) {
    const char* names[] = {"i", "j", "k", "f"};
    for (const char* name : names) {
      int64_t lo = pick(0, 2) == 0 ? pick(-20, 3) : 0;
      int64_t hi = lo + (pick(0, 3) == 0 ? pick(0, 300) : pick(0, 16));
      vars.emplace_back(name);
      low.push_back(lo);
      high.push_back(hi);
      analyzer->bind(vars.back(), lo, hi - lo + 1);
    }
  }

  std::vector<int64_t> assignment() {
    std::vector<int64_t> out;
    for (size_t i = 0; i < vars.size(); ++i)
      out.push_back(pick(low[i], high[i]));
    return out;
  }

  // Raw nodes: nothing is folded on the way.
  Expr index(int depth) {
    if (depth == 0 || pick(0, 7) == 0) {
      return pick(0, 3) == 0 ? Expr(pick(-6, 20)) : Expr(vars[static_cast<size_t>(pick(0, 3))]);
    }
    int64_t constants[] = {2, 3, 4, 6, 8, 12, 16, 32, -2, -4, 1, 0};
    Expr c(constants[pick(0, 30) == 0 ? pick(8, 11) : pick(0, 7)]);
    switch (pick(0, 11)) {
      case 0:
      case 1:
      case 2:
        return Binary::make(BinaryOp::add, index(depth - 1), index(depth - 1));
      case 3:
        return Binary::make(BinaryOp::sub, index(depth - 1), index(depth - 1));
      case 4:
      case 5:
        return Binary::make(BinaryOp::mul, index(depth - 1), c);
      case 6:
      case 7:
        return Binary::make(BinaryOp::floor_div, index(depth - 1), c);
      case 8:
      case 9:
        return Binary::make(BinaryOp::floor_mod, index(depth - 1), c);
      case 10: {
        BinaryOp ops[] = {BinaryOp::min, BinaryOp::max, BinaryOp::div, BinaryOp::mod, BinaryOp::mul};
        BinaryOp op = ops[pick(0, 4)];
        bool by_constant = op == BinaryOp::div || op == BinaryOp::mod;
        return Binary::make(op, index(depth - 1), by_constant ? c : index(depth - 1));
      }
      default:
        return Select::make(condition(depth - 1), index(depth - 1), index(depth - 1));
    }
  }

  Expr condition(int depth) {
    int64_t kind = depth == 0 ? 0 : pick(0, 8);
    if (kind == 7) return Call::make(Intrinsic::logical_not, {condition(depth - 1)});
    if (kind == 8) {
      BinaryOp op = pick(0, 1) ? BinaryOp::logical_and : BinaryOp::logical_or;
      return Binary::make(op, condition(depth - 1), condition(depth - 1));
    }
    BinaryOp ops[] = {BinaryOp::eq, BinaryOp::ne, BinaryOp::lt, BinaryOp::le, BinaryOp::gt, BinaryOp::ge};
    return Binary::make(ops[pick(0, 5)], index(depth), index(depth));
  }

 private:
  std::mt19937_64 random_;
};

TEST(Simplify, KeepsTheValueOfRandomExpressions) {
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    RandomExprs random(seed);
    Analyzer analyzer;
    random.declare_vars(&analyzer);
    Expr e = seed % 3 == 0 ? random.condition(3) : random.index(4);
    Expr simple = analyzer.simplify(e);
    Interval bounds = analyzer.bounds(e);
    for (int trial = 0; trial < 40; ++trial) {
      std::vector<int64_t> values = random.assignment();
      int64_t expected = evaluate(e, random.vars, values);
      ASSERT_EQ(evaluate(simple, random.vars, values), expected)
          << "seed " << seed << ": " << to_text(e) << "  =>  " << to_text(simple) << " at "
          << list_text(values);
      EXPECT_FALSE(bounds.low && expected < *bounds.low) << "seed " << seed << ": " << to_text(e);
      EXPECT_FALSE(bounds.high && expected > *bounds.high) << "seed " << seed << ": " << to_text(e);
    }
    Expr again = analyzer.simplify(simple);
    EXPECT_TRUE(again.same_as(simple))
        << "seed " << seed << ": " << to_text(e) << "  =>  " << to_text(simple) << "  =>  " << to_text(again);
    // A fresh analyzer with the same facts finds nothing more to do either.
    Analyzer fresh;
    for (size_t i = 0; i < random.vars.size(); ++i) {
      fresh.bind(random.vars[i], random.low[i], random.high[i] - random.low[i] + 1);
    }
    EXPECT_TRUE(fresh.simplify(simple).same_as(simple))
        << "seed " << seed << ": " << to_text(simple) << "  =>  " << to_text(fresh.simplify(simple));
  }
}

TEST(Simplify, KeepsTheValueUnderAssumptions) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    RandomExprs random(seed + 100000);
    Analyzer analyzer;
    random.declare_vars(&analyzer);
    Expr assumption = random.condition(1);
    analyzer.assume(assumption);
    Expr e = seed % 2 == 0 ? random.condition(2) : random.index(3);
    Expr simple = analyzer.simplify(e);
    for (int trial = 0; trial < 60; ++trial) {
      std::vector<int64_t> values = random.assignment();
      if (!evaluate(assumption, random.vars, values)) continue;
      ASSERT_EQ(evaluate(simple, random.vars, values), evaluate(e, random.vars, values))
          << "seed " << seed << ": " << to_text(e) << "  =>  " << to_text(simple) << " where "
          << to_text(assumption) << " at " << list_text(values);
    }
  }
}

// Loops whose extents are symbolic: i < n, k < m, jo < ceil(n / 4), ji < min(4, n - 4*jo).
class SymbolicExprs {
 public:
  explicit SymbolicExprs(uint32_t seed) : random_(seed) {
    for (const char* name : {"n", "m", "i", "k", "jo", "ji"})
      vars.emplace_back(name);
  }

  std::vector<Var> vars;

  void declare_vars(Analyzer* analyzer) const {
    const Var &n = vars[0], &m = vars[1], &jo = vars[4];
    analyzer->bind(n, 1, 40);
    analyzer->bind(m, 1, 9);
    analyzer->bind(vars[2], 0, n);
    analyzer->bind(vars[3], 0, m);
    analyzer->bind(jo, 0, floor_div(n + 3, 4));
    analyzer->bind(vars[5], 0, min(Expr(4), n - jo * 4));
  }

  std::vector<int64_t> assignment() {
    int64_t n = pick(1, 40), m = pick(1, 9), jo = pick(0, (n + 3) / 4 - 1);
    return {n, m, pick(0, n - 1), pick(0, m - 1), jo, pick(0, std::min<int64_t>(4, n - 4 * jo) - 1)};
  }

  Expr index(int depth) {
    if (depth == 0) return pick(0, 4) == 0 ? Expr(pick(-3, 8)) : any_var();
    switch (pick(0, 7)) {
      case 0:
      case 1: return Binary::make(BinaryOp::add, index(depth - 1), index(depth - 1));
      case 2: return Binary::make(BinaryOp::sub, index(depth - 1), index(depth - 1));
      case 3: return Binary::make(BinaryOp::mul, index(depth - 1), divisor());
      case 4: return Binary::make(BinaryOp::floor_div, index(depth - 1), divisor());
      case 5: return Binary::make(BinaryOp::floor_mod, index(depth - 1), divisor());
      case 6: return Binary::make(BinaryOp::min, index(depth - 1), index(depth - 1));
      default: return Binary::make(BinaryOp::add, Binary::make(BinaryOp::mul, any_var(), divisor()), any_var());
    }
  }

  Expr condition(int depth) {
    BinaryOp ops[] = {BinaryOp::eq, BinaryOp::ne, BinaryOp::lt, BinaryOp::le, BinaryOp::gt, BinaryOp::ge};
    return Binary::make(ops[pick(0, 5)], index(depth), index(depth));
  }

 private:
  int64_t pick(int64_t lo, int64_t hi) { return lo + static_cast<int64_t>(random_() % static_cast<uint64_t>(hi - lo + 1)); }
  Expr any_var() { return vars[static_cast<size_t>(pick(0, 5))]; }
  Expr divisor() {
    if (pick(0, 2) == 0) return Expr(pick(2, 4));
    return vars[static_cast<size_t>(pick(0, 1))];
  }
  std::mt19937_64 random_;
};

TEST(Simplify, KeepsTheValueWithSymbolicExtents) {
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    SymbolicExprs random(seed);
    Analyzer analyzer;
    random.declare_vars(&analyzer);
    Expr e = seed % 3 == 0 ? random.condition(2) : random.index(3);
    Expr simple = analyzer.simplify(e);
    for (int trial = 0; trial < 60; ++trial) {
      std::vector<int64_t> values = random.assignment();
      ASSERT_EQ(evaluate(simple, random.vars, values), evaluate(e, random.vars, values))
          << "seed " << seed << ": " << to_text(e) << "  =>  " << to_text(simple) << " at " << list_text(values);
    }
    Expr again = analyzer.simplify(simple);
    EXPECT_TRUE(again.same_as(simple)) << "seed " << seed << ": " << to_text(e) << "  =>  " << to_text(simple)
                                       << "  =>  " << to_text(again);
  }
}

// Splits and fusions in any order: the composition of index maps comes out as the plain variables again.
TEST(Simplify, UndoesNestedSplitsAndFusions) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 500; ++trial) {
    Analyzer analyzer;
    std::vector<Var> vars;
    std::vector<int64_t> extents;
    Expr fused(0);
    for (int i = 0; i < 4; ++i) {
      extents.push_back(1 + static_cast<int64_t>(random() % 9));
      vars.emplace_back(text("v", i));
      analyzer.bind(vars.back(), 0, extents.back());
      fused =
          Binary::make(BinaryOp::add, Binary::make(BinaryOp::mul, fused, Expr(extents.back())), vars.back());
    }
    int64_t stride = 1;
    for (int i = 3; i >= 0; --i) {
      auto at = static_cast<size_t>(i);
      Expr digit = Binary::make(BinaryOp::floor_mod, Binary::make(BinaryOp::floor_div, fused, Expr(stride)),
                                Expr(extents[at]));
      EXPECT_EQ(to_text(analyzer.simplify(digit)), extents[at] == 1 ? "0" : text("v", i))
          << to_text(digit) << " extents " << list_text(extents);
      stride *= extents[at];
    }
    // Any digits of one variable, put together, are the variable.
    Var f("f");
    analyzer.bind(f, 0, stride);
    Expr back(0);
    int64_t below = 1;
    for (int i = 3; i >= 0; --i) {
      int64_t extent = extents[static_cast<size_t>(i)];
      back = back + floor_mod(floor_div(f, below), extent) * below;
      below *= extent;
    }
    EXPECT_EQ(to_text(analyzer.simplify(back)), stride == 1 ? "0" : "f") << to_text(back);
  }
}

// ---- Statements ----

struct StmtCase {
  const char* before;
  const char* after;
};

TEST(Simplify, Statements) {
  const StmtCase cases[] = {
      // loops of one iteration and of none
      {"for i in 1 from 3 { y[i] = 1.0 } for j in 0 { y[j] = 2.0 }", "y[3] = 1.0"},
      {"for i in 4 { for j in n - n { y[j] = 2.0 } }", ""},
      {"bound for t in 1 @{thread=\"thread.x\"} { y[2] = 1.0 }",
       "bound for t in 1 @{thread=\"thread.x\"} { y[2] = 1.0 }"},
      // conditions that the loops decide
      {"for i in 8 { if i < 8 { y[i] = 1.0 } else { y[i] = 2.0 } }", "for i in 8 { y[i] = 1.0 }"},
      {"for i in 8 { if i < 4 { if i < 5 { y[i] = 1.0 } } else { if i < 4 { y[i] = 2.0 } } }",
       "for i in 8 { if i < 4 { y[i] = 1.0 } }"},
      {"for i in 8 { if i < 4 { if i > 9 { y[i] = 1.0 } } else { y[i] = 2.0 } }",
       "for i in 8 { if i >= 4 { y[i] = 2.0 } }"},
      // indices
      {"for i in 8 { for j in 16 { y[(i * 16 + j) // 16] = x[(i * 16 + j) %% 16] } }",
       "for i in 8 { for j in 16 { y[i] = x[j] } }"},
      {"for i in n { for j in 4 { if i * 4 + j < n * 4 { y[i] = 1.0 } } }",
       "for i in n { for j in 4 { y[i] = 1.0 } }"},
      // lets
      {"let a = n y[a] = 1.0", "y[n] = 1.0"},
      {"for i in 8 { let a = i * 2 + 1 if a < 16 { y[a] = 1.0 } }",
       "for i in 8 { let a = i * 2 + 1 y[a] = 1.0 }"},
      // blocks
      {"for i in 8 { block B(a = (i * 4) // 4: spatial 8) where i < 9 writes y[a] { y[a // 1] = 1.0 } }",
       "for i in 8 { block B(a = i: spatial 8) writes y[a] { y[a] = 1.0 } }"},
      {"for i in 8 { block B(a = i: spatial 8) where i > 9 { y[a] = 1.0 } }", ""},
      // predicates
      {"y[ramp(0, 1, 4); broadcast(n >= 0, 4)] = broadcast(1.0, 4)", "y[ramp(0, 1, 4)] = broadcast(1.0, 4)"},
      {"y[ramp(0, 1, 4); broadcast(n < 0, 4)] = broadcast(1.0, 4)", ""},
  };
  for (const StmtCase& c : cases) {
    auto wrap = [](const char* body) { return text("func f<n>(x: f32[n]) -> (y: f32[n]) { ", body, " }"); };
    Result<Func> before = parse_func(wrap(c.before)), after = parse_func(wrap(c.after));
    ASSERT_TRUE(before.ok()) << c.before << to_text(before.errors());
    ASSERT_TRUE(after.ok()) << c.after << to_text(after.errors());
    Func simple = simplify(*before);
    EXPECT_EQ(to_text(simple), to_text(*after)) << c.before;
    EXPECT_TRUE(simplify(simple).body.same_as(simple.body)) << "not idempotent: " << c.before;
  }
}

TEST(Simplify, LinearForms) {
  Var i("i"), j("j"), n("n");
  auto form = linear_form(i * 4 + (j + 2) * 3 + n - i, {i, j});
  ASSERT_TRUE(form.has_value());
  EXPECT_EQ(form->coefficients, (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(to_text(form->rest), "n + 6");
  EXPECT_FALSE(linear_form(i * n, {i}).has_value());
  EXPECT_FALSE(linear_form(floor_div(i, 2), {i}).has_value());
  EXPECT_TRUE(linear_form(floor_div(i, 2), {j}).has_value());
}

TEST(Simplify, ConstantDifference) {
  Analyzer analyzer;
  Var i("i"), n("n");
  EXPECT_EQ(analyzer.constant_difference(i * 4 + n + 7, n + 4 * i), 7);
  EXPECT_EQ(analyzer.constant_difference(i, n), std::nullopt);
}

}  // namespace
}  // namespace mcc::tensor
