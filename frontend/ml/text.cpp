// TfIdfVectorizer, of strings or numbers: how often each of a list of sequences (n-grams) stands in a row.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "frontend/ml/ml_ops.h"

namespace mcc::frontend {

namespace {

constexpr ElementType kElement = ElementType::f32;
constexpr int64_t kMostColumns = int64_t{1} << 24;

struct Grams {
  int64_t shortest = 1, longest = 1, skips = 0;
  std::map<int64_t, std::vector<int64_t>>
      words;  // by length: one sequence behind the other; of strings, their positions in `texts`
  std::vector<std::string> texts;
  std::map<int64_t, std::vector<size_t>> places;  // by length: columns of the result
  std::vector<size_t> all_places;
  size_t columns = 0;
};

std::optional<Grams> grams_of(Expansion& e) {
  Grams g{e.integer("min_gram_length"),
          e.integer("max_gram_length"),
          e.integer("max_skip_count"),
          {},
          e.words("pool_strings"),
          {},
          {},
          0};
  const bool is_text = e.element(0) == ElementType::string;
  std::vector<int64_t> pool = e.integers("pool_int64s");
  if (!e.expect(is_text ? !g.texts.empty() : !pool.empty(), "attribute '",
                is_text ? "pool_strings" : "pool_int64s", "' is missing"))
    return std::nullopt;
  if (is_text) {
    pool.resize(g.texts.size());
    std::iota(pool.begin(), pool.end(), 0);
  } else {
    g.texts.clear();
  }
  const std::vector<int64_t> begins = e.integers("ngram_counts"), places = e.integers("ngram_indexes");
  if (!e.expect(1 <= g.shortest && g.shortest <= g.longest,
                "expected min_gram_length and max_gram_length in order, from 1 on, got ", g.shortest, " and ",
                g.longest) ||
      !e.expect(g.skips >= 0, "attribute 'max_skip_count': expected at least 0, got ", g.skips) ||
      !e.expect(g.longest <= static_cast<int64_t>(begins.size()), "attribute 'ngram_counts': expected ",
                g.longest, " values, got ", begins.size())) {
    return std::nullopt;
  }
  size_t next = 0;
  for (size_t k = 0; k < begins.size(); ++k) {
    const auto length = static_cast<int64_t>(k) + 1;
    const int64_t begin = begins[k],
                  end = k + 1 < begins.size() ? begins[k + 1] : static_cast<int64_t>(pool.size());
    if (!e.expect(0 <= begin && begin <= end && end <= static_cast<int64_t>(pool.size()) &&
                      (end - begin) % length == 0,
                  "attribute 'ngram_counts': elements ", begin, " to ", end, " of ", pool.size(),
                  " are no sequences of ", length)) {
      return std::nullopt;
    }
    g.words[length] = {pool.begin() + begin, pool.begin() + end};
    for (int64_t i = 0; i < (end - begin) / length; ++i, ++next) {
      if (!e.expect(next < places.size(),
                    "attribute 'ngram_indexes': expected a place for each sequence, got ", places.size()) ||
          !e.expect(0 <= places[next] && places[next] < kMostColumns,
                    "attribute 'ngram_indexes': ", places[next], " is no place")) {
        return std::nullopt;
      }
      g.places[length].push_back(static_cast<size_t>(places[next]));
    }
  }
  if (!e.expect(next == places.size() && next > 0, "attribute 'ngram_indexes': expected ", next,
                " values, got ", places.size()))
    return std::nullopt;
  g.all_places.assign(places.begin(), places.end());
  g.columns = static_cast<size_t>(*std::max_element(places.begin(), places.end())) + 1;
  return g;
}

// How often each sequence of this length stands in x [rows, 1, width], with `step` from word to word: [rows, sequences].
Operand counts_of(Expansion& e, const Operand& x, int64_t width, const Grams& g, int64_t length,
                  int64_t step) {
  const std::vector<int64_t>& words = g.words.at(length);
  const auto sequences = static_cast<int64_t>(words.size()) / length;
  const int64_t begins = width - (length - 1) * step;
  Operand are_there;
  for (int64_t k = 0; k < length; ++k) {
    std::vector<int64_t> column;
    for (int64_t s = 0; s < sequences; ++s)
      column.push_back(words[static_cast<size_t>(s * length + k)]);
    std::vector<std::string> texts;
    for (int64_t place : g.texts.empty() ? std::vector<int64_t>() : column)
      texts.push_back(g.texts[static_cast<size_t>(place)]);
    const Operand word = e.reshaped(texts.empty() ? e.ints(column) : e.strings(texts), {sequences, 1});
    const Operand is_word = e.op("Equal", {e.slice(x, 2, k * step, k * step + begins), word});
    are_there = k == 0 ? is_word : e.op("And", {are_there, is_word});
  }
  return e.op("ReduceSum", {e.converted(are_there, kElement), e.ints({2})}, {{"keepdims", int64_t{0}}});
}

// Counts of sequences where their columns are. One column may have several of them.
Operand placed(Expansion& e, const Operand& counts, int64_t rows, const std::vector<size_t>& places,
               size_t columns) {
  const auto count = static_cast<int64_t>(places.size()), width = static_cast<int64_t>(columns);
  if (std::set<size_t>(places.begin(), places.end()).size() < places.size()) {
    std::vector<double> matrix(places.size() * columns);
    for (size_t i = 0; i < places.size(); ++i)
      matrix[i * columns + places[i]] = 1;
    return e.op("MatMul", {counts, e.reals(kElement, {count, width}, matrix)});
  }
  std::vector<int64_t> from(columns, count);  // a column of 0s behind the others
  for (size_t i = 0; i < places.size(); ++i)
    from[places[i]] = static_cast<int64_t>(i);
  const Operand filled =
      e.op("Concat", {counts, e.reals(kElement, {rows, 1}, std::vector<double>(static_cast<size_t>(rows)))},
           {{"axis", int64_t{1}}});
  return e.op("Gather", {filled, e.ints(from)}, {{"axis", int64_t{1}}});
}

void vectorizer(Expansion& e) {
  const std::string mode = e.word("mode");
  if (!e.expect(mode == "TF" || mode == "IDF" || mode == "TFIDF",
                "attribute 'mode': expected TF, IDF or TFIDF, got ", mode) ||
      !e.expect(e.rank(0) == 1 || e.rank(0) == 2, "input 'X': expected 1 or 2 dimensions, got shape ",
                shape_text(e.shape(0)))) {
    return;
  }
  const std::optional<Grams> g = grams_of(e);
  if (!g) return;
  const int64_t rows = e.rank(0) == 1 ? 1 : e.shape(0)[0], width = e.shape(0).back(),
                columns = static_cast<int64_t>(g->columns);
  const std::vector<double> weights = e.numbers("weights");
  if (!weights.empty() && !expect_count(e, "weights", weights.size(), g->all_places.size())) return;
  const Operand x = e.reshaped(e.element(0) == ElementType::i64 || e.element(0) == ElementType::string
                                   ? e.in(0)
                                   : e.converted(e.in(0), ElementType::i64),
                               {rows, 1, width});
  std::vector<Operand> parts;
  std::vector<size_t> places;
  for (int64_t length = g->shortest; length <= g->longest; ++length) {
    if (g->words.at(length).empty()) continue;
    Operand total;
    // Single words have nothing between them to be skipped.
    for (int64_t step = 1; step <= (length == 1 ? 1 : g->skips + 1) && (length - 1) * step < width; ++step) {
      const Operand counts = counts_of(e, x, width, *g, length, step);
      total = total.empty() ? counts : e.op("Add", {total, counts});
    }
    if (total.empty()) continue;
    parts.push_back(total);
    const std::vector<size_t>& at = g->places.at(length);
    places.insert(places.end(), at.begin(), at.end());
  }
  Operand y = parts.empty()
                  ? e.op("Expand", {e.scalar(kElement, 0), e.ints({rows, columns})})
                  : placed(e, parts.size() == 1 ? parts[0] : e.op("Concat", parts, {{"axis", int64_t{1}}}),
                           rows, places, g->columns);
  if (mode == "IDF") y = e.converted(e.op("Greater", {y, e.scalar(kElement, 0)}), kElement);
  if (mode != "TF" && !weights.empty()) {  // of sequences, in the order of the pool
    std::vector<double> of_columns(g->columns);
    for (size_t i = 0; i < weights.size(); ++i)
      of_columns[g->all_places[i]] = weights[i];
    y = e.op("Mul", {y, e.reals(kElement, {columns}, of_columns)});
  }
  e.result(0, e.rank(0) == 1 ? e.reshaped(y, {columns}) : y);
}

}  // namespace

std::span<const MlOp> text_ops() {
  static constexpr MlOp kOps[] = {{"TfIdfVectorizer", vectorizer, ""}};
  return kOps;
}

}  // namespace mcc::frontend
