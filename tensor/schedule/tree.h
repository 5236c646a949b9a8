// What schedule steps ask of, and do to, the tree of loops and blocks: finding, replacing, naming, binding.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tensor/simplify.h"
#include "tensor/stmt.h"
#include "tensor/visit.h"

namespace mcc::tensor {

// ---- Finding ----

// A block with the loops around it, outermost first.
struct BlockSite {
  const Block* block = nullptr;
  std::vector<const For*> loops;
};

// All blocks with their loops, in program order.
std::vector<BlockSite> block_sites(const Stmt& body);
// The loops around a statement of the tree, outermost first.
std::vector<const For*> loops_around(const Stmt& body, const StmtNode* node);
const BlockSite* find_site(const std::vector<BlockSite>& sites, const std::string& block);
// The number of loops, from the outermost, that two blocks have in common.
size_t common_loops(const BlockSite& a, const BlockSite& b);
bool is_under(const BlockSite& site, const For* loop);
// The loops in a statement, in program order; not those inside block bodies.
std::vector<const For*> loops_below(const Stmt& body);
// The loop and all loops below it in a chain of directly nested loops.
std::vector<const For*> chain_from(const For* loop);

bool reads_buffer(const Block& block, const Buffer& buffer);
bool writes_buffer(const Block& block, const Buffer& buffer);
// The only buffer that the block writes; undefined if there are several.
Buffer only_buffer_written(const Block& block);
// Null if there is no such buffer among parameters and intermediates.
Buffer find_buffer(const Func& f, const std::string& name);
bool is_intermediate(const Func& f, const Buffer& buffer);

// ---- Editing: each copies the path from the root to the place ----

// Loops left without a body go, too. An undefined `to` removes.
Stmt replace_stmt(const Stmt& root, const StmtNode* from, const Stmt& to);
Stmt insert_before(const Stmt& root, const Stmt& anchor, const Stmt& stmt);
Stmt insert_after(const Stmt& root, const Stmt& anchor, const Stmt& stmt);
// f for every block; the tree is rebuilt where f gives another statement.
Stmt map_blocks(const Stmt& root, const std::function<Stmt(const Block&, const Stmt&)>& f);
// A block whose regions are derived anew from its body. Takes ownership.
Stmt make_block(Block* block);
// The statement handle of a node that is in the tree.
inline Stmt handle(const StmtNode* node) { return Stmt(node); }
Stmt with_loop_kind(const Func& f, const For* loop, LoopKind kind);

// The loops of a new nest, outermost first.
struct LoopSpec {
  Var var;
  Expr extent;
  LoopKind kind = LoopKind::serial;
  Annotation thread = {};  // of a bound loop: its axis
};
Stmt make_nest(const std::vector<LoopSpec>& loops, Stmt body);

// ---- Names ----

// May stand for a loop, block or buffer: letters, digits, '_' and '.', not starting with a digit or '.'.
bool is_name(const std::string& name);

// The names of a function: loops, blocks, buffers, dimensions.
class Names {
 public:
  explicit Names(const Func& f);
  bool taken(const std::string& name) const { return names_.count(name) != 0; }
  // base, or base_1, base_2, ... The result counts as taken from then on.
  std::string unique(const std::string& base);

 private:
  std::set<std::string> names_;
};

// The part of a loop's name behind its block's: "conv.oc.1" of block "conv" is "oc.1".
std::string name_in_block(const std::string& loop, const std::string& block);

// ---- Bindings ----

struct AxisKinds {
  bool spatial = false, reduce = false, scan = false;
  bool any() const { return spatial || reduce || scan; }
};
// A block with this annotation may run an instance more than once, in different iterations of the loops around: its
// place was chosen by where its values are needed, and needs overlap. Without it each instance runs once.
inline constexpr const char* kRecomputed = "recomputed";
inline bool is_recomputed(const Block& block) { return block.annotations.count(kRecomputed) != 0; }
void set_recomputed(Block* block, bool recomputed);

// The kinds of the block's axes whose value mentions the loop variable.
AxisKinds axes_bound_to(const Block& block, const Var& loop);
// The same for all blocks below the loop.
AxisKinds axes_bound_below(const Stmt& body, const Var& loop);

bool uses_any(const Expr& e, const std::vector<const For*>& loops);

// Knows the function's dimensions and the given loops.
Analyzer analyzer_at(const Func& f, const std::vector<const For*>& loops);

// Replaces loop variables in s (bindings, predicates, bounds of loops) and adds a condition to every block's predicate.
// What changes is simplified; the analyzer knows the loops around s.
Stmt rebind(const Stmt& s, const VarMap& map, const Expr& condition, const Analyzer& analyzer);

// Simplifies the indices and conditions in a block's body and init, knowing its axes' domains.
Stmt simplify_accesses(const Func& f, const Block& block);

}  // namespace mcc::tensor
