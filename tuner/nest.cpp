#include "tuner/nest.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

#include "support/saturating.h"
#include "tensor/visit.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr size_t kMaxDepth = 40;
constexpr int64_t kFar = int64_t{1} << 20;  // stride of an index that is data
constexpr double kLine = 64;
constexpr int64_t kMost = int64_t{1} << 60;  // of extents and indices: a few of them add up without leaving 64 bits

// Texts of a log may tell of tensors that no memory holds: what is beyond the largest number stays at it.
int64_t bounded(int64_t a) { return std::clamp(a, -kMost, kMost); }
int64_t plus(int64_t a, int64_t b) { return bounded(saturating_add(a, b)); }
int64_t times(int64_t a, int64_t b) { return bounded(saturating_mul(a, b)); }

// Where strides leave 64 bits, elements are far apart.
int64_t times_or_far(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kFar : product;
}

int64_t plus_or_far(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kFar : sum;
}

int64_t static_or_one(const Expr& e) {
  int64_t value = 1;
  as_int(e, &value);
  return bounded(std::max<int64_t>(value, 0));
}

// An index while the loops of a chain run: how far it goes when the loops from d on run, and its value at the start and
// after one step of each loop alone.
struct Walk {
  std::array<int64_t, kMaxDepth + 1> width{};  // [d], d = 0..n
  std::array<int64_t, kMaxDepth + 1> value{};  // [k]: loop k at 1, all others at 0; [n]: all at 0
};

int64_t floor_div64(int64_t a, int64_t b) {
  if (b == 0) return 0;
  int64_t q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}

int64_t value_of(BinaryOp op, int64_t a, int64_t b) {
  switch (op) {
    case BinaryOp::add:
      return plus(a, b);
    case BinaryOp::sub:
      return plus(a, -b);
    case BinaryOp::mul:
      return times(a, b);
    case BinaryOp::floor_div:
    case BinaryOp::div:
      return floor_div64(a, b);
    case BinaryOp::floor_mod:
    case BinaryOp::mod:
      return b == 0 ? 0 : plus(a, -times(b, floor_div64(a, b)));
    case BinaryOp::min:
      return std::min(a, b);
    case BinaryOp::max:
      return std::max(a, b);
    default:
      return a;
  }
}

// An operand that goes this far from where it starts.
struct Reach {
  int64_t width, start;
};

int64_t width_of(BinaryOp op, const Reach& a, const Reach& b) {
  switch (op) {
    case BinaryOp::add:
    case BinaryOp::sub:
      return plus(a.width, b.width);
    case BinaryOp::mul:
      return plus(plus(times(a.width, std::abs(b.start)), times(b.width, std::abs(a.start))), times(a.width, b.width));
    // Fused and split loops start at multiples of what they are divided by.
    case BinaryOp::floor_div:
    case BinaryOp::div:
      return b.start > 0 ? a.width / b.start : a.width;
    case BinaryOp::floor_mod:
    case BinaryOp::mod:
      return b.start > 0 ? std::min(a.width, b.start - 1) : a.width;
    default:
      return std::max(a.width, b.width);
  }
}

class Reader {
 public:
  explicit Reader(Nest& nest) : nest_(nest) {}

  void statement(const Stmt& s) {
    if (!s.get()) return;
    switch (s.kind()) {
      case StmtKind::For:
        return loop(*s.as<For>());
      case StmtKind::Block:
        return block(*s.as<Block>());
      case StmtKind::Store:
        return store(*s.as<Store>());
      case StmtKind::Seq:
        for (const Stmt& x : s.as<Seq>()->stmts)
          statement(x);
        return;
      case StmtKind::If:
        statement(s.as<If>()->then_body);
        statement(s.as<If>()->else_body);
        return;
      case StmtKind::Let: {
        const Let& let = *s.as<Let>();
        known_[let.var.get()] = walk(let.value);
        statement(let.body);
        return;
      }
      case StmtKind::Allocate:
        return statement(s.as<Allocate>()->body);
      case StmtKind::Evaluate:
        return;
    }
  }

 private:
  size_t depth() const { return chain_.size(); }

  void attach(int child) {
    (chain_.empty() ? nest_.roots : nest_.loops[static_cast<size_t>(chain_.back())].children)
        .push_back(child);
  }

  void enter(NestLoop loop, const ExprNode* var, int64_t place) {
    loop.parent = chain_.empty() ? -1 : chain_.back();
    loop.children.clear();
    auto index = static_cast<int>(nest_.loops.size());
    attach(index);
    nest_.loops.push_back(std::move(loop));
    chain_.push_back(index);
    vars_.push_back(var);
    places_.push_back(place);
    roles_.push_back(LoopRole::none);
  }

  void leave() {
    chain_.pop_back();
    vars_.pop_back();
    places_.pop_back();
    roles_.pop_back();
  }

  void loop(const For& n) {
    if (depth() >= kMaxDepth) return statement(n.body);
    NestLoop loop;
    loop.kind = n.loop;
    loop.extent = static_or_one(n.extent);
    if (auto it = n.annotations.find("thread"); it != n.annotations.end()) {
      if (const auto* axis = std::get_if<std::string>(&it->second)) loop.thread_axis = thread_axis(*axis);
    }
    if (auto it = n.annotations.find("unroll"); it != n.annotations.end()) {
      if (const auto* step = std::get_if<int64_t>(&it->second)) loop.unroll_step = *step;
    }
    if (auto it = n.annotations.find("instruction"); it != n.annotations.end()) {
      const auto* name = std::get_if<std::string>(&it->second);
      loop.is_warpgroup = name != nullptr && name->starts_with("wgmma");
      loop.is_matrix = loop.is_warpgroup || (name != nullptr && name->starts_with("mma"));
    }
    // The parts, from the outermost in.
    int64_t rest = loop.extent;
    std::vector<int64_t> places = places_of(n, loop.extent);
    size_t parts = 0;
    for (int64_t place : places) {
      if (depth() >= kMaxDepth) break;
      NestLoop part = loop;
      part.extent = rest / place;
      part.is_inner_part = parts > 0;
      rest = place;
      enter(std::move(part), n.var.get(), place);
      ++parts;
    }
    statement(n.body);
    for (; parts > 0; --parts)
      leave();
  }

  // What the loop's index is divided by anywhere below, if these divisors divide one another and the extent; descending,
  // 1 at the end.
  static std::vector<int64_t> places_of(const For& n, int64_t extent) {
    class Divisors : public Visitor {
     public:
      explicit Divisors(const ExprNode* v) : var(v) {}
      const ExprNode* var;
      std::vector<int64_t> found{1};

     protected:
      using Visitor::on;
      void on(const Binary& b) override {
        int64_t by = 0;
        if ((b.op == BinaryOp::floor_div || b.op == BinaryOp::floor_mod) && as_int(b.b, &by) && by > 1) {
          int64_t inner = 1;
          const auto* a = b.a.as<Binary>();
          if (b.a.get() == var) {
            found.push_back(by);
          } else if (a && a->op == BinaryOp::floor_div && a->a.get() == var && as_int(a->b, &inner)) {
            found.push_back(times(by, inner));
          }
        }
        Visitor::on(b);
      }
      void on(const Block& b) override {
        for (const Expr& v : b.values)
          visit(v);
      }
    } divisors(n.var.get());
    divisors.visit(n.body);
    std::vector<int64_t>& places = divisors.found;
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    while (places.size() > 1 && places.back() >= extent)
      places.pop_back();
    for (size_t i = 0; i < places.size(); ++i) {
      int64_t next = i + 1 < places.size() ? places[i + 1] : extent;
      if (next % places[i] != 0) return {1};
    }
    std::reverse(places.begin(), places.end());
    return places;
  }

  static int thread_axis(const std::string& name) {
    constexpr std::string_view kAxes[] = {"block.x",  "block.y",  "block.z", "thread.x",
                                          "thread.y", "thread.z", "vthread"};
    for (size_t i = 0; i < std::size(kAxes); ++i) {
      if (name == kAxes[i]) return static_cast<int>(i);
    }
    return -1;
  }

  void block(const Block& n) {
    share_ = 1;
    std::vector<LoopRole> outer_roles = roles_;
    std::fill(roles_.begin(), roles_.end(), LoopRole::none);
    bool has_predicate = !is_true(n.predicate);
    for (size_t a = 0; a < n.axes.size(); ++a) {
      Walk w = walk(n.values[a]);
      int64_t extent = static_or_one(n.axes[a].domain.extent);
      LoopRole role = n.axes[a].kind == AxisKind::spatial ? LoopRole::spatial : LoopRole::reduce;
      int64_t lanes = 1;
      for (size_t k = 0; k < depth(); ++k) {
        if (w.width[k] == w.width[k + 1]) continue;
        roles_[k] = roles_[k] == LoopRole::none || roles_[k] == role ? role : LoopRole::mixed;
        const NestLoop& l = nest_.loops[static_cast<size_t>(chain_[k])];
        if (l.kind == LoopKind::vectorized) lanes = std::max(lanes, l.extent);
      }
      // Iterations beyond the domain are not run, but for the lanes of a vector that are masked.
      int64_t covered = w.width[0] + 1, rounded = (extent + lanes - 1) / lanes * lanes;
      if (has_predicate && covered > rounded)
        share_ *= static_cast<double>(rounded) / static_cast<double>(covered);
      for (size_t d = 0; d <= depth(); ++d)
        w.width[d] = std::min(w.width[d], std::max<int64_t>(extent - 1, 0));
      known_[n.axes[a].var.get()] = w;
    }
    if (n.init.get()) init(n);
    statement(n.body);
    roles_ = std::move(outer_roles);
    share_ = 1;
  }

  // Runs before the reduce loops: stands under copies of the spatial ones.
  void init(const Block& n) {
    size_t first = 0;
    while (first < depth() && roles_[first] != LoopRole::reduce)
      ++first;
    std::vector<int> chain = chain_;
    std::vector<const ExprNode*> vars = vars_;
    std::vector<int64_t> places = places_;
    std::vector<LoopRole> roles = roles_;
    auto known = known_;
    chain_.resize(first), vars_.resize(first), places_.resize(first), roles_.resize(first);
    for (size_t k = first; k < chain.size(); ++k) {
      if (roles[k] == LoopRole::reduce) continue;
      enter(nest_.loops[static_cast<size_t>(chain[k])], vars[k], places[k]);
      roles_.back() = roles[k];
    }
    for (size_t a = 0; a < n.axes.size(); ++a) {
      if (n.axes[a].kind == AxisKind::spatial) known_[n.axes[a].var.get()] = walk(n.values[a]);
    }
    is_init_ = true;
    statement(n.init);
    is_init_ = false;
    chain_ = std::move(chain), vars_ = std::move(vars), places_ = std::move(places),
    roles_ = std::move(roles);
    known_ = std::move(known);
  }

  // ---- Indices ----

  Walk walk(const Expr& e) {
    Walk w;
    size_t n = depth();
    if (const auto* imm = e.as<IntImm>()) {
      w.value.fill(bounded(imm->value));
      return w;
    }
    if (e.kind() == ExprKind::Var) {
      bool is_loop = false;
      for (size_t k = 0; k < n; ++k) {
        if (vars_[k] != e.get()) continue;
        is_loop = true;
        int64_t extent = nest_.loops[static_cast<size_t>(chain_[k])].extent;
        for (size_t d = 0; d <= k; ++d)
          w.width[d] = plus(w.width[d], times(std::max<int64_t>(extent - 1, 0), places_[k]));
        w.value[k] = places_[k];
      }
      if (is_loop) return w;
      if (auto it = known_.find(e.get()); it != known_.end()) return it->second;
      return w;
    }
    if (const auto* cast = e.as<Cast>()) return walk(cast->value);
    if (const auto* select = e.as<Select>()) return larger(walk(select->on_true), walk(select->on_false));
    if (const auto* b = e.as<Binary>()) return binary_walk(*b);
    // Data: a load, a call.
    return data(e);
  }

  static Walk larger(const Walk& a, const Walk& b) {
    bool first = a.width[0] >= b.width[0];
    Walk w = first ? a : b;
    for (size_t d = 0; d < w.width.size(); ++d)
      w.width[d] = std::max(a.width[d], b.width[d]);
    return w;
  }

  Walk binary_walk(const Binary& b) {
    const Walk x = walk(b.a), y = walk(b.b);
    Walk w;
    const size_t n = depth();
    for (size_t k = 0; k <= n; ++k)
      w.value[k] = value_of(b.op, x.value[k], y.value[k]);
    for (size_t d = 0; d <= n; ++d)
      w.width[d] = width_of(b.op, {x.width[d], x.value[n]}, {y.width[d], y.value[n]});
    return w;
  }

  // Whatever the loops that it depends on do leads anywhere.
  Walk data(const Expr& e) {
    Walk w;
    size_t n = depth();
    class Uses : public Visitor {
     public:
      explicit Uses(Reader& r) : reader(r) {}
      Reader& reader;
      Walk sum;

     protected:
      using Visitor::on;
      void on(const VarNode& v) override {
        Walk x = reader.walk(Expr(&v));
        for (size_t d = 0; d < x.width.size(); ++d)
          sum.width[d] = plus(sum.width[d], x.width[d]), sum.value[d] = plus(sum.value[d], x.value[d]);
      }
    } uses(*this);
    uses.visit(e);
    for (size_t d = 0; d <= n; ++d)
      w.width[d] = uses.sum.width[d] > 0 ? kFar : 0;
    for (size_t k = 0; k < n; ++k)
      w.value[k] = uses.sum.value[k] != uses.sum.value[n] ? kFar : 0;
    return w;
  }

  // ---- Stores ----

  void store(const Store& n) {
    NestStore s;
    s.loops = chain_;
    s.roles = roles_;
    s.share = share_;
    s.is_init = is_init_;
    for (int l : chain_)
      s.iterations *= static_cast<double>(nest_.loops[static_cast<size_t>(l)].extent);
    access(s, n.buffer, n.indices, true);
    s.ops = ops_of(n, [&](const Load& load) { access(s, load.buffer, load.indices, false); });
    attach(-1 - static_cast<int>(nest_.stores.size()));
    nest_.stores.push_back(std::move(s));
  }

  void access(NestStore& s, const Buffer& buffer, const std::vector<Expr>& indices, bool is_write) {
    NestAccess a;
    a.buffer = buffer.get();
    a.element_bytes = static_cast<int>(std::max<int64_t>(byte_size(buffer.element()), 1));
    a.is_read = !is_write;
    a.is_write = is_write;
    size_t n = depth();
    a.elements.assign(n + 1, 1);
    a.lines.assign(n + 1, 1);
    a.strides.assign(n, 0);
    a.moves.assign(n, 0);
    std::vector<double> run(n + 1, 1);    // elements in a row
    std::vector<char> is_open(n + 1, 1);  // the run may go on to the next dimension
    int64_t step = 1;
    for (size_t dim = indices.size(); dim-- > 0;) {
      Walk w = walk(indices[dim]);
      int64_t extent = static_or_one(buffer.shape()[dim]);
      double combinations = 1;  // of the running loops that move this index
      for (size_t d = n + 1; d-- > 0;) {
        if (d < n && w.width[d] != w.width[d + 1]) {
          a.moves[d] = 1;
          combinations *= static_cast<double>(nest_.loops[static_cast<size_t>(chain_[d])].extent);
        }
        double reach = static_cast<double>(std::min(w.width[d] + 1, extent));
        double different = std::min(reach, combinations);
        a.elements[d] *= different;
        if (is_open[d]) {
          run[d] *= reach;
          is_open[d] = reach >= static_cast<double>(extent) && different == reach;
          a.lines[d] = std::max(1.0, std::min(std::ceil(run[d] * a.element_bytes / kLine), a.elements[d]));
        } else {
          a.lines[d] *= different;
        }
      }
      for (size_t k = 0; k < n; ++k)
        a.strides[k] = plus_or_far(a.strides[k], times_or_far(w.value[k] - w.value[n], step));
      step = times_or_far(step, std::max<int64_t>(extent, 1));
    }
    for (NestAccess& known : s.accesses) {
      if (known.buffer != a.buffer) continue;
      known.times += a.is_read && known.is_read ? 1 : 0;
      known.is_read |= a.is_read;
      known.is_write |= a.is_write;
      for (size_t d = 0; d <= n; ++d) {
        known.elements[d] = std::max(known.elements[d], a.elements[d]);
        known.lines[d] = std::max(known.lines[d], a.lines[d]);
      }
      for (size_t k = 0; k < n; ++k) {
        known.moves[k] |= a.moves[k];
        if (known.strides[k] == 0) known.strides[k] = a.strides[k];
      }
      return;
    }
    s.accesses.push_back(std::move(a));
  }

  Nest& nest_;
  std::vector<int> chain_;
  std::vector<const ExprNode*> vars_;  // of each loop, and what one step of it (of this part of it) adds
  std::vector<int64_t> places_;
  std::vector<LoopRole> roles_;
  std::unordered_map<const ExprNode*, Walk> known_;
  double share_ = 1;
  bool is_init_ = false;
};

}  // namespace

Nest nest_of(const Func& f) {
  Nest nest;
  for (const Buffer& b : f.params)
    nest.params.push_back(b.get());
  nest.func = f;
  Reader(nest).statement(f.body);
  return nest;
}

std::unordered_map<const BufferNode*, size_t> buffer_homes(const Nest& nest) {
  std::unordered_map<const BufferNode*, size_t> homes;
  std::unordered_map<const BufferNode*, const NestStore*> first;
  for (const NestStore& s : nest.stores) {
    for (const NestAccess& a : s.accesses) {
      auto [it, is_new] = first.try_emplace(a.buffer, &s);
      if (is_new) homes[a.buffer] = s.loops.size();
      const std::vector<int>& other = it->second->loops;
      size_t shared = 0, most = std::min(homes[a.buffer], s.loops.size());
      while (shared < most && other[shared] == s.loops[shared])
        ++shared;
      homes[a.buffer] = shared;
    }
  }
  for (const BufferNode* param : nest.params) {
    if (auto it = homes.find(param); it != homes.end()) it->second = 0;
  }
  return homes;
}

}  // namespace mcc::tuner
