#include "codegen/launch_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "tensor/grid.h"
#include "tensor/visit.h"

namespace mcc::codegen {

using namespace tensor;

namespace {

constexpr int64_t kAlign = 64;
// Of one thread: what is not in registers lives in device memory, for all threads that are resident at once.
constexpr int64_t kMaxPrivateBytes = 16 << 10;
// Of all architectures; later ones take more from PTX 8.1 on.
constexpr size_t kMaxParameterBytes = 4 << 10;
// Launches of one run of a kernel.
constexpr size_t kMostTurns = 1 << 16;
// What a library may use for a product, as NVIDIA advises for cuBLAS.
constexpr int64_t kLibraryBytes = 4 << 20, kLibraryBytesFrom90On = 32 << 20;
// Of what the library is given, as its addresses are aligned more than buffers are.
constexpr int64_t kLibraryAlign = 256;

// What a statement outside of the grid is called in a message: the buffer that it writes first.
std::string name_of(const Stmt& s) {
  std::string name;
  for_each_stmt(s, [&](const Stmt& part) {
    const auto* store = part.as<Store>();
    if (store && name.empty()) name = store->buffer.name();
  });
  return name.empty() ? "without a result" : name;
}

class Planner : public Visitor {
  static constexpr size_t kMatrix = 3;  // of bulk_copy's arguments

 public:
  Planner(const Func& func, const Gpu& gpu, DevicePlan* plan) : func_(func), gpu_(gpu), plan_(plan) {
    for (size_t i = 0; i < func.params.size(); ++i)
      numbers_[func.params[i].get()] = static_cast<int>(i);
  }

  Diagnostics errors;

  // What stands outside of the launches.
  void cut(const Stmt& s) {
    if (const auto* seq = s.as<Seq>()) {
      for (const Stmt& part : seq->stmts)
        cut(part);
    } else if (const auto* allocate = s.as<Allocate>();
               allocate && allocate->buffer.scope() == Scope::global) {
      add_workspace(allocate->buffer);
      cut(allocate->body);
    } else if (const auto* let = s.as<Let>(); let && has_bound_loop(s)) {
      lets_.push_back(let);
      cut(let->body);
      lets_.pop_back();
    } else if (const auto* loop = s.as<For>(); loop && loop->loop == LoopKind::bound) {
      add_launch(s);
    } else if (is_launch_loop(s)) {
      repeat(*s.as<For>());
    } else if (is_library_nest(s)) {
      add_call(*s.as<For>());
    } else {
      refuse(text("kernel part '", name_of(s), "' is not bound to the grid"));
    }
  }

 protected:
  using Visitor::on;

  void on(const For& n) override {
    if (n.loop == LoopKind::bound) {
      const For*& axis = launch_->axes[static_cast<size_t>(thread_axis(n))];
      MCC_CHECK(axis == nullptr, func_.name, ": loop ", n.var.name(),
                " is bound to an axis that another one has");
      axis = &n;
    }
    Visitor::on(n);
  }
  void on(const Allocate& n) override {
    place(n.buffer);
    Visitor::on(n);
  }
  void on(const Load& n) override {
    use(n.buffer, false);
    Visitor::on(n);
  }
  void on(const Store& n) override {
    use(n.buffer, true);
    Visitor::on(n);
  }
  void on(const Call& n) override {
    if (n.function != Intrinsic::bulk_copy) return Visitor::on(n);
    // The matrix is known by its map alone.
    for (size_t i = 0; i < n.args.size(); ++i) {
      if (i != kMatrix) visit(n.args[i]);
    }
    const Buffer& matrix = n.args[kMatrix].as<Load>()->buffer;
    TensorMap map{numbers_.at(matrix.get()), byte_size(matrix.element())};
    int64_t elements = 0;
    const bool is_known = as_int(n.args[2], &map.swizzle) && as_int(n.args[4], &map.width) &&
                          as_int(n.args[5], &map.box_height) && as_int(n.args[6], &map.box_width) &&
                          as_int(matrix.shape()[0], &elements);
    MCC_CHECK(is_known, "a box of other than constant size of ", matrix.name());
    map.height = elements / map.width;
    auto it = std::find(launch_->maps.begin(), launch_->maps.end(), map);
    launch_->map_of[&n] = static_cast<size_t>(it - launch_->maps.begin());
    if (it == launch_->maps.end()) launch_->maps.push_back(map);
  }
  void on(const VarNode& n) override {
    for (size_t i = 0; i < func_.dims.size(); ++i)
      if (func_.dims[i].get() == &n) dims_.insert(static_cast<int>(i));
  }

 private:
  // What is in the loop: an iteration of it; of a loop inside of another one all of them.
  void repeat(const For& loop) {
    const size_t from = plan_->turns.size(), depth = steps_.size();
    steps_.push_back(&loop);
    cut(loop.body);
    steps_.pop_back();
    int64_t first = 0, count = 0;
    const bool is_constant = as_int(loop.extent, &count);
    if (!as_int(loop.min, &first) || first < 0 || (depth > 0 && !is_constant) || !is_of_dims(loop.extent))
      return refuse(
          text("loop ", loop.var.name(), " around launches has bounds that are not known before the run"));
    if (depth == 0) {
      if (plan_->turns.size() == from) return;
      plan_->turns[from].loop = &loop;
      plan_->turns[from].loop_turns = plan_->turns.size() - from;
      return;
    }
    const std::vector<Turn> once(plan_->turns.begin() + static_cast<std::ptrdiff_t>(from),
                                 plan_->turns.end());
    if (count > 0 && once.size() > kMostTurns / static_cast<size_t>(count))
      return refuse(text(count, " iterations of loop ", loop.var.name(), " around launches are more than ",
                         kMostTurns, " launches"));
    plan_->turns.resize(from);
    for (int64_t i = first; i < first + count; ++i) {
      for (Turn turn : once) {
        turn.values[depth - 1] = i;
        plan_->turns.push_back(std::move(turn));
      }
    }
  }
  bool is_of_dims(const Expr& e) const {
    bool is_of_dims = true;
    for_each_expr(Evaluate::make(e), [&](const Expr& below) {
      const auto* var = below.as<VarNode>();
      is_of_dims &= below.as<Load>() == nullptr &&
                    (var == nullptr || std::any_of(func_.dims.begin(), func_.dims.end(),
                                                   [&](const Var& dim) { return dim.get() == var; }));
    });
    return is_of_dims;
  }

  void add(LaunchPlan launch) {
    plan_->turns.push_back(
        {plan_->launches.size(), std::vector<int64_t>(launch.steps.empty() ? 0 : launch.steps.size() - 1)});
    plan_->launches.push_back(std::move(launch));
  }

  void refuse(std::string message) {
    errors.push_back({ErrorKind::unsupported, func_.name, std::move(message), ""});
  }

  void add_workspace(const Buffer& buffer) {
    Expr bytes = byte_size(buffer.element());
    for (const Expr& extent : buffer.shape())
      bytes = bytes * extent;
    Placement p;
    p.home = Home::workspace;
    p.index = static_cast<int>(plan_->memory.memory.workspaces.size());
    plan_->memory.memory.workspaces.push_back(bytes);
    plan_->memory.placements.emplace(buffer.get(), p);
    numbers_[buffer.get()] = static_cast<int>(func_.params.size()) + p.index;
  }

  // The calls of a kernel come one after the other: they share a workspace.
  void add_call(const For& nest) {
    Result<LibraryProduct> product = library_product(nest);
    if (!product.ok()) return refuse(product.errors()[0].message);
    const int64_t bytes = gpu_.sm() >= 90 ? kLibraryBytesFrom90On : kLibraryBytes;
    if (library_workspace_ < 0) {
      std::vector<Expr>& workspaces = plan_->memory.memory.workspaces;
      library_workspace_ = static_cast<int>(func_.params.size() + workspaces.size());
      workspaces.emplace_back(bytes + kLibraryAlign);
    }
    LaunchPlan launch;
    launch.steps = steps_;
    auto take = [&](const Buffer& buffer) { launch.buffers.push_back(numbers_.at(buffer.get())); };
    for (const LibraryMatrix* matrix : {&product->b, &product->a, &product->d})
      take(matrix->buffer);
    if (product->addend) take(product->addend->buffer);
    if (product->bias) take(*product->bias);
    launch.buffers.push_back(library_workspace_);
    launch.product = std::move(*product);
    launch.library_bytes = bytes;
    add(std::move(launch));
  }

  void add_launch(const Stmt& nest) {
    LaunchPlan launch;
    launch.nest = nest;
    launch.steps = steps_;
    launch.lets = lets_;
    launch_ = &launch;
    buffers_.clear();
    dims_.clear();
    private_bytes_ = 0;
    for (const Let* let : lets_)
      visit(let->value);
    visit(nest);
    for (const auto& [number, is_written] : buffers_) {
      launch.buffers.push_back(number);
      launch.is_written.push_back(is_written);
    }
    launch.dims.assign(dims_.begin(), dims_.end());
    check(launch);
    add(std::move(launch));
  }

  void place(const Buffer& buffer) {
    Expr count = byte_size(buffer.element());
    for (const Expr& extent : buffer.shape())
      count = count * extent;
    Placement p;
    if (!as_int(count, &p.bytes)) {
      refuse(text("buffer '", buffer.name(), "' is private to a block or thread and has no constant size"));
      return;
    }
    if (buffer.scope() == Scope::shared) {
      p.home = Home::shared;
      const int64_t align = std::max<int64_t>(kAlign, buffer->alignment);
      p.offset = (launch_->shared_bytes + align - 1) / align * align;
      launch_->shared_bytes = p.offset + (p.bytes + kAlign - 1) / kAlign * kAlign;
      launch_->shared_align = std::max(launch_->shared_align, align);
    } else if (buffer.scope() == Scope::global) {
      refuse(text("buffer '", buffer.name(), "' is in device memory but belongs to one thread"));
    } else {
      p.home = Home::stack;
      if (buffer.scope() == Scope::local) private_bytes_ += p.bytes;
    }
    plan_->memory.placements.emplace(buffer.get(), p);
  }

  void use(const Buffer& buffer, bool is_written) {
    if (auto it = numbers_.find(buffer.get()); it != numbers_.end()) buffers_[it->second] |= is_written;
  }

  void check(const LaunchPlan& launch) {
    int64_t threads = 1;
    for (int axis = 0; axis < kThreadAxes; ++axis) {
      const For* loop = launch.axes[static_cast<size_t>(axis)];
      int64_t extent = 0;
      if (!loop || !as_int(loop->extent, &extent)) continue;
      if (axis >= 3 && __builtin_mul_overflow(threads, extent, &threads))
        threads = std::numeric_limits<int64_t>::max();
      const GridAxisInfo& info = info_of(*grid_axis(*loop));
      if (axis < 3 && extent > info.most)
        refuse(text(extent, " blocks along ", info.name, ", a GPU has at most ", info.most));
    }
    if (threads > gpu_.threads_per_block)
      refuse(text("a block of ", threads, " threads, ", gpu_.arch, " has at most ", gpu_.threads_per_block));
    if (launch.shared_bytes > gpu_.shared_per_block_max)
      refuse(text("a block needs ", launch.shared_bytes, " bytes of shared memory, ", gpu_.arch,
                  " has at most ", gpu_.shared_per_block_max));
    const size_t parameters =
        sizeof(int64_t) * (launch.buffers.size() + launch.dims.size() + launch.steps.size()) +
        kMapBytes * launch.maps.size();
    if (parameters > kMaxParameterBytes)
      refuse(text("a launch has ", parameters, " bytes of parameters, a GPU takes at most ", kMaxParameterBytes));
    if (private_bytes_ > kMaxPrivateBytes)
      refuse(text("a thread needs ", private_bytes_, " bytes of private memory, at most ", kMaxPrivateBytes,
                  " are given"));
  }

  const Func& func_;
  const Gpu& gpu_;
  DevicePlan* plan_;
  LaunchPlan* launch_ = nullptr;
  std::unordered_map<const BufferNode*, int> numbers_;  // of params and workspaces
  std::vector<const For*> steps_;
  std::vector<const Let*> lets_;
  std::map<int, bool> buffers_;  // that the launch uses, and whether it writes to them
  std::set<int> dims_;
  int64_t private_bytes_ = 0;
  int library_workspace_ = -1;  // number of its buffer
};

}  // namespace

int thread_axis(const For& loop) {
  std::optional<GridAxis> axis = grid_axis(loop);
  MCC_CHECK(axis, "loop ", loop.var.name(), " is bound to nothing");
  return (is_block_axis(*axis) ? 2 : 8) - static_cast<int>(*axis);
}

Result<DevicePlan> plan_device(const Func& lowered, const Gpu& gpu) {
  DevicePlan plan;
  Planner planner(lowered, gpu, &plan);
  if (lowered.body) planner.cut(lowered.body);
  if (!planner.errors.empty()) return planner.errors;
  return plan;
}

}  // namespace mcc::codegen
