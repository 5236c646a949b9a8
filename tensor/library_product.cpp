#include "tensor/library_product.h"

#include <algorithm>
#include <charconv>

#include "tensor/simplify.h"
#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::tensor {

namespace {

constexpr std::string_view kName = "cublasLt:";

// How far apart neighbours along a loop lie in each of the arrays.
enum Side : size_t { kA, kB, kD, kAddend, kSides };
struct Loop {
  int64_t extent = 1;
  int64_t strides[kSides] = {};
};

// a[...] = value, of all of it.
const Store* as_store(const Stmt& s) {
  const auto* store = s.as<Store>();
  return store && !store->predicate.defined() ? store : nullptr;
}

bool is_element(const Expr& e, const Store& of) {
  const auto* load = e.as<Load>();
  return load && !load->predicate.defined() && load->buffer.same_as(of.buffer) &&
         std::equal(load->indices.begin(), load->indices.end(), of.indices.begin(), of.indices.end(),
                    [](const Expr& x, const Expr& y) { return structurally_equal(x, y); });
}

bool is_number(const Expr& e, double value) {
  const auto* number = e.as<FloatImm>();
  return number && number->value == value;
}

class Reader {
 public:
  Result<LibraryProduct> read(const For& nest) {
    if (!read_algorithm(nest) || !read_loops(nest) || !place_loops())
      return Diagnostic{ErrorKind::unsupported, "",
                        text("cublasLt does not compute loop ", nest.var.name(), ": ", problem_), ""};
    return p_;
  }

 private:
  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  bool read_algorithm(const For& nest) {
    const Annotation& annotation = nest.annotations.at(kLibrary);
    const auto* value = std::get_if<std::string>(&annotation);
    if (value && value->starts_with(kName)) {
      const char *begin = value->data() + kName.size(), *end = value->data() + value->size();
      auto [stop, error] = std::from_chars(begin, end, p_.algorithm);
      if (error == std::errc() && stop == end && p_.algorithm >= 0 && p_.algorithm < kMaxLibraryAlgorithms)
        return true;
    }
    return fail(text("expected library = \"", library_text(0), "\" to \"",
                     library_text(kMaxLibraryAlgorithms - 1), "\""));
  }

  // The loops from here inwards, and what stands in the last of them.
  bool loops_from(const Stmt& s, Stmt* body) {
    *body = s;
    while (const auto* loop = body->as<For>()) {
      int64_t extent = 0;
      if (loop->loop != LoopKind::serial || !is_int(loop->min, 0) || !as_int(loop->extent, &extent))
        return fail(text("expected plain loops of known size, got loop ", loop->var.name()));
      vars_.push_back(loop->var);
      loops_.push_back({extent, {}});
      *body = loop->body;
    }
    return true;
  }

  //   for ...           or   for ...
  //     d = 0                  alloc sum
  //     for k                    sum = 0
  //       d = d + a * b          for k
  //                                sum = sum + a * b
  //                              d = ... sum ...
  bool read_loops(const For& nest) {
    const auto self = Stmt(&nest);
    Stmt body, update;
    if (!loops_from(self, &body)) return false;
    spatial_ = loops_.size();
    const auto* own = body.as<Allocate>();
    const auto* parts = own ? own->body.as<Seq>() : body.as<Seq>();
    if (!parts || parts->stmts.size() != (own ? 3 : 2)) return fail("expected a sum that begins with 0");
    const Store* init = as_store(parts->stmts[0]);
    if (!init || !is_number(init->value, 0) || init->buffer.element() != ElementType::f32)
      return fail("expected a sum in f32 that begins with 0");
    if (!loops_from(parts->stmts[1], &update)) return false;
    const Store* sum = as_store(update);
    const auto* add = sum ? sum->value.as<Binary>() : nullptr;
    if (!add || add->op != BinaryOp::add || !is_element(add->a, *sum) ||
        !is_element(Load::make(sum->buffer, sum->indices), *init) || !read_factors(add->b))
      return fail(problem_.empty() ? "expected a sum of products of two operands" : problem_);
    const Store* last = own ? as_store(parts->stmts[2]) : sum;
    if (!last || (own && !own->buffer.same_as(sum->buffer))) return fail("expected one result of the sum");
    p_.d.buffer = last->buffer;
    const ElementType element = last->buffer.element();
    if (element != ElementType::f32 && element != p_.a.buffer.element())
      return fail("expected a result in f32 or in the type of the operands");
    if (!strides_of(last->indices, kD)) return false;
    return !own || read_epilogue(last->value, *sum);
  }

  bool read_factors(const Expr& e) {
    const auto* mul = e.as<Binary>();
    if (!mul || mul->op != BinaryOp::mul) return false;
    for (const auto& [factor, matrix, side] :
         {std::tuple(&mul->a, &p_.a, kA), std::tuple(&mul->b, &p_.b, kB)}) {
      const auto* cast = factor->as<Cast>();
      const auto* load = (cast ? cast->value : *factor).as<Load>();
      if (!load || load->predicate.defined()) return false;
      matrix->buffer = load->buffer;
      if (!strides_of(load->indices, side)) return false;
    }
    const ElementType element = p_.a.buffer.element();
    const bool is_known = element == ElementType::f32 || element == ElementType::tf32 ||
                          element == ElementType::f16 || element == ElementType::bf16;
    return is_known && p_.b.buffer.element() == element
               ? true
               : fail("expected both operands in f32, tf32, f16 or bf16");
  }

  // Peels off what is done to the sum, from the outside in. Activations stay ours: that a NaN stays one is not documented of the
  // library's.
  bool read_epilogue(Expr e, const Store& sum) {
    if (const auto* cast = e.as<Cast>()) e = cast->value;
    const bool is_plain = p_.d.buffer.element() == ElementType::f32;
    auto peel = [&](BinaryOp op, auto takes) {
      const auto* binary = e.as<Binary>();
      if (!binary || binary->op != op) return false;
      for (const auto& [outer, inner] : {std::pair(binary->b, binary->a), std::pair(binary->a, binary->b)}) {
        if (!takes(outer)) continue;
        e = inner;
        return true;
      }
      return false;
    };
    while (is_plain && !is_element(e, sum) &&
           peel(BinaryOp::add, [&](const Expr& x) { return read_term(x); })) {
    }
    peel(BinaryOp::mul, [&](const Expr& x) {
      const auto* number = x.as<FloatImm>();
      if (number) p_.scale = number->value;
      return number != nullptr;
    });
    return is_element(e, sum) ? true : fail(text("it does not compute ", to_text(e), " of a sum"));
  }

  // A row that is added to all rows, or an array like the result; one of each.
  bool read_term(const Expr& e) {
    const auto* load = e.as<Load>();
    if (!load || load->predicate.defined() || load->buffer.element() != p_.d.buffer.element()) return false;
    if (!strides_of(load->indices, kAddend)) return false;
    bool is_row = true;
    for (size_t k = 0; k < spatial_; ++k)
      is_row &= loops_[k].strides[kAddend] == (loops_[k].strides[kD] == 1 ? 1 : 0);
    if (is_row && !p_.bias) {
      p_.bias = load->buffer;
    } else if (!p_.addend) {
      p_.addend = LibraryMatrix{load->buffer};
      for (const Loop& loop : loops_)
        addend_strides_.push_back(loop.strides[kAddend]);
    } else {
      return false;
    }
    return true;
  }

  bool strides_of(const std::vector<Expr>& indices, Side side) {
    std::optional<LinearForm> form;
    if (indices.size() == 1) form = linear_form(indices[0], vars_);
    if (!form || !is_int(form->rest, 0)) return fail("expected operands that begin where their arrays do");
    for (size_t k = 0; k < loops_.size(); ++k)
      loops_[k].strides[side] = form->coefficients[k];
    return true;
  }

  // ---- Which loop is what ----

  // Two loops become one where all arrays go on as if they were one.
  void merge(std::vector<Loop>& loops) const {
    auto follows = [](const Loop& outer, const Loop& inner) {
      bool follows = true;
      for (size_t side = 0; side < kSides; ++side)
        follows &= outer.strides[side] == inner.strides[side] * inner.extent;
      return follows;
    };
    for (size_t i = 0; i < loops.size(); ++i) {
      for (size_t j = 0; j < loops.size();) {
        if (i == j || !follows(loops[j], loops[i])) {
          ++j;
          continue;
        }
        loops[i].extent *= loops[j].extent;
        loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(j));
        i -= j < i ? 1 : 0;
        j = 0;
      }
    }
  }

  bool place_loops() {
    for (size_t k = 0; k < loops_.size(); ++k)
      loops_[k].strides[kAddend] = p_.addend ? addend_strides_[k] : loops_[k].strides[kD];
    std::vector<Loop> spatial(loops_.begin(), loops_.begin() + static_cast<std::ptrdiff_t>(spatial_));
    std::vector<Loop> reduce(loops_.begin() + static_cast<std::ptrdiff_t>(spatial_), loops_.end());
    merge(spatial);
    merge(reduce);
    const auto column =
        std::find_if(spatial.begin(), spatial.end(), [](const Loop& l) { return l.strides[kD] == 1; });
    if (column == spatial.end() || reduce.size() != 1)
      return fail("expected rows of results, and one sum over each");
    // The operand that the columns walk through is b.
    if (column->strides[kB] == 0) {
      std::swap(p_.a, p_.b);
      for (std::vector<Loop>* list : {&spatial, &reduce})
        for (Loop& l : *list)
          std::swap(l.strides[kA], l.strides[kB]);
    }
    if (column->strides[kA] != 0 || column->strides[kB] == 0)
      return fail("expected columns of one operand only");
    const Loop columns = *column, depth = reduce[0];
    spatial.erase(column);
    // Rows walk through a alone; where several loops do, the others are matrices with the same b.
    auto row = spatial.end();
    for (auto at = spatial.begin(); at != spatial.end(); ++at) {
      if (at->strides[kB] == 0 && (row == spatial.end() || at->extent > row->extent)) row = at;
    }
    Loop rows;
    if (row != spatial.end()) {
      rows = *row;
      spatial.erase(row);
    } else {
      rows.strides[kA] = depth.strides[kA] == 1 ? depth.extent : 1;
      rows.strides[kD] = rows.strides[kAddend] = columns.extent;
    }
    if (spatial.size() > 1) return fail("expected one loop over matrices at most");
    const Loop batches = spatial.empty() ? Loop() : spatial[0];
    p_.batches = batches.extent, p_.rows = rows.extent, p_.columns = columns.extent, p_.depth = depth.extent;
    auto matrix = [&](LibraryMatrix& m, Side side, const Loop& row_loop, const Loop& column_loop) {
      m.row = row_loop.strides[side], m.column = column_loop.strides[side], m.batch = batches.strides[side];
      return is_matrix(m, row_loop.extent, column_loop.extent);
    };
    if (!matrix(p_.a, kA, rows, depth) || !matrix(p_.b, kB, depth, columns) ||
        !matrix(p_.d, kD, rows, columns) || (p_.addend && !matrix(*p_.addend, kAddend, rows, columns)))
      return false;
    return !p_.addend || p_.addend->column == 1 ? true
                                                : fail("expected what is added to lie like the result");
  }

  // Rows or columns in one piece, none of which overlap.
  bool is_matrix(const LibraryMatrix& m, int64_t rows, int64_t columns) {
    constexpr int64_t kMost = 0x7fffffff;
    const bool is_good = rows <= kMost && columns <= kMost && p_.batches <= kMost && m.batch >= 0 &&
                         ((m.column == 1 && m.row >= columns) || (m.row == 1 && m.column >= rows));
    return is_good ? true
                   : fail(text("expected ", m.buffer.name(), " in rows or columns that lie in one piece"));
  }

  LibraryProduct p_;
  std::string problem_;
  std::vector<Var> vars_;  // of the loops, outermost first
  std::vector<Loop> loops_;
  std::vector<int64_t> addend_strides_;  // of each loop
  size_t spatial_ = 0;                   // loops that are not summed over
};

}  // namespace

std::string library_text(int64_t algorithm) { return text(kName, algorithm); }

bool is_library_nest(const Stmt& s) {
  const auto* loop = s.as<For>();
  return loop && loop->loop != LoopKind::bound && loop->annotations.contains(kLibrary);
}

bool has_library_nest(const Func& f) {
  bool found = false;
  if (f.body) for_each_stmt(f.body, [&](const Stmt& s) { found |= is_library_nest(s); });
  return found;
}

Result<LibraryProduct> library_product(const For& nest) { return Reader().read(nest); }

}  // namespace mcc::tensor
