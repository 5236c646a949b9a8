#include "runtime/text.h"

namespace mcc::runtime {

namespace {

constexpr uint64_t kLeastSlots = 64;
constexpr uint64_t kLeastChunk = uint64_t{1} << 16;
constexpr uint64_t kMostTexts = uint64_t{1} << 31;

uint64_t mixed(uint64_t hash) {
  hash ^= hash >> 32;
  hash *= 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

uint64_t hash_of(Text text) {
  uint64_t hash = 0xcbf29ce484222325u ^ text.size;
  uint64_t i = 0;
  for (; i + 8 <= text.size; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data + i, sizeof word);
    hash = mixed(hash ^ word);
  }
  uint64_t rest = 0;
  if (i < text.size) std::memcpy(&rest, text.data + i, text.size - i);
  return mixed(hash ^ rest);
}

bool are_equal(Text a, Text b) {
  return a.size == b.size && (a.size == 0 || std::memcmp(a.data, b.data, a.size) == 0);
}

uint64_t word_at(const unsigned char* bytes, uint64_t index) {
  uint64_t word = 0;
  std::memcpy(&word, bytes + index * sizeof word, sizeof word);
  return word;
}

}  // namespace

bool TextList::open(const unsigned char* bytes, uint64_t size, TextList* list) {
  if (size < sizeof(uint64_t)) return false;
  const uint64_t count = word_at(bytes, 0), most = size / sizeof(uint64_t) - 1;
  if (count > most) return false;
  list->count_ = count;
  list->ends_ = bytes + sizeof(uint64_t);
  list->texts_ = reinterpret_cast<const char*>(list->ends_ + count * sizeof(uint64_t));
  const uint64_t text_bytes = size - (count + 1) * sizeof(uint64_t);
  uint64_t begin = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t end = word_at(list->ends_, i);
    if (end < begin || end > text_bytes) return false;
    begin = end;
  }
  return true;
}

Text TextList::operator[](uint64_t i) const {
  const uint64_t begin = i == 0 ? 0 : word_at(ends_, i - 1);
  return {texts_ + begin, word_at(ends_, i) - begin};
}

TextTable::~TextTable() {
  while (first_ != nullptr) {
    Chunk* const next = first_->next;
    std::free(first_);
    first_ = next;
  }
}

bool TextTable::set_up(const TextList& list) {
  if (!grow_slots(2 * list.count())) return false;
  for (uint64_t i = 0; i < list.count(); ++i) {
    const Text text = list[i];
    // A text that stands twice in the model's list keeps both positions; the first one is found.
    const uint64_t hash = hash_of(text);
    if (!add(text, hash, 0)) return false;
    put_in_slot(i);
  }
  model_count_ = count_;
  return true;
}

void TextTable::begin_run() {
  for (uint64_t id = model_count_; id < count_; ++id)
    slots()[entries()[id].slot] = 0;
  count_ = model_count_;
  current_ = first_;
  used_ = 0;
}

int64_t TextTable::intern(Text text) {
  if (2 * (count_ + 1) > slot_count_ && !grow_slots(4 * (count_ + 1))) return -1;
  const uint64_t hash = hash_of(text);
  uint64_t slot = hash & (slot_count_ - 1);
  for (; slots()[slot] != 0; slot = (slot + 1) & (slot_count_ - 1)) {
    const Entry& entry = entries()[slots()[slot] - 1];
    if (entry.hash == hash && are_equal(entry.text, text)) return slots()[slot] - 1;
  }
  const char* const data = keep(text);
  if (data == nullptr || !add({data, text.size}, hash, slot)) return -1;
  slots()[slot] = static_cast<uint32_t>(count_);
  return static_cast<int64_t>(count_ - 1);
}

bool TextTable::add(Text text, uint64_t hash, uint64_t slot) {
  if (count_ >= kMostTexts || !entries_.grow((count_ + 1) * sizeof(Entry), count_ * sizeof(Entry)))
    return false;
  entries()[count_++] = {text, hash, slot};
  return true;
}

// The model's texts come first, so those of a run can be taken out again in any order.
void TextTable::put_in_slot(uint64_t id) {
  Entry& entry = entries()[id];
  uint64_t slot = entry.hash & (slot_count_ - 1);
  while (slots()[slot] != 0)
    slot = (slot + 1) & (slot_count_ - 1);
  slots()[slot] = static_cast<uint32_t>(id + 1);
  entry.slot = slot;
}

bool TextTable::grow_slots(uint64_t count) {
  uint64_t size = slot_count_ == 0 ? kLeastSlots : slot_count_;
  while (size < count)
    size *= 2;
  if (size == slot_count_) return true;
  if (!slots_.reserve(size * sizeof(uint32_t))) {
    slot_count_ = 0;
    return false;
  }
  std::memset(slots_.data(), 0, size * sizeof(uint32_t));
  slot_count_ = size;
  for (uint64_t id = 0; id < count_; ++id)
    put_in_slot(id);
  return true;
}

const char* TextTable::keep(Text text) {
  while (current_ != nullptr && text.size > current_->size - used_ && current_->next != nullptr) {
    current_ = current_->next;
    used_ = 0;
  }
  if (current_ == nullptr || text.size > current_->size - used_) {
    const uint64_t size = text.size < kLeastChunk ? kLeastChunk : text.size;
    if (size > UINT64_MAX - sizeof(Chunk)) return nullptr;
    auto* chunk = static_cast<Chunk*>(std::malloc(sizeof(Chunk) + size));
    if (chunk == nullptr) return nullptr;
    chunk->next = nullptr;
    chunk->size = size;
    (current_ == nullptr ? first_ : current_->next) = chunk;
    current_ = chunk;
    used_ = 0;
  }
  char* const data = current_->data() + used_;
  if (text.size != 0) std::memcpy(data, text.data, text.size);
  used_ += text.size;
  return data;
}

}  // namespace mcc::runtime
