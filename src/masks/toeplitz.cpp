#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/fft_irfftn.h>
#include <ATen/ops/fft_rfftn.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/tensors.h"
#include "masks/arguments.h"
#include "topomask/graph_builders.h"
#include "topomask/masks.h"

namespace topomask {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What one batch of columns may take for its padded copy, its spectrum and the product.
constexpr std::int64_t kWorkspaceBytes = std::int64_t{64} << 20;

// The smallest even 2^a 3^b 5^c >= size: lengths that every FFT library is fast on.
std::int64_t fast_length(std::int64_t size) {
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t fives = 1; fives < 2 * size; fives *= 5) {
    for (std::int64_t odd = fives; odd < 2 * size; odd *= 3) {
      std::int64_t length = 2 * odd;
      while (length < size) length *= 2;
      best = std::min(best, length);
    }
  }
  return best;
}

struct Transforms {
  std::vector<std::int64_t> extent;
  std::vector<std::int64_t> length;  // padded, >= 2 n - 1 so that what wraps around misses the outputs
  std::vector<std::int64_t> axes;    // the trailing ones

  explicit Transforms(std::vector<std::int64_t> sizes) : extent(std::move(sizes)) {
    for (std::size_t a = 0; a < extent.size(); ++a) {
      length.push_back(fast_length(2 * extent[a] - 1));
      axes.push_back(static_cast<std::int64_t>(a) - static_cast<std::int64_t>(extent.size()));
    }
  }
  std::int64_t columns_at_once(const at::Tensor& x) const {
    std::int64_t points = 1;
    for (const std::int64_t size : length) points *= size;
    const std::int64_t bytes_per_column =
        4 * points * x.size(0) * static_cast<std::int64_t>(x.element_size());
    return std::max<std::int64_t>(1, kWorkspaceBytes / std::max<std::int64_t>(1, bytes_per_column));
  }
  // [H, N, C] -> [H, C, n_1, ...]
  at::Tensor to_grid(const at::Tensor& x) const {
    std::vector<std::int64_t> shape = {x.size(0), x.size(2)};
    shape.insert(shape.end(), extent.begin(), extent.end());
    return x.transpose(1, 2).reshape(shape);
  }
  at::Tensor spectrum(const at::Tensor& grid) const { return at::fft_rfftn(grid, length, axes); }
  at::Tensor signal(const at::Tensor& spectrum) const { return at::fft_irfftn(spectrum, length, axes); }
};

// y_i = sum_j t[j - i + n - 1] x_j, or t[i - j + n - 1] where transposed: a convolution of x with t, reversed
// unless transposed, of which the middle n outputs are wanted. grid: [1 or H, 2 n_1 - 1, ...].
at::Tensor toeplitz_product(const Transforms& transforms, const at::Tensor& grid, const at::Tensor& x,
                            bool transposed) {
  const at::Tensor kernel = transposed ? grid : grid.flip(transforms.axes);
  const at::Tensor kernel_spectrum = transforms.spectrum(kernel).unsqueeze(1);
  const std::int64_t step = transforms.columns_at_once(x);
  at::Tensor y = at::empty_like(x, at::MemoryFormat::Contiguous);
  for (std::int64_t begin = 0; begin < x.size(2); begin += step) {
    const std::int64_t count = std::min(step, x.size(2) - begin);
    at::Tensor spectrum = transforms.spectrum(transforms.to_grid(x.narrow(2, begin, count)));
    at::Tensor out = transforms.signal(spectrum.mul_(kernel_spectrum));
    for (std::size_t a = 0; a < transforms.extent.size(); ++a)
      out = out.narrow(transforms.axes[a], transforms.extent[a] - 1, transforms.extent[a]);
    y.narrow(2, begin, count).copy_(out.reshape({x.size(0), count, x.size(1)}).transpose(1, 2));
  }
  return y;
}

// d/dt of <g, y>: sum over columns of g_i x_{i+d} for every offset d, one inverse transform in all.
at::Tensor toeplitz_correlation(const Transforms& transforms, const at::Tensor& g, const at::Tensor& x) {
  const std::int64_t step = transforms.columns_at_once(x);
  at::Tensor total;
  for (std::int64_t begin = 0; begin < x.size(2); begin += step) {
    const std::int64_t count = std::min(step, x.size(2) - begin);
    const at::Tensor x_spectrum = transforms.spectrum(transforms.to_grid(x.narrow(2, begin, count)));
    at::Tensor g_spectrum = transforms.spectrum(transforms.to_grid(g.narrow(2, begin, count)));
    const at::Tensor part = g_spectrum.conj_physical_().mul_(x_spectrum).sum(1);
    total = total.defined() ? total.add_(part) : part;
  }
  // Offset d stands at index d modulo the padded length; rolled, the middle comes to n - 1.
  at::Tensor out = transforms.signal(total);
  for (std::size_t a = 0; a < transforms.extent.size(); ++a) {
    const std::int64_t n = transforms.extent[a];
    out = out.roll({n - 1}, {transforms.axes[a]}).narrow(transforms.axes[a], 0, 2 * n - 1);
  }
  return out.contiguous();
}

class ToeplitzProduct : public torch::autograd::Function<ToeplitzProduct> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& grid,
                            std::vector<std::int64_t> extent, bool transposed) {
    context->save_for_backward({x, grid});
    context->saved_data["extent"] = extent;
    context->saved_data["transposed"] = transposed;
    return toeplitz_product(Transforms(std::move(extent)), grid, x, transposed);
  }

  static variable_list backward(AutogradContext* context, variable_list grad_outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& grid = saved[1];
    const Transforms transforms(context->saved_data["extent"].toIntVector());
    const bool transposed = context->saved_data["transposed"].toBool();
    const at::Tensor& g = grad_outputs[0];
    at::Tensor grad_x, grad_grid;
    if (context->needs_input_grad(0)) grad_x = toeplitz_product(transforms, grid, g, !transposed);
    if (context->needs_input_grad(1) && x.numel() > 0) {
      // The gradient of the transposed product swaps the parts of x and g.
      grad_grid =
          transposed ? toeplitz_correlation(transforms, x, g) : toeplitz_correlation(transforms, g, x);
      grad_grid = grad_grid.sum_to_size(grid.sizes());
    }
    return {grad_x, grad_grid, at::Tensor(), at::Tensor()};
  }
};

bool same_pattern(const Graph& a, const Graph& b) {
  return a.num_nodes() == b.num_nodes() && a.num_entries() == b.num_entries() && a.row_ptr.equal(b.row_ptr) &&
         a.col.equal(b.col);
}

}  // namespace

ToeplitzMask::ToeplitzMask(std::vector<std::int64_t> extent, at::Tensor offsets, OffsetTransform transform)
    : extent_(std::move(extent)), num_nodes_(1), offsets_(std::move(offsets)), transform_(transform) {
  check(extent_.size() >= 1 && extent_.size() <= 3, "ToeplitzMask: extent must hold 1 to 3 sizes, got {}",
        extent_.size());
  std::int64_t num_offsets = 1;
  for (const std::int64_t size : extent_) {
    check(size >= 1 && size <= std::numeric_limits<std::int32_t>::max() / num_nodes_,
          "ToeplitzMask: extent must hold sizes of at least 1 whose product is below 2^31, got [{}]",
          fmt::join(extent_, ", "));
    num_nodes_ *= size;
    num_offsets *= 2 * size - 1;
  }
  const std::string shape = fmt::format("[H, {}] for extent [{}]", num_offsets, fmt::join(extent_, ", "));
  check_parameter("ToeplitzMask", "offsets", offsets_, {-1, num_offsets}, shape.c_str());
}

void check_grid(const Graph& graph, const std::vector<std::int64_t>& extent) {
  const std::string grid = fmt::format("{}", fmt::join(extent, "x"));
  std::int64_t cells = 1;
  for (const std::int64_t size : extent) cells *= size;
  check(graph.num_nodes() == cells, "ToeplitzMask: graph must be the {} grid of {} nodes, got {} nodes", grid,
        cells, graph.num_nodes());
  const Graph given = graph_on_cpu(graph);
  const bool is_grid =
      same_pattern(given, grid_graph(extent)) || same_pattern(given, grid_graph(extent, {.diagonals = true}));
  check(is_grid,
        "ToeplitzMask: graph must be the {} grid with its nodes in row-major order, got another graph of {} "
        "nodes and {} entries",
        grid, graph.num_nodes(), graph.num_entries());
}

at::Tensor ToeplitzMask::template_grid(at::ScalarType dtype) const {
  std::vector<std::int64_t> shape = {offsets_.size(0)};
  for (const std::int64_t size : extent_) shape.push_back(2 * size - 1);
  const at::Tensor grid = offsets_.to(dtype).reshape(shape);
  if (transform_ == OffsetTransform::exponential) return grid.exp();
  return transform_ == OffsetTransform::absolute ? grid.abs() : grid;
}

at::Tensor ToeplitzMask::multiply(const at::Tensor& x, bool transposed) const {
  check_input(*this, x);
  return ToeplitzProduct::apply(x, template_grid(x.scalar_type()), extent_, transposed);
}

MaskPtr ToeplitzMask::with_parameters(const std::vector<at::Tensor>& parameters) const {
  return replaced(*this, parameters, {"offsets"}, &ToeplitzMask::offsets_);
}

MaskProfile ToeplitzMask::profile() const {
  double points = 1;
  for (const std::int64_t size : extent_) points *= static_cast<double>(fast_length(2 * size - 1));
  // Two real transforms of 2.5 L log2 L operations, half of them multiply-adds, and the product of the
  // spectra.
  return basic_profile(*this, 2.5 * points * std::log2(std::max(2.0, points)) + 2 * points, 4 * 4 * points);
}

}  // namespace topomask
