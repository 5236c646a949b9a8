// Tiles of matrices: Intel's AMX, whose registers tmm0 to tmm7 LLVM takes by their numbers.
#include <llvm/IR/IntrinsicsX86.h>

#include "codegen/kernel_emitter.h"
#include "tensor/intrinsics.h"

namespace mcc::codegen {

using namespace tensor;

namespace {

int constant_of(const Call& n, size_t arg) {
  int64_t value = 0;
  MCC_CHECK(as_int(n.args[arg], &value), to_text(n.function), " of other than constants");
  return static_cast<int>(value);
}

// The 64 bytes of LDTILECFG: palette 1, of each tile how many bytes a row has (16 bits, from byte 16 on) and how many rows there are (from
// byte 48 on).
std::vector<uint8_t> layout_of(const Call& n) {
  const int rows = constant_of(n, 0), k = constant_of(n, 1), sums = constant_of(n, 2),
            lefts = constant_of(n, 3);
  std::vector<uint8_t> layout(64);
  layout[0] = 1;
  for (int t = 0; t < kTiles; ++t) {
    const bool is_left = t >= sums && t < sums + lefts;
    layout[static_cast<size_t>(16 + 2 * t)] = static_cast<uint8_t>(is_left ? 4 * k : 4 * kTileColumns);
    layout[static_cast<size_t>(48 + t)] = static_cast<uint8_t>(t < sums + lefts ? rows : k);
  }
  return layout;
}

}  // namespace

llvm::Value* KernelEmitter::emit_tile(const Call& n) {
  auto tile = [&](size_t arg) -> Value* { return b_.getInt8(static_cast<uint8_t>(constant_of(n, arg))); };
  auto emit_call = [&](llvm::Intrinsic::ID id, const std::vector<Value*>& args) {
    b_.CreateIntrinsic(id, {}, args);
    return b_.getTrue();
  };
  switch (n.function) {
    case Intrinsic::tile_configure: {
      if (constant_of(n, 0) == 0) return emit_call(llvm::Intrinsic::x86_tilerelease, {});
      const std::vector<uint8_t> bytes = layout_of(n);
      llvm::Constant* layout = llvm::ConstantDataArray::get(context_, llvm::ArrayRef<uint8_t>(bytes));
      auto* global = new llvm::GlobalVariable(module_, layout->getType(), true,
                                              llvm::GlobalValue::PrivateLinkage, layout, "tiles");
      global->setAlignment(llvm::Align(64));
      global->setUnnamedAddr(llvm::GlobalValue::UnnamedAddr::Global);
      return emit_call(llvm::Intrinsic::x86_ldtilecfg, {global});
    }
    case Intrinsic::tile_zero:
      return emit_call(llvm::Intrinsic::x86_tilezero, {tile(0)});
    case Intrinsic::tile_load:
    case Intrinsic::tile_store: {
      const auto* place = n.args[0].as<Load>();
      MCC_CHECK(place, to_text(n.function), " takes a load for its place");
      const int64_t bytes = constant_of(n, 1) * byte_size(place->buffer.element());
      const bool is_load = n.function == Intrinsic::tile_load;
      return emit_call(is_load ? llvm::Intrinsic::x86_tileloadd64 : llvm::Intrinsic::x86_tilestored64,
                       {tile(2), vector_address(*place), b_.getInt64(static_cast<uint64_t>(bytes))});
    }
    case Intrinsic::tile_multiply_u8i8:
      return emit_call(llvm::Intrinsic::x86_tdpbusd, {tile(0), tile(1), tile(2)});
    case Intrinsic::tile_multiply_bf16:
      return emit_call(llvm::Intrinsic::x86_tdpbf16ps, {tile(0), tile(1), tile(2)});
    default:
      MCC_UNREACHABLE(to_text(n.function), " reached code generation; keep_tiles takes it apart");
  }
}

}  // namespace mcc::codegen
