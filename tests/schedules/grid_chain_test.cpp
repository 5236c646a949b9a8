// Attention in one launch: tiles of rows whose scores stay in shared memory, or in registers, on the interpreter.
#include <gtest/gtest.h>

#include <map>

#include "schedules/grid_cases.h"
#include "tuner/default_schedule.h"

namespace mcc::test {
namespace {

using namespace tensor;

constexpr ElementType f32 = ElementType::f32;

enum class Mask { none, added, kept, causal };

struct Form {
  int64_t heads, m, n, d, e;
  Mask mask = Mask::none;
  ElementType factor = f32;
  bool is_joint = false;   // queries, keys and values are parts of one buffer
  bool is_stored = false;  // they are stored in the type in which they are multiplied
  bool has_common_keys = false;  // all heads have the same keys and values: their rows are rows of one product
  int64_t key_heads() const { return has_common_keys ? 1 : heads; }
  // Dimensions or indices of keys and values; what is of the heads leads.
  std::vector<Expr> of_keys(std::vector<Expr> all) const {
    if (has_common_keys) all.erase(all.begin());
    return all;
  }
};

void PrintTo(const Form& f, std::ostream* out) {
  constexpr const char* kMasks[] = {"", "_added", "_kept", "_causal"};
  *out << text("h", f.heads, "_m", f.m, "_n", f.n, "_d", f.d, "_e", f.e, kMasks[static_cast<int>(f.mask)],
               "_", to_text(f.factor), f.is_joint ? "_joint" : "", f.is_stored ? "_stored" : "", f.has_common_keys ? "_common" : "");
}

// Queries, keys and values lie as a common projection leaves them: [position, head, element].
Func attention(const Form& f) {
  FuncBuilder b("attention");
  std::vector<Buffer> parts;
  const ElementType stored = f.is_stored ? f.factor : f32;
  if (f.is_joint) {
    parts.assign(3, b.input("x", stored, {f.m, 3, f.heads, f.d}));
  } else {
    parts = {b.input("q", stored, {f.m, f.heads, f.d}), b.input("k", stored, {f.n, f.key_heads(), f.d}),
             b.input("v", stored, {f.n, f.key_heads(), f.e})};
  }
  auto part = [&](int n, const Expr& position, const Expr& head, const Expr& element) {
    return f.is_joint ? load(parts[static_cast<size_t>(n)], {position, Expr(n), head, element})
                      : load(parts[static_cast<size_t>(n)], {position, head, element});
  };
  auto head = [&](Axes i) { return f.has_common_keys ? Expr(0) : i[0]; };
  Buffer keys = b.compute("keys", stored, f.of_keys({f.heads, f.d, f.n}), [&](Axes i) {
    return part(1, i[i.size() - 1], head(i), i[i.size() - 2]);
  });
  Buffer values = b.compute("values", stored, f.of_keys({f.heads, f.n, f.e}), [&](Axes i) {
    return part(2, i[i.size() - 2], head(i), i[i.size() - 1]);
  });
  auto factor = [&](const Expr& e) { return f.factor == f32 ? e : cast(f32, cast(f.factor, e)); };
  Buffer scores = b.reduce("scores", f32, {f.heads, f.m, f.n}, {f.d}, Reducer::sum, [&](Axes i, Axes r) {
    return factor(part(0, i[1], i[0], r[0])) * factor(load(keys, f.of_keys({i[0], r[0], i[2]})));
  });
  if (f.mask != Mask::none) {
    const ElementType type = f.mask == Mask::kept ? ElementType::boolean : f32;
    Buffer mask = f.mask == Mask::causal ? Buffer() : b.input("mask", type, {f.n});
    scores = b.compute("masked", f32, {f.heads, f.m, f.n}, [&](Axes i) {
      Expr score = load(scores, {i[0], i[1], i[2]});
      if (f.mask == Mask::causal)
        return select(i[2] <= i[1], score * constant(f32, 0.5), constant(f32, -1e30));
      if (f.mask == Mask::kept) return select(load(mask, {i[2]}), score, constant(f32, -20));
      return score * constant(f32, 0.25) + load(mask, {i[2]});
    });
  }
  Buffer top = b.reduce("top", f32, {f.heads, f.m}, {f.n}, Reducer::max, [&](Axes i, Axes r) {
    return load(scores, {i[0], i[1], r[0]});
  });
  Buffer power = b.compute("power", f32, {f.heads, f.m, f.n}, [&](Axes i) {
    return call(Intrinsic::exp, {load(scores, {i[0], i[1], i[2]}) - load(top, {i[0], i[1]})});
  });
  Buffer sum = b.reduce("sum", f32, {f.heads, f.m}, {f.n}, Reducer::sum, [&](Axes i, Axes r) {
    return load(power, {i[0], i[1], r[0]});
  });
  Buffer inverse = b.compute("inverse", f32, {f.heads, f.m}, [&](Axes i) {
    return constant(f32, 1) / load(sum, {i[0], i[1]});
  });
  Buffer mixed = b.reduce("mixed", f32, {f.heads, f.m, f.e}, {f.n}, Reducer::sum, [&](Axes i, Axes r) {
    return factor(load(power, {i[0], i[1], r[0]})) * factor(load(values, f.of_keys({i[0], r[0], i[2]})));
  });
  Buffer y = b.compute("y", f32, {f.m, f.heads, f.e}, [&](Axes i) {
    return load(mixed, {i[1], i[0], i[2]}) * load(inverse, {i[1], i[0]});
  });
  return b.finish({y});
}

// The columns in parts of n that have rows of their own; the last one may have less columns than the others.
struct Parts {
  int64_t count;
  Buffer bounded, sum, mixed;
};

Parts parts_of_attention(FuncBuilder& b, const Form& f, int64_t n) {
  const int64_t parts = (f.n + n - 1) / n;
  const ElementType stored = f.is_stored ? f.factor : f32;
  Buffer q = b.input("q", stored, {f.m, f.heads, f.d}), k = b.input("k", stored, {f.n, f.key_heads(), f.d}),
         v = b.input("v", stored, {f.n, f.key_heads(), f.e});
  auto factor = [&](const Expr& e) { return f.factor == f32 ? e : cast(f32, cast(f.factor, e)); };
  auto where = [&](const Expr& number, const Expr& there, double otherwise) {
    return f.n % n == 0 ? there : select(number < Expr(f.n), there, constant(there.element(), otherwise));
  };
  auto head = [&](Axes i) { return f.has_common_keys ? Expr(0) : i[0]; };
  Buffer keys = b.compute("keys", stored, f.of_keys({f.heads, parts, f.d, n}), [&](Axes i) {
    const size_t last = i.size() - 1;
    const Expr number = i[last - 2] * Expr(n) + i[last];
    return where(number, load(k, {number, head(i), i[last - 1]}), 0);
  });
  Buffer values = b.compute("values", stored, f.of_keys({f.heads, parts, n, f.e}), [&](Axes i) {
    const size_t last = i.size() - 1;
    const Expr number = i[last - 2] * Expr(n) + i[last - 1];
    return where(number, load(v, {number, head(i), i[last]}), 0);
  });
  Buffer scores = b.reduce("scores", f32, {f.heads, parts, f.m, n}, {f.d}, Reducer::sum, [&](Axes i, Axes r) {
    return factor(load(q, {i[2], i[0], r[0]})) * factor(load(keys, f.of_keys({i[0], i[1], r[0], i[3]})));
  });
  Buffer mask = f.mask == Mask::added ? b.input("mask", f32, {f.n}) : Buffer();
  if (f.mask != Mask::none || f.n % n != 0) {
    scores = b.compute("masked", f32, {f.heads, parts, f.m, n}, [&](Axes i) {
      const Expr number = i[1] * Expr(n) + i[3];
      Expr score = load(scores, {i[0], i[1], i[2], i[3]});
      if (f.mask == Mask::causal) score = select(number <= i[2], score, constant(f32, -INFINITY));
      if (f.mask == Mask::added) score = score + load(mask, {number});
      return where(number, score, -INFINITY);
    });
  }
  Buffer maximum = b.reduce("maximum", f32, {f.heads, parts, f.m}, {n}, Reducer::max,
                            [&](Axes i, Axes r) { return load(scores, {i[0], i[1], i[2], r[0]}); });
  Buffer bounded = b.compute("bounded", f32, {f.heads, parts, f.m}, [&](Axes i) {
    return max(load(maximum, {i[0], i[1], i[2]}), constant(f32, -1e38));
  });
  Buffer power = b.compute("power", f32, {f.heads, parts, f.m, n}, [&](Axes i) {
    return call(Intrinsic::exp, {load(scores, {i[0], i[1], i[2], i[3]}) - load(bounded, {i[0], i[1], i[2]})});
  });
  Buffer mixed = b.reduce("mixed", f32, {f.heads, parts, f.m, f.e}, {n}, Reducer::sum, [&](Axes i, Axes r) {
    return factor(load(power, {i[0], i[1], i[2], r[0]})) * factor(load(values, f.of_keys({i[0], i[1], r[0], i[3]})));
  });
  Buffer sum = b.reduce("sum", f32, {f.heads, parts, f.m}, {n}, Reducer::sum,
                        [&](Axes i, Axes r) { return load(power, {i[0], i[1], i[2], r[0]}); });
  return {parts, bounded, sum, mixed};
}

// The same, put together in the end.
Func attention_in_parts(const Form& f, int64_t parts) {
  FuncBuilder b("attention_in_parts");
  const Parts all = parts_of_attention(b, f, f.n / parts);
  Buffer y = b.compute("y", f32, {f.m, f.heads, f.e}, [&](Axes i) {
    Expr most = load(all.bounded, {i[1], 0, i[0]}), above = constant(f32, 0), below = above;
    for (int64_t p = 1; p < parts; ++p)
      most = max(most, load(all.bounded, {i[1], Expr(p), i[0]}));
    for (int64_t p = 0; p < parts; ++p) {
      const Expr share = call(Intrinsic::exp, {load(all.bounded, {i[1], Expr(p), i[0]}) - most});
      above = above + share * load(all.mixed, {i[1], Expr(p), i[0], i[2]});
      below = below + share * load(all.sum, {i[1], Expr(p), i[0]});
    }
    return above / below;
  });
  return b.finish({y});
}

// Put together one after the other.
Func rolling_attention(const Form& f, int64_t n) {
  FuncBuilder b("rolling_attention");
  const auto [parts, bounded, sum, mixed] = parts_of_attention(b, f, n);
  Buffer top = b.new_buffer("top", f32, {f.heads, f.m}), total = b.new_buffer("total", f32, {f.heads, f.m}),
         rolled = b.new_buffer("rolled", f32, {f.heads, f.m, f.e});
  b.serial_loop("part", parts, [&](const Expr& p) {
    auto of_part = [&](const Buffer& buffer, Axes i) {
      std::vector<Expr> at(i.begin(), i.end());
      at.insert(at.begin() + 1, p);
      return load(buffer, at);
    };
    Buffer risen = b.compute("risen", f32, {f.heads, f.m}, [&](Axes i) {
      return max(of_part(bounded, i), select(p == 0, constant(f32, -1e38), load(top, {i[0], i[1]})));
    });
    Buffer kept = b.compute("kept", f32, {f.heads, f.m}, [&](Axes i) {
      return call(Intrinsic::exp,
                  {select(p == 0, constant(f32, 0), load(top, {i[0], i[1]}) - load(risen, {i[0], i[1]}))});
    });
    Buffer added = b.compute("added", f32, {f.heads, f.m}, [&](Axes i) {
      return call(Intrinsic::exp, {of_part(bounded, i) - load(risen, {i[0], i[1]})});
    });
    b.block(
        "roll_sum", {{"h", f.heads}, {"m", f.m}},
        [&](Axes i) {
          return Store::make(total, {i[0], i[1]},
                             load(total, {i[0], i[1]}) * load(kept, {i[0], i[1]}) +
                                 of_part(sum, i) * load(added, {i[0], i[1]}));
        },
        [&](Axes i) { return Store::make(total, {i[0], i[1]}, constant(f32, 0)); });
    b.block(
        "roll", {{"h", f.heads}, {"m", f.m}, {"e", f.e}},
        [&](Axes i) {
          return Store::make(rolled, {i[0], i[1], i[2]},
                             load(rolled, {i[0], i[1], i[2]}) * load(kept, {i[0], i[1]}) +
                                 of_part(mixed, i) * load(added, {i[0], i[1]}));
        },
        [&](Axes i) { return Store::make(rolled, {i[0], i[1], i[2]}, constant(f32, 0)); });
    b.block("rise", {{"h", f.heads}, {"m", f.m}},
            [&](Axes i) { return Store::make(top, {i[0], i[1]}, load(risen, {i[0], i[1]})); });
  });
  Buffer y = b.compute("y", f32, {f.m, f.heads, f.e},
                       [&](Axes i) { return load(rolled, {i[1], i[0], i[2]}) / load(total, {i[1], i[0]}); });
  return b.finish({y});
}

// Names of intermediates in the device's memory, and how many elements they have.
std::map<std::string, int64_t> global_intermediates(const Func& f) {
  std::map<std::string, int64_t> found;
  for_each_stmt(f.body, [&](const Stmt& s) {
    const auto* a = s.as<Allocate>();
    if (a == nullptr || a->buffer.scope() != Scope::global) return;
    int64_t elements = 1;
    for (const Expr& e : a->buffer.shape()) {
      int64_t extent = 0;
      EXPECT_TRUE(as_int(e, &extent)) << a->buffer.name();
      elements *= extent;
    }
    found[a->buffer.name()] = elements;
  });
  return found;
}

std::vector<std::string> shared_buffers(const Func& f) {
  std::vector<std::string> names;
  for_each_stmt(f.body, [&](const Stmt& s) {
    const auto* a = s.as<Allocate>();
    if (a != nullptr && a->buffer.scope() == Scope::shared) names.push_back(a->buffer.name());
  });
  return names;
}

constexpr uint64_t kTiles = 4;

// Where scores stay: in shared memory, or in registers.
enum class Scores { any, shared, held };

class ChainDecider : public TileDecider {
 public:
  ChainDecider(uint64_t seed, Scores scores) : TileDecider(seed), is_preferred_(seed == 0), scores_(scores) {}
  tuner::Answer answer(const tuner::Choice& choice, const tuner::Answer& preferred) override {
    if (choice.name.ends_with(".held") && scores_ != Scores::any) return {scores_ == Scores::held ? 1 : 0};
    return is_preferred_ ? preferred : TileDecider::answer(choice, preferred);
  }

 private:
  const bool is_preferred_;
  const Scores scores_;
};

void check(const Form& form, bool is_on_tensor_cores, int64_t parts = 1, Scores scores = Scores::any,
           const char* arch = "sm_80") {
  const Target target = gpu_target(arch);
  Func f = merge_axes(parts == 1 ? attention(form) : attention_in_parts(form, parts));
  std::set<std::string> traces;
  for (uint64_t seed = 0; seed < kTiles; ++seed) {
    ChainDecider decide(seed, scores);
    tuner::Draft draft{Schedule(f), decide, target};
    tuner::inline_for_grid(draft);
    ASSERT_TRUE(tuner::schedule_grid_chain(draft))
        << (draft.refused.empty() ? "" : draft.refused[0].step + ": " + draft.refused[0].reason)
        << to_text(f);
    if (parts > 1) tuner::schedule_grid_rest(draft);
    if (!traces.insert(to_text(draft.schedule.trace())).second) continue;
    SCOPED_TRACE(to_text(draft.schedule.trace()));
    Func lowered;
    lower_and_compare(f, draft.schedule, target, lowered);
    EXPECT_EQ(launches_of(lowered), parts == 1 ? 1 : 2) << to_text(lowered);
    // Results of parts, and what is about their rows as a whole: no scores.
    for (const auto& [name, elements] : global_intermediates(lowered)) {
      EXPECT_GT(parts, 1) << name;
      EXPECT_LE(elements, form.heads * parts * form.m * form.e) << name;
    }
    EXPECT_EQ(count_calls(lowered, IntrinsicClass::mma) > 0, is_on_tensor_cores) << to_text(lowered);
    if (scores == Scores::held) {
      // Operands alone are shared, and no thread asks another for its part of one.
      for (const std::string& name : shared_buffers(lowered))
        EXPECT_TRUE(name.ends_with(".a") || name.ends_with(".b")) << name;
      EXPECT_EQ(count_calls(lowered, [](Intrinsic i) { return i == Intrinsic::shuffle_from; }), 0)
          << to_text(lowered);
    }
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GE(traces.size(), 2u);
}

class GridChains : public ::testing::TestWithParam<Form> {};

TEST_P(GridChains, AreOneLaunchInAnyTile) { check(GetParam(), false); }

class GridMatrixChains : public GridChains {};

TEST_P(GridMatrixChains, AreOneLaunchInAnyTile) { check(GetParam(), true); }

INSTANTIATE_TEST_SUITE_P(Forms, GridMatrixChains,
                         ::testing::Values(Form{2, 16, 32, 16, 16, Mask::none, ElementType::f16},
                                           Form{1, 33, 21, 32, 24, Mask::added, ElementType::bf16},
                                           Form{2, 32, 45, 48, 48, Mask::causal, ElementType::f16},
                                           Form{1, 19, 40, 64, 64, Mask::kept, ElementType::tf32},
                                           Form{1, 37, 37, 80, 80, Mask::added, ElementType::f16},
                                           Form{1, 35, 64, 128, 128, Mask::causal, ElementType::bf16},
                                           Form{2, 35, 35, 32, 32, Mask::causal, ElementType::f16, true},
                                           Form{4, 16, 32, 16, 16, Mask::none, ElementType::f16, false, false, true},
                                           Form{3, 25, 40, 32, 32, Mask::causal, ElementType::bf16, false, true, true},
                                           Form{5, 10, 24, 16, 24, Mask::added, ElementType::tf32, false, false, true}),
                         ::testing::PrintToStringParamName());

class GridHeldChains : public GridChains {};

TEST_P(GridHeldChains, KeepScoresInRegisters) { check(GetParam(), true, 1, Scores::held); }

TEST_P(GridHeldChains, AreRightWithoutAsynchronousCopies) {
  if (GetParam().factor == ElementType::f16) check(GetParam(), true, 1, Scores::held, "sm_75");
}

INSTANTIATE_TEST_SUITE_P(
    Forms, GridHeldChains,
    ::testing::Values(Form{2, 32, 32, 16, 16, Mask::none, ElementType::f16},
                      Form{2, 16, 56, 64, 64, Mask::added, ElementType::f16, false, true},
                      Form{1, 65, 40, 128, 128, Mask::causal, ElementType::bf16, false, true},
                      Form{1, 33, 21, 32, 24, Mask::added, ElementType::bf16},
                      Form{2, 32, 45, 48, 48, Mask::causal, ElementType::f16},
                      Form{1, 37, 37, 80, 40, Mask::kept, ElementType::f16},
                      Form{1, 70, 64, 64, 128, Mask::causal, ElementType::bf16},
                      Form{2, 35, 35, 32, 32, Mask::causal, ElementType::f16, true},
                      Form{4, 16, 32, 16, 16, Mask::none, ElementType::f16, false, false, true},
                      Form{3, 25, 40, 32, 32, Mask::causal, ElementType::bf16, false, true, true}),
    ::testing::PrintToStringParamName());

// Whether the rule offers to keep scores in registers.
bool may_be_held(const Form& form, const char* arch) {
  struct Asked : tuner::PreferredDecider {
    tuner::Answer answer(const tuner::Choice& choice, const tuner::Answer& preferred) override {
      may_be |= choice.name.ends_with(".held");
      return preferred;
    }
    bool may_be = false;
  } decide;
  tuner::Draft draft{Schedule(merge_axes(attention(form))), decide, gpu_target(arch)};
  tuner::inline_for_grid(draft);
  tuner::schedule_grid_chain(draft);
  return decide.may_be;
}

TEST(GridChainsInRegisters, AreOfRowsThatRegistersHold) {
  EXPECT_TRUE(may_be_held({2, 128, 128, 64, 64, Mask::none, ElementType::f16}, "sm_80"));
  EXPECT_TRUE(may_be_held({2, 197, 197, 64, 64, Mask::none, ElementType::bf16}, "sm_90"));
  EXPECT_FALSE(may_be_held({2, 512, 512, 64, 64, Mask::none, ElementType::f16}, "sm_80"));
  EXPECT_FALSE(may_be_held({2, 128, 128, 64, 64, Mask::none, ElementType::tf32}, "sm_80"));
  EXPECT_TRUE(may_be_held({2, 128, 128, 64, 64, Mask::none, ElementType::f16}, "sm_75"));
  EXPECT_FALSE(may_be_held({2, 128, 128, 64, 64, Mask::none, ElementType::f16}, "sm_70"));
}

INSTANTIATE_TEST_SUITE_P(Forms, GridChains,
                         ::testing::Values(Form{2, 16, 32, 16, 16}, Form{2, 13, 21, 16, 16, Mask::added},
                                           Form{1, 9, 16, 32, 32, Mask::causal},
                                           Form{3, 9, 19, 5, 9, Mask::kept},
                                           Form{1, 33, 70, 48, 48, Mask::causal},
                                           Form{2, 21, 33, 64, 80, Mask::added}, Form{1, 20, 35, 80, 128},
                                           Form{1, 37, 37, 128, 64, Mask::kept},
                                           Form{2, 19, 19, 16, 16, Mask::causal, f32, true},
                                           Form{3, 11, 20, 16, 16, Mask::causal, f32, false, false, true}),
                         ::testing::PrintToStringParamName());

struct DividedForm : Form {
  int64_t by;  // so many parts, or columns to a part
};

void PrintTo(const DividedForm& f, std::ostream* out) {
  *out << "by" << f.by << "_";
  PrintTo(static_cast<const Form&>(f), out);
}

class GridChainsInParts : public ::testing::TestWithParam<DividedForm> {};

TEST_P(GridChainsInParts, AreALaunchAndWhatPutsThemTogether) {
  check(GetParam(), GetParam().factor != f32, GetParam().by);
}

class GridHeldChainsInParts : public GridChainsInParts {};

TEST_P(GridHeldChainsInParts, KeepScoresInRegisters) { check(GetParam(), true, GetParam().by, Scores::held); }

INSTANTIATE_TEST_SUITE_P(Forms, GridHeldChainsInParts,
                         ::testing::Values(DividedForm{{2, 32, 64, 16, 16, Mask::none, ElementType::f16}, 2},
                                           DividedForm{{1, 35, 105, 32, 32, Mask::causal, ElementType::bf16},
                                                       3},
                                           DividedForm{{3, 14, 64, 16, 16, Mask::causal, ElementType::f16, false, false, true},
                                                       2}),
                         ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Forms, GridChainsInParts,
    ::testing::Values(DividedForm{{2, 16, 64, 16, 16, Mask::none, ElementType::f16}, 2},
                      DividedForm{{1, 35, 105, 32, 32, Mask::causal, ElementType::bf16}, 3},
                      DividedForm{{3, 33, 96, 64, 64, Mask::none, ElementType::f16}, 4},
                      DividedForm{{3, 14, 64, 16, 16, Mask::none, ElementType::f16, false, false, true}, 2},
                      DividedForm{{2, 16, 64, 16, 16}, 2}, DividedForm{{1, 21, 60, 16, 32, Mask::causal}, 3}),
    ::testing::PrintToStringParamName());

class GridRollingChains : public ::testing::TestWithParam<DividedForm> {};

TEST_P(GridRollingChains, AreOneLaunch) {
  const DividedForm& form = GetParam();
  const Target target = gpu_target("sm_80");
  Func f = merge_axes(rolling_attention(form, form.by));
  for (uint64_t seed = 0; seed < 2; ++seed) {
    ChainDecider decide(seed, Scores::any);
    tuner::Draft draft{Schedule(f), decide, target};
    tuner::inline_for_grid(draft);
    ASSERT_TRUE(tuner::schedule_grid_chain(draft))
        << (draft.refused.empty() ? "" : draft.refused[0].step + ": " + draft.refused[0].reason)
        << to_text(f);
    SCOPED_TRACE(to_text(draft.schedule.trace()));
    Func lowered;
    lower_and_compare(f, draft.schedule, target, lowered);
    EXPECT_EQ(launches_of(lowered), 1) << to_text(lowered);
    EXPECT_TRUE(global_intermediates(lowered).empty());
    EXPECT_GT(count_calls(lowered, IntrinsicClass::mma), 0) << to_text(lowered);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, GridRollingChains,
    ::testing::Values(DividedForm{{2, 32, 96, 16, 16, Mask::none, ElementType::f16}, 32},
                      DividedForm{{1, 48, 100, 64, 64, Mask::added, ElementType::f16, false, true}, 32},
                      DividedForm{{3, 64, 70, 32, 40, Mask::causal, ElementType::bf16, false, true}, 16},
                      DividedForm{{4, 24, 96, 16, 16, Mask::none, ElementType::f16, false, false, true}, 32},
                      DividedForm{{6, 40, 70, 32, 40, Mask::causal, ElementType::bf16, false, true, true}, 16}),
    ::testing::PrintToStringParamName());

// Long rows, in any tile: what a block shares is within the limits of the GPU.
TEST(GridChainsOfLongRows, FitIntoSharedMemory) {
  for (ElementType factor : {f32, ElementType::f16}) {
    for (const Form& form :
         {Form{4, 1024, 1024, 128, 128, Mask::none, factor}, Form{1, 64, 2000, 64, 64, Mask::none, factor}}) {
      for (const char* arch : {"sm_80", "sm_90"}) {
        Func f = merge_axes(attention(form));
        const Target target = gpu_target(arch);
        for (uint64_t seed = 0; seed < 3; ++seed) {
          TileDecider decide(seed);
          tuner::PreferredDecider preferred;
          tuner::Draft draft{Schedule(f), seed == 0 ? static_cast<tuner::Decider&>(preferred) : decide,
                             target};
          tuner::inline_for_grid(draft);
          ASSERT_TRUE(tuner::schedule_grid_chain(draft));
          std::vector<std::string> broken = verify_launches(lower(draft.schedule.func(), target), target.gpu);
          EXPECT_TRUE(broken.empty()) << broken[0] << to_text(draft.schedule.trace());
        }
      }
    }
  }
}

// Heads that have keys in common, in any tile: a block shares what is of its own rows.
TEST(GridChainsOfCommonKeys, FitIntoSharedMemory) {
  for (ElementType factor : {f32, ElementType::f16, ElementType::tf32}) {
    for (const int64_t rows : {50, 64, 100}) {
      const Form form{16, rows, rows, 64, 64, Mask::none, factor, false, false, true};
      SCOPED_TRACE(::testing::PrintToString(form));
      const Func f = merge_axes(attention(form));
      for (const char* arch : {"sm_80", "sm_86"}) {
        const Target target = gpu_target(arch);
        for (Scores scores : {Scores::any, Scores::shared}) {
          ChainDecider decide(0, scores);
          tuner::Draft draft{Schedule(f), decide, target};
          tuner::inline_for_grid(draft);
          ASSERT_TRUE(tuner::schedule_grid_chain(draft));
          const Func lowered = lower(draft.schedule.func(), target);
          std::vector<std::string> broken = verify_launches(lowered, target.gpu);
          EXPECT_TRUE(broken.empty()) << broken[0] << to_text(draft.schedule.trace());
          EXPECT_EQ(launches_of(lowered), 1);
        }
      }
    }
  }
}

// Lengths around what shared memory holds at most: one launch within its limits, or none.
TEST(GridChainsOfLongRows, AreRefusedBeforeTheyTakeTooMuch) {
  const Target target = gpu_target("sm_75");
  int fitting = 0, refused = 0;
  int64_t longest = 0;
  for (int64_t n = 1300; n <= 4100; n += 50) {
    SCOPED_TRACE(n);
    Func f = merge_axes(attention(Form{4, n, n, 16, 16}));
    tuner::PreferredDecider decide;
    tuner::Draft draft{Schedule(f), decide, target};
    tuner::inline_for_grid(draft);
    const bool is_scheduled = tuner::schedule_grid_chain(draft);
    (is_scheduled ? fitting : refused) += 1;
    if (!is_scheduled) continue;
    longest = n;
    std::vector<std::string> broken = verify_launches(lower(draft.schedule.func(), target), target.gpu);
    EXPECT_TRUE(broken.empty()) << broken[0] << to_text(draft.schedule.trace());
  }
  EXPECT_GT(fitting, 0);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(longest, 1300 + 50 * (fitting - 1)) << "a shorter row than one that fits does not";
}

// Rows of scores that no shared memory holds, and such that make no tile.
TEST(GridChainsThatDoNotFit, AreLeftToOtherRules) {
  for (const Form& form : {Form{1, 64, 20000, 64, 64}, Form{1, 3, 64, 16, 16}, Form{1, 64, 15, 16, 16}}) {
    Func f = merge_axes(attention(form));
    tuner::PreferredDecider decide;
    const Target target = gpu_target("sm_80");
    tuner::Draft draft{Schedule(f), decide, target};
    tuner::inline_for_grid(draft);
    EXPECT_FALSE(tuner::schedule_grid_chain(draft));
    EXPECT_TRUE(draft.refusal);
  }
}

}  // namespace
}  // namespace mcc::test
