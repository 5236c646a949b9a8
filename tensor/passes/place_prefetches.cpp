#include "tensor/passes/place_prefetches.h"

#include <charconv>
#include <sstream>

#include "support/saturating.h"
#include "tensor/passes/scope.h"
#include "tensor/schedule/regions.h"

namespace mcc::tensor {
namespace {

constexpr const char *kNext = "prefetch_next", *kAhead = "prefetch_ahead";
// That one iteration fetches: more would stall it. What comes ahead is what it reads itself, however much that is.
constexpr int64_t kMostLines = 8, kMostLinesAhead = 32;
// For each line that is asked for: beside few the hints themselves take long, as in what is left of a number of rows.
constexpr int64_t kLeastStores = 4;
constexpr int64_t kFirstLevel = 3, kSecondLevel = 2;  // the first holds what is in use

// The loads from a buffer in a statement, and the loops and bindings around them in it.
class FindLoads : public Visitor {
 public:
  explicit FindLoads(const std::string& buffer) : buffer_(buffer) {}
  int64_t stores = 0;  // of vectors
  std::vector<const Load*> loads;
  std::vector<const For*> loops;
  std::vector<const Let*> lets;

 protected:
  using Visitor::on;
  void on(const For& n) override {
    loops.push_back(&n);
    const int64_t turns = turns_;
    if (int64_t extent = 0; n.loop != LoopKind::vectorized && as_int(n.extent, &extent))
      turns_ = saturating_mul(turns_, extent);
    Visitor::on(n);
    turns_ = turns;
  }
  void on(const Let& n) override {
    lets.push_back(&n);
    Visitor::on(n);
  }
  void on(const Store& n) override {
    stores = saturating_add(stores, turns_);
    Visitor::on(n);
  }
  void on(const Load& n) override {
    if (n.buffer.name() == buffer_) loads.push_back(&n);
    Visitor::on(n);
  }

 private:
  const std::string& buffer_;
  int64_t turns_ = 1;
};

// A box as runs of elements that lie one behind the other: each is a part of dimension `from` and all of the later ones, and the dimensions
// before it say how many there are.
struct Runs {
  std::vector<int64_t> sizes;  // of the box
  size_t from = 0;
  int64_t count = 1;   // of elements
  int64_t number = 1;  // of runs
};

std::optional<Runs> as_runs(const Box& box, const std::vector<Expr>& shape) {
  if (shape.empty()) return std::nullopt;
  Runs runs;
  std::vector<int64_t>& sizes = runs.sizes;
  for (const auto& dim : box.dims) {
    int64_t width = 0;
    if (!as_int(dim.width, &width)) return std::nullopt;
    sizes.push_back(width + 1);
  }
  runs.from = shape.size() - 1;
  while (runs.from > 0 && is_int(shape[runs.from], sizes[runs.from]))
    --runs.from;
  while (runs.from + 1 < shape.size() && sizes[runs.from] == 1)
    ++runs.from;
  for (size_t d = 0; d < shape.size(); ++d)
    (d < runs.from ? runs.number : runs.count) *= sizes[d];
  return runs;
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
    if (loop && (loop->annotations.contains(kNext) || loop->annotations.contains(kAhead))) {
      std::vector<Stmt> body = hints_of_next(n);
      if (body.empty()) body = hints_ahead(n);
      body.push_back(loop->body);
      Annotations rest = loop->annotations;
      rest.erase(kNext);
      rest.erase(kAhead);
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
  // The words of an annotation, two or three; none where it is not there, or has another form.
  static std::vector<std::string> words_of(const For& n, const char* key) {
    auto found = n.annotations.find(key);
    const auto* text = found == n.annotations.end() ? nullptr : std::get_if<std::string>(&found->second);
    std::vector<std::string> words;
    std::istringstream in(text ? *text : "");
    for (std::string word; in >> word;)
      words.push_back(word);
    if (words.size() != 2 && words.size() != 3) words.clear();
    return words;
  }
  static std::optional<int64_t> number(const std::string& word) {
    int64_t value = 0;
    if (std::from_chars(word.data(), word.data() + word.size(), value).ec != std::errc() || value < 1)
      return std::nullopt;
    return value;
  }

  // What the body reads of a buffer while the loops behind the first `standing` run.
  struct Read {
    Buffer buffer;
    Box box;
    Runs runs;
    int64_t line = 1;    // elements
    int64_t stores = 0;  // in the body

    int64_t elements() const { return runs.count * runs.number; }
    int64_t lines_of_run() const { return (runs.count + line - 1) / line; }
    int64_t lines() const { return lines_of_run() * runs.number; }
  };
  std::optional<Read> read_of(const For& n, const std::string& buffer, size_t standing) const {
    FindLoads found(buffer);
    found.visit(n.body);
    if (found.loads.empty()) return std::nullopt;
    std::optional<Box> box = box_of(found, standing);
    const Buffer& read = found.loads[0]->buffer;
    std::optional<Runs> runs = box ? as_runs(*box, read.shape()) : std::nullopt;
    if (!runs) return std::nullopt;
    return Read{read, *box, *runs, target_.l2.line / byte_size(read.element()), found.stores};
  }

  // Iterations among which the lines are spread, and which of them a piece of code begins with.
  struct Turns {
    int64_t slots = 1, first = 0;
  };
  // Of a piece of code with so many iterations, which passes over the part so many times of all. The rest of three times and more fetches
  // its share; of two both pieces fetch all lines, as neither knows which of them it is (the second finds them there).
  static Turns turns_of(int64_t slots, int64_t passes, int64_t all) {
    if (passes < 1 || passes >= all || all == 2) return {slots, 0};
    const int64_t each = slots / passes;
    return {each * all, passes == 1 ? each * (all - 1) : 0};
  }

  std::vector<Stmt> hints_of_next(const For& n) {
    const std::vector<std::string> words = words_of(n, kNext);
    if (words.empty()) return {};
    size_t ahead = 0;
    while (ahead < loops_.size() && loops_[ahead]->var.name() != words[1])
      ++ahead;
    if (ahead + 1 >= loops_.size()) return {};
    const std::optional<Read> read = read_of(n, words[0], ahead + 1);
    if (!read || read->runs.number != 1) return {};
    // Iterations of n within one of the loop, and the number of this one.
    int64_t slots = 1;
    Expr slot = 0;
    for (size_t i = ahead + 1; i < loops_.size(); ++i) {
      int64_t extent = 0;
      if (!as_int(loops_[i]->extent, &extent)) return {};
      slots *= extent;
      slot = slot * Expr(extent) + (loops_[i]->var - loops_[i]->min);
    }
    Turns turns{slots, 0};
    if (words.size() == 3) {
      const std::optional<int64_t> passes = number(words[2]);
      const std::optional<Read> own = read_of(n, words[0], loops_.size());
      if (!passes || !own) return {};
      turns = turns_of(slots, own->elements() * slots / read->elements(), *passes);
    }
    const int64_t lines = read->lines(), share = (lines + turns.slots - 1) / turns.slots;
    if (share > kMostLines) return {};
    VarMap advance{{loops_[ahead]->var.get(), loops_[ahead]->var + Expr(1)}};
    const int64_t level = target_.drops_hints ? kFirstLevel : kSecondLevel;
    std::vector<Stmt> out;
    for (int64_t i = 0; i < share; ++i) {
      Expr at = (slot + Expr(turns.first)) * Expr(share) + Expr(i);
      if (share * turns.slots > lines) at = min(at, Expr(lines - 1));
      out.push_back(Evaluate::make(hint(*read, 0, at * Expr(read->line), advance, level)));
    }
    return out;
  }

  std::vector<Stmt> hints_ahead(const For& n) {
    const std::vector<std::string> words = words_of(n, kAhead);
    const std::optional<int64_t> distance = words.size() == 2 ? number(words[1]) : std::nullopt;
    if (!distance) return {};
    const std::optional<Read> read = read_of(n, words[0], loops_.size());
    if (!read || read->lines() > kMostLinesAhead || read->stores < kLeastStores * read->lines()) return {};
    VarMap advance{{n.var.get(), n.var + Expr(*distance)}};
    std::vector<Stmt> out;
    for (int64_t run = 0; run < read->runs.number; ++run) {
      for (int64_t i = 0; i < read->lines_of_run(); ++i)
        out.push_back(Evaluate::make(hint(*read, run, Expr(i * read->line), advance, kFirstLevel)));
    }
    return out;
  }

  // What the loads read while the loops behind the first `standing` run.
  std::optional<Box> box_of(const FindLoads& found, size_t standing) const {
    RegionAnalysis regions(analyzer_);
    for (size_t i = 0; i < loops_.size(); ++i) {
      if (i < standing) {
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

  // A prefetch of element `at` of a run of what is read, in a later iteration.
  Expr hint(const Read& read, int64_t run, const Expr& at, const VarMap& advance, int64_t locality) {
    std::vector<Expr> indices;
    int64_t inner = read.runs.number;  // runs in one element of the dimension
    for (size_t d = 0; d < read.box.dims.size(); ++d) {
      Expr index = substitute(read.box.dims[d].low, advance);
      if (d < read.runs.from) {
        inner /= read.runs.sizes[d];
        index = index + Expr(run / inner % read.runs.sizes[d]);
      } else {
        Expr inside = 1;
        for (size_t i = d + 1; i < read.box.dims.size(); ++i)
          inside = inside * read.buffer.shape()[i];
        Expr part = floor_div(at, inside);
        index = index + (d == read.runs.from ? part : floor_mod(part, read.buffer.shape()[d]));
      }
      indices.push_back(analyzer_.simplify(index));
    }
    return Call::make(Intrinsic::prefetch, {Load::make(read.buffer, indices), Expr(locality)});
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
