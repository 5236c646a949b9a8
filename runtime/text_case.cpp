#include "runtime/text.h"

namespace mcc::runtime {

namespace {

struct CaseRun {
  uint32_t first, last;
  int32_t delta;
  uint32_t step;
};

#include "runtime/case_table.inc"

// Runs are in order, but some lie within the gaps of others: a few neighbours are looked at.
template <uint64_t count>
uint32_t changed(const CaseRun (&runs)[count], uint32_t c) {
  uint64_t low = 0, high = count;  // the runs before `low` begin at c or before
  while (low < high) {
    const uint64_t middle = (low + high) / 2;
    (runs[middle].first <= c ? low : high) = runs[middle].first <= c ? middle + 1 : middle;
  }
  constexpr uint64_t kNeighbours = 4;
  for (uint64_t i = low; i-- > 0 && low - i <= kNeighbours;)
    if (c <= runs[i].last && (c - runs[i].first) % runs[i].step == 0)
      return c + static_cast<uint32_t>(runs[i].delta);
  return c;
}

uint32_t changed_letter(uint32_t c, bool to_upper) {
  if (c < 0x80) {
    const bool is_letter = to_upper ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z';
    return is_letter ? c ^ 0x20 : c;
  }
  return to_upper ? changed(kToUpper, c) : changed(kToLower, c);
}

// Bytes of the code point that begins here; 0 where it is no UTF-8.
uint64_t decode(const char* data, uint64_t size, uint32_t* c) {
  const auto lead = static_cast<uint8_t>(data[0]);
  const uint64_t length = lead < 0x80                   ? 1
                          : lead >= 0xf0 && lead < 0xf8 ? 4
                          : lead >= 0xe0 && lead < 0xf0 ? 3
                          : lead >= 0xc2 && lead < 0xe0 ? 2
                                                        : 0;
  if (length == 0 || length > size) return 0;
  *c = length == 1 ? lead : lead & (0x7fu >> length);
  for (uint64_t i = 1; i < length; ++i) {
    const auto byte = static_cast<uint8_t>(data[i]);
    if ((byte & 0xc0) != 0x80) return 0;
    *c = *c << 6 | (byte & 0x3fu);
  }
  return length;
}

uint64_t encode(uint32_t c, char* out) {
  if (c < 0x80) {
    out[0] = static_cast<char>(c);
    return 1;
  }
  const uint64_t length = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (uint64_t i = length; i-- > 1; c >>= 6)
    out[i] = static_cast<char>(0x80 | (c & 0x3f));
  out[0] = static_cast<char>((0xf00 >> length & 0xff) | c);
  return length;
}

}  // namespace

uint64_t change_case(Text text, bool to_upper, char* out) {
  uint64_t wrote = 0;
  for (uint64_t i = 0; i < text.size;) {
    uint32_t c = 0;
    const uint64_t length = decode(text.data + i, text.size - i, &c);
    const uint32_t other = length == 0 ? c : changed_letter(c, to_upper);
    if (length == 0 || other == c) {
      const uint64_t same = length == 0 ? 1 : length;
      std::memcpy(out + wrote, text.data + i, same);
      wrote += same;
      i += same;
      continue;
    }
    wrote += encode(other, out + wrote);
    i += length;
  }
  return wrote;
}

}  // namespace mcc::runtime
