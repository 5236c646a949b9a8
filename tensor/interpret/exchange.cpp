// What the threads of a warp get from each other.
#include <algorithm>
#include <array>

#include "tensor/interpret/compile.h"
#include "tensor/intrinsics.h"
#include "tensor/numeric.h"
#include "tensor/text.h"

namespace mcc::tensor::interpreter {
namespace {

constexpr int kWarp = 32;

}  // namespace

// The threads of a warp, and what each of them brings.
struct Exchange::Warp {
  const Exchange& of;
  Team& team;
  int first, size;
  std::vector<std::vector<Value>> values;  // of each thread, the lanes of all operands

  Value* result(int lane) const { return team.frames[static_cast<size_t>(first + lane)].data() + of.slot; }
  [[noreturn]] void fail(int lane, const std::string& what) const {
    const int thread = first + lane;
    throw Fault{text(to_text(of.function), " by ", team.thread_text(static_cast<uint32_t>(thread)), ": ",
                     what, ", in ", place_text(*of.place, team.frames[static_cast<size_t>(thread)].data()))};
  }
};

void Exchange::shuffle(const Warp& warp) const {
  for (int lane = 0; lane < warp.size; ++lane) {
    const bool is_named = function == Intrinsic::shuffle_from;
    int64_t from = is_named                             ? warp.values[static_cast<size_t>(lane)][1].i
                   : function == Intrinsic::shuffle_xor ? lane ^ number
                                                        : lane + number;
    if (from >= kWarp && !is_named) from = lane;
    if (from < 0 || from >= warp.size) warp.fail(lane, text("there is no thread ", warp.first + from));
    *warp.result(lane) = warp.values[static_cast<size_t>(from)][0];
  }
}

// Rows of 16 bytes, thread by thread, become registers of 4.
void Exchange::rows(const Warp& warp) const {
  const int bytes = static_cast<int>(byte_size(element));
  auto bits = [&](int thread, int k) {
    const Value x = warp.values[static_cast<size_t>(thread)][static_cast<size_t>(k)];
    const uint64_t all = is_float(element) ? float_to_bits(element, x.f) : static_cast<uint64_t>(x.i);
    return static_cast<uint32_t>(all) & (bytes == 4 ? ~0U : (1U << (8 * bytes)) - 1);
  };
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int m = 0; m < number; ++m) {
      uint32_t part = 0;
      for (int k = 0; k < 4 / bytes; ++k) {
        const int across = lane % 4 * (4 / bytes) + k, along = lane / 4;
        const uint32_t one =
            function == Intrinsic::load_matrices ? bits(8 * m + along, across) : bits(8 * m + across, along);
        part |= one << (8 * bytes * k);
      }
      warp.result(lane)[m] = int_value(static_cast<int32_t>(part));
    }
  }
}

// Fragments become matrices, which are multiplied. Sums in double, rounded once: one of the orders that are allowed.
void Exchange::multiply(const Warp& warp) const {
  const bool is_int = is_integer_mma(function);
  const ElementType of = function == Intrinsic::mma_f16    ? ElementType::f16
                         : function == Intrinsic::mma_bf16 ? ElementType::bf16
                         : function == Intrinsic::mma_tf32 ? ElementType::tf32
                                                           : ElementType::i8;
  const int each = 32 / bit_width(of), half = 4 * each;
  constexpr int kLongest = 32;
  std::array<std::array<double, kLongest>, 16> a{};  // [row][k]
  std::array<std::array<double, kLongest>, 8> b{};   // [column][k]
  auto number_in = [&](Value packed, int k, bool is_left) {
    const auto bits = static_cast<uint32_t>(packed.i) >> (32 / each * k);
    if (is_int && is_left && left_element(function) == ElementType::u8) return static_cast<double>(bits & 0xff);
    if (is_int) return static_cast<double>(static_cast<int8_t>(bits));
    if (of == ElementType::tf32) return float_from_bits(of, bits & ~0x1fffU);  // the rest is not looked at
    return float_from_bits(of, bits & 0xffff);
  };
  const auto lefts = static_cast<size_t>(values[0].lanes);  // of registers, or of elements
  for (int lane = 0; lane < kWarp; ++lane) {
    const std::vector<Value>& own = warp.values[static_cast<size_t>(lane)];
    auto left = [&](size_t r, int k) {
      return lefts == 4 ? number_in(own[r], k, true)
                        : own[r * static_cast<size_t>(each) + static_cast<size_t>(k)].f;
    };
    const auto group = static_cast<size_t>(lane / 4);
    for (int k = 0; k < each; ++k) {
      const auto column = static_cast<size_t>(lane % 4 * each + k),
                 other = column + static_cast<size_t>(half);
      a[group][column] = left(0, k);
      a[group + 8][column] = left(1, k);
      a[group][other] = left(2, k);
      a[group + 8][other] = left(3, k);
      b[group][column] = number_in(own[lefts], k, false);
      b[group][other] = number_in(own[lefts + 1], k, false);
    }
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int r = 0; r < 4; ++r) {
      const auto row = static_cast<size_t>(lane / 4 + r / 2 * 8),
                 column = static_cast<size_t>(lane % 4 * 2 + r % 2);
      const Value old = warp.values[static_cast<size_t>(lane)][lefts + 2 + static_cast<size_t>(r)];
      double sum = is_int ? static_cast<double>(old.i) : old.f;
      for (size_t k = 0; k < static_cast<size_t>(2 * half); ++k)
        sum += a[row][k] * b[column][k];
      warp.result(lane)[r] = is_int ? int_value(wrap_int(ElementType::i32, static_cast<int64_t>(sum)))
                                    : float_value(static_cast<double>(static_cast<float>(sum)));
    }
  }
}

void Exchange::run(Team& team, const Threads& threads) const {
  std::vector<bool> is_here(static_cast<size_t>(team.size()));
  for (int t : threads)
    is_here[static_cast<size_t>(t)] = true;
  for (size_t at = 0; at < threads.size();) {
    const int first = threads[at] / kWarp * kWarp;
    Warp warp{*this, team, first, std::min(kWarp, team.size() - first), {}};
    for (int lane = 0; lane < warp.size; ++lane) {
      if (is_here[static_cast<size_t>(first + lane)]) continue;
      warp.fail(threads[at] - first, text(team.thread_text(static_cast<uint32_t>(first + lane)),
                                          " of the same warp does not take part"));
    }
    for (int lane = 0; lane < warp.size; ++lane) {
      Value* frame = team.select(first + lane);
      warp.values.emplace_back();
      for (const Operand& value : values) {
        const Lanes lanes = value.get_lanes(frame);
        for (int k = 0; k < value.lanes; ++k)
          warp.values.back().push_back(lanes[k]);
      }
    }
    if (class_of(function) == IntrinsicClass::exchange) {
      shuffle(warp);
    } else {
      if (warp.size < kWarp) warp.fail(0, text("a warp of ", warp.size, " threads, expected ", kWarp));
      class_of(function) == IntrinsicClass::rows ? rows(warp) : multiply(warp);
    }
    at += static_cast<size_t>(warp.size);
  }
}

// The value is in the slot when the statement runs.
Operand Compiler::exchange(const Call& n) {
  if (!in_launch_) throw Fault{text(to_text(n.function), " is for the threads of a launch")};
  Exchange e;
  e.function = n.function;
  e.element = n.args[0].element();
  e.place = place();
  int64_t number = 0;
  if (class_of(n.function) == IntrinsicClass::mma) {
    for (const Expr& a : n.args)
      e.values.push_back(expr(a));
  } else if (n.function == Intrinsic::shuffle_from) {
    if (n.type.lanes != 1 || n.args[1].type() != kIndex)
      throw Fault{"shuffle_from is of a scalar and a thread's number"};
    for (const Expr& a : n.args)
      e.values.push_back(expr(a));
  } else {
    bool is_constant = as_int(n.args[1], &number);
    bool is_shuffle = class_of(n.function) == IntrinsicClass::exchange;
    if (is_shuffle && (!is_constant || number < 1 || number > 31 || n.type.lanes != 1)) {
      throw Fault{text(to_text(n.function), " is of scalars, at a constant distance of 1 to 31")};
    }
    if (!is_shuffle && byte_size(e.element) * n.args[0].lanes() != 16) {
      throw Fault{text(to_text(n.function), " of rows of other than 16 bytes")};
    }
    e.values.push_back(expr(n.args[0]));
    e.number = static_cast<int>(number);
  }
  e.slot = new_slots(n.type.lanes);
  program_.exchanges.push_back(std::move(e));
  exchanges_.push_back(&program_.exchanges.back());
  return Operand{program_.exchanges.back().slot, n.type.lanes, nullptr};
}

}  // namespace mcc::tensor::interpreter
