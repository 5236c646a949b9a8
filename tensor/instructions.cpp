#include "tensor/instructions.h"

#include <algorithm>

#include "support/text.h"
#include "tensor/build.h"

namespace mcc::tensor {
namespace {

// acc[lane] += a[0..4] . b[lane, 0..4], products of u8 and i8 (in the given order) summed into i32.
Instruction dot4(std::string name, std::string feature, ElementType a_type, ElementType b_type, int lanes) {
  FuncBuilder builder(name);
  Buffer a = builder.input("a", a_type, {4});
  Buffer b = builder.input("b", b_type, {lanes, 4});
  Buffer acc = builder.new_buffer("acc", ElementType::i32, {lanes});
  builder.block("dot", {{"lane", lanes, AxisKind::spatial}, {"k", 4, AxisKind::reduce}}, [&](Axes i) {
    Expr product = cast(ElementType::i32, load(a, {i[1]})) * cast(ElementType::i32, load(b, {i[0], i[1]}));
    return Store::make(acc, {i[0]}, load(acc, {i[0]}) + product);
  });
  return {std::move(name), std::move(feature), builder.finish({acc}), std::nullopt, Intrinsic::dot4_u8i8};
}

// acc[h, y, x, p] += a[8 * h + y, 0..K] . b[0..K, 2 * x + p], the sums of thread (y, x) of a product of 16 x 8 (PTX's
// mma.m16n8kK). Operands in rows along k, or across it.
Instruction matrix_product(const std::string& type, Intrinsic mma, ElementType element, ElementType sum, bool a_along_k,
                           bool b_along_k) {
  const int64_t depth = 8 * 32 / bit_width(element);
  FuncBuilder builder(text("mma_m16n8k", depth, "_", a_along_k ? "row" : "col", "_", b_along_k ? "col" : "row", "_", type));
  Var a_row = builder.dim("a_row"), b_row = builder.dim("b_row");
  Buffer a = builder.input("a", element, {a_along_k ? 16 : depth, a_row});
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
  return {name, "sm_80", std::move(semantics), mma};
}

// acc[w, n, h, y, x, p] += a[16 * w + 8 * h + y, 0..16] . b[0..16, 8 * n + 2 * x + p], the sums of thread (w, y, x) of a product of
// 64 rows (wgmma.mma_async.m64nNk16, PTX ISA 9.7.15.5: sums by figure 149). Operands are squares of 8 x 8 elements (core
// matrices without swizzling): of eight elements along k, or across it, first come those of all rows, or of all k.
Instruction warpgroup_product(const std::string& type, Intrinsic wgmma, ElementType element, int64_t columns,
                              bool a_along_k, bool b_along_k) {
  FuncBuilder builder(text("wgmma_m64n", columns, "k16_", a_along_k ? "row" : "col", "_", b_along_k ? "col" : "row",
                           "_", type));
  Var a_row = builder.dim("a_row"), b_row = builder.dim("b_row"), acc_row = builder.dim("acc_row");
  Buffer a = builder.input("a", element, {a_along_k ? 2 : 8, a_row});
  Buffer b = builder.input("b", element, {b_along_k ? 2 : columns / 8, b_row});
  Buffer acc = builder.new_buffer("acc", ElementType::f32, {4, acc_row});
  builder.block("wgmma",
                {{"w", 4, AxisKind::spatial},
                 {"y", 8, AxisKind::spatial},
                 {"x", 4, AxisKind::spatial},
                 {"n", columns / 8, AxisKind::spatial},
                 {"h", 2, AxisKind::spatial},
                 {"p", 2, AxisKind::spatial},
                 {"o", 2, AxisKind::reduce},
                 {"k", 8, AxisKind::reduce}},
                [&](Axes v) {
                  Expr w = v[0], y = v[1], x = v[2], n = v[3], h = v[4], p = v[5], o = v[6], k = v[7];
                  Expr i = w * 16 + h * 8 + y, j = n * 8 + x * 2 + p;
                  Expr left = a_along_k ? load(a, {o, i * 8 + k}) : load(a, {w * 2 + h, o * 64 + k * 8 + y});
                  Expr right = b_along_k ? load(b, {o, j * 8 + k}) : load(b, {n, o * 64 + k * 8 + x * 2 + p});
                  std::vector<Expr> place = {w, n * 128 + h * 64 + y * 8 + x * 2 + p};
                  return Store::make(acc, place, load(acc, place) + cast(ElementType::f32, left) *
                                                                        cast(ElementType::f32, right));
                });
  Func semantics = builder.finish({acc});
  std::string name = semantics.name;
  return {name, "sm_90a", std::move(semantics), wgmma};
}

std::vector<Instruction> make_instructions() {
  std::vector<Instruction> list;
  list.push_back(dot4("dot4_u8i8_i32x16", "avx512vnni", ElementType::u8, ElementType::i8, 16));
  list.push_back(dot4("dot4_u8i8_i32x8", "avxvnni", ElementType::u8, ElementType::i8, 8));
  for (bool a_along_k : {true, false}) {
    for (bool b_along_k : {true, false}) {
      auto add = [&](const char* type, Intrinsic mma, ElementType element, ElementType sum) {
        list.push_back(matrix_product(type, mma, element, sum, a_along_k, b_along_k));
      };
      add("f16", Intrinsic::mma_f16, ElementType::f16, ElementType::f32);
      add("bf16", Intrinsic::mma_bf16, ElementType::bf16, ElementType::f32);
      add("tf32", Intrinsic::mma_tf32, ElementType::tf32, ElementType::f32);
      if (a_along_k && b_along_k) add("i8", Intrinsic::mma_i8, ElementType::i8, ElementType::i32);
      for (int64_t columns : {64, 128, 192, 256}) {
        list.push_back(
            warpgroup_product("f16", Intrinsic::wgmma_f16, ElementType::f16, columns, a_along_k, b_along_k));
        list.push_back(
            warpgroup_product("bf16", Intrinsic::wgmma_bf16, ElementType::bf16, columns, a_along_k, b_along_k));
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

bool has_instruction(const Target& target, const Instruction& instruction) {
  const std::string all = text(",", target.features, ",");
  return target.kind == TargetKind::cpu && all.find(text(",+", instruction.feature, ",")) != std::string::npos;
}

const Instruction* dot_instruction(const Target& target) {
  for (const Instruction& instruction : all_instructions()) {
    if (!instruction.dot || !has_instruction(target, instruction)) continue;
    if (is_int(instruction.semantics.params.back().shape()[0], target.lanes(32))) return &instruction;
  }
  return nullptr;
}

const Instruction* find_instruction(const std::string& name) {
  const std::vector<Instruction>& list = all_instructions();
  auto it = std::find_if(list.begin(), list.end(), [&](const Instruction& i) { return i.name == name; });
  return it == list.end() ? nullptr : &*it;
}

}  // namespace mcc::tensor
