// What the threads of a warp, or of a warpgroup, do together with matrices.
#include <algorithm>

#include "fake_cuda/ptx_machine.h"

namespace mcc::test::ptx {

void Parser::together(Function& f, Step& step,
                      std::function<void(const std::map<size_t, Thread*>& lanes)> run, size_t threads) {
  step.collective = static_cast<int>(f.collectives.size());
  f.collectives.push_back({std::move(run), threads});
  step.run = [](Thread& t) { t.state = Thread::at_shuffle; };
}

void Parser::expect_warp(const std::map<size_t, Thread*>& lanes) {
  if (lanes.size() != 32) throw Bad("a matrix without all of a warp");
}

std::vector<size_t> Parser::registers(const Function& f, const std::string& list) const {
  std::vector<size_t> out;
  for (const std::string& name : split(list.substr(1, list.size() - 2), ','))
    out.push_back(static_cast<size_t>(reg(f, name)));
  return out;
}

// ldmatrix.sync.aligned.m8n8.x4[.trans].shared.b16: rows of 8 elements of 16 bits.
void Parser::decode_rows(Function& f, Step& step, const std::vector<std::string>& op,
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
      if (t.block->shadow) t.block->shadow->load(where(t), 16, t.block->place_of(t));
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

namespace {

// A sum as tensor cores make it: the exact products of a few factors and what they are added to are cut off below the last bit but one
// of the largest (24 bits behind its first), the sum is cut off behind its 24th bit. By measurements of these units: M. Fasi,
// N. J. Higham, M. Mikaitis and S. Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ Computer Science 7:e330, 2021.
float truncated_sum(float sum, const double* x, const double* y, size_t count, size_t at_once) {
  for (size_t first = 0; first < count; first += at_once) {
    double terms[17] = {sum}, largest = std::fabs(static_cast<double>(sum)), plain = sum;
    size_t used = 1;
    for (size_t k = first; k < std::min(count, first + at_once); ++k) {
      terms[used] = x[k] * y[k];
      plain += terms[used];
      largest = std::max(largest, std::fabs(terms[used]));
      ++used;
    }
    if (largest == 0) continue;
    if (!std::isfinite(plain)) {
      sum = static_cast<float>(plain);
      continue;
    }
    const int exponent = static_cast<int>(bits_of(largest) >> 52) - 1023;
    const double unit = std::ldexp(1, exponent - 24), per_unit = std::ldexp(1, 24 - exponent);
    int64_t total = 0;
    for (size_t k = 0; k < used; ++k)
      total += static_cast<int64_t>(terms[k] * per_unit);
    uint64_t bits = bits_of(static_cast<double>(total) * unit);
    bits &= ~uint64_t{(1 << 29) - 1};  // of 52 + 1 bits, 24 stay
    sum = static_cast<float>(as<double>(bits));
  }
  return sum;
}

// A shape of mma.sync: rows and depth of the product, elements of a register; how many products the unit adds up at once.
struct MatrixShape {
  const char *name, *type;
  size_t rows, depth, each, at_once;
};
constexpr MatrixShape kMatrixShapes[] = {{"m16n8k16", "f16", 16, 16, 2, 8},  {"m16n8k8", "f16", 16, 8, 2, 4},
                                         {"m16n8k16", "bf16", 16, 16, 2, 8}, {"m16n8k8", "tf32", 16, 8, 1, 4},
                                         {"m16n8k32", "s8", 16, 32, 4, 16},  {"m8n8k16", "s8", 8, 16, 4, 16}};

}  // namespace

// Fragments as PTX ISA 9.7.14 has them: of 8 rows and four registers' elements of columns each, rows first.
void Parser::decode_mma(Function& f, Step& step, const std::vector<std::string>& op,
                        const std::vector<std::string>& a) {
  const std::string& type = op[op.size() - 2];
  const auto* shape = std::find_if(std::begin(kMatrixShapes), std::end(kMatrixShapes),
                                   [&](const MatrixShape& s) { return type == s.type && has(op, s.name); });
  const std::string sum = type == "s8" ? "s32" : "f32";
  if (shape == std::end(kMatrixShapes) || !has(op, "row") || !has(op, "col") || op.back() != sum)
    throw Bad("matrix product");
  const std::vector<size_t> to = registers(f, a[0]), left = registers(f, a[1]), right = registers(f, a[2]),
                            old = registers(f, a[3]);
  const size_t of_rows = shape->rows / 8, part = 4 * shape->each, of_depth = shape->depth / part;
  if (left.size() != of_rows * of_depth || right.size() != of_depth || to.size() != 2 * of_rows ||
      old.size() != to.size())
    throw Bad("fragments");
  const bool is_left_unsigned = type == "s8" && op[op.size() - 3] == "u8";
  if (op[op.size() - 3] != type && !is_left_unsigned) throw Bad("types of the factors");
  auto number = [type](uint64_t bits, size_t k) -> double {
    if (type == "f16") return static_cast<double>(as<_Float16>(bits >> (16 * k)));
    if (type == "bf16") return as<float>((bits >> (16 * k) & 0xffff) << 16);
    if (type == "tf32") return as<float>(bits & 0xffffe000);
    return as<int8_t>(bits >> (8 * k));
  };
  together(f, step, [=](const auto& lanes) {
    expect_warp(lanes);
    const size_t depth = shape->depth;
    if (Counter* counter = lanes.at(0)->block->counter)
      counter->multiply(shape->rows * 8 * depth * 2 / shape->each);
    std::vector<double> x(shape->rows * depth), y(8 * depth);
    for (const auto& [lane, t] : lanes) {
      for (size_t k = 0; k < shape->each; ++k) {
        const size_t row = lane / 4, column = lane % 4 * shape->each + k;
        for (size_t r = 0; r < left.size(); ++r)
          x[(row + r % of_rows * 8) * depth + column + r / of_rows * part] =
              is_left_unsigned ? static_cast<double>(t->r[left[r]] >> (8 * k) & 255)
                               : number(t->r[left[r]], k);
        for (size_t r = 0; r < right.size(); ++r)
          y[row * depth + column + r * part] = number(t->r[right[r]], k);
      }
    }
    for (const auto& [lane, t] : lanes) {
      std::array<uint64_t, 4> sums{};
      for (size_t r = 0; r < to.size(); ++r) {
        const size_t row = lane / 4 + r / 2 * 8, column = lane % 4 * 2 + r % 2;
        const double *of_row = &x[row * depth], *of_column = &y[column * depth];
        if (type != "s8") {
          sums[r] = bits_of(truncated_sum(as<float>(t->r[old[r]]), of_row, of_column, depth, shape->at_once));
          continue;
        }
        double total = as<int32_t>(t->r[old[r]]);
        for (size_t k = 0; k < depth; ++k)
          total += of_row[k] * of_column[k];
        sums[r] = bits_of(static_cast<int32_t>(static_cast<int64_t>(total)));
      }
      for (size_t r = 0; r < to.size(); ++r)
        t->r[to[r]] = sums[r];
    }
  });
}

namespace {

// An operand in shared memory: fields of the descriptor by PTX ISA 9.7.15.5.1.2.2 (matrix descriptor format), strides by
// 9.7.15.5.1.2.1 (major-ness supported by strides), orders by 9.7.15.5.1.1 (shared memory matrix layout).
struct Descriptor {
  Descriptor(uint64_t bits, size_t element_bytes)
      : element(element_bytes),
        start((bits & 0x3fff) << 4),
        leading((bits >> 16 & 0x3fff) << 4),
        stride((bits >> 32 & 0x3fff) << 4) {
    if ((bits >> 49 & 7) != 0) throw Bad("a base offset of a pattern that begins where its size says");
    if ((bits & ~0xc0003fff3fff3fffULL) != 0) throw Bad("bits of a descriptor that have no meaning");
    constexpr unsigned kBitsOfUnits[] = {0, 3, 2, 1};  // of 16 bytes: none, 128, 64, 32 bytes
    exchanged = kBitsOfUnits[bits >> 62];
  }
  // Bytes from the start where nothing is exchanged, MN-major of 16-bit elements. Without swizzling, K-major: a core matrix is 8 rows of 16
  // bytes along k, which follow each other; the leading offset leads to the second column of 16 bytes, the stride offset to the
  // next 8 rows. MN-major: 8 columns (k) of 16 bytes; the leading offset leads to the next 8 columns, the stride offset to the
  // next row of 128 bits. With it, K-major: rows of 32, 64 or 128 bytes, of which 8 follow each other; the stride offset leads to
  // the next 8. MN-major: 8 columns (k) of that length follow each other; the stride offset leads to the next 8, the leading
  // offset to the next rows beyond the first swizzle-byte-size / 16 (of 128 bits).
  uint64_t offset(size_t mn, size_t k, bool is_mn_major) const {
    if (exchanged == 0) {
      if (!is_mn_major) return mn / 8 * stride + mn % 8 * 16 + k * element / 16 * leading + k * element % 16;
      return k / 8 * leading + k % 8 * 16 + mn / 8 * stride + mn % 8 * 2;
    }
    const uint64_t row = uint64_t{16} << exchanged;
    if (!is_mn_major) return mn / 8 * stride + mn % 8 * row + k * element;
    return mn * 2 / row * leading + mn * 2 % row + k / 8 * stride + k % 8 * row;
  }
  // Bits 4 and up of the address, as many as are exchanged, with those from 7 on.
  uint64_t exchange(uint64_t address) const {
    const uint64_t mask = (uint64_t{1} << exchanged) - 1;
    return address ^ (address >> 7 & mask) << 4;
  }
  size_t element;  // bytes
  uint64_t start, leading, stride;
  unsigned exchanged = 0;
};

// Where it stands in the block's memory: a descriptor has 18 bits of the address.
size_t place_of(const Block& block, const Descriptor& d, uint64_t offset) {
  const uint64_t window = 0x3ffff;
  const uint64_t base = reinterpret_cast<uint64_t>(block.shared.data());
  const uint64_t at = (d.exchange(d.start + offset) - base) & window;
  if (at + d.element > block.shared.size()) throw Bad("an operand of a product outside of shared memory");
  const size_t writer = block.writers[at / 16];
  if (writer != 0)
    throw Bad("a product reads what thread " + std::to_string(writer - 1) +
              " wrote without fence.proxy.async");
  return at;
}

// Core matrices: of eight rows (columns, across k), 16 bytes along k, or the other way round.
void count_rows(const Thread& any, const Descriptor& d, size_t rows, size_t depth, bool is_mn_major) {
  for (size_t mn = 0; mn < rows; mn += 8) {
    for (size_t k = 0; k < depth; k += 16 / d.element) {
      std::vector<uint64_t> addresses;
      for (size_t n = 0; n < 8; ++n)
        addresses.push_back(
            d.exchange(d.start + (is_mn_major ? d.offset(mn, k + n, true) : d.offset(mn + n, k, false))));
      any.block->traffic->rows(addresses);
    }
  }
}

constexpr uint64_t kNotThere = 0x7fffcdcd;  // in registers while a product adds to them

// What a product multiplies, by its name in PTX.
struct Factor {
  explicit Factor(std::string type) : name(std::move(type)) {
    if (name != "f16" && name != "bf16" && name != "tf32" && !is_int()) throw Bad("product");
  }
  bool is_int() const { return name == "s8" || name == "u8"; }
  size_t bytes() const { return is_int() ? 1 : name == "tf32" ? 4 : 2; }
  double number(uint32_t bits) const {
    if (name == "f16") return static_cast<double>(as<_Float16>(bits));
    if (name == "bf16") return as<float>(uint64_t{bits} << 16);
    if (name == "tf32") return as<float>(bits & 0xffffe000);  // the rest is not looked at
    return name == "u8" ? static_cast<double>(bits) : as<int8_t>(bits);
  }
  std::string name;
};

void finish(Thread& t, const Product& product) {
  for (const auto& [at, bits] : *product.operands) {
    uint32_t now = 0;
    std::memcpy(&now, t.block->shared.data() + at, product.element_bytes);
    if (now != bits) throw Bad("an operand is written while a product reads it");
  }
  for (size_t r : product.sums) {
    auto sum = t.in_flight.find(r);
    if (sum == t.in_flight.end()) continue;
    bool is_last = true;
    for (const std::vector<Product>& group : t.products) {
      for (const Product& later : group)
        is_last &=
            &later == &product || std::find(later.sums.begin(), later.sums.end(), r) == later.sums.end();
    }
    if (!is_last) continue;
    if (t.r[r] != kNotThere) throw Bad("a register is written while a product adds to it");
    t.r[r] = product.is_int ? bits_of(static_cast<int32_t>(sum->second))
                            : bits_of(static_cast<float>(sum->second));
    t.in_flight.erase(sum);
  }
}

}  // namespace

// wgmma.mma_async.sync.aligned.m64nNk16.f32.T.T {d}, a, b, scale-d, 1, 1, transpose a, transpose b; of bytes .m64nNk32.s32.T.U {d}, a,
// b, scale-d, and of tf32 .m64nNk8.f32.T.T {d}, a, b, scale-d, 1, 1, where N of bytes is 8, 24 or a multiple of 16, and types differ since PTX 8.4 (PTX ISA 9.7.15.5.2); and what puts products in order (9.7.15.7). Element (row, column) of the sums is thread 32 * (row / 16) + 4 * (row % 8) + column % 8 / 2's
// of the warpgroup (figure 149).
void Parser::decode_wgmma(Function& f, Step& step, const std::vector<std::string>& op,
                          const std::vector<std::string>& a) {
  if (!has(op, "sync") || !has(op, "aligned")) throw Bad("product");
  auto by_warps = [&](auto each) {
    together(f, step, [each](const std::map<size_t, Thread*>& lanes) {
      expect_warp(lanes);
      for (const auto& [lane, t] : lanes)
        each(*t);
    });
  };
  if (op[1] == "fence") return by_warps([](Thread& t) { t.is_fenced = true; });
  if (op[1] == "commit_group") return by_warps([](Thread& t) { t.products.emplace_back(); });
  if (op[1] == "wait_group") {
    return by_warps([left = static_cast<size_t>(std::atoi(a[0].c_str()))](Thread& t) {
      t.is_fenced = false;
      while (t.products.size() - 1 > left) {
        std::vector<Product>& group = t.products.front();
        while (!group.empty()) {
          const Product product = group.front();
          group.erase(group.begin());
          finish(t, product);
        }
        t.products.erase(t.products.begin());
      }
    });
  }
  const std::string& shape = op[4];
  const auto columns = static_cast<size_t>(std::atoi(shape.c_str() + 4));
  if (op[1] != "mma_async" || op.size() != 8) throw Bad("product");
  const Factor of_a(op[6]), of_b(op[7]);
  const size_t depth = 32 / of_a.bytes();
  if (shape != "m64n" + std::to_string(columns) + "k" + std::to_string(depth) || columns % 8 != 0 ||
      columns < 8 || columns > 256)
    throw Bad("product");
  const bool is_int = of_a.is_int();
  if (of_b.is_int() != is_int || op[5] != (is_int ? "s32" : "f32") || (!is_int && of_a.name != of_b.name))
    throw Bad("factors");
  if (is_int && columns % 16 != 0 && columns != 8 && columns != 24)
    throw Bad("columns of a product of bytes");
  if (of_a.name != of_b.name && version < 84)
    throw Bad("mixed types of integers in a product before PTX 8.4");
  const std::vector<size_t> sums = registers(f, a[0]);
  const bool is_transposable = of_a.bytes() == 2;
  if (sums.size() != columns / 2 ||
      a.size() != (is_int            ? 4
                   : is_transposable ? 8
                                     : 6) ||
      (!is_int && (a[4] != "1" || a[5] != "1")))
    throw Bad("operands");
  const bool a_is_mn_major = is_transposable && a[6] == "1", b_is_mn_major = is_transposable && a[7] == "1";
  Read a_bits = read(f, a[1]), b_bits = read(f, a[2]), adds = read(f, a[3]);
  constexpr size_t kGroup = 128, kRows = 64;
  auto run = [=](const std::map<size_t, Thread*>& threads) {
    if (threads.size() != kGroup) throw Bad("a product without all of a warpgroup");
    Thread& any = *threads.at(0);
    for (const auto& [place, t] : threads) {
      if (a_bits(*t) != a_bits(any) || b_bits(*t) != b_bits(any))
        throw Bad("descriptors differ in a warpgroup");
      if (!t->is_fenced) throw Bad("a product without wgmma.fence");
    }
    const Descriptor left(a_bits(any), of_a.bytes()), right(b_bits(any), of_b.bytes());
    auto operands = std::make_shared<std::vector<std::pair<size_t, uint32_t>>>();
    auto matrix = [&](const Descriptor& d, const Factor& of, size_t rows, bool is_mn_major) {
      std::vector<double> out;
      for (size_t mn = 0; mn < rows; ++mn) {
        for (size_t k = 0; k < depth; ++k) {
          const size_t at = place_of(*any.block, d, d.offset(mn, k, is_mn_major));
          if (any.block->shadow)
            any.block->shadow->load_by_many(reinterpret_cast<uint64_t>(any.block->shared.data() + at),
                                            of.bytes(), any.block->place_of(any));
          uint32_t bits = 0;
          std::memcpy(&bits, any.block->shared.data() + at, of.bytes());
          operands->emplace_back(at, bits);
          out.push_back(of.number(bits));
        }
      }
      return out;
    };
    const std::vector<double> x = matrix(left, of_a, kRows, a_is_mn_major),
                              y = matrix(right, of_b, columns, b_is_mn_major);
    if (any.block->traffic) {
      count_rows(any, left, kRows, depth, a_is_mn_major);
      count_rows(any, right, columns, depth, b_is_mn_major);
    }
    if (any.block->counter) any.block->counter->multiply(kRows * columns * 16);
    for (size_t row = 0; row < kRows; ++row) {
      for (size_t column = 0; column < columns; ++column) {
        Thread& t = *threads.at(row / 16 * 32 + row % 8 * 4 + column % 8 / 2);
        const size_t r = sums[column / 8 * 4 + row % 16 / 8 * 2 + column % 2];
        auto before = t.in_flight.find(r);
        double total = (adds(t) & 1) == 0            ? 0
                       : before != t.in_flight.end() ? before->second
                       : is_int                      ? as<int32_t>(t.r[r])
                                                     : as<float>(t.r[r]);
        const double *of_row = &x[row * depth], *of_column = &y[column * depth];
        if (is_int) {
          for (size_t k = 0; k < depth; ++k)
            total += of_row[k] * of_column[k];
          total = as<int32_t>(static_cast<uint64_t>(static_cast<int64_t>(total)));  // wraps around
        } else {
          total = truncated_sum(static_cast<float>(total), of_row, of_column, depth, depth);
        }
        t.in_flight[r] = total;
        t.r[r] = kNotThere;
      }
    }
    for (const auto& [place, t] : threads)
      t->products.back().push_back({sums, operands, of_a.bytes(), is_int});
  };
  together(f, step, run, kGroup);
}

}  // namespace mcc::test::ptx
