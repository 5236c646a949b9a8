// What the writers of formats in sections share: runtime/include/mcc/plan_format.h and device_format.h.
#pragma once

#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "mcc/plan_format.h"
#include "support/check.h"

namespace mcc::codegen {

// Texts of a section, one after the other, each ended by a zero; the same text twice is stored once.
class TextTable {
 public:
  mcc_plan_string add(const std::string& text, std::vector<char>& section) {
    const auto [entry, is_new] = places_.try_emplace(text, mcc_plan_string{});
    if (!is_new) return entry->second;
    MCC_CHECK(section.size() + text.size() < MCC_PLAN_NONE, "the model's texts are too large");
    entry->second = {static_cast<uint32_t>(section.size()), static_cast<uint32_t>(text.size())};
    section.insert(section.end(), text.begin(), text.end());
    section.push_back(0);
    return entry->second;
  }

 private:
  std::map<std::string, mcc_plan_string> places_;
};

// Appends the records of one section, aligned, and enters it into the header.
template <class Header, class T>
void place_section(Header& header, int section, const std::vector<T>& records, size_t alignment,
                   std::vector<std::byte>& out) {
  out.resize((out.size() + alignment - 1) / alignment * alignment);
  header.sections[section] = {out.size(), records.size()};
  const size_t offset = out.size();
  out.resize(offset + records.size() * sizeof(T));
  if (!records.empty()) std::memcpy(out.data() + offset, records.data(), records.size() * sizeof(T));
}

// Puts the header with size and checksum in front of all that was placed. Bytes before checked_from are not in the checksum.
template <class Header>
void seal(Header header, size_t checked_from, std::vector<std::byte>& out) {
  header.total_size = out.size();
  std::memcpy(out.data(), &header, sizeof header);
  header.checksum = mcc_plan_checksum(reinterpret_cast<const unsigned char*>(out.data()) + checked_from,
                                      out.size() - checked_from);
  std::memcpy(out.data(), &header, sizeof header);
}

}  // namespace mcc::codegen
