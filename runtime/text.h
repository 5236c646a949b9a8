// Strings of a session: inside of a model they are numbers, positions in a table of texts (mcc/plan_format.h).
#pragma once

#include "runtime/plan.h"

namespace mcc::runtime {

struct Text {
  const char* data;
  uint64_t size;
};

// Texts in the attributes of a node.
class TextList {
 public:
  // Bytes that are no such list are refused.
  static bool open(const unsigned char* bytes, uint64_t size, TextList* list);
  uint64_t count() const { return count_; }
  Text operator[](uint64_t i) const;

 private:
  uint64_t count_ = 0;
  const unsigned char* ends_ = nullptr;
  const char* texts_ = nullptr;
};

// No text stands twice. What was interned since begin_run() is a copy; its memory is used again in the next run.
class TextTable {
 public:
  TextTable() = default;
  TextTable(const TextTable&) = delete;
  TextTable& operator=(const TextTable&) = delete;
  ~TextTable();

  // The model's strings, which live as long as the model. False when memory is short.
  bool set_up(const TextList& list);
  void begin_run();
  uint64_t count() const { return count_; }
  Text operator[](uint64_t id) const { return entries()[id].text; }
  // The position of a text that may not be in the table yet; -1 when memory is short.
  int64_t intern(Text text);
  // Memory to put a text together in, valid until it is asked for again; null when memory is short.
  char* room(uint64_t bytes) {
    return room_.reserve(bytes == 0 ? 1 : bytes) ? reinterpret_cast<char*>(room_.data()) : nullptr;
  }
  // The same, for numbers.
  int64_t* numbers(uint64_t count) {
    return numbers_.reserve((count + 1) * sizeof(int64_t)) ? reinterpret_cast<int64_t*>(numbers_.data())
                                                           : nullptr;
  }

 private:
  struct Entry {
    Text text;
    uint64_t hash;
    uint64_t slot;
  };
  struct Chunk {
    Chunk* next;
    uint64_t size;
    char* data() { return reinterpret_cast<char*>(this + 1); }
  };

  Entry* entries() const { return reinterpret_cast<Entry*>(entries_.data()); }
  uint32_t* slots() const { return reinterpret_cast<uint32_t*>(slots_.data()); }
  bool grow_slots(uint64_t count);
  void put_in_slot(uint64_t id);
  bool add(Text text, uint64_t hash, uint64_t slot);
  const char* keep(Text text);

  Block entries_;            // of Entry
  Block slots_;              // hash table with open addressing: 1 + position, 0 where there is none
  uint64_t slot_count_ = 0;  // a power of 2
  uint64_t count_ = 0, model_count_ = 0;
  Block room_, numbers_;
  Chunk* first_ = nullptr;
  Chunk* current_ = nullptr;
  uint64_t used_ = 0;  // of the current chunk
};

// Changes the case of the letters of a text in UTF-8, of ASCII and by Unicode's simple mapping; what is no UTF-8 stays as it is. `out`
// has room for twice the size. The size of the result.
uint64_t change_case(Text text, bool to_upper, char* out);

// Whether the arguments and attributes of a node of kind MCC_NODE_text are those of its operation. Its values and ranges are checked.
bool is_text_node(const Plan& plan, const mcc_plan_node& node);

}  // namespace mcc::runtime
