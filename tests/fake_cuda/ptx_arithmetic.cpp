// Arithmetic, comparisons and conversions.
#include <algorithm>

#include "fake_cuda/ptx_machine.h"

namespace mcc::test::ptx {

namespace {

// An instruction that approximates, as far off as its description allows (PTX ISA 9.7.3: in units in the last place, or of the result),
// now to one side and now to the other; exact where the description has a table: zeros, infinities, no numbers.
struct Approximation {
  double (*exact)(double) = nullptr;
  double ulps = 0, relative = 0;
  bool flushes = false;  // .ftz: numbers below the smallest normal one are 0

  float operator()(float x) const {
    constexpr float kSmallest = std::numeric_limits<float>::min();
    if (flushes && std::fabs(x) < kSmallest) x = std::copysign(0.0F, x);
    const double value = exact(x);
    const auto nearest = static_cast<float>(value);
    if (flushes && std::fabs(nearest) < kSmallest) return std::copysign(0.0F, nearest);
    if (x == 0 || !std::isfinite(nearest) || nearest == 0) return nearest;
    int exponent = 0;
    std::frexp(value, &exponent);
    const double error =
        std::max(ulps * std::ldexp(1, std::max(exponent - 24, -149)), relative * std::fabs(value));
    const bool is_up = std::popcount(static_cast<uint32_t>(bits_of(x))) % 2 == 0;
    // The last one that is no farther off.
    const auto off = static_cast<float>(is_up ? value + error : value - error);
    return std::fabs(off - value) <= error ? off : std::nextafter(off, nearest);
  }
};

Approximation approximation(const std::string& name, bool flushes) {
  if (name == "ex2") return {[](double v) { return std::exp2(v); }, 2, 0, flushes};
  if (name == "rcp") return {[](double v) { return 1 / v; }, 1, 0, flushes};
  if (name == "sqrt") return {[](double v) { return std::sqrt(v); }, 0, 0x1p-23, flushes};
  if (name == "rsqrt") return {[](double v) { return 1 / std::sqrt(v); }, 0, std::exp2(-22.9), flushes};
  if (name == "tanh") return {[](double v) { return std::tanh(v); }, 0, 0x1p-11, flushes};
  throw Bad("approximation");
}

}  // namespace

bool Parser::decode_arithmetic(Function& f, Step& step, const std::vector<std::string>& op,
                               const std::vector<std::string>& a) {
  const std::string& name = op[0];
  const std::string& type = op.back();
  auto wrap = [](auto x, auto y, auto g) {
    using T = decltype(x);
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;
      return static_cast<T>(
          g(static_cast<uint64_t>(static_cast<U>(x)), static_cast<uint64_t>(static_cast<U>(y))));
    } else {
      return g(x, y);
    }
  };
  if (name == "add")
    return binary(f, step, type, a,
                  [=](auto x, auto y) { return wrap(x, y, [](auto p, auto q) { return p + q; }); }),
           true;
  if (name == "sub")
    return binary(f, step, type, a,
                  [=](auto x, auto y) { return wrap(x, y, [](auto p, auto q) { return p - q; }); }),
           true;
  if (name == "mul")
    return binary(f, step, type, a,
                  [=](auto x, auto y) { return wrap(x, y, [](auto p, auto q) { return p * q; }); }),
           true;
  if (name == "div" || name == "rem") {
    const bool is_rem = name == "rem";
    if (type[0] == 'f' && !has(op, "rn")) throw Bad("a quotient that is not the nearest");
    binary(f, step, type, a, [=](auto x, auto y) {
      using T = decltype(x);
      if constexpr (is_real<T>) {
        return x / y;
      } else {
        if (y == 0) throw Bad("a division by zero");
        if constexpr (std::is_signed_v<T>)
          if (y == T(-1)) return static_cast<T>(is_rem ? T(0) : static_cast<T>(-static_cast<int64_t>(x)));
        return static_cast<T>(is_rem ? x % y : x / y);
      }
    });
    return true;
  }
  if ((name == "min" || name == "max") && (type == "u16x2" || type == "s16x2")) {  // of each half its own
    Read x = read(f, a[1]), y = read(f, a[2]);
    const bool is_min = name == "min", is_signed = type[0] == 's';
    assign(f, step, a[0], [=](const Thread& t) {
      uint64_t out = 0;
      for (const int shift : {0, 16}) {
        const auto p = static_cast<uint16_t>(x(t) >> shift), q = static_cast<uint16_t>(y(t) >> shift);
        const bool is_less = is_signed ? static_cast<int16_t>(p) < static_cast<int16_t>(q) : p < q;
        out |= static_cast<uint64_t>(is_less == is_min ? p : q) << shift;
      }
      return out;
    });
    return true;
  }
  if (name == "min" || name == "max") {
    const bool is_min = name == "min", keeps_nan = has(op, "NaN");
    binary(f, step, type, a, [=](auto x, auto y) {
      using T = decltype(x);
      if constexpr (is_real<T>) {
        if (is_nan(x) || is_nan(y)) return keeps_nan ? static_cast<T>(NAN) : is_nan(x) ? y : x;
      }
      return (is_min ? x < y : x > y) ? x : y;
    });
    return true;
  }
  if (name == "and" || name == "or" || name == "xor") {
    Read x = read(f, a[1]), y = read(f, a[2]);
    const char kind = name[0];
    assign(f, step, a[0], [=](const Thread& t) {
      return kind == 'a' ? x(t) & y(t) : kind == 'o' ? x(t) | y(t) : x(t) ^ y(t);
    });
    return true;
  }
  if (name == "not") {
    Read x = read(f, a[1]);
    const bool is_predicate = type == "pred";
    assign(f, step, a[0], [=](const Thread& t) { return is_predicate ? (x(t) & 1) ^ 1 : ~x(t); });
    return true;
  }
  if (name == "shl" || name == "shr") {
    Read x = read(f, a[1]), y = read(f, a[2]);
    const bool is_left = name == "shl";
    with_type(type, [&](auto like) {
      using T = decltype(like);
      if constexpr (std::is_integral_v<T>) {
        assign(f, step, a[0], [=](const Thread& t) {
          const T value = as<T>(x(t));
          const auto by = as<uint32_t>(y(t));
          constexpr uint32_t kBits = 8 * sizeof(T);
          if (by >= kBits) return bits_of<T>(!is_left && value < 0 ? static_cast<T>(-1) : T{});
          return bits_of<T>(is_left ? static_cast<T>(static_cast<uint64_t>(value) << by)
                                    : static_cast<T>(value >> by));
        });
      }
    });
    return true;
  }
  if (name == "shf") {
    if (op.size() != 4 || op[2] != "wrap" || type != "b32") throw Bad("funnel shift");
    Read low = read(f, a[1]), high = read(f, a[2]), by = read(f, a[3]);
    const bool is_left = op[1] == "l";
    assign(f, step, a[0], [=](const Thread& t) {
      const uint64_t value = (low(t) & 0xffffffff) | high(t) << 32, n = by(t) & 31;
      return is_left ? value << n >> 32 : value >> n & 0xffffffff;
    });
    return true;
  }
  if (name == "bfe") {
    Read x = read(f, a[1]), from = read(f, a[2]), count = read(f, a[3]);
    const bool is_signed = type[0] == 's';
    const uint64_t bits = type.substr(1) == "64" ? 64 : 32;
    assign(f, step, a[0], [=](const Thread& t) {
      const uint64_t c = count(t) & 255, p = from(t) & 255;
      if (c == 0) return uint64_t{0};
      const uint64_t value = bits == 64 ? x(t) : x(t) & 0xffffffff;
      uint64_t field = p >= 64 ? 0 : value >> p;
      if (c < 64) field &= (uint64_t{1} << c) - 1;
      const uint64_t top = std::min<uint64_t>(p + c - 1, bits - 1);
      if (is_signed && (value >> top & 1) != 0 && c < 64) field |= ~((uint64_t{1} << c) - 1);
      return bits == 64 ? field : field & 0xffffffff;
    });
    return true;
  }
  if (name == "bfi") {
    Read x = read(f, a[1]), into = read(f, a[2]), at = read(f, a[3]), count = read(f, a[4]);
    const uint64_t bits = type == "b64" ? 64 : 32;
    assign(f, step, a[0], [=](const Thread& t) {
      const uint64_t p = at(t) & 255, c = std::min(count(t) & 255, p < bits ? bits - p : 0);
      const uint64_t mask = c == 0 ? 0 : (c >= 64 ? ~uint64_t{0} : (uint64_t{1} << c) - 1) << p;
      const uint64_t value = (into(t) & ~mask) | (c == 0 ? 0 : x(t) << p & mask);
      return bits == 64 ? value : value & 0xffffffff;
    });
    return true;
  }
  if (name == "dp4a") {
    if (op.size() != 3) throw Bad("dot product");
    Read x = read(f, a[1]), y = read(f, a[2]), sum = read(f, a[3]);
    auto byte = [](const std::string& of, uint64_t word, int n) -> int64_t {
      const auto bits = static_cast<uint8_t>(word >> (8 * n));
      return of == "s32" ? static_cast<int8_t>(bits) : bits;
    };
    for (const std::string& of : {op[1], op[2]}) {
      if (of != "s32" && of != "u32") throw Bad("type of a factor");
    }
    assign(f, step, a[0], [=](const Thread& t) {
      int64_t total = static_cast<int32_t>(sum(t));
      for (int n = 0; n < 4; ++n)
        total += byte(op[1], x(t), n) * byte(op[2], y(t), n);
      return static_cast<uint64_t>(total) & 0xffffffff;
    });
    return true;
  }
  if (name == "prmt") {
    if (op.size() != 2) throw Bad("permutation");
    Read x = read(f, a[1]), y = read(f, a[2]), selector = read(f, a[3]);
    assign(f, step, a[0], [=](const Thread& t) {
      const uint64_t bytes = (x(t) & 0xffffffff) | y(t) << 32;
      uint64_t value = 0;
      for (uint64_t i = 0; i < 4; ++i) {
        const uint64_t pick = selector(t) >> (4 * i) & 15;
        uint64_t byte = bytes >> (8 * (pick & 7)) & 255;
        if (pick >= 8) byte = (byte & 128) != 0 ? 255 : 0;
        value |= byte << (8 * i);
      }
      return value;
    });
    return true;
  }
  if (name == "popc" || name == "clz") {
    Read x = read(f, a[1]);
    const bool is_64 = type == "b64", counts = name == "popc";
    assign(f, step, a[0], [=](const Thread& t) -> uint64_t {
      const uint64_t v = is_64 ? x(t) : x(t) & 0xffffffff;
      return static_cast<uint64_t>(counts ? std::popcount(v) : std::countl_zero(v) - (is_64 ? 0 : 32));
    });
    return true;
  }
  return decode_unary(f, step, op, a);
}

bool Parser::decode_unary(Function& f, Step& step, const std::vector<std::string>& op,
                          const std::vector<std::string>& a) {
  const std::string& name = op[0];
  if (name != "neg" && name != "abs" && name != "sqrt" && name != "rcp" && name != "rsqrt" && name != "ex2" &&
      name != "tanh")
    return false;
  Read x = read(f, a[1]);
  if (has(op, "approx")) {
    if (op.back() != "f32") throw Bad("type of an approximation");
    assign(f, step, a[0], [x, g = approximation(name, has(op, "ftz"))](const Thread& t) {
      return bits_of<float>(g(as<float>(x(t))));
    });
    return true;
  }
  if (op.back() == "f16x2" || op.back() == "bf16x2") {
    if (name != "neg" && name != "abs") throw Bad("what pairs are not given to");
    constexpr uint64_t kSigns = 0x80008000;
    assign(f, step, a[0], [x, is_neg = name == "neg"](const Thread& t) {
      return is_neg ? (x(t) ^ kSigns) & 0xffffffff : x(t) & 0xffffffff & ~kSigns;
    });
    return true;
  }
  with_type(op.back(), [&](auto like) {
    using T = decltype(like);
    if constexpr (is_real<T>) {
      // In double, whose rounding does not show in a narrower one's.
      double (*g)(double) = name == "neg"    ? [](double v) { return -v; }
                            : name == "abs"  ? [](double v) { return std::fabs(v); }
                            : name == "sqrt" ? [](double v) { return std::sqrt(v); }
                                             : [](double v) { return 1 / v; };
      if (name == "rsqrt" || name == "ex2" || name == "tanh") throw Bad("what there is approximately only");
      assign(f, step, a[0], [=](const Thread& t) {
        return bits_of<T>(static_cast<T>(g(static_cast<double>(as<T>(x(t))))));
      });
    } else if (name == "neg") {
      assign(f, step, a[0], [=](const Thread& t) { return bits_of<T>(static_cast<T>(0 - as<T>(x(t)))); });
    } else {
      assign(f, step, a[0], [=](const Thread& t) {
        const T v = as<T>(x(t));
        return bits_of<T>(v < 0 ? static_cast<T>(0 - v) : v);
      });
    }
  });
  return true;
}

void Parser::decode_mad(Function& f, Step& step, const std::vector<std::string>& op,
                        const std::vector<std::string>& a) {
  Read x = read(f, a[1]), y = read(f, a[2]), z = read(f, a[3]);
  const bool is_wide = has(op, "wide");
  if (op.back() == "f16x2") {
    assign(f, step, a[0], [=](const Thread& t) {
      return in_halves([&](unsigned at) {
        return fused(as<_Float16>(x(t) >> at), as<_Float16>(y(t) >> at), as<_Float16>(z(t) >> at));
      });
    });
    return;
  }
  with_type(op.back(), [&](auto like) {
    using T = decltype(like);
    if constexpr (is_real<T>) {
      assign(f, step, a[0],
             [=](const Thread& t) { return bits_of<T>(fused(as<T>(x(t)), as<T>(y(t)), as<T>(z(t)))); });
    } else if (is_wide) {
      using W = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
      assign(f, step, a[0],
             [=](const Thread& t) { return static_cast<uint64_t>(W{as<T>(x(t))} * W{as<T>(y(t))}) + z(t); });
    } else {
      assign(f, step, a[0], [=](const Thread& t) { return bits_of<T>(static_cast<T>(x(t) * y(t) + z(t))); });
    }
  });
}

void Parser::decode_setp(Function& f, Step& step, const std::string& compare, const std::string& type,
                         const std::vector<std::string>& a) {
  if (type == "f16x2") {  // "p|q": of each half its own
    const size_t bar = a[0].find('|');
    Step half[2];
    for (unsigned k = 0; k < 2; ++k) {
      const std::string to = k == 0 ? a[0].substr(0, bar) : a[0].substr(bar + 1);
      auto part = [k](Read all) { return [k, all](const Thread& t) { return all(t) >> (16 * k) & 0xffff; }; };
      compare_values(f, half[k], compare, "f16", to, part(read(f, a[1])), part(read(f, a[2])));
    }
    step.run = [low = half[0].run, high = half[1].run](Thread& t) {
      low(t);
      high(t);
    };
    return;
  }
  compare_values(f, step, compare, type, a[0], read(f, a[1]), read(f, a[2]));
}

void Parser::compare_values(Function& f, Step& step, const std::string& compare, const std::string& type,
                            const std::string& to, Read x, Read y) {
  with_type(type, [&](auto like) {
    using T = decltype(like);
    const std::string c = compare;
    const bool is_unordered = c.size() == 3 && c.back() == 'u';
    const std::string base = is_unordered ? c.substr(0, 2) : c;
    static const std::map<std::string, int> kinds = {{"eq", 0}, {"ne", 1}, {"lt", 2},  {"le", 3},
                                                     {"gt", 4}, {"ge", 5}, {"lo", 2},  {"ls", 3},
                                                     {"hi", 4}, {"hs", 5}, {"nan", 6}, {"num", 7}};
    auto it = kinds.find(base);
    if (it == kinds.end()) throw Bad("comparison");
    assign(f, step, to, [=, kind = it->second](const Thread& t) -> uint64_t {
      const T p = as<T>(x(t)), q = as<T>(y(t));
      if constexpr (is_real<T>) {
        const bool has_nan = is_nan(p) || is_nan(q);
        if (kind == 6) return has_nan;
        if (kind == 7) return !has_nan;
        if (has_nan) return is_unordered;
      }
      switch (kind) {
        case 0:
          return p == q;
        case 1:
          return p != q;
        case 2:
          return p < q;
        case 3:
          return p <= q;
        case 4:
          return p > q;
        default:
          return p >= q;
      }
    });
  });
}

void Parser::decode_mov(Function& f, Step& step, const std::string& type, const std::vector<std::string>& a) {
  if (a[1][0] == '{') {  // halves into one
    const std::vector<std::string> parts = split(a[1].substr(1, a[1].size() - 2), ',');
    const int bits = std::atoi(type.c_str() + 1) / static_cast<int>(parts.size());
    std::vector<Read> reads;
    for (const std::string& part : parts)
      reads.push_back(read(f, part));
    assign(f, step, a[0], [=](const Thread& t) {
      uint64_t all = 0;
      for (size_t i = 0; i < reads.size(); ++i)
        all |= (reads[i](t) & ((uint64_t{1} << bits) - 1)) << (static_cast<size_t>(bits) * i);
      return all;
    });
  } else if (a[0][0] == '{') {
    const std::vector<std::string> parts = split(a[0].substr(1, a[0].size() - 2), ',');
    const int bits = std::atoi(type.c_str() + 1) / static_cast<int>(parts.size());
    std::vector<int> to;
    for (const std::string& part : parts)
      to.push_back(part == "_" ? -1 : reg(f, part));
    Read x = read(f, a[1]);
    step.run = [=](Thread& t) {
      const uint64_t all = x(t);
      for (size_t i = 0; i < to.size(); ++i)
        if (to[i] >= 0)
          t.r[static_cast<size_t>(to[i])] =
              all >> (static_cast<size_t>(bits) * i) & ((uint64_t{1} << bits) - 1);
    };
  } else {
    assign(f, step, a[0], read(f, a[1]));
  }
}

namespace {

// The nearest, ties to even; the one NaN there is.
uint64_t to_bf16(float value) {
  if (is_nan(value)) return 0x7fff;
  const auto bits = static_cast<uint32_t>(bits_of<float>(value));
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

}  // namespace

void Parser::decode_cvt(Function& f, Step& step, const std::vector<std::string>& op,
                        const std::vector<std::string>& a) {
  const std::string to = op[op.size() - 2], from = op.back();
  Read x = read(f, a[1]);
  if (to == "f16x2" || to == "bf16x2") {  // the upper half first
    assign(f, step, a[0], [=, y = read(f, a[2]), is_half = to == "f16x2"](const Thread& t) {
      auto narrow = [&](uint64_t bits) -> uint64_t {
        return is_half ? bits_of<_Float16>(static_cast<_Float16>(as<float>(bits))) : to_bf16(as<float>(bits));
      };
      return narrow(x(t)) << 16 | narrow(y(t));
    });
    return;
  }
  if (to == "bf16") {
    assign(f, step, a[0], [=](const Thread& t) { return to_bf16(as<float>(x(t))); });
    return;
  }
  std::string rounding;
  for (const char* r : {"rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi"})
    if (has(op, r)) rounding = r;
  with_type(to, [&](auto to_like) {
    using To = decltype(to_like);
    with_type(from, [&](auto from_like) {
      using From = decltype(from_like);
      assign(f, step, a[0], [=](const Thread& t) {
        const From value = as<From>(x(t));
        if constexpr (is_real<From>) {
          double v = static_cast<double>(value);
          if (rounding == "rni") v = std::nearbyint(v);
          if (rounding == "rzi") v = std::trunc(v);
          if (rounding == "rmi") v = std::floor(v);
          if (rounding == "rpi") v = std::ceil(v);
          if constexpr (is_real<To>) {
            return bits_of<To>(static_cast<To>(v));
          } else {
            // Saturates; NaN gives 0.
            if (is_nan(v)) return bits_of<To>(To{});
            if (v <= static_cast<double>(std::numeric_limits<To>::min()))
              return bits_of<To>(std::numeric_limits<To>::min());
            if (v >= static_cast<double>(std::numeric_limits<To>::max()))
              return bits_of<To>(std::numeric_limits<To>::max());
            return bits_of<To>(static_cast<To>(v));
          }
        } else if constexpr (is_real<To>) {
          return bits_of<To>(static_cast<To>(value));
        } else {
          // The register may be wider than the type: extended by its sign.
          const To narrow = static_cast<To>(value);
          return std::is_signed_v<To> ? static_cast<uint64_t>(static_cast<int64_t>(narrow))
                                      : bits_of<To>(narrow);
        }
      });
    });
  });
}

}  // namespace mcc::test::ptx
