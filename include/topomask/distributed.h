// Graphs, walks, masks and attention over several processes ("ranks"), each with a part of the nodes.
//
// The paper remarks that graph random features are easy to distribute (Sec. 3.3). Ranks communicate through
// torch.distributed's c10d, with Gloo between CPUs and NCCL or Gloo between GPUs. Random words depend only on
// (seed, node, walk, hop), so walks and features are those of one process, bit for bit; attention and its
// gradients are the same up to rounding. See docs/howto/several-machines.md.
//
// The graph and its walks stay on the CPU; masks and attention compute where f, q, k and v are.
//
// Every rank must call all functions marked "collective", in the same order. If one rank fails or does not
// answer within the time limit, the others throw an Error.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "topomask/attention.h"
#include "topomask/csr.h"
#include "topomask/features.h"
#include "topomask/graph.h"
#include "topomask/partition.h"

namespace c10d {
class Store;
}

namespace topomask {

// What carries tensors that lie on a GPU. Those on the CPU always go by Gloo.
enum class RankBackend {
  automatic,  // NCCL where every rank has a GPU of its own, else Gloo
  gloo,       // through the memory of the host
  nccl,       // from GPU to GPU; no two ranks may share one
};

struct RankOptions {
  double timeout_seconds = 60;  // for peers to come, and for each exchange
  RankBackend backend = RankBackend::automatic;
};

class NodeExchange;
class Ranks;
using RanksPtr = std::shared_ptr<const Ranks>;

// The processes that work together, and what they can do together.
class Ranks {
 public:
  // One rank, which sends nothing.
  static RanksPtr alone();
  // From RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them. Where WORLD_SIZE is 1 it is
  // alone, unless a backend was asked for by name. Collective.
  static RanksPtr from_environment(const RankOptions& options = {});
  static bool in_environment();  // whether RANK and WORLD_SIZE are set
  // Over a store that all ranks see. Collective.
  static RanksPtr from_store(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                             const RankOptions& options = {});
  // The same over a file that all ranks see and none has written yet: ranks of one machine. Collective.
  static RanksPtr from_file(const std::string& path, int rank, int size, const RankOptions& options = {});
  // A group that exists, by its name in c10d's registry (Python: torch.distributed.group.WORLD.group_name).
  // Tensors that it has no backend for go through the memory of one that it has.
  static RanksPtr from_group(const std::string& name);
  // R ranks as threads of this process, which share its cores; what one of them throws, this throws. For
  // tests and small runs on the CPU: of a GPU, autograd has one thread for all, where backward passes of two
  // ranks would wait for each other.
  static void run_threads(int size, const std::function<void(const RanksPtr&)>& each,
                          const RankOptions& options = {});
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Whether collectives go through a backend: of several ranks always, of one where it was asked for by name.
  bool has_group() const { return group_ != nullptr; }
  // The device that a word means on this rank, as parse_device; but "cuda" is the GPU that has its number on
  // the machine (LOCAL_RANK, as torchrun sets it, modulo the number of GPUs). For GPUs it settles what
  // carries their tensors; without it, Gloo does. Somebody else's group keeps its own backends. Collective.
  c10::Device compute_on(const std::string& device) const;
  // What carries tensors of a device: "gloo", "nccl", or "none" where nothing is sent.
  std::string carrier(c10::Device device) const;

  // An exchange under way. `wait` returns what came: [sum of receive counts, ...].
  class Pending {
   public:
    Pending();
    Pending(Pending&&) noexcept;
    Pending& operator=(Pending&&) noexcept;
    ~Pending();
    at::Tensor wait();

   private:
    friend class Ranks;
    struct State;
    std::unique_ptr<State> state_;
  };
  // Sends the first send_counts[0] rows to rank 0, the next to rank 1, ... rows: [sum of send counts, ...].
  // `what` names it in errors: "K and V". Collective, as all that follow.
  Pending start_exchange(const at::Tensor& rows, const std::vector<std::int64_t>& send_counts,
                         const std::vector<std::int64_t>& receive_counts, const std::string& what) const;
  // How many each rank will send here, where it is told how many it gets.
  std::vector<std::int64_t> exchange_counts(const std::vector<std::int64_t>& send_counts,
                                            const std::string& what) const;
  at::Tensor all_gather(const at::Tensor& x, const std::string& what) const;  // [R, ...]
  at::Tensor sum(const at::Tensor& x, const std::string& what) const;  // in the order of ranks: the same bits
  at::Tensor largest(const at::Tensor& x, const std::string& what) const;
  // Runs `stage` on every rank. Where it throws on one, all throw its sentence, with the rank's number.
  void together(const std::string& what, const std::function<void()>& stage) const;
  // The same for a stage that may take longer than the time limit. It must not use the ranks itself.
  void together_patiently(const std::string& what, const std::function<void()>& stage) const;
  // What rank 0 gives, on every rank. Of tensors the others give one of the same shape and type.
  at::Tensor from_first(const at::Tensor& x, const std::string& what) const;
  std::string from_first(const std::string& text, const std::string& what) const;

  // Bytes that this rank has sent to others since the last reset.
  std::int64_t bytes_sent() const;
  void reset_bytes_sent() const;

 private:
  struct Group;
  Ranks(int rank, int size, std::shared_ptr<Group> group);
  int rank_, size_;
  std::shared_ptr<Group> group_;
};

// A graph of which each rank holds the rows of its own nodes. A node has two numbers: the original one, as in
// the whole graph, which random words and users go by; and its place, by which ranks own contiguous ranges.
// Own rows are in the ascending order of their original numbers, which is that of their places too.
class DistributedGraph {
 public:
  // Rank r takes shard r of 'topomask partition'; there must be as many as ranks. Collective, as the others.
  static DistributedGraph from_shards(const std::string& folder, const RanksPtr& ranks);
  static DistributedGraph from_shard(const Shard& shard, const RanksPtr& ranks);
  // Every rank has built the same graph and partition, and keeps its own part.
  static DistributedGraph from_graph(const Graph& graph, const Partition& partition, const RanksPtr& ranks);
  // Each rank has the rows of its own nodes and nothing else. nodes: [n] int64, original numbers, ascending,
  // each on one rank. edges: [2, e] int64, from own nodes to any, original numbers, in any order; an edge of
  // an undirected graph stands in the rows of both its ends. weight: [e] or undefined (all 1).
  static DistributedGraph from_edges(std::int64_t total_nodes, const at::Tensor& nodes,
                                     const at::Tensor& edges, const at::Tensor& weight, bool directed,
                                     const RanksPtr& ranks);

  const RanksPtr& ranks() const { return ranks_; }
  std::int64_t total_nodes() const { return begin_.back(); }
  std::int64_t num_own() const { return static_cast<std::int64_t>(row_ptr_.size()) - 1; }
  std::int64_t num_halo() const { return static_cast<std::int64_t>(original_.size()) - num_own(); }
  std::int64_t largest_part() const;  // most nodes that a rank owns
  bool directed() const { return directed_; }
  at::Tensor nodes() const;  // [n] int64, ascending: original numbers of own nodes
  // [R+1]: rank r owns the places begin[r] .. begin[r+1] - 1.
  const std::vector<std::int64_t>& begin() const { return begin_; }

  at::Tensor degrees() const;  // [n] float64: sums of |w| over own rows
  DistributedGraph normalised(Normalisation how) const;
  DistributedGraph transposed() const;
  bool is_symmetric() const;
  // One row for each node of the halo from the ranks that own them: [n, ...] -> [h, ...].
  at::Tensor halo_rows(const at::Tensor& own) const;

  // Local rows. Columns: own nodes are 0 .. n-1, then come those of the halo.
  CsrView view() const;
  const std::vector<std::int32_t>& original() const { return original_; }  // [n + h]
  const std::vector<std::int32_t>& place() const { return place_; }        // [n + h]

 private:
  struct Entry;
  DistributedGraph() = default;
  // The same owners with other rows. `entries`: by row, each row as it shall stand. Collective.
  DistributedGraph with_entries(const std::vector<Entry>& entries) const;

  RanksPtr ranks_;
  std::vector<std::int64_t> begin_;  // [R+1]
  bool directed_ = false;
  std::vector<std::int64_t> row_ptr_ = {0};     // [n+1]
  std::vector<std::int32_t> col_;               // [e]
  std::vector<float> weight_;                   // [e]
  std::vector<std::int32_t> original_, place_;  // [n + h]; the halo ascends by place
  std::shared_ptr<const NodeExchange> halo_;
};

// How walks get past the border of a part. Results do not depend on it.
enum class WalkRoute {
  automatic,  // by predicted bytes
  halo,       // the rows of all nodes within reach are fetched first: short walks
  walkers,    // walkers are sent to the owner of the node they stand on, hop by hop: long walks, hubs
};

// Features of own nodes: their rows among those of the whole graph, bit for bit.
struct DistributedWalkFeatures {
  WalkFeatures features;  // rows of own nodes; columns are original numbers, of the whole graph
  at::Tensor place;       // [nnz] int32: the place of each column
  WalkRoute route = WalkRoute::halo;
};

struct DistributedFeatures {
  DistributedWalkFeatures query;
  DistributedWalkFeatures key;  // asymmetric: empty
  Ensembles ensembles = Ensembles::shared;
};

// As the functions of the same names for one process. Collective.
DistributedWalkFeatures sample_walk_features(const DistributedGraph& graph, const WalkOptions& options,
                                             bool importance_weights = true,
                                             WalkRoute route = WalkRoute::automatic);
DistributedFeatures sample_features(const DistributedGraph& graph, const FeatureOptions& options,
                                    WalkRoute route = WalkRoute::automatic);
at::Tensor sample_walks(const DistributedGraph& graph, const WalkOptions& options,
                        WalkRoute route = WalkRoute::automatic);  // [n, walks, max_hops + 1] int32

// M_hat = Phi Psi^T over all ranks, each with its own rows, as GrfMask for one process: the walks and
// patterns belong to the graph and are made once. One set of walks serves all heads, or each has its own.
//
// A row is interior where it meets own nodes alone; its attention needs no other rank.
class DistributedGrfMask {
 public:
  // f: [F], [heads, F] or [heads, 2, F] (of queries and keys, as GrfMask), float, the same on every rank, on
  // the device where the mask computes. Its gradient is summed over the ranks, in their order. Collective, as
  // all that follow.
  DistributedGrfMask(DistributedGraph graph, const FeatureOptions& options, at::Tensor f,
                     WalkRoute route = WalkRoute::automatic);
  // One set of walks per row of f, as GrfMask::per_head.
  static std::shared_ptr<const DistributedGrfMask> per_head(DistributedGraph graph,
                                                            const FeatureOptions& options, at::Tensor f,
                                                            WalkRoute route = WalkRoute::automatic);
  // The same walks; as many rows as before where each has its own. It may be on another device.
  std::shared_ptr<const DistributedGrfMask> with_f(at::Tensor f) const;

  const RanksPtr& ranks() const;
  const at::Tensor& f() const { return f_; }  // [heads, F] or [heads, 2, F]
  std::int64_t heads() const { return f_.size(0); }
  std::int64_t num_own() const;
  std::int64_t num_sets() const { return static_cast<std::int64_t>(sets_.size()); }  // of walks
  const DistributedFeatures& features(std::int64_t set = 0) const;

  // y_h = M_h x_h, or M_h^T x_h, of rows of own nodes: [H, n, C], H = heads() or, where heads() is 1,
  // anything. Differentiable in x and f. Sends sums of shared columns to their owners, and back.
  at::Tensor multiply(const at::Tensor& x, bool transposed = false) const;

  // What attention sends and keeps, counted for this rank.
  struct Counts {
    std::int64_t interior_rows = 0, boundary_rows = 0;
    std::int64_t entries = 0;        // nonzeros of own rows of M
    std::int64_t halo = 0;           // nodes of others whose rows of K and V come here
    std::int64_t sends = 0;          // own rows that others need, once for each of them
    std::int64_t query_columns = 0;  // columns of others that own queries meet; see Engine::feature
    std::int64_t query_sends = 0;    // own columns that queries of others meet, once for each of them
    std::int64_t key_columns = 0;    // columns of others that own keys stand in
  };
  // mask: the first five; feature: the last three
  Counts counts(Engine engine, std::int64_t set = 0) const;
  struct Symbolic;  // of the library itself

 private:
  friend at::Tensor attention(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                              const DistributedGrfMask&, const AttentionOptions&);
  friend Engine choose_engine(const DistributedGrfMask&, const AttentionOptions&, std::int64_t, std::int64_t);
  DistributedGrfMask() = default;
  Symbolic& set_at(std::int64_t set) const;

  std::vector<std::shared_ptr<Symbolic>> sets_;  // one, or one per row of f
  at::Tensor f_;
};

// As attention() for one process, of rows of own nodes: q, k: [B, H, n, d], v: [B, H, n, d_v] or packed
// [n, H, d]; float32, float64 or bfloat16 on the device of f. All ranks must agree on B, H, d, d_v, dtypes,
// options and on what requires gradients. Engine::mask fetches the rows of K and V that the halo of M needs
// and computes interior rows while they travel; Engine::feature exchanges partial sums of shared columns.
// Collective; so is the backward pass. max_workspace bounds Engine::feature on each rank (0: 2 GiB);
// Engine::mask takes what the nonzeros of own rows take, which plan_ranks predicts.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const DistributedGrfMask& mask, const AttentionOptions& options = {});
// The engine that `automatic` stands for, with queries of d and values of d_v channels. Collective.
Engine choose_engine(const DistributedGrfMask& mask, const AttentionOptions& options, std::int64_t d,
                     std::int64_t d_v);
// Without a mask: linear attention over all nodes of all ranks, by one sum of a [B, H, m, d_v + 1] state.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const RanksPtr& ranks,
                     const AttentionOptions& options = {});

template <>
std::span<const Word<WalkRoute>> words<WalkRoute>();
template <>
std::span<const Word<RankBackend>> words<RankBackend>();

}  // namespace topomask
