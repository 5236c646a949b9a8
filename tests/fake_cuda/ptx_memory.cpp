// Loads, stores and copies.
#include <algorithm>

#include "fake_cuda/ptx_machine.h"

namespace mcc::test::ptx {

// "[%r1+8]": the address.
Read Parser::address(const Function& f, std::string where) const {
  where = where.substr(1, where.size() - 2);
  int64_t offset = 0;
  if (size_t plus = where.find('+'); plus != std::string::npos) {
    offset = std::atoll(where.c_str() + plus + 1);
    where = trimmed(where.substr(0, plus));
  }
  return [base = read(f, where), offset](const Thread& t) { return base(t) + static_cast<uint64_t>(offset); };
}

void Parser::check_global(const Thread& t, uint64_t address, size_t size) {
  if (t.block->waits && !t.has_waited) throw Bad("an access ahead of the wait for the launches before it");
  const bool is_good =
      t.block->shadow ? t.block->shadow->is_global(address, size) : (*t.block->is_device)(address, size);
  if (!is_good) throw Bad("an address outside of global memory");
}

void Parser::check_shared(const Thread& t, uint64_t address, size_t size) {
  const auto begin = reinterpret_cast<uint64_t>(t.block->shared.data());
  if (address < begin || address + size > begin + t.block->shared.size())
    throw Bad("an address outside of shared memory");
  if ((address - begin) % size != 0)
    throw Bad("an address that is not aligned to " + std::to_string(size) + " bytes");
}

void Parser::write_shared(Thread& t, uint64_t address, size_t size) {
  const auto begin = reinterpret_cast<uint64_t>(t.block->shared.data());
  if (address < begin || address >= begin + t.block->shared.size()) return;
  for (size_t unit = (address - begin) / 16; unit <= (address - begin + size - 1) / 16; ++unit) {
    t.block->writers[unit] = static_cast<size_t>(&t - t.block->threads.data()) + 1;
    t.written.push_back(unit);
  }
}

// What is on its way reads as rubbish until it has been waited for.
void Parser::decode_async(Function& f, Step& step, const std::vector<std::string>& op,
                          const std::vector<std::string>& a) {
  if (op[1] != "async") throw Bad("copy");
  if (op[2] == "commit_group") {
    step.run = [](Thread& t) { t.groups.emplace_back(); };
  } else if (op[2] == "wait_group") {
    step.run = [left = static_cast<size_t>(std::atoi(a[0].c_str()))](Thread& t) {
      while (t.groups.size() - 1 > left) {
        for (const AsyncCopy& copy : t.groups.front()) {
          std::memcpy(reinterpret_cast<void*>(copy.to), copy.bytes.data(), copy.bytes.size());
          write_shared(t, copy.to, copy.bytes.size());
          if (t.block->shadow) t.block->shadow->end_copy(copy.to, copy.bytes.size(), t.block->place_of(t));
        }
        t.groups.erase(t.groups.begin());
      }
    };
  } else {
    const auto size = static_cast<size_t>(std::atoi(a[2].c_str()));
    if (size != 4 && size != 8 && size != 16) throw Bad("size");
    Read used = a.size() > 3 ? read(f, a[3]) : [size](const Thread&) { return uint64_t{size}; };
    const size_t number = static_cast<size_t>(&step - f.steps.data());
    step.run = [=, to = address(f, a[0]), from = address(f, a[1])](Thread& t) {
      AsyncCopy copy{to(t), std::vector<std::byte>(size)};
      check_shared(t, copy.to, size);
      const auto count = static_cast<size_t>(static_cast<uint32_t>(used(t)));
      if (count > 0) check_global(t, from(t), count);
      if (from(t) % size != 0)
        throw Bad("an address that is not aligned to " + std::to_string(size) + " bytes");
      if (count > 0) std::memcpy(copy.bytes.data(), reinterpret_cast<const void*>(from(t)), count);
      if (t.block->traffic)
        t.block->traffic->copy(number, t.block->place_of(t), copy.to, from(t), size, count);
      if (t.block->counter && count > 0)
        t.block->counter->access(number, t.block->place_of(t), from(t), count, false);
      if (Shadow* shadow = t.block->shadow) {
        if (count > 0) shadow->load(from(t), count, t.block->place_of(t));
        shadow->begin_copy(copy.to, size, t.block->place_of(t));
      }
      std::fill_n(reinterpret_cast<std::byte*>(copy.to), size, kPoison);
      t.groups.back().push_back(std::move(copy));
    };
  }
}

void Parser::decode_memory(Function& f, Step& step, const std::vector<std::string>& op,
                           const std::vector<std::string>& a) {
  const bool is_load = op[0] == "ld";
  const std::string& space = op[1];
  f.reads_cached |= is_load && space == "global" && has(op, "nc");
  size_t bytes = 0;
  bool is_signed = false;
  with_type(op.back(), [&](auto like) {
    bytes = sizeof like;
    is_signed = std::is_signed_v<decltype(like)> && std::is_integral_v<decltype(like)>;
  });
  std::string where = is_load ? a[1] : a[0];
  const std::string what = is_load ? a[0] : a[1];
  where = where.substr(1, where.size() - 2);
  int64_t offset = 0;
  if (size_t plus = where.find('+'); plus != std::string::npos) {
    offset = std::atoll(where.c_str() + plus + 1);
    where = trimmed(where.substr(0, plus));
  }
  if (is_load && space == "param") {
    auto it = f.params.find(where);
    if (it == f.params.end()) throw Bad("parameter");
    assign(f, step, what, [i = it->second](const Thread& t) { return t.block->arguments->at(i); });
    return;
  }
  std::vector<std::string> names = {what};
  if (what[0] == '{') names = split(what.substr(1, what.size() - 2), ',');
  Read base = read(f, where);
  const bool is_global = space == "global", is_shared = space == "shared", is_local = space == "local";
  const Shadow::Reads how = has(op, "nc") ? Shadow::Reads::by_cache : Shadow::Reads::plain;
  auto check = [=](const Thread& t, uint64_t address, size_t size) {
    auto lies_in = [&](const auto& memory) {
      const auto begin = reinterpret_cast<uint64_t>(memory.data());
      return address >= begin && address + size <= begin + memory.size();
    };
    const bool is_own = !is_global && !is_shared && lies_in(t.local);
    if (is_global) {
      check_global(t, address, size);
    } else if (!is_own && (is_local || !lies_in(t.block->shared))) {
      if (is_local || is_shared || !(*t.block->is_device)(address, size))
        throw Bad("an address outside of " + space + " memory");
    }
    if (address % size != 0)
      throw Bad("an address that is not aligned to " + std::to_string(size) + " bytes");
    if (Shadow* shadow = t.block->shadow; shadow && !is_own) {
      const size_t thread = t.block->place_of(t);
      is_load ? shadow->load(address, size, thread, how) : shadow->store(address, size, thread);
    }
  };
  auto count = [=, number = static_cast<size_t>(&step - f.steps.data())](const Thread& t, uint64_t address,
                                                                         size_t size) {
    if (t.block->counter && space == "global")
      t.block->counter->access(number, t.block->place_of(t), address, size, !is_load);
  };
  if (is_load) {
    std::vector<size_t> to;
    for (const std::string& n : names)
      to.push_back(static_cast<size_t>(reg(f, n)));
    step.run = [=](Thread& t) {
      const uint64_t address = base(t) + static_cast<uint64_t>(offset);
      check(t, address, bytes * to.size());
      count(t, address, bytes * to.size());
      for (size_t i = 0; i < to.size(); ++i) {
        uint64_t value = 0;
        std::memcpy(&value, reinterpret_cast<const void*>(address + i * bytes), bytes);
        if (is_signed && bytes < 8 && (value >> (8 * bytes - 1) & 1) != 0)
          value |= ~uint64_t{0} << (8 * bytes);
        t.r[to[i]] = value;
      }
    };
  } else {
    std::vector<Read> from;
    for (const std::string& n : names)
      from.push_back(read(f, n));
    step.run = [=](Thread& t) {
      const uint64_t address = base(t) + static_cast<uint64_t>(offset);
      check(t, address, bytes * from.size());
      count(t, address, bytes * from.size());
      if (space != "global" && space != "local") write_shared(t, address, bytes * from.size());
      for (size_t i = 0; i < from.size(); ++i) {
        const uint64_t value = from[i](t);
        std::memcpy(reinterpret_cast<void*>(address + i * bytes), &value, bytes);
      }
    };
  }
}

}  // namespace mcc::test::ptx
