#include "tensor/grid.h"

#include <charconv>

#include "tensor/visit.h"

namespace mcc::tensor {

std::optional<GridAxis> parse_grid_axis(std::string_view name) {
  for (const GridAxisInfo& info : kGridAxes) {
    if (info.name == name) return info.axis;
  }
  return std::nullopt;
}

std::optional<GridAxis> grid_axis(const For& loop) {
  if (loop.loop != LoopKind::bound) return std::nullopt;
  auto it = loop.annotations.find("thread");
  const auto* name = it == loop.annotations.end() ? nullptr : std::get_if<std::string>(&it->second);
  return name ? parse_grid_axis(*name) : std::nullopt;
}

bool is_block_loop(const For& loop) {
  auto axis = grid_axis(loop);
  return axis && is_block_axis(*axis);
}

bool is_thread_loop(const For& loop) {
  auto axis = grid_axis(loop);
  return axis && !is_block_axis(*axis);
}

bool has_bound_loop(const Stmt& s) {
  bool found = false;
  for_each_stmt(s, [&](const Stmt& below) {
    const auto* loop = below.as<For>();
    found |= loop && loop->loop == LoopKind::bound;
  });
  return found;
}

bool is_launch_loop(const Stmt& s) {
  const auto* loop = s.as<For>();
  if (!loop || loop->loop != LoopKind::serial) return false;
  bool found = false;
  for_each_stmt(loop->body, [&](const Stmt& below) {
    const auto* inner = below.as<For>();
    found |= inner && is_block_loop(*inner);
  });
  return found;
}

int64_t aligned_row(const Func& f, const Buffer& buffer, int64_t length) {
  auto it = f.annotations.find(kStorageAlign + buffer.name());
  const auto* fact = it == f.annotations.end() ? nullptr : std::get_if<std::string>(&it->second);
  int64_t factor = 0, offset = 0;
  const char* end = fact ? fact->data() + fact->size() : nullptr;
  auto first = fact ? std::from_chars(fact->data(), end, factor)
                    : std::from_chars_result{nullptr, std::errc::invalid_argument};
  if (first.ec != std::errc() || first.ptr == end || factor < 1) return length;
  if (std::from_chars(first.ptr + 1, end, offset).ec != std::errc()) return length;
  return length + ((offset - length) % factor + factor) % factor;
}

std::optional<LaunchForm> as_launch(const Stmt& s) {
  LaunchForm form;
  Stmt at = s;
  while (const auto* loop = at.as<For>()) {
    if (!is_block_loop(*loop)) break;
    form.blocks.push_back(loop);
    at = loop->body;
  }
  while (const auto* allocate = at.as<Allocate>()) {
    if (allocate->buffer.scope() != Scope::shared) break;
    form.shared.push_back(allocate->buffer);
    at = allocate->body;
  }
  while (const auto* loop = at.as<For>()) {
    if (!is_thread_loop(*loop)) break;
    form.threads.push_back(loop);
    at = loop->body;
  }
  if (form.threads.empty() || has_bound_loop(at)) return std::nullopt;
  for (const For* loop : form.threads) {
    if (is_cross_loop(*loop)) return std::nullopt;
  }
  bool has_blocks = false;
  for_each_stmt(at, [&](const Stmt& below) { has_blocks |= below.kind() == StmtKind::Block; });
  if (has_blocks) return std::nullopt;
  form.body = at;
  return form;
}

}  // namespace mcc::tensor
