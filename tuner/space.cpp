#include "tuner/space.h"

#include <algorithm>
#include <array>

#include "support/hash.h"

namespace mcc::tuner {

using namespace tensor;

Answer SampleDecider::answer(const Choice& choice, const Answer&) {
  return answers_.at(choice, random_.below(answers_.count(choice)));
}

namespace {

// Depth first: the first answers are given, all later choices get their first answer.
class PathDecider : public Decider {
 public:
  PathDecider(AnswerTable& answers, const std::vector<int64_t>& path) : answers_(answers), path_(path) {}

  Answer answer(const Choice& choice, const Answer&) override {
    int64_t index = asked_ < path_.size() ? path_[asked_] : 0;
    ++asked_;
    return answers_.at(choice, index);
  }

 private:
  AnswerTable& answers_;
  const std::vector<int64_t>& path_;
  size_t asked_ = 0;
};

enum class Role { tile, place, unroll, parallel };
constexpr std::array<double, 4> kMutationShare = {0.90, 0.05, 0.04, 0.01};

// By convention of the names: "block.unroll", "block.parallel", "block.place".
Role role_of(const Choice& choice) {
  size_t dot = choice.name.rfind('.');
  std::string_view last = std::string_view(choice.name).substr(dot == std::string::npos ? 0 : dot + 1);
  if (last == "unroll") return Role::unroll;
  if (last == "parallel") return Role::parallel;
  if (last == "place") return Role::place;
  return Role::tile;
}

// A random divisor moves from one level to another; unchanged if the choice has no room for it.
Answer move_factor(const Choice& choice, Answer answer, Random& random) {
  for (int attempt = 0; attempt < 16; ++attempt) {
    auto from = static_cast<size_t>(random.below(choice.levels)),
         to = static_cast<size_t>(random.below(choice.levels));
    if (from == to || answer[from] == 1) continue;
    std::vector<int64_t> factors = divisors_of(answer[from]);
    int64_t d = factors[1 + static_cast<size_t>(random.below(static_cast<int64_t>(factors.size()) - 1))];
    Answer moved = answer;
    moved[from] /= d;
    moved[to] *= d;
    if (choice.allows(moved)) return moved;
  }
  return answer;
}

}  // namespace

Space::Space(const Func& f, const Target& target, std::span<const Sketch> sketches)
    : f_(f),
      target_(target),
      instances_(f.dims.empty() ? std::vector<OpenInstance>() : instances_to_try(f, target)) {
  for (const Sketch& sketch : sketches) {
    PreferredDecider preferred;
    if (plan_point(sketch, f, target, instances_, {}, preferred).fits) sketches_.push_back(&sketch);
  }
}

const Sketch* Space::find(std::string_view name) const {
  for (const Sketch* sketch : sketches_) {
    if (sketch->name == name) return sketch;
  }
  return nullptr;
}

Planned Space::plan(const Sketch& sketch, const Point& point, Decider& otherwise) {
  Planned planned = plan_point(sketch, f_, target_, instances_, point, otherwise);
  if (!planned.outcome) {
    std::lock_guard lock(refusals_mutex_);
    ++refusals_[planned.outcome.code];
  }
  return planned;
}

Planned Space::at(const Sketch& sketch, const Point& point) {
  PreferredDecider preferred;
  return plan(sketch, point, preferred);
}

Planned Space::preferred(const Sketch& sketch) { return at(sketch, {}); }

Planned Space::sample(const Sketch& sketch, Random random) {
  SampleDecider decide(answers_, random);
  return plan(sketch, {}, decide);
}

Planned Space::mutate(const Sketch& sketch, const Planned& parent, Random random) {
  std::array<std::vector<const Choice*>, 4> by_role;
  double total = 0;
  for (const Choice& choice : parent.choices) {
    if (answers_.count(choice) < 2) continue;
    auto& list = by_role[static_cast<size_t>(role_of(choice))];
    if (list.empty()) total += kMutationShare[static_cast<size_t>(role_of(choice))];
    list.push_back(&choice);
  }
  Point point = parent.candidate.point;
  double at = random.uniform() * total;
  for (size_t r = 0; r < by_role.size(); ++r) {
    if (by_role[r].empty()) continue;
    at -= kMutationShare[r];
    if (at >= 0) continue;
    const Choice& choice =
        *by_role[r][static_cast<size_t>(random.below(static_cast<int64_t>(by_role[r].size())))];
    Answer& answer = point[choice.name];
    if (choice.kind == Choice::Kind::tile) {
      answer = move_factor(choice, answer, random);
    } else {
      // Another one than it is.
      int64_t now = answers_.index_of(choice, answer), count = answers_.count(choice);
      answer = answers_.at(choice, (now + 1 + random.below(count - 1)) % count);
    }
    break;
  }
  return Space::at(sketch, point);
}

Planned Space::cross(const Sketch& sketch, const Point& a, const Point& b, Random random) {
  Point point = a;
  for (const auto& [name, answer] : b) {
    if (point.count(name) == 0 || random.below(2) == 1) point[name] = answer;
  }
  return at(sketch, point);
}

std::vector<Point> Space::neighbours(const Planned& planned, int64_t stride) {
  std::vector<Point> near;
  auto add = [&](const Choice& choice, const Answer& answer) {
    Point point = planned.candidate.point;
    point[choice.name] = answer;
    near.push_back(std::move(point));
  };
  for (const Choice& choice : planned.choices) {
    const Answer& now = planned.candidate.point.at(choice.name);
    if (choice.kind == Choice::Kind::category) {
      int64_t index = answers_.index_of(choice, now), count = answers_.count(choice);
      for (int64_t step : {-stride, stride}) {
        if (index + step >= 0 && index + step < count) add(choice, answers_.at(choice, index + step));
      }
      continue;
    }
    for (size_t from = 0; from < now.size(); ++from) {
      // The smallest prime factor of the level.
      std::vector<int64_t> factors = divisors_of(now[from]);
      if (factors.size() < 2) continue;
      for (size_t to : {from - 1, from + 1}) {
        if (to >= now.size()) continue;
        Answer moved = now;
        moved[from] /= factors[1];
        moved[to] *= factors[1];
        if (choice.allows(moved)) add(choice, moved);
      }
    }
  }
  return near;
}

void Space::enumerate(const Sketch& sketch, Cursor& cursor, const std::function<bool(Planned&&)>& visit) {
  bool goes_on = true;
  while (goes_on && !cursor.is_done) {
    std::vector<int64_t>& path = cursor.path;
    PathDecider decide(answers_, path);
    Planned planned = plan(sketch, {}, decide);
    path.resize(planned.choices.size(), 0);
    // The last choice that has another answer.
    while (!path.empty() && path.back() + 1 >= answers_.count(planned.choices[path.size() - 1]))
      path.pop_back();
    cursor.is_done = path.empty();
    if (!cursor.is_done) ++path.back();
    goes_on = visit(std::move(planned));
  }
}

double Space::estimate(const Sketch& sketch) {
  double points = 1;
  for (const Choice& choice : preferred(sketch).choices)
    points *= static_cast<double>(answers_.count(choice));
  return points;
}

SpaceSize Space::size() {
  if (sketch_ == sketches_.size() && visited_ > 0) return {static_cast<double>(traces_.size()), true};
  if (!estimated_) {
    estimated_ = 0;
    for (const Sketch* sketch : sketches_)
      *estimated_ += estimate(*sketch);
  }
  return {*estimated_, false};
}

void Space::go_through(const std::function<bool(Planned&&)>& visit) {
  // The estimate may be off either way: a space somewhat above the limit is looked at, too.
  if (size().points > 2 * kExactLimit) return;
  bool goes_on = true;
  while (goes_on && sketch_ < sketches_.size() && visited_ < kExactLimit) {
    enumerate(*sketches_[sketch_], cursor_, [&](Planned&& planned) {
      if (planned.ok()) traces_.insert(hash_bytes(to_text(planned.candidate.trace)));
      goes_on = visit(std::move(planned));
      return ++visited_ < kExactLimit && goes_on;
    });
    if (!cursor_.is_done) return;
    cursor_ = {};
    ++sketch_;
  }
}

}  // namespace mcc::tuner
