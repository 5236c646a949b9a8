// mcc.Attention: softmax(steps(q k')) v, on operands that are read where they lie.
//
// Inputs: q, k, v, then one for each step that needs one. With batch axes b...:
//   q[b..., m, d], k[b..., n, d], v[b..., n, e] are elements of these inputs at the places of q_view, k_view, v_view: of an input of
//   one dimension an offset, then a stride for each axis; of one of several, where the view begins along each of them, then for each
//   axis how far its steps go along each.
//   score[b..., m, n] = sum over d of q * k, changed by each step in turn:
//     scale      times a factor
//     add        plus an input that broadcasts to the scores, of their type or a narrower one
//     keep       where the input (bool, broadcast) holds; else the factor
//     drop       where the input does not hold; else the factor
//   y[b..., m, e] = sum over n of softmax(score) * v, its axes in the order that y_perm says.
// q, k and v may be narrower than the result: then the products' operands are, the softmax is not.
// Attributes: batch, extents (m, n, d, e), q_view, k_view, v_view, steps, factors (one for each step), y_perm, parts (1), rolling (0),
// splits (1), keys_from (none), words (none).
//
// An extent of batch, m or n that is open (-1) is that of the first dimension of q, k or v along which its axis alone goes, one step at
// a time; n that of the last dimension of input keys_from where that is given: keys and values may have room for more.
//
// words: the products take their operands in words of so many elements (bf16: 2) along the sum, and these are filled up to multiples of
// four numbers: of m, n, d and e. Elements of keys lie as [d / 2, n, 2] then, those of values as [n / 2, e, 2], and exponentials are rounded
// as they are made, so that the sum is that of what is multiplied.
//
// parts: so many stretches of keys (n is a multiple of them), each of which has a softmax and a product of its own, put together in
// the end (Milakov, Gimelshein: Online normalizer calculation for softmax, 2018): with the maximum M[p, m] and the sum S[p, m] of
// the exponentials in part p, and Y[p, m, e] the product with these,
//   y[m, e] = sum over p of exp(M[p, m] - max M[m]) * Y[p, m, e]  /  sum over p of exp(M[p, m] - max M[m]) * S[p, m]
//
// rolling: so many keys to a part, which are put together one after the other, as they are made (Dao: FlashAttention-2, 2023), so that
// nothing of a part needs to be kept. The last part may have less than the others: its keys are filled up, with scores of -infinity.
// Of an open number of keys there are as many parts as a run needs; without any key the result is 0.
//
// splits: of one query that rolls over many keys (m is 1), parts are dealt out to so many stretches of them, each of which has sums of its
// own, put together as above (Dao et al.: Flash-Decoding, 2023). Where keys and values stand along the last axis of the batch (heads that
// share them), these are the rows. Of an open number of queries this is another way for the runs that have one (OpDef::other_run).
#include <algorithm>
#include <iterator>
#include <limits>

#include "graph/ops/attention_dims.h"
#include "graph/ops/common.h"
#include "graph/ops/operand_view.h"
#include "tensor/intrinsics.h"

namespace mcc::graph {

namespace {

using Ints = std::vector<int64_t>;

using Dims = AttentionDims;

Dims dims_of(const ComputeContext& c) {
  return {c.attributes(), [&](int i) -> const Shape& { return c.input_type(i).shape; }};
}

void infer_attention(InferContext& c) {
  const Attributes& a = c.attributes();
  const Dims dims(a, [&](int i) -> const Shape& { return c.input(i).shape; });
  Shape plain = dims.all, out;
  plain.insert(plain.end(), {dims.m, Expr(dims.e)});
  for (int64_t axis : a.integers("y_perm"))
    out.push_back(plain[static_cast<size_t>(axis)]);
  c.set_output(0, {contraction_result(c), out});
}

std::vector<Expr> join(Axes batch, std::initializer_list<Expr> inner) {
  std::vector<Expr> index = to_vector(batch);
  index.insert(index.end(), inner);
  return index;
}

// What scores are yet to be multiplied with behind their steps: a last step that scales them costs nothing in the exponent, where the
// products' operands are rounded to so few bits that nothing of it shows.
double scale_behind(const ComputeContext& c) {
  const auto steps = std::get<std::vector<std::string>>(*c.attributes().find("steps"));
  const bool is_rounded = byte_size(c.input_type(2).element) < byte_size(c.output_type(0).element);
  if (!is_rounded || steps.empty() || steps.back() != "scale") return 1;
  const double factor = c.attributes().numbers("factors").back();
  return factor > 0 ? factor : 1;
}

// The score after all steps but that, i the index of the whole.
Expr stepped(const ComputeContext& c, Expr score, Axes i) {
  auto steps = std::get<std::vector<std::string>>(*c.attributes().find("steps"));
  if (scale_behind(c) != 1) steps.pop_back();
  std::vector<double> factors = c.attributes().numbers("factors");
  int next = 3;
  for (size_t k = 0; k < steps.size(); ++k) {
    Expr number = number_like(score, factors[k]);
    if (steps[k] == "scale") {
      score = score * number;
    } else if (steps[k] == "add") {
      score = score + cast(score.element(), broadcast_at(c, next++, i));
    } else {
      Expr holds = broadcast_at(c, next++, i);
      score = steps[k] == "keep" ? select(holds, score, number) : select(holds, number, score);
    }
  }
  return score;
}

// Of a score less the greatest of its row. By 2^x, which is shorter, where the product rounds them: what the multiplication loses does
// not show in 16 bits.
Expr exponential_of(const ComputeContext& c, const Expr& x) {
  const bool is_rounded = byte_size(c.input_type(2).element) < byte_size(x.element());
  return is_rounded ? call(Intrinsic::exp2, {x * number_like(x, 1.4426950408889634 * scale_behind(c))})
                    : call(Intrinsic::exp, {x});
}

// What sums are worth whose maximum differs by this from the greatest one, of maxima that are yet to be scaled (scale_behind).
Expr share_of(const Expr& difference, double scale) {
  return call(Intrinsic::exp, {scale == 1 ? difference : difference * number_like(difference, scale)});
}

// What the parts give: the greatest score of each row, the sum of its exponentials, their product with the values.
struct Parts {
  double scale = 1;  // of the maxima (scale_behind)
  Buffer maximum, sum, mixed;
  Buffer inverse;  // 1 / sum, where there is one part
};

Parts compute_parts(ComputeContext& c, const Dims& dims) {
  const Attributes& a = c.attributes();
  const ElementType type = c.output_type(0).element;
  const size_t rank = dims.viewed(), splits = dims.batch.size() - rank,
               lead = dims.batch.size() + (dims.has_parts ? 1 : 0);
  auto view = [&](int i, const char* name) {
    return dims.view(a.integers(name), c.input_type(i).shape.size(), i == 0);
  };
  const Ints q = view(0, "q_view"), k = view(1, "k_view"), v = view(2, "v_view");
  // The key's number in the whole; i begins with the batch, the split, and the part.
  auto whole = [&](Axes i, const Expr& key) {
    if (!dims.has_parts) return key;
    const Expr part = splits == 0 ? Expr(i[rank]) : i[rank] * dims.parts + i[rank + 1];
    return part * dims.n + key;
  };
  // Where there is such a key, else what stands for it.
  auto where_key = [&](const Expr& number, const Expr& there, double else_value) {
    return dims.is_ragged ? select(number < dims.keys, there, number_like(there, else_value)) : there;
  };
  // The row itself, or the last one.
  auto row_of = [&](const Expr& i) {
    return dims.are_rows_whole ? i : tensor::min(i, dims.queries - Expr(1));
  };
  // Keys and values as the products read them: contiguous along the axis that is not summed over.
  const ElementType key = c.input_type(1).element, value = c.input_type(2).element;
  Buffer keys = c.builder.compute("keys", key, dims.shape({dims.d, dims.n}), [&](Axes i) {
    const Expr number = whole(i, i[lead + 1]);
    return where_key(number, viewed_element(c, 1, k, join(i.first(rank), {number, i[lead]})), 0);
  });
  Buffer values = c.builder.compute("values", value, dims.shape({dims.n, dims.e}), [&](Axes i) {
    const Expr number = whole(i, i[lead]);
    return where_key(number, viewed_element(c, 2, v, join(i.first(rank), {number, i[lead + 1]})), 0);
  });
  Buffer scores = c.builder.reduce(
      "scores", type, dims.shape({dims.rows, dims.n}), {dims.d}, Reducer::sum, [&](Axes i, Axes r) {
        return cast(type, viewed_element(c, 0, q, join(i.first(rank), {row_of(i[lead]), r[0]}))) *
               cast(type, load(keys, join(i.first(lead), {r[0], i[lead + 1]})));
      });
  const size_t steps = std::get<std::vector<std::string>>(*a.find("steps")).size();
  if (dims.is_ragged || steps > (scale_behind(c) != 1 ? 1 : 0)) {
    scores = c.builder.compute("masked", type, dims.shape({dims.rows, dims.n}), [&](Axes i) {
      const Expr number = whole(i, i[lead + 1]);
      return where_key(number,
                       stepped(c, load(scores, to_vector(i)),
                               dims.in_all(join(i.first(dims.batch.size()), {row_of(i[lead]), number}))),
                       -std::numeric_limits<double>::infinity());
    });
  }
  auto row = [&](Axes i) { return to_vector(i.first(lead + 1)); };
  auto in_row = [&](Axes i, Axes r) { return join(i.first(lead + 1), {r[0]}); };
  Parts parts;
  parts.scale = scale_behind(c);
  parts.maximum = c.builder.reduce("maximum", type, dims.shape({dims.rows}), {dims.n}, Reducer::max,
                                   [&](Axes i, Axes r) { return load(scores, in_row(i, r)); });
  if (dims.has_parts) {
    // A part that is masked throughout (-infinity) has exponentials of 0, where the row as a whole has others.
    parts.maximum = c.builder.compute("bounded", type, dims.shape({dims.rows}), [&](Axes i) {
      return tensor::max(load(parts.maximum, to_vector(i)), tensor::constant(type, std::numeric_limits<float>::lowest()));
    });
  }
  Buffer exponential = c.builder.compute("exponential", type, dims.shape({dims.rows, dims.n}), [&](Axes i) {
    return exponential_of(c, load(scores, to_vector(i)) - load(parts.maximum, row(i)));
  });
  auto add_up = [&] {
    parts.sum = c.builder.reduce("sum", type, dims.shape({dims.rows}), {dims.n}, Reducer::sum,
                                 [&](Axes i, Axes r) { return load(exponential, in_row(i, r)); });
  };
  if (!dims.has_parts) {
    add_up();
    parts.inverse = c.builder.compute("inverse", type, dims.shape({dims.rows}), [&](Axes i) {
      return tensor::constant(type, 1) / load(parts.sum, to_vector(i));
    });
  }
  parts.mixed = c.builder.reduce("mixed", type, dims.shape({dims.rows, dims.e}), {dims.n}, Reducer::sum,
                                 [&](Axes i, Axes r) {
                                   return cast(type, cast(value, load(exponential, in_row(i, r)))) *
                                          cast(type, load(values, join(i.first(lead), {r[0], i[lead + 1]})));
                                 });
  // For what comes behind the product alone.
  if (dims.has_parts) add_up();
  return parts;
}

// One part whose products are of words.
Parts compute_in_words(ComputeContext& c, const Dims& dims, const Ints& multiples) {
  const Attributes& a = c.attributes();
  const ElementType type = c.output_type(0).element, narrow = c.input_type(2).element;
  const size_t rank = dims.batch.size();
  const int64_t word = tensor::word_elements(narrow);
  const Ints extents = a.integers("extents");
  const int64_t m = extents[0], n = extents[1];
  const int64_t rows = round_up(m, multiples[0]), count = round_up(n, multiples[1]),
                depth = round_up(dims.d, multiples[2]), columns = round_up(dims.e, multiples[3]);
  auto view = [&](int i, const char* name) {
    return dims.view(a.integers(name), c.input_type(i).shape.size(), i == 0);
  };
  const Ints q = view(0, "q_view"), k = view(1, "k_view"), v = view(2, "v_view");
  // Whether a word's element is one of so many, where they have been filled up to `filled`.
  auto is_there = [&](const Expr& at, const Expr& part, int64_t there, int64_t filled) {
    if (there == filled) return Expr();
    return there % word == 0 ? at < Expr(there / word) : at * Expr(word) + part < Expr(there);
  };
  auto is_below = [](const Expr& at, int64_t there, int64_t filled) {
    return there == filled ? Expr() : at < Expr(there);
  };
  auto filled_up = [&](const Expr& first, const Expr& second, const Expr& value) {
    const Expr there = !first.defined() ? second : !second.defined() ? first : first && second;
    return there.defined() ? select(there, value, number_like(value, 0)) : value;
  };
  Buffer queries = c.builder.compute("queries", narrow, dims.shape({rows, depth}), [&](Axes i) {
    return filled_up(is_below(i[rank], m, rows), is_below(i[rank + 1], dims.d, depth),
                     viewed_element(c, 0, q, join(i.first(rank), {i[rank], i[rank + 1]})));
  });
  Buffer keys = c.builder.compute("keys", narrow, dims.shape({depth / word, count, word}), [&](Axes i) {
    const Expr &at = i[rank], &key = i[rank + 1], &part = i[rank + 2];
    return filled_up(is_there(at, part, dims.d, depth), is_below(key, n, count),
                     viewed_element(c, 1, k, join(i.first(rank), {key, at * Expr(word) + part})));
  });
  Buffer values = c.builder.compute("values", narrow, dims.shape({count / word, columns, word}), [&](Axes i) {
    const Expr &at = i[rank], &column = i[rank + 1], &part = i[rank + 2];
    return filled_up(is_there(at, part, n, count), is_below(column, dims.e, columns),
                     viewed_element(c, 2, v, join(i.first(rank), {at * Expr(word) + part, column})));
  });
  Buffer scores = c.builder.reduce(
      "scores", type, dims.shape({rows, count}), {depth / word, word}, Reducer::sum, [&](Axes i, Axes r) {
        return cast(type, load(queries, join(i.first(rank), {i[rank], r[0] * Expr(word) + r[1]}))) *
               cast(type, load(keys, join(i.first(rank), {r[0], i[rank + 1], r[1]})));
      });
  const size_t steps = std::get<std::vector<std::string>>(*a.find("steps")).size();
  if (count != n || steps > (scale_behind(c) != 1 ? 1 : 0)) {
    scores = c.builder.compute("masked", type, dims.shape({rows, count}), [&](Axes i) {
      const Expr row = rows == m ? Expr(i[rank]) : tensor::min(i[rank], Expr(m - 1)), &key = i[rank + 1];
      const Expr score = load(scores, to_vector(i)),
                 there = stepped(c, score, join(i.first(rank), {row, key}));
      if (count == n) return there;
      const Expr none = number_like(score, -std::numeric_limits<double>::infinity()), is_key = key < Expr(n);
      // A sum, so that it is made once, where scores are written, and not in each of the blocks that read them.
      return there.same_as(score) ? score + select(is_key, number_like(score, 0), none)
                                  : select(is_key, there, none);
    });
  }
  auto row = [&](Axes i) { return to_vector(i.first(rank + 1)); };
  auto in_row = [&](Axes i, Axes r) { return join(i.first(rank + 1), {r[0]}); };
  Parts parts;
  parts.maximum = c.builder.reduce("maximum", type, dims.shape({rows}), {count}, Reducer::max,
                                   [&](Axes i, Axes r) { return load(scores, in_row(i, r)); });
  Buffer exponential = c.builder.compute("exponential", narrow, dims.shape({rows, count}), [&](Axes i) {
    return cast(narrow, exponential_of(c, load(scores, to_vector(i)) - load(parts.maximum, row(i))));
  });
  parts.sum = c.builder.reduce("sum", type, dims.shape({rows}), {count}, Reducer::sum,
                               [&](Axes i, Axes r) { return cast(type, load(exponential, in_row(i, r))); });
  parts.inverse = c.builder.compute("inverse", type, dims.shape({rows}), [&](Axes i) {
    return tensor::constant(type, 1) / load(parts.sum, to_vector(i));
  });
  parts.mixed = c.builder.reduce(
      "mixed", type, dims.shape({rows, columns}), {count / word, word}, Reducer::sum, [&](Axes i, Axes r) {
        return cast(type, load(exponential, join(i.first(rank + 1), {r[0] * Expr(word) + r[1]}))) *
               cast(type, load(values, join(i.first(rank), {r[0], i[rank + 1], r[1]})));
      });
  return parts;
}

// Of a row in a part.
struct RowNumbers {
  Expr maximum, sum;
};

// An element of the result from all parts, `at` its index in the order of batch, row, column.
Expr put_together(const Buffer& mixed, int64_t count, Axes at, double scale,
                  const std::function<RowNumbers(const std::vector<Expr>&)>& numbers_of) {
  const size_t rank = at.size() - 2;
  std::vector<Expr> maxima, sums, products;
  for (int64_t p = 0; p < count; ++p) {
    const RowNumbers numbers = numbers_of(join(at.first(rank), {Expr(p), at[rank]}));
    maxima.push_back(numbers.maximum);
    sums.push_back(numbers.sum);
    products.push_back(load(mixed, join(at.first(rank), {Expr(p), at[rank], at[rank + 1]})));
  }
  Expr top = maxima[0], numerator, denominator;
  for (size_t p = 1; p < maxima.size(); ++p)
    top = tensor::max(top, maxima[p]);
  for (size_t p = 0; p < maxima.size(); ++p) {
    const Expr share = share_of(maxima[p] - top, scale);
    numerator = p == 0 ? share * products[p] : numerator + share * products[p];
    denominator = p == 0 ? share * sums[p] : denominator + share * sums[p];
  }
  return numerator / denominator;
}

// All parts put together one after the other: the product, the sum of the exponentials, the greatest score.
struct Rolled {
  Buffer mixed, sum, top;
};

Rolled roll(ComputeContext& c, const Parts& parts, const Dims& dims, ElementType type) {
  tensor::FuncBuilder& b = c.builder;
  const Shape rows = dims.rows_of_batch();
  Shape all = rows;
  all.emplace_back(dims.e);
  const Rolled rolled{b.new_buffer("rolled", type, all), b.new_buffer("total", type, rows),
                      b.new_buffer("top", type, rows)};
  const Buffer& top = rolled.top;
  auto axes_of = [](const Shape& shape) {
    std::vector<tensor::FuncBuilder::AxisSpec> axes;
    for (size_t n = 0; n < shape.size(); ++n)
      axes.push_back({text("i", n), shape[n]});
    return axes;
  };
  b.serial_loop("part", dims.parts, [&](const Expr& p) {
    const size_t rank = dims.batch.size();
    // Of a row in this part, behind the batch.
    auto of_part = [&](const Buffer& buffer, Axes i) {
      std::vector<Expr> at = to_vector(i);
      at.insert(at.begin() + static_cast<std::ptrdiff_t>(rank), p);
      return load(buffer, at);
    };
    Buffer risen = b.compute("risen", type, rows, [&](Axes i) {
      const Expr lowest = tensor::constant(type, std::numeric_limits<float>::lowest());
      return tensor::max(of_part(parts.maximum, i), select(p == 0, lowest, load(top, to_vector(i))));
    });
    // What the sums so far (0 in the first part), and those of this part, are worth.
    Buffer kept = b.compute("kept", type, rows, [&](Axes i) {
      const Expr fallen = load(top, to_vector(i)) - load(risen, to_vector(i));
      return share_of(select(p == 0, number_like(fallen, 0), fallen), parts.scale);
    });
    Buffer added = b.compute("added", type, rows, [&](Axes i) {
      return share_of(of_part(parts.maximum, i) - load(risen, to_vector(i)), parts.scale);
    });
    auto update = [&](const std::string& name, const Buffer& sum, const Buffer& part, const Shape& shape) {
      b.block(
          name, axes_of(shape),
          [&](Axes i) {
            const std::vector<Expr> row = to_vector(i.first(rank + 1));
            return tensor::Store::make(
                sum, to_vector(i),
                load(sum, to_vector(i)) * load(kept, row) + of_part(part, i) * load(added, row));
          },
          [&](Axes i) { return tensor::Store::make(sum, to_vector(i), tensor::constant(type, 0)); });
    };
    update("roll_sum", rolled.sum, parts.sum, rows);
    update("roll", rolled.mixed, parts.mixed, all);
    b.block("rise", axes_of(rows),
            [&](Axes i) { return tensor::Store::make(top, to_vector(i), load(risen, to_vector(i))); });
  });
  return rolled;
}

// What has been put together of each split, in memory.
struct Splits {
  Buffer mixed, rows;  // rows: maximum and sum of each
};

Splits splits_of(ComputeContext& c, const Rolled& rolled, const Dims& dims, ElementType type) {
  Shape rows = dims.rows_of_batch(), all = rows;
  all.emplace_back(dims.e);
  rows.emplace_back(2);
  return {c.builder.compute("split", type, all, [&](Axes i) { return load(rolled.mixed, to_vector(i)); }),
          c.builder.compute("split_rows", type, rows, [&](Axes i) {
            const std::vector<Expr> row = to_vector(i.first(i.size() - 1));
            return select(i.back() == 0, load(rolled.top, row), load(rolled.sum, row));
          })};
}

void compute_attention(ComputeContext& c) {
  const ElementType type = c.output_type(0).element;
  const Dims dims = dims_of(c);
  const Ints words = c.attributes().integers("words", {});
  const Parts parts = words.empty() ? compute_parts(c, dims) : compute_in_words(c, dims, words);
  const Rolled rolled = dims.rolling != 0 && dims.has_parts ? roll(c, parts, dims, type) : Rolled{};
  const Splits splits = dims.splits > 1 ? splits_of(c, rolled, dims, type) : Splits{};
  const Ints perm = c.attributes().integers("y_perm");
  // Without a key there is nothing to divide by.
  auto of_any = [&](const Expr& y) {
    return dims.is_open ? select(dims.keys > Expr(0), y, number_like(y, 0)) : y;
  };
  c.set_output(0, c.builder.compute("attention", type, c.output_type(0).shape, [&](Axes i) {
    std::vector<Expr> at(i.size());
    for (size_t axis = 0; axis < perm.size(); ++axis)
      at[static_cast<size_t>(perm[axis])] = i[axis];
    at = dims.in_batch(at);
    if (dims.splits > 1) {
      return of_any(put_together(splits.mixed, dims.splits, at, parts.scale, [&](std::vector<Expr> row) {
        std::vector<Expr> maximum = row, sum = row;
        maximum.emplace_back(0);
        sum.emplace_back(1);
        return RowNumbers{load(splits.rows, maximum), load(splits.rows, sum)};
      }));
    }
    if (rolled.mixed.defined())
      return of_any(load(rolled.mixed, at) / load(rolled.sum, {at.begin(), at.end() - 1}));
    if (dims.has_parts) {
      return put_together(parts.mixed, *static_dim(dims.parts), at, parts.scale,
                          [&](const std::vector<Expr>& row) {
                            return RowNumbers{load(parts.maximum, row), load(parts.sum, row)};
                          });
    }
    return of_any(load(parts.mixed, at) * load(parts.inverse, {at.begin(), at.end() - 1}));
  }));
}

// Runs with one query, of an open number that is a dimension by itself.
std::optional<OtherRun> one_query(const Graph& graph, const Node& node) {
  const Attributes& a = node.attributes;
  Ints extents = a.integers("extents");
  if (a.integer("splits", 1) == 1 || extents[0] != kOpenExtent) return std::nullopt;
  const Dims dims(graph, node);
  const auto* m = dims.m.as<tensor::VarNode>();
  if (m == nullptr) return std::nullopt;
  OtherRun run{tensor::Var(m), 1, a};
  extents[0] = 1;
  run.attributes.set("extents", extents);
  return run;
}

OpDef described() {
  OpDef op = own_op("Attention", FusionClass::contraction, 3, infer_attention, compute_attention);
  op.other_run = one_query;
  return op;
}

}  // namespace

std::span<const OpDef> mcc_attention_ops() {
  static const OpDef ops[] = {described()};
  return ops;
}

}  // namespace mcc::graph
