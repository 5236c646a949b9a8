// The machine that runs PTX (ptx.h): its state, and the parser that makes steps of instructions. Internal to the stand-in.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string_view>
#include <type_traits>

#include "fake_cuda/ptx.h"
#include "fake_cuda/ptx_counts.h"
#include "fake_cuda/ptx_shadow.h"

namespace mcc::test::ptx {

struct Bad : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Block;

// A copy that the thread has not waited for.
struct AsyncCopy {
  uint64_t to = 0;
  std::vector<std::byte> bytes;
};

// A product of a warpgroup that the thread has not waited for.
struct Product {
  std::vector<size_t> sums;  // registers
  // What it reads of shared memory, and what stood there when it began.
  std::shared_ptr<const std::vector<std::pair<size_t, uint32_t>>> operands;
  size_t element_bytes = 2;
  bool is_int = false;  // its sums
};

struct Thread {
  std::vector<uint64_t> r;  // registers, as raw bits
  std::vector<std::byte> local;
  Block* block = nullptr;
  size_t pc = 0;
  uint64_t steps = 0;  // that it has made
  unsigned id[3] = {};
  std::vector<std::vector<AsyncCopy>> groups{1};  // the last one is open
  std::vector<std::vector<Product>> products{1};  // the same
  std::map<size_t, double> in_flight;             // sums, rounded, by their registers
  bool is_fenced = false;                         // wgmma.fence since the last wait
  bool has_waited = false;                        // griddepcontrol.wait
  std::vector<size_t> written;  // of shared memory, in units of 16 bytes, since the last fence.proxy.async
  enum { running, at_barrier, at_shuffle, done } state = running;
};

// Code may rely on how shared memory is aligned.
template <class T>
struct Aligned {
  using value_type = T;
  static constexpr std::align_val_t kAlign{1024};
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kAlign)); }
  void deallocate(T* p, size_t) { ::operator delete(p, kAlign); }
  bool operator==(const Aligned&) const { return true; }
};

// Counts for PtxTraffic. A warp's copies are what its threads do at one step for the same time.
class Traffic {
 public:
  void copy(size_t step, size_t thread, uint64_t to, uint64_t from, size_t size, size_t used);
  void rows(const std::vector<uint64_t>& addresses);
  PtxTraffic finish();

 private:
  struct Copy {
    uint64_t to, from;
    size_t size, used;
  };
  std::map<std::pair<size_t, size_t>, size_t> turns_;
  std::map<std::tuple<size_t, size_t, size_t>, std::vector<Copy>>
      warps_;  // sums of them are kept: any order will do
  PtxTraffic total_;
};

// An mbarrier: what the phase under way waits for, and copies of the engine that it counts.
struct Mbarrier {
  uint64_t phase = 0;
  int64_t count = 0, arrivals = 0, bytes = 0;
  std::vector<AsyncCopy> copies;
};

struct Block {
  std::vector<std::byte, Aligned<std::byte>> shared;
  std::map<uint64_t, Mbarrier> mbarriers;  // by address
  // Of each 16 bytes of it, the thread that has written there and not made that known to the async proxy, from 1; 0: none.
  std::vector<size_t> writers;
  unsigned id[3] = {};
  const PtxGrid* grid = nullptr;
  const std::vector<uint64_t>* arguments = nullptr;
  const std::function<bool(uint64_t, size_t)>* is_device = nullptr;
  bool waits = false;  // Function::waits
  std::vector<Thread> threads;
  Traffic* traffic = nullptr;
  Counter* counter = nullptr;
  Shadow* shadow = nullptr;  // null where nothing but counts is asked for
  size_t place_of(const Thread& t) const { return static_cast<size_t>(&t - threads.data()); }
};

using Read = std::function<uint64_t(const Thread&)>;

// What the threads of a warp, or of a warpgroup, do together: those that are at it, by their places there.
struct Collective {
  std::function<void(const std::map<size_t, Thread*>& lanes)> run;
  size_t threads = 32;
};

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
  std::vector<size_t> param_bytes;
  std::array<unsigned, 3> block{};  // that a launch has to have; 0: any
  bool waits = false;               // for the launches before it (griddepcontrol.wait)
  bool reads_cached = false;        // by way of the read-only cache (ld.global.nc)
  bool has_products = false;        // of warpgroups
  std::map<std::string, int> registers;
  std::map<std::string, size_t> locals;
  size_t local_bytes = 0;
};

// What nobody has written: no number in any type of floats, and far from any index.
constexpr std::byte kPoison{0xff};
constexpr uint64_t kPoisonWord = ~uint64_t{0};

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
  int version = 0;  // 84 of PTX 8.4
  void parse(const std::string& text);

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
  void add_shared(const std::string& line);
  static void add_registers(Function& f, const std::string& line);

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
    used_.push_back(static_cast<size_t>(it->second));
    return it->second;
  }
  Read read(const Function& f, const std::string& o) const;
  void decode(Function& f, size_t index, std::string text);

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
                 const std::vector<std::string>& a);
  static void together(Function& f, Step& step,
                       std::function<void(const std::map<size_t, Thread*>& lanes)> run, size_t threads = 32);
  static void expect_warp(const std::map<size_t, Thread*>& lanes);
  std::vector<size_t> registers(const Function& f, const std::string& list) const;
  Read address(const Function& f, std::string where) const;
  static void check_global(const Thread& t, uint64_t address, size_t size);
  static void check_shared(const Thread& t, uint64_t address, size_t size);
  void decode_rows(Function& f, Step& step, const std::vector<std::string>& op,
                   const std::vector<std::string>& a);
  void decode_mma(Function& f, Step& step, const std::vector<std::string>& op,
                  const std::vector<std::string>& a);
  void decode_wgmma(Function& f, Step& step, const std::vector<std::string>& op,
                    const std::vector<std::string>& a);
  void decode_mbarrier(Function& f, Step& step, const std::vector<std::string>& op,
                       const std::vector<std::string>& a);
  void decode_bulk(Function& f, Step& step, const std::vector<std::string>& op,
                   const std::vector<std::string>& a);
  static void write_shared(Thread& t, uint64_t address, size_t size);  // notes it, if that is shared memory
  void decode_async(Function& f, Step& step, const std::vector<std::string>& op,
                    const std::vector<std::string>& a);
  bool decode_arithmetic(Function& f, Step& step, const std::vector<std::string>& op,
                         const std::vector<std::string>& a);
  bool decode_unary(Function& f, Step& step, const std::vector<std::string>& op,
                    const std::vector<std::string>& a);
  void decode_mad(Function& f, Step& step, const std::vector<std::string>& op,
                  const std::vector<std::string>& a);
  void decode_setp(Function& f, Step& step, const std::string& compare, const std::string& type,
                   const std::vector<std::string>& a);
  void compare_values(Function& f, Step& step, const std::string& compare, const std::string& type,
                      const std::string& to, Read x, Read y);
  void decode_mov(Function& f, Step& step, const std::string& type, const std::vector<std::string>& a);
  void decode_cvt(Function& f, Step& step, const std::vector<std::string>& op,
                  const std::vector<std::string>& a);
  void decode_memory(Function& f, Step& step, const std::vector<std::string>& op,
                     const std::vector<std::string>& a);

  static void expect_finished(Step& step, std::vector<size_t> used, const std::string& text);

  std::vector<Pending> pending_;
  mutable std::vector<size_t> used_;  // registers of the instruction that is being decoded
};

}  // namespace mcc::test::ptx
