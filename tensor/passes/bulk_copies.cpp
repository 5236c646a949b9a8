#include "tensor/passes/bulk_copies.h"

#include "tensor/intrinsics.h"
#include "tensor/passes/exchanged.h"
#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::tensor {

bool is_bulk(const For& loop) { return loop.annotations.contains(kBulk); }
bool keeps_conditions(const For& loop) { return is_bulk(loop) || loop.annotations.contains(kMasked); }

namespace {

constexpr int64_t kMostRows = 256;  // of a box

// Rows y, elements x: to[..] = guard ? from[..] : 0.
struct Box {
  const For *y = nullptr, *x = nullptr;
  const Store* store = nullptr;
  const Load* from = nullptr;
  Expr guard = true_value();
};

class FindBoxes {
 public:
  explicit FindBoxes(const Analyzer& known, Expr bar) : known_(known), bar_(std::move(bar)) {}

  // Adds what the statement copies; false where that is something else.
  bool add(const Stmt& s, const Expr& condition) {
    if (const auto* seq = s.as<Seq>()) {
      for (const Stmt& part : seq->stmts) {
        if (!add(part, condition)) return false;
      }
      return true;
    }
    if (const auto* n = s.as<If>(); n && !n->else_body) return add(n->then_body, condition && n->condition);
    const auto* loop = s.as<For>();
    return loop && is_bulk(*loop) && add_box(*loop, condition);
  }

  BulkCopies found;

 private:
  static std::optional<Box> box_of(const For& outer, Expr* condition) {
    Box box;
    Stmt s(&outer);
    while (!box.store) {
      if (const auto* n = s.as<If>(); n && !n->else_body) {
        *condition = *condition && n->condition;
        s = n->then_body;
      } else if (const auto* loop = s.as<For>(); loop && !box.x && is_int(loop->min, 0)) {
        (box.y ? box.x : box.y) = loop;
        s = loop->body;
      } else if (box.store = s.as<Store>(); !box.store) {
        return std::nullopt;
      }
    }
    Expr value = box.store->value;
    double other = 1;
    if (const auto* choice = value.as<Select>()) {
      if (!as_number(choice->on_false, &other) || other != 0) return std::nullopt;
      box.guard = choice->condition;
      value = choice->on_true;
    }
    box.from = value.as<Load>();
    const bool is_whole =
        box.x && box.from && !box.from->predicate.defined() && !box.store->predicate.defined();
    if (!is_whole || uses_var(*condition, box.y->var) || uses_var(*condition, box.x->var))
      return std::nullopt;
    return box;
  }

  bool add_box(const For& outer, Expr condition) {
    const std::optional<Box> box = box_of(outer, &condition);
    if (!box) return false;
    const Buffer &to = box->store->buffer, &from = box->from->buffer;
    const Var &y = box->y->var, &x = box->x->var;
    int64_t height = 0, width = 0, elements = 0;
    const int64_t bytes = byte_size(from.element());
    if (to.scope() != Scope::shared || from.scope() != Scope::global || to.element() != from.element() ||
        bytes > 4 || !as_int(box->y->extent, &height) || !as_int(box->x->extent, &width) ||
        height > kMostRows || from.shape().size() != 1 || !as_int(from.shape()[0], &elements))
      return false;
    Analyzer inside = known_;
    inside.bind(y, 0, box->y->extent);
    inside.bind(x, 0, box->x->extent);

    // From where: a row of the matrix, and an element of it.
    const std::optional<LinearForm> source = linear_form(inside.simplify(box->from->indices[0]), {y, x});
    if (!source || source->coefficients[1] != 1) return false;
    const int64_t pitch = source->coefficients[0];
    if (pitch <= 0 || elements % pitch != 0 || pitch * bytes % 16 != 0) return false;
    const Expr row = known_.simplify(floor_div(source->rest, pitch)),
               column = known_.simplify(floor_mod(source->rest, pitch));
    // Elements are read where the matrix has them, and nowhere else.
    const Expr is_in = row + y < Expr(elements / pitch) && column + x < Expr(pitch);
    auto follows = [&](const Expr& from_this, const Expr& that) {
      Analyzer with = inside;
      with.assume(from_this);
      return with.can_prove(that);
    };
    if (!follows(box->guard, is_in) || !follows(is_in, box->guard)) return false;

    // To where: rows that follow each other.
    const std::optional<Exchanged> place =
        exchanged(inside, box->store->indices[0], unit_elements(to.element()));
    if (!place || place->bytes == 0) return false;
    const int64_t length = place->bytes / bytes;
    if (width % length != 0) return false;
    for (int64_t part = 0; part < width; part += length) {
      Var next("next");
      Analyzer in_row = inside;
      in_row.bind(next, 0, length);
      const Expr own = in_row.simplify(substitute(place->plain, {{x.get(), next + Expr(part)}})),
                 first =
                     in_row.simplify(substitute(place->plain, {{y.get(), Expr(0)}, {x.get(), Expr(part)}}));
      if (in_row.constant_difference(own, first + y * Expr(length) + next) != 0) return false;
      copies_.push_back(Evaluate::make(
          Call::make(Intrinsic::bulk_copy,
                     {bar_, Load::make(to, {first}), Expr(place->bytes), Load::make(from, {Expr(0)}),
                      Expr(pitch), Expr(height), Expr(length), known_.simplify(column + part), row})));
    }
    if (found.condition.defined() && !structurally_equal(found.condition, condition)) return false;
    found.condition = condition;
    found.copies = Seq::make(copies_);
    found.bytes += height * width * bytes;
    return true;
  }

  const Analyzer& known_;
  const Expr bar_;
  std::vector<Stmt> copies_;
};

}  // namespace

std::optional<BulkCopies> as_bulk_copies(const std::vector<Stmt>& copies, const Analyzer& known,
                                         const Expr& bar) {
  FindBoxes find(known, bar);
  for (const Stmt& s : copies) {
    if (!find.add(s, true_value())) return std::nullopt;
  }
  return find.found.bytes > 0 ? std::optional(find.found) : std::nullopt;
}

}  // namespace mcc::tensor
