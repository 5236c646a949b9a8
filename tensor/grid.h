// The axes of a GPU's grid: which loops are bound to them, and what each may be.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "tensor/stmt.h"

namespace mcc::tensor {

// In the order of a launch's loops, outermost first.
enum class GridAxis : uint8_t { block_z, block_y, block_x, thread_z, thread_y, thread_x };

struct GridAxisInfo {
  GridAxis axis;
  std::string_view name;  // as annotation "thread" of a bound loop, and in steps
  int64_t most;           // iterations, on every GPU
};
inline constexpr std::array<GridAxisInfo, 6> kGridAxes = {{
    {GridAxis::block_z, "block.z", 65535},
    {GridAxis::block_y, "block.y", 65535},
    {GridAxis::block_x, "block.x", 2147483647},
    {GridAxis::thread_z, "thread.z", 64},
    {GridAxis::thread_y, "thread.y", 1024},
    {GridAxis::thread_x, "thread.x", 1024},
}};
// Threads of a block, on every GPU.
inline constexpr int64_t kMaxThreads = 1024;

inline const GridAxisInfo& info_of(GridAxis axis) { return kGridAxes[static_cast<size_t>(axis)]; }
inline bool is_block_axis(GridAxis axis) { return axis <= GridAxis::block_x; }
std::optional<GridAxis> parse_grid_axis(std::string_view name);

// The axis that a bound loop names; empty for any other loop.
std::optional<GridAxis> grid_axis(const For& loop);
bool is_block_loop(const For& loop);
bool is_thread_loop(const For& loop);
bool has_bound_loop(const Stmt& s);
// A serial loop around launches, which the host carries out once for each of its iterations, in order (the steps of a recurrence).
bool is_launch_loop(const Stmt& s);
// A loop over threads along which a block reduces (annotation "cross"): they combine their values.
inline constexpr const char* kCross = "cross";
inline bool is_cross_loop(const For& loop) {
  return is_thread_loop(loop) && loop.annotations.count(kCross) != 0;
}

// Whether the threads of a warp exchange values of the type (shuffles), and so reduce together.
inline bool is_shuffled(ElementType type) { return bit_width(type) == 32 || bit_width(type) == 64; }

// A fact of a function: how long the rows of a buffer in shared memory are (storage_align.cpp), "factor:offset".
inline constexpr const char* kStorageAlign = "storage_align.";
// The row length, at least as long as it is, that the fact asks for; the same without one.
int64_t aligned_row(const Func& f, const Buffer& buffer, int64_t length);

// A statement in the form of a launch (tensor/passes/form_launches.h): loops over blocks, allocations, loops over threads, and
// inside these no bound loop. Empty loops where the statement has another form.
struct LaunchForm {
  std::vector<const For*> blocks, threads;  // outermost first
  std::vector<Buffer> shared;
  Stmt body;
};
std::optional<LaunchForm> as_launch(const Stmt& s);

}  // namespace mcc::tensor
