#include "tools/plan_text.h"

#include "graph/ops/mcc_text.h"

namespace mcc::tools {

namespace {

struct Row {
  std::string_view op;
  mcc_text_op code;
};

constexpr Row kRows[] = {
    {graph::kTextIds, MCC_TEXT_intern}, {graph::kTextStrings, MCC_TEXT_show},
    {"TextConcat", MCC_TEXT_concat},    {"TextCount", MCC_TEXT_count},
    {"TextSplit", MCC_TEXT_split},      {"TextNormalize", MCC_TEXT_normalize},
    {"TextMatch", MCC_TEXT_match},      {"TextParse", MCC_TEXT_parse},
    {"TextFormat", MCC_TEXT_format},    {"TextRank", MCC_TEXT_rank},
};

template <class T>
std::string bytes_of(const T& record) {
  return {reinterpret_cast<const char*>(&record), sizeof record};
}

std::string list_bytes(const std::vector<std::string>& texts) {
  std::string bytes = bytes_of(uint64_t{texts.size()});
  uint64_t end = 0;
  for (const std::string& text : texts)
    bytes += bytes_of(end += text.size());
  for (const std::string& text : texts)
    bytes += text;
  return bytes;
}

std::string split_bytes(const graph::Attributes& a) {
  const int64_t most = a.integer("maxsplit", -1);
  const std::string delimiter = a.text("delimiter", "");
  return bytes_of(mcc_text_split{most < 0 ? -1 : most + 1, delimiter.size()}) + delimiter;
}

std::string normalize_bytes(const graph::Attributes& a) {
  const std::string change = a.text("case_change_action", "NONE");
  const graph::Attribute* stops = a.find("stopwords");
  const mcc_text_normalize record{change == "LOWER"   ? 1u
                                  : change == "UPPER" ? 2u
                                                      : 0u,
                                  a.integer("is_case_sensitive", 0) != 0 ? 1u : 0u};
  return bytes_of(record) +
         list_bytes(stops ? std::get<std::vector<std::string>>(*stops) : std::vector<std::string>());
}

std::string automaton_bytes(const graph::Attributes& a) {
  const std::string accepts = a.text("accepts", "");
  const std::vector<int64_t> next = a.integers("next");
  const auto states = static_cast<uint32_t>(accepts.size());
  std::string tables = a.text("classes", "") + accepts;
  tables.resize((tables.size() + 3) / 4 * 4);
  for (int64_t state : next)
    tables += bytes_of(static_cast<uint32_t>(state));
  return bytes_of(mcc_text_automaton{states, static_cast<uint32_t>(next.size() / states),
                                     static_cast<uint32_t>(a.integer("start", 0)), 0}) +
         tables;
}

std::string attributes_of(mcc_text_op code, const graph::Attributes& a) {
  switch (code) {
    case MCC_TEXT_count:
    case MCC_TEXT_split:
      return split_bytes(a);
    case MCC_TEXT_normalize:
      return normalize_bytes(a);
    case MCC_TEXT_match:
      return automaton_bytes(a);
    case MCC_TEXT_table:
    case MCC_TEXT_intern:
    case MCC_TEXT_show:
    case MCC_TEXT_concat:
    case MCC_TEXT_parse:
    case MCC_TEXT_format:
    case MCC_TEXT_rank:
    case MCC_TEXT_OP_COUNT:
      return "";
  }
  MCC_UNREACHABLE("unknown operation on text");
}

}  // namespace

codegen::PlanNode text_table(const std::vector<std::string>& texts) {
  codegen::PlanNode node;
  node.kind = MCC_NODE_text;
  node.target = MCC_TEXT_table;
  node.name = "strings";
  node.attributes = list_bytes(texts);
  return node;
}

codegen::PlanNode text_node(const graph::Node& node) {
  for (const Row& row : kRows) {
    if (row.op != node.op->name) continue;
    codegen::PlanNode out;
    out.kind = MCC_NODE_text;
    out.target = row.code;
    out.name = std::string(row.op);
    out.sources = node.origins;
    out.attributes = attributes_of(row.code, node.attributes);
    return out;
  }
  MCC_UNREACHABLE("operator ", node.op->name, " is not one on text");
}

}  // namespace mcc::tools
