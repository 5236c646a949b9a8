#include "tensor/passes/place_prefetches.h"

#include "tensor/passes/scope.h"
#include "tensor/schedule/regions.h"

namespace mcc::tensor {
namespace {

constexpr const char* kKey = "prefetch_next";
constexpr int64_t kMostLines = 4;  // that one iteration fetches: more would stall it
constexpr int64_t kLocality = 2;   // into the second-level cache: the first holds what is in use

// The loads from a buffer in a statement, and the loops and bindings around them in it.
class FindLoads : public Visitor {
 public:
  explicit FindLoads(const std::string& buffer) : buffer_(buffer) {}
  std::vector<const Load*> loads;
  std::vector<const For*> loops;
  std::vector<const Let*> lets;

 protected:
  using Visitor::on;
  void on(const For& n) override {
    loops.push_back(&n);
    Visitor::on(n);
  }
  void on(const Let& n) override {
    lets.push_back(&n);
    Visitor::on(n);
  }
  void on(const Load& n) override {
    if (n.buffer.name() == buffer_) loads.push_back(&n);
    Visitor::on(n);
  }

 private:
  const std::string& buffer_;
};

// A box that is one run of elements: part of dimension `from`, all of the later ones.
struct Piece {
  size_t from = 0;
  int64_t count = 0;
};

std::optional<Piece> as_piece(const Box& box, const std::vector<Expr>& shape) {
  if (shape.empty()) return std::nullopt;
  Piece piece{0, 1};
  while (piece.from + 1 < shape.size() && is_int(box.dims[piece.from].width, 0))
    ++piece.from;
  for (size_t d = piece.from; d < shape.size(); ++d) {
    int64_t width = 0, extent = 0;
    if (!as_int(box.dims[d].width, &width) || !as_int(shape[d], &extent)) return std::nullopt;
    if (d > piece.from && width + 1 != extent) return std::nullopt;
    piece.count *= width + 1;
  }
  return piece;
}

class PlacePrefetches : public ScopedMutator {
 public:
  explicit PlacePrefetches(const Target& target) : target_(target) {}

 protected:
  using ScopedMutator::on;

  Stmt on(const For& n, const Stmt& self) override {
    loops_.push_back(&n);
    Stmt changed = ScopedMutator::on(n, self);
    const auto* loop = changed.as<For>();
    if (loop && loop->annotations.contains(kKey)) {
      std::vector<Stmt> body = hints(n);
      body.push_back(loop->body);
      Annotations rest = loop->annotations;
      rest.erase(kKey);
      changed = For::make(loop->var, loop->min, loop->extent, loop->loop, Seq::make(body), std::move(rest));
    }
    loops_.pop_back();
    return changed;
  }

  Stmt on(const Let& n, const Stmt& self) override {
    lets_.push_back(&n);
    Stmt changed = ScopedMutator::on(n, self);
    lets_.pop_back();
    return changed;
  }

 private:
  std::vector<Stmt> hints(const For& n) {
    const auto* words = std::get_if<std::string>(&n.annotations.at(kKey));
    size_t space = words ? words->find(' ') : std::string::npos;
    if (space == std::string::npos) return {};
    std::string buffer = words->substr(0, space), next = words->substr(space + 1);
    size_t ahead = 0;
    while (ahead < loops_.size() && loops_[ahead]->var.name() != next)
      ++ahead;
    if (ahead + 1 >= loops_.size()) return {};
    FindLoads found(buffer);
    found.visit(n.body);
    if (found.loads.empty()) return {};

    std::optional<Box> box = box_of(found, ahead);
    const Load& load = *found.loads[0];
    std::optional<Piece> piece = box ? as_piece(*box, load.buffer.shape()) : std::nullopt;
    if (!piece) return {};
    // Iterations of n within one of `next`, and the number of this one.
    int64_t slots = 1;
    Expr slot = 0;
    for (size_t i = ahead + 1; i < loops_.size(); ++i) {
      int64_t extent = 0;
      if (!as_int(loops_[i]->extent, &extent)) return {};
      slots *= extent;
      slot = slot * Expr(extent) + (loops_[i]->var - loops_[i]->min);
    }
    int64_t line = target_.l2.line / byte_size(load.buffer.element());
    int64_t lines = (piece->count + line - 1) / line;
    int64_t share = (lines + slots - 1) / slots;
    if (share > kMostLines) return {};
    VarMap advance{{loops_[ahead]->var.get(), loops_[ahead]->var + Expr(1)}};
    std::vector<Stmt> out;
    for (int64_t i = 0; i < share; ++i) {
      Expr at = slot * Expr(share) + Expr(i);
      if (share * slots > lines) at = min(at, Expr(lines - 1));
      out.push_back(Evaluate::make(hint(load.buffer, *box, *piece, at * Expr(line), advance)));
    }
    return out;
  }

  // What the loads read while the loops behind the first `ahead` + 1 run.
  std::optional<Box> box_of(const FindLoads& found, size_t ahead) const {
    RegionAnalysis regions(analyzer_);
    for (size_t i = 0; i < loops_.size(); ++i) {
      if (i <= ahead) {
        regions.stand(loops_[i]->var, loops_[i]->min, loops_[i]->extent);
      } else {
        regions.run(loops_[i]->var, loops_[i]->min, loops_[i]->extent);
      }
    }
    for (const For* loop : found.loops)
      regions.run(loop->var, loop->min, loop->extent);
    std::optional<Box> box;
    for (const Load* load : found.loads) {
      std::vector<Expr> indices;
      for (const Expr& index : load->indices)
        indices.push_back(without_lets(index, found.lets));
      Box one = regions.box(indices, load->buffer.shape());
      box = box ? regions.unite(*box, one, load->buffer.shape()) : one;
    }
    return box;
  }

  Expr without_lets(Expr e, const std::vector<const Let*>& inner) const {
    for (size_t i = inner.size(); i-- > 0;)
      e = substitute(e, {{inner[i]->var.get(), inner[i]->value}});
    for (size_t i = lets_.size(); i-- > 0;)
      e = substitute(e, {{lets_[i]->var.get(), lets_[i]->value}});
    return e;
  }

  // A prefetch of element `at` of the piece, in the next iteration.
  Expr hint(const Buffer& buffer, const Box& box, const Piece& piece, const Expr& at, const VarMap& advance) {
    std::vector<Expr> indices;
    for (size_t d = 0; d < box.dims.size(); ++d) {
      Expr index = substitute(box.dims[d].low, advance);
      if (d >= piece.from) {
        Expr inside = 1;
        for (size_t i = d + 1; i < box.dims.size(); ++i)
          inside = inside * buffer.shape()[i];
        Expr part = floor_div(at, inside);
        index = index + (d == piece.from ? part : floor_mod(part, buffer.shape()[d]));
      }
      indices.push_back(analyzer_.simplify(index));
    }
    return Call::make(Intrinsic::prefetch, {Load::make(buffer, indices), Expr(kLocality)});
  }

  const Target& target_;
  std::vector<const For*> loops_;
  std::vector<const Let*> lets_;
};

}  // namespace

Func place_prefetches(const Func& f, const Target& target) {
  Func out = f;
  out.body = PlacePrefetches(target).mutate(f.body);
  return out;
}

}  // namespace mcc::tensor
