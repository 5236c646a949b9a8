#include "tuner/template.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "support/check.h"
#include "support/text.h"
#include "tuner/answers.h"

namespace mcc::tuner {

namespace {

using nlohmann::json;

std::vector<int64_t> powers_of_two(int64_t most) {
  std::vector<int64_t> powers;
  for (int64_t p = 1; p <= most; p *= 2)
    powers.push_back(p);
  return powers;
}

// All choices of inner factors, the innermost running fastest in the list.
void list_splits(int64_t extent, const std::vector<int64_t>& factors, bool has_tails,
                 std::vector<int64_t>& inner, size_t levels, std::vector<Entity>& out) {
  if (inner.size() == levels) {
    int64_t product = 1;
    for (int64_t f : inner)
      product *= f;
    if (product > extent || (extent % product != 0 && !has_tails)) return;
    SplitEntity entity{{-1}};
    entity.size.insert(entity.size.end(), inner.begin(), inner.end());
    out.push_back(entity);
    return;
  }
  for (int64_t f : factors) {
    inner.push_back(f);
    list_splits(extent, factors, has_tails, inner, levels, out);
    inner.pop_back();
  }
}

Diagnostic bad_config(const std::string& what) {
  return {ErrorKind::tuning_log, "configuration", what,
          "AutoTVM writes lists like [\"tile_y\", \"sp\", [-1, 8]]"};
}

}  // namespace

std::vector<Entity> split_entities(int64_t extent, const SplitOptions& options) {
  std::vector<Entity> entities;
  std::vector<int64_t> factors;
  switch (options.policy) {
    case SplitPolicy::candidates:
      for (const auto& size : options.candidates)
        entities.push_back(SplitEntity{size});
      break;
    case SplitPolicy::factors:
      factors = divisors_of(extent);
      break;
    case SplitPolicy::power2:
      factors = powers_of_two(extent);
      break;
    case SplitPolicy::verbose: {
      std::vector<int64_t> divisors = divisors_of(extent), twos = powers_of_two(extent);
      std::set_union(divisors.begin(), divisors.end(), twos.begin(), twos.end(), std::back_inserter(factors));
      break;
    }
  }
  std::erase_if(factors, [&](int64_t f) { return f > options.max_factor; });
  if (options.policy != SplitPolicy::candidates) {
    std::vector<int64_t> inner;
    list_splits(extent, factors, options.policy != SplitPolicy::factors, inner,
                static_cast<size_t>(options.outputs - 1), entities);
  }
  if (options.filter) {
    std::erase_if(entities, [&](const Entity& e) { return !options.filter(std::get<SplitEntity>(e)); });
  }
  return entities;
}

std::vector<Entity> reorder_entities(int64_t loops, ReorderPolicy policy,
                                     const std::vector<std::vector<int64_t>>& chains) {
  std::vector<int64_t> perm(static_cast<size_t>(loops));
  std::iota(perm.begin(), perm.end(), 0);
  if (policy == ReorderPolicy::identity) return {ReorderEntity{perm}};
  std::vector<Entity> entities;
  do {
    bool is_kept = true;
    for (const auto& chain : chains) {
      if (policy != ReorderPolicy::interleave) break;
      auto before = [&](int64_t a, int64_t b) {
        return std::find(perm.begin(), perm.end(), a) < std::find(perm.begin(), perm.end(), b);
      };
      for (size_t i = 0; i + 1 < chain.size(); ++i)
        is_kept &= before(chain[i], chain[i + 1]);
    }
    if (is_kept) entities.push_back(ReorderEntity{perm});
  } while (std::next_permutation(perm.begin(), perm.end()));
  return entities;
}

std::vector<Entity> annotate_entities(int64_t loops, AnnotatePolicy policy) {
  auto n = static_cast<size_t>(loops);
  std::vector<Entity> entities;
  auto add = [&](size_t unrolled, bool is_vector) {
    AnnotateEntity entity{std::vector<std::string>(n, "none")};
    if (is_vector) entity.anns[n - 1] = "vec";
    for (size_t i = 0; i < unrolled; ++i)
      entity.anns[n - 1 - i - (is_vector ? 1 : 0)] = "unroll";
    entities.push_back(std::move(entity));
  };
  switch (policy) {
    case AnnotatePolicy::none:
      add(0, false);
      break;
    case AnnotatePolicy::unroll:
      add(n, false);
      break;
    case AnnotatePolicy::vec:
      add(0, true);
      break;
    case AnnotatePolicy::try_unroll:
      for (size_t i = 0; i <= n; ++i)
        add(i, false);
      break;
    case AnnotatePolicy::try_vec:
      add(0, true), add(0, false);
      break;
    case AnnotatePolicy::try_unroll_vec:
      for (size_t i = 0; i < n; ++i)
        add(n - 1 - i, true);
      for (size_t i = 0; i <= n; ++i)
        add(i, false);
      break;
  }
  return entities;
}

int64_t ConfigSpace::size() const {
  int64_t size = 1;
  for (const auto& [name, entities] : entries)
    size *= static_cast<int64_t>(entities.size());
  return size;
}

Config ConfigSpace::at(int64_t index) const {
  MCC_CHECK(index >= 0 && index < size(), "configuration ", index, " of ", size());
  Config config;
  for (const auto& [name, entities] : entries) {
    auto count = static_cast<int64_t>(entities.size());
    config.emplace_back(name, entities[static_cast<size_t>(index % count)]);
    index /= count;
  }
  return config;
}

int64_t ConfigSpace::index_of(const Config& config) const {
  if (config.size() != entries.size()) return -1;
  int64_t index = 0, stride = 1;
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto& [name, entities] = entries[i];
    auto at = std::find(entities.begin(), entities.end(), config[i].second);
    if (config[i].first != name || at == entities.end()) return -1;
    index += stride * (at - entities.begin());
    stride *= static_cast<int64_t>(entities.size());
  }
  return index;
}

std::string config_to_json(const Config& config) {
  json out = json::array();
  for (const auto& [name, entity] : config) {
    json row = json::array({name});
    if (const auto* split = std::get_if<SplitEntity>(&entity))
      row.push_back("sp"), row.push_back(split->size);
    if (const auto* order = std::get_if<ReorderEntity>(&entity))
      row.push_back("re"), row.push_back(order->perm);
    if (const auto* loops = std::get_if<AnnotateEntity>(&entity))
      row.push_back("an"), row.push_back(loops->anns);
    if (const auto* other = std::get_if<OtherEntity>(&entity))
      row.push_back("ot"), row.push_back(other->value);
    out.push_back(std::move(row));
  }
  return out.dump();
}

Result<Config> parse_config(std::string_view source) {
  json rows = json::parse(source, nullptr, false);
  if (!rows.is_array()) return bad_config("is not a list");
  Config config;
  std::set<std::string> names;
  auto is_ints = [](const json& v) {
    return v.is_array() &&
           std::all_of(v.begin(), v.end(), [](const json& x) { return x.is_number_integer(); });
  };
  auto is_words = [](const json& v) {
    return v.is_array() && std::all_of(v.begin(), v.end(), [](const json& x) { return x.is_string(); });
  };
  for (const json& row : rows) {
    if (!row.is_array() || row.size() != 3 || !row[0].is_string() || !row[1].is_string()) {
      return bad_config("expected [name, kind, value], got " + row.dump());
    }
    std::string name = row[0], kind = row[1];
    const json& value = row[2];
    if (!names.insert(name).second) return bad_config("names " + name + " twice");
    if (kind == "sp" && is_ints(value)) {
      config.emplace_back(name, SplitEntity{value.get<std::vector<int64_t>>()});
    } else if (kind == "re" && is_ints(value)) {
      config.emplace_back(name, ReorderEntity{value.get<std::vector<int64_t>>()});
    } else if (kind == "an" && is_words(value)) {
      config.emplace_back(name, AnnotateEntity{value.get<std::vector<std::string>>()});
    } else if (kind == "ot" && (value.is_number_integer() || value.is_boolean())) {
      config.emplace_back(
          name, OtherEntity{value.is_boolean() ? int64_t{value.get<bool>()} : value.get<int64_t>()});
    } else {
      return bad_config("expected a split (sp), reorder (re), annotate (an) or knob (ot), got " + row.dump());
    }
  }
  return config;
}

Entity TemplateSpace::ask(const std::string& name, std::vector<Entity> entities, const Entity& preferred) {
  MCC_CHECK(!entities.empty(), "template of ", block_, ": nothing to choose for ", name);
  std::vector<int64_t> options(entities.size());
  std::iota(options.begin(), options.end(), 0);
  auto at = std::find(entities.begin(), entities.end(), preferred);
  int64_t first = at == entities.end() ? 0 : at - entities.begin();
  int64_t index = options.size() == 1 ? 0 : decide_.choose(block_ + "." + name, options, first);
  Entity entity = entities[static_cast<size_t>(index)];
  config_.emplace_back(name, entity);
  space_.entries.emplace_back(name, std::move(entities));
  return entity;
}

SplitEntity TemplateSpace::split(const std::string& name, int64_t extent, const SplitOptions& options,
                                 const SplitEntity& preferred) {
  return std::get<SplitEntity>(ask(name, split_entities(extent, options), preferred));
}

ReorderEntity TemplateSpace::reorder(const std::string& name, int64_t loops, ReorderPolicy policy,
                                     const std::vector<std::vector<int64_t>>& chains) {
  return std::get<ReorderEntity>(ask(name, reorder_entities(loops, policy, chains), ReorderEntity{}));
}

AnnotateEntity TemplateSpace::annotate(const std::string& name, int64_t loops, AnnotatePolicy policy) {
  return std::get<AnnotateEntity>(ask(name, annotate_entities(loops, policy), AnnotateEntity{}));
}

OtherEntity TemplateSpace::knob(const std::string& name, const std::vector<int64_t>& values) {
  std::vector<Entity> entities;
  for (int64_t value : values)
    entities.push_back(OtherEntity{value});
  return std::get<OtherEntity>(ask(name, std::move(entities), OtherEntity{values.empty() ? 0 : values[0]}));
}

}  // namespace mcc::tuner
