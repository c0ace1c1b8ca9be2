// Graph random features on a grid: a diffusion kernel estimated from random walks, beside the exact one.
#include <ATen/ATen.h>
#include <topomask/features.h>
#include <topomask/graph_builders.h>
#include <topomask/kernels.h>
#include <topomask/theory.h>

#include <cstdio>

int main() {
  using namespace topomask;
  const Graph grid = normalise(grid_graph({10, 10}), Normalisation::symmetric);
  const NodeKernel kernel = NodeKernel::parse("diffusion:sigma2=1");

  FeatureOptions options;
  options.walks.num_walks = 1024;
  options.ensembles = Ensembles::independent;
  const GraphFeatures features = sample_features(grid, options);

  // M_hat = Phi Psi^T. Walks are sampled once; another kernel would only need another modulation.
  const at::Tensor modulation = at::tensor(feature_modulation(kernel, options), at::kDouble);
  const at::Tensor estimate = features.query.to_dense(modulation).mm(features.key.to_dense(modulation).t());
  const at::Tensor exact = exact_kernel(grid, kernel);

  std::printf("  i   j   estimate      exact\n");
  const int i = 44;
  for (const int j : {44, 45, 55, 46, 64, 99}) {
    std::printf("%3d %3d %10.4f %10.4f\n", i, j, estimate[i][j].item<double>(), exact[i][j].item<double>());
  }
  const double error = ((estimate - exact).norm() / exact.norm()).item<double>();
  const double nonzeros = static_cast<double>(features.query.nnz()) / static_cast<double>(grid.num_nodes());
  std::printf("relative error %.4f, %.1f nonzeros in a row of 100\n", error, nonzeros);
  return error < 0.1 ? 0 : 1;
}
