// Bulk tensor copies, and the mbarriers that count them.
#include <algorithm>

#include "fake_cuda/ptx_machine.h"

namespace mcc::test::ptx {

namespace {

// Of 32 bits of an address in shared memory, which here is 64 bits long.
uint64_t whole(const Thread& t, uint64_t low) {
  const auto begin = reinterpret_cast<uint64_t>(t.block->shared.data());
  return begin + static_cast<uint32_t>(low - begin);
}

Mbarrier& at(const Thread& t, uint64_t address) {
  auto it = t.block->mbarriers.find(address);
  if (it == t.block->mbarriers.end()) throw Bad("an mbarrier that has not been initialised");
  return it->second;
}

// The phase ends when all have arrived and all bytes are there.
bool end_phase(const Block& block, Mbarrier& m) {
  if (m.arrivals != m.count || m.bytes != 0) return false;
  for (const AsyncCopy& copy : m.copies) {
    std::memcpy(reinterpret_cast<void*>(copy.to), copy.bytes.data(), copy.bytes.size());
    if (block.shadow) block.shadow->end_engine_copy(copy.to, copy.bytes.size());
  }
  m = {m.phase + 1, m.count, 0, 0, {}};
  return true;
}

// Of PTX ISA 5.5.5 (swizzling modes): units of 16 bytes, exchanged in rows of 32, 64 or 128 bytes by bits 7 and up of the address.
uint64_t swizzled(uint64_t address, uint32_t row_bytes) {
  const uint64_t units = row_bytes / 16;
  return units == 0 ? address : address ^ (address / 128 % units) * 16;
}

// The rows of a box, as far as they lie in the matrix.
void count_box(const Thread& t, size_t step, const PtxTensorMap& m, int64_t left, int64_t top) {
  const int64_t begin = std::max<int64_t>(left, 0);
  const int64_t end = std::min(left + int64_t{m.box_width}, static_cast<int64_t>(m.width));
  const int64_t last = std::min(top + int64_t{m.box_height}, static_cast<int64_t>(m.height));
  for (int64_t row = std::max<int64_t>(top, 0); row < last && begin < end; ++row) {
    const auto at = static_cast<uint64_t>(row) * m.pitch + static_cast<uint64_t>(begin) * m.element_bytes;
    t.block->counter->access(step, t.block->place_of(t), m.address + at,
                             static_cast<uint64_t>(end - begin) * m.element_bytes, false);
  }
}

}  // namespace

// mbarrier.init.shared::cta.b64 [m], count; mbarrier.arrive.expect_tx.shared::cta.b64 _, [m], bytes;
// mbarrier.try_wait.parity.shared::cta.b64 p, [m], parity;
void Parser::decode_mbarrier(Function& f, Step& step, const std::vector<std::string>& op,
                             const std::vector<std::string>& a) {
  if (!has(op, "shared::cta") || op.back() != "b64") throw Bad("mbarrier");
  if (op[1] == "init") {
    step.run = [=, where = address(f, a[0]), count = read(f, a[1])](Thread& t) {
      const uint64_t address = whole(t, where(t));
      check_shared(t, address, 8);
      write_shared(t, address, 8);
      t.block->mbarriers[address] = {0, static_cast<int64_t>(count(t)), 0, 0, {}};
    };
  } else if (op[1] == "arrive" && op[2] == "expect_tx" && a[0] == "_") {
    step.run = [=, where = address(f, a[1]), bytes = read(f, a[2])](Thread& t) {
      Mbarrier& m = at(t, whole(t, where(t)));
      if (m.arrivals == m.count) throw Bad("an arrival at an mbarrier where all have arrived");
      ++m.arrivals;
      m.bytes += static_cast<int64_t>(bytes(t));
    };
  } else if (op[1] == "try_wait" && op[2] == "parity") {
    step.run = [to = static_cast<size_t>(reg(f, a[0])), where = address(f, a[1]),
                parity = read(f, a[2])](Thread& t) {
      Mbarrier& m = at(t, whole(t, where(t)));
      // Of the phases that have ended, the last; the one before the first counts as ended, too.
      const bool has_ended = (m.phase + 1) % 2 == parity(t) % 2;
      // The thread that issues the copies runs first, whenever others do: nobody else would end it.
      if (!has_ended && !end_phase(*t.block, m)) throw Bad("a wait at an mbarrier for what nobody has begun");
      if (t.block->shadow) t.block->shadow->wait_for_engine(t.block->place_of(t));
      t.r[to] = 1;
    };
  } else {
    throw Bad("mbarrier");
  }
}

// cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [to], [map, {column, row}], [mbarrier];
void Parser::decode_bulk(Function& f, Step& step, const std::vector<std::string>& op,
                         const std::vector<std::string>& a) {
  if (!has(op, "tensor") || !has(op, "2d") || !has(op, "shared::cluster") || !has(op, "global") ||
      !has(op, "mbarrier::complete_tx::bytes"))
    throw Bad("bulk copy");
  const std::vector<std::string> from = split(a[1].substr(1, a[1].size() - 2), ',');
  if (from.size() != 2) throw Bad("bulk copy");
  const std::vector<std::string> place = split(from[1].substr(1, from[1].size() - 2), ',');
  if (place.size() != 2) throw Bad("coordinates");
  const size_t number = static_cast<size_t>(&step - f.steps.data());
  step.run = [=, to = address(f, a[0]), map = read(f, from[0]), column = read(f, place[0]),
              row = read(f, place[1]), mbarrier = address(f, a[2])](Thread& t) {
    PtxTensorMap m;
    std::memcpy(&m, reinterpret_cast<const void*>(map(t)), sizeof m);
    if (m.magic != PtxTensorMap::kMagic) throw Bad("a bulk copy without a tensor map");
    const uint64_t counter = whole(t, mbarrier(t)), first = whole(t, to(t));
    Mbarrier& bar = at(t, counter);
    if (t.block->writers[(counter - reinterpret_cast<uint64_t>(t.block->shared.data())) / 16] != 0)
      throw Bad("an mbarrier that the async proxy does not know: no fence.proxy.async since its init");
    if (first % 128 != 0) throw Bad("a bulk copy to other than a multiple of 128 bytes");
    const size_t bytes = m.element_bytes, row_bytes = m.box_width * bytes;
    const auto left = static_cast<int32_t>(column(t)), top = static_cast<int32_t>(row(t));
    Shadow* const shadow = t.block->shadow;
    for (uint32_t y = 0; y < m.box_height; ++y) {
      constexpr size_t kUnit = 16;  // that stay together
      for (size_t at = 0; shadow && at < row_bytes; at += kUnit) {
        const uint64_t unit = swizzled(first + y * row_bytes + at, m.swizzle);
        check_shared(t, unit, kUnit);
        shadow->begin_copy(unit, kUnit, t.block->place_of(t));
      }
      for (uint32_t x = 0; x < m.box_width; ++x) {
        const int64_t r = int64_t{top} + y, c = int64_t{left} + x;
        AsyncCopy copy{swizzled(first + y * row_bytes + x * bytes, m.swizzle), std::vector<std::byte>(bytes)};
        check_shared(t, copy.to, bytes);
        if (r >= 0 && c >= 0 && static_cast<uint64_t>(r) < m.height && static_cast<uint64_t>(c) < m.width) {
          const uint64_t source =
              m.address + static_cast<uint64_t>(r) * m.pitch + static_cast<uint64_t>(c) * bytes;
          check_global(t, source, bytes);
          if (shadow) shadow->load(source, bytes, t.block->place_of(t), Shadow::Reads::by_cache);
          std::memcpy(copy.bytes.data(), reinterpret_cast<const void*>(source), bytes);
        }
        // Nothing until a wait has seen it.
        std::fill_n(reinterpret_cast<std::byte*>(copy.to), bytes, kPoison);
        bar.copies.push_back(std::move(copy));
      }
    }
    bar.bytes -= static_cast<int64_t>(m.box_height * row_bytes);
    if (t.block->counter) count_box(t, number, m, left, top);
  };
}

}  // namespace mcc::test::ptx

namespace mcc::test {

bool make_map(uint64_t address, const uint64_t* extents, const uint64_t* strides, const uint32_t* box,
              int swizzle, uint32_t element_bytes, PtxTensorMap* map) {
  constexpr uint32_t kMost = 256;  // of a box
  constexpr uint64_t kMostExtent = uint64_t{1} << 32, kMostStride = uint64_t{1} << 40;
  if (swizzle < 0 || swizzle > 3 || address == 0 || address % 16 != 0 || strides[0] % 16 != 0 ||
      strides[0] >= kMostStride || strides[0] < extents[0] * element_bytes || extents[0] - 1 >= kMostExtent ||
      extents[1] - 1 >= kMostExtent)
    return false;
  *map = {};
  map->address = address;
  map->width = extents[0];
  map->height = extents[1];
  map->pitch = strides[0];
  map->element_bytes = element_bytes;
  map->box_width = box[0];
  map->box_height = box[1];
  map->swizzle = swizzle == 0 ? 0 : 16u << swizzle;
  const uint32_t row = box[0] * element_bytes;
  return box[0] >= 1 && box[0] <= kMost && box[1] >= 1 && box[1] <= kMost && row % 16 == 0 &&
         (swizzle == 0 || row <= map->swizzle);
}

}  // namespace mcc::test
