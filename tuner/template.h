// Templates in AutoTVM's manner (Chen et al., NeurIPS'18): a hand-written schedule whose open places are entities of four
// kinds. The space of each entity is listed, so that of the template has a known size, and each of its points a number.
//
//   bool schedule(Draft& draft) {
//     TemplateSpace t(draft, "conv");
//     SplitEntity ow = t.split("tile_ow", extent, {.outputs = 2, .max_factor = 16});
//     OtherEntity unroll = t.knob("unroll_kw", {1, 0});
//     ...steps...
//
// An entity is asked of the draft's decider as one category, by its number: "conv.tile_ow".
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "support/result.h"
#include "tuner/draft.h"

namespace mcc::tuner {

// Factors from the outermost in; the outermost is -1: as many iterations as the others leave.
struct SplitEntity {
  std::vector<int64_t> size;
  bool operator==(const SplitEntity&) const = default;
};
// The loop perm[i] goes to place i.
struct ReorderEntity {
  std::vector<int64_t> perm;
  bool operator==(const ReorderEntity&) const = default;
};
// "none", "unroll" or "vec" for each loop.
struct AnnotateEntity {
  std::vector<std::string> anns;
  bool operator==(const AnnotateEntity&) const = default;
};
struct OtherEntity {
  int64_t value = 0;
  bool operator==(const OtherEntity&) const = default;
};
using Entity = std::variant<SplitEntity, ReorderEntity, AnnotateEntity, OtherEntity>;

enum class SplitPolicy { factors, power2, verbose, candidates };
struct SplitOptions {
  SplitPolicy policy = SplitPolicy::factors;  // divisors; powers of two (with tails); both; those given
  int64_t outputs = 2;
  int64_t max_factor = int64_t{1} << 31;  // of all but the outermost
  std::vector<std::vector<int64_t>> candidates = {};
  std::function<bool(const SplitEntity&)> filter = {};
};
enum class ReorderPolicy { identity, all, interleave };
enum class AnnotatePolicy { none, unroll, vec, try_unroll, try_vec, try_unroll_vec };

std::vector<Entity> split_entities(int64_t extent, const SplitOptions& options);
// interleave: all orders that keep each of the `chains` (of loop numbers) in order.
std::vector<Entity> reorder_entities(int64_t loops, ReorderPolicy policy,
                                     const std::vector<std::vector<int64_t>>& chains = {});
// try_...: one loop may be vectorised, the innermost; loops may be unrolled from the innermost outwards.
std::vector<Entity> annotate_entities(int64_t loops, AnnotatePolicy policy);

// All entities of a template by name, in the order of their definition.
struct ConfigSpace {
  std::vector<std::pair<std::string, std::vector<Entity>>> entries;

  int64_t size() const;  // product of the numbers of entities
  // The first entry runs fastest. 0 <= index < size().
  std::vector<std::pair<std::string, Entity>> at(int64_t index) const;
  // -1 for a configuration that is not of this space.
  int64_t index_of(const std::vector<std::pair<std::string, Entity>>& config) const;
};

// AutoTVM's form: [["tile_y", "sp", [-1, 8]], ["order", "re", [1, 0]], ["inner", "an", ["vec"]], ["unroll", "ot", 1]].
using Config = std::vector<std::pair<std::string, Entity>>;
std::string config_to_json(const Config& config);
Result<Config> parse_config(std::string_view json);

// Asks a decider for entities, and notes the space.
class TemplateSpace {
 public:
  TemplateSpace(Draft& draft, std::string block) : decide_(draft.decide), block_(std::move(block)) {}

  // preferred: the entity that analysis picks; the first of the list if it is not in it.
  SplitEntity split(const std::string& name, int64_t extent, const SplitOptions& options,
                    const SplitEntity& preferred = {});
  ReorderEntity reorder(const std::string& name, int64_t loops, ReorderPolicy policy,
                        const std::vector<std::vector<int64_t>>& chains = {});
  AnnotateEntity annotate(const std::string& name, int64_t loops, AnnotatePolicy policy);
  OtherEntity knob(const std::string& name, const std::vector<int64_t>& values);

  const ConfigSpace& space() const { return space_; }
  const Config& config() const { return config_; }

 private:
  Entity ask(const std::string& name, std::vector<Entity> entities, const Entity& preferred);

  Decider& decide_;
  std::string block_;
  ConfigSpace space_;
  Config config_;
};

}  // namespace mcc::tuner
