// The `feature` engine by columns, on a GPU. Framework-free: device pointers and a stream in, a status out.
// No atomics: every sum has one order.
//
// With A and B sparse, N x C, one pass computes
//
//   out_i = sum_c A_ic u_ic,   u_ic = x_i^T Z_c,   Z_c = sum_j B_jc y_j z_j^T,
//
// where Z_c is a small matrix that stays on chip. Attention is the pass (x, y, z) = (q, k, v) with A = Phi
// and B = Psi; its gradients are three more passes, see column_engine_cuda.cpp. Column kernels write the rows
// u_ic of all entries, and row kernels add them up. A pass takes at most kColumnWidth features and value
// columns; more of them are several passes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "attention/cuda/row_attention.h"

namespace topomask {

constexpr int kColumnWidth = 64;
// Columns with at most this many keys are computed pair by pair, which is less work than by Z_c: keys (m + d)
// against 2 m d multiply-adds for a row.
constexpr int kNarrowKeys = 64;
// Columns with more rows or keys are hubs: several blocks share them, and Z_c goes through memory.
constexpr int kHubEntries = 512;

// The entries of a sparse matrix, column by column.
struct ColumnEntries {
  std::int64_t nnz = 0;
  // All null: one column, and entry i is row i.
  const std::int64_t* ptr = nullptr;    // [C+1]
  const std::int32_t* row = nullptr;    // [nnz]
  const std::int64_t* entry = nullptr;  // [nnz] where each stands row by row
};

// Which blocks work on what; a function of the two patterns.
struct ColumnWork {
  // 16 rows of a column with few keys.
  std::int64_t num_tiles = 0;
  const std::int32_t* tile_column = nullptr;
  const std::int32_t* tile_first = nullptr;  // first row, counted within the column
  // Columns that one block does alone.
  std::int64_t num_whole = 0;
  const std::int32_t* whole = nullptr;
  // All others, in chunks of keys and of rows; without lists, column 0.
  std::int64_t num_hubs = 0, num_key_chunks = 0, num_row_chunks = 0;
  std::int64_t key_chunk = kHubEntries, row_chunk = kHubEntries;  // entries
  const std::int32_t* hub = nullptr;                              // [num_hubs] columns
  const std::int32_t* key_chunk_ptr = nullptr;                    // [num_hubs+1]
  const std::int32_t* key_chunk_hub = nullptr;                    // [num_key_chunks]
  const std::int32_t* row_chunk_ptr = nullptr;                    // [num_hubs+1]
  const std::int32_t* row_chunk_hub = nullptr;                    // [num_row_chunks]
};

// One number more for each row of y and z.
enum class ColumnEdge {
  none,
  ones,   // a column of ones beside z: u has one more number, x_i^T sum_j B_jc y_j
  extra,  // a feature beside x and y: u_ic += x_extra_i sum_j B_jc y_extra_j z_j
};

// Rows of one operand, as features where `relu` says so.
struct ColumnOperand {
  Rows4 rows;
  bool relu = false;
};

// "real" is double for float64 and float for everything else. Pairs are (batch entry, head), head last.
struct ColumnPass {
  Real dtype = Real::float32;
  std::int64_t heads = 1;                      // of all operands
  std::int64_t first_pair = 0, num_pairs = 0;  // what this call does
  std::int64_t num_nodes = 0;
  int features = 0, value_columns = 0;  // at most kColumnWidth
  double epsilon = 0;                   // of ReLU features
  ColumnEntries rows, keys;             // A and B
  ColumnWork work;
  ColumnOperand x, y, z;
  const void* key_value = nullptr;  // real [1 or heads, nnz] of B, row by row; null: all are 1
  std::int64_t key_value_step = 0;
  const void* key_scale = nullptr;  // real [pairs, N], a factor of row j of B; null: 1
  ColumnEdge edge = ColumnEdge::none;
  const void* x_extra = nullptr;  // real [pairs, N]; null: 1
  const void* y_extra = nullptr;
  // What the column kernels leave: u [num_pairs, nnz(A), value_columns], of type bfloat16 on tensor cores
  // and real elsewhere; with ColumnEdge::ones real u_edge [num_pairs, nnz(A)].
  void* u = nullptr;
  void* u_edge = nullptr;
  void* workspace = nullptr;  // column_workspace() bytes
};

// Whether the tensor cores can do this: bfloat16, sizes that are multiples of 8, rows of whole 16-byte
// chunks.
bool columns_on_tensor_cores(const ColumnPass& pass);
std::int64_t column_workspace(const ColumnPass& pass);
cudaError_t column_products(const ColumnPass& pass, cudaStream_t stream);

struct ColumnRows;
// Both halves in one for A = B = 1, a single column with all rows, where one pass is all: u is not written.
// On tensor cores alone.
cudaError_t unmasked_rows(const ColumnPass& pass, const ColumnRows& rows, cudaStream_t stream);

// What becomes of the rows. Sums over several passes (blocks of features) go through `sums`.
struct ColumnRows {
  const std::int64_t* row_ptr = nullptr;  // [N+1] of A; null: one entry per row, A = 1
  const void* value = nullptr;            // real [1 or heads, nnz] of A; null: 1
  std::int64_t value_step = 0;
  void* sums = nullptr;       // real [pairs, N, value_columns], or null where one pass is all
  void* edge_sums = nullptr;  // real [pairs, N]: with ColumnEdge::ones
  bool first = true, last = true;
  // In the last pass: out_i, divided by the sum beside it or times a factor.
  Rows4 out;
  bool normalise = false;
  double guard = 0;
  void* inverse = nullptr;          // real [pairs, N], written where it normalises, or null
  const void* row_scale = nullptr;  // real [pairs, N], a factor elsewhere; null: 1
  Rows4 gate;                       // out is 0 where this is not at least 0; no data: nowhere
  // dL/dA: the products of u_ic with row i of `along`, times row_scale; real [pairs, nnz] or null.
  ColumnOperand along;
  void* value_gradient = nullptr;
  bool add_to_gradient = false;  // to what is there
};

// `pass`: the one whose u is read.
cudaError_t column_row_sums(const ColumnPass& pass, const ColumnRows& rows, cudaStream_t stream);

// product_i = factor <a_i, b_i>: real [pairs, N].
cudaError_t row_products(Real dtype, std::int64_t batch, std::int64_t heads, std::int64_t num_nodes,
                         std::int64_t columns, const Rows4& a, const Rows4& b, double factor, void* product,
                         cudaStream_t stream);

}  // namespace topomask
