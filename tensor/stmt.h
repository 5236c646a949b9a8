// Statements and functions of the tensor IR.
//
// Before lowering, computation stands in blocks: a block has axes (spatial, reduce or scan), each bound to an
// expression of the loops around it, the regions it reads and writes, an optional init, and a body over its
// axes. Schedule steps move and reshape the loops; the block says what they may do. Lowering turns blocks into
// plain loops (tensor/passes/).
#pragma once

#include <map>
#include <variant>

#include "tensor/expr.h"

namespace mcc::tensor {

#define MCC_STMT_NODES(X) \
  X(For)                  \
  X(Block)                \
  X(Store)                \
  X(Seq)                  \
  X(If)                   \
  X(Let)                  \
  X(Allocate)             \
  X(Evaluate)

enum class StmtKind : uint8_t {
#define X(Name) Name,
  MCC_STMT_NODES(X)
#undef X
};

struct StmtNode : RefCounted {
  explicit StmtNode(StmtKind k) : kind(k) {}
  const StmtKind kind;
};

class Stmt : public Ref<const StmtNode> {
 public:
  Stmt() = default;
  Stmt(std::nullptr_t) {}
  explicit Stmt(const StmtNode* node) : Ref(node) {}
  StmtKind kind() const { return get()->kind; }
  template <class T>
  const T* as() const {
    return get() && get()->kind == T::kKind ? static_cast<const T*>(get()) : nullptr;
  }
};

// Named facts on a loop, block or function, in the order of their names.
using Annotation = std::variant<int64_t, std::string>;
using Annotations = std::map<std::string, Annotation>;

// How the iterations of a loop are carried out.
//   parallel    in any order, by several threads
//   vectorized  as the lanes of vectors (the extent becomes the number of lanes)
//   unrolled    as copies of the body
//   bound       as a GPU grid or thread axis (annotation "thread": "block.x", "thread.x", ...)
enum class LoopKind : uint8_t { serial, parallel, vectorized, unrolled, bound };

// for var in min .. min+extent
struct For : StmtNode {
  static constexpr StmtKind kKind = StmtKind::For;
  For(Var v, Expr m, Expr e, LoopKind k, Stmt b, Annotations a)
      : StmtNode(kKind),
        var(std::move(v)),
        min(std::move(m)),
        extent(std::move(e)),
        loop(k),
        body(std::move(b)),
        annotations(std::move(a)) {}
  static Stmt make(Var var, Expr min, Expr extent, LoopKind loop, Stmt body, Annotations annotations = {});
  const Var var;
  const Expr min, extent;
  const LoopKind loop;
  const Stmt body;
  const Annotations annotations;
};

struct Range {
  Expr min, extent;
};

// A box of a buffer, in terms of the block's axes.
struct Region {
  Buffer buffer;
  std::vector<Range> ranges;
};

// spatial: instances are independent. reduce: instances combine into the same elements, in any order.
// scan: instances depend on earlier ones and run in order.
enum class AxisKind : uint8_t { spatial, reduce, scan };

struct Axis {
  Var var;
  Range domain;
  AxisKind kind = AxisKind::spatial;
};

// One instance for each value of the axes. values[i] binds axes[i] to the surrounding loops; instances for which
// predicate (over loop variables) is false are not run. init, if any, runs before the first reduction step of
// each spatial instance; of a block without reduce axes before its first step of a scan. Names are unique in a function.
struct Block : StmtNode {
  static constexpr StmtKind kKind = StmtKind::Block;
  Block() : StmtNode(kKind) {}
  std::string name;
  std::vector<Axis> axes;
  std::vector<Expr> values;
  Expr predicate = true_value();
  std::vector<Region> reads, writes;
  Stmt init;
  Stmt body;
  Annotations annotations;

  // Takes ownership of a filled-in block. Empty reads and writes are derived from the body.
  static Stmt make(Block* block);
  Block* copy() const;  // a new node to modify and pass to make()
  // The kind of the axes before whose first step the init runs.
  AxisKind kind_of_steps() const;
};

// buffer[indices] = value, lane by lane (lanes as in Load). Lanes with a false predicate are not written. Two
// lanes never write the same element.
struct Store : StmtNode {
  static constexpr StmtKind kKind = StmtKind::Store;
  Store(Buffer b, std::vector<Expr> i, Expr v, Expr p)
      : StmtNode(kKind),
        buffer(std::move(b)),
        indices(std::move(i)),
        value(std::move(v)),
        predicate(std::move(p)) {}
  static Stmt make(Buffer buffer, std::vector<Expr> indices, Expr value, Expr predicate = nullptr);
  const Buffer buffer;
  const std::vector<Expr> indices;
  const Expr value;
  const Expr predicate;
};

// One after the other. Nested sequences are flattened; a sequence of one is that one.
struct Seq : StmtNode {
  static constexpr StmtKind kKind = StmtKind::Seq;
  explicit Seq(std::vector<Stmt> s) : StmtNode(kKind), stmts(std::move(s)) {}
  static Stmt make(std::vector<Stmt> stmts);
  const std::vector<Stmt> stmts;
};

struct If : StmtNode {
  static constexpr StmtKind kKind = StmtKind::If;
  If(Expr c, Stmt t, Stmt e)
      : StmtNode(kKind), condition(std::move(c)), then_body(std::move(t)), else_body(std::move(e)) {}
  static Stmt make(Expr condition, Stmt then_body, Stmt else_body = nullptr);
  const Expr condition;
  const Stmt then_body, else_body;
};

struct Let : StmtNode {
  static constexpr StmtKind kKind = StmtKind::Let;
  Let(Var v, Expr x, Stmt b) : StmtNode(kKind), var(std::move(v)), value(std::move(x)), body(std::move(b)) {}
  static Stmt make(Var var, Expr value, Stmt body);
  const Var var;
  const Expr value;
  const Stmt body;
};

// The buffer exists (uninitialised) during body. Before lowering, buffers stand in Func::allocs instead.
struct Allocate : StmtNode {
  static constexpr StmtKind kKind = StmtKind::Allocate;
  Allocate(Buffer b, Stmt s) : StmtNode(kKind), buffer(std::move(b)), body(std::move(s)) {}
  static Stmt make(Buffer buffer, Stmt body);
  const Buffer buffer;
  const Stmt body;
};

// A call for its effect (prefetch).
struct Evaluate : StmtNode {
  static constexpr StmtKind kKind = StmtKind::Evaluate;
  explicit Evaluate(Expr v) : StmtNode(kKind), value(std::move(v)) {}
  static Stmt make(Expr value);
  const Expr value;
};

// A kernel. params: first the inputs, then num_outputs outputs; no two overlap unless the caller knows that the
// kernel allows it. dims: symbolic dimensions, 64-bit arguments. allocs: intermediates of the whole function;
// lowering puts each where it is needed and shrinks it.
struct Func {
  std::string name;
  std::vector<Buffer> params;
  int num_outputs = 0;
  std::vector<Var> dims;
  std::vector<Buffer> allocs;
  Stmt body;
  Annotations annotations;

  int num_inputs() const { return static_cast<int>(params.size()) - num_outputs; }
};

std::string_view to_text(LoopKind kind);
std::string_view to_text(AxisKind kind);

}  // namespace mcc::tensor
