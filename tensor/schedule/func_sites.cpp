#include "tensor/schedule/func_sites.h"

#include <algorithm>

namespace mcc::tensor {

FuncSites::FuncSites(const Func& f) : body_(f.body), all_(block_sites(f.body)) {
  for (size_t i = 0; i < all_.size(); ++i) {
    const BlockSite& site = all_[i];
    for (const std::vector<Region>* regions : {&site.block->reads, &site.block->writes}) {
      for (const Region& r : *regions) {
        std::vector<const BlockSite*>& users = users_[r.buffer.get()];
        if (users.empty() || users.back() != &site) users.push_back(&site);
      }
    }
    for (const For* loop : site.loops)
      below_.try_emplace(loop, i, i).first->second.second = i + 1;
  }
}

const std::vector<const BlockSite*>& FuncSites::users(const Buffer& buffer) const {
  static const std::vector<const BlockSite*> none;
  const auto found = users_.find(buffer.get());
  return found == users_.end() ? none : found->second;
}

std::span<const BlockSite> FuncSites::below(const For* loop) const {
  const auto found = below_.find(loop);
  if (found == below_.end()) return {};
  const auto [begin, end] = found->second;
  return std::span(all_).subspan(begin, end - begin);
}

std::vector<const For*> FuncSites::around(const For* loop) const {
  const std::span<const BlockSite> sites = below(loop);
  if (sites.empty()) return loops_around(body_, loop);
  const std::vector<const For*>& loops = sites[0].loops;
  return {loops.begin(), std::find(loops.begin(), loops.end(), loop)};
}

}  // namespace mcc::tensor
