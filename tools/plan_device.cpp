#include "tools/plan_device.h"

#include <algorithm>

#include "tensor/text.h"

namespace mcc::tools {

namespace {

uint32_t extent(const tensor::Expr& e, const std::string& entry) {
  int64_t value = 0;
  MCC_CHECK(tensor::as_int(e, &value) && value >= 0 && value <= 0x7fffffff, "the grid of ", entry, " is not known");
  return static_cast<uint32_t>(value);
}

size_t place_of(const tensor::Expr& e, const std::vector<tensor::Expr>& list) {
  return static_cast<size_t>(
      std::find_if(list.begin(), list.end(),
                   [&](const tensor::Expr& known) { return tensor::structurally_equal(known, e); }) -
      list.begin());
}

}  // namespace

mcc_device_map map_of(const codegen::TensorMap& m) {
  auto narrow = [](int64_t number) { return static_cast<uint32_t>(number); };
  return {static_cast<uint64_t>(m.width),
          static_cast<uint64_t>(m.height),
          narrow(m.buffer),
          narrow(m.element_bytes),
          narrow(m.box_width),
          narrow(m.box_height),
          narrow(m.swizzle),
          0};
}

namespace {

// Rows that lie in one piece are the columns of the library, which counts along columns.
mcc_device_matrix as_it_lies(const tensor::LibraryMatrix& m, int64_t rows, int64_t columns) {
  const bool is_in_rows = m.column == 1 && m.row >= columns;
  const ElementType element = m.buffer.element();
  mcc_device_matrix out = {};
  out.dtype = codegen::to_dtype(element == ElementType::tf32 ? ElementType::f32 : element);
  out.is_transposed = is_in_rows ? 0 : 1;
  out.rows = static_cast<uint64_t>(is_in_rows ? columns : rows);
  out.columns = static_cast<uint64_t>(is_in_rows ? rows : columns);
  out.leading = static_cast<uint64_t>(is_in_rows ? m.row : m.column);
  out.batch_stride = static_cast<uint64_t>(m.batch);
  return out;
}

}  // namespace

static_assert(tensor::kMaxLibraryAlgorithms == MCC_MOST_ALGORITHMS);

// (a * b)^T = b^T * a^T: the operands change places.
mcc_device_product product_of(const codegen::DeviceLaunch& launch) {
  const tensor::LibraryProduct& p = *launch.product;
  mcc_device_product out = {};
  out.compute = p.a.buffer.element() == ElementType::tf32 ? MCC_COMPUTE_tf32 : MCC_COMPUTE_f32;
  out.algorithm = static_cast<uint32_t>(p.algorithm);
  out.has_addend = p.addend ? 1 : 0;
  out.has_bias = p.bias ? 1 : 0;
  out.batches = static_cast<uint64_t>(p.batches);
  out.scale = p.scale;
  out.first = as_it_lies(p.b, p.depth, p.columns);
  out.second = as_it_lies(p.a, p.rows, p.depth);
  out.result = as_it_lies(p.d, p.rows, p.columns);
  if (p.addend) out.addend = as_it_lies(*p.addend, p.rows, p.columns);
  out.workspace_bytes = static_cast<uint64_t>(launch.library_bytes);
  return out;
}

namespace {

// dims: of the function. open: the sizes of grids and loops behind them.
codegen::DeviceLaunchDesc launch_of(const codegen::DeviceLaunch& from,
                                    const std::vector<codegen::Cubin>& cubins, size_t dims,
                                    const std::vector<tensor::Expr>& open) {
  codegen::DeviceLaunchDesc launch;
  launch.entry = from.entry;
  auto size_of = [&](const tensor::Expr& e) {
    const size_t number = place_of(e, open);
    return number < open.size() ? MCC_DEVICE_DIM(static_cast<uint32_t>(dims + number))
                                : extent(e, from.entry);
  };
  for (size_t i = 0; i < 3; ++i) {
    launch.grid[i] = size_of(from.grid[i]);
    launch.block[i] = extent(from.block[i], from.entry);
  }
  launch.shared_bytes = static_cast<uint32_t>(from.shared_bytes);
  launch.dynamic_shared_bytes = from.is_shared_dynamic ? launch.shared_bytes : 0;
  launch.waits_itself = from.waits_itself;
  for (int buffer : from.buffers) launch.arguments.push_back(static_cast<uint32_t>(buffer));
  for (int dim : from.dims)
    launch.arguments.push_back(MCC_DEVICE_DIM(static_cast<uint32_t>(dim)));
  if (from.takes_turn) launch.arguments.push_back(MCC_DEVICE_TURN);
  for (int64_t number : from.numbers) {
    MCC_CHECK(number >= 0 && number < MCC_DEVICE_MOST_NUMBER, "a step of ", from.entry, " has number ",
              number);
    launch.arguments.push_back(MCC_DEVICE_NUMBER(static_cast<uint32_t>(number)));
  }
  if (from.loop_launches > 0) {
    launch.loop_launches = static_cast<uint32_t>(from.loop_launches);
    launch.loop_first = static_cast<uint32_t>(from.loop_first);
    launch.loop_turns = size_of(from.loop_turns);
  }
  for (const codegen::TensorMap& m : from.maps)
    launch.maps.push_back(map_of(m));
  if (from.product) launch.product = product_of(from);
  for (const codegen::Cubin& cubin : cubins) {
    auto it = std::find_if(cubin.entries.begin(), cubin.entries.end(),
                           [&](const codegen::EntryFigures& f) { return f.entry == from.entry; });
    if (it == cubin.entries.end()) continue;
    launch.figures.push_back({cubin.arch, static_cast<uint32_t>(it->registers), static_cast<uint32_t>(it->shared_bytes),
                              static_cast<uint32_t>(it->stack_bytes), static_cast<uint32_t>(it->spill_stores),
                              static_cast<uint32_t>(it->spill_loads)});
  }
  return launch;
}

}  // namespace

std::vector<tensor::Expr> open_grid_sizes(const Kernel& kernel) {
  std::vector<tensor::Expr> open;
  for (const DeviceVariant& variant : kernel.device) {
    for (const codegen::DeviceLaunch& launch : variant.code.launches) {
      for (const tensor::Expr& extent : {launch.grid[0], launch.grid[1], launch.grid[2], launch.loop_turns}) {
        int64_t known = 0;
        if (!tensor::as_int(extent, &known) && place_of(extent, open) == open.size()) open.push_back(extent);
      }
    }
  }
  return open;
}

codegen::DeviceDesc device_code(const KernelSet& kernels, const codegen::PlanDesc& plan) {
  codegen::DeviceDesc device;
  for (const codegen::PlanGraph& graph : plan.graphs)
    for (const codegen::PlanNode& node : graph.nodes)
      device.is_walked |= node.kind != MCC_NODE_device && node.kind != MCC_NODE_copy;
  for (const Kernel& kernel : kernels.kernels) {
    codegen::DeviceKernelDesc out;
    const std::vector<tensor::Expr> open = open_grid_sizes(kernel);
    const size_t dims = kernel.func.dims.size() + (kernel.in_place ? 1 : 0);
    for (const DeviceVariant& variant : kernel.device) {
      const auto first = static_cast<uint32_t>(out.launches.size()),
                 count = static_cast<uint32_t>(variant.code.launches.size());
      for (const codegen::DeviceLaunch& launch : variant.code.launches)
        out.launches.push_back(launch_of(launch, variant.cubins, dims, open));
      out.images.push_back({MCC_IMAGE_ptx, variant.arch, variant.code.ptx, first, count});
      for (const codegen::Cubin& cubin : variant.cubins) {
        if (cubin.bytes.empty()) continue;
        out.images.push_back(
            {MCC_IMAGE_cubin, cubin.arch, std::string(cubin.bytes.begin(), cubin.bytes.end()), first, count});
      }
    }
    device.kernels.push_back(std::move(out));
  }
  return device;
}

}  // namespace mcc::tools
