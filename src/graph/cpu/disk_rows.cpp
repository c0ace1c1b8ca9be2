#include "graph/cpu/disk_rows.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "core/interruption.h"
#include "graph/cpu/rows.h"
#include "io/files.h"
#include "topomask/csr.h"

namespace topomask {
namespace {

// Marks the column of an entry that is none of the row but says that the edge comes in from there.
constexpr std::uint32_t kIncoming = 0x80000000u;

struct Record {
  std::int32_t row;
  std::uint32_t col;
  float weight;
};

struct SortedEntry {
  std::uint32_t col;
  float weight;

  std::int32_t node() const { return static_cast<std::int32_t>(col & ~kIncoming); }
};

constexpr std::size_t kRowFileBuffer = std::size_t{1} << 20;

template <class Visit>
void for_each_record(const std::vector<char>& bytes, bool weighted, const Visit& visit) {
  const std::size_t size = weighted ? 12 : 8;
  for (std::size_t at = 0; at + size <= bytes.size(); at += size) {
    Record record{0, 0, 1.0f};
    std::memcpy(&record, bytes.data() + at, size);
    visit(record);
  }
}

}  // namespace

DiskRows::DiskRows(std::int64_t num_nodes, std::int64_t num_edges, const DiskRowOptions& options)
    : options_(options),
      degree_(static_cast<std::size_t>(num_nodes)),
      neighbours_(options.directed ? static_cast<std::size_t>(num_nodes) : 0),
      col_(inside(options.folder, "rows-col.tmp"), kRowFileBuffer),
      weight_(inside(options.folder, "rows-weight.tmp"), kRowFileBuffer),
      neighbour_(inside(options.folder, "rows-neighbour.tmp"), kRowFileBuffer) {
  buckets_ = make_buckets(0, num_nodes, 2 * num_edges * static_cast<std::int64_t>(record_bytes()));
}

// Equal ranges of rows, enough of them that each would fill the buffer if rows were equally long.
std::vector<DiskRows::Bucket> DiskRows::make_buckets(std::int64_t first, std::int64_t end,
                                                     std::int64_t bytes) {
  constexpr std::int64_t kMostBuckets = 256;
  const std::int64_t buffer = std::max<std::int64_t>(options_.buffer_bytes, 1);
  const std::int64_t wanted = std::clamp<std::int64_t>(bytes / buffer + 1, 1, kMostBuckets),
                     rows = std::max<std::int64_t>((end - first + wanted - 1) / wanted, 1);
  std::vector<Bucket> buckets;
  const auto file_buffer = static_cast<std::size_t>(std::clamp<std::int64_t>(buffer / wanted, 4096, 1 << 20));
  for (std::int64_t begin = first; begin < end; begin += rows) {
    const std::string name = fmt::format("bucket-{}.tmp", files_made_++);
    buckets.push_back(
        {begin, std::min(begin + rows, end), AppendFile(inside(options_.folder, name), file_buffer)});
  }
  return buckets;
}

void DiskRows::put(std::vector<Bucket>& buckets, std::int32_t row, std::uint32_t col, float weight) const {
  const std::int64_t rows = buckets.front().end - buckets.front().first;
  Bucket& bucket = buckets[static_cast<std::size_t>((row - buckets.front().first) / rows)];
  const Record record{row, col, weight};
  bucket.file.add(std::span(reinterpret_cast<const char*>(&record), record_bytes()));
}

void DiskRows::add(std::int32_t source, std::int32_t target, float weight) {
  if (source == target) {
    if (options_.self_loops == SelfLoops::drop) return;
    put(buckets_, source, static_cast<std::uint32_t>(target), weight);
    return;
  }
  put(buckets_, source, static_cast<std::uint32_t>(target), weight);
  put(buckets_, target, static_cast<std::uint32_t>(source) | (options_.directed ? kIncoming : 0), weight);
}

void DiskRows::finish(const std::function<void(std::int64_t)>& progress) {
  progress_ = progress;
  std::vector<Bucket> buckets = std::move(buckets_);
  buckets_.clear();
  for (Bucket& bucket : buckets) sort_bucket(std::move(bucket));
  col_.flush();
  weight_.flush();
  neighbour_.flush();
}

// A bucket that is too large after all, since its rows are long, is spread over smaller ones.
void DiskRows::split_bucket(Bucket bucket) {
  std::vector<Bucket> smaller =
      make_buckets(bucket.first, bucket.end,
                   std::max(2 * static_cast<std::int64_t>(bucket.file.size()), 2 * options_.buffer_bytes));
  bucket.file.flush();
  SequentialReader reader(bucket.file.path());
  const std::size_t size = record_bytes();
  const std::size_t piece =
      std::max<std::size_t>(static_cast<std::size_t>(options_.buffer_bytes) / 4 / size, 1) * size;
  std::vector<char> bytes;
  for (std::uint64_t left = bucket.file.size(); left > 0; left -= bytes.size()) {
    reader.read(bytes, static_cast<std::size_t>(std::min<std::uint64_t>(left, piece)));
    for_each_record(bytes, options_.weighted,
                    [&](const Record& record) { put(smaller, record.row, record.col, record.weight); });
    poll_interruption();
  }
  { const Bucket done = std::move(bucket); }  // removes its file
  for (Bucket& part : smaller) sort_bucket(std::move(part));
}

void DiskRows::sort_bucket(Bucket bucket) {
  poll_interruption();
  const std::int64_t rows = bucket.end - bucket.first;
  if (rows > 1 && bucket.file.size() > static_cast<std::uint64_t>(options_.buffer_bytes)) {
    split_bucket(std::move(bucket));
    return;
  }
  // Stable: first by row, then within each row by column, so that parallel edges keep the order of the file.
  std::vector<std::int64_t> begin(static_cast<std::size_t>(rows) + 1, 0);
  std::vector<SortedEntry> entries(static_cast<std::size_t>(bucket.file.size()) / record_bytes());
  {
    const std::vector<char> bytes = bucket.file.read<char>();
    for_each_record(bytes, options_.weighted,
                    [&](const Record& record) { ++begin[record.row - bucket.first + 1]; });
    std::partial_sum(begin.begin(), begin.end(), begin.begin());
    std::vector<std::int64_t> next(begin.begin(), begin.end() - 1);
    for_each_record(bytes, options_.weighted, [&](const Record& record) {
      entries[next[record.row - bucket.first]++] = {record.col, record.weight};
    });
  }
  CsrArrays sorted;
  sorted.row_ptr.reserve(begin.size());
  sorted.col.reserve(entries.size());
  sorted.weight.reserve(entries.size());
  std::vector<std::int32_t> near;
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto from = entries.begin() + begin[i], to = entries.begin() + begin[i + 1];
    std::stable_sort(from, to,
                     [](const SortedEntry& a, const SortedEntry& b) { return a.node() < b.node(); });
    near.clear();
    for (auto entry = from; entry != to; ++entry) {
      const bool again = !near.empty() && near.back() == entry->node();
      if (entry->node() != bucket.first + i && !again) near.push_back(entry->node());
      if ((entry->col & kIncoming) != 0) continue;
      sorted.col.push_back(entry->node());
      sorted.weight.push_back(entry->weight);
    }
    sorted.row_ptr.push_back(static_cast<std::int64_t>(sorted.col.size()));
    num_neighbours_ += static_cast<std::int64_t>(near.size());
    if (options_.directed) {
      neighbours_[bucket.first + i] = static_cast<std::uint32_t>(near.size());
      neighbour_.add(std::span<const std::int32_t>(near));
    }
  }
  if (options_.duplicates != Duplicates::keep)
    merge_parallel_entries(sorted, options_.duplicates, bucket.first);
  for (std::int64_t i = 0; i < rows; ++i) {
    degree_[bucket.first + i] = static_cast<std::uint32_t>(sorted.row_ptr[i + 1] - sorted.row_ptr[i]);
  }
  num_entries_ += static_cast<std::int64_t>(sorted.col.size());
  col_.add(std::span<const std::int32_t>(sorted.col));
  // Without weights every entry weighs 1, unless parallel edges are summed.
  weight_.add(std::span<const float>(sorted.weight));
  if (progress_) progress_(bucket.end);
}

void DiskRows::remove_files() {
  col_.remove();
  weight_.remove();
  neighbour_.remove();
}

void DiskRows::for_each_row(const std::function<void(std::int32_t, const Row&)>& visit) const {
  SequentialReader cols(col_.path()), weights(weight_.path()), neighbours(neighbour_.path());
  std::vector<std::int32_t> col, near;
  std::vector<float> weight;
  constexpr std::int64_t kRowsPerPoll = 1 << 16;
  for (std::int64_t node = 0; node < num_nodes(); ++node) {
    if (node % kRowsPerPoll == 0) poll_interruption();
    cols.read(col, degree_[node]);
    weights.read(weight, degree_[node]);
    if (options_.directed) {
      neighbours.read(near, neighbours_[node]);
    } else {  // its own entries, without parallel ones and loops
      near.clear();
      for (const std::int32_t other : col) {
        if (other != node && (near.empty() || near.back() != other)) near.push_back(other);
      }
    }
    visit(static_cast<std::int32_t>(node), {col, weight, near});
  }
}

}  // namespace topomask
