// Operations on text (mcc_text_op).
#include <locale.h>

#include <cerrno>
#include <cstdio>

#include "runtime/session.h"

namespace mcc::runtime {

namespace {

using ull = unsigned long long;

constexpr uint32_t kMostArguments = 3;

// A node that runs: where its arguments are, and how many elements they have.
struct Call {
  mcc_session* session;
  uint64_t node;
  mcc_error* error;
  void* data[kMostArguments];
  uint64_t count[kMostArguments];
  const unsigned char* attributes;

  TextTable& texts() const { return session->texts; }
  const int64_t* ids(uint32_t argument) const { return static_cast<const int64_t*>(data[argument]); }
  int64_t* result(uint32_t argument) const { return static_cast<int64_t*>(data[argument]); }
  mcc_status fail(const char* what) const { return fail_at(*session, node, MCC_RUN_FAILED, what, error); }
  mcc_status out_of_memory() const {
    return fail_at(*session, node, MCC_OUT_OF_MEMORY, "out of memory", error);
  }

  // Ids come from the nodes before this one; a damaged model may have others.
  bool find(int64_t id, Text* text) const {
    if (id < 0 || static_cast<uint64_t>(id) >= texts().count()) return false;
    *text = texts()[static_cast<uint64_t>(id)];
    return true;
  }
  mcc_status no_text() const { return fail("an element is no string of the model or this run"); }
  mcc_status wrong_size() const { return fail("its tensors have different sizes"); }
};

template <typename Record>
Record record_of(const Call& call) {
  Record record;
  std::memcpy(&record, call.attributes, sizeof record);
  return record;
}

const char* input_name(const Call& call) {
  const Plan& plan = *call.session->plan;
  return plan.text(plan.values[plan.indices[plan.nodes[call.node].args.begin]].name);
}

mcc_status intern(const Call& call) {
  const auto* strings = static_cast<const mcc_string*>(call.data[0]);
  if (call.count[0] != call.count[1]) return call.wrong_size();
  for (uint64_t i = 0; i < call.count[0]; ++i) {
    if (strings[i].data == nullptr && strings[i].size != 0) {
      return fail(call.error, MCC_INVALID_ARGUMENT,
                  "input \"%.200s\": string %llu is null, with a size of %llu", input_name(call),
                  static_cast<ull>(i), static_cast<ull>(strings[i].size));
    }
    call.result(1)[i] = call.texts().intern({strings[i].data, strings[i].size});
    if (call.result(1)[i] < 0) return call.out_of_memory();
  }
  return MCC_OK;
}

mcc_status show(const Call& call) {
  auto* strings = static_cast<mcc_string*>(call.data[1]);
  if (call.count[0] != call.count[1]) return call.wrong_size();
  for (uint64_t i = 0; i < call.count[0]; ++i) {
    Text text;
    if (!call.find(call.ids(0)[i], &text)) return call.no_text();
    strings[i] = {text.data, text.size};
  }
  return MCC_OK;
}

mcc_status concat(const Call& call) {
  if (call.count[0] != call.count[1] || call.count[0] != call.count[2]) return call.wrong_size();
  for (uint64_t i = 0; i < call.count[0]; ++i) {
    Text a, b;
    if (!call.find(call.ids(0)[i], &a) || !call.find(call.ids(1)[i], &b)) return call.no_text();
    char* const both = a.size > UINT64_MAX - b.size ? nullptr : call.texts().room(a.size + b.size);
    if (both == nullptr) return call.out_of_memory();
    if (a.size != 0) std::memcpy(both, a.data, a.size);
    if (b.size != 0) std::memcpy(both + a.size, b.data, b.size);
    call.result(2)[i] = call.texts().intern({both, a.size + b.size});
    if (call.result(2)[i] < 0) return call.out_of_memory();
  }
  return MCC_OK;
}

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// The parts of a text, one after the other.
class Parts {
 public:
  Parts(Text text, const mcc_text_split& split, const char* delimiter)
      : rest_(text), left_(split.most), delimiter_{delimiter, split.delimiter_size} {
    if (delimiter_.size == 0) trim();
    is_over_ = rest_.size == 0;
  }

  bool next(Text* part) {
    if (is_over_) return false;
    uint64_t end = 0;
    const bool is_last = left_ == 1 || !find_end(&end);
    if (left_ > 0) --left_;
    *part = {rest_.data, is_last ? rest_.size : end};
    if (is_last) {
      is_over_ = true;
      return true;
    }
    const uint64_t gone = end + (delimiter_.size == 0 ? 1 : delimiter_.size);
    rest_ = {rest_.data + gone, rest_.size - gone};
    if (delimiter_.size == 0) trim();
    return true;
  }

 private:
  void trim() {
    while (rest_.size != 0 && is_space(rest_.data[0]))
      rest_ = {rest_.data + 1, rest_.size - 1};
    while (rest_.size != 0 && is_space(rest_.data[rest_.size - 1]))
      --rest_.size;
  }

  bool find_end(uint64_t* end) const {
    if (delimiter_.size == 0) {
      for (*end = 0; *end < rest_.size; ++*end)
        if (is_space(rest_.data[*end])) return true;
      return false;
    }
    const void* found = memmem(rest_.data, rest_.size, delimiter_.data, delimiter_.size);
    if (found != nullptr) *end = static_cast<uint64_t>(static_cast<const char*>(found) - rest_.data);
    return found != nullptr;
  }

  Text rest_;
  int64_t left_;  // parts that may still come; -1: any number
  Text delimiter_;
  bool is_over_;
};

Parts parts_of(const Call& call, Text text) {
  return {text, record_of<mcc_text_split>(call),
          reinterpret_cast<const char*>(call.attributes) + sizeof(mcc_text_split)};
}

mcc_status count_parts(const Call& call) {
  if (call.count[0] != call.count[1]) return call.wrong_size();
  for (uint64_t i = 0; i < call.count[0]; ++i) {
    Text text, part;
    if (!call.find(call.ids(0)[i], &text)) return call.no_text();
    Parts parts = parts_of(call, text);
    int64_t count = 0;
    while (parts.next(&part))
      ++count;
    call.result(1)[i] = count;
  }
  return MCC_OK;
}

mcc_status split(const Call& call) {
  const uint64_t width = call.count[0] == 0 ? 0 : call.count[1] / call.count[0];
  if (call.count[0] * width != call.count[1]) return call.wrong_size();
  const int64_t none = call.texts().intern({"", 0});
  if (none < 0) return call.out_of_memory();
  for (uint64_t i = 0; i < call.count[0]; ++i) {
    Text text, part;
    if (!call.find(call.ids(0)[i], &text)) return call.no_text();
    Parts parts = parts_of(call, text);
    for (uint64_t k = 0; k < width; ++k) {
      // The text may move only when the model's is let go: interning leaves it where it is.
      const int64_t id = parts.next(&part) ? call.texts().intern(part) : none;
      if (id < 0) return call.out_of_memory();
      call.result(1)[i * width + k] = id;
    }
  }
  return MCC_OK;
}

enum Case : uint32_t { same_case, lower_case, upper_case };

// The id of the text in this case; -1 when memory is short.
int64_t in_case(const Call& call, Text text, uint32_t change) {
  if (change == same_case) return call.texts().intern(text);
  char* const room = text.size > UINT64_MAX / 2 ? nullptr : call.texts().room(2 * text.size);
  if (room == nullptr) return -1;
  return call.texts().intern({room, change_case(text, change == upper_case, room)});
}

mcc_status normalize(const Call& call) {
  const auto record = record_of<mcc_text_normalize>(call);
  const mcc_plan_node& node = call.session->plan->nodes[call.node];
  TextList stops;
  TextList::open(call.attributes + sizeof record, node.attributes.count - sizeof record, &stops);
  const uint64_t room = call.count[1];
  const bool is_one_more = room == 1 && call.count[0] == 0;
  if ((room != call.count[0] && !is_one_more) || (node.output_count == 2 && call.count[2] != 1))
    return call.wrong_size();
  const uint32_t compared = record.is_case_sensitive != 0 ? same_case : lower_case;
  int64_t* const stop_ids = call.texts().numbers(stops.count());
  if (stop_ids == nullptr) return call.out_of_memory();
  for (uint64_t s = 0; s < stops.count(); ++s) {
    stop_ids[s] = in_case(call, stops[s], compared);
    if (stop_ids[s] < 0) return call.out_of_memory();
  }
  uint64_t kept = 0;
  for (uint64_t i = 0; i < call.count[0]; ++i) {
    Text text;
    if (!call.find(call.ids(0)[i], &text)) return call.no_text();
    const int64_t word = stops.count() == 0 ? 0 : in_case(call, text, compared);
    if (word < 0) return call.out_of_memory();
    bool is_stop = false;
    for (uint64_t s = 0; s < stops.count() && !is_stop; ++s)
      is_stop = stop_ids[s] == word;
    if (is_stop) continue;
    call.result(1)[kept] = in_case(call, text, record.change);
    if (call.result(1)[kept++] < 0) return call.out_of_memory();
  }
  const int64_t none = call.texts().intern({"", 0});
  if (none < 0) return call.out_of_memory();
  if (node.output_count == 2) *call.result(2) = static_cast<int64_t>(kept == 0 ? 1 : kept);
  for (; kept < room; ++kept)
    call.result(1)[kept] = none;
  return MCC_OK;
}

mcc_status match(const Call& call) {
  const auto automaton = record_of<mcc_text_automaton>(call);
  if (call.count[0] != call.count[1]) return call.wrong_size();
  const unsigned char* const classes = call.attributes + sizeof automaton;
  const unsigned char* const accepts = classes + 256;
  // Attributes begin at a multiple of 8.
  const auto* next =
      reinterpret_cast<const uint32_t*>(classes + (uint64_t{256} + automaton.states + 3) / 4 * 4);
  for (uint64_t i = 0; i < call.count[0]; ++i) {
    Text text;
    if (!call.find(call.ids(0)[i], &text)) return call.no_text();
    uint64_t state = automaton.start;
    for (uint64_t k = 0; k < text.size; ++k)
      state = next[state * automaton.classes + classes[static_cast<unsigned char>(text.data[k])]];
    static_cast<uint8_t*>(call.data[1])[i] = accepts[state] != 0 ? 1 : 0;
  }
  return MCC_OK;
}

// The program may have another locale, with another decimal point.
locale_t plain_locale() { return newlocale(LC_ALL_MASK, "C", nullptr); }

mcc_status no_number(const Call& call, Text text) {
  char what[160];
  std::snprintf(
      what, sizeof what, "\"%.*s\" is no number of the type %s",
      static_cast<int>(text.size < 64 ? text.size : 64), text.data,
      dtype_name(
          call.session->plan
              ->values[call.session->plan->indices[call.session->plan->nodes[call.node].args.begin + 1]]
              .dtype));
  return call.fail(what);
}

// As onnxruntime: the number that a text begins with. False where it begins with none, or it is too large.
bool parse_number(const char* text, uint32_t dtype, locale_t locale, void* out) {
  char* end = nullptr;
  errno = 0;
  switch (dtype) {
    case MCC_DTYPE_f32:
      *static_cast<float*>(out) = strtof_l(text, &end, locale);
      break;
    case MCC_DTYPE_f64:
      *static_cast<double*>(out) = strtod_l(text, &end, locale);
      break;
    case MCC_DTYPE_i64:
      *static_cast<int64_t*>(out) = strtoll_l(text, &end, 10, locale);
      break;
    default:
      *static_cast<uint64_t*>(out) = strtoull_l(text, &end, 10, locale);
      break;
  }
  // Numbers too small for the type are 0 or nearly.
  const bool is_real = dtype == MCC_DTYPE_f32 || dtype == MCC_DTYPE_f64;
  const double value = dtype == MCC_DTYPE_f32   ? static_cast<double>(*static_cast<float*>(out))
                       : dtype == MCC_DTYPE_f64 ? *static_cast<double*>(out)
                                                : 0;
  const bool is_too_large = errno == ERANGE && (!is_real || value > 1 || value < -1);
  return end != text && !is_too_large;
}

mcc_status parse(const Call& call) {
  const Plan& plan = *call.session->plan;
  const uint32_t dtype = plan.values[plan.indices[plan.nodes[call.node].args.begin + 1]].dtype;
  if (call.count[0] != call.count[1]) return call.wrong_size();
  const locale_t locale = plain_locale();
  if (locale == nullptr) return call.out_of_memory();
  mcc_status status = MCC_OK;
  for (uint64_t i = 0; i < call.count[0] && status == MCC_OK; ++i) {
    Text text;
    if (!call.find(call.ids(0)[i], &text)) {
      status = call.no_text();
      break;
    }
    char* const copy = call.texts().room(text.size + 1);
    if (copy == nullptr) {
      status = call.out_of_memory();
      break;
    }
    if (text.size != 0) std::memcpy(copy, text.data, text.size);
    copy[text.size] = 0;
    void* const out = static_cast<char*>(call.data[1]) + i * dtype_bytes(dtype);
    if (!parse_number(copy, dtype, locale, out)) status = no_number(call, text);
  }
  freelocale(locale);
  return status;
}

// As onnxruntime.
int format_number(const void* number, uint32_t dtype, char* out, size_t size) {
  if (dtype == MCC_DTYPE_i64)
    return std::snprintf(out, size, "%lld", static_cast<long long>(*static_cast<const int64_t*>(number)));
  if (dtype == MCC_DTYPE_u64)
    return std::snprintf(out, size, "%llu", static_cast<ull>(*static_cast<const uint64_t*>(number)));
  const double value = *static_cast<const double*>(number);
  if (value != value) return std::snprintf(out, size, "NaN");
  if (value - value != 0) return std::snprintf(out, size, value > 0 ? "INF" : "-INF");
  return std::snprintf(out, size, "%.8g", value);
}

mcc_status format(const Call& call) {
  const Plan& plan = *call.session->plan;
  const uint32_t dtype = plan.values[plan.indices[plan.nodes[call.node].args.begin]].dtype;
  if (call.count[0] != call.count[1]) return call.wrong_size();
  const locale_t locale = plain_locale();
  if (locale == nullptr) return call.out_of_memory();
  const locale_t before = uselocale(locale);
  mcc_status status = MCC_OK;
  for (uint64_t i = 0; i < call.count[0]; ++i) {
    char text[40];
    const int size = format_number(static_cast<const char*>(call.data[0]) + i * sizeof(uint64_t), dtype, text,
                                   sizeof text);
    call.result(1)[i] = call.texts().intern({text, static_cast<uint64_t>(size)});
    if (call.result(1)[i] < 0) {
      status = call.out_of_memory();
      break;
    }
  }
  uselocale(before);
  freelocale(locale);
  return status;
}

// By bytes, a shorter one before those that it begins.
int compare(Text a, Text b) {
  const uint64_t size = a.size < b.size ? a.size : b.size;
  const int order = size == 0 ? 0 : std::memcmp(a.data, b.data, size);
  return order != 0 ? order : a.size < b.size ? -1 : a.size > b.size ? 1 : 0;
}

bool is_before(const TextTable& texts, int64_t a, int64_t b) {
  return a != b && compare(texts[static_cast<uint64_t>(a)], texts[static_cast<uint64_t>(b)]) < 0;
}

// Heap sort: the library's sorting allocates.
void sift(const TextTable& texts, int64_t* ids, uint64_t at, uint64_t count) {
  for (uint64_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
    if (child + 1 < count && is_before(texts, ids[child], ids[child + 1])) ++child;
    if (!is_before(texts, ids[at], ids[child])) return;
    const int64_t moved = ids[at];
    ids[at] = ids[child];
    ids[child] = moved;
    at = child;
  }
}

void sort(const TextTable& texts, int64_t* ids, uint64_t count) {
  for (uint64_t at = count / 2; at-- > 0;)
    sift(texts, ids, at, count);
  for (uint64_t last = count; last-- > 1;) {
    const int64_t moved = ids[0];
    ids[0] = ids[last];
    ids[last] = moved;
    sift(texts, ids, 0, last);
  }
}

mcc_status rank(const Call& call) {
  if (call.count[0] != call.count[1]) return call.wrong_size();
  int64_t* const ids = call.texts().numbers(call.count[0]);
  if (ids == nullptr) return call.out_of_memory();
  for (uint64_t i = 0; i < call.count[0]; ++i) {
    Text text;
    ids[i] = call.ids(0)[i];
    if (!call.find(ids[i], &text)) return call.no_text();
  }
  sort(call.texts(), ids, call.count[0]);
  uint64_t different = 0;
  for (uint64_t i = 0; i < call.count[0]; ++i)
    if (i == 0 || is_before(call.texts(), ids[different - 1], ids[i])) ids[different++] = ids[i];
  for (uint64_t i = 0; i < call.count[0]; ++i) {
    uint64_t low = 0, high = different;
    while (low < high) {
      const uint64_t middle = (low + high) / 2;
      if (is_before(call.texts(), ids[middle], call.ids(0)[i]))
        low = middle + 1;
      else
        high = middle;
    }
    call.result(1)[i] = static_cast<int64_t>(low);
  }
  return MCC_OK;
}

mcc_status dispatch(const Call& call, uint32_t operation) {
  switch (operation) {
    case MCC_TEXT_table:
      call.texts().begin_run();
      return MCC_OK;
    case MCC_TEXT_intern:
      return intern(call);
    case MCC_TEXT_show:
      return show(call);
    case MCC_TEXT_concat:
      return concat(call);
    case MCC_TEXT_count:
      return count_parts(call);
    case MCC_TEXT_split:
      return split(call);
    case MCC_TEXT_normalize:
      return normalize(call);
    case MCC_TEXT_match:
      return match(call);
    case MCC_TEXT_parse:
      return parse(call);
    case MCC_TEXT_format:
      return format(call);
    case MCC_TEXT_rank:
      return rank(call);
  }
  return MCC_OK;
}

}  // namespace

mcc_status set_up_texts(mcc_session* session, mcc_error* error) {
  const Plan& plan = *session->plan;
  const mcc_plan_range nodes = plan.graphs[0].nodes;
  if (nodes.count == 0) return MCC_OK;
  const mcc_plan_node& node = plan.nodes[nodes.begin];
  TextList list;
  if (node.kind != MCC_NODE_text ||
      !TextList::open(plan.bytes + node.attributes.begin, node.attributes.count, &list))
    return MCC_OK;
  return session->texts.set_up(list) ? MCC_OK : fail(error, MCC_OUT_OF_MEMORY, "out of memory");
}

mcc_status run_text(mcc_session* session, uint64_t node, mcc_error* error) {
  const Plan& plan = *session->plan;
  const mcc_plan_node& record = plan.nodes[node];
  Call call = {session, node, error, {}, {}, plan.bytes + record.attributes.begin};
  for (uint32_t i = 0; i < record.args.count; ++i) {
    const mcc_plan_value& value = plan.values[plan.indices[record.args.begin + i]];
    uint64_t bytes = 0;
    if (!resolve(*session, value, &call.data[i], &bytes)) return call.fail(why_outside(*session, value));
    call.count[i] = bytes / dtype_bytes(value.dtype);
  }
  return dispatch(call, record.target);
}

}  // namespace mcc::runtime
