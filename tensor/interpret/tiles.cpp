// Products of tiles: in memory, and in the registers of a CPU's thread.
#include <bit>
#include <cstring>

#include "tensor/interpret/compile.h"
#include "tensor/intrinsics.h"
#include "tensor/numeric.h"
#include "tensor/text.h"

namespace mcc::tensor::interpreter {
namespace {

constexpr int kWord = 4;  // bytes of a product's step

// A matrix in memory: its first element, and how many there are from one row to the next.
struct Matrix {
  int64_t element(Value* frame, int64_t start, int64_t r, int64_t column) const {
    const int64_t at = start + r * row + column;
    if (at >= first.memory->count()) {
      first.fail(frame, text("a tile ends behind the ", first.memory->count(), " elements of ",
                             first.memory->buffer.name()));
    }
    return at;
  }
  int64_t element_bytes() const { return byte_size(first.memory->buffer.element()); }
  void read(Value* frame, int64_t element, uint8_t* to) const {
    first.check_written(frame, element);
    first.note_read(frame, element);
    const auto bytes = static_cast<size_t>(element_bytes());
    std::memcpy(to, first.memory->data + static_cast<size_t>(element) * bytes, bytes);
  }
  void write(Value* frame, int64_t element, const uint8_t* from) const {
    first.note_write(frame, element, true);
    const auto bytes = static_cast<size_t>(element_bytes());
    std::memcpy(first.memory->data + static_cast<size_t>(element) * bytes, from, bytes);
  }
  Access first;
  int64_t row = 0;
};

// sum + the products of a word's elements; a sum as its bits.
using WordProduct = uint32_t (*)(uint32_t sum, const uint8_t* a, const uint8_t* b);

uint32_t product_of_u8i8(uint32_t sum, const uint8_t* a, const uint8_t* b) {
  for (int i = 0; i < kWord; ++i)
    sum += static_cast<uint32_t>(static_cast<int32_t>(a[i]) * static_cast<int8_t>(b[i]));
  return sum;
}

uint32_t product_of_bf16(uint32_t sum, const uint8_t* a, const uint8_t* b) {
  double total = std::bit_cast<float>(sum);
  for (int i = 0; i < kWord; i += 2) {
    uint16_t x = 0, y = 0;
    std::memcpy(&x, a + i, sizeof x);
    std::memcpy(&y, b + i, sizeof y);
    total += float_from_bits(ElementType::bf16, x) * float_from_bits(ElementType::bf16, y);
  }
  return std::bit_cast<uint32_t>(static_cast<float>(total));
}

WordProduct word_product(Intrinsic function) {
  return right_element(function) == ElementType::bf16 ? product_of_bf16 : product_of_u8i8;
}

struct TileProductCode final : StmtCode {
  void run(Value* frame) const override {
    const int64_t to = c.first.element(frame), left = a.first.element(frame), right = b.first.element(frame);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t n = 0; n < kTileColumns; ++n) {
        const int64_t at = c.element(frame, to, r, n);
        uint32_t sum = 0;
        c.read(frame, at, reinterpret_cast<uint8_t*>(&sum));
        for (int64_t g = 0; g < k; ++g) {
          uint8_t x[kWord], y[kWord];
          const int64_t bytes = a.element_bytes(), elements = kWord / bytes;
          for (int64_t i = 0; i < elements; ++i) {
            a.read(frame, a.element(frame, left, r, g * elements + i), x + i * bytes);
            b.read(frame, b.element(frame, right, g, n * elements + i), y + i * bytes);
          }
          sum = product(sum, x, y);
        }
        c.write(frame, at, reinterpret_cast<const uint8_t*>(&sum));
      }
    }
  }
  WordProduct product = nullptr;
  Matrix c, a, b;
  int64_t rows = 0, k = 0;
};

struct ConfigureCode final : StmtCode {
  void run(Value*) const override { *tiles = to; }
  Tiles to;
  Tiles* tiles = nullptr;
};

struct TileCode : StmtCode {
  struct Shape {
    int rows, bytes;
  };
  Shape shape(int t) const {
    if (tiles->rows == 0) throw Fault{"tiles are used before tile_configure"};
    if (t < tiles->sums) return {tiles->rows, kTileColumns * 4};
    if (t < tiles->sums + tiles->lefts) return {tiles->rows, tiles->k * kWord};
    return {tiles->k, kTileColumns * kWord};
  }
  uint8_t* row(int t, int r) const {
    return tiles->bytes[static_cast<size_t>(t)].data() + 64 * static_cast<ptrdiff_t>(r);
  }
  Tiles* tiles = nullptr;
};

struct MoveCode final : TileCode {
  void run(Value* frame) const override {
    const Shape s = shape(tile);
    const int64_t start = place.first.element(frame), bytes = place.element_bytes();
    for (int r = 0; r < s.rows; ++r) {
      for (int64_t n = 0; n < s.bytes / bytes; ++n) {
        const int64_t at = place.element(frame, start, r, n);
        uint8_t* in_tile = row(tile, r) + n * bytes;
        is_store ? place.write(frame, at, in_tile) : place.read(frame, at, in_tile);
      }
    }
  }
  Matrix place;
  int tile = 0;
  bool is_store = false;
};

struct ZeroCode final : TileCode {
  void run(Value*) const override {
    for (int r = 0; r < shape(tile).rows; ++r)
      std::memset(row(tile, r), 0, static_cast<size_t>(shape(tile).bytes));
  }
  int tile = 0;
};

struct MultiplyCode final : TileCode {
  void run(Value*) const override {
    const bool fits = c < tiles->sums && a >= tiles->sums && a < tiles->sums + tiles->lefts &&
                      b >= tiles->sums + tiles->lefts;
    if (!fits) throw Fault{text("tiles ", c, ", ", a, " and ", b, " are no sums, left and right operand")};
    for (int r = 0; r < shape(c).rows; ++r) {
      for (int n = 0; n < kTileColumns; ++n) {
        uint32_t sum = 0;
        std::memcpy(&sum, row(c, r) + kWord * static_cast<ptrdiff_t>(n), sizeof sum);
        for (int g = 0; g < tiles->k; ++g)
          sum = product(sum, row(a, r) + kWord * static_cast<ptrdiff_t>(g),
                        row(b, g) + kWord * static_cast<ptrdiff_t>(n));
        std::memcpy(row(c, r) + kWord * static_cast<ptrdiff_t>(n), &sum, sizeof sum);
      }
    }
  }
  WordProduct product = nullptr;
  int c = 0, a = 0, b = 0;
};

}  // namespace

const StmtCode* Compiler::tile(const Call& n) {
  auto number = [&](size_t arg) {
    int64_t value = 0;
    if (!as_int(n.args[arg], &value) || value < 0)
      throw Fault{text(to_text(n.function), " takes constants from 0 on")};
    return value;
  };
  auto matrix = [&](size_t arg) {
    const auto* load = n.args[arg].as<Load>();
    if (!load || load->type.lanes != 1) throw Fault{text(to_text(n.function), " takes loads for its places")};
    return Matrix{access(load->buffer, load->indices, nullptr, 1), number(arg + 1)};
  };
  switch (n.function) {
    case Intrinsic::tile_product_u8i8:
    case Intrinsic::tile_product_bf16: {
      auto code = std::make_unique<TileProductCode>();
      code->product = word_product(n.function);
      code->c = matrix(0);
      code->a = matrix(2);
      code->b = matrix(4);
      code->rows = number(6);
      code->k = number(7);
      return add_stmt(std::move(code));
    }
    case Intrinsic::tile_configure: {
      auto code = std::make_unique<ConfigureCode>();
      code->to = {static_cast<int>(number(0)),
                  static_cast<int>(number(1)),
                  static_cast<int>(number(2)),
                  static_cast<int>(number(3)),
                  {}};
      code->tiles = &program_.tiles;
      return add_stmt(std::move(code));
    }
    case Intrinsic::tile_zero: {
      auto code = std::make_unique<ZeroCode>();
      code->tile = static_cast<int>(number(0));
      code->tiles = &program_.tiles;
      return add_stmt(std::move(code));
    }
    case Intrinsic::tile_multiply_u8i8:
    case Intrinsic::tile_multiply_bf16: {
      auto code = std::make_unique<MultiplyCode>();
      code->product = word_product(n.function);
      code->c = static_cast<int>(number(0));
      code->a = static_cast<int>(number(1));
      code->b = static_cast<int>(number(2));
      code->tiles = &program_.tiles;
      return add_stmt(std::move(code));
    }
    default:
      break;
  }
  auto code = std::make_unique<MoveCode>();
  code->place = matrix(0);
  code->tile = static_cast<int>(number(2));
  code->is_store = n.function == Intrinsic::tile_store;
  code->tiles = &program_.tiles;
  return add_stmt(std::move(code));
}

}  // namespace mcc::tensor::interpreter
