#include "fake_cuda/ptx.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <type_traits>

namespace mcc::test {

namespace {

struct Bad : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Block;

// A copy that the thread has not waited for.
struct AsyncCopy {
  uint64_t to = 0;
  std::vector<std::byte> bytes;
};

struct Thread {
  std::vector<uint64_t> r;  // registers, as raw bits
  std::vector<std::byte> local;
  Block* block = nullptr;
  size_t pc = 0;
  unsigned id[3] = {};
  std::vector<std::vector<AsyncCopy>> groups{1};  // the last one is open
  enum { running, at_barrier, at_shuffle, done } state = running;
};

struct Block {
  std::vector<std::byte> shared;
  unsigned id[3] = {};
  const PtxGrid* grid = nullptr;
  const std::vector<uint64_t>* arguments = nullptr;
  const std::function<bool(uint64_t, size_t)>* is_device = nullptr;
  std::vector<Thread> threads;
};

using Read = std::function<uint64_t(const Thread&)>;

// What the threads of a warp do together: those that are at it, by their lanes.
using Collective = std::function<void(const std::map<size_t, Thread*>& lanes)>;

struct Step {
  std::function<void(Thread&)> run;  // may change pc
  int collective = -1;
  bool is_barrier = false;
  int guard = -1;
  bool is_negated = false;
};

struct Function {
  std::vector<Step> steps;
  std::vector<Collective> collectives;
  std::map<std::string, size_t> labels, params;
  std::map<std::string, int> registers;
  std::map<std::string, size_t> locals;
  size_t local_bytes = 0;
};

template <class T>
T as(uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
uint64_t bits_of(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

// Calls f with a value of the type that a suffix names.
template <class F>
void with_type(const std::string& t, F&& f) {
  if (t == "s8") return f(int8_t{});
  if (t == "u8" || t == "b8") return f(uint8_t{});
  if (t == "s16") return f(int16_t{});
  if (t == "u16" || t == "b16") return f(uint16_t{});
  if (t == "s32") return f(int32_t{});
  if (t == "u32" || t == "b32") return f(uint32_t{});
  if (t == "s64") return f(int64_t{});
  if (t == "u64" || t == "b64") return f(uint64_t{});
  if (t == "f16") return f(_Float16{});
  if (t == "f32") return f(float{});
  if (t == "f64") return f(double{});
  if (t == "pred") return f(uint8_t{});
  throw Bad("type " + t);
}

// GCC's half is no floating-point type to its library.
template <class T>
constexpr bool is_real = std::is_floating_point_v<T> || std::is_same_v<T, _Float16>;
template <class T>
bool is_nan(T x) {
  return x != x;
}

// Rounded once; a half's product and sum are exact in double but for what its own rounding does not see.
template <class T>
T fused(T x, T y, T z) {
  if constexpr (std::is_same_v<T, _Float16>) {
    return static_cast<T>(std::fma(static_cast<double>(x), static_cast<double>(y), static_cast<double>(z)));
  } else {
    return std::fma(x, y, z);
  }
}

// Two halves in 32 bits, each from the bits that begin at 0 and 16.
template <class F>
uint64_t in_halves(F f) {
  return bits_of<_Float16>(f(0)) | bits_of<_Float16>(f(16)) << 16;
}

class Parser {
 public:
  std::map<std::string, Function> functions;
  std::map<std::string, std::pair<size_t, size_t>> shared;  // name -> offset, bytes
  size_t shared_bytes = 0;

  void parse(const std::string& text) {
    std::istringstream lines(text);
    Function* f = nullptr;
    std::string held;
    for (std::string line; std::getline(lines, line);) {
      if (size_t comment = line.find("//"); comment != std::string::npos) line.resize(comment);
      line = trimmed(line);
      if (line.empty()) continue;
      // An instruction may take several lines.
      line = held + line;
      held.clear();
      if (f != nullptr && line[0] != '.' &&
          std::string_view(";:{}()").find(line.back()) == std::string_view::npos) {
        held = line + " ";
        continue;
      }
      if (line.find(".entry ") != std::string::npos) {
        std::string name = line.substr(line.find(".entry ") + 7);
        f = &functions[name.substr(0, name.find_first_of("( "))];
        continue;
      }
      if (line.find(".func ") != std::string::npos) throw Bad("functions: " + line);
      if (line.find(".shared ") != std::string::npos && line[0] == '.') {
        add_shared(line);
        continue;
      }
      if (f == nullptr || line == "{" || line == "}" || line == ")" || line == "(") continue;
      if (line.starts_with(".param")) {
        std::string name = line.substr(line.find_last_of(" \t") + 1);
        if (name.back() == ',') name.pop_back();
        f->params.emplace(name, f->params.size());
      } else if (line.starts_with(".reg")) {
        add_registers(*f, line);
      } else if (line.starts_with(".local")) {
        f->locals[array_name(line)] = f->local_bytes;
        f->local_bytes += (array_bytes(line) + 63) / 64 * 64;
      } else if (line[0] == '.') {
        continue;  // .reqntid, .loc, ...
      } else if (line.back() == ':') {
        f->labels[line.substr(0, line.size() - 1)] = f->steps.size();
      } else {
        pending_.push_back({f, f->steps.size(), line});
        f->steps.emplace_back();
      }
    }
    // Labels are known now.
    for (const Pending& p : pending_)
      decode(*p.function, p.step, p.text);
  }

 private:
  struct Pending {
    Function* function;
    size_t step;
    std::string text;
  };

  static std::string trimmed(const std::string& s) {
    const size_t from = s.find_first_not_of(" \t\r"), to = s.find_last_not_of(" \t\r");
    return from == std::string::npos ? "" : s.substr(from, to - from + 1);
  }
  static std::string array_name(const std::string& line) {
    const size_t end = line.find('['), begin = line.find_last_of(" \t", end) + 1;
    return line.substr(begin, end - begin);
  }
  static size_t array_bytes(const std::string& line) {
    return std::strtoull(line.c_str() + line.find('[') + 1, nullptr, 10);
  }

  void add_shared(const std::string& line) {
    const size_t bytes = array_bytes(line);
    shared_bytes = (shared_bytes + 127) / 128 * 128;
    shared[array_name(line)] = {shared_bytes, bytes};
    shared_bytes += bytes;
  }

  static void add_registers(Function& f, const std::string& line) {
    const size_t at = line.find('%'), open = line.find('<');
    const std::string prefix = line.substr(at, open - at);
    if (open == std::string::npos) {
      const std::string name = prefix.substr(0, prefix.find(';'));
      f.registers.emplace(name, static_cast<int>(f.registers.size()));
      return;
    }
    const int count = std::atoi(line.c_str() + open + 1);
    for (int i = 0; i < count; ++i)
      f.registers.emplace(prefix + std::to_string(i), static_cast<int>(f.registers.size()));
  }

  static std::vector<std::string> split(const std::string& s, char separator) {
    std::vector<std::string> parts;
    std::string part;
    int depth = 0;
    for (char c : s) {
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      if (c == separator && depth == 0) {
        parts.push_back(trimmed(part));
        part.clear();
      } else {
        part += c;
      }
    }
    if (!trimmed(part).empty()) parts.push_back(trimmed(part));
    return parts;
  }

  int reg(const Function& f, const std::string& name) const {
    auto it = f.registers.find(name);
    if (it == f.registers.end()) throw Bad("register " + name);
    return it->second;
  }

  Read read(const Function& f, const std::string& o) const {
    if (auto it = f.registers.find(o); it != f.registers.end())
      return [i = it->second](const Thread& t) { return t.r[static_cast<size_t>(i)]; };
    static const std::map<std::string, int> specials = {
        {"%tid.x", 0},   {"%tid.y", 1},    {"%tid.z", 2},     {"%ctaid.x", 3},
        {"%ctaid.y", 4}, {"%ctaid.z", 5},  {"%ntid.x", 6},    {"%ntid.y", 7},
        {"%ntid.z", 8},  {"%nctaid.x", 9}, {"%nctaid.y", 10}, {"%nctaid.z", 11}};
    if (auto it = specials.find(o); it != specials.end()) {
      return [i = static_cast<size_t>(it->second)](const Thread& t) -> uint64_t {
        if (i < 3) return t.id[i];
        if (i < 6) return t.block->id[i - 3];
        return i < 9 ? t.block->grid->block[i - 6] : t.block->grid->grid[i - 9];
      };
    }
    if (auto it = f.locals.find(o); it != f.locals.end())
      return [at = it->second](const Thread& t) { return reinterpret_cast<uint64_t>(t.local.data() + at); };
    if (auto it = shared.find(o); it != shared.end())
      return [at = it->second.first](const Thread& t) {
        return reinterpret_cast<uint64_t>(t.block->shared.data() + at);
      };
    uint64_t value = 0;
    if (o.starts_with("0f")) {
      value = std::strtoull(o.c_str() + 2, nullptr, 16);
    } else if (o.starts_with("0d")) {
      value = std::strtoull(o.c_str() + 2, nullptr, 16);
    } else if (!o.empty() && (o[0] == '-' || (o[0] >= '0' && o[0] <= '9'))) {
      value = o[0] == '-' ? static_cast<uint64_t>(std::strtoll(o.c_str(), nullptr, 0))
                          : std::strtoull(o.c_str(), nullptr, 0);
    } else {
      throw Bad("operand " + o);
    }
    return [value](const Thread&) { return value; };
  }

  void decode(Function& f, size_t index, std::string text) {
    Step& step = f.steps[index];
    // "{ .reg .b16 tmp; mov.b32 {%rs1, tmp}, %r1; }": one half of a register.
    if (constexpr std::string_view kHalf = "{ .reg .b16 tmp;"; text.starts_with(kHalf)) {
      text = trimmed(text.substr(kHalf.size(), text.rfind(';') - kHalf.size()));
      text.replace(text.find("tmp"), 3, "_");
    }
    if (text.back() == ';') text.pop_back();
    if (text[0] == '@') {
      const size_t space = text.find_first_of(" \t");
      step.is_negated = text[1] == '!';
      step.guard = reg(f, text.substr(step.is_negated ? 2 : 1, space - (step.is_negated ? 2 : 1)));
      text = trimmed(text.substr(space));
    }
    const size_t space = std::min(text.find_first_of(" \t"), text.size());
    const std::vector<std::string> op = split(text.substr(0, space), '.');
    const std::vector<std::string> args = split(text.substr(space), ',');
    try {
      decode_op(f, step, op, args);
    } catch (const Bad& bad) {
      throw Bad(std::string(bad.what()) + " in: " + text);
    }
  }

  template <class Of>
  void assign(Function& f, Step& step, const std::string& to, Of of) {
    step.run = [i = static_cast<size_t>(reg(f, to)), of](Thread& t) { t.r[i] = of(t); };
  }

  template <class F>
  void binary(Function& f, Step& step, const std::string& type, const std::vector<std::string>& a, F op) {
    if (type == "f16x2") {
      Read x = read(f, a[1]), y = read(f, a[2]);
      assign(f, step, a[0], [=](const Thread& t) {
        return in_halves([&](unsigned at) {
          return static_cast<_Float16>(op(as<_Float16>(x(t) >> at), as<_Float16>(y(t) >> at)));
        });
      });
      return;
    }
    Read x = read(f, a[1]), y = read(f, a[2]);
    with_type(type, [&](auto like) {
      using T = decltype(like);
      assign(f, step, a[0],
             [=](const Thread& t) { return bits_of<T>(static_cast<T>(op(as<T>(x(t)), as<T>(y(t))))); });
    });
  }

  static bool has(const std::vector<std::string>& op, const char* part) {
    for (const std::string& o : op)
      if (o == part) return true;
    return false;
  }

  void decode_op(Function& f, Step& step, const std::vector<std::string>& op,
                 const std::vector<std::string>& a) {
    const std::string& name = op[0];
    const std::string& type = op.back();
    if (name == "ret" || name == "exit") {
      step.run = [](Thread& t) { t.state = Thread::done; };
    } else if (name == "bra") {
      auto it = f.labels.find(a[0]);
      if (it == f.labels.end()) throw Bad("label");
      step.run = [to = it->second](Thread& t) { t.pc = to; };
    } else if (name == "bar") {
      step.is_barrier = true;
      step.run = [](Thread& t) { t.state = Thread::at_barrier; };
    } else if (name == "shfl") {
      if (op[2] != "bfly" && op[2] != "down") throw Bad("shuffle");
      const size_t to = static_cast<size_t>(reg(f, a[0].substr(0, a[0].find('|'))));
      together(f, step,
               [=, is_xor = op[2] == "bfly", value = read(f, a[1]), by = read(f, a[2])](const auto& lanes) {
                 std::map<size_t, uint64_t> values;
                 for (const auto& [lane, t] : lanes)
                   values[lane] = value(*t);
                 for (const auto& [lane, t] : lanes) {
                   const auto distance = static_cast<size_t>(by(*t));
                   auto from = values.find(is_xor ? lane ^ distance : lane + distance);
                   t->r[to] = from != values.end() ? from->second : values.at(lane);
                 }
               });
    } else if (name == "ldmatrix") {
      decode_rows(f, step, op, a);
    } else if (name == "mma") {
      decode_mma(f, step, op, a);
    } else if (name == "cp") {
      decode_async(f, step, op, a);
    } else if (name == "ld" || name == "st") {
      decode_memory(f, step, op, a);
    } else if (name == "cvta") {
      assign(f, step, a[0], read(f, a[1]));
    } else if (name == "mov") {
      decode_mov(f, step, type, a);
    } else if (name == "cvt") {
      decode_cvt(f, step, op, a);
    } else if (name == "setp") {
      decode_setp(f, step, op[1], type, a);
    } else if (name == "selp") {
      Read x = read(f, a[1]), y = read(f, a[2]), p = read(f, a[3]);
      assign(f, step, a[0], [=](const Thread& t) { return (p(t) & 1) != 0 ? x(t) : y(t); });
    } else if (name == "fma" || name == "mad") {
      decode_mad(f, step, op, a);
    } else if (name == "mul" && op[1] == "wide") {
      Read x = read(f, a[1]), y = read(f, a[2]);
      with_type(type, [&](auto like) {
        using T = decltype(like);
        if constexpr (std::is_integral_v<T>) {
          using W = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
          assign(f, step, a[0],
                 [=](const Thread& t) { return static_cast<uint64_t>(W{as<T>(x(t))} * W{as<T>(y(t))}); });
        }
      });
    } else if (name == "mul" && op[1] == "hi") {
      Read x = read(f, a[1]), y = read(f, a[2]);
      with_type(type, [&](auto like) {
        using T = decltype(like);
        if constexpr (std::is_integral_v<T>) {
          using W = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;
          assign(f, step, a[0], [=](const Thread& t) {
            return bits_of<T>(static_cast<T>(W{as<T>(x(t))} * W{as<T>(y(t))} >> (8 * sizeof(T))));
          });
        }
      });
    } else if (!decode_arithmetic(f, step, op, a)) {
      throw Bad("instruction");
    }
  }

  static void together(Function& f, Step& step, Collective collective) {
    step.collective = static_cast<int>(f.collectives.size());
    f.collectives.push_back(std::move(collective));
    step.run = [](Thread& t) { t.state = Thread::at_shuffle; };
  }
  static void expect_warp(const std::map<size_t, Thread*>& lanes) {
    if (lanes.size() != 32) throw Bad("a matrix without all of a warp");
  }
  std::vector<size_t> registers(const Function& f, const std::string& list) const {
    std::vector<size_t> out;
    for (const std::string& name : split(list.substr(1, list.size() - 2), ','))
      out.push_back(static_cast<size_t>(reg(f, name)));
    return out;
  }
  // "[%r1+8]": the address.
  Read address(const Function& f, std::string where) const {
    where = where.substr(1, where.size() - 2);
    int64_t offset = 0;
    if (size_t plus = where.find('+'); plus != std::string::npos) {
      offset = std::atoll(where.c_str() + plus + 1);
      where = trimmed(where.substr(0, plus));
    }
    return
        [base = read(f, where), offset](const Thread& t) { return base(t) + static_cast<uint64_t>(offset); };
  }
  static void check_shared(const Thread& t, uint64_t address, size_t size) {
    const auto begin = reinterpret_cast<uint64_t>(t.block->shared.data());
    if (address < begin || address + size > begin + t.block->shared.size())
      throw Bad("an address outside of shared memory");
    if ((address - begin) % size != 0)
      throw Bad("an address that is not aligned to " + std::to_string(size) + " bytes");
  }

  // ldmatrix.sync.aligned.m8n8.x4[.trans].shared.b16: rows of 8 elements of 16 bits.
  void decode_rows(Function& f, Step& step, const std::vector<std::string>& op,
                   const std::vector<std::string>& a) {
    if (!has(op, "m8n8") || !has(op, "shared") || op.back() != "b16") throw Bad("matrix");
    const bool is_transposed = has(op, "trans");
    const std::vector<size_t> to = registers(f, a[0]);
    together(f, step, [=, where = address(f, a[1])](const auto& lanes) {
      expect_warp(lanes);
      std::vector<std::array<uint16_t, 8>> rows;
      for (size_t n = 0; n < 8 * to.size(); ++n) {
        const Thread& t = *lanes.at(n);
        rows.emplace_back();
        check_shared(t, where(t), 16);
        std::memcpy(rows.back().data(), reinterpret_cast<const void*>(where(t)), 16);
      }
      for (const auto& [lane, t] : lanes) {
        for (size_t m = 0; m < to.size(); ++m) {
          const size_t row = lane / 4, column = lane % 4 * 2;
          const uint32_t low = is_transposed ? rows[8 * m + column][row] : rows[8 * m + row][column];
          const uint32_t high = is_transposed ? rows[8 * m + column + 1][row] : rows[8 * m + row][column + 1];
          t->r[to[m]] = low | high << 16;
        }
      }
    });
  }

  // Fragments as PTX ISA 9.7.14 has them; sums in double, rounded once.
  void decode_mma(Function& f, Step& step, const std::vector<std::string>& op,
                  const std::vector<std::string>& a) {
    const std::string& type = op[op.size() - 2];
    const std::map<std::string, std::pair<const char*, size_t>> kinds = {{"f16", {"m16n8k16", 2}},
                                                                         {"bf16", {"m16n8k16", 2}},
                                                                         {"tf32", {"m16n8k8", 1}},
                                                                         {"s8", {"m16n8k32", 4}}};
    auto kind = kinds.find(type);
    const std::string sum = type == "s8" ? "s32" : "f32";
    if (kind == kinds.end() || !has(op, kind->second.first) || !has(op, "row") || !has(op, "col") ||
        op.back() != sum)
      throw Bad("matrix product");
    const std::vector<size_t> to = registers(f, a[0]), left = registers(f, a[1]), right = registers(f, a[2]),
                              old = registers(f, a[3]);
    if (left.size() != 4 || right.size() != 2 || to.size() != 4 || old.size() != 4) throw Bad("fragments");
    auto number = [type](uint64_t bits, size_t k) -> double {
      if (type == "f16") return static_cast<double>(as<_Float16>(bits >> (16 * k)));
      if (type == "bf16") return as<float>((bits >> (16 * k) & 0xffff) << 16);
      if (type == "tf32") return as<float>(bits & 0xffffe000);
      return as<int8_t>(bits >> (8 * k));
    };
    together(f, step, [=, each = kind->second.second](const auto& lanes) {
      expect_warp(lanes);
      const size_t half = 4 * each;
      std::vector<double> x(16 * 2 * half), y(8 * 2 * half);
      for (const auto& [lane, t] : lanes) {
        for (size_t k = 0; k < each; ++k) {
          const size_t row = lane / 4, column = lane % 4 * each + k;
          for (size_t r = 0; r < 4; ++r)
            x[(row + r % 2 * 8) * 2 * half + column + r / 2 * half] = number(t->r[left[r]], k);
          for (size_t r = 0; r < 2; ++r)
            y[row * 2 * half + column + r * half] = number(t->r[right[r]], k);
        }
      }
      for (const auto& [lane, t] : lanes) {
        std::array<uint64_t, 4> sums{};
        for (size_t r = 0; r < 4; ++r) {
          const size_t row = lane / 4 + r / 2 * 8, column = lane % 4 * 2 + r % 2;
          double total = type == "s8" ? as<int32_t>(t->r[old[r]]) : as<float>(t->r[old[r]]);
          for (size_t k = 0; k < 2 * half; ++k)
            total += x[row * 2 * half + k] * y[column * 2 * half + k];
          sums[r] = type == "s8" ? bits_of(static_cast<int32_t>(static_cast<int64_t>(total)))
                                 : bits_of(static_cast<float>(total));
        }
        for (size_t r = 0; r < 4; ++r)
          t->r[to[r]] = sums[r];
      }
    });
  }

  // What is on its way reads as rubbish until it has been waited for.
  void decode_async(Function& f, Step& step, const std::vector<std::string>& op,
                    const std::vector<std::string>& a) {
    if (op[1] != "async") throw Bad("copy");
    if (op[2] == "commit_group") {
      step.run = [](Thread& t) { t.groups.emplace_back(); };
    } else if (op[2] == "wait_group") {
      step.run = [left = static_cast<size_t>(std::atoi(a[0].c_str()))](Thread& t) {
        while (t.groups.size() - 1 > left) {
          for (const AsyncCopy& copy : t.groups.front())
            std::memcpy(reinterpret_cast<void*>(copy.to), copy.bytes.data(), copy.bytes.size());
          t.groups.erase(t.groups.begin());
        }
      };
    } else {
      const auto size = static_cast<size_t>(std::atoi(a[2].c_str()));
      if (size != 4 && size != 8 && size != 16) throw Bad("size");
      Read used = a.size() > 3 ? read(f, a[3]) : [size](const Thread&) { return uint64_t{size}; };
      step.run = [=, to = address(f, a[0]), from = address(f, a[1])](Thread& t) {
        AsyncCopy copy{to(t), std::vector<std::byte>(size)};
        check_shared(t, copy.to, size);
        const auto count = static_cast<size_t>(static_cast<uint32_t>(used(t)));
        if (count > 0 && !(*t.block->is_device)(from(t), count))
          throw Bad("an address outside of global memory");
        if (from(t) % size != 0)
          throw Bad("an address that is not aligned to " + std::to_string(size) + " bytes");
        if (count > 0) std::memcpy(copy.bytes.data(), reinterpret_cast<const void*>(from(t)), count);
        std::memset(reinterpret_cast<void*>(copy.to), 0xcd, size);
        t.groups.back().push_back(std::move(copy));
      };
    }
  }

  bool decode_arithmetic(Function& f, Step& step, const std::vector<std::string>& op,
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

  bool decode_unary(Function& f, Step& step, const std::vector<std::string>& op,
                    const std::vector<std::string>& a) {
    const std::string& name = op[0];
    if (name != "neg" && name != "abs" && name != "sqrt" && name != "rcp" && name != "rsqrt" && name != "ex2")
      return false;
    Read x = read(f, a[1]);
    with_type(op.back(), [&](auto like) {
      using T = decltype(like);
      if constexpr (is_real<T>) {
        // In double, whose rounding does not show in a narrower one's.
        double (*g)(double) = name == "neg"    ? [](double v) { return -v; }
                              : name == "abs"  ? [](double v) { return std::fabs(v); }
                              : name == "sqrt" ? [](double v) { return std::sqrt(v); }
                              : name == "rcp"  ? [](double v) { return 1 / v; }
                              : name == "ex2"  ? [](double v) { return std::exp2(v); }
                                               : [](double v) { return 1 / std::sqrt(v); };
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

  void decode_mad(Function& f, Step& step, const std::vector<std::string>& op,
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
        assign(f, step, a[0], [=](const Thread& t) {
          return static_cast<uint64_t>(W{as<T>(x(t))} * W{as<T>(y(t))}) + z(t);
        });
      } else {
        assign(f, step, a[0],
               [=](const Thread& t) { return bits_of<T>(static_cast<T>(x(t) * y(t) + z(t))); });
      }
    });
  }

  void decode_setp(Function& f, Step& step, const std::string& compare, const std::string& type,
                   const std::vector<std::string>& a) {
    if (type == "f16x2") {  // "p|q": of each half its own
      const size_t bar = a[0].find('|');
      Step half[2];
      for (unsigned k = 0; k < 2; ++k) {
        const std::string to = k == 0 ? a[0].substr(0, bar) : a[0].substr(bar + 1);
        auto part = [k](Read all) {
          return [k, all](const Thread& t) { return all(t) >> (16 * k) & 0xffff; };
        };
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

  void compare_values(Function& f, Step& step, const std::string& compare, const std::string& type,
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

  void decode_mov(Function& f, Step& step, const std::string& type, const std::vector<std::string>& a) {
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

  void decode_cvt(Function& f, Step& step, const std::vector<std::string>& op,
                  const std::vector<std::string>& a) {
    const std::string to = op[op.size() - 2], from = op.back();
    Read x = read(f, a[1]);
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

  void decode_memory(Function& f, Step& step, const std::vector<std::string>& op,
                     const std::vector<std::string>& a) {
    const bool is_load = op[0] == "ld";
    const std::string& space = op[1];
    size_t bytes = 0;
    bool is_signed = false;
    with_type(op.back(), [&](auto like) {
      bytes = sizeof like;
      is_signed = std::is_signed_v<decltype(like)> && std::is_integral_v<decltype(like)>;
    });
    std::string where = is_load ? a[1] : a[0];
    const std::string what = is_load ? a[0] : a[1];
    where = where.substr(1, where.size() - 2);
    int64_t offset = 0;
    if (size_t plus = where.find('+'); plus != std::string::npos) {
      offset = std::atoll(where.c_str() + plus + 1);
      where = trimmed(where.substr(0, plus));
    }
    if (is_load && space == "param") {
      auto it = f.params.find(where);
      if (it == f.params.end()) throw Bad("parameter");
      assign(f, step, what, [i = it->second](const Thread& t) { return t.block->arguments->at(i); });
      return;
    }
    std::vector<std::string> names = {what};
    if (what[0] == '{') names = split(what.substr(1, what.size() - 2), ',');
    Read base = read(f, where);
    auto check = [space](const Thread& t, uint64_t address, size_t size) {
      auto lies_in = [&](const std::vector<std::byte>& memory) {
        const auto begin = reinterpret_cast<uint64_t>(memory.data());
        return address >= begin && address + size <= begin + memory.size();
      };
      const bool is_good = space == "shared" ? lies_in(t.block->shared)
                           : space == "local"
                               ? lies_in(t.local)
                               : (*t.block->is_device)(address, size) ||
                                     (space != "global" && (lies_in(t.local) || lies_in(t.block->shared)));
      if (!is_good) throw Bad("an address outside of " + space + " memory");
      if (address % size != 0)
        throw Bad("an address that is not aligned to " + std::to_string(size) + " bytes");
    };
    if (is_load) {
      std::vector<size_t> to;
      for (const std::string& n : names)
        to.push_back(static_cast<size_t>(reg(f, n)));
      step.run = [=](Thread& t) {
        const uint64_t address = base(t) + static_cast<uint64_t>(offset);
        check(t, address, bytes * to.size());
        for (size_t i = 0; i < to.size(); ++i) {
          uint64_t value = 0;
          std::memcpy(&value, reinterpret_cast<const void*>(address + i * bytes), bytes);
          if (is_signed && bytes < 8 && (value >> (8 * bytes - 1) & 1) != 0)
            value |= ~uint64_t{0} << (8 * bytes);
          t.r[to[i]] = value;
        }
      };
    } else {
      std::vector<Read> from;
      for (const std::string& n : names)
        from.push_back(read(f, n));
      step.run = [=](Thread& t) {
        const uint64_t address = base(t) + static_cast<uint64_t>(offset);
        check(t, address, bytes * from.size());
        for (size_t i = 0; i < from.size(); ++i) {
          const uint64_t value = from[i](t);
          std::memcpy(reinterpret_cast<void*>(address + i * bytes), &value, bytes);
        }
      };
    }
  }

  std::vector<Pending> pending_;
};

// Until the thread waits or is done.
void run_thread(const Function& f, Thread& t) {
  while (t.state == Thread::running) {
    if (t.pc >= f.steps.size()) throw Bad("the end of the kernel is run over");
    const Step& step = f.steps[t.pc++];
    if (step.guard >= 0 && ((t.r[static_cast<size_t>(step.guard)] & 1) != 0) == step.is_negated) continue;
    step.run(t);
  }
}

// Of each warp whose threads all stand at the same shuffle (or are done).
void exchange(const Function& f, std::vector<Thread>& threads) {
  for (size_t warp = 0; warp < threads.size(); warp += 32) {
    const size_t end = std::min(threads.size(), warp + 32);
    const Collective* collective = nullptr;
    std::map<size_t, Thread*> lanes;
    for (size_t i = warp; i < end; ++i) {
      if (threads[i].state != Thread::at_shuffle) continue;
      const Collective& own = f.collectives[static_cast<size_t>(f.steps[threads[i].pc - 1].collective)];
      if (collective != nullptr && collective != &own) throw Bad("threads of a warp at different exchanges");
      collective = &own;
      lanes.emplace(i - warp, &threads[i]);
    }
    if (collective == nullptr) continue;
    for (size_t i = warp; i < end; ++i) {
      if (threads[i].state == Thread::running || threads[i].state == Thread::at_barrier)
        throw Bad("an exchange without all of a warp");
    }
    (*collective)(lanes);
    for (const auto& [lane, thread] : lanes)
      thread->state = Thread::running;
  }
}

void run_block(const Function& f, Block& block) {
  while (true) {
    bool waits_at_shuffle = false, is_done = true;
    for (Thread& t : block.threads) {
      run_thread(f, t);
      waits_at_shuffle |= t.state == Thread::at_shuffle;
      is_done &= t.state == Thread::done;
    }
    if (is_done) return;
    if (waits_at_shuffle) {
      exchange(f, block.threads);
      continue;
    }
    for (Thread& t : block.threads)
      if (t.state == Thread::at_barrier) t.state = Thread::running;
  }
}

}  // namespace

struct PtxModule {
  std::map<std::string, Function> functions;
  size_t shared_bytes = 0;
};

std::shared_ptr<const PtxModule> parse_ptx(const std::string& text, std::string* problem) {
  Parser parser;
  try {
    parser.parse(text);
  } catch (const Bad& bad) {
    *problem = bad.what();
    return nullptr;
  }
  return std::make_shared<PtxModule>(PtxModule{std::move(parser.functions), parser.shared_bytes});
}

int ptx_arguments(const PtxModule& module, const std::string& entry) {
  auto it = module.functions.find(entry);
  return it == module.functions.end() ? -1 : static_cast<int>(it->second.params.size());
}

std::string run_ptx(const PtxModule& module, const std::string& entry, const PtxGrid& grid,
                    const std::vector<uint64_t>& arguments,
                    const std::function<bool(uint64_t, size_t)>& is_device) {
  const Function& f = module.functions.at(entry);
  Block block;
  block.grid = &grid;
  block.arguments = &arguments;
  block.is_device = &is_device;
  const size_t threads = size_t{grid.block[0]} * grid.block[1] * grid.block[2];
  try {
    for (block.id[2] = 0; block.id[2] < grid.grid[2]; ++block.id[2]) {
      for (block.id[1] = 0; block.id[1] < grid.grid[1]; ++block.id[1]) {
        for (block.id[0] = 0; block.id[0] < grid.grid[0]; ++block.id[0]) {
          // What is not written holds no zeros.
          block.shared.assign(module.shared_bytes + grid.dynamic_shared, std::byte{0xcd});
          block.threads.resize(threads);
          for (size_t i = 0; i < threads; ++i) {
            Thread& t = block.threads[i];
            t.r.assign(f.registers.size(), 0xcdcdcdcdcdcdcdcd);
            t.local.assign(f.local_bytes, std::byte{0xcd});
            t.block = &block;
            t.pc = 0;
            t.groups.assign(1, {});
            t.state = Thread::running;
            t.id[0] = static_cast<unsigned>(i % grid.block[0]);
            t.id[1] = static_cast<unsigned>(i / grid.block[0] % grid.block[1]);
            t.id[2] = static_cast<unsigned>(i / grid.block[0] / grid.block[1]);
          }
          run_block(f, block);
        }
      }
    }
  } catch (const Bad& bad) {
    return bad.what();
  }
  return "";
}

}  // namespace mcc::test
