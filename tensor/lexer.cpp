#include "tensor/lexer.h"

#include "tensor/syntax.h"

namespace mcc::tensor {
namespace {

// Longest first.
constexpr std::string_view kSymbols[] = {"->", "//", "%%", "==", "!=", "<=", ">=", "&&", "||", "<<", ">>",
                                         "+:", "@{", "(",  ")",  "[",  "]",  "{",  "}",  "<",  ">",  ",",
                                         ":",  ";",  "=",  "+",  "-",  "*",  "/",  "%",  "&",  "|",  "^"};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    for (;;) {
      skip_blanks();
      if (at_ == source_.size() || !next()) break;
    }
    tokens_.push_back({TokenKind::end, "end of text", std::nullopt, at_});
    return std::move(tokens_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }

  void skip_blanks() {
    while (at_ < source_.size()) {
      char c = source_[at_];
      if (c == '#') {
        while (at_ < source_.size() && source_[at_] != '\n')
          ++at_;
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++at_;
      } else {
        return;
      }
    }
  }

  void add(TokenKind kind, std::string text, size_t offset) {
    tokens_.push_back({kind, std::move(text), std::nullopt, offset});
  }

  bool invalid(std::string reason) {
    add(TokenKind::invalid, std::move(reason), at_);
    return false;
  }

  // False after an invalid token.
  bool next() {
    size_t start = at_;
    char c = peek();
    if (is_name_start(c)) {
      while (is_name_char(peek()))
        ++at_;
      std::string name(source_.substr(start, at_ - start));
      bool number = name == "inf" || name == "nan";
      add(number ? TokenKind::floating : TokenKind::name, std::move(name), start);
      if (number) type_suffix();
      return true;
    }
    if (is_digit(c)) return number(start);
    if (c == '`') return quoted_name(start);
    if (c == '"') return string(start);
    for (std::string_view symbol : kSymbols) {
      if (source_.substr(at_, symbol.size()) == symbol) {
        at_ += symbol.size();
        add(TokenKind::symbol, std::string(symbol), start);
        return true;
      }
    }
    return invalid("unexpected character");
  }

  bool number(size_t start) {
    TokenKind kind = TokenKind::integer;
    while (is_digit(peek()))
      ++at_;
    if (peek() == '.' && is_digit(peek(1))) {
      kind = TokenKind::floating;
      ++at_;
      while (is_digit(peek()))
        ++at_;
    }
    if (peek() == 'e') {
      size_t sign = peek(1) == '-' || peek(1) == '+';
      if (is_digit(peek(1 + sign))) {
        kind = TokenKind::floating;
        at_ += 1 + sign;
        while (is_digit(peek()))
          ++at_;
      }
    }
    if (is_name_char(peek())) return invalid("a number runs into a name");
    add(kind, std::string(source_.substr(start, at_ - start)), start);
    type_suffix();
    return true;
  }

  // ":i32" directly after a number.
  void type_suffix() {
    if (peek() != ':') return;
    size_t end = at_ + 1;
    while (end < source_.size() && is_name_char(source_[end]))
      ++end;
    auto element = parse_element_type(source_.substr(at_ + 1, end - at_ - 1));
    if (!element) return;
    tokens_.back().element = element;
    at_ = end;
  }

  bool quoted_name(size_t start) {
    size_t end = source_.find('`', start + 1);
    if (end == std::string_view::npos) return invalid("a name without its closing back quote");
    add(TokenKind::name, std::string(source_.substr(start + 1, end - start - 1)), start);
    at_ = end + 1;
    return true;
  }

  bool string(size_t start) {
    std::string value;
    for (++at_; peek() != '"'; ++at_) {
      if (at_ >= source_.size()) {
        at_ = start;
        return invalid("a string without its closing quote");
      }
      char c = peek();
      if (c == '\\') {
        ++at_;
        c = peek() == 'n' ? '\n' : peek();
      }
      value += c;
    }
    ++at_;
    add(TokenKind::string, std::move(value), start);
    return true;
  }

  std::string_view source_;
  size_t at_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace mcc::tensor
