// The operators torch.ops.topomask.*: tensors, numbers and words only, so that torch can trace, export and
// replay them. Shapes for tracing and the gradients' wiring are registered from Python (topomask/_ops.py).
#include <torch/library.h>

TORCH_LIBRARY(topomask, m) {
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  const auto def = [&](const char* schema) { m.def(schema, tags); };

  // Graphs: row_ptr [N+1] int64, col [E] int32, weight [E] float32; `directed` is a bool tensor [].
  def("graph_from_edges(Tensor edge_index, Tensor? edge_weight, int num_nodes, bool undirected, "
      "str duplicates, str self_loops) -> (Tensor, Tensor, Tensor, Tensor)");
  def("graph_from_csr(Tensor row_ptr, Tensor col, Tensor? weight) -> (Tensor, Tensor, Tensor, Tensor)");
  def("graph_from_dense(Tensor adjacency) -> (Tensor, Tensor, Tensor, Tensor)");
  def("load_graph(str spec) -> (Tensor, Tensor, Tensor, Tensor)");
  def("knn_graph(Tensor points, int k, bool symmetric) -> (Tensor, Tensor, Tensor)");
  def("grid_graph(int[] extent, bool diagonals, bool wrap) -> (Tensor, Tensor, Tensor)");
  def("normalise(Tensor row_ptr, Tensor col, Tensor weight, bool directed, str how) -> Tensor");
  def("transpose_graph(Tensor row_ptr, Tensor col, Tensor weight) -> (Tensor, Tensor, Tensor)");
  def("is_symmetric(Tensor row_ptr, Tensor col, Tensor weight) -> Tensor");
  def("neighbour_pattern(Tensor row_ptr, Tensor col, int hops, bool include_self) -> (Tensor, Tensor)");

  // Walks: row_ptr [N+1] int64, col [nnz] int32, deposit_ptr [nnz+1] int64, hop [D] int16, load [D] float32.
  def("sample_features(Tensor row_ptr, Tensor col, Tensor weight, int num_walks, int max_hops, str length, "
      "float p_halt, float[] survival, str step, str coupling, bool importance_weights, int seed, "
      "int ensemble) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  def("sample_walks(Tensor row_ptr, Tensor col, Tensor weight, int num_walks, int max_hops, str length, "
      "float p_halt, float[] survival, str step, str coupling, int seed, int ensemble) -> Tensor");
  def("derive_seeds(int seed, int count) -> Tensor");
  def("kernel_series(str kernel, int max_power, bool modulation) -> Tensor");
  def("exact_kernel(Tensor row_ptr, Tensor col, Tensor weight, bool directed, str kernel) -> Tensor");
  def("modulate(Tensor f, Tensor deposit_ptr, Tensor hop, Tensor load) -> Tensor");
  def("modulate_backward(Tensor grad, Tensor deposit_ptr, Tensor hop, Tensor load, SymInt terms) -> Tensor");

  // A pattern is row_ptr, col, transposed_ptr, transposed_row, transposed_entry.
  def("transpose_pattern(Tensor row_ptr, Tensor col) -> (Tensor, Tensor, Tensor)");
  def("product_pattern(Tensor[] query, Tensor[] key) -> (Tensor, Tensor)");
  def("estimate_product_nnz(Tensor[] query, Tensor[] key, int sample) -> Tensor");
  def("sparse_matmul(Tensor values, Tensor x, Tensor[] pattern, bool transposed) -> Tensor");
  def("sampled_dots(Tensor left, Tensor right, Tensor[] pattern, bool transposed, SymInt heads) -> Tensor");
  def("sparse_product(Tensor query_values, Tensor key_values, Tensor[] query, Tensor[] key, "
      "Tensor[] product) -> Tensor");
  def("sparse_product_backward(Tensor grad, Tensor query_values, Tensor key_values, Tensor[] query, "
      "Tensor[] key, Tensor[] product) -> (Tensor, Tensor)");

  def("favor_projection(int num_features, int d, int seed) -> Tensor");
  // out [B, H, N, d_v], and for the backward pass: the inverse normaliser [B, H, N], the rows' maxima
  // [B, H, N] (softmax; else [B, H, 0]), the products <q_i, k_j> [B, H, nnz] (keep_dots; else [B, H, 0]).
  def("mask_attention(Tensor q, Tensor k, Tensor v, Tensor values, Tensor[] pattern, bool softmax, "
      "float scale, float guard, bool keep_dots) -> (Tensor, Tensor, Tensor, Tensor)");
  def("mask_attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor values, Tensor out, "
      "Tensor inverse, Tensor row_max, Tensor dots, Tensor[] pattern, bool softmax, float scale, float "
      "guard) "
      "-> (Tensor, Tensor, Tensor, Tensor)");
}
