// The blocks of a function, looked at once for many questions.
#pragma once

#include <span>
#include <unordered_map>

#include "tensor/schedule/tree.h"

namespace mcc::tensor {

// Valid as long as the function's body.
class FuncSites {
 public:
  explicit FuncSites(const Func& f);
  FuncSites(const FuncSites&) = delete;
  FuncSites& operator=(const FuncSites&) = delete;

  // All blocks with their loops, in program order.
  const std::vector<BlockSite>& all() const { return all_; }
  // Those that read or write the buffer.
  const std::vector<const BlockSite*>& users(const Buffer& buffer) const;
  // Those below a loop of the function.
  std::span<const BlockSite> below(const For* loop) const;
  // The loops around a loop of the function, outermost first.
  std::vector<const For*> around(const For* loop) const;

 private:
  const Stmt body_;
  std::vector<BlockSite> all_;
  std::unordered_map<const BufferNode*, std::vector<const BlockSite*>> users_;
  // The places in all_ of the first block below and of the one behind the last.
  std::unordered_map<const For*, std::pair<size_t, size_t>> below_;
};

}  // namespace mcc::tensor
