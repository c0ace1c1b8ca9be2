// Deposits of one start node, coalesced: one entry per visited node, one deposit per (visited node, hop).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace topomask {

// A vector that leaves new elements unset and hands out room for many at once.
template <class T>
class GrowingArray {
 public:
  // Room for `count` more elements at the end.
  T* extend(std::int64_t count) {
    if (size_ + count > capacity_) {
      capacity_ = std::max(size_ + count, 2 * capacity_);
      std::unique_ptr<T[]> larger(new T[static_cast<std::size_t>(capacity_)]);
      std::copy_n(data_.get(), size_, larger.get());
      data_ = std::move(larger);
    }
    size_ += count;
    return data_.get() + size_ - count;
  }
  std::int64_t size() const { return size_; }
  const T* begin() const { return data_.get(); }
  const T* end() const { return data_.get() + size_; }

 private:
  std::unique_ptr<T[]> data_;
  std::int64_t size_ = 0, capacity_ = 0;
};

// Rows of features for a run of start nodes, growing at the end.
struct FeatureRows {
  GrowingArray<std::int32_t> entries_in_row;     // [rows]
  GrowingArray<std::int32_t> col;                // [nnz]
  GrowingArray<std::int32_t> deposits_in_entry;  // [nnz]
  GrowingArray<std::int16_t> hop;                // [deposits]
  GrowingArray<float> load;                      // [deposits]
};

// Visits must be added hop by hop, in walker order within a hop: then an entry's deposits come out in
// ascending order of hops, and equal (node, hop) pairs are summed in an order that depends on nothing but the
// walks.
class Coalescer {
 public:
  void begin_row(std::int64_t max_visits);
  void add(std::int32_t node, int hop, float load) {
    Entry& entry = find(node);
    if (entry.last >= 0 && deposits_[entry.last].hop == hop) {
      deposits_[entry.last].load += load;
      return;
    }
    const auto index = static_cast<std::int32_t>(deposits_.size());
    deposits_.push_back({static_cast<std::int16_t>(hop), -1, load});
    (entry.last >= 0 ? deposits_[entry.last].next : entry.first) = index;
    entry.last = index;
    ++entry.count;
  }
  // Appends the row, columns ascending, loads multiplied by `scale`.
  void finish_row(float scale, FeatureRows& rows);

 private:
  struct Entry {
    std::int32_t node, first, last, count;
  };
  struct Deposit {
    std::int16_t hop;
    std::int32_t next;
    float load;
  };

  void sort_entries();
  Entry& find(std::int32_t node) {
    // Open addressing; the table is at least twice as large as the number of visits of a row.
    std::uint32_t slot = (static_cast<std::uint32_t>(node) * 0x9E3779B9u) >> shift_;
    while (table_[slot] >= 0) {
      Entry& entry = entries_[table_[slot]];
      if (entry.node == node) return entry;
      slot = (slot + 1) & mask_;
    }
    table_[slot] = static_cast<std::int32_t>(entries_.size());
    used_slots_.push_back(slot);
    return entries_.emplace_back(Entry{node, -1, -1, 0});
  }

  std::vector<std::int32_t> table_;  // slot -> index into entries_, or -1
  std::vector<std::uint32_t> used_slots_;
  std::vector<Entry> entries_;
  std::vector<Deposit> deposits_;
  std::vector<std::uint64_t> order_;
  std::uint32_t mask_ = 0;
  int shift_ = 32;
};

}  // namespace topomask
