// Building a tensor function from compute definitions, as operators do.
//
//   FuncBuilder b("matmul");
//   Buffer x = b.input("x", f32, {m, k}), w = b.input("w", f32, {k, n});
//   Buffer y = b.reduce("y", f32, {m, n}, {k}, Reducer::sum, [&](Axes s, Axes r) {
//     return load(x, {s[0], r[0]}) * load(w, {r[0], s[1]}); });
//   Func f = b.finish({y});
//
// Every buffer that is not an input or output is an intermediate of the function. What has no elements is computed by no block, and
// a reduction over nothing is its identity.
#pragma once

#include <functional>
#include <span>

#include "tensor/stmt.h"

namespace mcc::tensor {

using Axes = std::span<const Expr>;

enum class Reducer : uint8_t { sum, product, min, max, any, all };

// The identity of a reducer in an element type (0, 1, +inf or the largest value, ...).
Expr identity(Reducer reducer, ElementType element);
Expr combine(Reducer reducer, const Expr& a, const Expr& b);

class FuncBuilder {
 public:
  explicit FuncBuilder(std::string name) : name_(std::move(name)) {}

  Buffer input(std::string name, ElementType element, std::vector<Expr> shape);
  // A symbolic dimension, an i64 argument of the function.
  Var dim(std::string name);

  // out[i...] = f(i...): one spatial axis a dimension.
  Buffer compute(std::string name, ElementType element, std::vector<Expr> shape,
                 const std::function<Expr(Axes)>& f);

  // out[s...] = reducer over r... of f(s..., r...).
  Buffer reduce(std::string name, ElementType element, std::vector<Expr> shape,
                std::vector<Expr> reduce_extents, Reducer reducer, const std::function<Expr(Axes, Axes)>& f);

  // A block with explicit loops around it, for what the two above cannot say (scatter, scan). body gets one
  // variable for each axis. Axis kinds say what schedules may do; the block's buffers must exist (new_buffer).
  struct AxisSpec {
    std::string name;
    Expr extent;
    AxisKind kind = AxisKind::spatial;
  };
  // init: before the first step of the axes that are not spatial, or of the scan around (serial_loop).
  void block(std::string name, std::vector<AxisSpec> axes, const std::function<Stmt(Axes)>& body,
             const std::function<Stmt(Axes)>& init = nullptr);
  // Serial loop around everything emitted inside body (a scan over time steps). The blocks inside bind an
  // axis of kind scan to it.
  void serial_loop(std::string name, Expr extent, const std::function<void(Expr)>& body);
  Buffer new_buffer(std::string name, ElementType element, std::vector<Expr> shape);

  // Number of blocks so far; names are made unique by a suffix when taken.
  std::string unique_name(const std::string& base);

  // Turns the outputs into parameters. An output that is an input is copied by an extra block.
  Func finish(const std::vector<Buffer>& outputs);

 private:
  void add(Stmt loops);
  std::string name_;
  std::vector<Buffer> inputs_, allocs_;
  std::vector<Var> dims_;
  std::vector<std::vector<Stmt>> stack_{1};
  std::vector<Expr> scan_vars_;
  std::map<std::string, int> names_;
};

}  // namespace mcc::tensor
