// Products that warpgroups have made beside them.
#include <array>
#include <cstring>

#include "tensor/interpret/compile.h"
#include "tensor/intrinsics.h"
#include "tensor/numeric.h"
#include "tensor/text.h"

namespace mcc::tensor::interpreter {
namespace {

constexpr int kWarp = 32, kGroup = 128, kRows = 64;

double read_narrow(const Memory& memory, int64_t element) {
  const ElementType type = memory.buffer.element();
  if (byte_size(type) == 1) {
    const auto byte = static_cast<uint8_t>(memory.data[element]);
    return type == ElementType::u8 ? byte : static_cast<int8_t>(byte);
  }
  if (type == ElementType::tf32) {
    float value = 0;
    std::memcpy(&value, memory.data + 4 * element, sizeof value);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, memory.data + 2 * element, sizeof bits);
  return float_from_bits(type, bits);
}

// An operand's order: where element k of a row (or column) stands.
struct Order {
  Access first;
  int64_t side = 0, along = 0;
  bool is_across = false;
  int64_t swizzle = 0;  // bytes of a row
  int64_t unit = 8;     // elements of 16 bytes
  int64_t element(int64_t from, int row, int k) const {
    if (swizzle == 0) {
      return from + row / 8 * side + k / unit * along + row % 8 * (is_across ? 1 : unit) +
             k % unit * (is_across ? 8 : 1);
    }
    const int64_t length = swizzle / 16 * unit;
    const int64_t plain =
        from + (is_across ? row / length * side + row % length + k / 8 * along + k % 8 * length
                          : row / 8 * side + row % 8 * length + k);
    const int64_t period = 8 * unit;
    return plain ^ plain / period % (swizzle / 16) * unit;
  }
};

Value sum_at(const Memory& memory, int64_t element) {
  if (memory.buffer.element() == ElementType::f32) {
    float value = 0;
    std::memcpy(&value, memory.data + 4 * element, sizeof value);
    return float_value(value);
  }
  int32_t value = 0;
  std::memcpy(&value, memory.data + 4 * element, sizeof value);
  return int_value(value);
}

void put_sum(const Memory& memory, int64_t element, const Value& sum) {
  const auto rounded = static_cast<float>(sum.f);
  const auto whole = static_cast<int32_t>(sum.i);
  const bool is_float = memory.buffer.element() == ElementType::f32;
  std::memcpy(memory.data + 4 * element, is_float ? static_cast<const void*>(&rounded) : &whole, 4);
}

struct ProductCode final : StmtCode {
  void run(Value*) const override { throw Fault{"a product of a warpgroup by one thread"}; }

  void run_threads(Team& team, const Threads& threads) const override {
    for (size_t at = 0; at < threads.size(); at += kGroup) {
      const int first = threads[at];
      for (int t = 0; t < kGroup; ++t) {
        const size_t k = at + static_cast<size_t>(t);
        if (first % kGroup == 0 && k < threads.size() && threads[k] == first + t) continue;
        to.fail(team.select(first), text("a product by ", team.thread_text(static_cast<uint32_t>(first)),
                                         " without all of its warpgroup of ", kGroup, " threads"));
      }
      multiply(team, first);
    }
  }

  // Sums in double, rounded once: one of the orders that are allowed. Those of integers are exact, and wrap around.
  void multiply(Team& team, int first) const {
    Value* frame = team.select(first);
    const int columns = 2 * to.lanes;
    const ProductOperand rows_of_a = operand(team, a, kRows, frame),
                         columns_of_b = operand(team, b, columns, frame);
    const std::vector<double> x = values(rows_of_a), y = values(columns_of_b);
    std::vector<int64_t> sums(static_cast<size_t>(to.lanes));
    for (int t = 0; t < kGroup; ++t) {
      frame = team.select(first + t);
      if (a.first.element(frame) != rows_of_a.elements[0] ||
          b.first.element(frame) != columns_of_b.elements[0]) {
        to.fail(frame,
                text("a product of other operands by ", team.thread_text(static_cast<uint32_t>(first + t)),
                     " than by the first of its warpgroup"));
      }
      Products& products = team.products[static_cast<size_t>(first + t)];
      if (!products.is_fenced) {
        to.fail(frame, text("a product without wgmma_fence since the last wait, by ",
                            team.thread_text(static_cast<uint32_t>(first + t))));
      }
      to.elements(frame, sums.data());
      for (int r = 0; r < to.lanes; ++r) {
        const int row = t / kWarp * 16 + r / 2 % 2 * 8 + t % kWarp / 4,
                  column = r / 4 * 8 + t % 4 * 2 + r % 2;
        const int64_t element = sums[static_cast<size_t>(r)];
        Products::InFlight& sum = products.in_flight[{to.memory, element}];
        if (sum.products++ == 0) {
          to.check_written(frame, element);
          sum.value = sum_at(*to.memory, element);
        }
        double total = is_int ? static_cast<double>(sum.value.i) : sum.value.f;
        for (int k = 0; k < depth; ++k)
          total += x[static_cast<size_t>(row * depth + k)] * y[static_cast<size_t>(column * depth + k)];
        sum.value = is_int ? int_value(static_cast<int32_t>(static_cast<int64_t>(total)))
                           : float_value(static_cast<double>(static_cast<float>(total)));
        to.note_write(frame, element, false);
      }
      Product product{&to, sums, {}};
      // What one of them has waited for, others of the group may not have.
      if (t == 0 || t == kGroup - 1) {
        product.operands = {rows_of_a, columns_of_b};
        for (const ProductOperand& o : product.operands) {
          for (int64_t element : o.elements)
            o.from->begin_product(frame, element);
        }
      }
      products.open.push_back(std::move(product));
    }
  }

  ProductOperand operand(const Team& team, const Order& order, int rows, Value* frame) const {
    ProductOperand out{&order.first, {}, team.clock.epoch};
    const int64_t first = order.first.element(frame), count = order.first.memory->count();
    for (int row = 0; row < rows; ++row) {
      for (int k = 0; k < depth; ++k) {
        out.elements.push_back(order.element(first, row, k));
        if (out.elements.back() >= count) {
          order.first.fail(frame, text("a product reads element ", out.elements.back(), " of ",
                                       order.first.memory->buffer.name(), ", which has ", count));
        }
      }
    }
    return out;
  }
  static std::vector<double> values(const ProductOperand& o) {
    std::vector<double> out;
    for (int64_t element : o.elements)
      out.push_back(read_narrow(*o.from->memory, element));
    return out;
  }

  Access to;
  Order a, b;
  bool is_int = false;
  int depth = 0;  // of the instruction
};

struct ProductGroupCode final : StmtCode {
  void run(Value* frame) const override {
    const uint32_t thread = team->clock.thread;
    Products& products = team->products[thread];
    switch (function) {
      case Intrinsic::fence_async:
        ++team->clock.fences[thread];
        return;
      case Intrinsic::wgmma_fence:
        products.is_fenced = true;
        return;
      case Intrinsic::wgmma_commit:
        products.groups.push_back(std::exchange(products.open, {}));
        return;
      default:
        break;
    }
    products.is_fenced = false;
    for (; products.groups.size() > left; products.groups.pop_front()) {
      for (const Product& product : products.groups.front())
        finish(product, products, frame);
    }
  }
  static void finish(const Product& product, Products& products, Value* frame) {
    for (const ProductOperand& o : product.operands) {
      for (int64_t element : o.elements)
        o.from->end_product(frame, element, o.begun);
    }
    Memory* memory = product.to->memory;
    for (int64_t element : product.sums) {
      auto sum = products.in_flight.find({memory, element});
      if (product.to->is_written(element)) {
        product.to->fail(frame,
                         text(product.to->element_text(element), " is written while a product adds to it"));
      }
      if (--sum->second.products > 0) continue;
      product.to->note_write(frame, element, true);
      put_sum(*memory, element, sum->second.value);
      products.in_flight.erase(sum);
    }
  }
  Intrinsic function{};
  size_t left = 0;
  Team* team;
};

int64_t constant_argument(const Call& n, size_t arg) {
  int64_t value = 0;
  if (!as_int(n.args[arg], &value) || value < 0)
    throw Fault{text(to_text(n.function), " takes constants from 0 on")};
  return value;
}

}  // namespace

const StmtCode* Compiler::warpgroup(const Call& n) {
  if (!in_launch_) throw Fault{text(to_text(n.function), " is for the threads of a launch")};
  if (!is_wgmma(n.function)) {
    auto code = std::make_unique<ProductGroupCode>();
    code->function = n.function;
    if (n.function == Intrinsic::wgmma_wait) code->left = static_cast<size_t>(constant_argument(n, 1));
    code->team = &program_.team;
    // By each thread for itself, but there have to be several.
    code->is_in_step = true;
    return add_stmt(std::move(code));
  }
  auto place_of = [&](size_t arg) {
    const auto* load = n.args[arg].as<Load>();
    if (!load) throw Fault{text(to_text(n.function), " takes loads for its sums and operands")};
    return access(load->buffer, load->indices, nullptr, load->type.lanes);
  };
  auto code = std::make_unique<ProductCode>();
  code->to = place_of(0);
  const ElementType sum = sum_element(n.function), left = left_element(n.function),
                    right = right_element(n.function);
  code->is_int = sum == ElementType::i32;
  code->depth = static_cast<int>(2 * unit_elements(right));
  for (auto [order, arg, of] : {std::tuple{&code->a, size_t{1}, left}, {&code->b, size_t{6}, right}}) {
    order->first = place_of(arg);
    order->unit = unit_elements(of);
    if (order->first.memory->buffer.element() != of || order->first.lanes != 1) {
      throw Fault{text(to_text(n.function), " of ", to_text(n.args[arg].type()))};
    }
    order->side = constant_argument(n, arg + 1);
    order->along = constant_argument(n, arg + 2);
    order->is_across = constant_argument(n, arg + 3) != 0;
    order->swizzle = constant_argument(n, arg + 4);
  }
  if (code->to.memory->buffer.element() != sum)
    throw Fault{text(to_text(n.function), " sums ", to_text(sum))};
  expect_no_exchanges("a store or a let only");
  code->is_in_step = true;
  return add_stmt(std::move(code));
}

}  // namespace mcc::tensor::interpreter
