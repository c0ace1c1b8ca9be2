// The operators torch.ops.topomask.*: tensors, numbers and words only, so that torch can trace, export and
// replay them. Gradients are beside each operator (library_call.h), and so are shapes for tracing: kernels
// for the Meta key. Shapes that depend on the data or on the device are registered from Python
// (topomask/_ops.py).
#include <torch/library.h>

TORCH_LIBRARY(topomask, m) {
  const std::vector<at::Tag> tags = {at::Tag::pt2_compliant_tag};
  const auto def = [&](const char* schema) { m.def(schema, tags); };

  // For another language: what the library takes where an argument is not given, and the words of those that
  // are words, as JSON; the end of a sentence about an unknown name.
  def("option_catalogue() -> str");
  def("nearest_or_all(str name, str[] known) -> str");

  // Graphs: row_ptr [N+1] int64, col [E] int32, weight [E] float32; `directed` is a bool tensor [].
  // graph_from_edges: the last is where the graphs of a batch begin, [graphs+1], or [0] where there is none.
  def("graph_from_edges(Tensor edge_index, Tensor? edge_weight, int? num_nodes, bool undirected, "
      "str duplicates, str self_loops, Tensor? batch=None, Tensor? ptr=None) "
      "-> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  def("graph_from_csr(Tensor row_ptr, Tensor col, Tensor? weight) -> (Tensor, Tensor, Tensor, Tensor)");
  def("graph_from_dense(Tensor adjacency) -> (Tensor, Tensor, Tensor, Tensor)");
  def("load_graph(str spec, str[] option_names, str[] option_words) "
      "-> (Tensor, Tensor, Tensor, Tensor, str[], str[])");
  def("knn_graph(Tensor points, int? k, bool? symmetric, Tensor? ptr, Tensor? box) "
      "-> (Tensor, Tensor, Tensor, bool, int)");
  def("grid_graph(int[] extent, bool diagonals, bool wrap) -> (Tensor, Tensor, Tensor)");
  def("normalise(Tensor row_ptr, Tensor col, Tensor weight, bool directed, str how) -> Tensor");
  def("transpose_graph(Tensor row_ptr, Tensor col, Tensor weight) -> (Tensor, Tensor, Tensor)");
  def("union_graphs(Tensor[] row_ptr, Tensor[] col, Tensor[] weight) -> (Tensor, Tensor, Tensor, Tensor)");
  def("checked_nodes(Tensor nodes, int num_nodes) -> Tensor");
  def("is_symmetric(Tensor row_ptr, Tensor col, Tensor weight) -> Tensor");
  def("partition_graph(Tensor row_ptr, Tensor col, Tensor weight, bool directed, int parts, str method, "
      "int seed, Tensor? points) -> Tensor");

  // Neighbours: index [Q, k] int32, squared distances [Q, k], count [Q] int32; or edges [2, E] int64.
  def("knn(Tensor points, int k, Tensor? queries, Tensor? ptr, Tensor? query_ptr, Tensor? box, "
      "bool? include_self) -> (Tensor, Tensor, Tensor)");
  def("knn_edges(Tensor points, int k, Tensor? queries, Tensor? ptr, Tensor? query_ptr, Tensor? box, "
      "bool? include_self) -> Tensor");
  def("radius(Tensor points, float r, int? max_neighbours, Tensor? queries, Tensor? ptr, Tensor? query_ptr, "
      "Tensor? box, bool? include_self) -> (Tensor, Tensor, Tensor)");
  def("radius_edges(Tensor points, float r, int? max_neighbours, Tensor? queries, Tensor? ptr, "
      "Tensor? query_ptr, Tensor? box, bool? include_self) -> Tensor");
  // [1, graphs+1] of the graph of every point, or [2, graphs+1] of every point and every query.
  def("batch_ptrs(Tensor? batch, Tensor? query_batch, bool has_queries) -> Tensor");

  // Walks are described by settings of "grf" (topomask/mask_catalogue.h), a JSON object of texts. Features:
  // row_ptr [N+1] int64, col [nnz] int32, deposit_ptr [nnz+1] int64, hop [D] int16, load [D] float32.
  def("sample_features(Tensor row_ptr, Tensor col, Tensor weight, str walks, int ensemble) "
      "-> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  def("sample_walks(Tensor row_ptr, Tensor col, Tensor weight, str walks) -> Tensor");
  def("derive_seeds(int seed, int count) -> Tensor");
  def("exact_kernel(Tensor row_ptr, Tensor col, Tensor weight, bool directed, str kernel) -> Tensor");
  def("modulate(Tensor f, Tensor deposit_ptr, Tensor hop, Tensor load) -> Tensor");
  def("modulate_backward(Tensor grad, Tensor f, Tensor deposit_ptr, Tensor hop, Tensor load) -> Tensor");

  // Masks: a recipe, constants and parameters (expressions.h). A backward operator returns an empty tensor
  // for what needs no gradient; `needs` counts x first, then the parameters.
  def("make_mask(str name, Tensor[] graph, bool directed, int out_degree, int num_nodes, int heads, str "
      "settings, "
      "str[] given_names, Tensor[] given, ScalarType dtype, Device device) -> (str, Tensor[], Tensor[])");
  def("mask_advice(str name, Tensor[] graph, bool directed, int heads, str settings) -> str");
  def("make_tensor_mask(str name, Tensor[] constants, Tensor[] parameters) -> (str, Tensor[])");
  def("combine_masks(str name, str[] parts, int[] numbers, Tensor[] constants, Tensor[] parameters) "
      "-> str");
  def("mask_profile(str mask) -> int[]");
  def("mask_catalogue() -> str");
  def("mask_multiply(str mask, Tensor[] constants, Tensor[] parameters, Tensor x, bool transposed) -> "
      "Tensor");
  def("mask_multiply_backward(Tensor grad, str mask, Tensor[] constants, Tensor[] parameters, Tensor x, "
      "bool transposed, int[] needs) -> Tensor[]");
  def("mask_view(str mask, Tensor[] constants, Tensor[] parameters, str what, ScalarType dtype) -> Tensor");
  def("mask_view_backward(Tensor grad, str mask, Tensor[] constants, Tensor[] parameters, str what, "
      "ScalarType dtype, int[] needs) -> Tensor[]");
  def("mask_pattern(str mask, Tensor[] constants, Tensor[] parameters) -> Tensor[]");
  def("mask_features(str mask, Tensor[] constants, Tensor[] parameters, int head) -> Tensor[]");
  def("feature_products(str mask, Tensor[] constants, Tensor[] parameters, Tensor rows, Tensor columns) "
      "-> Tensor");
  def("forget_masks() -> ()");
  def("parse_extent(str text) -> int[]");
  def("cuda_is_built() -> bool");

  // Modules: complete settings, names and initial weights; what a module makes of weights and inputs. A
  // vision transformer's settings are JSON (topomask/runs.h), a renderer's too; those of the other parts of a
  // particle model are TOML, as of `topomask train particles`.
  def("library_module(str kind, str settings) -> (str, str[], Tensor[])");
  def("run_library_module(str kind, str settings, str[] names, Tensor[] tensors) -> Tensor");
  def("run_library_module_backward(Tensor grad, str kind, str settings, str[] names, Tensor[] tensors, "
      "int[] needs) -> Tensor[]");
  // Settings, names and weights of trained models; of HD-VPD the settings of the renderer too.
  def("load_vit(str path) -> (str, str[], Tensor[])");
  def("load_hdvpd(str path) -> (str, str, str, str[], Tensor[])");
  def("normalise_images(Tensor images, float[] mean, float[] stddev) -> Tensor");

  // Attention: q, k [B, H, N, d], v [B, H, N, d_v] -> [B, H, N, d_v], or packed [N, H, d]. An empty mask is
  // none.
  def("attention(Tensor q, Tensor k, Tensor v, str mask, Tensor[] constants, Tensor[] parameters, str kind, "
      "str feature_map, str engine, float? epsilon, int? num_features, int feature_seed, float? guard, "
      "int? max_workspace, bool check_finite) -> Tensor");
  // While tracing: the result and what the backward pass needs of it. attention_saved: sizes of the latter
  // for a batch of one.
  def("attention_forward(Tensor q, Tensor k, Tensor v, str mask, Tensor[] constants, Tensor[] parameters, "
      "str kind, "
      "str feature_map, str engine, float? epsilon, int? num_features, int feature_seed, float? guard, "
      "int? max_workspace, bool check_finite) -> Tensor[]");
  def("attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, str mask, Tensor[] constants, "
      "Tensor[] parameters, Tensor[] result, str kind, str feature_map, str engine, float? epsilon, "
      "int? num_features, int feature_seed, float? guard, int? max_workspace, bool check_finite, int[] "
      "needs) "
      "-> Tensor[]");
  def("attention_saved(str mask, int[] shape, ScalarType dtype, Device device, str kind, str feature_map, "
      "str engine) -> int[][]");
  // Over the entries of a pattern, with a weight or an additive bias for each.
  def("csr_attention(Tensor q, Tensor k, Tensor v, Tensor row_ptr, Tensor col, Tensor? weight, Tensor? bias, "
      "str kind, str feature_map, str engine, float? epsilon, int? num_features, int feature_seed, float? "
      "guard, "
      "int? max_workspace, bool check_finite) -> Tensor");
  // For masks that can only multiply: what goes through the mask, and what comes of it.
  def("column_operands(Tensor q, Tensor k, Tensor v, int num_nodes, int heads, str feature_map, float? "
      "epsilon, "
      "int? num_features, int feature_seed, int? max_workspace) -> (Tensor, Tensor, Tensor, int)");
  def("column_result(Tensor sums, Tensor v, float? guard) -> Tensor");
  def("plan_attention(Tensor q, Tensor v, str mask, str kind, str feature_map, str engine, int? "
      "num_features, "
      "int? max_workspace, bool learning) -> str");
  def("plan_ensembles(Tensor row_ptr, Tensor col, Tensor weight, bool directed, str kernel, str walks, "
      "float? error, float? confidence, int? features, int? channels) -> str");
}
