// A regular expression -> a nondeterministic automaton over bytes (K. Thompson, "Regular expression search algorithm", 1968) -> a
// deterministic one by sets of its states -> the least one by refining a partition (E. F. Moore, 1956).
#include "frontend/regex.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "frontend/regex_tree.h"

namespace mcc::frontend {

namespace {

using Kind = Regex::Kind;

constexpr size_t kMostSteps = size_t{1} << 18;
constexpr size_t kMostStates = 4096;

// What stands before or behind a position, as far as borders ask for it.
enum class Side : uint8_t { none, word, line_end, other };
constexpr Side kSides[] = {Side::none, Side::word, Side::line_end, Side::other};

Side side_of(int byte) {
  const bool is_word = (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
                       (byte >= 'a' && byte <= 'z') || byte == '_';
  return is_word ? Side::word : byte == '\n' ? Side::line_end : Side::other;
}

bool holds(Kind border, Side before, Side behind) {
  const bool is_border = (before == Side::word) != (behind == Side::word);
  switch (border) {
    case Kind::text_begin:
      return before == Side::none;
    case Kind::text_end:
      return behind == Side::none;
    case Kind::line_begin:
      return before == Side::none || before == Side::line_end;
    case Kind::line_end:
      return behind == Side::none || behind == Side::line_end;
    case Kind::word_border:
      return is_border;
    case Kind::no_word_border:
      return !is_border;
    case Kind::sequence:
    case Kind::choice:
    case Kind::repetition:
    case Kind::characters:
    case Kind::byte:
      break;
  }
  MCC_UNREACHABLE("no border");
}

// One step of the nondeterministic automaton.
struct Step {
  enum class Do { byte, both, border, accept };
  Do what = Do::accept;
  int low = 0, high = 0;  // bytes
  Kind border = Kind::text_begin;
  int next = -1, other = -1;  // both: one and the other
};

class Program {
 public:
  // False where it gets too large.
  bool build(const Regex& tree) {
    steps_.push_back({});
    start_ = compile(tree, 0);
    return steps_.size() < kMostSteps;
  }

  const std::vector<Step>& steps() const { return steps_; }
  int start() const { return start_; }
  bool has_borders() const { return has_borders_; }

 private:
  int add(Step step) {
    if (steps_.size() < kMostSteps) steps_.push_back(step);
    return static_cast<int>(steps_.size()) - 1;
  }
  int byte(int low, int high, int next) { return add({Step::Do::byte, low, high, Kind::byte, next, -1}); }
  int both(int one, int other) { return add({Step::Do::both, 0, 0, Kind::byte, one, other}); }

  // The step with which the tree begins, if `next` is what comes behind it.
  int compile(const Regex& tree, int next) {
    if (steps_.size() >= kMostSteps) return next;
    switch (tree.kind) {
      case Kind::sequence:
        for (size_t i = tree.parts.size(); i-- > 0;)
          next = compile(*tree.parts[i], next);
        return next;
      case Kind::choice: {
        int all = compile(*tree.parts.back(), next);
        for (size_t i = tree.parts.size() - 1; i-- > 0;)
          all = both(compile(*tree.parts[i], next), all);
        return all;
      }
      case Kind::repetition:
        return repeat(tree, next);
      case Kind::characters:
        return characters(tree.characters, next);
      case Kind::byte:
        return byte(0, 255, next);
      case Kind::text_begin:
      case Kind::text_end:
      case Kind::line_begin:
      case Kind::line_end:
      case Kind::word_border:
      case Kind::no_word_border:
        has_borders_ = true;
        return add({Step::Do::border, 0, 0, tree.kind, next, -1});
    }
    MCC_UNREACHABLE("unknown kind of a regular expression");
  }

  int repeat(const Regex& tree, int next) {
    const Regex& part = *tree.parts[0];
    if (tree.most < 0) {
      const int again = both(-1, next);
      const int begin = compile(part, again);
      steps_[static_cast<size_t>(again)].next = begin;
      next = again;
    }
    // Of those that may be left out, each lies within the one before.
    const int end = next;
    for (int i = tree.least; i < tree.most; ++i)
      next = both(compile(part, next), end);
    for (int i = 0; i < tree.least; ++i)
      next = compile(part, next);
    return next;
  }

  int characters(const CharacterSet& set, int next) {
    int all = -1;
    for (const auto& [low, high] : set)
      all = add_range(low, high, next, all);
    // A set of nothing has no way on.
    return all < 0 ? byte(1, 0, next) : all;
  }

  // The bytes of these characters in UTF-8, or else `all`: as ranges in which each byte may be any between the ends'.
  int add_range(uint32_t low, uint32_t high, int next, int all) {
    for (uint32_t last : {0x7fu, 0x7ffu, 0xffffu})
      if (low <= last && high > last) return add_range(last + 1, high, next, add_range(low, last, next, all));
    for (int i = 1; i <= 3 && high >= 0x80; ++i) {
      const uint32_t below = (1u << 6 * i) - 1;
      if ((low & ~below) == (high & ~below)) continue;
      if ((low & below) != 0)
        return add_range((low | below) + 1, high, next, add_range(low, low | below, next, all));
      if ((high & below) != below)
        return add_range(high & ~below, high, next, add_range(low, (high & ~below) - 1, next, all));
    }
    const int length = high < 0x80 ? 1 : high < 0x800 ? 2 : high < 0x10000 ? 3 : 4;
    int begin = next;
    for (int i = 0; i < length; ++i, low >>= 6, high >>= 6) {
      const bool is_lead = i + 1 == length;
      const uint32_t mark = length == 1 ? 0
                            : is_lead   ? 0xf00u >> length & 0xff
                                        : 0x80,
                     bits = length == 1 || is_lead ? 0xff : 0x3f;
      begin = byte(static_cast<int>(mark | (low & bits)), static_cast<int>(mark | (high & bits)), begin);
    }
    return all < 0 ? begin : both(begin, all);
  }

  std::vector<Step> steps_;
  int start_ = 0;
  bool has_borders_ = false;
};

// Bytes that no step tells apart, by the numbers of their classes.
std::string byte_classes(const Program& program) {
  std::set<int> begins{0};
  for (const Step& step : program.steps()) {
    if (step.what != Step::Do::byte) continue;
    begins.insert(step.low);
    begins.insert(step.high + 1);
  }
  for (int b = 1; b < 256 && program.has_borders(); ++b)
    if (side_of(b) != side_of(b - 1)) begins.insert(b);
  std::string classes(256, 0);
  int current = -1;
  for (int b = 0; b < 256; ++b) {
    current += begins.contains(b) ? 1 : 0;
    classes[static_cast<size_t>(b)] = static_cast<char>(current);
  }
  return classes;
}

size_t index_of(char byte) { return static_cast<unsigned char>(byte); }

class Determiner {
 public:
  explicit Determiner(const Program& program) : program_(program), seen_(program.steps().size()) {}

  // Nothing where there are too many states.
  std::optional<Automaton> run() {
    Automaton out;
    out.classes = byte_classes(program_);
    const size_t classes = index_of(out.classes.back()) + 1;
    std::vector<int> bytes(classes);  // one of each class
    for (int b = 0; b < 256; ++b)
      bytes[index_of(out.classes[static_cast<size_t>(b)])] = b;
    state({{program_.start()}, program_.has_borders() ? Side::none : Side::other});
    for (size_t s = 0; s < keys_.size(); ++s) {
      if (keys_.size() > kMostStates) return std::nullopt;
      const Key key = *keys_[s];
      std::map<Side, std::vector<int>> reached;
      for (Side behind : kSides)
        reached[behind] = closure(key, behind);
      const std::vector<int>& at_end = reached[Side::none];
      out.accepts += std::binary_search(at_end.begin(), at_end.end(), 0) ? '\1' : '\0';
      for (int b : bytes)
        out.next.push_back(state(after(reached[side_of(b)], b)));
    }
    return out;
  }

 private:
  // Steps that may come, and what stands before them.
  struct Key {
    std::vector<int> steps;
    Side before = Side::other;
    bool operator<(const Key& other) const {
      return std::tie(steps, before) < std::tie(other.steps, other.before);
    }
  };

  int64_t state(Key key) {
    const auto [entry, is_new] = numbers_.try_emplace(std::move(key), static_cast<int64_t>(keys_.size()));
    if (is_new) keys_.push_back(&entry->first);
    return entry->second;
  }

  // Steps that take a byte, or accept, from there; in order.
  std::vector<int> closure(const Key& key, Side behind) {
    std::vector<int> open = key.steps, out;
    std::fill(seen_.begin(), seen_.end(), false);
    while (!open.empty()) {
      const int s = open.back();
      open.pop_back();
      if (seen_[static_cast<size_t>(s)]) continue;
      seen_[static_cast<size_t>(s)] = true;
      const Step& step = program_.steps()[static_cast<size_t>(s)];
      if (step.what == Step::Do::both) {
        open.push_back(step.next);
        open.push_back(step.other);
      } else if (step.what == Step::Do::border) {
        if (holds(step.border, key.before, behind)) open.push_back(step.next);
      } else {
        out.push_back(s);
      }
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  Key after(const std::vector<int>& reached, int byte) const {
    std::set<int> next;
    for (int s : reached) {
      const Step& step = program_.steps()[static_cast<size_t>(s)];
      if (step.what == Step::Do::byte && step.low <= byte && byte <= step.high) next.insert(step.next);
    }
    return {{next.begin(), next.end()}, program_.has_borders() ? side_of(byte) : Side::other};
  }

  const Program& program_;
  std::map<Key, int64_t> numbers_;
  std::vector<const Key*> keys_;
  std::vector<bool> seen_;
};

// States that no text tells apart become one, numbered in the order of their first.
Automaton minimized(const Automaton& a) {
  const size_t states = a.accepts.size(), classes = static_cast<size_t>(a.class_count());
  std::vector<int64_t> part(states);
  size_t parts = 0;
  for (size_t s = 0; s < states; ++s)
    part[s] = a.accepts[s];
  for (;;) {
    std::map<std::vector<int64_t>, int64_t> numbers;
    std::vector<int64_t> finer(states);
    for (size_t s = 0; s < states; ++s) {
      std::vector<int64_t> key{part[s]};
      for (size_t c = 0; c < classes; ++c)
        key.push_back(part[static_cast<size_t>(a.next[s * classes + c])]);
      finer[s] = numbers.try_emplace(std::move(key), static_cast<int64_t>(numbers.size())).first->second;
    }
    part = std::move(finer);
    if (numbers.size() == parts) break;
    parts = numbers.size();
  }
  Automaton out;
  out.classes = a.classes;
  out.start = part[static_cast<size_t>(a.start)];
  for (size_t s = 0; s < states; ++s) {
    if (static_cast<size_t>(part[s]) != out.accepts.size()) continue;
    out.accepts += a.accepts[s];
    for (size_t c = 0; c < classes; ++c)
      out.next.push_back(part[static_cast<size_t>(a.next[s * classes + c])]);
  }
  return out;
}

}  // namespace

Result<Automaton> full_match_automaton(const std::string& pattern) {
  Result<RegexPtr> tree = parse_regex(pattern);
  if (!tree.ok()) return tree.errors();
  const Diagnostic too_large{ErrorKind::unsupported, "",
                             text("pattern '", pattern, "' takes more than ", kMostStates, " states"),
                             "write it with smaller counts in braces"};
  Program program;
  if (!program.build(**tree)) return too_large;
  const std::optional<Automaton> automaton = Determiner(program).run();
  if (!automaton) return too_large;
  return minimized(*automaton);
}

}  // namespace mcc::frontend
