#include "tensor/instructions.h"

#include <algorithm>

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
  return {std::move(name), std::move(feature), builder.finish({acc})};
}

std::vector<Instruction> make_instructions() {
  std::vector<Instruction> list;
  list.push_back(dot4("dot4_u8i8_i32x16", "avx512vnni", ElementType::u8, ElementType::i8, 16));
  list.push_back(dot4("dot4_u8i8_i32x8", "avxvnni", ElementType::u8, ElementType::i8, 8));
  return list;
}

}  // namespace

const std::vector<Instruction>& all_instructions() {
  static const std::vector<Instruction> list = make_instructions();
  return list;
}

const Instruction* find_instruction(const std::string& name) {
  const std::vector<Instruction>& list = all_instructions();
  auto it = std::find_if(list.begin(), list.end(), [&](const Instruction& i) { return i.name == name; });
  return it == list.end() ? nullptr : &*it;
}

}  // namespace mcc::tensor
