// The operators torch.ops.topomask.*: tensors, numbers and words only, so that torch can trace, export and
// replay them. Shapes for tracing are registered from Python (topomask/_ops.py), gradients
// beside each operator (library_call.h).
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
  def("modulate_backward(Tensor grad, Tensor f, Tensor deposit_ptr, Tensor hop, Tensor load) -> Tensor");

  // A pattern is row_ptr, col, transposed_ptr, transposed_row, transposed_entry. A backward operator returns
  // an empty tensor for what needs no gradient.
  def("transpose_pattern(Tensor row_ptr, Tensor col) -> (Tensor, Tensor, Tensor)");
  def("product_pattern(Tensor[] query, Tensor[] key) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  def("estimate_product_nnz(Tensor[] query, Tensor[] key, int sample) -> Tensor");
  def("merge_patterns(Tensor[] row_ptrs, Tensor[] cols, int[] offsets, int num_nodes) "
      "-> (Tensor, Tensor, Tensor)");
  def("sparse_matmul(Tensor values, Tensor x, Tensor[] pattern, bool transposed) -> Tensor");
  def("sparse_matmul_backward(Tensor grad, Tensor values, Tensor x, Tensor[] pattern, bool transposed, "
      "bool[2] needs) -> (Tensor, Tensor)");
  def("write_out(Tensor values, Tensor[] pattern) -> Tensor");
  def("write_out_backward(Tensor grad, Tensor values, Tensor[] pattern) -> Tensor");
  def("sparse_product(Tensor query_values, Tensor key_values, Tensor[] query, Tensor[] key, "
      "Tensor[] product) -> Tensor");
  def("sparse_product_backward(Tensor grad, Tensor query_values, Tensor key_values, Tensor[] query, "
      "Tensor[] key, Tensor[] product, bool[2] needs) -> (Tensor, Tensor)");

  // Masks with kernels of their own. x: [H, N, C]; a, t: [H] or [1].
  def("forest_product(Tensor x, Tensor a, Tensor row_ptr, Tensor col, Tensor weight, bool weighted) -> "
      "Tensor");
  def("forest_product_backward(Tensor grad, Tensor x, Tensor a, Tensor row_ptr, Tensor col, Tensor weight, "
      "bool weighted, bool[2] needs) -> (Tensor, Tensor)");
  def("hypercube_heat(Tensor x, Tensor t, int dimension) -> Tensor");
  def("hypercube_heat_backward(Tensor grad, Tensor x, Tensor t, int dimension, bool[2] needs) "
      "-> (Tensor, Tensor)");
  def("check_hypercube(Tensor row_ptr, Tensor col) -> Tensor");
  def("hop_distances(Tensor row_ptr, Tensor col, int max_distance, int max_bytes) -> Tensor");
  def("spe_noise(int heads, int rows, int realisations, int seed) -> Tensor");

  def("cuda_is_built() -> bool");

  // Attention: q, k [B, H, N, m], v [B, H, N, d_v] -> [B, H, N, d_v]. `scores` is what q and k are:
  // "features", "relu" (features are made of them) or "softmax".
  def("favor_projection(int num_features, int d, int seed, ScalarType dtype, Device device) -> Tensor");
  def("plan_attention(str name, int[] mask, float[] cost, int[] shape, ScalarType dtype, Device device, "
      "str kind, str engine, int max_workspace) -> (str, int, str)");
  def("mask_attention(Tensor q, Tensor k, Tensor v, Tensor values, Tensor[] pattern, str scores, "
      "float epsilon, float guard) -> Tensor");
  def("mask_attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor values, Tensor[] pattern, "
      "str scores, float epsilon, float guard, bool[4] needs) -> (Tensor, Tensor, Tensor, Tensor)");
  def("feature_attention(Tensor q, Tensor k, Tensor v, Tensor left_values, Tensor right_values, "
      "Tensor[] left, Tensor[] right, float guard, int max_workspace) -> Tensor");
  def("feature_attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor left_values, "
      "Tensor right_values, Tensor[] left, Tensor[] right, float guard, int max_workspace, bool[5] needs) "
      "-> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  def("dense_attention(Tensor q, Tensor k, Tensor v, Tensor matrix, str scores, float epsilon, "
      "float guard, int max_workspace) -> Tensor");
  def("dense_attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor matrix, str scores, "
      "float epsilon, float guard, int max_workspace, bool[4] needs) -> (Tensor, Tensor, Tensor, Tensor)");
}
