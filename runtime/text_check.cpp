// Whether a plan's nodes on text are what their operations expect.
#include "runtime/text.h"

namespace mcc::runtime {

namespace {

struct Signature {
  uint32_t inputs, outputs;
};

constexpr Signature kSignatures[MCC_TEXT_OP_COUNT] = {
    {0, 0},  // table
    {1, 1},  // intern
    {1, 1},  // show
    {2, 1},  // concat
    {1, 1},  // count
    {1, 1},  // split
    {1, 2},  // normalize
    {1, 1},  // match
    {1, 1},  // parse
    {1, 1},  // format
    {1, 1},  // rank
};

struct Attributes {
  const unsigned char* bytes;
  uint64_t size;

  // The structure at their begin.
  template <typename T>
  bool take(T* out) {
    if (size < sizeof(T)) return false;
    std::memcpy(out, bytes, sizeof(T));
    bytes += sizeof(T);
    size -= sizeof(T);
    return true;
  }
};

bool is_automaton(Attributes attributes) {
  mcc_text_automaton a;
  if (!attributes.take(&a)) return false;
  constexpr uint32_t kMostStates = 1u << 20;
  if (a.states == 0 || a.states > kMostStates || a.classes == 0 || a.classes > 256 || a.start >= a.states)
    return false;
  const uint64_t tables = (uint64_t{256} + a.states + 3) / 4 * 4;
  if (attributes.size != tables + uint64_t{a.states} * a.classes * sizeof(uint32_t)) return false;
  for (uint32_t i = 0; i < 256; ++i)
    if (attributes.bytes[i] >= a.classes) return false;
  for (uint64_t i = 0; i < uint64_t{a.states} * a.classes; ++i) {
    uint32_t next = 0;
    std::memcpy(&next, attributes.bytes + tables + i * sizeof next, sizeof next);
    if (next >= a.states) return false;
  }
  return true;
}

bool has_good_attributes(const Plan& plan, const mcc_plan_node& node) {
  Attributes attributes = {plan.bytes + node.attributes.begin, node.attributes.count};
  TextList list;
  switch (node.target) {
    case MCC_TEXT_table:
      return TextList::open(attributes.bytes, attributes.size, &list);
    case MCC_TEXT_count:
    case MCC_TEXT_split: {
      mcc_text_split split;
      return attributes.take(&split) && split.most >= -1 && split.most != 0 &&
             split.delimiter_size == attributes.size;
    }
    case MCC_TEXT_normalize: {
      mcc_text_normalize normalize;
      return attributes.take(&normalize) && normalize.change <= 2 &&
             TextList::open(attributes.bytes, attributes.size, &list);
    }
    case MCC_TEXT_match:
      return is_automaton(attributes);
  }
  return true;
}

bool is_parsed(uint32_t dtype) {
  return dtype == MCC_DTYPE_f32 || dtype == MCC_DTYPE_f64 || dtype == MCC_DTYPE_i64 || dtype == MCC_DTYPE_u64;
}

bool is_formatted(uint32_t dtype) {
  return dtype == MCC_DTYPE_f64 || dtype == MCC_DTYPE_i64 || dtype == MCC_DTYPE_u64;
}

// All arguments but those that stand for something else are ids.
bool has_good_types(const Plan& plan, const mcc_plan_node& node) {
  for (uint32_t a = 0; a < node.args.count; ++a) {
    const uint32_t dtype = plan.values[plan.indices[node.args.begin + a]].dtype;
    const bool is_input = a == 0, is_output = a + 1 == node.args.count;
    bool is_good = dtype == MCC_DTYPE_i64;
    if (is_input && node.target == MCC_TEXT_intern) is_good = dtype == MCC_DTYPE_string;
    if (is_input && node.target == MCC_TEXT_format) is_good = is_formatted(dtype);
    if (is_output && node.target == MCC_TEXT_show) is_good = dtype == MCC_DTYPE_string;
    if (is_output && node.target == MCC_TEXT_match) is_good = dtype == MCC_DTYPE_bool;
    if (is_output && node.target == MCC_TEXT_parse) is_good = is_parsed(dtype);
    if (!is_good) return false;
  }
  return true;
}

}  // namespace

bool is_text_node(const Plan& plan, const mcc_plan_node& node) {
  if (node.target >= MCC_TEXT_OP_COUNT) return false;
  const Signature& signature = kSignatures[node.target];
  const bool has_no_count = node.target == MCC_TEXT_normalize && node.output_count == 1;
  const uint32_t outputs = has_no_count ? 1 : signature.outputs;
  return node.args.count == signature.inputs + outputs && node.output_count == outputs &&
         has_good_types(plan, node) && has_good_attributes(plan, node);
}

}  // namespace mcc::runtime
