// Rows of other ranks' nodes, fetched repeatedly: who sends which rows to whom is settled once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "topomask/distributed.h"

namespace topomask {

// The rank that owns a place. `begin`: [R+1], where each rank's places begin.
int owner_of(const std::vector<std::int64_t>& begin, std::int64_t place);

class NodeExchange {
 public:
  NodeExchange() = default;
  // `places`: of nodes of other ranks, ascending without repeats. Collective.
  NodeExchange(RanksPtr ranks, const std::vector<std::int64_t>& begin,
               const std::vector<std::int32_t>& places);

  std::int64_t num_received() const { return received_; }
  std::int64_t num_sent() const { return send_rows_.defined() ? send_rows_.size(0) : 0; }
  // [num_sent] int64: own rows to send, rank by rank.
  const at::Tensor& send_rows() const { return send_rows_; }
  // The same with send_rows on another device, for rows that lie there.
  NodeExchange to(c10::Device device) const;

  // Forward: [num_sent, ...] -> [num_received, ...], in the order of the places. Collective.
  Ranks::Pending start(const at::Tensor& rows, const std::string& what) const;
  // Its transpose: [num_received, ...] -> [num_sent, ...].
  Ranks::Pending start_back(const at::Tensor& rows, const std::string& what) const;
  // What came back, added to own rows in the order of ranks: target[send_rows] += received along `axis`.
  void add_back(at::Tensor& target, std::int64_t axis, const at::Tensor& received) const;

 private:
  RanksPtr ranks_;
  at::Tensor send_rows_;
  std::int64_t received_ = 0;
  std::vector<std::int64_t> send_counts_, receive_counts_;
};

}  // namespace topomask
