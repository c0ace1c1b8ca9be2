#include "distributed/node_exchange.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "distributed/messages.h"
#include "graph/tensors.h"

namespace topomask {

int owner_of(const std::vector<std::int64_t>& begin, std::int64_t place) {
  return static_cast<int>(std::upper_bound(begin.begin(), begin.end(), place) - begin.begin()) - 1;
}

NodeExchange::NodeExchange(RanksPtr ranks, const std::vector<std::int64_t>& begin,
                           const std::vector<std::int32_t>& places)
    : ranks_(std::move(ranks)), received_(static_cast<std::int64_t>(places.size())) {
  PerRank<std::int32_t> wanted = lists_for<std::int32_t>(*ranks_);
  for (const std::int32_t place : places)
    wanted[static_cast<std::size_t>(owner_of(begin, place))].push_back(place);
  const PerRank<std::int32_t> asked = exchange_lists(*ranks_, wanted, "the nodes at the borders");
  const std::int64_t first = begin[static_cast<std::size_t>(ranks_->rank())],
                     end = begin[static_cast<std::size_t>(ranks_->rank()) + 1];
  std::vector<std::int64_t> rows;
  for (std::size_t r = 0; r < asked.size(); ++r) {
    receive_counts_.push_back(static_cast<std::int64_t>(wanted[r].size()));
    send_counts_.push_back(static_cast<std::int64_t>(asked[r].size()));
    for (const std::int32_t place : asked[r]) {
      check(place >= first && place < end, "ranks: rank {} asked rank {} for a node that it does not own", r,
            ranks_->rank());
      rows.push_back(place - first);
    }
  }
  send_rows_ = take_vector(std::move(rows));
}

NodeExchange NodeExchange::to(c10::Device device) const {
  NodeExchange moved = *this;
  moved.send_rows_ = send_rows_.to(device);
  return moved;
}

void NodeExchange::add_back(at::Tensor& target, std::int64_t axis, const at::Tensor& received) const {
  if (target.is_cpu()) {
    target.index_add_(axis, send_rows_, received);
    return;
  }
  // A GPU adds in any order; but of one rank each row comes once.
  std::int64_t first = 0;
  for (const std::int64_t count : send_counts_) {
    if (count > 0)
      target.index_add_(axis, send_rows_.narrow(0, first, count), received.narrow(axis, first, count));
    first += count;
  }
}

Ranks::Pending NodeExchange::start(const at::Tensor& rows, const std::string& what) const {
  return ranks_->start_exchange(rows, send_counts_, receive_counts_, what);
}

Ranks::Pending NodeExchange::start_back(const at::Tensor& rows, const std::string& what) const {
  return ranks_->start_exchange(rows, receive_counts_, send_counts_, what);
}

}  // namespace topomask
