// Decisions that rules leave open: how wide a tile is, in what order loops run. A rule asks for each by name, with the
// values that are legal and the one that analysis picks. Who answers decides what comes out: analysis gives the default
// schedule, a sampler a random point of the space, a recorded point the same schedule again. So the default and the
// search space are the same code, and the space of a rule is whatever it asks (later questions may depend on earlier
// answers).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mcc::tuner {

// One value of a categorical choice, or the factors of a tile from the outermost in.
using Answer = std::vector<int64_t>;

struct Choice {
  enum class Kind {
    category,  // one of `options`
    tile,      // `levels` factors whose product is `extent`, the innermost at most `max_inner`
  };
  std::string name;  // unique within one run of a rule: "conv.rows"
  Kind kind = Kind::category;
  std::vector<int64_t> options;
  int64_t extent = 1, levels = 1, max_inner = 1;

  bool allows(const Answer& answer) const;
};

// All answers of one run, by the names of the choices: a point of the space.
using Point = std::map<std::string, Answer>;

class Decider {
 public:
  virtual ~Decider() = default;

  // One of the options, which are not empty and hold `preferred`.
  int64_t choose(const std::string& name, std::vector<int64_t> options, int64_t preferred);
  // Factors of the extent from the outermost in; `preferred` are such factors.
  std::vector<int64_t> tile(const std::string& name, int64_t extent, int64_t levels, int64_t max_inner,
                            const std::vector<int64_t>& preferred);

  // An answer that `choice` allows.
  virtual Answer answer(const Choice& choice, const Answer& preferred) = 0;

 private:
  Answer ask(const Choice& choice, const Answer& preferred);
};

// Takes what analysis picks.
class PreferredDecider : public Decider {
 public:
  Answer answer(const Choice& choice, const Answer& preferred) override;
};

}  // namespace mcc::tuner
