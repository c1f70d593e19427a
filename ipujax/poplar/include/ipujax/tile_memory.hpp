// The memory that vertices run on, with guard bytes around each field.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace ipujax {

// Each region has guard bytes before and after it, and is aligned to no more than its field asks
// for.
class TileMemory {
public:
  struct Region {
    const char *name;
    std::size_t offset, bytes;
    std::size_t end() const { return offset + bytes; }
  };
  std::vector<Region> regions;

  void add(const char *name, std::size_t bytes, std::size_t alignment) {
    const std::size_t step = 2 * alignment;
    const std::size_t offset = (end + GUARD_BYTES + alignment - 1) / step * step + alignment;
    regions.push_back({name, offset, bytes});
    end = offset + bytes;
  }
  void allocate() {
    storage.assign(end + GUARD_BYTES + LARGEST_ALIGNMENT, GUARD);
    const std::size_t beyond = reinterpret_cast<std::uintptr_t>(storage.data()) % LARGEST_ALIGNMENT;
    base = storage.data() + (LARGEST_ALIGNMENT - beyond);
    for (const Region &region : regions)
      std::memset(base + region.offset, 0, region.bytes);
  }
  char *at(std::size_t region) { return base + regions[region].offset; }

  // Whether nothing was written outside of the regions.
  bool isIntact() const {
    std::uint64_t damage = 0;
    std::size_t last = 0;
    for (const Region &region : regions) {
      damage |= damageBetween(last, region.offset);
      last = region.end();
    }
    return !(damage | damageBetween(last, last + GUARD_BYTES));
  }

  // The first field beyond whose end, or before whose begin, something was written: the nearer one.
  const char *overwritten() const {
    std::size_t last = 0;
    for (std::size_t i = 0; i < regions.size(); ++i) {
      for (std::size_t place = last; place < regions[i].offset; ++place)
        if (base[place] != GUARD)
          return i && place - last < regions[i].offset - place ? regions[i - 1].name
                                                               : regions[i].name;
      last = regions[i].end();
    }
    return regions.empty() ? "" : regions.back().name;
  }

  // The field that an address belongs to; "" if none.
  const char *fieldAt(const char *address) const {
    for (const Region &region : regions)
      if (address >= base + region.offset && address < base + region.end())
        return region.name;
    return "";
  }

private:
  static constexpr std::size_t GUARD_BYTES = 16, LARGEST_ALIGNMENT = 64;
  static constexpr char GUARD = char(0xa5);
  static constexpr std::uint64_t GUARD_WORD = 0xa5a5a5a5a5a5a5a5;
  std::vector<char> storage;
  char *base = nullptr;
  std::size_t end = 0;

  // Not 0 if something was written between two places, at least eight bytes from each other.
  std::uint64_t damageBetween(std::size_t first, std::size_t last) const {
    std::uint64_t damage = damageAt(last - sizeof GUARD_WORD);
    for (; first + sizeof GUARD_WORD < last; first += sizeof GUARD_WORD)
      damage |= damageAt(first);
    return damage;
  }
  std::uint64_t damageAt(std::size_t place) const {
    std::uint64_t word;
    std::memcpy(&word, base + place, sizeof word);
    return word ^ GUARD_WORD;
  }
};

} // namespace ipujax
