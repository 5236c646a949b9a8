// RE2's syntax (https://github.com/google/re2/wiki/Syntax) -> a tree.
#include <algorithm>
#include <cstring>
#include <optional>

#include "frontend/regex_tree.h"

namespace mcc::frontend {

namespace {

using Kind = Regex::Kind;

constexpr int kMostTimes = 1000;  // as in RE2
constexpr int kMostDepth = 200;

void normalize(CharacterSet& set) {
  std::sort(set.begin(), set.end());
  CharacterSet out;
  for (const auto& [low, high] : set) {
    if (!out.empty() && low <= out.back().second + 1)
      out.back().second = std::max(out.back().second, high);
    else
      out.emplace_back(low, high);
  }
  set = std::move(out);
}

CharacterSet complement(const CharacterSet& set) {
  CharacterSet out;
  uint32_t next = 0;
  for (const auto& [low, high] : set) {
    if (next < low) out.emplace_back(next, low - 1);
    next = high + 1;
  }
  if (next <= kLastCharacter) out.emplace_back(next, kLastCharacter);
  return out;
}

struct NamedSet {
  const char* name;
  CharacterSet set;
};

const CharacterSet* find_class(const std::string& name) {
  static const std::vector<NamedSet> kClasses = {
      {"alnum", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}},
      {"alpha", {{'A', 'Z'}, {'a', 'z'}}},
      {"ascii", {{0, 0x7f}}},
      {"blank", {{'\t', '\t'}, {' ', ' '}}},
      {"cntrl", {{0, 0x1f}, {0x7f, 0x7f}}},
      {"digit", {{'0', '9'}}},
      {"graph", {{'!', '~'}}},
      {"lower", {{'a', 'z'}}},
      {"print", {{' ', '~'}}},
      {"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
      {"space", {{'\t', '\r'}, {' ', ' '}}},
      {"upper", {{'A', 'Z'}}},
      {"word", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
      {"xdigit", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}},
      {"d", {{'0', '9'}}},
      {"s", {{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}}},
      {"w", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
  };
  for (const NamedSet& named : kClasses)
    if (name == named.name) return &named.set;
  return nullptr;
}

class Parser {
 public:
  explicit Parser(const std::string& pattern) : pattern_(pattern), rest_(pattern) {}

  Result<RegexPtr> parse() {
    RegexPtr tree = choice(0);
    if (!rest_.empty()) fail("has a ')' without its '('");
    if (problem_) return *problem_;
    return tree;
  }

 private:
  struct Flags {
    bool any_case = false, lines = false, dot_is_all = false;
  };

  bool fail(const std::string& what, ErrorKind kind = ErrorKind::bad_input) {
    if (!problem_) problem_ = Diagnostic{kind, "", text("pattern '", pattern_, "' ", what), ""};
    rest_ = {};
    return false;
  }

  bool take(std::string_view token) {
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  static RegexPtr node(Kind kind, std::vector<RegexPtr> parts = {}) {
    return std::make_shared<const Regex>(Regex{kind, std::move(parts), {}, 0, 0});
  }

  RegexPtr set_node(CharacterSet set) {
    normalize(set);
    return std::make_shared<const Regex>(Regex{Kind::characters, {}, std::move(set), 0, 0});
  }

  // With the other case of letters, if the flags say so: of ASCII, and the two signs that Unicode folds with it.
  void add(CharacterSet& set, uint32_t low, uint32_t high) {
    set.emplace_back(low, high);
    if (!flags_.any_case) return;
    if (high > 0x7f && !(low == 0 && high == kLastCharacter)) {
      fail("has characters beyond ASCII without regard to case, which is not supported",
           ErrorKind::unsupported);
      return;
    }
    for (uint32_t c = std::max<uint32_t>(low, 'A'); c <= std::min<uint32_t>(high, 'z'); ++c) {
      const uint32_t lower = c | 0x20;
      if (lower < 'a' || lower > 'z' || (c > 'Z' && c < 'a')) continue;
      set.emplace_back(c ^ 0x20, c ^ 0x20);
      if (lower == 'k') set.emplace_back(0x212a, 0x212a);
      if (lower == 's') set.emplace_back(0x17f, 0x17f);
    }
  }

  RegexPtr literal(uint32_t c) {
    CharacterSet set;
    add(set, c, c);
    return set_node(std::move(set));
  }

  RegexPtr choice(int depth) {
    const Flags outer = flags_;
    if (depth > kMostDepth) fail("is nested too deeply");
    std::vector<RegexPtr> branches{sequence(depth)};
    while (take("|"))
      branches.push_back(sequence(depth));
    flags_ = outer;
    return branches.size() == 1 ? branches[0] : node(Kind::choice, std::move(branches));
  }

  RegexPtr sequence(int depth) {
    std::vector<RegexPtr> parts;
    bool may_repeat = false;  // whether there is something that an operator would repeat
    while (!rest_.empty() && rest_[0] != '|' && rest_[0] != ')') {
      if (const std::optional<std::pair<int, int>> times = repetition()) {
        if (!may_repeat) fail("repeats nothing, or a repetition");
        if (problem_) break;
        const auto [least, most] = *times;
        parts.back() =
            std::make_shared<const Regex>(Regex{Kind::repetition, {parts.back()}, {}, least, most});
        may_repeat = false;
        continue;
      }
      const size_t before = parts.size();
      atom(parts, depth);
      may_repeat = parts.size() > before;
    }
    return parts.size() == 1 ? parts[0] : node(Kind::sequence, std::move(parts));
  }

  // An operator here; which of several matches is found does not matter.
  std::optional<std::pair<int, int>> repetition() {
    std::optional<std::pair<int, int>> times;
    if (take("*"))
      times = {0, -1};
    else if (take("+"))
      times = {1, -1};
    else if (take("?"))
      times = {0, 1};
    else
      times = counted();
    if (times) take("?");
    return times;
  }

  // {2}, {2,}, {2,5}; anything else is a brace.
  std::optional<std::pair<int, int>> counted() {
    std::string_view rest = rest_;
    if (!rest.starts_with('{')) return std::nullopt;
    rest.remove_prefix(1);
    const std::optional<int> least = number(rest);
    if (!least) return std::nullopt;
    int most = *least;
    if (rest.starts_with(',')) {
      rest.remove_prefix(1);
      most = number(rest).value_or(-1);
    }
    if (!rest.starts_with('}')) return std::nullopt;
    rest_ = rest.substr(1);
    if (*least > kMostTimes || most > kMostTimes || (most >= 0 && most < *least))
      fail(text("repeats more than ", kMostTimes, " times, or at most less often than at least"));
    return std::pair{*least, most};
  }

  static std::optional<int> number(std::string_view& rest) {
    int value = 0;
    size_t digits = 0;
    for (; digits < rest.size() && rest[digits] >= '0' && rest[digits] <= '9'; ++digits)
      value = std::min(value * 10 + (rest[digits] - '0'), kMostTimes + 1);
    if (digits == 0) return std::nullopt;
    rest.remove_prefix(digits);
    return value;
  }

  void atom(std::vector<RegexPtr>& parts, int depth) {
    if (take("(")) return group(parts, depth);
    if (take("[")) return parts.push_back(bracket());
    if (take("."))
      return parts.push_back(
          set_node(flags_.dot_is_all ? CharacterSet{{0, kLastCharacter}} : complement({{'\n', '\n'}})));
    if (take("^")) return parts.push_back(node(flags_.lines ? Kind::line_begin : Kind::text_begin));
    if (take("$")) return parts.push_back(node(flags_.lines ? Kind::line_end : Kind::text_end));
    if (rest_[0] == '\\') return escape(parts);
    parts.push_back(literal(character()));
  }

  void group(std::vector<RegexPtr>& parts, int depth) {
    const Flags outer = flags_;
    if (take("?P<") || take("?<")) {
      const size_t end = rest_.find('>');
      const std::string_view name = rest_.substr(0, end);
      const bool is_name = end != std::string_view::npos && !name.empty() &&
                           std::all_of(name.begin(), name.end(), [](unsigned char c) {
                             return std::isalnum(c) || c == '_' || c > 0x7f;
                           });
      if (!is_name) {
        fail("has a group with a name that is none");
        return;
      }
      rest_.remove_prefix(end + 1);
    } else if (take("?")) {
      if (!set_flags()) return;
      if (take(")")) return;  // for the rest of the group around it
      if (!take(":")) {
        fail("has a kind of group that is not known");
        return;
      }
    }
    parts.push_back(choice(depth + 1));
    if (!take(")")) fail("lacks a ')'");
    flags_ = outer;
  }

  bool set_flags() {
    bool on = true;
    while (!rest_.empty() && rest_[0] != ')' && rest_[0] != ':') {
      const char flag = rest_[0];
      rest_.remove_prefix(1);
      if (flag == '-' && on)
        on = false;
      else if (flag == 'i')
        flags_.any_case = on;
      else if (flag == 'm')
        flags_.lines = on;
      else if (flag == 's')
        flags_.dot_is_all = on;
      else if (flag != 'U')
        return fail("has a flag that is not known");
    }
    return true;
  }

  // The next character of the pattern.
  uint32_t character() {
    const auto lead = static_cast<unsigned char>(rest_[0]);
    const size_t length = lead < 0x80                   ? 1
                          : lead >= 0xf0 && lead < 0xf5 ? 4
                          : lead >= 0xe0 && lead < 0xf0 ? 3
                          : lead >= 0xc2 && lead < 0xe0 ? 2
                                                        : 0;
    bool is_good = length > 0 && length <= rest_.size();
    uint32_t c = length <= 1 ? lead : lead & (0x7fu >> length);
    for (size_t i = 1; is_good && i < length; ++i) {
      is_good = (static_cast<unsigned char>(rest_[i]) & 0xc0) == 0x80;
      c = c << 6 | (static_cast<unsigned char>(rest_[i]) & 0x3f);
    }
    if (!is_good) {
      fail("is no UTF-8");
      return 0;
    }
    rest_.remove_prefix(length);
    return c;
  }

  void escape(std::vector<RegexPtr>& parts) {
    if (take("\\A")) return parts.push_back(node(Kind::text_begin));
    if (take("\\z")) return parts.push_back(node(Kind::text_end));
    if (take("\\b")) return parts.push_back(node(Kind::word_border));
    if (take("\\B")) return parts.push_back(node(Kind::no_word_border));
    if (take("\\C")) return parts.push_back(node(Kind::byte));
    if (take("\\Q")) {
      while (!rest_.empty() && !take("\\E"))
        parts.push_back(literal(character()));
      return;
    }
    CharacterSet set;
    if (add_perl_class(set)) return parts.push_back(set_node(std::move(set)));
    if (problem_) return;
    if (const std::optional<uint32_t> c = escaped_character()) parts.push_back(literal(*c));
  }

  // \d, \S, ...
  bool add_perl_class(CharacterSet& set) {
    if (rest_.size() < 2 || rest_[0] != '\\') return false;
    if (rest_[1] == 'p' || rest_[1] == 'P')
      return fail("has a class of Unicode, which is not supported", ErrorKind::unsupported);
    const char name = rest_[1];
    const auto lower = static_cast<char>(name | 0x20);
    if (!std::strchr("dDsSwW", name)) return false;
    rest_.remove_prefix(2);
    const CharacterSet& named = *find_class(std::string(1, lower));
    const CharacterSet added = name == lower ? named : complement(named);
    set.insert(set.end(), added.begin(), added.end());
    return true;
  }

  std::optional<uint32_t> escaped_character() {
    if (!rest_.empty()) rest_.remove_prefix(1);
    if (rest_.empty()) {
      fail("ends with a '\\'");
      return std::nullopt;
    }
    const char c = rest_[0];
    if (c >= '0' && c <= '7') return octal();
    if (c == 'x') return hexadecimal();
    static const std::pair<char, uint32_t> kNamed[] = {{'a', '\a'}, {'f', '\f'}, {'t', '\t'},
                                                       {'n', '\n'}, {'r', '\r'}, {'v', '\v'}};
    for (const auto& [letter, meaning] : kNamed) {
      if (c != letter) continue;
      rest_.remove_prefix(1);
      return meaning;
    }
    if (static_cast<unsigned char>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c))) {
      rest_.remove_prefix(1);
      return static_cast<uint32_t>(c);
    }
    fail("has a '\\' in front of what it gives no meaning");
    return std::nullopt;
  }

  // One digit alone, but 0, would refer to a group.
  std::optional<uint32_t> octal() {
    uint32_t value = 0;
    size_t digits = 0;
    for (; digits < 3 && digits < rest_.size() && rest_[digits] >= '0' && rest_[digits] <= '7'; ++digits)
      value = value * 8 + static_cast<uint32_t>(rest_[digits] - '0');
    if (digits == 1 && rest_[0] != '0') {
      fail("refers to a group, which no automaton can");
      return std::nullopt;
    }
    rest_.remove_prefix(digits);
    return value;
  }

  std::optional<uint32_t> hexadecimal() {
    rest_.remove_prefix(1);
    const bool is_long = take("{");
    uint32_t value = 0;
    size_t digits = 0;
    for (; digits < rest_.size() && (is_long || digits < 2) &&
           std::isxdigit(static_cast<unsigned char>(rest_[digits])) && value <= kLastCharacter;
         ++digits)
      value = value * 16 + static_cast<uint32_t>(std::stoi(std::string(1, rest_[digits]), nullptr, 16));
    rest_.remove_prefix(digits);
    const bool is_good = is_long ? digits > 0 && value <= kLastCharacter && take("}") : digits == 2;
    if (is_good) return value;
    fail("has a '\\x' without its digits");
    return std::nullopt;
  }

  RegexPtr bracket() {
    const bool is_negated = take("^");
    CharacterSet set;
    // As in RE2, what is negated has no line ends unless they are wanted; with its default options they are.
    bool is_first = true;
    while (!rest_.empty() && (is_first || rest_[0] != ']')) {
      is_first = false;
      if (rest_.starts_with("[:")) {
        const size_t end = rest_.find(":]");
        if (end != std::string_view::npos) {
          if (!add_posix_class(set, std::string(rest_.substr(2, end - 2)))) return node(Kind::sequence);
          rest_.remove_prefix(std::min(end + 2, rest_.size()));
          continue;
        }
      }
      if (add_perl_class(set)) continue;
      if (problem_) break;
      add_range(set);
    }
    if (!take("]")) fail("lacks a ']'");
    normalize(set);
    return set_node(is_negated ? complement(set) : set);
  }

  bool add_posix_class(CharacterSet& set, std::string name) {
    const bool is_negated = name.starts_with('^');
    if (is_negated) name.erase(0, 1);
    const CharacterSet* const named = name.size() > 1 ? find_class(name) : nullptr;
    if (!named) return fail(text("has a class of characters '", name, "' that is not known"));
    const CharacterSet added = is_negated ? complement(*named) : *named;
    if (flags_.any_case && !is_negated) {
      for (const auto& [low, high] : added)
        add(set, low, high);
    } else {
      set.insert(set.end(), added.begin(), added.end());
    }
    return true;
  }

  std::optional<uint32_t> range_end() {
    if (rest_.empty()) return std::nullopt;
    return rest_[0] == '\\' ? escaped_character() : std::optional(character());
  }

  void add_range(CharacterSet& set) {
    const std::optional<uint32_t> low = range_end();
    if (!low) return;
    std::optional<uint32_t> high = low;
    if (rest_.size() >= 2 && rest_[0] == '-' && rest_[1] != ']') {
      rest_.remove_prefix(1);
      high = range_end();
    }
    if (high && *high < *low) fail("has a range of characters whose end is before its begin");
    if (high && !problem_) add(set, *low, *high);
  }

  const std::string& pattern_;
  std::string_view rest_;
  Flags flags_;
  std::optional<Diagnostic> problem_;
};

}  // namespace

Result<RegexPtr> parse_regex(const std::string& pattern) { return Parser(pattern).parse(); }

}  // namespace mcc::frontend
