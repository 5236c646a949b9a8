#include "tensor/instructions.h"

#include <algorithm>

#include "support/text.h"
#include "tensor/build.h"
#include "tensor/intrinsics.h"

namespace mcc::tensor {
namespace {

// acc[lane] += a[0..n] . b[lane, 0..n]: products of u8 or i8 and i8 summed into i32, n = 4, of i16 and i8, n = 2, or of bf16 into f32, n = 2.
Instruction dot_product(Intrinsic dot, std::string feature, int lanes) {
  const ElementType right = right_element(dot), sum = sum_element(dot);
  const int n = dot_elements(dot);
  FuncBuilder builder(text(to_text(dot), "_", mcc::to_text(sum), "x", lanes));
  Buffer a = builder.input("a", left_element(dot), {n});
  Buffer b = builder.input("b", right, {lanes, n});
  Buffer acc = builder.new_buffer("acc", sum, {lanes});
  builder.block("dot", {{"lane", lanes, AxisKind::spatial}, {"k", n, AxisKind::reduce}}, [&](Axes i) {
    Expr product = cast(sum, load(a, {i[1]})) * cast(sum, load(b, {i[0], i[1]}));
    return Store::make(acc, {i[0]}, load(acc, {i[0]}) + product);
  });
  Func semantics = builder.finish({acc});
  std::string name = semantics.name;
  Instruction made{name, std::move(feature), std::move(semantics)};
  made.dot = dot;
  return made;
}

std::string tile_name(ElementType left, int64_t rows, int64_t k) {
  return text("tile_", left == ElementType::u8 ? "u8i8" : mcc::to_text(left), "_m", rows, "n16k",
              word_elements(left) * k);
}

// acc[row, column] += a[row, 0 .. n * k] . b[0 .. k, column, 0..n], of u8 and i8 (n = 4) or of bf16 (n = 2), rows of any stride (AMX's
// TDPBUSD and TDPBF16PS).
Instruction tile_product(Intrinsic tile, std::string feature, int64_t rows, int64_t k) {
  const ElementType left_type = left_element(tile), sum = sum_element(tile);
  const int64_t n = word_elements(left_type);
  FuncBuilder builder(tile_name(left_type, rows, k));
  Buffer a = builder.input("a", left_type, {rows, builder.dim("a_row")});
  Buffer b = builder.input("b", right_element(tile), {k, builder.dim("b_row")});
  Buffer acc = builder.new_buffer("acc", sum, {rows, builder.dim("c_row")});
  builder.block("tile",
                {{"row", rows, AxisKind::spatial},
                 {"column", kTileColumns, AxisKind::spatial},
                 {"k", k, AxisKind::reduce},
                 {"part", n, AxisKind::reduce}},
                [&](Axes i) {
                  Expr left = load(a, {i[0], i[2] * n + i[3]}), right = load(b, {i[2], i[1] * n + i[3]});
                  Expr product = cast(sum, left) * cast(sum, right);
                  return Store::make(acc, {i[0], i[1]}, load(acc, {i[0], i[1]}) + product);
                });
  Func semantics = builder.finish({acc});
  std::string name = semantics.name;
  Instruction made{name, std::move(feature), std::move(semantics)};
  made.tile = tile;
  return made;
}

// sm_75 makes those of f16 and of bytes in parts (codegen/emit_device.cpp).
std::string first_sm(Intrinsic mma) {
  return mma == Intrinsic::mma_bf16 || mma == Intrinsic::mma_tf32 ? "sm_80" : "sm_75";
}

// acc[h, y, x, p] += a[8 * h + y, 0..K] . b[0..K, 2 * x + p], the sums of thread (y, x) of a product of 16 x 8 (PTX's
// mma.m16n8kK). Operands in rows along k, or across it.
Instruction matrix_product(const std::string& type, Intrinsic mma, bool a_along_k, bool b_along_k) {
  const ElementType element = right_element(mma), sum = sum_element(mma);
  const int64_t depth = 8 * 32 / bit_width(element);
  FuncBuilder builder(text("mma_m16n8k", depth, "_", a_along_k ? "row" : "col", "_", b_along_k ? "col" : "row", "_", type));
  Var a_row = builder.dim("a_row"), b_row = builder.dim("b_row");
  Buffer a = builder.input("a", left_element(mma), {a_along_k ? 16 : depth, a_row});
  Buffer b = builder.input("b", element, {b_along_k ? 8 : depth, b_row});
  Buffer acc = builder.new_buffer("acc", sum, {2, 8, 4, 2});
  builder.block("mma",
                {{"y", 8, AxisKind::spatial},
                 {"x", 4, AxisKind::spatial},
                 {"h", 2, AxisKind::spatial},
                 {"p", 2, AxisKind::spatial},
                 {"k", depth, AxisKind::reduce}},
                [&](Axes n) {
                  Expr i = n[2] * 8 + n[0], j = n[1] * 2 + n[3], k = n[4];
                  Expr left = a_along_k ? load(a, {i, k}) : load(a, {k, i});
                  Expr right = b_along_k ? load(b, {j, k}) : load(b, {k, j});
                  std::vector<Expr> place = {n[2], n[0], n[1], n[3]};
                  return Store::make(acc, place, load(acc, place) + cast(sum, left) * cast(sum, right));
                });
  Func semantics = builder.finish({acc});
  std::string name = semantics.name;
  return {name, first_sm(mma), std::move(semantics), mma};
}

// acc[h, y, x, p] += a[o, h, y, q, e] . b[8 * o + 2 * q + e, 2 * x + p]: the same of a left operand that the threads hold, thread
// (y, x) the a[.., y, x, ..]. Registers of sums, two tiles of columns side by side, are such an operand's once they are rounded.
Instruction held_product(const std::string& type, Intrinsic mma, bool b_along_k) {
  constexpr int64_t kDepth = 16;
  const ElementType element = right_element(mma);
  FuncBuilder builder(text("mma_m16n8k", kDepth, "_held_", b_along_k ? "col" : "row", "_", type));
  Buffer a = builder.input("a", element, {2, 2, 8, 4, 2});
  Buffer b = builder.input("b", element, {b_along_k ? 8 : kDepth, builder.dim("b_row")});
  Buffer acc = builder.new_buffer("acc", ElementType::f32, {2, 8, 4, 2});
  builder.block("mma",
                {{"y", 8, AxisKind::spatial},
                 {"x", 4, AxisKind::spatial},
                 {"h", 2, AxisKind::spatial},
                 {"p", 2, AxisKind::spatial},
                 {"o", 2, AxisKind::reduce},
                 {"q", 4, AxisKind::reduce},
                 {"e", 2, AxisKind::reduce}},
                [&](Axes n) {
                  Expr j = n[1] * 2 + n[3], k = n[4] * 8 + n[5] * 2 + n[6];
                  Expr left = load(a, {n[4], n[2], n[0], n[5], n[6]});
                  Expr right = b_along_k ? load(b, {j, k}) : load(b, {k, j});
                  std::vector<Expr> place = {n[2], n[0], n[1], n[3]};
                  return Store::make(acc, place, load(acc, place) + cast(ElementType::f32, left) * cast(ElementType::f32, right));
                });
  Func semantics = builder.finish({acc});
  std::string name = semantics.name;
  Instruction made{name, first_sm(mma), std::move(semantics), mma};
  made.is_held = true;
  return made;
}

// acc[w, m, n, h, y, x, p] += a[16 * w + 8 * h + y, 0..K] . b[0..K, 64 * m + 8 * n + 2 * x + p], the sums of thread (w, y, x) of
// a product of 64 rows (wgmma.mma_async.m64nNk16, k32 of bytes, k8 of tf32, PTX ISA 9.7.15.5: sums by figure 149); without m for 64 columns.
// Operands stand along k, in rows of any stride, or (of 16 bits) across it, eight neighbours at a time; in which of such orders the
// instruction finds them is looked at later (use_instructions), since units of 16 bytes may be exchanged once the nest has been
// matched.
// Dealt: n is d * n + c, where d tiles share out columns.
Instruction warpgroup_product(const std::string& type, Intrinsic wgmma, int64_t columns, bool a_along_k,
                              bool b_along_k, int64_t dealt) {
  const ElementType sum = sum_element(wgmma);
  const int64_t unit = unit_elements(right_element(wgmma));
  FuncBuilder builder(text("wgmma_m64n", columns, "k", 2 * unit, "_", a_along_k ? "row" : "col", "_",
                           b_along_k ? "col" : "row", "_", type,
                           dealt > 2   ? "_dealt"
                           : dealt > 1 ? "_dealt_2"
                                       : ""));
  int dims = 0;
  auto any = [&] { return Expr(builder.dim(text("any", dims++))); };
  const bool has_m = columns > 64;
  std::vector<Expr> b_shape = {2};
  for (int d = b_along_k ? 2 : has_m ? 4 : 3; d > 0; --d)
    b_shape.push_back(any());
  Buffer a = builder.input(
      "a", left_element(wgmma),
      a_along_k ? std::vector<Expr>{2, any(), any()} : std::vector<Expr>{2, any(), any(), any()});
  Buffer b = builder.input("b", right_element(wgmma), b_shape);
  Buffer acc = builder.new_buffer("acc", sum, {4, any()});
  std::vector<FuncBuilder::AxisSpec> axes = {
      {"w", 4, AxisKind::spatial}, {"y", 8, AxisKind::spatial}, {"x", 4, AxisKind::spatial}};
  if (has_m) axes.push_back({"m", columns / 64, AxisKind::spatial});
  const bool is_dealt = dealt > 1;
  axes.push_back({"n", 8 / dealt, AxisKind::spatial});
  if (is_dealt) axes.push_back({"c", dealt, AxisKind::spatial});
  axes.insert(axes.end(), {{"h", 2, AxisKind::spatial},
                           {"p", 2, AxisKind::spatial},
                           {"o", 2, AxisKind::reduce},
                           {"k", unit, AxisKind::reduce}});
  builder.block("wgmma", axes, [&](Axes v) {
    Expr w = v[0], y = v[1], x = v[2], m = has_m ? Expr(v[3]) : Expr(0);
    const size_t at = (has_m ? 4 : 3) + (is_dealt ? 1 : 0);
    Expr n = is_dealt ? v[at - 1] * dealt + v[at] : Expr(v[at]), h = v[at + 1], p = v[at + 2], o = v[at + 3],
         k = v[at + 4];
    Expr left = a_along_k ? load(a, {o, w * 16 + h * 8 + y, k}) : load(a, {o, w * 2 + h, k, y});
    std::vector<Expr> place_b = {o, m, n, k, x * 2 + p};
    if (!has_m) place_b.erase(place_b.begin() + 1);
    Expr right = b_along_k ? load(b, {o, m * 64 + n * 8 + x * 2 + p, k}) : load(b, place_b);
    std::vector<Expr> place = {w, (m * 8 + n) * 128 + h * 64 + y * 8 + x * 2 + p};
    return Store::make(acc, place, load(acc, place) + cast(sum, left) * cast(sum, right));
  });
  Func semantics = builder.finish({acc});
  std::string name = semantics.name;
  Instruction made{name, "sm_90a", std::move(semantics), wgmma};
  made.is_dealt = is_dealt;
  return made;
}

// Smaller tiles are no faster than dot products.
constexpr int64_t kLeastTile = 4;

std::vector<Instruction> make_instructions() {
  std::vector<Instruction> list;
  list.push_back(dot_product(Intrinsic::dot4_u8i8, "avx512vnni", 16));
  list.push_back(dot_product(Intrinsic::dot4_u8i8, "avx2", 8));
  list.push_back(dot_product(Intrinsic::dot4_i8u8, "avx512vnni", 16));
  list.push_back(dot_product(Intrinsic::dot4_i8u8, "avx2", 8));
  list.push_back(dot_product(Intrinsic::dot2_i16i8, "avx512bw", 16));
  list.push_back(dot_product(Intrinsic::dot2_i16i8, "avx2", 8));
  list.push_back(dot_product(Intrinsic::dot2_i16i8, "sse4.1", 4));
  list.push_back(dot_product(Intrinsic::dot2_bf16, "avx512bf16", 16));
  list.push_back(dot_product(Intrinsic::dot4_u8i8, "sm_70", 4));
  list.push_back(dot_product(Intrinsic::dot4_i8i8, "sm_70", 4));
  for (int64_t rows = kLeastTile; rows <= kTileRows; ++rows) {
    for (int64_t k = kLeastTile; k <= kTileRows; ++k) {
      list.push_back(tile_product(Intrinsic::tile_product_u8i8, "amx-int8", rows, k));
      list.push_back(tile_product(Intrinsic::tile_product_bf16, "amx-bf16", rows, k));
    }
  }
  for (bool b_along_k : {true, false}) {
    list.push_back(held_product("f16", Intrinsic::mma_f16, b_along_k));
    list.push_back(held_product("bf16", Intrinsic::mma_bf16, b_along_k));
  }
  for (bool a_along_k : {true, false}) {
    for (bool b_along_k : {true, false}) {
      auto add = [&](const char* type, Intrinsic mma) {
        list.push_back(matrix_product(type, mma, a_along_k, b_along_k));
      };
      add("f16", Intrinsic::mma_f16);
      add("bf16", Intrinsic::mma_bf16);
      add("tf32", Intrinsic::mma_tf32);
      if (a_along_k && b_along_k) {
        add("i8", Intrinsic::mma_i8);
        add("u8i8", Intrinsic::mma_u8i8);
      }
      for (int64_t columns : {64, 128, 192, 256}) {
        for (int64_t dealt : {1, 2, 4}) {
          if (dealt > 1 && !b_along_k) continue;
          auto add_wide = [&](const char* type, Intrinsic wgmma) {
            list.push_back(warpgroup_product(type, wgmma, columns, a_along_k, b_along_k, dealt));
          };
          add_wide("f16", Intrinsic::wgmma_f16);
          add_wide("bf16", Intrinsic::wgmma_bf16);
          if (!a_along_k || !b_along_k) continue;
          add_wide("tf32", Intrinsic::wgmma_tf32);
          add_wide("i8", Intrinsic::wgmma_i8);
          add_wide("u8i8", Intrinsic::wgmma_u8i8);
        }
      }
    }
  }
  return list;
}

}  // namespace

const std::vector<Instruction>& all_instructions() {
  static const std::vector<Instruction> list = make_instructions();
  return list;
}

bool has_feature(const Target& target, std::string_view feature) {
  const std::string all = text(",", target.features, ",");
  return all.find(text(",+", feature, ",")) != std::string::npos;
}

bool has_instruction(const Target& target, const Instruction& instruction) {
  if (target.kind == TargetKind::cuda)
    return sm_of(instruction.feature) > 0 && target.gpu.sm() >= sm_of(instruction.feature);
  return has_feature(target, instruction.feature);
}

int first_matrix_sm(ElementType factor) {
  const std::vector<Instruction>& list = all_instructions();
  const auto found = std::find_if(list.begin(), list.end(), [&](const Instruction& i) {
    return i.mma && !is_wgmma(*i.mma) && left_element(*i.mma) == factor;
  });
  return found == list.end() ? 0 : sm_of(found->feature);
}

bool multiplies_matrices(const Gpu& gpu, ElementType factor) {
  const int first = first_matrix_sm(factor);
  return gpu.matrix_fmas > 0 && first > 0 && gpu.sm() >= first;
}

bool takes_bytes_apart(const Target& target) {
  return target.kind == TargetKind::cpu && !has_feature(target, target.vector_bits == 512 ? "avx512vnni" : "avxvnni");
}

ElementType left_of_bytes(const Target& target) {
  return takes_bytes_apart(target) ? ElementType::i16 : ElementType::u8;
}

bool looks_up_bytes(const Target& target) {
  return target.kind == TargetKind::cpu && target.vector_bits == 512 && has_feature(target, "avx512vbmi");
}

bool looks_up_numbers(const Target& target) {
  return target.kind == TargetKind::cpu && target.vector_bits == 512 && has_feature(target, "avx512f");
}

const Instruction* dot_instruction(const Target& target, ElementType left) {
  for (const Instruction& instruction : all_instructions()) {
    if (!instruction.dot || left_element(*instruction.dot) != left || !has_instruction(target, instruction)) continue;
    if (is_int(instruction.semantics.params.back().shape()[0], target.lanes(32))) return &instruction;
  }
  return nullptr;
}

int64_t largest_tile(int64_t extent) {
  int64_t n = std::clamp<int64_t>(extent, 1, kTileRows);
  while (extent % n != 0)
    --n;
  return n;
}

const Instruction* tile_instruction(const Target& target, int64_t rows, int64_t k, ElementType left) {
  const Instruction* instruction = find_instruction(tile_name(left, rows, k));
  return instruction && has_instruction(target, *instruction) ? instruction : nullptr;
}

const Instruction* find_instruction(const std::string& name) {
  const std::vector<Instruction>& list = all_instructions();
  auto it = std::find_if(list.begin(), list.end(), [&](const Instruction& i) { return i.name == name; });
  return it == list.end() ? nullptr : &*it;
}

}  // namespace mcc::tensor
