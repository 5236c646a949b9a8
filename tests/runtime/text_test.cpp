// Tensors of strings: the interface, the table of a session, and each operation on text.
#include <cmath>
#include <cstddef>
#include <functional>

#include "runtime/test_model.h"

namespace mcc::test {
namespace {

using Strings = std::vector<std::string>;

template <class T>
std::string bytes_of(const T& record) {
  return {reinterpret_cast<const char*>(&record), sizeof record};
}

std::string list_of(const Strings& texts) {
  std::string bytes = bytes_of(uint64_t{texts.size()});
  uint64_t end = 0;
  for (const std::string& text : texts)
    bytes += bytes_of(end += text.size());
  for (const std::string& text : texts)
    bytes += text;
  return bytes;
}

struct TextModel : TestModel {
  explicit TextModel(const Strings& known = {""}) { add_text(MCC_TEXT_table, {}, 0, list_of(known)); }

  void add_text(mcc_text_op op, std::vector<uint32_t> args, uint32_t outputs, std::string attributes = "") {
    PlanNode node;
    node.kind = MCC_NODE_text;
    node.target = op;
    node.args = std::move(args);
    node.output_count = outputs;
    node.attributes = std::move(attributes);
    node.name = "text";
    node.sources = {"onnx"};
    plan.graphs[0].nodes.push_back(node);
  }
  // In the arena, each at a place of its own.
  uint32_t add_ids(std::vector<Quantity> dims, mcc_dtype dtype = MCC_DTYPE_i64) {
    const Quantity offset = plan.arena_size;
    plan.arena_size += 1024;
    return add_value({"ids", dtype, std::move(dims), MCC_STORAGE_arena, 0, offset});
  }
  uint32_t add_text_input(const std::string& name, std::vector<Quantity> dims) {
    const uint32_t ids = add_ids(dims);
    add_text(MCC_TEXT_intern, {add_input(name, std::move(dims), MCC_DTYPE_string), ids}, 1);
    return ids;
  }
  void show(const std::string& name, uint32_t ids) {
    add_text(MCC_TEXT_show, {ids, add_output(name, plan.values[ids].dims, MCC_DTYPE_string)}, 1);
  }
};

// x [3] -> y [3], as it is.
void make_copy(TextModel& model) { model.show("y", model.add_text_input("x", {3})); }

TEST(Text, ComesBackAsItWas) {
  TextModel description({"", "known"});
  make_copy(description);
  const Model model(description.image());
  EXPECT_EQ(model.input(0).dtype, MCC_DTYPE_string);
  Session session(model, {.threads = 1});
  const std::string zeros("a\0b", 3), lone(1, '\0');
  for (const Strings& words : {Strings{"", "known", "other"}, Strings{zeros, "a", lone},
                               Strings{"x", "x", std::string(200'000, 'y')}, Strings{"\xff\xfe", "ä", ""}}) {
    session.set_input("x", words, {3});
    session.run();
    EXPECT_EQ(session.output("y").strings(), words);
  }
}

TEST(Text, OutlivesTheInput) {
  TextModel description;
  make_copy(description);
  const Model model(description.image());
  Session session(model, {.threads = 1});
  Strings words{"one", "two", "a text that is longer than others"};
  session.set_input("x", words, {3});
  session.run();
  for (std::string& word : words)
    word.assign(word.size(), '#');
  EXPECT_EQ(session.output("y").strings(), (Strings{"one", "two", "a text that is longer than others"}));
}

TEST(Text, IsReadAnewInEachRun) {
  TextModel description;
  make_copy(description);
  const Model model(description.image());
  Session session(model, {.threads = 1});
  Strings words{"aaa", "bbb", "ccc"};
  session.set_input("x", words, {3});
  for (char c : std::string("defg")) {
    words[1][0] = c;
    session.run();
    EXPECT_EQ(session.output("y").strings(), words);
  }
}

TEST(Text, HasTheSameIdWhereItIsTheSame) {
  TextModel description({"", "k"});
  const uint32_t x = description.add_text_input("x", {5});
  description.plan.graphs[0].outputs.push_back(x);
  const Model model(description.image());
  Session a(model, {.threads = 1}), b(model, {.threads = 1});
  const Strings words{"p", "k", "p", "", "q"}, others{"q", "q", "p", "k", "z"};
  a.set_input("x", words, {5});
  b.set_input("x", others, {5});
  a.run();
  b.run();
  auto ids = [](const Tensor& t) { return std::vector<int64_t>(t.as<int64_t>(), t.as<int64_t>() + 5); };
  EXPECT_EQ(ids(a.output(0)), (std::vector<int64_t>{2, 1, 2, 0, 3}));
  EXPECT_EQ(ids(b.output(0)), (std::vector<int64_t>{2, 2, 3, 1, 4}));
}

TEST(Text, FindsEachOfMany) {
  Strings known{""};
  for (int i = 0; i < 500; ++i)
    known.push_back("known " + std::to_string(i));
  constexpr int64_t kCount = 20'000;
  TextModel description(known);
  description.plan.arena_size = 0;
  const uint32_t x = description.add_value({"ids", MCC_DTYPE_i64, {kCount}, MCC_STORAGE_arena, 0, 0});
  description.plan.arena_size = kCount * 8;
  description.add_text(MCC_TEXT_intern, {description.add_input("x", {kCount}, MCC_DTYPE_string), x}, 1);
  description.show("y", x);
  const Model model(description.image());
  Session session(model, {.threads = 1});
  for (int run = 0; run < 3; ++run) {
    Strings words;
    for (int64_t i = 0; i < kCount; ++i)
      words.push_back((i % 3 == 0 ? "known " : "word ") + std::to_string(i * (run + 1) % 7000));
    session.set_input("x", words, {kCount});
    session.run();
    EXPECT_EQ(session.output("y").strings(), words);
  }
}

TEST(Text, SaysWhatIsWrong) {
  TextModel description;
  make_copy(description);
  const Model model(description.image());
  Session session(model, {.threads = 1});
  const std::vector<mcc_string> words{{"a", 1}, {nullptr, 0}, {nullptr, 5}};
  const std::vector<int64_t> numbers(3);
  EXPECT_EQ(error_of([&] { session.set_input(0, numbers.data(), {3}); }),
            "input \"x\": expected element type string, got i64");
  EXPECT_EQ(error_of([&] { session.set_input(0, words.data(), {2}); }),
            "input \"x\": expected shape 3, got 2");
  EXPECT_EQ(error_of([&] { session.set_input(0, Strings{"a"}, {3}); }),
            "the shape of the strings needs 3, got 1");
  EXPECT_EQ(error_of([&] { session.set_input(0, Tensor{nullptr, 0, MCC_DTYPE_string, {3}}); }),
            "input \"x\": data is null");
  session.set_input(0, words.data(), {3});
  EXPECT_EQ(error_of([&] { session.run(); }), "input \"x\": string 2 is null, with a size of 5");
  const Strings good{"a", "", "b"};
  session.set_input(0, good, {3});
  session.run();
  EXPECT_EQ(session.output(0).strings(), good);
}

TEST(Text, GoesToTheCallersMemory) {
  TextModel description;
  make_copy(description);
  const Model model(description.image());
  Session session(model, {.threads = 1});
  const Strings words{"a", "b", "c"};
  std::vector<mcc_string> out(3);
  session.set_input(0, words, {3});
  session.set_output(0, out.data(), {3});
  session.run();
  EXPECT_EQ(std::string(out[2].data, out[2].size), "c");
}

// ---- Operations ----

struct Fixture {
  TextModel description;
  uint32_t x;
  explicit Fixture(int64_t count) : x(description.add_text_input("x", {count})) {}

  std::unique_ptr<Session> run(const Strings& words) {
    model = std::make_unique<Model>(description.image());
    auto session = std::make_unique<Session>(*model, SessionOptions{.threads = 1});
    session->set_input(0, words, {static_cast<int64_t>(words.size())});
    session->run();
    session->run();
    return session;
  }
  std::unique_ptr<Model> model;
};

TEST(TextOperation, Concat) {
  Fixture f(3);
  const uint32_t y = f.description.add_ids({3});
  f.description.add_text(MCC_TEXT_concat, {f.x, f.x, y}, 1);
  f.description.show("y", y);
  EXPECT_EQ(f.run({"a", "", "bc"})->output(0).strings(), (Strings{"aa", "", "bcbc"}));
}

TEST(TextOperation, Split) {
  struct Row {
    int64_t most;
    std::string delimiter;
    std::vector<int64_t> counts;
    Strings parts;
  };
  const Strings words{"  a b  c ", "", "x,,y,"};
  const Row rows[] = {
      {-1, "", {3, 0, 1}, {"a", "b", "c", "", "", "", "", "", "x,,y,", "", "", ""}},
      {2, "", {2, 0, 1}, {"a", "b  c", "", "", "", "", "", "", "x,,y,", "", "", ""}},
      {-1, ",", {1, 0, 4}, {"  a b  c ", "", "", "", "", "", "", "", "x", "", "y", ""}},
      {2, ",,", {1, 0, 2}, {"  a b  c ", "", "", "", "", "", "", "", "x", "y,", "", ""}},
  };
  for (const Row& row : rows) {
    Fixture f(3);
    const std::string attributes = bytes_of(mcc_text_split{row.most, row.delimiter.size()}) + row.delimiter;
    const uint32_t parts = f.description.add_ids({3, 4}),
                   counts = f.description.add_output("counts", {3}, MCC_DTYPE_i64);
    f.description.add_text(MCC_TEXT_count, {f.x, counts}, 1, attributes);
    f.description.add_text(MCC_TEXT_split, {f.x, parts}, 1, attributes);
    f.description.show("y", parts);
    const auto session = f.run(words);
    const int64_t* got = session->output(0).as<int64_t>();
    EXPECT_EQ(std::vector<int64_t>(got, got + 3), row.counts) << row.delimiter;
    EXPECT_EQ(session->output(1).strings(), row.parts) << row.delimiter;
  }
}

TEST(TextOperation, Normalize) {
  struct Row {
    uint32_t change, is_case_sensitive;
    Strings stops, words;
    int64_t count;
  };
  const Strings words{"Äpfel", "STRASSE", "the", "The"};
  const Row rows[] = {
      {0, 0, {}, words, 4},
      {1, 1, {}, {"äpfel", "strasse", "the", "the"}, 4},
      {2, 1, {"the"}, {"ÄPFEL", "STRASSE", "THE", ""}, 3},
      {0, 0, {"THE", "äpfel"}, {"STRASSE", "", "", ""}, 1},
      {0, 0, {"the", "ÄPFEL", "strasse"}, {"", "", "", ""}, 1},
  };
  for (const Row& row : rows) {
    Fixture f(4);
    const uint32_t y = f.description.add_ids({4}),
                   count = f.description.add_output("count", {}, MCC_DTYPE_i64);
    f.description.add_text(
        MCC_TEXT_normalize, {f.x, y, count}, 2,
        bytes_of(mcc_text_normalize{row.change, row.is_case_sensitive}) + list_of(row.stops));
    f.description.show("y", y);
    const auto session = f.run(words);
    EXPECT_EQ(*session->output(0).as<int64_t>(), row.count);
    EXPECT_EQ(session->output(1).strings(), row.words);
  }
}

TEST(TextOperation, Match) {
  // Texts of a's of an even number.
  std::string classes(256, 1);
  classes['a'] = 0;
  std::string tables = classes + std::string("\1\0\0", 3);
  tables.resize(260);
  for (uint32_t next : {1u, 2u, 0u, 2u, 2u, 2u})
    tables += bytes_of(next);
  Fixture f(4);
  const uint32_t y = f.description.add_output("y", {4}, MCC_DTYPE_bool);
  f.description.add_text(MCC_TEXT_match, {f.x, y}, 1, bytes_of(mcc_text_automaton{3, 2, 0, 0}) + tables);
  const auto session = f.run({"", "a", "aaaa", "ab"});
  const bool* got = session->output(0).as<bool>();
  EXPECT_EQ(std::vector<bool>(got, got + 4), (std::vector<bool>{true, false, true, false}));
}

TEST(TextOperation, Parse) {
  Fixture f(3);
  const uint32_t real = f.description.add_output("real", {3}, MCC_DTYPE_f64),
                 whole = f.description.add_output("whole", {3}, MCC_DTYPE_i64);
  f.description.add_text(MCC_TEXT_parse, {f.x, real}, 1);
  f.description.add_text(MCC_TEXT_parse, {f.x, whole}, 1);
  const auto session = f.run({"1.5", "-2e1", " 7x"});
  EXPECT_EQ(session->output(0).as<double>()[1], -20);
  EXPECT_EQ(session->output(1).as<int64_t>()[2], 7);
  EXPECT_EQ(error_of([&] { f.run({"1", "one", "2"}); }),
            "node \"text\" (onnx): \"one\" is no number of the type f64");
  EXPECT_EQ(error_of([&] { f.run({"1", "2", "1e400"}); }),
            "node \"text\" (onnx): \"1e400\" is no number of the type f64");
}

TEST(TextOperation, Format) {
  TextModel description;
  const uint32_t x = description.add_input("x", {4}, MCC_DTYPE_f64), y = description.add_ids({4});
  description.add_text(MCC_TEXT_format, {x, y}, 1);
  description.show("y", y);
  const Model model(description.image());
  Session session(model, {.threads = 1});
  const std::vector<double> numbers{0.1, 1e10, -HUGE_VAL, std::nan("")};
  session.set_input(0, numbers.data(), {4});
  session.run();
  EXPECT_EQ(session.output(0).strings(), (Strings{"0.1", "1e+10", "-INF", "NaN"}));
}

TEST(TextOperation, Rank) {
  Fixture f(6);
  const uint32_t y = f.description.add_output("y", {6}, MCC_DTYPE_i64);
  f.description.add_text(MCC_TEXT_rank, {f.x, y}, 1);
  const auto session = f.run({"b", "a", "ab", "", "b", "Z"});
  const int64_t* got = session->output(0).as<int64_t>();
  EXPECT_EQ(std::vector<int64_t>(got, got + 6), (std::vector<int64_t>{4, 2, 3, 0, 4, 1}));
}

// ---- Plans that are none ----

std::string fault_of(const std::function<void(TextModel&)>& change) {
  TextModel description;
  const uint32_t x = description.add_text_input("x", {3});
  (void)x;
  change(description);
  return error_of([&] { Model model(description.image()); });
}

TEST(TextPlan, IsCheckedBeforeItRuns) {
  const std::string damaged = "the model's plan is damaged: ";
  auto node = [](TextModel& m, size_t i) -> PlanNode& { return m.plan.graphs[0].nodes[i]; };
  EXPECT_EQ(fault_of([&](TextModel& m) { node(m, 1).target = 99; }), damaged + "the target of node 1");
  EXPECT_EQ(fault_of([&](TextModel& m) { node(m, 1).target = MCC_TEXT_show; }),
            damaged + "the target of node 1");
  EXPECT_EQ(fault_of([&](TextModel& m) {
              node(m, 1).args.pop_back();
              node(m, 1).output_count = 0;
            }),
            damaged + "the target of node 1");
  EXPECT_EQ(fault_of([&](TextModel& m) { node(m, 0).attributes = bytes_of(uint64_t{7}); }),
            damaged + "the target of node 0");
  EXPECT_EQ(fault_of([&](TextModel& m) {
              node(m, 0).attributes = bytes_of(uint64_t{1}) + bytes_of(uint64_t{9}) + "abc";
            }),
            damaged + "the target of node 0");
  EXPECT_EQ(fault_of([&](TextModel& m) { m.plan.graphs[0].nodes.erase(m.plan.graphs[0].nodes.begin()); }),
            damaged + "its table of strings");
  EXPECT_EQ(fault_of([&](TextModel& m) { m.add_text(MCC_TEXT_table, {}, 0, list_of({})); }),
            damaged + "node 2 is a second table of strings");
  EXPECT_EQ(fault_of([&](TextModel& m) {
              m.add_text(MCC_TEXT_match, {m.add_ids({3}), m.add_ids({3}, MCC_DTYPE_bool)}, 1,
                         bytes_of(mcc_text_automaton{1, 1, 5, 0}));
            }),
            damaged + "the target of node 2");
}

// A number that no node gave.
TEST(TextPlan, MayHaveIdsOfNoText) {
  TextModel description;
  const uint32_t x = description.add_input("x", {2}, MCC_DTYPE_i64);
  description.show("y", x);
  const Model model(description.image());
  Session session(model, {.threads = 1});
  for (int64_t id : {int64_t{-1}, int64_t{1}, INT64_MAX}) {
    const std::vector<int64_t> ids{0, id};
    session.set_input(0, ids.data(), {2});
    EXPECT_EQ(error_of([&] { session.run(); }),
              "node \"text\" (onnx): an element is no string of the model or this run");
  }
}

}  // namespace
}  // namespace mcc::test
