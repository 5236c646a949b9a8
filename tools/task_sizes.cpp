#include "tools/task_sizes.h"

#include <algorithm>
#include <charconv>

#include "tensor/simplify.h"
#include "tensor/sizes.h"
#include "tensor/visit.h"

namespace mcc::tools {

namespace {

using graph::DimSource;

Diagnostic usage(std::string message, std::string hint = "") {
  return {ErrorKind::usage, "--tune-dim", std::move(message), std::move(hint)};
}

// What two sides of the equality are with these sizes; nothing where data decides one of them.
std::optional<bool> holds(const graph::DimEquality& equality, const tensor::VarMap& sizes) {
  int64_t a = 0, b = 0;
  const bool are_known = as_int(simplify(substitute(equality.a, sizes)), &a) &&
                         as_int(simplify(substitute(equality.b, sizes)), &b);
  return are_known ? std::optional(a == b) : std::nullopt;
}

// The first equality that does not hold.
const graph::DimEquality* broken(const graph::Graph& graph, const std::vector<tensor::Var>& dims,
                                 const std::vector<int64_t>& sizes) {
  tensor::VarMap values;
  for (size_t i = 0; i < dims.size(); ++i)
    values[dims[i].get()] = sizes[i];
  for (const graph::DimEquality& equality : graph.equalities)
    if (!holds(equality, values).value_or(true)) return &equality;
  return nullptr;
}

// Two dimensions of inputs that a node takes to be equal: one of them follows from the other.
void make_equal(const graph::Graph& graph, const std::vector<tensor::Var>& dims,
                const std::vector<bool>& is_given, std::vector<int64_t>& sizes) {
  auto index_of = [&](const tensor::Expr& e) {
    return static_cast<size_t>(
        std::find_if(dims.begin(), dims.end(), [&](const tensor::Var& d) { return d.same_as(e); }) -
        dims.begin());
  };
  for (const graph::DimEquality& equality : graph.equalities) {
    const size_t a = index_of(equality.a), b = index_of(equality.b);
    if (a == dims.size() || b == dims.size()) continue;
    if (is_given[b] && !is_given[a])
      sizes[a] = sizes[b];
    else if (!is_given[b])
      sizes[b] = sizes[a];
  }
}

// Another size of the dimension: five eighths of it and odd, or the next one.
int64_t odd_size(int64_t size, const graph::DimRange& range) {
  const int64_t other = std::clamp(size * 5 / 8 | 1, range.min, range.max);
  return other != size ? other : std::min(size + 1, range.max);
}

int64_t half_size(int64_t size, const graph::DimRange& range) {
  return std::clamp(size / 2, range.min, range.max);
}
int64_t twice_the_size(int64_t size, const graph::DimRange& range) {
  return std::clamp(size * 2, range.min, range.max);
}

}  // namespace

std::optional<std::vector<std::vector<int64_t>>> TaskSizes::samples_of(const tensor::Func& f) const {
  std::vector<std::vector<int64_t>> out(f.dims.empty() ? 0 : samples.size());
  for (const tensor::Var& dim : f.dims) {
    const auto at =
        std::find_if(dims.begin(), dims.end(), [&](const tensor::Var& d) { return d.same_as(dim); });
    if (at == dims.end()) return std::nullopt;
    for (size_t i = 0; i < samples.size(); ++i)
      out[i].push_back(samples[i][static_cast<size_t>(at - dims.begin())]);
  }
  return out;
}

Result<TaskSizes> choose_task_sizes(const graph::Graph& graph, const std::map<std::string, int64_t>& given) {
  TaskSizes out;
  std::vector<graph::DimRange> ranges;
  std::vector<int64_t> sizes;
  std::vector<bool> is_given;
  std::vector<std::string> names;
  for (size_t i = 0; i < graph.dims.size(); ++i) {
    if (graph.dim_sources[i].kind != DimSource::Kind::input) continue;
    const std::string& name = names.emplace_back(graph.dims[i].name());
    const auto size = given.find(name);
    out.dims.push_back(graph.dims[i]);
    ranges.push_back(graph.dim_ranges[i]);
    is_given.push_back(size != given.end());
    sizes.push_back(is_given.back() ? size->second : typical_size(ranges.back()));
    if (sizes.back() < ranges.back().min || sizes.back() > ranges.back().max) {
      return usage(text(name, "=", sizes.back(), ": the model takes sizes from ", ranges.back().min, " to ",
                        ranges.back().max));
    }
  }
  for (const auto& [name, size] : given) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    return usage(text("the model has no open dimension '", name, "'"),
                 names.empty() ? "all its dimensions have a value" : text("it has ", join(names, ", ")));
  }
  make_equal(graph, out.dims, is_given, sizes);
  for (size_t i = 0; i < names.size(); ++i)
    out.by_name[names[i]] = sizes[i];
  if (const graph::DimEquality* wrong = broken(graph, out.dims, sizes)) {
    return usage(text("the model does not run with ", sizes_text(out.by_name), ": ", wrong->where),
                 "give sizes that go together");
  }
  if (names.empty()) return out;
  out.samples.push_back(sizes);
  for (auto* other_size : {odd_size, half_size, twice_the_size}) {
    std::vector<int64_t> other;
    for (size_t i = 0; i < sizes.size(); ++i)
      other.push_back(other_size(sizes[i], ranges[i]));
    make_equal(graph, out.dims, std::vector<bool>(sizes.size()), other);
    if (other == sizes || broken(graph, out.dims, other) != nullptr) continue;
    out.samples.push_back(std::move(other));
    break;
  }
  return out;
}

Status parse_task_size(const std::string& spec, std::map<std::string, int64_t>& sizes) {
  const size_t split = spec.rfind('=');
  const std::string digits = split == std::string::npos ? "" : spec.substr(split + 1);
  int64_t size = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || size < 1 ||
      split == 0)
    return usage(text(spec, ": expected NAME=8"));
  if (!sizes.try_emplace(spec.substr(0, split), size).second)
    return usage(text(spec.substr(0, split), " is given twice"));
  return done();
}

std::string sizes_text(const std::map<std::string, int64_t>& sizes) {
  std::vector<std::string> parts;
  for (const auto& [name, size] : sizes)
    parts.push_back(text(name, "=", size));
  return join(parts, " ");
}

std::string of_data_text(int64_t kernels) {
  return text(kernels, kernels == 1 ? " kernel is" : " kernels are", " left out: data decides ",
              kernels == 1 ? "its" : "their",
              " sizes while the model runs; compile uses the default schedule", kernels == 1 ? "" : "s");
}

}  // namespace mcc::tools
